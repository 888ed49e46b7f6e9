/* file_posix.c - the calls of file.h on POSIX systems: open(2), fstat(2), pread(2), writev(2), fsync(2), rename(2),
 * remove(3), mkdir(2). */
#define _GNU_SOURCE
#include "port/file/file_posix.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/err.h"
#include "port/file/shared_file.h"

const uint32_t ls_shared_file_copy_max = 32768;

static int result_of(int result)
{
    return result < 0 ? ls_err_from_errno(errno) : LS_OK;
}

bool ls_file_is_absolute(const char *path)
{
    return *path == '/';
}

int ls_file_open(const char *path, unsigned flags, ls_fd *out)
{
    /* A terminal does not become the controlling one; the open of a FIFO does not wait. */
    int oflag = O_CLOEXEC | O_NOCTTY | O_NONBLOCK, fd;
    oflag |= flags & LS_FILE_WRITE ? (flags & LS_FILE_READ ? O_RDWR : O_WRONLY) : O_RDONLY;
    if (flags & LS_FILE_CREATE) oflag |= O_CREAT;
    if (flags & LS_FILE_EXCLUSIVE) oflag |= O_EXCL;
    if (flags & LS_FILE_TRUNCATE) oflag |= O_TRUNC;
    if (flags & LS_FILE_APPEND) oflag |= O_APPEND;
    do fd = open(path, oflag, flags & LS_FILE_PRIVATE ? 0600 : flags & LS_FILE_PROGRAM ? 0777 : 0666);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return ls_err_from_errno(errno);
    *out = fd;
    return LS_OK;
}

void ls_file_close(ls_fd fd)
{
    (void)close(fd);
}

void ls_file_fill_info(ls_file_info *info, const struct stat *st)
{
    info->type = S_ISREG(st->st_mode) ? LS_FILE_REGULAR : S_ISDIR(st->st_mode) ? LS_FILE_DIRECTORY : LS_FILE_OTHER;
    info->bytes = info->type == LS_FILE_REGULAR ? (uint64_t)st->st_size : 0;
    info->modified_s = st->st_mtim.tv_sec;
    info->modified_ns = (uint32_t)st->st_mtim.tv_nsec;
    info->volume = st->st_dev;
    info->tag = 0;
    info->coded = false;
    info->file = st->st_ino;
}

int ls_file_stat_on_disk(const char *path, ls_file_info *info)
{
    struct stat st;
    if (stat(path, &st) < 0) return ls_err_from_errno(errno);
    ls_file_fill_info(info, &st);
    return LS_OK;
}

int ls_file_stat_open(ls_fd fd, ls_file_info *info)
{
    struct stat st;
    if (fstat(fd, &st) < 0) return ls_err_from_errno(errno);
    ls_file_fill_info(info, &st);
    return LS_OK;
}

/* A signal, or the size of one transfer, may end a call early. */
int64_t ls_file_read(ls_fd fd, void *bytes, size_t len, uint64_t offset)
{
    size_t done = 0;
    while (done < len) {
        const ssize_t n = pread(fd, (char *)bytes + done, len - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ls_err_from_errno(errno);
        if (n == 0) break;
        done += (size_t)n;
    }
    return (int64_t)done;
}

int ls_file_write(ls_fd fd, const ls_slice *slices, unsigned count)
{
    size_t skip = 0; /* bytes of the first slice that were written */
    while (count > 0) {
        struct iovec iov[LS_FILE_GATHER];
        const unsigned n = count < LS_FILE_GATHER ? count : LS_FILE_GATHER;
        iov[0] = (struct iovec){(char *)(uintptr_t)slices[0].ptr + skip, slices[0].len - skip};
        for (unsigned i = 1; i < n; i++) iov[i] = (struct iovec){(char *)(uintptr_t)slices[i].ptr, slices[i].len};
        const ssize_t written = writev(fd, iov, (int)n);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return ls_err_from_errno(errno);
        for (skip += (size_t)written; count > 0 && skip >= slices->len; slices++, count--) skip -= slices->len;
    }
    return LS_OK;
}

int ls_file_sync(ls_fd fd)
{
    return fsync(fd) < 0 && errno != EINVAL && errno != EROFS ? ls_err_from_errno(errno)
                                                              : LS_OK; /* EINVAL: a device */
}

int ls_file_copy_access(ls_fd fd, const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0) return ls_err_from_errno(errno);
    if (fchown(fd, st.st_uid, st.st_gid) <
        0) { /* what the permissions gave to a user or group they give no other one */
        st.st_mode &= ~(mode_t)06000;
        if (fchown(fd, (uid_t)-1, st.st_gid) < 0) st.st_mode &= ~(mode_t)070;
    }
    return result_of(fchmod(fd, st.st_mode & 07777));
}

int ls_file_resolve(const char *path, char **out)
{
    struct stat st;
    const bool link = lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
    char *target = link ? realpath(path, NULL) : strdup(path);
    if (target == NULL) return link ? ls_err_from_errno(errno) : LS_ENOMEM;
    *out = target;
    return LS_OK;
}

size_t ls_file_directory_len(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? (size_t)(slash + 1 - path) : 0;
}

static int sync_directory_of(const char *path)
{
    const size_t len = ls_file_directory_len(path);
    char *directory = len > 0 ? strndup(path, len) : strdup(".");
    if (directory == NULL) return LS_ENOMEM;
    const int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int err = fd >= 0 || errno == EACCES ? LS_OK : ls_err_from_errno(errno); /* EACCES: may be written, but not read */
    free(directory);
    if (fd < 0) return err;
    err = ls_file_sync(fd);
    ls_file_close(fd);
    return err;
}

int ls_file_replace(const char *from, const char *to, bool sync)
{
    const int err = ls_file_rename(from, to);
    return err == LS_OK && sync ? sync_directory_of(to) : err;
}

int ls_file_remove(const char *path)
{
    const int result = remove(path);
    return result < 0 && errno == EEXIST ? LS_ENOTEMPTY : result_of(result); /* rmdir(2) */
}

/* ls_err_from_errno makes ENOTDIR an LS_ENOENT: to one who reads, it is the same. */
static int with_directory(int result)
{
    return result < 0 && errno == ENOTDIR ? LS_ENOTDIR : result_of(result);
}

int ls_file_mkdir_one(const char *path)
{
    return with_directory(mkdir(path, 0777));
}

int ls_file_rename(const char *from, const char *to)
{
    const int result = rename(from, to);
    return result < 0 && errno == EEXIST ? LS_ENOTEMPTY : with_directory(result);
}
