/* successor_win32.c - see successor.h. */
#include "base/os/successor.h"

#include <stdio.h>

#include "base/err.h"

int ls_successor_start(const intptr_t *sockets, unsigned count, const char *names, ls_successor *out, char *why,
                       size_t why_bytes)
{
    (void)snprintf(why, why_bytes, "Windows has no way to pass listeners to another process: restart the service");
    return LS_ENOTSUP;
}

void ls_successor_is_main(const ls_successor *s, bool back)
{
}

void ls_successor_end(ls_successor *s, char *how, size_t how_bytes)
{
}

void ls_successor_leave(ls_successor *s)
{
}

FILE *ls_successor_memory(ls_successor *s, const char *mode)
{
    return NULL;
}

bool ls_predecessor_open(ls_successor *out)
{
    *out = (ls_successor){.channel = -1, .memory = -1};
    return false;
}

int ls_successor_receive(const ls_successor *s, char text[LS_SUCCESSOR_TEXT_BYTES], unsigned ms)
{
    return 0;
}

void ls_successor_send(const ls_successor *s, const char *text)
{
}
