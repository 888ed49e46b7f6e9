/* sockaddr_posix.h - see sockaddr.h. */
#ifndef LS_NET_SOCKADDR_POSIX_H
#define LS_NET_SOCKADDR_POSIX_H

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Of a listener: on Linux it only permits TIME_WAIT; a second listener is still refused. */
#define LS_SO_LISTEN SO_REUSEADDR

#endif
