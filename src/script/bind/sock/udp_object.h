/* udp_object.h - datagrams of ls.udp sockets in Lua. */
#ifndef LS_SCRIPT_BIND_UDP_H
#define LS_SCRIPT_BIND_UDP_H

#include "net/udp/udp.h"

enum { LS_UDP_SOCKETS_MAX = 2 };

typedef struct ls_site_udp { /* one ls.udp call */
    char host[112];          /* "": loopback, IPv4 and IPv6; "*": all addresses; an address */
    uint16_t port;           /* 0: any free port */
    ls_udp_setup setup;
    char where[80];
} ls_site_udp;

/* The ls_udp_batch_fn of the ls.udp sockets; `user` is ls_site_udp_user(). Runs the handler for each datagram of the
 * batch in a free state and sends the replies. The thread must not hold an actor. */
void ls_site_udp_batch(ls_thread_ctx *ctx, void *user, ls_udp *udp, ls_datagrams *batch);

#endif
