/* inherited.h - bound sockets that the process has from its parent: from a socket unit of systemd or from the store of
 * descriptors of its service (LISTEN_FDS, sd_listen_fds(3)), or from the server that it replaces (server/upgrade.h).
 *
 * ls_sock_listen and ls_udp_sock_open take the one that has the address they are to bind; the connections and the
 * datagrams that wait in it are served. What no listener has taken is closed with a line of the log, and leaves the
 * store.
 *
 * The name of a socket says whose it is: the names of ls_inherited_name, or others, which a socket unit has given.
 * "Port 0" is kept in the name: a listener at port 0 takes a socket that was opened so.
 *
 * Global, like the environment. Thread: the one that opens the server. inherited_posix.c; on Windows a process has
 * none. */
#ifndef LS_NET_INHERITED_H
#define LS_NET_INHERITED_H

#include <stdbool.h>
#include <stddef.h>

#include "net/sock/addr.h"

enum { LS_INHERITED_MAX = 4096, LS_INHERITED_NAME_BYTES = 256 };
enum ls_inherited { LS_INHERITED_NONE, LS_INHERITED_OWN, LS_INHERITED_OF_UNIT };

/* Take the sockets that the variables name, and remove the variables, which are not for child processes. `replaces`:
 * those of the server that this one replaces, which does not know LISTEN_PID. LS_OK, also without variables; an error
 * with the reason in `why`. While no other thread reads the environment. */
int ls_inherited_open(bool replaces, char *why, size_t why_bytes);

/* Take the socket with this address, and of this type: `stream` listens, else it is one for datagrams. */
bool ls_inherited_take(bool stream, const ls_addr *at, ls_fd *out);

/* Whose socket it is, until ls_inherited_close. OF_UNIT: systemd keeps it open in any case. */
enum ls_inherited ls_inherited_kind(ls_fd fd);

void ls_inherited_close(void); /* close those that were not taken */

/* The name of an open socket, which another process knows it by; `any_port`: the site has named port 0. */
void ls_inherited_name(ls_fd fd, bool stream, bool any_port, char name[LS_INHERITED_NAME_BYTES]);

#endif
