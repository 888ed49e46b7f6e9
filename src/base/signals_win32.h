/* signals_win32.h - the handler of the console's events: what the system calls, and what a test can. */
#ifndef LS_BASE_SIGNALS_WIN32_H
#define LS_BASE_SIGNALS_WIN32_H

#include <windows.h>

/* After the close of the window, a log-off or a shutdown the process ends when the handler returns: it waits for so long at most
 * until the server has stopped. The system itself waits for 5 s (HungAppTimeout), at a shutdown for 20 s
 * (WaitToKillServiceTimeout), unless its registry says otherwise. */
enum { LS_CLOSE_WAIT_MS_MAX = 20000 };

/* HandlerRoutine: true when ls_signals_start's `asked` was called. Any thread. */
BOOL WINAPI ls_signals_handle(DWORD event);

#endif
