/* rawsock.h - non-blocking socket calls of the system: to open and set up sockets (sock.h, udp.h), and for sockets
 * that no port owns, which the script registers for notifications. rawsock.c, rawsock_posix.c or rawsock_win32.c
 * implement it. Every function returns LS_OK or a count, LS_EAGAIN if the call would block, or another error; outputs
 * are untouched on failure. */
#ifndef LS_NET_RAWSOCK_H
#define LS_NET_RAWSOCK_H

#include <stdbool.h>
#include <stdio.h>

#include "net/sock/addr.h"

/* stream: true for TCP, false for UDP; family: of enum ls_family. It is closed on exec; close it with
 * ls_sock_discard. */
int ls_rawsock_open(bool stream, uint8_t family, ls_fd *out);
int ls_rawsock_bind(ls_fd fd, bool stream, const ls_addr *at); /* ls_sock_local returns the actual port */
int ls_rawsock_listen(ls_fd fd, int backlog);
int ls_rawsock_connect(ls_fd fd, const ls_addr *to); /* LS_EAGAIN: in progress; OUT, ERR or HANGUP reports the end */

/* *from (may be NULL) receives the sender, family LS_ADDR_NONE on a stream; *truncated (may be NULL) whether the
 * datagram has more bytes than `room`. */
int ls_rawsock_receive(ls_fd fd, char *bytes, size_t room, ls_addr *from, bool *truncated);
int ls_rawsock_send(ls_fd fd, const char *bytes, size_t len, const ls_addr *to); /* to NULL: the connected peer */
int ls_rawsock_error(ls_fd fd); /* returns and clears the pending error of the socket; LS_OK: no error */
int ls_rawsock_shutdown(ls_fd fd);

int ls_rawsock_failed(void); /* the error of the call of the system that has just failed */

/* Set an option. LS_OK or an error. */
int ls_rawsock_set(ls_fd fd, int level, int name, int value);
int ls_rawsock_set_bytes(ls_fd fd, int level, int name, const void *value, size_t len);

ls_fd ls_socket_fileno(FILE *file);

/* Call when a program waits for input from fd. A Windows console then delivers single keys without echo until the
 * program ends; on other descriptors and systems it has no effect. console_posix.c, console_win32.c. */
void ls_console_raw(ls_fd fd);

#endif
