/* winsock_win32.h - the start of Winsock, and what the system tells about a kind of socket. For *_win32.c and src/port/win32. */
#ifndef LS_PORT_WINSOCK_WIN32_H
#define LS_PORT_WINSOCK_WIN32_H

#include <winsock2.h>
/* the order of these matters */
#include <mswsock.h>
#include <windows.h>

#include "base/err_win32.h"
#include "port/fd.h"

/* Before the first socket; again is harmless and cheap. Winsock then stays until the process ends. LS_OK, or an error of
 * WSAStartup. */
int ls_winsock_start(void);

/* The last Winsock error of this thread as a code of ours. */
static inline int ls_winsock_error(void)
{
    return ls_err_from_win32((uint32_t)WSAGetLastError());
}

static inline SOCKET ls_winsock_of(ls_fd fd)
{
    return (SOCKET)fd;
}

#endif
