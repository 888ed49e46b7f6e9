/* sock.h - making sockets: non-blocking, closed on exec, ready to be attached to a port. sock_posix.c supplies it. */
#ifndef LS_NET_SOCK_H
#define LS_NET_SOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "net/addr.h"
#include "port/fd.h"

/* A listening stream socket at `at`; port 0 picks a free one, *bound is what it came to be. A Unix path that nobody
 * listens on any more is taken over. LS_OK; LS_EADDRINUSE, LS_EADDRNOTAVAIL, LS_EACCES, LS_EMFILE, ... */
int ls_sock_listen(const ls_addr *at, uint32_t backlog, ls_fd *out, ls_addr *bound);

/* Take a connection from a listener's queue without waiting. LS_OK; LS_EAGAIN: there is none; another error. What it
 * gives, like what a port accepts, has TCP_NODELAY set: accepted sockets inherit it. */
int ls_sock_accept(ls_fd listener, ls_fd *out, ls_sockaddr *from);

/* The local address of a connected socket. LS_OK or an error. */
int ls_sock_local(ls_fd fd, ls_addr *out);

/* A stream socket to connect to an address of this family, with TCP_NODELAY. LS_OK or an error. */
int ls_sock_open(uint8_t family, ls_fd *out);

bool ls_sock_unread(ls_fd fd); /* something was received by the system and not by us */

/* TCP's own keep-alive: probe a peer that was silent for idle_s. LS_OK or an error; Unix sockets have none: LS_ENOTSUP. */
int ls_sock_keepalive(ls_fd fd, bool on, uint32_t idle_s);

void ls_sock_discard(ls_fd fd);         /* close one that was never attached */
void ls_sock_unlink(const ls_addr *at); /* remove the path of a Unix listener that is closed */

#endif
