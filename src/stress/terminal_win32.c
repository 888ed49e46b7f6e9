/* terminal_win32.c - the console (Windows 10 and later obey ECMA-48 when asked to; older ones count as no terminal), and
 * terminals of other origin that announce themselves by TERM and a pipe are treated as pipes. */
#include "stress/terminal.h"

#include <windows.h>

#include <io.h>
#include <stdlib.h>

static HANDLE handle_of(FILE *stream)
{
    return (HANDLE)_get_osfhandle(_fileno(stream));
}

bool ls_terminal_is(FILE *stream)
{
    DWORD mode;
    if (!GetConsoleMode(handle_of(stream), &mode)) return false; /* a file, a pipe, or closed */
    /* The mode is the console's, not ours alone: it is left as it is where it obeys already. */
    if (mode & ENABLE_VIRTUAL_TERMINAL_PROCESSING) return true;
    return SetConsoleMode(handle_of(stream), mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING) != 0;
}

unsigned ls_terminal_columns(FILE *stream)
{
    CONSOLE_SCREEN_BUFFER_INFO info;
    if (!GetConsoleScreenBufferInfo(handle_of(stream), &info)) return 80;
    return (unsigned)(info.srWindow.Right - info.srWindow.Left + 1);
}

bool ls_terminal_utf8(void)
{
    return GetConsoleOutputCP() == CP_UTF8;
}

bool ls_terminal_no_color(void)
{
    const char *value = getenv("NO_COLOR");
    return value != NULL && value[0] != '\0';
}
