/* fopen.h - files with UTF-8 names. fopen_posix.c or fopen_win32.c implements it. */
#ifndef LS_BASE_FOPEN_H
#define LS_BASE_FOPEN_H

#include <stdio.h>

/* As fopen (C11 7.21.5.3), but the path is UTF-8 on every system. NULL with errno set. */
FILE *ls_fopen(const char *path, const char *mode);

/* Open the null device for writing. NULL with errno set. */
FILE *ls_fopen_null(void);

#endif
