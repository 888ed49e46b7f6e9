/* test_sock_win32.c - the requests of sockets against calls that behave as the documents of Windows say: an accept
 * that was pending completes when its packet is taken (lazy_win32.h), calls fail for want of memory or because too
 * many requests are outstanding, a provider is not of the file system, a Unix socket is connected. */
#define _GNU_SOURCE
#include "port_fixture.h"

#include <afunix.h>

#include "base/io/log.h"
#include "lazy_win32.h"
#include "net/sock/rawsock.h"
#include "net/sock/sock.h"
#include "net/udp/udp.h"
#include "port/datagram.h"

static struct {
    int accept_errors[4], accept_at; /* of the next calls of AcceptEx; 0: pending */
    bool accepts;                    /* AcceptEx is replaced */
    unsigned slept, updated;
    SOCKET listener;                                   /* of the last SO_UPDATE_ACCEPT_CONTEXT */
    int send_error, receive_error, receive_from_error; /* of the next call */
    bool receive_pends, plain;                         /* no provider is of the file system */
    ADDRESS_FAMILY bound;
    int bound_len, connects;
    int backlog; /* of the last listen() */
    int64_t due; /* of the last SetThreadpoolTimer */
    PTP_TIMER alarm;
    bool unix_connects, unix_ex; /* the functions for Unix sockets are replaced; ConnectEx knows them */
    bool unix_listens;           /* a socket of TCP stands for a Unix socket that listens */
    bool blocks;                 /* the last ioctlsocket(FIONBIO) made the socket blocking */
    u_long unread;               /* what FIONREAD returns; 0: ask the system */
    int bind_error;              /* of each bind */
    char logged[512];            /* the last line */
    int binds, probe_error;      /* of the connect that asks whether a process listens on the path */
} sys;

void __wrap_ls_clock_sleep_ms(uint32_t ms)
{
    sys.slept++;
}

extern int(WSAAPI *__real___imp_WSAIoctl)(SOCKET, DWORD, LPVOID, DWORD, LPVOID, DWORD, LPDWORD, LPWSAOVERLAPPED,
                                          LPWSAOVERLAPPED_COMPLETION_ROUTINE);
extern int(WSAAPI *__real___imp_setsockopt)(SOCKET, int, int, const char *, int);
extern int(WSAAPI *__real___imp_getsockopt)(SOCKET, int, int, char *, int *);
extern int(WSAAPI *__real___imp_WSASend)(SOCKET, LPWSABUF, DWORD, LPDWORD, DWORD, LPWSAOVERLAPPED,
                                         LPWSAOVERLAPPED_COMPLETION_ROUTINE);
extern int(WSAAPI *__real___imp_WSARecv)(SOCKET, LPWSABUF, DWORD, LPDWORD, LPDWORD, LPWSAOVERLAPPED,
                                         LPWSAOVERLAPPED_COMPLETION_ROUTINE);
extern int(WSAAPI *__real___imp_bind)(SOCKET, const struct sockaddr *, int);
extern int(WSAAPI *__real___imp_connect)(SOCKET, const struct sockaddr *, int);

static BOOL WINAPI fake_accept(SOCKET listener, SOCKET into, PVOID room, DWORD bytes, DWORD local, DWORD remote,
                               DWORD *got, OVERLAPPED *overlapped)
{
    (void)room, (void)bytes, (void)local, (void)remote, (void)got;
    const int error = sys.accept_at < 4 ? sys.accept_errors[sys.accept_at++] : 0;
    assert_true(into != INVALID_SOCKET);
    if (error == 0) lazy_pend((HANDLE)listener, overlapped);
    WSASetLastError(error != 0 ? error : WSA_IO_PENDING);
    return FALSE;
}

static void WSAAPI fake_addresses(PVOID room, DWORD bytes, DWORD local_size, DWORD remote_size,
                                  struct sockaddr **local, int *local_len, struct sockaddr **remote, int *remote_len)
{
    (void)bytes, (void)local_size, (void)remote_size;
    *local = *remote = room;
    *local_len = *remote_len = 0;
}

/* As the system's: the socket must be bound. */
static BOOL WINAPI fake_connect_ex(SOCKET fd, const struct sockaddr *to, int len, PVOID bytes, DWORD count,
                                   DWORD *sent, OVERLAPPED *overlapped)
{
    (void)len, (void)bytes, (void)count, (void)sent;
    assert_int_equal(to->sa_family, AF_UNIX);
    if (!sys.unix_ex || sys.bound != AF_UNIX) {
        WSASetLastError(WSAEINVAL);
        return FALSE;
    }
    lazy_end(lazy_pend((HANDLE)fd, overlapped), 0, 0);
    WSASetLastError(WSA_IO_PENDING);
    return FALSE;
}

static int WSAAPI fake_ioctl(SOCKET fd, DWORD code, LPVOID in, DWORD in_size, LPVOID out, DWORD out_size, LPDWORD got,
                             LPWSAOVERLAPPED overlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE done)
{
    static const GUID accept = WSAID_ACCEPTEX, addresses = WSAID_GETACCEPTEXSOCKADDRS, connect = WSAID_CONNECTEX;
    const LPFN_ACCEPTEX accept_fn = fake_accept;
    const LPFN_GETACCEPTEXSOCKADDRS addresses_fn = fake_addresses;
    const LPFN_CONNECTEX connect_fn = fake_connect_ex;
    const bool asks = code == SIO_GET_EXTENSION_FUNCTION_POINTER;
    const void *found = NULL;
    if (asks && sys.accepts && memcmp(in, &accept, sizeof accept) == 0) found = &accept_fn;
    if (asks && sys.accepts && memcmp(in, &addresses, sizeof addresses) == 0) found = &addresses_fn;
    if (asks && sys.unix_connects && memcmp(in, &connect, sizeof connect) == 0) found = &connect_fn;
    if (found == NULL) return __real___imp_WSAIoctl(fd, code, in, in_size, out, out_size, got, overlapped, done);
    memcpy(out, found, sizeof(void *));
    return 0;
}

static int WSAAPI fake_setsockopt(SOCKET fd, int level, int name, const char *value, int len)
{
    if (sys.unix_connects && name == SO_UPDATE_CONNECT_CONTEXT) return 0;
    if (!sys.accepts || name != SO_UPDATE_ACCEPT_CONTEXT) return __real___imp_setsockopt(fd, level, name, value, len);
    int type, type_len = sizeof type;
    memcpy(&sys.listener, value, sizeof sys.listener);
    if (__real___imp_getsockopt(sys.listener, SOL_SOCKET, SO_TYPE, (char *)&type, &type_len) != 0) return SOCKET_ERROR;
    sys.updated++;
    return 0;
}

static int WSAAPI fake_getsockopt(SOCKET fd, int level, int name, char *value, int *len)
{
    const int result = __real___imp_getsockopt(fd, level, name, value, len);
    if (result == 0 && name == SO_PROTOCOL_INFOW && sys.plain)
        ((WSAPROTOCOL_INFOW *)(void *)value)->dwServiceFlags1 &= ~(DWORD)XP1_IFS_HANDLES;
    return result;
}

static int next_error(int *error)
{
    const int now = *error;
    *error = 0;
    if (now != 0) WSASetLastError(now);
    return now;
}

static int WSAAPI fake_send(SOCKET fd, LPWSABUF buffers, DWORD count, LPDWORD sent, DWORD flags,
                            LPWSAOVERLAPPED overlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE done)
{
    if (next_error(&sys.send_error)) return SOCKET_ERROR;
    return __real___imp_WSASend(fd, buffers, count, sent, flags, overlapped, done);
}

static int WSAAPI fake_receive(SOCKET fd, LPWSABUF buffers, DWORD count, LPDWORD got, LPDWORD flags,
                               LPWSAOVERLAPPED overlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE done)
{
    if (next_error(&sys.receive_error)) return SOCKET_ERROR;
    if (sys.receive_pends) {
        (void)lazy_pend((HANDLE)1, overlapped); /* CancelIoEx does not find it: the test ends it */
        WSASetLastError(WSA_IO_PENDING);
        return SOCKET_ERROR;
    }
    if (sys.receive_from_error != 0 && (*flags & MSG_PEEK)) {
        /* STATUS_BUFFER_OVERFLOW, a warning: the call failed, and the operation completes in the port. */
        lazy_end(lazy_pend((HANDLE)fd, overlapped), (int)0x80000005, 0);
        (void)next_error(&sys.receive_from_error);
        return SOCKET_ERROR;
    }
    return __real___imp_WSARecv(fd, buffers, count, got, flags, overlapped, done);
}

extern int(WSAAPI *__real___imp_ioctlsocket)(SOCKET, long, u_long *);
extern SOCKET(WSAAPI *__real___imp_WSASocketW)(int, int, int, LPWSAPROTOCOL_INFOW, GROUP, DWORD);

static SOCKET WSAAPI fake_socket(int family, int type, int protocol, LPWSAPROTOCOL_INFOW info, GROUP group,
                                 DWORD flags)
{
    if (sys.unix_listens && family == AF_UNIX) family = AF_INET;
    return __real___imp_WSASocketW(family, type, protocol, info, group, flags);
}

static int WSAAPI fake_ioctlsocket(SOCKET fd, long command, u_long *value)
{
    if (command == (long)FIONBIO) sys.blocks = *value == 0;
    if (command == FIONREAD && sys.unread > 0) return *value = sys.unread, 0;
    return __real___imp_ioctlsocket(fd, command, value);
}

SOCKET(WSAAPI *__wrap___imp_WSASocketW)(int, int, int, LPWSAPROTOCOL_INFOW, GROUP, DWORD) = fake_socket;
int(WSAAPI *__wrap___imp_ioctlsocket)(SOCKET, long, u_long *) = fake_ioctlsocket;

/* The path exists: as the system's, until the file is deleted. */
static int bind_path(SOCKET fd, const char *path)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    sys.binds++;
    if (GetFileAttributesA(path) == INVALID_FILE_ATTRIBUTES)
        return __real___imp_bind(fd, (struct sockaddr *)&at, sizeof at);
    WSASetLastError(WSAEADDRINUSE);
    return SOCKET_ERROR;
}

static int WSAAPI fake_bind(SOCKET fd, const struct sockaddr *at, int len)
{
    if (sys.bind_error != 0) return WSASetLastError(sys.bind_error), SOCKET_ERROR;
    if (sys.unix_listens) return bind_path(fd, ((const struct sockaddr_un *)(const void *)at)->sun_path);
    if (!sys.unix_connects) return __real___imp_bind(fd, at, len);
    sys.bound = at->sa_family;
    sys.bound_len = len;
    return 0;
}

static int WSAAPI fake_connect(SOCKET fd, const struct sockaddr *to, int len)
{
    if (sys.unix_listens) {
        WSASetLastError(sys.blocks ? sys.probe_error : WSAEWOULDBLOCK);
        return sys.blocks && sys.probe_error == 0 ? 0 : SOCKET_ERROR;
    }
    if (!sys.unix_connects) return __real___imp_connect(fd, to, len);
    assert_int_equal(to->sa_family, AF_UNIX);
    return ++sys.connects == 1 ? 0 : (WSASetLastError(WSAECONNREFUSED), SOCKET_ERROR);
}

int(WSAAPI *__wrap___imp_WSAIoctl)(SOCKET, DWORD, LPVOID, DWORD, LPVOID, DWORD, LPDWORD, LPWSAOVERLAPPED,
                                   LPWSAOVERLAPPED_COMPLETION_ROUTINE) = fake_ioctl;
int(WSAAPI *__wrap___imp_setsockopt)(SOCKET, int, int, const char *, int) = fake_setsockopt;
int(WSAAPI *__wrap___imp_getsockopt)(SOCKET, int, int, char *, int *) = fake_getsockopt;
int(WSAAPI *__wrap___imp_WSASend)(SOCKET, LPWSABUF, DWORD, LPDWORD, DWORD, LPWSAOVERLAPPED,
                                  LPWSAOVERLAPPED_COMPLETION_ROUTINE) = fake_send;
int(WSAAPI *__wrap___imp_WSARecv)(SOCKET, LPWSABUF, DWORD, LPDWORD, LPDWORD, LPWSAOVERLAPPED,
                                  LPWSAOVERLAPPED_COMPLETION_ROUTINE) = fake_receive;
int(WSAAPI *__wrap___imp_bind)(SOCKET, const struct sockaddr *, int) = fake_bind;
int(WSAAPI *__wrap___imp_connect)(SOCKET, const struct sockaddr *, int) = fake_connect;

extern int(WSAAPI *__real___imp_listen)(SOCKET, int);
extern void(WINAPI *__real___imp_SetThreadpoolTimer)(PTP_TIMER, PFILETIME, DWORD, DWORD);

static int WSAAPI fake_listen(SOCKET fd, int backlog)
{
    sys.backlog = backlog;
    return __real___imp_listen(fd, backlog);
}

static void WINAPI fake_timer(PTP_TIMER timer, PFILETIME due, DWORD period, DWORD window)
{
    if (due != NULL) {
        memcpy(&sys.due, due, sizeof sys.due);
        sys.alarm = timer;
    }
    __real___imp_SetThreadpoolTimer(timer, due, period, window);
}

int(WSAAPI *__wrap___imp_listen)(SOCKET, int) = fake_listen;
void(WINAPI *__wrap___imp_SetThreadpoolTimer)(PTP_TIMER, PFILETIME, DWORD, DWORD) = fake_timer;

static void reset(void)
{
    memset(&sys, 0, sizeof sys);
    lazy_reset();
}

typedef net_place lazy_place;

static void lazy_place_open(lazy_place *place)
{
    reset();
    net_place_open(place);
}

static void lazy_place_close(lazy_place *place)
{
    net_place_close(place);
}

/* ---- accepts
 * --------------------------------------------------------------------------------------------------------- */

static lazy_op *of_accept(const ls_op *op)
{
    for (lazy_op *at = NULL; (at = lazy_next(at)) != NULL;)
        if (!at->ended && ((const win_request *)(const void *)at->overlapped)->op == op) return at;
    fail();
    return NULL;
}

/* Closed with pending accepts, and with accepts that have completed but whose packets nobody took. */
TEST(closing_a_listener_does_not_wait)
{
    enum { ACCEPTS = 64, CONNECTED = 3 };
    static ls_op ops[ACCEPTS];
    net_place place;
    ls_sockaddr at;
    int cancelled = 0, connected = 0, type, len = sizeof type;
    reset();
    sys.accepts = true;
    net_place_open(&place);
    const int fd = net_listen(&at);
    ls_sock *listener = net_attach(&place, fd, false);
    for (int i = 0; i < ACCEPTS; i++) {
        ops[i] = op_new();
        assert_int_equal(ls_op_accept(&place.ctx, listener, &ops[i], NULL), LS_PENDING);
    }
    for (int i = 0; i < CONNECTED; i++) lazy_end(of_accept(&ops[7 * i]), 0, 0);
    const uint64_t from_ns = ls_clock_ns();
    ls_sock_close(&place.ctx, listener);
    assert_int_equal(sys.slept, 0);
    while (cancelled + connected < ACCEPTS) {
        const ls_packet packet = net_next(&place);
        const ptrdiff_t i = packet.op - ops;
        assert_in_range(i, 0, ACCEPTS - 1);
        if (i % 7 == 0 && i / 7 < CONNECTED) {
            assert_int_equal(packet.result, 0); /* the connection is not lost */
            assert_int_equal(sys.listener, fd); /* which was open then */
            close(packet.op->accept.fd);
            connected++;
        } else {
            assert_int_equal(packet.result, LS_ECANCELED);
            cancelled++;
        }
    }
    print_message("  close and 64 packets: %.1f ms\n", (double)(ls_clock_ns() - from_ns) / 1e6);
    assert_int_equal(connected, CONNECTED);
    assert_int_equal(sys.updated, CONNECTED);
    assert_int_not_equal(__real___imp_getsockopt((SOCKET)fd, SOL_SOCKET, SO_TYPE, (char *)&type, &len),
                         0); /* closed */
    net_quiet(&place, 0);
    net_place_close(&place);
}

/* The same with the accepts of this system: one accepts, the others are closed. */
TEST_IN(lazy_place, place, accept_close_and_stop_take_no_time)
{
    enum { ACCEPTS = 64 };
    static ls_op ops[ACCEPTS];
    ls_sockaddr at;
    ls_sock *listener = net_attach(place, net_listen(&at), false);
    for (int i = 0; i < ACCEPTS; i++) {
        ops[i] = op_new();
        assert_int_equal(ls_op_accept(&place->ctx, listener, &ops[i], NULL), LS_PENDING);
    }
    const uint64_t from_ns = ls_clock_ns();
    const int peer = net_dial(&at);
    const ls_packet first = net_next(place);
    assert_int_equal(first.result, 0);
    close(first.op->accept.fd);
    ls_sock_close(&place->ctx, listener);
    for (int i = 1; i < ACCEPTS; i++) assert_int_equal(net_next(place).result, LS_ECANCELED);
    print_message("  accept, close and 63 packets: %.1f ms\n", (double)(ls_clock_ns() - from_ns) / 1e6);
    assert_int_equal(sys.slept, 0);
    close(peer);
    /* The address is free when the last packet was taken. */
    struct sockaddr_in again;
    memcpy(&again, at.bytes, sizeof again);
    const int fd = net_tcp();
    assert_int_equal(bind(fd, (struct sockaddr *)&again, sizeof again), 0);
    close(fd);
}

/* A shortage of memory passes, and so must the accept's wait. */
TEST(an_accept_survives_a_shortage)
{
    static const int errors[] = {WSAENOBUFS, WSAEMFILE, ERROR_NO_SYSTEM_RESOURCES, WSAEWOULDBLOCK};
    net_place place;
    ls_sockaddr at;
    reset();
    sys.accepts = true;
    net_place_open(&place);
    ls_sock *listener = net_attach(&place, net_listen(&at), false);
    memcpy(sys.accept_errors, errors, sizeof errors);
    ls_op op = op_new();
    assert_int_equal(ls_op_accept(&place.ctx, listener, &op, NULL), LS_PENDING);
    const uint64_t end_ns = ls_clock_ns() + 10000 * UINT64_C(1000000);
    while (lazy_next(NULL) == NULL && ls_clock_ns() < end_ns) net_quiet(&place, 20); /* the timer tries again */
    assert_int_equal(sys.accept_at, 4);
    lazy_end(of_accept(&op), 0, 0);
    expect_packet(&place, &op, 0);
    close(op.accept.fd);
    ls_sock_close(&place.ctx, listener);
    net_place_close(&place);
}

/* ---- errors of overlapped calls
 * ---------------------------------------------------------------------------------------- */

/* "Too many requests are outstanding" is an error of the call: it was not posted, and nothing was sent. */
TEST(too_many_outstanding_requests_are_an_error)
{
    static const int errors[] = {WSAEWOULDBLOCK, WSAEINPROGRESS, WSAEALREADY};
    static char bytes[200000];
    net_place place;
    int theirs;
    char room[8];
    reset();
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        ls_sock *sock = net_tcp_conn_open(&place, &theirs);
        ls_op op = op_new();
        ls_slice slices[2] = {ls_slice_static(bytes, sizeof bytes), ls_slice_static("x", 1)};
        sys.send_error = errors[i];
        assert_int_equal(ls_op_send(&place.ctx, sock, &op, slices, 2, NULL), LS_ENOMEM);
        op = op_new();
        sys.receive_error = errors[i];
        assert_int_equal(ls_op_recv(&place.ctx, sock, &op, room, sizeof room), LS_ENOMEM);
        op = op_new(); /* the next one is posted */
        assert_int_equal(ls_op_recv(&place.ctx, sock, &op, room, sizeof room), LS_PENDING);
        net_write(theirs, "ab", 2);
        expect_packet(&place, &op, 2);
        net_conn_close(&place, sock, theirs);
    }
}

/* Where a call that succeeds causes a packet, so does the peek that fails with WSAEMSGSIZE. */
TEST(a_peek_at_a_datagram_of_another_provider)
{
    net_place place;
    reset();
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    ls_op op = op_new();
    for (int plain = 0; plain <= 1; plain++) {
        sys.plain = plain;
        net_place_open(&place);
        const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), from = socket(AF_INET, SOCK_DGRAM, 0);
        at.sin_port = 0;
        assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
        ls_sock *sock = net_attach(&place, fd, false);
        assert_int_equal(sendto(from, "datagram", 8, 0, (struct sockaddr *)&at, len), 8);
        if (plain) sys.receive_from_error = WSAEMSGSIZE;
        int how = ls_op_recv_from(&place.ctx, sock, &op, 4, 512);
        if (plain) assert_int_equal(how, LS_PENDING);
        if (how == LS_PENDING) expect_packet(&place, &op, 1);
        assert_int_equal(atomic_load(&op.result), 1);
        ls_datagrams_drop(op.recv_from.batch);
        op = op_new();
        how = ls_op_recv_from(&place.ctx, sock, &op, 4, 512);
        assert_int_equal(how, LS_PENDING);
        ls_sock_close(&place.ctx, sock);
        expect_packet(&place, &op, LS_ECANCELED);
        close(from);
        net_place_close(&place);
    }
}

/* This side has aborted the connection (STATUS_LOCAL_DISCONNECT): nobody cancelled the operation. */
TEST_IN(lazy_place, place, an_aborted_connection_is_no_cancellation)
{
    int ours, theirs;
    char room[8];
    net_tcp_pair(&ours, &theirs);
    ls_sock *sock = net_attach(place, ours, false);
    sys.receive_pends = true;
    for (int closed = 0; closed <= 1; closed++) {
        ls_op op = op_new();
        assert_int_equal(ls_op_recv(&place->ctx, sock, &op, room, sizeof room), LS_PENDING);
        if (closed) ls_sock_close(&place->ctx, sock);
        lazy_end(lazy_next(NULL), (int)0xC000013B, 0);
        expect_packet(place, &op, closed ? LS_ECANCELED : LS_ERESET);
    }
    close(theirs);
}

/* ---- Unix sockets
 * -------------------------------------------------------------------------------------------------------- */

/* Wine has no Unix sockets: a socket of TCP stands for one. */
TEST(a_unix_socket_is_bound_or_connected_plainly)
{
    net_place place;
    struct sockaddr_un path = {.sun_family = AF_UNIX, .sun_path = "C:\\site.sock"};
    ls_sockaddr to = {.len = sizeof path};
    reset();
    memcpy(to.bytes, &path, sizeof path);
    sys.unix_connects = true;
    for (int how = 0; how < 3; how++) {
        sys.unix_ex = how == 0;
        sys.bound = 0;
        net_place_open(&place);
        ls_sock *sock = net_attach(&place, net_tcp(), false);
        ls_op op = op_new();
        const int outcome = ls_op_connect(&place.ctx, sock, &op, &to);
        assert_int_equal(sys.bound, AF_UNIX);
        assert_int_equal(sys.bound_len, sizeof path);
        if (how == 0) {
            assert_int_equal(outcome, LS_PENDING);
            expect_packet(&place, &op, 0);
            assert_int_equal(sys.connects, 0);
        } else {
            assert_int_equal(outcome, how == 1 ? LS_DONE : LS_EREFUSED);
            assert_int_equal(sys.connects, how);
        }
        net_conn_close(&place, sock, -1);
    }
}

/* Windows has no abstract names. */
TEST(an_abstract_name_is_refused)
{
    net_place place;
    struct sockaddr_un path = {.sun_family = AF_UNIX, .sun_path = "\0name"};
    ls_sockaddr to = {.len = sizeof path};
    ls_addr at = {.family = LS_ADDR_UNIX, .bytes_len = 5}, bound;
    ls_fd fd;
    reset();
    memcpy(to.bytes, &path, sizeof path);
    memcpy(at.bytes, path.sun_path, 5);
    sys.unix_connects = sys.unix_ex = true;
    net_place_open(&place);
    ls_sock *sock = net_attach(&place, net_tcp(), false);
    ls_op op = op_new();
    assert_int_equal(ls_op_connect(&place.ctx, sock, &op, &to), LS_ENOTSUP);
    assert_int_equal(ls_sock_listen(&at, 1, NULL, &fd, &bound), LS_ENOTSUP);
    net_conn_close(&place, sock, -1);
}

/* The file of a Unix socket is left by a program that was ended by force. It is replaced only when a connect is
 * refused; a connect that does not block could not tell (WSAEWOULDBLOCK). */
TEST(the_path_of_an_ended_program_is_taken_over)
{
    static const struct {
        int probe_error, result, binds;
    } cases[] = {{WSAECONNREFUSED, LS_OK, 2},         /* no process listens */
                 {0, LS_EADDRINUSE, 1},               /* one does */
                 {WSAEACCES, LS_EADDRINUSE, 1},       /* that of another user */
                 {WSAEWOULDBLOCK, LS_EADDRINUSE, 1}}; /* not known */
    char folder[MAX_PATH], path[MAX_PATH];
    ls_fd fd;
    reset();
    assert_in_range(GetTempPathA(sizeof folder, folder), 1, sizeof folder - 1);
    sys.unix_listens = true;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_addr at = {.family = LS_ADDR_UNIX}, bound;
        assert_int_not_equal(GetTempFileNameA(folder, "ls", 0, path), 0); /* makes the file */
        at.bytes_len = (uint8_t)strlen(path);
        assert_in_range(at.bytes_len, 1, sizeof at.bytes - 1);
        memcpy(at.bytes, path, at.bytes_len);
        sys.probe_error = cases[i].probe_error;
        sys.binds = 0;
        const int result = ls_sock_listen(&at, 1, NULL, &fd, &bound);
        assert_int_equal(result, cases[i].result);
        assert_int_equal(sys.binds, cases[i].binds);
        assert_int_equal(GetFileAttributesA(path) == INVALID_FILE_ATTRIBUTES, result == LS_OK);
        if (result == LS_OK) ls_sock_discard(fd);
        (void)DeleteFileA(path);
    }
}

/* ---- what the system would cut or shift
 * ---------------------------------------------------------------------------- */

/* A plain backlog counts as 200 at most. */
TEST(a_backlog_of_more_than_200_is_a_hint)
{
    static const struct {
        uint32_t wanted;
        int passed;
    } table[] = {{1, 1},          {200, 200},      {201, -201},         {1024, -1024},
                 {65535, -65535}, {65536, -65535}, {UINT32_MAX, -65535}};
    ls_addr at, bound;
    ls_fd fd;
    reset();
    assert_int_equal(ls_addr_parse("127.0.0.1", 0, &at), LS_OK);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        assert_int_equal(ls_sock_listen(&at, table[i].wanted, NULL, &fd, &bound), LS_OK);
        assert_int_equal(sys.backlog, table[i].passed);
        ls_sock_discard(fd);
    }
    assert_int_equal(ls_rawsock_open(true, LS_ADDR_IP4, &fd), LS_OK);
    assert_int_equal(ls_rawsock_bind(fd, true, &at), LS_OK);
    assert_int_equal(ls_rawsock_listen(fd, 1024), LS_OK);
    assert_int_equal(sys.backlog, -1024);
    ls_sock_discard(fd);
}

/* Of a datagram socket the system counts the bytes of all datagrams; Wine those of the first. */
TEST(a_datagram_is_truncated_when_it_is_longer_than_the_room)
{
    enum { LEN = 1000 };
    ls_fd to, from;
    ls_addr at, bound;
    char bytes[LEN + 1] = "";
    bool truncated;
    int n;
    reset();
    assert_int_equal(ls_addr_parse("127.0.0.1", 0, &at), LS_OK);
    assert_int_equal(ls_rawsock_open(false, LS_ADDR_IP4, &to), LS_OK);
    assert_int_equal(ls_rawsock_bind(to, false, &at), LS_OK);
    assert_int_equal(ls_sock_local(to, &bound), LS_OK);
    assert_int_equal(ls_rawsock_open(false, LS_ADDR_IP4, &from), LS_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(ls_rawsock_send(from, bytes, LEN, &bound), LEN);
    sys.unread = 3 * LEN;
    static const int rooms[] = {LEN + 1, LEN, LEN - 1};
    for (int i = 0; i < 3; i++) {
        while ((n = ls_rawsock_receive(to, bytes, (size_t)rooms[i], NULL, &truncated)) == LS_EAGAIN) Sleep(1);
        assert_int_equal(n, rooms[i] < LEN ? rooms[i] : LEN);
        assert_int_equal(truncated, rooms[i] < LEN);
    }
    ls_sock_discard(from);
    ls_sock_discard(to);
}

static void keep_line(int level, const char *line, size_t len, void *user)
{
    assert_int_equal(level, LS_LOG_WARN);
    (void)snprintf(sys.logged, sizeof sys.logged, "%.*s", (int)len, line);
}

/* A range that Hyper-V has reserved: nobody is listed as the owner of the port. */
TEST(a_reserved_port_is_named)
{
    ls_addr at, bound;
    ls_udp_setup udp;
    ls_fd fd;
    reset();
    assert_int_equal(ls_addr_parse("127.0.0.1", 50123, &at), LS_OK);
    ls_udp_setup_defaults(&udp);
    ls_log_set_level(LS_LOG_WARN);
    ls_log_set_sink(keep_line, NULL);
    for (int i = 0; i < 3; i++) {
        sys.bind_error = WSAEACCES;
        sys.logged[0] = '\0';
        if (i == 0) assert_int_equal(ls_sock_listen(&at, 1, NULL, &fd, &bound), LS_EADDRINUSE);
        if (i == 1) assert_int_equal(ls_udp_sock_open(&udp, &at, NULL, &fd, &bound), LS_EADDRINUSE);
        if (i == 2) {
            assert_int_equal(ls_rawsock_open(true, LS_ADDR_IP4, &fd), LS_OK);
            assert_int_equal(ls_rawsock_bind(fd, true, &at), LS_EADDRINUSE);
            ls_sock_discard(fd);
        }
        assert_non_null(strstr(sys.logged, "port 50123 "));
        assert_non_null(strstr(sys.logged, i == 1 ? "show excludedportrange udp" : "show excludedportrange tcp"));
    }
    sys.bind_error = WSAEADDRINUSE; /* an ordinary owner */
    sys.logged[0] = '\0';
    assert_int_equal(ls_sock_listen(&at, 1, NULL, &fd, &bound), LS_EADDRINUSE);
    assert_string_equal(sys.logged, "");
    ls_log_set_level(LS_LOG_OFF);
    ls_log_set_sink(NULL, NULL);
}

/* A relative due time does not count the time that the machine sleeps, so that of a far timer is cut. */
TEST(a_far_timer_is_looked_at_every_minute)
{
    reset();
    const uint64_t second_ns = UINT64_C(1000000000);
    net_place place;
    ls_timer far = {.op = {.done = op_done_unexpectedly}};
    net_place_open(&place);
    assert_int_equal(ls_timer_set(place.port, &far, ls_clock_ns() + 86400 * second_ns), LS_OK);
    assert_in_range(-sys.due, 59 * 10000000, 60 * 10000000 + 1);
    /* The alarm goes off before the timer is due: it is set again. */
    int64_t now = -1;
    FILETIME at;
    sys.due = 0;
    memcpy(&at, &now, sizeof at);
    __real___imp_SetThreadpoolTimer(sys.alarm, &at, 0, 0);
    const uint64_t end_ns = ls_clock_ns() + 10 * second_ns;
    while (sys.due == 0 && ls_clock_ns() < end_ns) net_quiet(&place, 10);
    assert_in_range(-sys.due, 59 * 10000000, 60 * 10000000 + 1);
    assert_true(ls_timer_cancel(place.port, &far));
    net_place_close(&place);
}

int main(void)
{
    ls_log_set_level(LS_LOG_OFF); /* the shortage is logged */
    return test_run(NULL, NULL);
}
