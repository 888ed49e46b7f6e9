/* fopen_win32.c - see fopen.h. fopen would read the path in the system's code page. */
#include "base/fopen.h"

#include <windows.h>

#include <errno.h>
#include <stdlib.h>
#include <wchar.h>

/* The caller frees the result; NULL with errno set. */
static wchar_t *wide_of(const char *text)
{
    const int chars = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, NULL, 0);
    wchar_t *wide = chars > 0 ? malloc((size_t)chars * sizeof *wide) : NULL;
    if (wide != NULL)
        (void)MultiByteToWideChar(CP_UTF8, 0, text, -1, wide, chars);
    else
        errno = chars > 0 ? ENOMEM : EINVAL; /* EINVAL: invalid UTF-8 */
    return wide;
}

FILE *ls_fopen(const char *path, const char *mode)
{
    FILE *file = NULL;
    wchar_t *wide_path = wide_of(path), *wide_mode = wide_of(mode);
    if (wide_path != NULL && wide_mode != NULL) file = _wfopen(wide_path, wide_mode);
    const int error = errno;
    free(wide_path);
    free(wide_mode);
    errno = error;
    return file;
}

FILE *ls_fopen_null(void)
{
    return _wfopen(L"NUL", L"wb");
}

int ls_remove(const char *path)
{
    wchar_t *wide = wide_of(path);
    const int result = wide != NULL ? _wremove(wide) : -1;
    const int error = errno;
    free(wide);
    errno = error;
    return result;
}
