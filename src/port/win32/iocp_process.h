/* iocp_process.h - ProcessSocketNotifications with its types and constants (winsock2.h of the Windows SDK 10.0.20348
 * and later; mingw-w64 10 does not declare them). */
#ifndef LS_PORT_WIN32_IOCP_PROCESS_H
#define LS_PORT_WIN32_IOCP_PROCESS_H

#include <stdint.h>

#include "port/winsock_win32.h"

enum { /* SOCK_NOTIFY_OP_*; events and triggers have the values of LS_EVENT_* and LS_TRIGGER_* */
       LS_PROCESS_ENABLE = 1,
       LS_PROCESS_DISABLE = 2, /* not used: see iocp_process.c */
       LS_PROCESS_REMOVE = 4,
};

typedef struct ls_process_registration { /* SOCK_NOTIFY_REGISTRATION */
    SOCKET socket;
    void *key;
    uint16_t events;
    uint8_t operation;
    uint8_t trigger;
    DWORD result;
} ls_process_registration;

typedef DWORD WSAAPI ls_process_fn(HANDLE port, UINT32 count, ls_process_registration *registrations,
                                   UINT32 timeout_ms, ULONG entries_max, OVERLAPPED_ENTRY *entries,
                                   UINT32 *entries_got);

typedef struct ls_process_calls {
    ls_process_fn *process;
} ls_process_calls;

/* The function exported by ws2_32; NULL: ws2_32 does not export it, or the environment has
 * LUASERVE_AFD=1. Static memory. */
const ls_process_calls *ls_process_look_up(void);

#endif
