/* wide_win32.c - see wide_win32.h. */
#include "base/os/wide_win32.h"

#include <windows.h>

#include <errno.h>
#include <stdlib.h>

wchar_t *ls_wide_of(const char *text)
{
    const int chars = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, NULL, 0);
    wchar_t *wide = chars > 0 ? malloc((size_t)chars * sizeof *wide) : NULL;
    if (wide != NULL)
        (void)MultiByteToWideChar(CP_UTF8, 0, text, -1, wide, chars);
    else
        errno = chars > 0 ? ENOMEM : EINVAL;
    return wide;
}
