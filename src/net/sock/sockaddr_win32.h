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

#define MSG_NOSIGNAL 0
#define SHUT_WR      SD_SEND

/* Of a listener: else a second process could take over the address with SO_REUSEADDR. Windows can bind an address in
 * TIME_WAIT, but not while a connection to it is open or has unsent data: those of a program that was ended by force,
 * for a while. */
#define LS_SO_LISTEN SO_EXCLUSIVEADDRUSE

#undef interface /* a macro that some of these headers define for COM */
#undef IF_NAMESIZE
enum { IF_NAMESIZE = 256 + 1 }; /* NDIS_IF_MAX_STRING_SIZE, defined only in the driver kit */

#endif
