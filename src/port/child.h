/* child.h - processes that the server starts: without a shell, as leaders of process groups, with pipes for their
 * standard streams. child_posix.c or child_win32.c implements it.
 *
 * The child inherits no other descriptor of the server, no blocked and no ignored signal. When the leader has exited
 * it remains in the system until ls_child_reap, and so does the number of its group: signals reach no other process.
 *
 * Any thread, one at a time for each child. */
#ifndef LS_PORT_CHILD_H
#define LS_PORT_CHILD_H

#include <stdbool.h>
#include <stddef.h>

#include "port/fd.h"

/* Our ends of the pipes, which do not block, and a descriptor that is readable when the leader has exited. */
enum { LS_CHILD_IN, LS_CHILD_OUT, LS_CHILD_ERR, LS_CHILD_EXIT, LS_CHILD_FDS };

typedef struct ls_child {
    int pid;                 /* 0: reaped, or not started */
    ls_fd fds[LS_CHILD_FDS]; /* LS_FD_NONE: closed, or of the exit: the system has none */
    ls_fd leader, job;       /* Windows: handles of its process and of the job of its tree */
    int code, signal;        /* after ls_child_reap: the exit status; the signal that has ended the leader, or 0 */
} ls_child;

typedef struct ls_child_options {
    const char *const *argv; /* ends with NULL; a name without a slash is looked for in PATH */
    const char *const *env;  /* ends with NULL; NULL: that of the server */
    const char *cwd;
    const char *input; /* Windows: the standard input, which a temporary file holds. Else LS_CHILD_IN takes it */
    size_t input_len;  /* 0: the standard input is empty */
    bool feed;       /* LS_CHILD_IN is the other end of the standard input, which ends when it is closed; no `input` */
    bool shares_err; /* the standard error is that of this process; LS_CHILD_ERR is closed */
} ls_child_options;

/* Start a process. LS_OK, or the reason: LS_ENOENT, LS_EACCES, LS_ENOTDIR, LS_EMFILE, LS_ENOMEM ...; LS_ENOTSUP: a
 * batch file, Windows. */
int ls_child_start(const ls_child_options *options, ls_child *out);

/* The number of bytes; 0: the end; LS_EAGAIN: none yet; another LS_E*. */
long ls_child_read(const ls_child *child, int stream, char *to, size_t len);
/* The number of bytes; LS_EAGAIN: no room yet; LS_EPIPE: the child does not read. */
long ls_child_write(const ls_child *child, const char *bytes, size_t len);
void ls_child_close(ls_child *child, int fd); /* LS_CHILD_IN ... */

/* Signal the process group: SIGTERM, or SIGKILL with `kill`. Windows: end all processes of the job, or without `job`
 * the leader. Not after ls_child_reap. */
void ls_child_end(const ls_child *child, bool kill);

/* If the leader has exited: kill what is left of its group, and take its status. false: it runs. `ms`: wait so
 * long. */
bool ls_child_reap(ls_child *child, int ms);

/* Block the thread until an output can be read, the leader has exited, or `ms` have passed; it may return early. */
void ls_child_wait(const ls_child *child, int ms);

/* The environment of the server, a list that ends with NULL. */
char **ls_child_environment(void);

#endif
