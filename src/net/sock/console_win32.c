/* console_win32.c - see rawsock.h. In line mode the console buffers a line where a program cannot see whether more
 * input follows, so a program that waits for input reads single keys. Ctrl-C keeps its meaning. */
#include <windows.h>

#include <io.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "net/sock/rawsock.h"

enum { CRT_DESCRIPTORS = 3 }; /* 0, 1 and 2 are descriptors of the C library; any other value is a handle */

/* The console is shared with other processes, so its mode is restored at exit. */
static _Atomic(HANDLE) changed;
static _Atomic DWORD mode_before;

static void restore_mode(void)
{
    const DWORD mask = ENABLE_LINE_INPUT | ENABLE_ECHO_INPUT; /* other modes may have been changed by others */
    DWORD mode;
    if (GetConsoleMode(atomic_load(&changed), &mode))
        (void)SetConsoleMode(atomic_load(&changed), (mode & ~mask) | (atomic_load(&mode_before) & mask));
}

void ls_console_raw(ls_fd fd)
{
    const HANDLE console = fd < CRT_DESCRIPTORS ? (HANDLE)_get_osfhandle((int)fd) : (HANDLE)fd;
    DWORD mode;
    if (!GetConsoleMode(console, &mode) || !(mode & ENABLE_LINE_INPUT)) return;
    HANDLE none = NULL;
    atomic_store(&mode_before, mode);
    if (atomic_compare_exchange_strong(&changed, &none, console)) (void)atexit(restore_mode);
    (void)SetConsoleMode(console, mode & ~(DWORD)(ENABLE_LINE_INPUT | ENABLE_ECHO_INPUT));
}
