/* sockaddr_win32.h - see sockaddr.h. */
#ifndef LS_NET_SOCKADDR_WIN32_H
#define LS_NET_SOCKADDR_WIN32_H

#include <winsock2.h>
/* the order of these is significant */
#include <afunix.h>
#include <iphlpapi.h>
#include <netioapi.h>
#include <ws2tcpip.h>

typedef ADDRESS_FAMILY sa_family_t;

#undef interface /* a macro that some of these headers define for COM */
#undef IF_NAMESIZE
enum { IF_NAMESIZE = 256 + 1 }; /* NDIS_IF_MAX_STRING_SIZE, defined only in the driver kit */

#endif
