/* shared_file.h - an open file with a reference count, whose ranges are slices (base/buf.h, LS_BLOCK_FILE): the queue
 * of a stream sends them with sendfile(2) or TransmitFile, a filter reads them. The file is closed when the last slice
 * is dropped, on whichever thread does that. */
#ifndef LS_PORT_SHARED_FILE_H
#define LS_PORT_SHARED_FILE_H

#include "base/buf.h"
#include "port/file/file.h"

typedef struct ls_shared_file {
    ls_external external; /* first */
    ls_fd fd;
    uint64_t at;       /* where its bytes begin in the file of the descriptor: not 0 inside the program (image.h) */
    ls_file_info info; /* when it was opened: size and time of change */
} ls_shared_file;

/* Takes over the descriptor; closes it on failure. One reference. LS_OK or LS_ENOMEM. */
int ls_shared_file_make(ls_fd fd, const ls_file_info *info, ls_shared_file **out);

/* Open the regular file at `path` for reading, now, on this thread. With `beneath`, a directory that `path` begins
 * with, a file outside of it is refused with LS_EACCES. The check is of the file that was opened, so a symbolic link
 * that changes meanwhile makes no difference. LS_OK, or an error as in file.h; LS_ENOTSUP: another type of file. */
int ls_shared_file_open_beneath(const char *path, const char *beneath, ls_shared_file **out);
static inline int ls_shared_file_open(const char *path, ls_shared_file **out)
{
    return ls_shared_file_open_beneath(path, NULL, out);
}

/* A file inside the program (image.h). LS_OK or LS_ENOMEM. */
struct ls_image_file;
int ls_shared_file_inside(const struct ls_image_file *inside, ls_shared_file **out);

static inline ls_shared_file *ls_shared_file_hold(ls_shared_file *file)
{
    (void)ls_block_hold(ls_external_block(&file->external));
    return file;
}

static inline void ls_shared_file_drop(ls_shared_file *file)
{
    ls_block_drop(ls_external_block(&file->external));
}

/* The file of a slice for which ls_slice_is_file is true. */
static inline ls_shared_file *ls_shared_file_of(const ls_slice *slice)
{
    return (ls_shared_file *)(void *)slice->block;
}

/* + 1 reference */
static inline ls_slice ls_shared_file_slice(ls_shared_file *file, uint64_t offset, size_t len)
{
    return ls_slice_of_file(&ls_shared_file_hold(file)->external, offset, len);
}

/* Up to this number of bytes, a copy in memory is sent in less time than a range of the file. Windows: all sizes, as
 * an open file cannot be replaced there. */
extern const uint32_t ls_shared_file_copy_max;

/* Whether the open file still has the size and the time of change that it had. */
bool ls_shared_file_unchanged(const ls_shared_file *file);

/* Read len bytes at `offset`, now, on this thread (pread). The number of bytes, which is less than len only at the end
 * of the file; LS_EIO. */
int64_t ls_shared_file_read(const ls_shared_file *file, void *to, size_t len, uint64_t offset);

#endif
