/* file.h - operations on files, through the port: open, stat, read, write, sync, unlink, close.
 *
 * Those of sockets (port.h) are the model: a posted operation completes exactly once, as a packet that any thread may take,
 * cancelled ones included; from posting until then the operation and the memory it names are the port's. No call here waits
 * for a device.
 *
 * On the back end "uring" the kernel does them (io_uring_enter(2): OPENAT, STATX, READ, WRITE, FSYNC, UNLINKAT, CLOSE), once
 * the posting thread looks at the port. Elsewhere, and whatever the ring cannot take, threads of a small pool call the system:
 * LS_FILE_THREADS_MAX at most, started when there is work, ended when there was none for LS_FILE_IDLE_MS. They are asked in
 * the order of posting, and run at the same time: two operations that need an order need the first one's packet in between.
 *
 * Operations that are still pending when the port is closed end in that call, which waits for them; there are no packets
 * any more. Only then is their memory the caller's, and so is what they opened (op->fd).
 *
 * Paths are UTF-8 where the system's are characters (Windows), else bytes; relative ones start at the working directory. */
#ifndef LS_PORT_FILE_H
#define LS_PORT_FILE_H

#include "port/port.h"

enum { LS_FILE_THREADS_MAX = 4, LS_FILE_IDLE_MS = 5000 };

enum ls_file_flags {
    LS_FILE_READ = 1,
    LS_FILE_WRITE = 2,
    LS_FILE_CREATE = 4,    /* if it is not there; rights as the system's mask says */
    LS_FILE_EXCLUSIVE = 8, /* with CREATE: LS_EEXIST if it is there */
    LS_FILE_TRUNCATE = 16, /* with WRITE: to no bytes */
};

typedef enum ls_file_type { LS_FILE_REGULAR, LS_FILE_DIRECTORY, LS_FILE_OTHER } ls_file_type;

typedef struct ls_file_info {
    ls_file_type type;  /* of what a link leads to */
    uint64_t bytes;     /* of a regular file */
    int64_t modified_s; /* since 1970-01-01 00:00 UTC, and nanoseconds into that second */
    uint32_t modified_ns;
    uint64_t volume, file; /* name it on this machine, as long as it exists */
} ls_file_info;

/* One operation. Set op.done, op.actor and op.key before posting. */
typedef struct ls_file_op {
    ls_op op;
    ls_fd fd;          /* of ls_file_open: the file, the caller's */
    ls_file_info info; /* of the two stats */
    /* The port's. */
    _Atomic uint16_t where;
    _Atomic bool stop; /* a cancellation was asked for */
    uint8_t what;
    unsigned flags;
    const char *path;
    void *bytes;
    uint64_t offset;
} ls_file_op;

/* All return LS_PENDING, or LS_ENOMEM: it was not posted. op->op.result is then as said here or an LS_E*:
 *     LS_ENOENT (or a part of the path is no directory), LS_EACCES, LS_EISDIR, LS_EEXIST, LS_EMFILE, LS_ENOSPC, LS_EIO,
 *     LS_ELIMIT (a path or a file too long), LS_ECANCELED. `path` stays until the packet. */

/* Open, not to be inherited by other programs. Result 0, and op->fd. A directory can be opened for reading, to be asked
 * for its stat; reads of it say LS_EISDIR, as does opening it for writing. A FIFO does not wait for its other end. */
int ls_file_open(ls_thread_ctx *ctx, ls_file_op *op, const char *path, unsigned flags);

/* What is there, without opening it; or what is open. Result 0, and op->info. */
int ls_file_stat(ls_thread_ctx *ctx, ls_file_op *op, const char *path);
int ls_file_stat_open(ls_thread_ctx *ctx, ls_file_op *op, ls_fd fd);

/* Up to len bytes, from `offset` on; `bytes` and fd stay until the packet. Result: how many, fewer only at the end of the
 * file, when a device failed behind them, or past 2 GiB; 0 of a read: the end is at offset or before. */
int ls_file_read(ls_thread_ctx *ctx, ls_file_op *op, ls_fd fd, void *bytes, uint32_t len, uint64_t offset);
int ls_file_write(ls_thread_ctx *ctx, ls_file_op *op, ls_fd fd, const void *bytes, uint32_t len, uint64_t offset);

/* Until the file's bytes are on the device (fsync(2), FlushFileBuffers). Result 0. */
int ls_file_sync(ls_thread_ctx *ctx, ls_file_op *op, ls_fd fd);

/* Take the name away; the file goes with its last name and descriptor. Not for directories (LS_EISDIR). Result 0. */
int ls_file_unlink(ls_thread_ctx *ctx, ls_file_op *op, const char *path);

/* Result 0 or what was left to say of earlier writes; fd is given up in any case but LS_ECANCELED. */
int ls_file_close(ls_thread_ctx *ctx, ls_file_op *op, ls_fd fd);

/* Close a file that nothing is pending on, here and now. Not for one that was written to: it may wait for its device. */
void ls_file_drop(ls_fd fd);

/* Ask a pending operation to end now with LS_ECANCELED. One that has begun may complete otherwise, in its time. Either way
 * its one packet comes. Nothing happens when it is not pending. Any thread, as long as the memory of op is valid. */
void ls_file_cancel(ls_port *port, ls_file_op *op);

#endif
