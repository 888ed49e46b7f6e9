/* output_win32.c - see output.h. A file on a disk is written by the caller. Whether a pipe or a console would block,
 * Windows does not tell: the thread writes them. Standard error is written by the caller in any case. */
#include <windows.h>

#include <io.h>

#include "base/io/output.h"

size_t ls_output_put(enum ls_output to, const char *text, size_t len, uint32_t ms)
{
    /* Bypasses the C library, which would expand the newline to two bytes. */
    const HANDLE file = (HANDLE)_get_osfhandle(to == LS_OUTPUT_STDOUT ? 1 : 2);
    DWORD written;
    if (to == LS_OUTPUT_STDOUT && ms == 0 && GetFileType(file) != FILE_TYPE_DISK) return 0;
    for (size_t at = 0; at < len; at += written)
        if (!WriteFile(file, text + at, (DWORD)(len - at), &written, NULL) || written == 0) break;
    return len; /* also for a pipe without a reader */
}

FILE *ls_output_stdio(void)
{
    return stdout;
}
