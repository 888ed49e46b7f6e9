/* winsock_win32.c - see winsock_win32.h. */
#include "port/winsock_win32.h"

static BOOL CALLBACK start_once(PINIT_ONCE once, PVOID parameter, PVOID *context)
{
    WSADATA data;
    (void)once;
    (void)parameter;
    (void)context;
    return WSAStartup(MAKEWORD(2, 2), &data) == 0;
}

int ls_winsock_start(void)
{
    static INIT_ONCE once = INIT_ONCE_STATIC_INIT;
    return InitOnceExecuteOnce(&once, start_once, NULL, NULL) ? LS_OK : LS_ESYS;
}
