/* signals_win32.h - the console control handler. Public for the tests. */
#ifndef LS_BASE_SIGNALS_WIN32_H
#define LS_BASE_SIGNALS_WIN32_H

#include <windows.h>

/* Maximum time the handler waits for the server to stop after CTRL_CLOSE, CTRL_LOGOFF or CTRL_SHUTDOWN; the process
 * ends when the handler returns. The system waits for 5 s (HungAppTimeout), at a shutdown for 20 s
 * (WaitToKillServiceTimeout), unless the registry sets other values. */
enum { LS_CLOSE_WAIT_MS_MAX = 20000 };

/* HandlerRoutine: TRUE if it called the `on_signal` of ls_signals_start. Any thread. */
BOOL WINAPI ls_signals_handle(DWORD event);

#endif
