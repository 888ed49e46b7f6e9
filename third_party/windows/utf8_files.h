/* utf8_files.h - see utf8_files.c; included before everything else in each of Lua's sources. */
#ifndef UTF8_FILES_H
#define UTF8_FILES_H

#include <stdio.h>

FILE *utf8_fopen(const char *name, const char *mode);
FILE *utf8_freopen(const char *name, const char *mode, FILE *file);
int line_setvbuf(FILE *file, char *buffer, int mode, size_t size);
int utf8_remove(const char *name);
int utf8_rename(const char *from, const char *to);

#endif
