/* system_win32.c - helpers of the commands on Windows: UTF-16 conversion, complete paths, error messages. */
#include "cli/main_win32.h"

#include <windows.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/os/wide_win32.h"

char *ls_main_utf8(const wchar_t *wide)
{
    const int bytes = WideCharToMultiByte(CP_UTF8, WC_ERR_INVALID_CHARS, wide, -1, NULL, 0, NULL, NULL);
    char *out = bytes > 0 ? malloc((size_t)bytes) : NULL;
    if (out != NULL) (void)WideCharToMultiByte(CP_UTF8, 0, wide, -1, out, bytes, NULL, NULL);
    return out;
}

wchar_t *ls_main_full_path(const char *path)
{
    wchar_t *wide = ls_wide_of(path), *full = NULL;
    const DWORD room = wide != NULL ? GetFullPathNameW(wide, 0, NULL, NULL) : 0;
    if (room > 0 && (full = malloc(room * sizeof *full)) != NULL && GetFullPathNameW(wide, room, full, NULL) == 0) {
        free(full);
        full = NULL;
    }
    free(wide);
    return full;
}

void ls_main_set_env(const char *value, int replace)
{
    wchar_t *wide = ls_wide_of(value);
    if (wide != NULL && (replace || _wgetenv(L"LUASERVE_ENV") == NULL)) (void)_wputenv_s(L"LUASERVE_ENV", wide);
    free(wide);
}

const char *ls_main_libraries(void)
{
    return "libraries: inside this program; updates of the system do not reach them\n";
}

const char *ls_main_site_hint(const char *site)
{
    wchar_t *full = ls_main_full_path(site);
    const int hidden = full != NULL && wcslen(full) >= MAX_PATH && GetFileAttributesW(full) == INVALID_FILE_ATTRIBUTES;
    free(full);
    return hidden ? "; its complete path is longer than 259 characters, which Windows opens only if LongPathsEnabled "
                    "is 1 in "
                    "HKLM\\SYSTEM\\CurrentControlSet\\Control\\FileSystem"
                  : "";
}

const char *ls_main_reason(unsigned long error, char *out, size_t bytes)
{
    wchar_t text[512] = L"";
    DWORD n = FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL, error, 0, text,
                             sizeof text / sizeof text[0], NULL);
    while (n > 0 && (text[n - 1] == L'\r' || text[n - 1] == L'\n' || text[n - 1] == L'.' || text[n - 1] == L' '))
        text[--n] = L'\0';
    char *reason = n > 0 ? ls_main_utf8(text) : NULL;
    (void)snprintf(out, bytes, "%s (error %lu)", reason != NULL ? reason : "unknown reason", error);
    free(reason);
    return out;
}

int ls_main_fail(const char *what, unsigned long error)
{
    char reason[LS_REASON_BYTES_MAX];
    fprintf(stderr, "luaserve: %s: %s\n", what, ls_main_reason(error, reason, sizeof reason));
    return LS_STATUS_FAILED;
}
