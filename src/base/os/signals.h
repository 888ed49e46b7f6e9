/* signals.h - the signals of the process: requests to stop (SIGINT and SIGTERM, or the console events of Windows),
 * other signals, and SIGPIPE. On Windows named events stand for SIGTERM and SIGHUP: signals_win32.h.
 *
 * The signals have handlers; no thread blocks them for long. Therefore a child process, which inherits the mask of the
 * thread that starts it, gets every signal with its default action (execve(2) resets handlers). */
#ifndef LS_BASE_SIGNALS_H
#define LS_BASE_SIGNALS_H

#include <stdbool.h>

typedef struct ls_signals ls_signals;

/* The callbacks run on a thread of this module. */
typedef struct ls_signals_options {
    void (*on_stop)(void *user);
    void (*on_other)(void *user, const char *name); /* "SIGHUP", "SIGUSR1", "SIGUSR2"; NULL: not handled */
    void *user;
} ls_signals_options;

/* Take the other signals and SIGPIPE: a write to a closed pipe returns EPIPE. Another signal that the process ignores
 * already (nohup(1)) remains ignored. LS_OK; LS_EBUSY: the process has an open ls_signals; LS_ENOMEM; LS_ESYS. */
int ls_signals_open(const ls_signals_options *options, ls_signals **out);
int ls_signals_take_stops(ls_signals *signals); /* from now on on_stop runs for each request. LS_OK or LS_ESYS */
void ls_signals_close(ls_signals *signals);     /* restores the actions that are still its own */

/* Keep SIGPIPE from the calling thread during a call that has no MSG_NOSIGNAL (sendfile(2), a library's write), in a
 * process whose SIGPIPE ls_signals_open has not taken. Leave with the result of enter. Both keep errno. */
bool ls_pipe_guard_enter(void);
void ls_pipe_guard_leave(bool entered);

#endif
