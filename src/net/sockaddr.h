/* sockaddr.h - the system's socket addresses and what turns them into text: the header that picks. For addr.c. */
#ifndef LS_NET_SOCKADDR_H
#define LS_NET_SOCKADDR_H

#ifdef _WIN32
#include "net/sockaddr_win32.h"
#else
#include "net/sockaddr_posix.h"
#endif

#endif
