/* file_list_win32.c - the names of a directory on Windows: FindFirstFileW. See ls_file_list in file.h. Links (reparse
 * points) are left out if the listing must stay beneath a directory and they lead out of it. */
#include <windows.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err_win32.h"
#include "base/io/path.h"
#include "base/os/wide_win32.h"
#include "port/file/file_internal.h"

/* "path\*" in UTF-16; the caller frees it. NULL with errno set. */
static wchar_t *pattern_of(const char *path)
{
    const size_t len = strlen(path);
    char *text = malloc(len + 3);
    if (text == NULL) return NULL;
    memcpy(text, path, len);
    memcpy(text + len, "\\*", 3);
    wchar_t *pattern = ls_wide_of(text);
    free(text);
    return pattern;
}

static char *utf8_of(const wchar_t *name)
{
    const int n = WideCharToMultiByte(CP_UTF8, 0, name, -1, NULL, 0, NULL, NULL);
    char *text = n > 0 ? malloc((size_t)n) : NULL;
    if (text != NULL) (void)WideCharToMultiByte(CP_UTF8, 0, name, -1, text, n, NULL, NULL);
    return text;
}

/* The properties of the file "path/name"; false: it is left out, as it leads out of `beneath`, or cannot be
 * examined. */
static bool examine(const char *path, const char *name, const WIN32_FIND_DATAW *found, const char *beneath,
                    ls_file_info *info)
{
    const size_t bytes = strlen(path) + strlen(name) + 2;
    char *whole = malloc(bytes);
    if (whole == NULL) return false;
    (void)snprintf(whole, bytes, "%s/%s", path, name);
    const bool link = found->dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT;
    const bool stays = !link || beneath == NULL || ls_path_check_beneath(beneath, whole) == LS_OK;
    const bool examined = stays && ls_file_stat_on_disk(whole, info) == LS_OK;
    free(whole);
    if (!examined) *info = (ls_file_info){.type = LS_FILE_OTHER};
    return examined || beneath == NULL;
}

int ls_file_list_on_disk(const char *path, const char *beneath, unsigned most, ls_file_names **out)
{
    unsigned room = 32;
    int err = LS_OK;
    WIN32_FIND_DATAW found;
    if (beneath != NULL && (err = ls_path_check_beneath(beneath, path)) < 0) return err;
    wchar_t *pattern = pattern_of(path);
    if (pattern == NULL) return errno == ENOMEM ? LS_ENOMEM : LS_ENOENT; /* an invalid name cannot exist */
    const HANDLE search = FindFirstFileW(pattern, &found);
    const DWORD error = GetLastError();
    free(pattern);
    if (search == INVALID_HANDLE_VALUE) {
        ls_file_info info;
        const bool is_file = ls_file_stat_on_disk(path, &info) == LS_OK && info.type != LS_FILE_DIRECTORY;
        return is_file ? LS_ENOTDIR : ls_err_from_win32(error);
    }
    ls_file_names *names = malloc(sizeof *names + room * sizeof names->names[0]);
    if (names == NULL) err = LS_ENOMEM;
    if (names != NULL) *names = (ls_file_names){0};
    while (err == LS_OK && !names->more) {
        ls_file_info info;
        const bool is_dot = wcscmp(found.cFileName, L".") == 0 || wcscmp(found.cFileName, L"..") == 0;
        char *name = is_dot ? NULL : utf8_of(found.cFileName);
        if (name != NULL && !examine(path, name, &found, beneath, &info)) {
            free(name);
            name = NULL;
        }
        if (name != NULL && names->count == most) {
            names->more = true;
            free(name);
        } else if (name != NULL) {
            if (names->count == room) {
                ls_file_names *grown = realloc(names, sizeof *grown + 2 * room * sizeof grown->names[0]);
                if (grown == NULL) {
                    free(name);
                    err = LS_ENOMEM;
                    break;
                }
                names = grown;
                room *= 2;
            }
            names->names[names->count++] =
                (struct ls_file_name){name, found.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT, info};
        }
        if (!FindNextFileW(search, &found)) break;
    }
    (void)FindClose(search);
    if (err < 0)
        ls_file_names_free(names);
    else
        *out = names;
    return err;
}
