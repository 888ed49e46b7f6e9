/* fopen_win32.c - see fopen.h. fopen would read the path in the system's code page. */
#include "base/io/fopen.h"

#include <errno.h>
#include <stdlib.h>
#include <wchar.h>

#include "base/os/wide_win32.h"

FILE *ls_fopen(const char *path, const char *mode)
{
    FILE *file = NULL;
    wchar_t *wide_path = ls_wide_of(path), *wide_mode = ls_wide_of(mode);
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
