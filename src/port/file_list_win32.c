/* file_list_win32.c - the names of a directory on Windows: FindFirstFileW. See ls_file_list in file.h. Links (reparse
 * points) are left out if the listing must stay beneath a directory and they lead out of it. */
#include <windows.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err_win32.h"
#include "base/path.h"
#include "port/file_internal.h"

/* "path\*" in UTF-16; the caller frees it. */
static wchar_t *pattern_of(const char *path, int *err)
{
    const int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, NULL, 0);
    *err = LS_ENOENT;
    if (n <= 0) return NULL;
    wchar_t *text = malloc(((size_t)n + 2) * sizeof *text);
    *err = LS_ENOMEM;
    if (text == NULL) return NULL;
    (void)MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, text, n);
    text[n - 1] = L'\\';
    text[n] = L'*';
    text[n + 1] = L'\0';
    return text;
}

static char *utf8_of(const wchar_t *name)
{
    const int n = WideCharToMultiByte(CP_UTF8, 0, name, -1, NULL, 0, NULL, NULL);
    char *text = n > 0 ? malloc((size_t)n) : NULL;
    if (text != NULL) (void)WideCharToMultiByte(CP_UTF8, 0, name, -1, text, n, NULL, NULL);
    return text;
}

/* The properties of the file "path/name"; false: it is left out. */
static bool examine(const char *path, const char *name, const WIN32_FIND_DATAW *found, const char *beneath,
                    ls_file_info *info)
{
    const size_t bytes = strlen(path) + strlen(name) + 2;
    char *whole = malloc(bytes);
    if (whole == NULL) return false;
    (void)snprintf(whole, bytes, "%s/%s", path, name);
    const bool link = found->dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT;
    ls_file_op op = {.action = DO_STAT, .path = whole};
    bool good = !link || beneath == NULL || ls_path_check_beneath(beneath, whole) == LS_OK;
    good = good && ls_file_run(&op) == LS_OK;
    if (good) *info = op.info;
    free(whole);
    return good;
}

int ls_file_list_now(const char *path, const char *beneath, ls_file_names **out)
{
    unsigned room = 32;
    int err = LS_OK;
    WIN32_FIND_DATAW found;
    if (beneath != NULL && (err = ls_path_check_beneath(beneath, path)) < 0) return err;
    wchar_t *pattern = pattern_of(path, &err);
    if (pattern == NULL) return err;
    err = LS_OK;
    const HANDLE search = FindFirstFileW(pattern, &found);
    const DWORD error = GetLastError();
    free(pattern);
    if (search == INVALID_HANDLE_VALUE) return ls_err_from_win32(error);
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
        if (name != NULL && names->count == LS_FILE_NAMES_MAX) {
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
            names->names[names->count++] = (struct ls_file_name){name, info};
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
