/* signals.h - the requests of people and of the system to end: SIGINT and SIGTERM, the console's events on Windows. */
#ifndef LS_BASE_SIGNALS_H
#define LS_BASE_SIGNALS_H

typedef struct ls_signals ls_signals;

/* Take the process's signals from now on: `asked` is called for each, on a thread of its own. Before other threads are
 * started. LS_OK, LS_ENOMEM or LS_ESYS. */
int ls_signals_start(void (*asked)(void *user), void *user, ls_signals **out);
void ls_signals_stop(ls_signals *signals);

/* Writing to a connection that is gone must be an error, not a signal. */
void ls_signals_ignore_pipe(void);

#endif
