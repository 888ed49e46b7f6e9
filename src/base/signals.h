/* signals.h - requests to stop the process: SIGINT and SIGTERM, or the console events of Windows. */
#ifndef LS_BASE_SIGNALS_H
#define LS_BASE_SIGNALS_H

typedef struct ls_signals ls_signals;

/* Start to handle the process's signals: `on_signal` runs for each one, on a separate thread. Call it before other
 * threads start. LS_OK, LS_ENOMEM or LS_ESYS. */
int ls_signals_start(void (*on_signal)(void *user), void *user, ls_signals **out);
void ls_signals_stop(ls_signals *signals);

/* Ignore SIGPIPE: a write to a closed connection must return an error. */
void ls_signals_ignore_pipe(void);

#endif
