/* probe.c - what this Windows does in cases that its documentation leaves open, and on which src/port/win32 depends.
 *
 * Each line of the output is `case: what happened`. The program uses the system's functions only, none of luaserve,
 * and ends by itself: every wait has a time limit. src/port/WINDOWS.md lists the cases with what luaserve assumes. */
#include <mswsock.h>
#include <windows.h>
#include <winsock2.h>
#include <winternl.h>
#include <ws2tcpip.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    IOCTL_AFD_POLL = 0x00012024, /* as wepoll and the C library of Wine use it; Microsoft does not document it */
    POLL_RECEIVE = 0x0001,
    POLL_DISCONNECT = 0x0008,
    POLL_LOCAL_CLOSE = 0x0020,
    WAIT_MS = 500, /* for what should not happen */
};

typedef struct poll_info { /* AFD_POLL_INFO with one handle */
    LARGE_INTEGER timeout;
    ULONG count;
    ULONG exclusive;
    HANDLE handle;
    ULONG events;
    NTSTATUS status;
} poll_info;

typedef struct afd_poll {
    OVERLAPPED overlapped; /* its first words are the IO_STATUS_BLOCK */
    poll_info input, output;
} afd_poll;

typedef struct notify_registration { /* SOCK_NOTIFY_REGISTRATION */
    SOCKET socket;
    void *key;
    UINT16 events;
    UINT8 operation;
    UINT8 trigger;
    DWORD result;
} notify_registration;

enum { NOTIFY_IN = 1, NOTIFY_OUT = 2, NOTIFY_HANGUP = 4 };         /* SOCK_NOTIFY_REGISTER_EVENT_* */
enum { NOTIFY_ENABLE = 1, NOTIFY_DISABLE = 2, NOTIFY_REMOVE = 4 }; /* SOCK_NOTIFY_OP_* */
enum { NOTIFY_PERSISTENT = 2, NOTIFY_LEVEL = 4, NOTIFY_EDGE = 8 }; /* SOCK_NOTIFY_TRIGGER_* */

typedef DWORD WSAAPI notify_function(HANDLE port, UINT32 count, notify_registration *registrations, UINT32 timeout_ms,
                                     ULONG entries_max, OVERLAPPED_ENTRY *entries, UINT32 *entries_got);

static HANDLE port;
static notify_function *notify;

static HANDLE new_port(void)
{
    return CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
}

/* The next packet of the port. false: none within `ms`. */
static bool take(DWORD ms, OVERLAPPED_ENTRY *entry)
{
    ULONG got = 0;
    memset(entry, 0, sizeof *entry);
    return GetQueuedCompletionStatusEx(port, entry, 1, &got, ms, FALSE) && got == 1;
}

static SOCKET new_socket(void)
{
    return WSASocketW(AF_INET, SOCK_STREAM, 0, NULL, 0, WSA_FLAG_OVERLAPPED);
}

static SOCKET new_listener(int backlog, struct sockaddr_in *at)
{
    int length = sizeof *at;
    const SOCKET listener = new_socket();
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)at, sizeof *at) != 0 || listen(listener, backlog) != 0)
        return INVALID_SOCKET;
    getsockname(listener, (struct sockaddr *)at, &length);
    return listener;
}

/* A connection; ends[0] is the accepted side. */
static bool connected(SOCKET ends[2])
{
    struct sockaddr_in at;
    const SOCKET listener = new_listener(8, &at);
    ends[1] = new_socket();
    if (listener == INVALID_SOCKET || connect(ends[1], (struct sockaddr *)&at, sizeof at) != 0) return false;
    ends[0] = accept(listener, NULL, NULL);
    closesocket(listener);
    return ends[0] != INVALID_SOCKET;
}

/* ---- when is the result of an operation written
 * ------------------------------------------------------------------ */

/* STATUS_PENDING after the cancel, and another status after the dequeue: completion is lazy. */
static void cancelled_accept(void)
{
    static char addresses[128];
    OVERLAPPED overlapped = {0};
    OVERLAPPED_ENTRY entry;
    struct sockaddr_in at;
    DWORD bytes;
    const SOCKET listener = new_listener(8, &at), next = new_socket();
    CreateIoCompletionPort((HANDLE)listener, port, 1, 0);
    AcceptEx(listener, next, addresses, 0, 32, 32, &bytes, &overlapped);
    printf("AcceptEx, status while pending: 0x%08lx\n", (unsigned long)overlapped.Internal);
    CancelIoEx((HANDLE)listener, &overlapped);
    Sleep(WAIT_MS);
    printf("AcceptEx, status after CancelIoEx, before the dequeue: 0x%08lx\n",
           (unsigned long)*(volatile ULONG_PTR *)&overlapped.Internal);
    const bool taken = take(WAIT_MS, &entry);
    printf("AcceptEx, status after the dequeue: %s 0x%08lx\n", taken ? "packet," : "no packet,",
           (unsigned long)*(volatile ULONG_PTR *)&overlapped.Internal);
    closesocket(listener);
    closesocket(next);
}

/* ---- AFD polls
 * --------------------------------------------------------------------------------------------------- */

static HANDLE open_afd(void)
{
    static wchar_t path[] = L"\\Device\\Afd\\probe";
    UNICODE_STRING name = {.Length = sizeof path - sizeof path[0], .MaximumLength = sizeof path, .Buffer = path};
    OBJECT_ATTRIBUTES attributes = {.Length = sizeof attributes, .ObjectName = &name};
    IO_STATUS_BLOCK status;
    HANDLE afd = NULL;
    if (NtCreateFile(&afd, SYNCHRONIZE, &attributes, &status, NULL, 0, FILE_SHARE_READ | FILE_SHARE_WRITE, FILE_OPEN,
                     0, NULL, 0) < 0) {
        return NULL;
    }
    CreateIoCompletionPort(afd, port, 2, 0);
    return afd;
}

static void post_poll(HANDLE afd, afd_poll *poll, SOCKET socket, ULONG events)
{
    memset(poll, 0, sizeof *poll);
    poll->overlapped.Internal = (ULONG_PTR)STATUS_PENDING;
    poll->input =
        (poll_info){.timeout = {.QuadPart = INT64_MAX}, .count = 1, .handle = (HANDLE)socket, .events = events};
    IO_STATUS_BLOCK *status = (IO_STATUS_BLOCK *)(void *)&poll->overlapped;
    (void)NtDeviceIoControlFile(afd, NULL, NULL, status, status, IOCTL_AFD_POLL, &poll->input, sizeof poll->input,
                                &poll->output, sizeof poll->output);
}

/* What each poll reported, from the packets of `ms` each until there is none. */
static void print_polls(const char *name, const afd_poll *first, const afd_poll *second)
{
    OVERLAPPED_ENTRY entry;
    int packets = 0;
    printf("%s:", name);
    while (take(WAIT_MS, &entry)) {
        const afd_poll *poll = (const afd_poll *)(const void *)entry.lpOverlapped;
        printf(" %s poll, status 0x%08lx, events 0x%lx;",
               poll == first    ? "first"
               : poll == second ? "second"
                                : "unknown",
               (unsigned long)poll->overlapped.Internal, poll->output.count > 0 ? poll->output.events : 0);
        packets++;
    }
    printf(" %d packets\n", packets);
}

static void two_polls(void)
{
    static afd_poll first, second;
    SOCKET ends[2];
    const HANDLE afd = open_afd();
    if (afd == NULL || !connected(ends)) {
        printf("AFD polls: not available\n");
        return;
    }
    post_poll(afd, &first, ends[0], POLL_LOCAL_CLOSE);
    post_poll(afd, &second, ends[0], POLL_RECEIVE | POLL_LOCAL_CLOSE);
    send(ends[1], "x", 1, 0);
    print_polls("two AFD polls of a socket (close; receive), data arrive", &first, &second);
    CancelIoEx(afd, NULL);
    print_polls("two AFD polls of a socket, then CancelIoEx", &first, &second);
    post_poll(afd, &first, ends[0], POLL_LOCAL_CLOSE);
    closesocket(ends[0]);
    print_polls("AFD poll for the close, the socket is closed", &first, NULL);
    CancelIoEx(afd, NULL);
    OVERLAPPED_ENTRY entry;
    while (take(50, &entry)) continue;
    closesocket(ends[1]);
    CloseHandle(afd);
}

/* ---- ProcessSocketNotifications
 * ---------------------------------------------------------------------------------- */

static DWORD change(SOCKET socket, UINT8 operation, UINT16 events, UINT8 trigger)
{
    notify_registration registration = {.socket = socket,
                                        .key = (void *)(uintptr_t)0x40,
                                        .events = events,
                                        .operation = operation,
                                        .trigger = trigger};
    const DWORD result = notify(port, 1, &registration, 0, 0, NULL, NULL);
    return result != 0 ? result : registration.result;
}

/* The events of all packets of this key until there is none for WAIT_MS; at most `most` packets. */
static void print_events(const char *name, int most)
{
    OVERLAPPED_ENTRY entry;
    printf("%s:", name);
    int packets = 0;
    while (packets < most && take(WAIT_MS, &entry)) {
        printf(" 0x%lx", (unsigned long)entry.dwNumberOfBytesTransferred);
        packets++;
    }
    printf(" (%d packets)\n", packets);
}

static void notifications(void)
{
    SOCKET ends[2];
    if (notify == NULL) {
        printf("ProcessSocketNotifications: not in this Windows\n");
        return;
    }
    if (connected(ends)) {
        change(ends[0], NOTIFY_ENABLE, NOTIFY_IN, NOTIFY_PERSISTENT | NOTIFY_EDGE);
        shutdown(ends[1], SD_SEND);
        print_events("notification for IN alone, the peer shuts down", 3);
        change(ends[0], NOTIFY_REMOVE, 0, 0);
        print_events("notification, REMOVE", 3);
        closesocket(ends[0]);
        closesocket(ends[1]);
    }
    if (connected(ends)) {
        change(ends[0], NOTIFY_ENABLE, NOTIFY_IN, NOTIFY_PERSISTENT | NOTIFY_EDGE);
        const DWORD disabled = change(ends[0], NOTIFY_DISABLE, 0, 0);
        const DWORD enabled = change(ends[0], NOTIFY_ENABLE, NOTIFY_IN, NOTIFY_PERSISTENT | NOTIFY_EDGE);
        printf("notification, results of DISABLE and of ENABLE at once: %lu %lu\n", disabled, enabled);
        send(ends[1], "x", 1, 0);
        print_events("notification, DISABLE, ENABLE, data arrive", 4);
        change(ends[0], NOTIFY_REMOVE, 0, 0);
        closesocket(ends[0]);
        closesocket(ends[1]);
        print_events("notification, REMOVE, the socket is closed at once", 3);
    }
    if (connected(ends)) {
        send(ends[1], "x", 1, 0);
        Sleep(50);
        change(ends[0], NOTIFY_ENABLE, NOTIFY_IN, NOTIFY_PERSISTENT | NOTIFY_EDGE);
        print_events("notification for IN, edge, data were there before", 3);
        closesocket(ends[0]);
        print_events("notification, the socket is closed without REMOVE", 3);
        closesocket(ends[1]);
    }
}

/* ---- sockets
 * ----------------------------------------------------------------------------------------------------- */

/* How many of 1,000 connects succeed while nobody accepts. */
static void backlog(const char *name, int value)
{
    static SOCKET clients[1000];
    struct sockaddr_in at;
    const SOCKET listener = new_listener(value, &at);
    int accepted = 0, made = 0;
    for (; made < 1000; made++) {
        u_long on = 1;
        clients[made] = new_socket();
        if (clients[made] == INVALID_SOCKET) break;
        ioctlsocket(clients[made], (long)FIONBIO, &on);
        connect(clients[made], (struct sockaddr *)&at, sizeof at);
        WSAPOLLFD writable = {.fd = clients[made], .events = POLLOUT};
        if (WSAPoll(&writable, 1, 200) != 1 || !(writable.revents & POLLOUT)) {
            made++;
            break;
        }
        accepted++;
    }
    printf("listen(%s): %d connections without an accept\n", name, accepted);
    for (int i = 0; i < made; i++) {
        if (clients[i] != INVALID_SOCKET) closesocket(clients[i]);
    }
    closesocket(listener);
}

static void unix_sockets(void)
{
    struct { /* sockaddr_un of <afunix.h> */
        USHORT family;
        char path[108];
    } at = {.family = AF_UNIX};
    GUID id = WSAID_CONNECTEX;
    LPFN_CONNECTEX connect_ex = NULL;
    OVERLAPPED overlapped = {0};
    DWORD bytes;
    char folder[64];
    const SOCKET listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (listener == INVALID_SOCKET) {
        printf("Unix sockets: error %d\n", WSAGetLastError());
        return;
    }
    if (GetTempPathA(sizeof folder, folder) == 0 || GetTempPathA(sizeof folder, folder) > sizeof folder) {
        printf("Unix sockets: the path of the temporary folder is too long\n");
        closesocket(listener);
        return;
    }
    snprintf(at.path, sizeof at.path, "%sluaserve-probe-%lu", folder, (unsigned long)GetCurrentProcessId());
    if (bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 8) != 0) {
        printf("Unix sockets: bind or listen, error %d\n", WSAGetLastError());
    }
    for (int bound = 0; bound <= 1; bound++) {
        const USHORT empty = AF_UNIX;
        const SOCKET client = socket(AF_UNIX, SOCK_STREAM, 0);
        WSAIoctl(client, SIO_GET_EXTENSION_FUNCTION_POINTER, &id, sizeof id, &connect_ex, sizeof connect_ex, &bytes,
                 NULL, NULL);
        int error = bound && bind(client, (const struct sockaddr *)(const void *)&empty, sizeof empty) != 0
                        ? WSAGetLastError()
                        : 0;
        if (error != 0) {
            printf("bind of a Unix socket to the empty address: error %d\n", error);
        } else if (connect_ex == NULL) {
            printf("ConnectEx of a Unix socket: the provider has no such function\n");
        } else {
            CreateIoCompletionPort((HANDLE)client, port, 3, 0);
            const BOOL done = connect_ex(client, (struct sockaddr *)&at, sizeof at, NULL, 0, &bytes, &overlapped);
            error = done ? 0 : WSAGetLastError();
            printf("ConnectEx of a Unix socket%s: error %d%s\n", bound ? " bound to the empty address" : "", error,
                   error == WSA_IO_PENDING ? " (pending)" : "");
        }
        CancelIoEx((HANDLE)client, NULL);
        closesocket(client);
        OVERLAPPED_ENTRY entry;
        while (take(50, &entry)) continue;
    }
    closesocket(listener);
    DeleteFileA(at.path);
}

int main(void)
{
    WSADATA started;
    setvbuf(stdout, NULL, _IONBF, 0); /* the lines before a crash or a hang are seen */
    if (WSAStartup(MAKEWORD(2, 2), &started) != 0) return 1;
    FARPROC found = GetProcAddress(GetModuleHandleW(L"ws2_32"), "ProcessSocketNotifications");
    memcpy(&notify, &found, sizeof notify);
    port = new_port();
    if (port == NULL) return 1;
    cancelled_accept();
    two_polls();
    notifications();
    backlog("SOMAXCONN", SOMAXCONN);
    backlog("SOMAXCONN_HINT(500)", -500);
    unix_sockets();
    printf("end\n");
    CloseHandle(port);
    WSACleanup();
    return 0;
}
