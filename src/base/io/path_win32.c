/* path_win32.c - see path.h: GetFinalPathNameByHandleW of the directory and of the longest part of the path that
 * exists. */
#include "base/io/path.h"

#include <windows.h>

#include <stdlib.h>
#include <wchar.h>

#include "base/err.h"
#include "base/err_win32.h"
#include "base/os/wide_win32.h"

/* The path of an open file; the caller frees it. NULL: *error is set. */
static wchar_t *path_of(HANDLE file, DWORD *error)
{
    wchar_t *real = NULL;
    DWORD kind = VOLUME_NAME_DOS, chars = GetFinalPathNameByHandleW(file, NULL, 0, kind);
    if (chars == 0 && GetLastError() == ERROR_PATH_NOT_FOUND) { /* its volume has no drive letter */
        chars = GetFinalPathNameByHandleW(file, NULL, 0, kind = VOLUME_NAME_NT);
        if (chars == 0) SetLastError(ERROR_ACCESS_DENIED); /* the file exists */
    }
    *error = chars > 0 ? ERROR_NOT_ENOUGH_MEMORY : GetLastError();
    if (chars > 0) real = malloc((size_t)chars * sizeof *real);
    if (real != NULL && GetFinalPathNameByHandleW(file, real, chars, kind) >= chars) { /* renamed in between */
        *error = ERROR_ACCESS_DENIED;
        free(real);
        real = NULL;
    }
    return real;
}

/* The path without reparse points; the caller frees it. NULL: *error is set. */
static wchar_t *resolve(const wchar_t *path, DWORD *error)
{
    const HANDLE file = CreateFileW(path, 0, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                                    OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL);
    *error = GetLastError();
    if (file == INVALID_HANDLE_VALUE) return NULL;
    wchar_t *real = path_of(file, error);
    (void)CloseHandle(file);
    return real;
}

static bool is_missing(DWORD error)
{
    return error == ERROR_FILE_NOT_FOUND || error == ERROR_PATH_NOT_FOUND;
}

static bool is_beneath(const wchar_t *directory, const wchar_t *real)
{
    const size_t len = wcslen(directory);
    if (wcsncmp(real, directory, len) != 0) return false;
    return (len > 0 && directory[len - 1] == L'\\') || real[len] == L'\\' || real[len] == L'\0'; /* a root ends in \ */
}

/* Resolve `path`, which is shortened until it exists. */
static int check(const wchar_t *directory, size_t directory_len, wchar_t *path)
{
    for (;;) {
        DWORD error;
        wchar_t *real = resolve(path, &error);
        if (real != NULL) {
            const bool beneath = is_beneath(directory, real);
            free(real);
            return beneath ? LS_OK : LS_EACCES;
        }
        if (!is_missing(error)) return error == ERROR_NOT_ENOUGH_MEMORY ? LS_ENOMEM : LS_EACCES;
        if (GetFileAttributesW(path) != INVALID_FILE_ATTRIBUTES) return LS_EACCES; /* a link without its target */
        wchar_t *slash = wcsrchr(path, L'/');
        if (slash == NULL || (size_t)(slash - path) < directory_len) return LS_OK; /* the rest does not exist */
        *slash = L'\0';
    }
}

int ls_path_check_beneath(const char *directory, const char *path)
{
    int err = LS_ENOMEM;
    DWORD error = ERROR_NOT_ENOUGH_MEMORY;
    wchar_t *wide_directory = ls_wide_of(directory), *part = ls_wide_of(path);
    wchar_t *real = wide_directory != NULL ? resolve(wide_directory, &error) : NULL;
    if (real == NULL)
        err = is_missing(error) ? LS_OK : ls_err_from_win32(error);
    else if (part != NULL)
        err = check(real, wcslen(wide_directory), part);
    free(real);
    free(part);
    free(wide_directory);
    return err;
}

int ls_path_check_open_beneath(const char *directory, intptr_t fd)
{
    DWORD error = ERROR_NOT_ENOUGH_MEMORY;
    int err = LS_OK;
    wchar_t *wide = ls_wide_of(directory), *at = NULL;
    wchar_t *real = wide != NULL ? resolve(wide, &error) : NULL;
    if (real != NULL) at = path_of((HANDLE)fd, &error); /* NOLINT(performance-no-int-to-ptr) */
    if (at == NULL)
        err = ls_err_from_win32(error);
    else if (!is_beneath(real, at))
        err = LS_EACCES;
    free(at);
    free(real);
    free(wide);
    return err;
}

bool ls_path_absolute(const char *directory, char out[LS_PATH_BYTES])
{
    wchar_t full[LS_PATH_BYTES], *wide = ls_wide_of(directory);
    const DWORD chars = wide != NULL ? GetFullPathNameW(wide, LS_PATH_BYTES, full, NULL) : 0;
    free(wide);
    return chars > 0 && chars < LS_PATH_BYTES &&
           WideCharToMultiByte(CP_UTF8, WC_ERR_INVALID_CHARS, full, -1, out, LS_PATH_BYTES, NULL, NULL) > 0;
}
