/* process.h - child processes of `luaserve test`: this program again, with a pipe to its standard input and one from
 * its standard output. process_posix.c, process_win32.c.
 *
 * The child keeps the two pipes for itself: ls_process_channel moves them away, so that what the child's site prints
 * goes to standard error. The parent ends the child by closing the pipe to it; the child ends as well when the parent
 * dies.
 *
 * Thread: one at a time for each ls_process. */
#ifndef LS_CLI_PROCESS_H
#define LS_CLI_PROCESS_H

#include <stddef.h>
#include <stdio.h>

typedef struct ls_process ls_process;

enum ls_process_end { LS_PROCESS_EXIT, LS_PROCESS_SIGNAL };

/* Start this program with the arguments argv[0..argc-1], which follow its name. NULL: the reason is in `message`. */
ls_process *ls_process_start(int argc, const char *const argv[], char *message, size_t message_bytes);

/* Read the next bytes of its output. Returns their number; 0: the pipe is closed; -1: `ms` have passed without any. */
long ls_process_read(ls_process *process, char *to, size_t bytes, unsigned ms);

void ls_process_stop(ls_process *process); /* close the pipe to it */

/* Wait until it has ended. *number receives the exit status or the signal. */
enum ls_process_end ls_process_wait(ls_process *process, int *number);

/* Kill it if it runs, and free it. */
void ls_process_close(ls_process *process);

/* In the child, once, before any other thread: returns the stream of the reports to the parent. From now on,
 * `ended(user)` is called on a thread of its own when the pipe from the parent is closed. NULL: out of memory or
 * descriptors. */
FILE *ls_process_channel(void (*ended)(void *user), void *user);

/* Whether standard output is a terminal. */
int ls_process_is_terminal(void);

/* The name of a signal such as "SIGSEGV", or NULL. Static memory. */
const char *ls_process_signal_name(int number);

#endif
