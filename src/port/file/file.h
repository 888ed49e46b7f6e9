/* file.h - calls on files by their paths. They are made on the calling thread and may wait for a device: a worker has
 * them made by the threads of the port (work.h). shared_file.h reads files.
 *
 * Those that read look first inside the program, if it is packed (image.h); those that write return LS_EACCES for a path
 * that is inside.
 *
 * Paths are UTF-8 on Windows, else bytes; a relative path starts at the working directory.
 *
 * The functions return LS_OK or an error:
 *     LS_ENOENT     the path does not exist, or a part of it is not a directory
 *     LS_ENOTDIR    a file where a directory is needed: ls_file_list, ls_file_mkdir, ls_file_rename
 *     LS_EISDIR     a directory where a file is needed
 *     LS_ELIMIT     the path or the file is too long
 *     LS_EACCES, LS_EEXIST, LS_EMFILE, LS_ENOSPC, LS_EIO, LS_ENOMEM, ... */
#ifndef LS_PORT_FILE_H
#define LS_PORT_FILE_H

#include "base/buf.h"
#include "port/fd.h"

typedef enum ls_file_type { LS_FILE_REGULAR, LS_FILE_DIRECTORY, LS_FILE_OTHER } ls_file_type;

typedef struct ls_file_info {
    ls_file_type type;  /* links are followed */
    uint64_t bytes;     /* of a regular file */
    int64_t modified_s; /* seconds since 1970-01-01 00:00 UTC, and nanoseconds into that second */
    uint32_t modified_ns;
    uint64_t volume, file; /* together they identify the file on this machine as long as it exists */
    uint64_t tag;          /* of the content, for a file inside the program (image.h), which has no time; else 0 */
    bool coded;            /* inside the program, and with compressed forms */
} ls_file_info;

/* Whether the content of a file is that of before, as far as size and time tell. */
static inline bool ls_file_info_same(const ls_file_info *a, const ls_file_info *b)
{
    return a->bytes == b->bytes && a->modified_s == b->modified_s && a->modified_ns == b->modified_ns;
}

/* The properties of the file, without opening it. */
int ls_file_stat(const char *path, ls_file_info *info);

/* The names in a directory, with their properties. */
typedef struct ls_file_names {
    unsigned count;
    bool more; /* the directory has more names than were asked for */
    struct ls_file_name {
        char *name; /* UTF-8 on Windows, else bytes; NUL at the end */
        bool link;
        ls_file_info info;
    } names[];
} ls_file_names;

/* Read at most `most` names of a directory, in no order. With `beneath`, a directory that `path` begins with, a path
 * that leads outside of it is refused with LS_EACCES, and links that do are left out, as are names that cannot be
 * examined. Without it, these are of the type LS_FILE_OTHER. */
int ls_file_list(const char *path, const char *beneath, unsigned most, ls_file_names **out);
void ls_file_names_free(ls_file_names *names); /* NULL: no effect */

enum ls_file_save_flags {
    LS_SAVE_APPEND = 1,   /* add to the file; the bytes of one call are not divided by those of another one */
    LS_SAVE_IN_PLACE = 2, /* overwrite the file itself; after a failure it has a part of the bytes */
    LS_SAVE_SYNC = 4,     /* return when the bytes are on the device */
    LS_SAVE_EXISTING = 8, /* with the first two: LS_ENOENT unless the file exists */
    LS_SAVE_NEW = 16,     /* make the file: LS_EEXIST if it exists */
    LS_SAVE_PROGRAM = 32, /* without the first two: the file can be run, and gets nothing of an old one */
    LS_SAVE_PRIVATE = 64, /* without the first two: a new file is for its owner alone, as the system knows it */
};

/* Make the bytes of the slices the content of a file. Without a flag, they are written to a new file ".luaserve-*"
 * in the same directory, which then replaces the old one in one step and has its permissions and, where that is
 * allowed, its owner. So the file has the old or the new content at any time, also after a failure or the end of the
 * process. A symbolic link stays: the file that it leads to is replaced. What is no regular file, such as a device, is
 * written to as with LS_SAVE_IN_PLACE. */
int ls_file_save(const char *path, const ls_slice *slices, unsigned count, unsigned flags);

/* Remove a file, a link itself, or an empty directory. LS_ENOTEMPTY. */
int ls_file_remove(const char *path);

/* Make a directory. `parents`: also those above it; it is no error if it exists. */
int ls_file_mkdir(const char *path, bool parents);

/* Give a file or a directory a new name; a file of that name, or an empty directory, is replaced. LS_ENOTEMPTY;
 * LS_EXDEV: on another file system. */
int ls_file_rename(const char *from, const char *to);

/* The file `from` takes the place of `to` in one step. `sync`: return when that is on the device. */
int ls_file_replace(const char *from, const char *to, bool sync);

/* Whether `path` does not start at the working directory: "/a", on Windows also "\\a" and "C:a". */
bool ls_file_is_absolute(const char *path);

#endif
