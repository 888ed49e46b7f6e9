/* signals_win32.h - the console control handler and the names of the events. Public for the tests. */
#ifndef LS_BASE_SIGNALS_WIN32_H
#define LS_BASE_SIGNALS_WIN32_H

#include <windows.h>

/* Maximum time the handler waits for the end of the process after CTRL_CLOSE, CTRL_LOGOFF or CTRL_SHUTDOWN; the system
 * ends the process when the handler returns. The system waits for 5 s (HungAppTimeout), at a shutdown for 20 s
 * (WaitToKillServiceTimeout), unless the registry sets other values. */
enum { LS_CLOSE_WAIT_MS_MAX = 20000 };

/* Formats of the names of the events that stand for SIGHUP and SIGTERM; %lu is the process id. luaserve.h documents
 * them. "Local": they exist in the session of the user who started the process. */
#define LS_RELOAD_EVENT L"Local\\luaserve-reload-%lu"
#define LS_STOP_EVENT   L"Local\\luaserve-stop-%lu"
enum { LS_EVENT_NAME_CHARS_MAX = 48 };

/* HandlerRoutine: TRUE if it called the `on_signal` of ls_signals_start. Any thread. */
BOOL WINAPI ls_signals_handle(DWORD event);

#endif
