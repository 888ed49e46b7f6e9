/* file_posix.h - the arguments of open(2) for ls_file_open, used by the pool and by io_uring. */
#ifndef LS_PORT_FILE_POSIX_H
#define LS_PORT_FILE_POSIX_H

#include "port/file_internal.h"

enum { LS_FILE_MODE = 0666 }; /* of created files, before the umask */

int ls_file_open_flags(unsigned flags); /* LS_FILE_* to O_* */

#endif
