/* process_fake_win32.c - ProcessSocketNotifications as its documentation describes it, for systems without it. The
 * tests of notify.h are built once more with this file, which replaces ls_process_look_up and the wait of the port:
 * before each wait, and every few milliseconds of it, the sockets are looked at, and what is due is posted.
 *
 *     - IN, OUT, HANGUP and ERR are flags of their own: IN is data alone (or a connection to accept), the end of the
 *       stream is HANGUP alone. ERR and REMOVE come whatever the filter is.
 *     - LEVEL is posted while the condition holds; EDGE when it becomes true, or more data arrive, while it is
 *       enabled.
 *     - ONESHOT is disabled when its packet is posted.
 *     - A registration overwrites that of the same socket. The key is that of the first, until REMOVE.
 *     - REMOVE posts the last packet.
 *     - A disabled registration must not be enabled before an event that no header declares: DISABLE is refused. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <winternl.h>

#include "port/notify.h"
#include "port/win32/iocp_notify.h"

enum { REGISTRATIONS = 8192, LOOK_MS = 2, IOCTL_POLL = 0x00012024 };

typedef struct registration {
    SOCKET socket; /* 0: free */
    HANDLE port;
    void *key;
    uint16_t filter;
    uint8_t trigger;
    bool enabled;
    bool queued;     /* LEVEL: its packet is in the port */
    uint32_t before; /* at the last look */
    u_long amount;
} registration;

static SRWLOCK lock = SRWLOCK_INIT;
static registration all[REGISTRATIONS];
static int used; /* entries that were ever in use */

extern BOOL(WINAPI *__real___imp_GetQueuedCompletionStatusEx)(HANDLE, OVERLAPPED_ENTRY *, ULONG, ULONG *, DWORD, BOOL);

/* The conditions that hold. false: the socket is closed. */
static bool look(SOCKET socket, uint32_t *events, u_long *amount)
{
    static HANDLE device, done;
    if (device == NULL) {
        static wchar_t path[] = L"\\Device\\Afd\\fake";
        UNICODE_STRING name = {.Length = sizeof path - sizeof path[0], .MaximumLength = sizeof path, .Buffer = path};
        OBJECT_ATTRIBUTES attributes = {.Length = sizeof attributes, .ObjectName = &name};
        IO_STATUS_BLOCK status;
        if (NtCreateFile(&device, SYNCHRONIZE, &attributes, &status, NULL, 0, FILE_SHARE_READ | FILE_SHARE_WRITE,
                         FILE_OPEN, 0, NULL, 0) < 0)
            abort();
        done = CreateEventW(NULL, FALSE, FALSE, NULL);
    }
    poll_info in = {.count = 1,
                    .handle = (HANDLE)socket,
                    .events =
                        POLL_RECEIVE | POLL_ACCEPT | POLL_SEND | POLL_DISCONNECT | POLL_ABORT | POLL_CONNECT_FAIL},
              out = {.count = 0};
    IO_STATUS_BLOCK status = {.Pointer = NULL};
    const NTSTATUS posted =
        NtDeviceIoControlFile(device, done, NULL, NULL, &status, IOCTL_POLL, &in, sizeof in, &out, sizeof out);
    if (posted < 0) return false;
    if (posted == (NTSTATUS)STATUS_PENDING) (void)WaitForSingleObject(done, INFINITE);
    const ULONG found = out.count > 0 ? out.events : 0;
    *events = 0;
    *amount = 0;
    if (found & (POLL_RECEIVE | POLL_ACCEPT)) *events |= LS_EVENT_IN;
    if (found & POLL_SEND) *events |= LS_EVENT_OUT;
    if (found & POLL_DISCONNECT) *events |= LS_EVENT_HANGUP;
    if (found & (POLL_ABORT | POLL_CONNECT_FAIL)) *events |= LS_EVENT_HANGUP | LS_EVENT_ERR;
    (void)ioctlsocket(socket, FIONREAD, amount);
    return true;
}

static void post(const registration *at, uint32_t events)
{
    (void)PostQueuedCompletionStatus(at->port, events, (ULONG_PTR)at->key, NULL);
}

static void look_at_all(HANDLE port)
{
    AcquireSRWLockExclusive(&lock);
    for (registration *at = all; at < all + used; at++) {
        uint32_t now;
        u_long amount;
        if (at->socket == 0 || at->port != port || !at->enabled) continue;
        if (!look(at->socket, &now, &amount)) {
            at->socket = 0; /* a closed socket takes its registration along */
            continue;
        }
        const uint32_t asked = at->filter | LS_EVENT_ERR;
        uint32_t due = now & asked;
        if (at->trigger & LS_TRIGGER_EDGE) {
            due &= ~at->before;
            if (amount > at->amount) due |= now & asked & LS_EVENT_IN;
        }
        at->before = now;
        at->amount = amount;
        if (due == 0 || at->queued) continue;
        if (at->trigger & LS_TRIGGER_ONESHOT) at->enabled = false;
        at->queued = at->trigger & LS_TRIGGER_LEVEL;
        post(at, due);
    }
    ReleaseSRWLockExclusive(&lock);
}

static registration *find(SOCKET socket)
{
    for (registration *at = all; at < all + used; at++)
        if (at->socket == socket) return at;
    return NULL;
}

static DWORD carry_out(HANDLE port, const ls_process_registration *asked)
{
    registration *at = find(asked->socket);
    u_long amount;
    uint32_t now;
    if (!look(asked->socket, &now, &amount)) return ERROR_INVALID_HANDLE;
    if (asked->operation == LS_PROCESS_REMOVE) {
        if (at == NULL) return ERROR_NOT_FOUND;
        post(at, LS_EVENT_REMOVE);
        at->socket = 0;
        return ERROR_SUCCESS;
    }
    if (asked->operation != LS_PROCESS_ENABLE) return ERROR_INVALID_PARAMETER;
    if (at == NULL) {
        if ((at = find(0)) == NULL && used < REGISTRATIONS) at = &all[used++];
        if (at == NULL) return ERROR_NOT_ENOUGH_MEMORY;
        *at = (registration){.key = asked->key};
    } else if (((uintptr_t)at->key >> 32) < ((uintptr_t)asked->key >> 32)) {
        at->key = asked->key; /* that of a socket that was closed, for the system another one */
    }
    at->socket = asked->socket;
    at->port = port;
    at->filter = asked->events;
    at->trigger = asked->trigger;
    at->enabled = true;
    at->before = now;
    at->amount = amount;
    at->queued = false;
    return ERROR_SUCCESS;
}

static DWORD WSAAPI fake_process(HANDLE port, UINT32 count, ls_process_registration *registrations, UINT32 timeout_ms,
                                 ULONG entries_max, OVERLAPPED_ENTRY *entries, UINT32 *entries_got)
{
    (void)timeout_ms, (void)entries_max, (void)entries, (void)entries_got; /* it is called without a wait */
    AcquireSRWLockExclusive(&lock);
    for (UINT32 i = 0; i < count; i++) registrations[i].result = carry_out(port, &registrations[i]);
    ReleaseSRWLockExclusive(&lock);
    return ERROR_SUCCESS;
}

const ls_process_calls *__wrap_ls_process_look_up(void)
{
    static const ls_process_calls calls = {.process = fake_process};
    return &calls;
}

/* The packets that are taken may be posted again. */
static void taken(const OVERLAPPED_ENTRY *entries, ULONG count)
{
    AcquireSRWLockExclusive(&lock);
    for (ULONG i = 0; i < count; i++)
        for (registration *at = all; (entries[i].lpCompletionKey & KEY_KINDS) == KEY_SOCKET && at < all + used; at++)
            if (at->socket != 0 && at->key == (void *)entries[i].lpCompletionKey) at->queued = false;
    ReleaseSRWLockExclusive(&lock);
}

static BOOL WINAPI fake_wait(HANDLE port, OVERLAPPED_ENTRY *entries, ULONG max, ULONG *got, DWORD ms, BOOL alertable)
{
    const ULONGLONG end = GetTickCount64() + ms;
    for (;;) {
        look_at_all(port);
        const ULONGLONG now = GetTickCount64();
        const bool last = ms != INFINITE && now + LOOK_MS >= end;
        const DWORD wait_ms = !last ? LOOK_MS : now < end ? (DWORD)(end - now) : 0;
        if (__real___imp_GetQueuedCompletionStatusEx(port, entries, max, got, wait_ms, alertable)) {
            taken(entries, *got);
            return TRUE;
        }
        if (last || GetLastError() != WAIT_TIMEOUT) return FALSE;
    }
}

BOOL(WINAPI *__wrap___imp_GetQueuedCompletionStatusEx)
(HANDLE, OVERLAPPED_ENTRY *, ULONG, ULONG *, DWORD, BOOL) = fake_wait;
