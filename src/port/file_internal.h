/* file_internal.h - inside file.h: the pool of threads, and what a back end does itself. */
#ifndef LS_PORT_FILE_INTERNAL_H
#define LS_PORT_FILE_INTERNAL_H

#include "port/file.h"

enum { DO_OPEN, DO_STAT, DO_STAT_OPEN, DO_READ, DO_WRITE, DO_SYNC, DO_UNLINK, DO_CLOSE }; /* what */

enum {               /* where */
       FILE_NOWHERE, /* not posted, or its packet is under way */
       FILE_QUEUED,  /* in the pool's queue: under its mutex */
       FILE_RUNS,    /* in a thread of the pool */
       FILE_BACKEND  /* from here on: the back end's own, as many places as it likes */
};

typedef struct ls_files ls_files; /* of a port */

typedef struct ls_file_backend {
    bool (*post)(ls_thread_ctx *ctx, ls_file_op *op); /* true: it is pending; false: the pool has to do it */
    void (*cancel)(ls_port *port, ls_file_op *op);    /* `where` was FILE_BACKEND or more, a moment ago */
} ls_file_backend;

int ls_files_open(ls_port *port, const ls_file_backend *backend, ls_files **out); /* backend NULL: the pool does all */
void ls_files_close(ls_files *files); /* what waits ends without a packet; what runs is waited for */
ls_files *ls_port_files(ls_port *port);

/* Have the pool do it. LS_PENDING, or LS_ENOMEM: there is no thread, nor can one be had. */
int ls_files_submit(ls_files *files, ls_file_op *op);

/* file_posix.c, file_win32.c: do it now, however long it takes. Its result; op->fd and op->info are set. */
int64_t ls_file_run(ls_file_op *op);

#endif
