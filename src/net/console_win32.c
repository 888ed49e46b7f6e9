/* console_win32.c - see rawsock.h. What a console has collected to a line lies where nobody can look whether there is more, so a program
 * that waits for input takes single keys. Ctrl-C stays what it is. */
#include <windows.h>

#include <io.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "net/rawsock.h"

enum { CRT_DESCRIPTORS = 3 }; /* 0, 1 and 2 are the C library's, all else is a handle */

/* The console is the process's own, and so is its mode; whoever comes after us finds it as it was. */
static _Atomic(HANDLE) changed;
static _Atomic DWORD mode_before;

static void give_back(void)
{
    (void)SetConsoleMode(atomic_load(&changed), atomic_load(&mode_before));
}

void ls_console_raw(ls_fd fd)
{
    const HANDLE console = fd < CRT_DESCRIPTORS ? (HANDLE)_get_osfhandle((int)fd) : (HANDLE)fd;
    DWORD mode;
    if (!GetConsoleMode(console, &mode) || !(mode & ENABLE_LINE_INPUT)) return;
    HANDLE none = NULL;
    atomic_store(&mode_before, mode);
    if (atomic_compare_exchange_strong(&changed, &none, console)) (void)atexit(give_back);
    (void)SetConsoleMode(console, mode & ~(DWORD)(ENABLE_LINE_INPUT | ENABLE_ECHO_INPUT));
}
