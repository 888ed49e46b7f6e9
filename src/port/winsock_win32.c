/* winsock_win32.c - see winsock_win32.h. */
#include "port/winsock_win32.h"

#include "base/io/log.h"

static BOOL CALLBACK start_once(PINIT_ONCE once, PVOID parameter, PVOID *context)
{
    WSADATA data;
    return WSAStartup(MAKEWORD(2, 2), &data) == 0;
}

int ls_winsock_start(void)
{
    static INIT_ONCE once = INIT_ONCE_STATIC_INIT;
    return InitOnceExecuteOnce(&once, start_once, NULL, NULL) ? LS_OK : LS_ESYS;
}

int ls_winsock_bind_error(const char *protocol, uint16_t port)
{
    const int err = ls_winsock_error();
    if (err != LS_EACCES) return err;
    ls_log(LS_LOG_WARN,
           "port %u is in use by another user's process, or reserved: see netsh int ipv4 show excludedportrange %s",
           port, protocol);
    return LS_EADDRINUSE;
}
