/* fopen_posix.c - see fopen.h: a path is a byte string, passed on unchanged. */
#include "base/fopen.h"

FILE *ls_fopen(const char *path, const char *mode)
{
    return fopen(path, mode);
}

int ls_remove(const char *path)
{
    return remove(path);
}
