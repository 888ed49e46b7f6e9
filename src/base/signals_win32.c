/* signals_win32.c - see signals.h: the console events. The system calls the handler on a thread that it creates for
 * the event. On CTRL_CLOSE, CTRL_LOGOFF and CTRL_SHUTDOWN the process ends when the handler returns, so the handler
 * waits until the server has drained, at most LS_CLOSE_WAIT_MS_MAX. */
#include "base/signals_win32.h"
#include "base/signals.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/log.h"

struct ls_signals {
    ls_signals_options options;
    HANDLE ended;
};

/* Global: a HandlerRoutine has no user argument. The handler holds the lock shared; a change holds it exclusive. */
static SRWLOCK lock = SRWLOCK_INIT;
static ls_signals *the_signals;

/* Why the system is about to end the program; NULL: it is not. */
static const char *end_by(DWORD event)
{
    switch (event) {
    case CTRL_CLOSE_EVENT: return "the console window was closed";
    case CTRL_LOGOFF_EVENT: return "the user logs off";
    case CTRL_SHUTDOWN_EVENT: return "the system shuts down";
    default: return NULL;
    }
}

BOOL WINAPI ls_signals_handle(DWORD event)
{
    HANDLE ended = NULL;
    AcquireSRWLockShared(&lock);
    ls_signals *signals = the_signals;
    if (signals != NULL) {
        const HANDLE self = GetCurrentProcess();
        const char *const why = end_by(event);
        if (why != NULL) ls_log(LS_LOG_WARN, "%s: Windows ends this program after a few seconds, drained or not", why);
        signals->options.on_stop(signals->options.user);
        if (why != NULL) (void)DuplicateHandle(self, signals->ended, self, &ended, SYNCHRONIZE, FALSE, 0);
    }
    ReleaseSRWLockShared(&lock);
    if (ended != NULL) {
        (void)WaitForSingleObject(ended, LS_CLOSE_WAIT_MS_MAX);
        (void)CloseHandle(ended);
    }
    return signals != NULL;
}

static void set_signals(ls_signals *signals)
{
    AcquireSRWLockExclusive(&lock);
    the_signals = signals;
    ReleaseSRWLockExclusive(&lock);
}

int ls_signals_open(const ls_signals_options *options, ls_signals **out)
{
    ls_signals *signals = calloc(1, sizeof *signals);
    if (signals == NULL) return LS_ENOMEM;
    signals->options = *options;
    if ((signals->ended = CreateEventW(NULL, TRUE, FALSE, NULL)) == NULL) {
        free(signals);
        return LS_ENOMEM;
    }
    *out = signals;
    return LS_OK;
}

int ls_signals_take_stops(ls_signals *signals)
{
    (void)SetConsoleCtrlHandler(NULL, FALSE); /* the parent may have disabled Ctrl-C; children inherit that */
    set_signals(signals);
    if (SetConsoleCtrlHandler(ls_signals_handle, TRUE)) return LS_OK;
    set_signals(NULL);
    return LS_ESYS;
}

void ls_signals_close(ls_signals *signals)
{
    AcquireSRWLockShared(&lock);
    const BOOL taken = the_signals == signals;
    ReleaseSRWLockShared(&lock);
    if (taken) {
        (void)SetConsoleCtrlHandler(ls_signals_handle, FALSE);
        set_signals(NULL); /* waits for a handler that is inside on_stop() */
    }
    (void)SetEvent(signals->ended);
    (void)CloseHandle(signals->ended);
    free(signals);
}

/* Windows has no SIGPIPE. */
bool ls_pipe_guard_enter(void)
{
    return false;
}

void ls_pipe_guard_leave(bool entered)
{
    (void)entered;
}
