/* file.c - the part of file.h that is the same on every system: saving a file, making directories. */
#include "port/file/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crypto/random.h"
#include "base/err.h"
#include "port/file/file_internal.h"
#include "port/file/image.h"

void ls_file_names_free(ls_file_names *names)
{
    if (names == NULL) return;
    for (unsigned i = 0; i < names->count; i++) free(names->names[i].name);
    free(names);
}

/* ---- save ----------------------------------------------------------------------------------------------------- */

/* Write to the open file and close it. */
static int write_and_close(ls_fd fd, const ls_slice *slices, unsigned count, bool sync)
{
    int err = ls_file_write(fd, slices, count);
    if (err == LS_OK && sync) err = ls_file_sync(fd);
    ls_file_close(fd);
    return err;
}

static int save_in_place(const char *path, const ls_slice *slices, unsigned count, unsigned flags)
{
    ls_fd fd;
    const unsigned how = flags & LS_SAVE_NEW      ? LS_FILE_EXCLUSIVE
                         : flags & LS_SAVE_APPEND ? LS_FILE_APPEND
                                                  : LS_FILE_TRUNCATE;
    const int err = ls_file_open(path, LS_FILE_WRITE | (flags & LS_SAVE_EXISTING ? 0 : LS_FILE_CREATE) | how, &fd);
    return err < 0 ? err : write_and_close(fd, slices, count, flags & LS_SAVE_SYNC);
}

/* The path of a new file in the directory of `path`. Its length does not depend on the name, which may have the
 * greatest length that is possible. The caller frees it; NULL: out of memory. */
static char *path_beside(const char *path)
{
    static const char name[] = ".luaserve-";
    const size_t directory_len = ls_file_directory_len(path), bytes = directory_len + sizeof name + 16;
    uint64_t random;
    char *beside = malloc(bytes);
    if (beside == NULL) return NULL;
    ls_random(&random, sizeof random);
    memcpy(beside, path, directory_len);
    (void)snprintf(beside + directory_len, bytes - directory_len, "%s%016llx", name, (unsigned long long)random);
    return beside;
}

static int save_beside(const char *target, bool exists, const ls_slice *slices, unsigned count, unsigned flags)
{
    const bool private = exists || (flags & LS_SAVE_PRIVATE);
    const unsigned how = LS_FILE_WRITE | LS_FILE_CREATE | LS_FILE_EXCLUSIVE |
                         (private                   ? LS_FILE_PRIVATE
                          : flags & LS_SAVE_PROGRAM ? LS_FILE_PROGRAM
                                                    : 0);
    const bool sync = flags & LS_SAVE_SYNC;
    ls_fd fd;
    int err = LS_ENOMEM;
    char *beside = path_beside(target);
    if (beside == NULL) return err;
    if ((err = ls_file_open(beside, how, &fd)) < 0) goto fail_beside;
    if (exists && (err = ls_file_copy_access(fd, target)) < 0) {
        ls_file_close(fd);
        goto fail_file;
    }
    if ((err = write_and_close(fd, slices, count, sync)) < 0) goto fail_file;
    if ((err = ls_file_replace(beside, target, sync)) < 0) goto fail_file;
    free(beside);
    return LS_OK;

fail_file:
    (void)ls_file_remove(beside);
fail_beside:
    free(beside);
    return err;
}

int ls_file_save(const char *path, const ls_slice *slices, unsigned count, unsigned flags)
{
    ls_file_info old;
    char *target;
    if (ls_image_has(path)) return LS_EACCES;
    int err = ls_file_stat(path, &old);
    const bool exists = err == LS_OK;
    if (flags & LS_SAVE_NEW) return save_in_place(path, slices, count, flags);
    if (exists && old.type == LS_FILE_DIRECTORY) return LS_EISDIR;
    if (!exists && err != LS_ENOENT) return err;
    if (flags & (LS_SAVE_APPEND | LS_SAVE_IN_PLACE) || (exists && old.type == LS_FILE_OTHER))
        return save_in_place(path, slices, count, flags);
    err = ls_file_resolve(path, &target);
    if (err == LS_ENOENT) return save_in_place(path, slices, count, flags); /* there is no content to keep */
    if (err < 0) return err;
    err = save_beside(target, exists && !(flags & LS_SAVE_PROGRAM), slices, count, flags);
    free(target);
    return err;
}

/* ---- directories ---------------------------------------------------------------------------------------------- */

static int make_above(const char *path)
{
    const size_t len = ls_file_directory_len(path);
    if (len < 2 || path[len - 1] == ':') return LS_ENOENT;
    char *above = malloc(len);
    if (above == NULL) return LS_ENOMEM;
    memcpy(above, path, len - 1); /* without its slash */
    above[len - 1] = '\0';
    const int err = ls_file_mkdir(above, true);
    free(above);
    return err;
}

int ls_file_mkdir(const char *path, bool parents)
{
    ls_file_info info;
    int err = ls_file_mkdir_one(path);
    if (!parents) return err;
    if (err == LS_ENOENT && (err = make_above(path)) == LS_OK) err = ls_file_mkdir_one(path);
    return err == LS_EEXIST && ls_file_stat(path, &info) == LS_OK && info.type == LS_FILE_DIRECTORY ? LS_OK : err;
}
