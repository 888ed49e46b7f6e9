/* sockaddr_posix.h - see sockaddr.h. */
#ifndef LS_NET_SOCKADDR_POSIX_H
#define LS_NET_SOCKADDR_POSIX_H

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#endif
