/* inherited_win32.c - see inherited.h: a process has no such sockets. */
#include "net/sock/inherited.h"

int ls_inherited_open(bool replaces, char *why, size_t why_bytes)
{
    return LS_OK;
}

bool ls_inherited_take(bool stream, const ls_addr *at, ls_fd *out)
{
    return false;
}

enum ls_inherited ls_inherited_kind(ls_fd fd)
{
    return LS_INHERITED_NONE;
}

void ls_inherited_close(void)
{
}

void ls_inherited_name(ls_fd fd, bool stream, bool any_port, char name[LS_INHERITED_NAME_BYTES])
{
    name[0] = '\0';
}
