/* file_internal.h - inside file.c: the interfaces to its thread pool, to a back end and to the system calls. */
#ifndef LS_PORT_FILE_INTERNAL_H
#define LS_PORT_FILE_INTERNAL_H

#include "port/file.h"

enum {
    DO_OPEN,
    DO_STAT,
    DO_STAT_OPEN,
    DO_READ,
    DO_WRITE,
    DO_SYNC,
    DO_UNLINK,
    DO_CLOSE,
    DO_OPEN_SHARED,
    DO_LIST
}; /* ls_file_op.action */

enum {               /* ls_file_op.where */
       FILE_NOWHERE, /* not posted, or its packet is queued */
       FILE_QUEUED,  /* in the queue of the pool; changed under its mutex */
       FILE_RUNS,    /* in a thread of the pool */
       FILE_BACKEND  /* this and greater values are defined by the back end */
};

typedef struct ls_files ls_files; /* the file operations of one port */

typedef struct ls_file_backend {
    bool (*post)(ls_thread_ctx *ctx, ls_file_op *op); /* true: it is pending; false: the pool carries it out */
    void (*cancel)(ls_port *port, ls_file_op *op);    /* `where` was FILE_BACKEND or more before the call */
} ls_file_backend;

int ls_files_open(ls_port *port, const ls_file_backend *backend,
                  ls_files **out);    /* backend NULL: the pool carries out all */
void ls_files_close(ls_files *files); /* drops queued operations without a packet, waits for running ones */
ls_files *ls_port_files(ls_port *port);

/* Queue an operation for the pool. LS_PENDING, or LS_ENOMEM: the pool has no thread and cannot start one. */
int ls_files_submit(ls_files *files, ls_file_op *op);

/* file_posix.c, file_win32.c: carry out the operation; may block. Returns its result; sets op->fd or op->info. */
int64_t ls_file_run(ls_file_op *op);

/* shared_file.c: ls_shared_file_open for a file that must lie beneath a directory, if that is not NULL. */
int ls_shared_file_open_beneath(const char *path, const char *beneath, struct ls_shared_file **out);

/* file_list_posix.c, file_list_win32.c: ls_file_list, on the calling thread. */
int ls_file_list_now(const char *path, const char *beneath, ls_file_names **out);

#endif
