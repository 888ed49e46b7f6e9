/* child_win32.c - see child.h. Not on Windows: its pipes, process groups and ends of processes are other ones. */
#include "port/child.h"

#include <stdlib.h>

#include "base/err.h"

char **ls_child_environment(void)
{
    return _environ;
}

int ls_child_start(const ls_child_options *options, ls_child *out)
{
    (void)options;
    (void)out;
    return LS_ENOTSUP;
}

long ls_child_read(const ls_child *child, int stream, char *to, size_t len)
{
    (void)child;
    (void)stream;
    (void)to;
    (void)len;
    return LS_ENOTSUP;
}

long ls_child_write(const ls_child *child, const char *bytes, size_t len)
{
    (void)child;
    (void)bytes;
    (void)len;
    return LS_ENOTSUP;
}

void ls_child_close(ls_child *child, int fd)
{
    child->fds[fd] = LS_FD_NONE;
}

void ls_child_end(const ls_child *child, bool kill)
{
    (void)child;
    (void)kill;
}

bool ls_child_reap(ls_child *child, int ms)
{
    (void)child;
    (void)ms;
    return true;
}
