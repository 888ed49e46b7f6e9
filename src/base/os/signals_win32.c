/* signals_win32.c - see signals.h: the console events, and two named events of the process.
 *
 * The system calls the console handler on a thread that it creates for the event. On CTRL_CLOSE, CTRL_LOGOFF and
 * CTRL_SHUTDOWN the system ends the process when the handler returns, so the handler waits for the process to end by
 * itself, at most LS_CLOSE_WAIT_MS_MAX. Meanwhile SetConsoleCtrlHandler would wait for the handler: it must not be
 * called.
 *
 * Windows has no signals that another process could send. Therefore a thread waits for the named events
 * LS_RELOAD_EVENT and LS_STOP_EVENT, which `luaserve reload` and `luaserve stop` set. They stand for SIGHUP and
 * SIGTERM. */
#include "base/os/signals_win32.h"
#include "base/os/signals.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <wchar.h>

#include "base/err.h"
#include "base/err_win32.h"
#include "base/io/log.h"
#include "base/os/thread.h"

enum { EVENT_CLOSE, EVENT_RELOAD, EVENT_STOP, EVENTS }; /* the first one wins when several are set */

struct ls_signals {
    ls_signals_options options;
    HANDLE events[EVENTS]; /* each wakes the thread once */
    ls_thread thread;
    atomic_bool takes_stops;
    atomic_bool process_ends; /* a handler waits for the end of the process */
    bool quick_edit;          /* was on; to be restored */
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
    const char *const why = end_by(event);
    AcquireSRWLockShared(&lock);
    ls_signals *signals = the_signals;
    if (signals != NULL) {
        if (why != NULL) ls_log(LS_LOG_WARN, "%s: Windows ends this program after a few seconds, drained or not", why);
        if (why != NULL) atomic_store(&signals->process_ends, true);
        signals->options.on_stop(signals->options.user);
    }
    ReleaseSRWLockShared(&lock);
    if (signals == NULL) return FALSE;
    if (why != NULL) (void)WaitForSingleObject(GetCurrentProcess(), LS_CLOSE_WAIT_MS_MAX);
    return TRUE;
}

static void set_signals(ls_signals *signals)
{
    AcquireSRWLockExclusive(&lock);
    the_signals = signals;
    ReleaseSRWLockExclusive(&lock);
}

static void run_callbacks(void *arg)
{
    ls_signals *signals = arg;
    const ls_signals_options *options = &signals->options;
    for (;;) {
        switch (WaitForMultipleObjects(EVENTS, signals->events, FALSE, INFINITE)) {
        case WAIT_OBJECT_0 + EVENT_RELOAD:
            if (options->on_other != NULL) options->on_other(options->user, "SIGHUP");
            break;
        case WAIT_OBJECT_0 + EVENT_STOP:
            /* Until then a stop ends the process at once, as SIGTERM and Ctrl-C do. */
            if (!atomic_load(&signals->takes_stops))
                (void)TerminateProcess(GetCurrentProcess(), STATUS_CONTROL_C_EXIT);
            options->on_stop(options->user);
            break;
        default: return; /* EVENT_CLOSE */
        }
    }
}

/* LS_EBUSY: the event exists, so this process has an open ls_signals. */
static int open_event(const wchar_t *format, HANDLE *out)
{
    wchar_t name[LS_EVENT_NAME_CHARS_MAX];
    (void)_snwprintf(name, LS_EVENT_NAME_CHARS_MAX, format, (unsigned long)GetCurrentProcessId());
    const HANDLE event = CreateEventW(NULL, FALSE, FALSE, name);
    const DWORD error = GetLastError();
    if (event == NULL) return ls_err_from_win32(error);
    if (error == ERROR_ALREADY_EXISTS) {
        (void)CloseHandle(event);
        return LS_EBUSY;
    }
    *out = event;
    return LS_OK;
}

static void close_events(ls_signals *signals)
{
    for (int i = 0; i < EVENTS; i++)
        if (signals->events[i] != NULL) (void)CloseHandle(signals->events[i]);
}

int ls_signals_open(const ls_signals_options *options, ls_signals **out)
{
    int err = LS_ENOMEM;
    ls_signals *signals = calloc(1, sizeof *signals);
    if (signals == NULL) return LS_ENOMEM;
    signals->options = *options;
    atomic_init(&signals->takes_stops, false);
    atomic_init(&signals->process_ends, false);
    if ((signals->events[EVENT_CLOSE] = CreateEventW(NULL, FALSE, FALSE, NULL)) == NULL) goto fail_events;
    if ((err = open_event(LS_RELOAD_EVENT, &signals->events[EVENT_RELOAD])) < 0) goto fail_events;
    if ((err = open_event(LS_STOP_EVENT, &signals->events[EVENT_STOP])) < 0) goto fail_events;
    if ((err = ls_thread_start(&signals->thread, "ls-signals", run_callbacks, signals)) < 0) goto fail_events;
    *out = signals;
    return LS_OK;

fail_events:
    close_events(signals);
    free(signals);
    return err;
}

/* While a user selects text in the window, each write to the console waits, and so do all threads that log. With
 * QuickEdit a click begins a selection. true: changed. */
static bool set_quick_edit(bool on)
{
    const HANDLE console = CreateFileW(L"CONIN$", GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE,
                                       NULL, OPEN_EXISTING, 0, NULL);
    DWORD mode;
    if (console == INVALID_HANDLE_VALUE) return false;
    const bool changed = GetConsoleMode(console, &mode) && !(mode & ENABLE_QUICK_EDIT_MODE) == on &&
                         SetConsoleMode(console, (mode ^ ENABLE_QUICK_EDIT_MODE) | ENABLE_EXTENDED_FLAGS);
    (void)CloseHandle(console);
    return changed;
}

int ls_signals_take_stops(ls_signals *signals)
{
    signals->quick_edit = set_quick_edit(false);
    (void)SetConsoleCtrlHandler(NULL, FALSE); /* the parent may have disabled Ctrl-C; children inherit that */
    set_signals(signals);
    atomic_store(&signals->takes_stops, true);
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
        set_signals(NULL); /* waits for a handler that is inside on_stop(); later events are the system's */
        if (!atomic_load(&signals->process_ends)) (void)SetConsoleCtrlHandler(ls_signals_handle, FALSE);
    }
    if (signals->quick_edit) (void)set_quick_edit(true);
    (void)SetEvent(signals->events[EVENT_CLOSE]);
    ls_thread_join(&signals->thread);
    close_events(signals);
    free(signals);
}

/* Windows has no SIGPIPE. */
bool ls_pipe_guard_enter(void)
{
    return false;
}

void ls_pipe_guard_leave(bool entered)
{
}
