/* file.h - operations on files, through the port: open, stat, read, write, sync, unlink, close, list.
 *
 * They follow the rules of operations on sockets (port.h): a posted operation completes exactly once, as a packet that
 * any thread may take, also when it is cancelled; from the posting to the packet the operation and the memory that it
 * refers to belong to the port. No function here waits for a device, except ls_file_drop after a write.
 *
 * On the back end "uring" the kernel carries the operations out (io_uring_enter(2): OPENAT, STATX, READ, WRITE, FSYNC,
 * UNLINKAT, CLOSE), at the posting thread's next wait. On other back ends, and for operations that the
 * ring cannot take, the threads of a small pool make the system calls: at most LS_FILE_THREADS_MAX threads, started
 * when there is work and ended after LS_FILE_IDLE_MS without work. They begin operations in the order of posting and
 * run in parallel: when two operations need an order, post the second one after the packet of the first.
 *
 * ls_port_close waits for operations that are still pending; they end without a packet. Their memory belongs to the
 * caller again when it returns, and so does a file that they opened (op->fd).
 *
 * Paths are UTF-8 on Windows, else bytes; a relative path starts at the working directory. */
#ifndef LS_PORT_FILE_H
#define LS_PORT_FILE_H

#include "port/port.h"

enum { LS_FILE_THREADS_MAX = 4, LS_FILE_IDLE_MS = 5000 };

enum ls_file_flags {
    LS_FILE_READ = 1,
    LS_FILE_WRITE = 2,
    LS_FILE_CREATE = 4,    /* create the file if it does not exist; mode 0666 less the umask */
    LS_FILE_EXCLUSIVE = 8, /* with CREATE: LS_EEXIST if the file exists */
    LS_FILE_TRUNCATE = 16, /* with WRITE: to 0 bytes */
};

typedef enum ls_file_type { LS_FILE_REGULAR, LS_FILE_DIRECTORY, LS_FILE_OTHER } ls_file_type;

typedef struct ls_file_info {
    ls_file_type type;  /* links are followed */
    uint64_t bytes;     /* of a regular file */
    int64_t modified_s; /* seconds since 1970-01-01 00:00 UTC, and nanoseconds into that second */
    uint32_t modified_ns;
    uint64_t volume, file; /* together they identify the file on this machine as long as it exists */
} ls_file_info;

/* The names in a directory, with their properties; links are followed. */
typedef struct ls_file_names {
    unsigned count;
    bool more; /* the directory has more than LS_FILE_NAMES_MAX names */
    struct ls_file_name {
        char *name; /* UTF-8 on Windows, else bytes; NUL at the end */
        ls_file_info info;
    } names[];
} ls_file_names;

enum { LS_FILE_NAMES_MAX = 10000 };

void ls_file_names_free(ls_file_names *names); /* NULL: no effect */

/* One operation. Set op.done, op.actor and op.key before posting. */
typedef struct ls_file_op {
    ls_op op;
    ls_fd fd;                      /* result of ls_file_open; belongs to the caller */
    ls_file_info info;             /* result of ls_file_stat and ls_file_stat_open */
    struct ls_shared_file *shared; /* result of ls_file_open_shared; belongs to the caller */
    ls_file_names *names;          /* result of ls_file_list; belongs to the caller */
    /* Private to the port. */
    _Atomic uint16_t where;
    _Atomic bool stop; /* a cancellation was requested */
    uint8_t action;
    unsigned flags;
    const char *path, *beneath;
    void *bytes;
    uint64_t offset;
} ls_file_op;

/* All functions return LS_PENDING, or LS_ENOMEM: the operation was not posted. `path` stays valid until the packet.
 * op->op.result of the packet is the result given below or an error:
 *     LS_ENOENT     the path does not exist, or a part of it is not a directory
 *     LS_ELIMIT     the path or the file is too long
 *     LS_EACCES, LS_EISDIR, LS_EEXIST, LS_EMFILE, LS_ENOSPC, LS_EIO, LS_ECANCELED */

/* Open a file; other programs do not inherit it. Result: 0, and op->fd. A directory can be opened for reading, for
 * ls_file_stat_open; a read of it fails with LS_EISDIR, as does opening it for writing. Opening a FIFO does not wait
 * for its other end. */
int ls_file_open(ls_thread_ctx *ctx, ls_file_op *op, const char *path, unsigned flags);

/* Open the regular file at `path` for reading, with ls_shared_file_open() (shared_file.h) and its errors. With
 * `beneath`, a directory that `path` begins with, a file outside of it is refused with LS_EACCES. The check is of the
 * file that was opened, so a symbolic link that changes meanwhile makes no difference. Result: 0, and op->shared. */
int ls_file_open_shared(ls_thread_ctx *ctx, ls_file_op *op, const char *path, const char *beneath);

/* Read a directory. Names that cannot be examined, such as links without a target, are left out; with `beneath`, as
 * above, also links to files outside of it. In no order, at most LS_FILE_NAMES_MAX. Result: 0, and op->names. */
int ls_file_list(ls_thread_ctx *ctx, ls_file_op *op, const char *path, const char *beneath);

/* The properties of the file at a path, without opening it, or of an open file. Result: 0, and op->info. */
int ls_file_stat(ls_thread_ctx *ctx, ls_file_op *op, const char *path);
int ls_file_stat_open(ls_thread_ctx *ctx, ls_file_op *op, ls_fd fd);

/* Read or write up to len bytes at `offset`; `bytes` and fd stay valid until the packet. Result: the number of bytes.
 * It is less than len only at the end of the file, when a device failed after these bytes, or when len is 2 GiB or
 * more. 0 of a read: the file ends at offset or before. */
int ls_file_read(ls_thread_ctx *ctx, ls_file_op *op, ls_fd fd, void *bytes, uint32_t len, uint64_t offset);
int ls_file_write(ls_thread_ctx *ctx, ls_file_op *op, ls_fd fd, const void *bytes, uint32_t len, uint64_t offset);

/* Write the bytes of the file to the device (fsync(2), FlushFileBuffers). Result: 0. */
int ls_file_sync(ls_thread_ctx *ctx, ls_file_op *op, ls_fd fd);

/* Remove the name; the file itself is removed with its last name and descriptor. Not for directories
 * (LS_EISDIR). Result: 0. */
int ls_file_unlink(ls_thread_ctx *ctx, ls_file_op *op, const char *path);

/* Close a file. Result: 0 or an error of earlier writes; fd is closed in either case, except with LS_ECANCELED. */
int ls_file_close(ls_thread_ctx *ctx, ls_file_op *op, ls_fd fd);

/* Close at once a file without pending operations. Not for a file that was written to: the close may wait
 * for the device. */
void ls_file_drop(ls_fd fd);

/* Whether `path` does not start at the working directory: "/a", on Windows also "\\a" and "C:a". */
bool ls_file_is_absolute(const char *path);

/* Request that a pending operation ends now with LS_ECANCELED. An operation that has begun may complete later with its
 * own result. In either case its one packet follows. No effect when the operation is not pending. Any thread, as long
 * as the memory of op is valid. */
void ls_file_cancel(ls_port *port, ls_file_op *op);

#endif
