/* shared_file.c - see shared_file.h. The calls are those behind port/file.h, made on the calling thread. */
#include "port/shared_file.h"

#include <stdlib.h>

#include "base/path.h"
#include "port/file_internal.h"

enum { READ_BYTES_MAX = 1 << 30 }; /* of one call */

static void release(ls_external *external)
{
    ls_shared_file *file = (ls_shared_file *)(void *)external; /* its first member */
    ls_file_drop(file->fd);
    free(file);
}

int ls_shared_file_make(ls_fd fd, const ls_file_info *info, ls_shared_file **out)
{
    ls_shared_file *file = malloc(sizeof *file);
    if (file == NULL) {
        ls_file_drop(fd);
        return LS_ENOMEM;
    }
    ls_external_init(&file->external, LS_BLOCK_FILE, release);
    file->fd = fd;
    file->info = *info;
    *out = file;
    return LS_OK;
}

static int stat_open(ls_fd fd, ls_file_info *info)
{
    ls_file_op op = {.action = DO_STAT_OPEN, .fd = fd};
    const int err = (int)ls_file_run(&op);
    if (err == LS_OK) *info = op.info;
    return err;
}

/* Whether the open file lies beneath the directory. */
static int check_beneath(ls_fd fd, const char *path, const char *beneath)
{
    const int err = ls_path_check_open_beneath(beneath, (intptr_t)fd);
    return err == LS_ENOTSUP ? ls_path_check_beneath(beneath, path) : err;
}

int ls_shared_file_open(const char *path, ls_shared_file **out)
{
    return ls_shared_file_open_beneath(path, NULL, out);
}

int ls_shared_file_open_beneath(const char *path, const char *beneath, ls_shared_file **out)
{
    ls_file_op op = {.action = DO_OPEN, .path = path, .flags = LS_FILE_READ, .fd = LS_FD_NONE};
    ls_file_info info;
    int err = (int)ls_file_run(&op);
    if (err < 0) return err;
    err = beneath != NULL ? check_beneath(op.fd, path, beneath) : LS_OK;
    if (err == LS_OK) err = stat_open(op.fd, &info);
    if (err == LS_OK && info.type == LS_FILE_DIRECTORY) err = LS_EISDIR;
    if (err == LS_OK && info.type == LS_FILE_OTHER) err = LS_ENOTSUP; /* a device or a pipe may have no end */
    if (err < 0) {
        ls_file_drop(op.fd);
        return err;
    }
    return ls_shared_file_make(op.fd, &info, out);
}

bool ls_shared_file_unchanged(const ls_shared_file *file)
{
    ls_file_info now;
    return stat_open(file->fd, &now) == LS_OK && now.bytes == file->info.bytes &&
           now.modified_s == file->info.modified_s && now.modified_ns == file->info.modified_ns;
}

int64_t ls_shared_file_read(const ls_shared_file *file, void *to, size_t len, uint64_t offset)
{
    size_t done = 0;
    while (done < len) {
        const size_t left = len - done;
        ls_file_op op = {.action = DO_READ,
                         .op.len = left < READ_BYTES_MAX ? (uint32_t)left : READ_BYTES_MAX,
                         .fd = file->fd,
                         .bytes = (char *)to + done,
                         .offset = offset + done};
        const int64_t n = ls_file_run(&op);
        if (n < 0 && done == 0) return n;
        if (n <= 0) break;
        done += (size_t)n;
    }
    return (int64_t)done;
}
