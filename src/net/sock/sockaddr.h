/* sockaddr.h - the socket address types and conversions of the system; the header that selects. For addr.c, rawsock.c,
 * sock.c and udp_sock.c. */
#ifndef LS_NET_SOCKADDR_H
#define LS_NET_SOCKADDR_H

#ifdef _WIN32
#include "net/sock/sockaddr_win32.h"
#else
#include "net/sock/sockaddr_posix.h"
#endif

#endif
