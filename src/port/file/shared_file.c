/* shared_file.c - see shared_file.h. The calls are those of port/file/file.h, made on the calling thread. */
#include "port/file/shared_file.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/io/path.h"
#include "port/file/file_internal.h"
#include "port/file/image.h"

static void release(ls_external *external)
{
    ls_shared_file *file = (ls_shared_file *)(void *)external; /* its first member */
    if (file->at == 0) ls_file_close(file->fd);                /* else it is that of the program */
    free(file);
}

static int make(ls_fd fd, uint64_t at, const ls_file_info *info, ls_shared_file **out)
{
    ls_shared_file *file = malloc(sizeof *file);
    if (file == NULL) return LS_ENOMEM;
    ls_external_init(&file->external, LS_BLOCK_FILE, release);
    file->fd = fd;
    file->at = at;
    file->info = *info;
    *out = file;
    return LS_OK;
}

int ls_shared_file_make(ls_fd fd, const ls_file_info *info, ls_shared_file **out)
{
    const int err = make(fd, 0, info, out);
    if (err < 0) ls_file_close(fd);
    return err;
}

/* Whether the open file lies beneath the directory. */
static int check_beneath(ls_fd fd, const char *path, const char *beneath)
{
    const int err = ls_path_check_open_beneath(beneath, (intptr_t)fd);
    return err == LS_ENOTSUP ? ls_path_check_beneath(beneath, path) : err;
}

int ls_shared_file_inside(const ls_image_file *inside, ls_shared_file **out)
{
    ls_file_info info;
    ls_image_info(inside, &info);
    return make(ls_image_fd(), inside->at, &info, out);
}

int ls_shared_file_open_beneath(const char *path, const char *beneath, ls_shared_file **out)
{
    ls_image_found found;
    ls_file_info info;
    ls_fd fd;
    ls_image_find(path, &found);
    if (found.place == LS_IMAGE_FOLDER) return LS_EISDIR;
    if (found.place == LS_IMAGE_FILE) return ls_shared_file_inside(found.file, out);
    int err = ls_file_open(found.path, LS_FILE_READ, &fd);
    if (err < 0) return err;
    if (found.path != path) { /* in the overlay */
        path = found.path;
        if (beneath != NULL) beneath = ls_image_overlay_folder();
    }
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
    if (file->at > 0) return true;
    return ls_file_stat_open(file->fd, &now) == LS_OK && ls_file_info_same(&now, &file->info);
}

int64_t ls_shared_file_read(const ls_shared_file *file, void *to, size_t len, uint64_t offset)
{
    if (file->at > 0 && offset + len > file->info.bytes)
        len = offset < file->info.bytes ? (size_t)(file->info.bytes - offset) : 0;
    return ls_file_read(file->fd, to, len, file->at + offset);
}
