/* uring.h - the back end "uring": the epoll back end with io_uring for the receives and sends of
 * streams and for files. */
#ifndef LS_PORT_URING_URING_H
#define LS_PORT_URING_URING_H

#include "port/epoll/epoll_internal.h"

extern const ls_backend ls_backend_uring;

#endif
