/* backend_posix.c - the list of back ends on Linux, and the selection of one. */
#include <string.h>

#include "port/epoll/epoll_internal.h"
#include "port/uring/uring.h"

static const ls_backend *const backends[] = {&ls_backend_epoll, &ls_backend_uring}; /* the first is "auto" */

const char *ls_port_backends(void)
{
    return "epoll uring";
}

int ls_port_open(const ls_port_options *options, ls_port **out)
{
    const char *name = options->backend;
    if (name == NULL || strcmp(name, "auto") == 0) return ls_epoll_open(options, backends[0], out);
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++)
        if (strcmp(name, backends[i]->name) == 0) return ls_epoll_open(options, backends[i], out);
    return LS_ENOTSUP;
}
