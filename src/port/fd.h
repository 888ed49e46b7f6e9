/* fd.h - the platform's handle of a socket or file, and its form of a socket address: the header that picks. */
#ifndef LS_PORT_FD_H
#define LS_PORT_FD_H

#include <stdint.h>

#ifdef _WIN32
typedef uintptr_t ls_fd; /* SOCKET or HANDLE */
#define LS_FD_NONE ((ls_fd) ~(uintptr_t)0)
#else
typedef int ls_fd;
#define LS_FD_NONE (-1)
#endif

typedef struct ls_sockaddr {
    uint32_t len;                         /* bytes in use; 0: none */
    _Alignas(8) unsigned char bytes[128]; /* a sockaddr of the system (sockaddr_in, _in6, _un) */
} ls_sockaddr;

#endif
