/* file_posix.h - the result of stat(2) as that of ls_file_stat. */
#ifndef LS_PORT_FILE_POSIX_H
#define LS_PORT_FILE_POSIX_H

#include <sys/stat.h>

#include "port/file/file_internal.h"

void ls_file_fill_info(ls_file_info *info, const struct stat *st);

#endif
