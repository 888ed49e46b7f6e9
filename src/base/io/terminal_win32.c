/* terminal_win32.c - the console of Windows 10 and later, which supports ECMA-48 sequences once they are enabled; an
 * older console counts as no terminal. Other terminals, which use TERM and a pipe, count as pipes. */
#include "base/io/terminal.h"

#include <windows.h>

#include <io.h>
#include <stdlib.h>

static HANDLE handle_of(FILE *stream)
{
    return (HANDLE)_get_osfhandle(_fileno(stream));
}

bool ls_is_terminal(FILE *stream)
{
    DWORD mode;
    if (!GetConsoleMode(handle_of(stream), &mode)) return false; /* a file, a pipe, or closed */
    /* The mode belongs to the console and its other processes: it is changed only if needed. */
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
