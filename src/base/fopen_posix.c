/* fopen_posix.c - see fopen.h: a path is bytes here, and these are UTF-8 wherever people see them. */
#include "base/fopen.h"

FILE *ls_fopen(const char *path, const char *mode)
{
    return fopen(path, mode);
}

int ls_remove(const char *path)
{
    return remove(path);
}
