/* port_uring_none.c - instead of port_uring.c where <linux/io_uring.h> is too old: the back end is known, and cannot be had. */
#include "base/log.h"
#include "port/port_epoll.h"

static int refuse(ls_port *port)
{
    (void)port;
    ls_log(LS_LOG_WARN, "io_uring was not built in (no linux/io_uring.h of 6.0 or later): the back end is epoll");
    return LS_ENOTSUP;
}

const ls_engine ls_engine_uring = {.name = "uring", .open = refuse};
