/* test_afd_win32.c - notifications by AFD polls, against a fake of the device that behaves as the real one:
 *
 *     - Two polls of one socket disturb each other. When the condition of either becomes true, the first completes
 *       with the events of the second, and the second does not complete until it is cancelled.
 *     - A poll that was pending writes its output when its packet is taken (lazy_win32.h).
 *     - A cancellation walks all polls that are pending at the same handle of the device.
 *
 * Conditions are set by the tests. The sockets are real, but for those of fake_socket. */
#include "port_fixture.h"

#include <winternl.h>

#include "lazy_win32.h"
#include "port/notify.h"
#include "port/win32/iocp_notify.h"

enum { IOCTL_POLL = 0x00012024, CONDITIONS = 64, FAKE_FIRST = 1 << 18 };

static struct {
    struct {
        HANDLE socket;
        ULONG now;
    } conditions[CONDITIONS];
    int count;
    unsigned most; /* polls of one socket at a time */
} afd;

static ULONG *condition(HANDLE socket)
{
    int i = 0;
    while (i < afd.count && afd.conditions[i].socket != socket) i++;
    assert_in_range(i, 0, CONDITIONS - 1);
    if (i == afd.count) afd.conditions[afd.count++].socket = socket;
    return &afd.conditions[i].now;
}

static ULONG condition_of(HANDLE socket)
{
    for (int i = 0; i < afd.count; i++)
        if (afd.conditions[i].socket == socket) return afd.conditions[i].now;
    return 0;
}

static void write_output(lazy_op *op)
{
    poll_info *output = op->output;
    output->events = op->found;
    output->count = op->found != 0;
}

NTSTATUS NTAPI __wrap_NtDeviceIoControlFile(HANDLE device, HANDLE event, PIO_APC_ROUTINE apc, PVOID context,
                                            PIO_STATUS_BLOCK status, ULONG code, PVOID in, ULONG in_size, PVOID out,
                                            ULONG out_size)
{
    poll_info asked;
    assert_int_equal(code, IOCTL_POLL);
    assert_int_equal(in_size, sizeof asked);
    assert_int_equal(out_size, sizeof asked);
    assert_null(event);
    assert_null(apc);
    assert_ptr_equal(context, status);
    memcpy(&asked, in, sizeof asked);
    const int length = sizeof(int);
    int type;
    if ((uintptr_t)asked.handle < FAKE_FIRST &&
        getsockopt((SOCKET)asked.handle, SOL_SOCKET, SO_TYPE, (char *)&type, (int *)&(int){length}) != 0)
        return (NTSTATUS)STATUS_INVALID_HANDLE;
    unsigned others = 1;
    for (lazy_op *op = NULL; (uintptr_t)asked.handle < FAKE_FIRST && (op = lazy_next(op)) != NULL;)
        if (op->subject == asked.handle && !op->ended) others++;
    if (others > afd.most) afd.most = others;
    lazy_op *op = lazy_pend(device, (OVERLAPPED *)(void *)status);
    op->written = write_output;
    op->subject = asked.handle;
    op->asked = asked.events;
    op->output = out;
    op->found = condition_of(asked.handle) & asked.events;
    if (op->found != 0 || asked.timeout.QuadPart == 0) lazy_end(op, 0, sizeof asked);
    return STATUS_PENDING;
}

/* The condition of the socket is `now`. */
static void becomes(int fd, ULONG now)
{
    const HANDLE socket = (HANDLE)(intptr_t)fd;
    lazy_op *first = NULL;
    ULONG found = 0;
    *condition(socket) = now;
    for (lazy_op *op = NULL; (op = lazy_next(op)) != NULL;) {
        if (op->subject != socket || op->ended) continue;
        if (first == NULL) first = op;
        found |= op->asked & now;
    }
    if (found == 0) return;
    first->found = found;
    lazy_end(first, 0, sizeof(poll_info));
}

static void closed(int fd)
{
    becomes(fd, POLL_LOCAL_CLOSE);
    *condition((HANDLE)(intptr_t)fd) = 0;
}

/* Sockets that only have numbers, so that there can be many. */
extern int(WSAAPI *__real___imp_getsockopt)(SOCKET, int, int, char *, int *);
extern int(WSAAPI *__real___imp_WSAIoctl)(SOCKET, DWORD, LPVOID, DWORD, LPVOID, DWORD, LPDWORD, LPWSAOVERLAPPED,
                                          LPWSAOVERLAPPED_COMPLETION_ROUTINE);

static bool is_fake(SOCKET fd)
{
    return fd >= FAKE_FIRST && fd < LS_NOTIFY_FD_MAX;
}

static int WSAAPI fake_getsockopt(SOCKET fd, int level, int name, char *value, int *len)
{
    const int type = SOCK_DGRAM;
    if (!is_fake(fd)) return __real___imp_getsockopt(fd, level, name, value, len);
    assert_int_equal(name, SO_TYPE);
    memcpy(value, &type, sizeof type);
    return 0;
}

static int refuses; /* providers that refuse SIO_BASE_HANDLE lie above the one that is asked for first */
static DWORD below_by;

static int WSAAPI fake_ioctl(SOCKET fd, DWORD code, LPVOID in, DWORD in_size, LPVOID out, DWORD out_size, LPDWORD got,
                             LPWSAOVERLAPPED overlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE done)
{
    if (refuses > 0 && code == SIO_BASE_HANDLE) {
        WSASetLastError(WSAEOPNOTSUPP);
        return SOCKET_ERROR;
    }
    if (refuses > 0 && code == below_by) {
        refuses--;
        const SOCKET below = fd + HANDLE_STEP;
        memcpy(out, &below, sizeof below);
        return 0;
    }
    if (!is_fake(fd)) return __real___imp_WSAIoctl(fd, code, in, in_size, out, out_size, got, overlapped, done);
    if (code == SIO_BASE_HANDLE) {
        memcpy(out, &fd, sizeof fd);
        return 0;
    }
    WSASetLastError(WSAEOPNOTSUPP);
    return SOCKET_ERROR;
}

int(WSAAPI *__wrap___imp_getsockopt)(SOCKET, int, int, char *, int *) = fake_getsockopt;
int(WSAAPI *__wrap___imp_WSAIoctl)(SOCKET, DWORD, LPVOID, DWORD, LPVOID, DWORD, LPDWORD, LPWSAOVERLAPPED,
                                   LPWSAOVERLAPPED_COMPLETION_ROUTINE) = fake_ioctl;

/* ---- what the tests share
 * ------------------------------------------------------------------------------------------ */

enum {
    LEVEL_PERSISTENT = LS_TRIGGER_LEVEL | LS_TRIGGER_PERSISTENT,
    LEVEL_ONESHOT = LS_TRIGGER_LEVEL | LS_TRIGGER_ONESHOT,
    EDGE_PERSISTENT = LS_TRIGGER_EDGE | LS_TRIGGER_PERSISTENT,
    EDGE_ONESHOT = LS_TRIGGER_EDGE | LS_TRIGGER_ONESHOT,
};
static const uint8_t triggers[] = {LEVEL_PERSISTENT, LEVEL_ONESHOT, EDGE_PERSISTENT, EDGE_ONESHOT};
enum { TRIGGERS = sizeof triggers / sizeof triggers[0] };

static void reset(void)
{
    memset(&afd, 0, sizeof afd);
    refuses = 0;
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

static int notify(ls_port *port, uint8_t operation, ls_fd fd, void *key, uint16_t events, uint8_t trigger)
{
    ls_registration r = {
        .fd = fd, .key = key, .events = events, .trigger = trigger, .operation = operation, .result = 99};
    assert_int_equal(ls_port_notify(port, NULL, &r, 1, NULL, 0, 0), 0);
    return r.result;
}

static void expect_event(net_place *place, const void *key, uint32_t events)
{
    const ls_packet packet = net_next(place);
    assert_ptr_equal(packet.key, key);
    assert_int_equal(packet.events, events);
}

static int bound(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

/* ---- the tests
 * ----------------------------------------------------------------------------------------------------- */

/* With a second poll per socket, for its close, no event would ever be reported. */
TEST(a_socket_has_one_poll_at_a_time)
{
    net_place place;
    int key;
    reset();
    net_place_open(&place);
    for (int t = 0; t < TRIGGERS; t++) {
        if (triggers[t] == EDGE_PERSISTENT) continue; /* by WSAEventSelect */
        const int fd = bound();
        assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, fd, &key, LS_EVENT_IN, triggers[t]), LS_OK);
        net_quiet(&place, 0);
        for (int i = 0; i < 3; i++) {
            becomes(fd, POLL_RECEIVE);
            expect_event(&place, &key, LS_EVENT_IN);
            becomes(fd, 0);
            net_quiet(&place, 0);
            if (triggers[t] & LS_TRIGGER_ONESHOT) {
                becomes(fd, POLL_RECEIVE);
                net_quiet(&place, 0);
                becomes(fd, 0);
                assert_int_equal(notify(place.port, LS_NOTIFY_ENABLE, fd, NULL, LS_EVENT_IN, triggers[t]), LS_OK);
            }
            /* Another filter, at once and after the packet of the cancelled poll. */
            assert_int_equal(notify(place.port, LS_NOTIFY_ENABLE, fd, NULL, LS_EVENT_OUT, triggers[t]), LS_OK);
            if (i > 0) net_quiet(&place, 0);
            becomes(fd, POLL_SEND | POLL_RECEIVE);
            expect_event(&place, &key, LS_EVENT_OUT);
            becomes(fd, 0);
            assert_int_equal(notify(place.port, LS_NOTIFY_DISABLE, fd, NULL, 0, 0), LS_OK);
            becomes(fd, POLL_RECEIVE);
            net_quiet(&place, 0);
            becomes(fd, 0);
            assert_int_equal(notify(place.port, LS_NOTIFY_ENABLE, fd, NULL, LS_EVENT_IN, triggers[t]), LS_OK);
        }
        assert_int_equal(notify(place.port, LS_NOTIFY_REMOVE, fd, NULL, 0, 0), LS_OK);
        becomes(fd, POLL_RECEIVE);
        expect_event(&place, &key, LS_EVENT_REMOVE);
        net_quiet(&place, 0);
        close(fd);
        closed(fd);
    }
    net_quiet(&place, 0);
    net_place_close(&place);
    assert_int_equal(afd.most, 1);
}

TEST(a_port_is_closed_with_polls_pending_or_cancelled)
{
    enum { COUNT = 8 };
    reset();
    for (int how = 0; how < 3; how++) {
        net_place place;
        int fds[COUNT], key;
        memset(&lazy, 0, sizeof lazy);
        net_place_open(&place);
        for (int i = 0; i < COUNT; i++) {
            fds[i] = bound();
            assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, fds[i], &key, LS_EVENT_IN, triggers[i % TRIGGERS]),
                             LS_OK);
        }
        net_quiet(&place, 0);
        for (int i = 0; i < COUNT; i++) {
            if (how == 1) ls_port_unregister(place.port, fds[i]); /* cancelled, and its packet not taken */
            if (how == 2) closed(fds[i]);
        }
        ls_port_close(place.port);
        ls_pool_close(place.ctx.pool);
        ls_pools_close(place.pools);
        assert_null(lazy_next(NULL)); /* every packet was taken */
        for (int i = 0; i < COUNT; i++) close(fds[i]);
    }
}

/* A socket is closed without a REMOVE, and its number is another's: no packet of the old poll was taken yet. */
TEST(a_number_is_registered_again_before_any_packet)
{
    net_place place;
    int one, two;
    reset();
    net_place_open(&place);
    for (int t = 0; t < TRIGGERS; t++)
        for (int how = 0; how < 3; how++) {
            const int old = bound(), next = bound();
            assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, old, &one, LS_EVENT_IN, triggers[t]), LS_OK);
            if (how == 1) net_quiet(&place, 0);
            if (how == 2) becomes(old, POLL_RECEIVE); /* its packet is in the port */
            assert_int_equal(dup2(next, old), old);
            close(next);
            if (how != 2) closed(old);
            becomes(old, 0);
            assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, old, &two, LS_EVENT_IN, LEVEL_ONESHOT), LS_OK);
            net_quiet(&place, 0);
            becomes(old, POLL_RECEIVE);
            expect_event(&place, &two, LS_EVENT_IN);
            becomes(old, 0);
            assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, old, &one, LS_EVENT_IN, LEVEL_ONESHOT), LS_EEXIST);
            ls_port_unregister(place.port, old);
            close(old);
            closed(old);
            net_quiet(&place, 0);
        }
    net_place_close(&place);
    assert_in_range(afd.most, 1, 2); /* the old socket's and the new one's may have the same number */
}

/* A close is known when the packet of the poll was taken, also of a socket without an address. */
TEST_IN(lazy_place, place, a_close_ends_the_registration)
{
    int key;
    for (int t = 0; t < TRIGGERS; t++)
        for (int disabled = 0; disabled <= 1; disabled++) {
            const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
            assert_int_equal(notify(place->port, LS_NOTIFY_REGISTER, fd, &key, LS_EVENT_IN, triggers[t]), LS_OK);
            if (disabled) assert_int_equal(notify(place->port, LS_NOTIFY_DISABLE, fd, NULL, 0, 0), LS_OK);
            net_quiet(place, 0);
            closed(fd); /* the fake alone: the number stays that of a socket without an address */
            net_quiet(place, 0);
            assert_int_equal(notify(place->port, LS_NOTIFY_REMOVE, fd, NULL, 0, 0), LS_ENOENT);
            assert_int_equal(notify(place->port, LS_NOTIFY_REGISTER, fd, &key, LS_EVENT_IN, triggers[t]), LS_OK);
            ls_port_unregister(place->port, fd);
            net_quiet(place, 0);
            close(fd);
        }
}

static uint64_t steps_of(int count)
{
    net_place place;
    net_place_open(&place);
    memset(&lazy.ops, 0, sizeof lazy.ops);
    lazy.used = lazy.handles_used = 0;
    lazy.cancels = lazy.cancel_steps = 0;
    for (int i = 0; i < count; i++)
        assert_int_equal(
            notify(place.port, LS_NOTIFY_REGISTER, FAKE_FIRST + HANDLE_STEP * i, NULL, LS_EVENT_IN, LEVEL_PERSISTENT),
            LS_OK);
    for (int i = 0; i < count; i++) ls_port_unregister(place.port, FAKE_FIRST + HANDLE_STEP * i);
    const uint64_t steps = lazy.cancel_steps;
    assert_int_equal(lazy.cancels, count);
    ls_port_close(place.port);
    ls_pool_close(place.ctx.pool);
    ls_pools_close(place.pools);
    return steps;
}

TEST(the_cost_of_cancelling_all_is_linear)
{
    reset();
    const uint64_t few = steps_of(1000), many = steps_of(10000);
    print_message("  steps of 1,000 cancellations: %llu, of 10,000: %llu\n", (unsigned long long)few,
                  (unsigned long long)many);
    assert_in_range(many, 10000, 11 * few);
    assert_in_range(many, 10000, 10000 * WATCHERS_PER_DEVICE);
}

/* Layered providers that refuse SIO_BASE_HANDLE. */
TEST_IN(lazy_place, place, the_socket_below_is_found_step_by_step)
{
    static const DWORD codes[] = {SIO_BSP_HANDLE_POLL, SIO_BSP_HANDLE_SELECT};
    int key;
    for (size_t c = 0; c < 2; c++) {
        const int fd = FAKE_FIRST + 4096 + 1024 * (int)c;
        refuses = 3;
        below_by = codes[c];
        assert_int_equal(notify(place->port, LS_NOTIFY_REGISTER, fd, &key, LS_EVENT_IN, LEVEL_ONESHOT), LS_OK);
        becomes(fd + 3 * HANDLE_STEP, POLL_RECEIVE);
        expect_event(place, &key, LS_EVENT_IN);
        becomes(fd + 3 * HANDLE_STEP, 0);
        ls_port_unregister(place->port, fd);
    }
    refuses = 1;
    below_by = 0; /* and nothing else either */
    assert_int_equal(notify(place->port, LS_NOTIFY_REGISTER, FAKE_FIRST, &key, LS_EVENT_IN, LEVEL_ONESHOT),
                     LS_ENOTSUP);
    refuses = 0;
    net_quiet(place, 0);
}

int main(void)
{
    (void)SetEnvironmentVariableA("LUASERVE_AFD", "1");
    return test_run(NULL, NULL);
}
