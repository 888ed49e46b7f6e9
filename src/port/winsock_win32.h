/* winsock_win32.h - the start of Winsock, its errors and its handles. For *_win32.c and src/port/win32. */
#ifndef LS_PORT_WINSOCK_WIN32_H
#define LS_PORT_WINSOCK_WIN32_H

#include <winsock2.h>
/* these include each other's types: this order is required */
#include <mswsock.h>
#include <windows.h>

#include "base/err_win32.h"
#include "port/fd.h"

/* Start Winsock, before the first socket is created. Further calls do nothing. Winsock is used until the process ends.
 * LS_OK, or LS_ESYS when WSAStartup fails. */
int ls_winsock_start(void);

/* The last Winsock error of this thread as an LS_E* code. */
static inline int ls_winsock_error(void)
{
    return ls_err_from_win32((uint32_t)WSAGetLastError());
}

/* The same for bind() of a port. For an address that a process of another user holds exclusively, and for a port in a
 * range that is reserved, for example by Hyper-V, bind reports WSAEACCES: LS_EADDRINUSE. No list of sockets shows the
 * owner then, so the reason is logged. protocol: "tcp", "udp". */
int ls_winsock_bind_error(const char *protocol, uint16_t port);

/* The backlog of listen(): a plain number of more than 200 counts as 200, a negative one is a hint of up to 65535
 * (SOMAXCONN_HINT). */
static inline int ls_winsock_backlog(uint32_t backlog)
{
    if (backlog <= 200) return (int)backlog;
    return backlog < 65535 ? -(int)backlog : -65535;
}

#endif
