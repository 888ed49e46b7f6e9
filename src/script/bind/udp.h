/* udp.h - datagrams of ls.udp sockets in Lua. */
#ifndef LS_SCRIPT_BIND_UDP_H
#define LS_SCRIPT_BIND_UDP_H

#include "net/udp.h"

/* The ls_udp_batch_fn of the ls.udp sockets; `user` is ls_site_udp_user(). Runs the handler for each datagram of the
 * batch in a free state and sends the replies. The thread must not hold an actor. */
void ls_site_udp_batch(ls_thread_ctx *ctx, void *user, ls_udp *udp, ls_datagrams *batch);

#endif
