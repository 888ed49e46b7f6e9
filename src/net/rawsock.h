/* rawsock.h - the system's own socket calls, non-blocking, for sockets that no port owns: somebody waits for them by
 * notification and does the calls himself. rawsock_posix.c supplies it. Every function returns LS_OK or a count, LS_EAGAIN
 * when it would block, or another error; outputs are untouched then. */
#ifndef LS_NET_RAWSOCK_H
#define LS_NET_RAWSOCK_H

#include <stdbool.h>
#include <stdio.h>

#include "net/addr.h"

/* stream: TCP, else UDP; family: LS_ADDR_IP4 or _IP6. Close it with ls_sock_discard. */
int ls_rawsock_open(bool stream, uint8_t family, ls_fd *out);
int ls_rawsock_bind(ls_fd fd, bool stream, const ls_addr *at); /* ls_sock_local tells the port that was picked */
int ls_rawsock_listen(ls_fd fd, int backlog);
int ls_rawsock_connect(ls_fd fd, const ls_addr *to); /* LS_EAGAIN: under way; OUT, ERR or HANGUP will tell */

/* *from (may be NULL) is who sent it, family LS_ADDR_NONE on a stream. *whole (may be NULL) is its length before it was cut. */
int ls_rawsock_receive(ls_fd fd, char *bytes, size_t room, ls_addr *from, size_t *whole);
int ls_rawsock_send(ls_fd fd, const char *bytes, size_t len, const ls_addr *to); /* NULL: the connected peer */
int ls_rawsock_error(ls_fd fd); /* the error that the socket has, which is forgotten; LS_OK: none */
int ls_rawsock_shutdown(ls_fd fd);

ls_fd ls_socket_fileno(FILE *file);

/* Somebody waits for input from here. A console of Windows gives single keys from now on, without showing them, until the program
 * ends; nothing else changes. console_posix.c, console_win32.c. */
void ls_console_raw(ls_fd fd);

#endif
