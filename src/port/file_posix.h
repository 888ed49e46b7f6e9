/* file_posix.h - the arguments of open(2) for ls_file_open, used by the pool and by io_uring, and the result of
 * stat(2). */
#ifndef LS_PORT_FILE_POSIX_H
#define LS_PORT_FILE_POSIX_H

#include <sys/stat.h>

#include "port/file_internal.h"

enum { LS_FILE_MODE = 0666 }; /* of created files, before the umask */

int ls_file_open_flags(unsigned flags); /* LS_FILE_* to O_* */

void ls_file_fill_info(ls_file_info *info, const struct stat *st);

#endif
