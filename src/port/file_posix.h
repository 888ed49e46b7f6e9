/* file_posix.h - what file.h's operations are in the words of open(2), for the pool and for rings alike. */
#ifndef LS_PORT_FILE_POSIX_H
#define LS_PORT_FILE_POSIX_H

#include "port/file_internal.h"

enum { LS_FILE_MODE = 0666 }; /* of created files, less the system's mask */

int ls_file_open_flags(unsigned flags); /* O_* for LS_FILE_* */

#endif
