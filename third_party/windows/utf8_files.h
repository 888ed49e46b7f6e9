/* utf8_files.h - see utf8_files.c; included first in each of Lua's sources. */
#ifndef UTF8_FILES_H
#define UTF8_FILES_H

#include <stdio.h>
#include <stdlib.h>

FILE *utf8_fopen(const char *name, const char *mode);
FILE *utf8_freopen(const char *name, const char *mode, FILE *file);
int line_setvbuf(FILE *file, char *buffer, int mode, size_t size);
int utf8_remove(const char *name);
int utf8_rename(const char *from, const char *to);
FILE *utf8_popen(const char *command, const char *mode);
int utf8_system(const char *command);
char *utf8_getenv(const char *name);

#endif
