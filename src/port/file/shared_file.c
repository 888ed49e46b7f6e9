/* shared_file.c - see shared_file.h. The calls are those of port/file/file.h, made on the calling thread. */
#include "port/file/shared_file.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/io/path.h"
#include "port/file/file_internal.h"

static void release(ls_external *external)
{
    ls_shared_file *file = (ls_shared_file *)(void *)external; /* its first member */
    ls_file_close(file->fd);
    free(file);
}

int ls_shared_file_make(ls_fd fd, const ls_file_info *info, ls_shared_file **out)
{
    ls_shared_file *file = malloc(sizeof *file);
    if (file == NULL) {
        ls_file_close(fd);
        return LS_ENOMEM;
    }
    ls_external_init(&file->external, LS_BLOCK_FILE, release);
    file->fd = fd;
    file->info = *info;
    *out = file;
    return LS_OK;
}

/* Whether the open file lies beneath the directory. */
static int check_beneath(ls_fd fd, const char *path, const char *beneath)
{
    const int err = ls_path_check_open_beneath(beneath, (intptr_t)fd);
    return err == LS_ENOTSUP ? ls_path_check_beneath(beneath, path) : err;
}

int ls_shared_file_open_beneath(const char *path, const char *beneath, ls_shared_file **out)
{
    ls_file_info info;
    ls_fd fd;
    int err = ls_file_open(path, LS_FILE_READ, &fd);
    if (err < 0) return err;
    err = beneath != NULL ? check_beneath(fd, path, beneath) : LS_OK;
    if (err == LS_OK) err = ls_file_stat_open(fd, &info);
    if (err == LS_OK && info.type == LS_FILE_DIRECTORY) err = LS_EISDIR;
    if (err == LS_OK && info.type == LS_FILE_OTHER) err = LS_ENOTSUP; /* a device or a pipe may have no end */
    if (err < 0) {
        ls_file_close(fd);
        return err;
    }
    return ls_shared_file_make(fd, &info, out);
}

bool ls_shared_file_unchanged(const ls_shared_file *file)
{
    ls_file_info now;
    return ls_file_stat_open(file->fd, &now) == LS_OK && ls_file_info_same(&now, &file->info);
}

int64_t ls_shared_file_read(const ls_shared_file *file, void *to, size_t len, uint64_t offset)
{
    return ls_file_read(file->fd, to, len, offset);
}
