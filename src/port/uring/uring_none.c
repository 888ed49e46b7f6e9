/* uring_none.c - replaces uring.c where <linux/io_uring.h> is too old: the name "uring" is known, and the
 * port uses epoll. */
#include "base/log.h"
#include "port/uring/uring.h"

static int refuse(ls_port *port)
{
    (void)port;
    ls_log(LS_LOG_WARN, "io_uring was not built in (no linux/io_uring.h of 6.0 or later): the back end is epoll");
    return LS_ENOTSUP;
}

const ls_backend ls_backend_uring = {.name = "uring", .open = refuse};
