/* file_internal.h - what file.c and shared_file.c are made of: the system's calls on files, in file_posix.c and
 * file_win32.c. They return LS_OK or a count, or an error as in file.h. */
#ifndef LS_PORT_FILE_INTERNAL_H
#define LS_PORT_FILE_INTERNAL_H

#include "port/file/file.h"

enum ls_file_flags {
    LS_FILE_READ = 1,
    LS_FILE_WRITE = 2,
    LS_FILE_CREATE = 4,    /* create the file if it does not exist; mode 0666 less the umask */
    LS_FILE_EXCLUSIVE = 8, /* with CREATE: LS_EEXIST if the file exists */
    LS_FILE_TRUNCATE = 16, /* with WRITE: to 0 bytes */
    LS_FILE_APPEND = 32,   /* with WRITE: each write goes to the end */
    LS_FILE_PRIVATE = 64,  /* with CREATE: mode 0600 */
    LS_FILE_PROGRAM = 128, /* with CREATE: mode 0777 less the umask */
};

/* Other programs do not inherit the file. A directory can be opened for reading, for ls_file_stat_open; a read of it
 * fails with LS_EISDIR, as does opening it for writing. Opening a FIFO does not wait for its other end. */
int ls_file_open(const char *path, unsigned flags, ls_fd *out);
void ls_file_close(ls_fd fd);

/* ls_file_stat and ls_file_list, of what is not inside the program (image.h). */
int ls_file_stat_on_disk(const char *path, ls_file_info *info);
int ls_file_list_on_disk(const char *path, const char *beneath, unsigned most, ls_file_names **out);

int ls_file_stat_open(ls_fd fd, ls_file_info *info);

/* Read len bytes at `offset`. The number of bytes, which is less than len only at the end of the file. */
int64_t ls_file_read(ls_fd fd, void *bytes, size_t len, uint64_t offset);

/* Write all bytes after those written before. Up to LS_FILE_GATHER slices are written at once. */
enum { LS_FILE_GATHER = 64 };
int ls_file_write(ls_fd fd, const ls_slice *slices, unsigned count);

/* Return when the bytes of the file are on the device (fsync(2), FlushFileBuffers). */
int ls_file_sync(ls_fd fd);

/* Give the open file the permissions of the file at `path`, and its owner where that is allowed. */
int ls_file_copy_access(ls_fd fd, const char *path);

/* The path of the file that a write to `path` writes to: that after a symbolic link. The caller frees it. LS_ENOENT:
 * the link leads to no file. */
int ls_file_resolve(const char *path, char **out);

/* The length of the directory in a path, with its slash; 0: the path is a name. */
size_t ls_file_directory_len(const char *path);

int ls_file_mkdir_one(const char *path);

#endif
