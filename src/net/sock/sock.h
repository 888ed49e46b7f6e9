/* sock.h - creates sockets: non-blocking, close-on-exec, ready for ls_sock_attach. sock.c, sock_posix.c or
 * sock_win32.c implement it. */
#ifndef LS_NET_SOCK_H
#define LS_NET_SOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "net/sock/addr.h"
#include "port/fd.h"

/* The permissions and the owner of the path of a Unix listener. */
typedef struct ls_path_access {
    bool has_mode, has_user, has_group; /* false: as bind(2) makes them, from the umask and the process */
    uint32_t mode, user, group;
} ls_path_access;

/* A file, as long as it exists. */
typedef struct ls_path_id {
    uint64_t device, inode;
} ls_path_id;

/* Open a listening stream socket at `at`, or take the inherited one (inherited.h); port 0 picks a free port. *bound receives the actual address. A Unix path
 * abandoned by a process that has ended is replaced; a path to which a socket is bound is not, whether or not that
 * process has called listen(2). `access` (NULL: none) applies to a Unix path before the first connection. LS_OK;
 * LS_EADDRINUSE, LS_EADDRNOTAVAIL, LS_EACCES, LS_EMFILE, ...; LS_EPROTOTYPE: a datagram or seqpacket socket is bound
 * to the path; LS_EEXIST: the path is a file of another type. On failure the path remains as it was. */
int ls_sock_listen(const ls_addr *at, uint32_t backlog, const ls_path_access *access, ls_fd *out, ls_addr *bound);

/* Set the options of a listener, before it is bound; for ls_sock_listen. LS_OK or an error. */
int ls_sock_set_up_listener(ls_fd fd, const ls_addr *at);

/* Set the permissions and the owner of the path of an open Unix listener; what `access` does not have stays. Other
 * addresses have none. LS_OK; LS_EACCES, ...: some of it may be set. */
int ls_sock_set_access(const ls_addr *at, const ls_path_access *access);

/* Take a connection from a listener's queue without waiting. LS_OK; LS_EAGAIN: the queue is empty; another error. The
 * socket has TCP_NODELAY set, like every socket that a port accepts: accepted sockets inherit it. */
int ls_sock_accept(ls_fd listener, ls_fd *out, ls_sockaddr *from);

/* The local address of a connected socket. LS_OK or an error. */
int ls_sock_local(ls_fd fd, ls_addr *out);

/* The user of the process that connected to a Unix listener (SO_PEERCRED). LS_OK or an error; LS_ENOTSUP: another
 * socket, or the system does not tell. */
int ls_sock_peer_user(ls_fd fd, uint32_t *user);

/* Open a stream socket to connect to an address of this family, with TCP_NODELAY. LS_OK or an error. */
int ls_sock_open(uint8_t family, ls_fd *out);

bool ls_sock_unread(ls_fd fd); /* the system holds received bytes that were not read */

/* Receive without an operation what has arrived; `peek`: it stays. The number of bytes; 0: the end of the stream;
 * LS_EAGAIN: nothing has arrived; or another error. */
int64_t ls_sock_receive_now(ls_fd fd, void *to, size_t len, bool peek);

/* TCP keep-alive: probe a peer that was silent for idle_s. LS_OK or an error; LS_ENOTSUP: a Unix socket. */
int ls_sock_keepalive(ls_fd fd, bool on, uint32_t idle_s);

/* The system takes further bytes only while fewer than this number are not sent yet: bytes that are more urgent need not
 * follow megabytes. It is a wish: TCP on Linux knows it. */
void ls_sock_unsent_max(ls_fd fd, uint32_t bytes);

void ls_sock_discard(ls_fd fd); /* closes a socket that was never attached */

/* The path of a Unix listener. Remove it before the listener is closed, and only if it is still the listener's file:
 * while the socket is open, no other file gets its inode number. Other addresses have no path: nothing happens. */
void ls_sock_path_id(const ls_addr *at, ls_path_id *out);
void ls_sock_unlink(const ls_addr *at, const ls_path_id *id);

#endif
