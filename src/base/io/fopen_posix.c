/* fopen_posix.c - see fopen.h: a path is a byte string, passed on unchanged. */
#include "base/io/fopen.h"

FILE *ls_fopen(const char *path, const char *mode)
{
    return fopen(path, mode);
}

FILE *ls_fopen_null(void)
{
    return fopen("/dev/null", "we");
}
