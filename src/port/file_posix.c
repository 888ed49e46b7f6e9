/* file_posix.c - the calls behind file.h on POSIX systems: open(2), fstat(2), pread(2), pwrite(2), fsync(2),
 * unlink(2), close(2). */
#define _GNU_SOURCE
#include "port/file_posix.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "port/shared_file.h"

const uint32_t ls_shared_file_copy_max = 32768;

bool ls_file_is_absolute(const char *path)
{
    return *path == '/';
}

int ls_file_open_flags(unsigned flags)
{
    /* A terminal does not become the controlling one; the open of a FIFO does not wait. */
    int oflag = O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    oflag |= flags & LS_FILE_WRITE ? (flags & LS_FILE_READ ? O_RDWR : O_WRONLY) : O_RDONLY;
    if (flags & LS_FILE_CREATE) oflag |= O_CREAT;
    if (flags & LS_FILE_EXCLUSIVE) oflag |= O_EXCL;
    if (flags & LS_FILE_TRUNCATE) oflag |= O_TRUNC;
    return oflag;
}

void ls_file_fill_info(ls_file_info *info, const struct stat *st)
{
    info->type = S_ISREG(st->st_mode) ? LS_FILE_REGULAR : S_ISDIR(st->st_mode) ? LS_FILE_DIRECTORY : LS_FILE_OTHER;
    info->bytes = info->type == LS_FILE_REGULAR ? (uint64_t)st->st_size : 0;
    info->modified_s = st->st_mtim.tv_sec;
    info->modified_ns = (uint32_t)st->st_mtim.tv_nsec;
    info->volume = st->st_dev;
    info->file = st->st_ino;
}

/* Read or write until len bytes are transferred or the call fails: a signal may end a call early. */
static int64_t transfer(const ls_file_op *op)
{
    uint32_t done = 0;
    while (done < op->op.len) {
        char *at = (char *)op->bytes + done;
        const off_t from = (off_t)(op->offset + done);
        const size_t left = op->op.len - done;
        const ssize_t n = op->action == DO_READ ? pread(op->fd, at, left, from) : pwrite(op->fd, at, left, from);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && done == 0) return ls_err_from_errno(errno);
        if (n <= 0) break;
        done += (uint32_t)n;
    }
    return done;
}

void ls_file_drop(ls_fd fd)
{
    (void)close(fd);
}

int64_t ls_file_run(ls_file_op *op)
{
    struct stat st;
    int result = 0;
    switch (op->action) {
    case DO_OPEN:
        do result = open(op->path, ls_file_open_flags(op->flags), LS_FILE_MODE);
        while (result < 0 && errno == EINTR);
        if (result >= 0) op->fd = result;
        break;
    case DO_STAT:
    case DO_STAT_OPEN:
        result = op->action == DO_STAT ? stat(op->path, &st) : fstat(op->fd, &st);
        if (result == 0) ls_file_fill_info(&op->info, &st);
        break;
    case DO_READ:
    case DO_WRITE: return transfer(op);
    case DO_SYNC: result = fsync(op->fd); break;
    case DO_UNLINK: result = unlink(op->path); break;
    default:
        result = close(op->fd);
        if (result < 0 && errno == EINTR) result = 0; /* the descriptor is closed all the same (close(2)) */
        break;
    }
    return result < 0 ? ls_err_from_errno(errno) : 0;
}
