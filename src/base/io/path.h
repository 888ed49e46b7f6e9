/* path.h - whether a path leaves a directory through a symbolic link; absolute paths. path_posix.c or path_win32.c
 * implements it. */
#ifndef LS_BASE_PATH_H
#define LS_BASE_PATH_H

#include <stdbool.h>
#include <stdint.h>

/* `path` begins with `directory` and names something below it, which need not exist. Resolves the part of it that
 * exists. LS_OK: it is below the directory; LS_EACCES: a symbolic link leads out of the directory, or to a file that
 * does not exist, or the path cannot be resolved; another error. The answer describes the moment of the call. */
int ls_path_check_beneath(const char *directory, const char *path);

/* The same for a file that is open for reading, by its descriptor or handle: where it lies, whatever name opened it.
 * LS_ENOTSUP: the system does not tell (Linux without /proc). */
int ls_path_check_open_beneath(const char *directory, intptr_t fd);

/* Write the absolute path of a directory, on POSIX without symbolic links. false: it does not exist, or its path does
 * not fit. */
enum { LS_PATH_BYTES = 4096 };
bool ls_path_absolute(const char *directory, char out[LS_PATH_BYTES]);

#endif
