/* fopen.h - files by names in UTF-8. fopen_posix.c or fopen_win32.c supplies it. */
#ifndef LS_BASE_FOPEN_H
#define LS_BASE_FOPEN_H

#include <stdio.h>

/* As fopen (C11 7.21.5.3), but that the path is UTF-8 on every system. NULL with errno. */
FILE *ls_fopen(const char *path, const char *mode);

/* As remove (C11 7.21.4.1), by such a path. 0, or not 0 with errno. */
int ls_remove(const char *path);

#endif
