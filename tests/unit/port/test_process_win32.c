/* test_process_win32.c - notifications by ProcessSocketNotifications, against a fake of it: what the system is asked,
 * what becomes of its answers, and what of the packets that it would post. The sockets are real. */
#include "port_fixture.h"

#include <poll.h>

#include "port/notify.h"
#include "port/win32/iocp_notify.h"

enum { ASKED_MAX = 128 };

static struct {
    HANDLE port;
    unsigned calls, count; /* registrations of the last call */
    ls_process_registration asked[ASKED_MAX];
    DWORD said[ASKED_MAX]; /* of the next call */
    DWORD called;          /* the result of the next call itself */
    unsigned removes;      /* LS_PROCESS_REMOVE, in all calls */
    const void *removed;   /* the key of the last one */
    bool poll_fails;       /* the next ls_poll_change: no memory */
    void *post_key;        /* not NULL: the next call posts a packet of this key */
} fake;

static void post(const void *key, uint32_t events)
{
    assert_true(PostQueuedCompletionStatus(fake.port, events, (ULONG_PTR)key, NULL));
}

static DWORD WSAAPI fake_process(HANDLE port, UINT32 count, ls_process_registration *registrations, UINT32 timeout_ms,
                                 ULONG entries_max, OVERLAPPED_ENTRY *entries, UINT32 *entries_got)
{
    assert_in_range(count, 1, ASKED_MAX);
    assert_int_equal(timeout_ms, 0); /* it is called with a lock held */
    assert_int_equal(entries_max, 0);
    assert_null(entries);
    assert_null(entries_got);
    fake.port = port;
    fake.calls++;
    fake.count = count;
    for (UINT32 i = 0; i < count; i++) {
        fake.asked[i] = registrations[i];
        if (registrations[i].operation == LS_PROCESS_REMOVE) {
            fake.removes++;
            fake.removed = registrations[i].key;
        }
        registrations[i].result = fake.said[i];
    }
    if (fake.post_key != NULL) post(registrations[0].key, LS_EVENT_IN);
    fake.post_key = NULL;
    memset(fake.said, 0, sizeof fake.said);
    const DWORD called = fake.called;
    fake.called = ERROR_SUCCESS;
    return called;
}

const ls_process_calls *__wrap_ls_process_look_up(void)
{
    static const ls_process_calls calls = {.process = fake_process};
    return &calls;
}

int __real_ls_poll_change(watcher *at);
int __wrap_ls_poll_change(watcher *at)
{
    if (!fake.poll_fails) return __real_ls_poll_change(at);
    fake.poll_fails = false;
    return LS_ENOMEM;
}

typedef net_place fake_place;

static void fake_place_open(net_place *place)
{
    memset(&fake, 0, sizeof fake);
    net_place_open(place);
}

static void fake_place_close(net_place *place)
{
    net_place_close(place);
}

enum {
    LEVEL_PERSISTENT = LS_TRIGGER_LEVEL | LS_TRIGGER_PERSISTENT,
    LEVEL_ONESHOT = LS_TRIGGER_LEVEL | LS_TRIGGER_ONESHOT,
    EDGE_PERSISTENT = LS_TRIGGER_EDGE | LS_TRIGGER_PERSISTENT,
    EDGE_ONESHOT = LS_TRIGGER_EDGE | LS_TRIGGER_ONESHOT,
};

static ls_registration wanted(uint8_t operation, int fd, void *key, uint16_t events, uint8_t trigger)
{
    return (ls_registration){
        .fd = fd, .key = key, .events = events, .trigger = trigger, .operation = operation, .result = 1};
}

static int notify(net_place *place, uint8_t operation, int fd, void *key, uint16_t events, uint8_t trigger)
{
    ls_registration one = wanted(operation, fd, key, events, trigger);
    assert_int_equal(ls_port_notify(place->port, NULL, &one, 1, NULL, 0, 0), 0);
    return one.result;
}

/* Registered; returns the system's key. */
static void *registered(net_place *place, int fd, void *key, uint16_t events, uint8_t trigger)
{
    const unsigned calls = fake.calls - fake.removes;
    assert_int_equal(notify(place, LS_NOTIFY_REGISTER, fd, key, events, trigger), LS_OK);
    assert_int_equal(fake.calls - fake.removes, calls + 1);
    return fake.asked[0].key;
}

static void expect(net_place *place, const void *key, uint32_t events)
{
    const ls_packet packet = net_next(place);
    assert_null(packet.op);
    assert_ptr_equal(packet.key, key);
    assert_int_equal(packet.events, events);
    assert_true(ls_packet_current(place->port, &packet));
}

static void asked(unsigned i, int fd, uint8_t operation, uint16_t events, uint8_t trigger)
{
    assert_int_equal(fake.asked[i].socket, fd);
    assert_int_equal(fake.asked[i].operation, operation);
    assert_int_equal(fake.asked[i].events, events);
    assert_int_equal(fake.asked[i].trigger, trigger);
}

static void pairs_open(int *ours, int *theirs, int count)
{
    for (int i = 0; i < count; i++) net_pair(&ours[i], &theirs[i]);
}

static void pairs_close(net_place *place, const int *ours, const int *theirs, int count)
{
    for (int i = 0; i < count; i++) {
        ls_port_unregister(place->port, ours[i]);
        close(ours[i]);
        close(theirs[i]);
    }
}

TEST_IN(fake_place, place, many_in_one_call_each_with_its_result)
{
    int ours[4], theirs[4], keys[4];
    pairs_open(ours, theirs, 4);
    ls_registration many[] = {
        wanted(LS_NOTIFY_REGISTER, ours[0], &keys[0], LS_EVENT_IN, LEVEL_PERSISTENT),
        wanted(LS_NOTIFY_NONE, 0, NULL, 0, 0),
        wanted(LS_NOTIFY_REGISTER, ours[1], &keys[1], LS_EVENT_OUT | LS_EVENT_HANGUP, LEVEL_ONESHOT),
        wanted(LS_NOTIFY_REGISTER, ours[2], &keys[2], LS_EVENT_IN, LS_TRIGGER_LEVEL),
        wanted(LS_NOTIFY_REGISTER, ours[2], &keys[2], 0, EDGE_PERSISTENT),
        wanted(LS_NOTIFY_REMOVE, ours[3], NULL, 0, 0),
        wanted(LS_NOTIFY_REGISTER, ours[0], &keys[0], LS_EVENT_IN, LEVEL_PERSISTENT),
        wanted(LS_NOTIFY_REGISTER, ours[3], &keys[3], LS_EVENT_IN | LS_EVENT_ERR | LS_EVENT_REMOVE, EDGE_ONESHOT),
    };
    fake.said[1] = ERROR_NOT_SUPPORTED;
    assert_int_equal(ls_port_notify(place->port, NULL, many, sizeof many / sizeof many[0], NULL, 0, 0), 0);
    assert_int_equal(fake.calls, 1);
    assert_int_equal(fake.count, 4);
    asked(0, ours[0], LS_PROCESS_ENABLE, LS_EVENT_IN | LS_EVENT_HANGUP, LEVEL_PERSISTENT);
    asked(1, ours[1], LS_PROCESS_ENABLE, LS_EVENT_OUT | LS_EVENT_HANGUP, LEVEL_ONESHOT);
    asked(2, ours[2], LS_PROCESS_ENABLE, 0, EDGE_PERSISTENT);
    asked(3, ours[3], LS_PROCESS_ENABLE, LS_EVENT_IN | LS_EVENT_HANGUP,
          EDGE_ONESHOT); /* the others come whatever is asked for */
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++) assert_ptr_not_equal(fake.asked[i].key, fake.asked[k].key);
    static const int results[] = {LS_OK, LS_OK, LS_ENOTSUP, LS_EINVAL, LS_OK, LS_ENOENT, LS_EEXIST, LS_OK};
    for (size_t i = 0; i < sizeof many / sizeof many[0]; i++) assert_int_equal(many[i].result, results[i]);

    /* The one that was refused is not registered, and the system is not asked again. */
    assert_int_equal(notify(place, LS_NOTIFY_ENABLE, ours[1], NULL, LS_EVENT_IN, LEVEL_ONESHOT), LS_ENOENT);
    post(fake.asked[1].key, LS_EVENT_OUT);
    net_quiet(place, 0);
    assert_int_equal(fake.calls, 1);
    post(fake.asked[3].key, LS_EVENT_IN);
    expect(place, &keys[3], LS_EVENT_IN);
    pairs_close(place, ours, theirs, 4);
    net_quiet(place, 0);
}

TEST_IN(fake_place, place, more_than_one_call_holds)
{
    enum { ENABLES = 100 };
    int ours, theirs, key;
    ls_registration many[1 + ENABLES];
    pairs_open(&ours, &theirs, 1);
    many[0] = wanted(LS_NOTIFY_REGISTER, ours, &key, LS_EVENT_IN, LEVEL_ONESHOT);
    for (int i = 1; i <= ENABLES; i++) many[i] = wanted(LS_NOTIFY_ENABLE, ours, NULL, LS_EVENT_IN, LEVEL_ONESHOT);
    assert_int_equal(ls_port_notify(place->port, NULL, many, 1 + ENABLES, NULL, 0, 0), 0);
    for (int i = 0; i <= ENABLES; i++) assert_int_equal(many[i].result, LS_OK);
    assert_int_equal(fake.calls, 2);
    assert_int_equal(fake.count, 1 + ENABLES - 64);
    pairs_close(place, &ours, &theirs, 1);
}

TEST_IN(fake_place, place, a_call_that_fails_fails_for_all)
{
    int ours[2], theirs[2], key;
    pairs_open(ours, theirs, 2);
    ls_registration two[] = {wanted(LS_NOTIFY_REGISTER, ours[0], &key, LS_EVENT_IN, LEVEL_ONESHOT),
                             wanted(LS_NOTIFY_REGISTER, ours[1], &key, LS_EVENT_IN, EDGE_ONESHOT)};
    fake.called = ERROR_NO_SYSTEM_RESOURCES;
    assert_int_equal(ls_port_notify(place->port, NULL, two, 2, NULL, 0, 0), 0);
    assert_int_equal(two[0].result, LS_ENOMEM);
    assert_int_equal(two[1].result, LS_ENOMEM);
    fake.called = WAIT_TIMEOUT; /* what it says when no packet was there */
    assert_int_equal(ls_port_notify(place->port, NULL, two, 2, NULL, 0, 0), 0);
    assert_int_equal(two[0].result, LS_OK);
    assert_int_equal(two[1].result, LS_OK);
    pairs_close(place, ours, theirs, 2);
}

TEST_IN(fake_place, place, events_go_through_the_filter)
{
    enum { ALL = LS_EVENT_IN | LS_EVENT_OUT | LS_EVENT_HANGUP | LS_EVENT_ERR };
    int ours, theirs, key;
    pairs_open(&ours, &theirs, 1);
    const int udp = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    void *stream = registered(place, ours, &key, LS_EVENT_IN | LS_EVENT_HANGUP, LEVEL_PERSISTENT);
    post(stream, ALL);
    expect(place, &key, LS_EVENT_IN | LS_EVENT_HANGUP | LS_EVENT_ERR);
    post(stream, LS_EVENT_OUT);
    net_quiet(place, 0);
    assert_int_equal(notify(place, LS_NOTIFY_ENABLE, ours, NULL, 0, LEVEL_PERSISTENT), LS_OK);
    asked(0, ours, LS_PROCESS_ENABLE, 0, LEVEL_PERSISTENT);
    assert_ptr_equal(fake.asked[0].key, stream); /* the key is that of REGISTER */
    post(stream, LS_EVENT_IN | LS_EVENT_ERR);
    expect(place, &key, LS_EVENT_ERR);
    post(registered(place, udp, &key, LS_EVENT_IN | LS_EVENT_HANGUP, LEVEL_PERSISTENT), ALL);
    expect(place, &key, LS_EVENT_IN | LS_EVENT_ERR); /* a datagram socket has no peer that could hang up */
    ls_port_unregister(place->port, udp);
    close(udp);
    pairs_close(place, &ours, &theirs, 1);
}

/* The system has flags of their own for the end of the stream and for an error. */
TEST_IN(fake_place, place, in_and_out_include_the_end_and_errors)
{
    static const struct {
        uint16_t filter;
        uint32_t posted, reported;
    } table[] = {
        {LS_EVENT_IN, LS_EVENT_HANGUP, LS_EVENT_IN},
        {LS_EVENT_IN | LS_EVENT_HANGUP, LS_EVENT_HANGUP, LS_EVENT_IN | LS_EVENT_HANGUP},
        {LS_EVENT_HANGUP, LS_EVENT_HANGUP, LS_EVENT_HANGUP},
        {LS_EVENT_OUT, LS_EVENT_HANGUP, 0},
        {LS_EVENT_OUT, LS_EVENT_ERR, LS_EVENT_OUT | LS_EVENT_ERR},
        {LS_EVENT_IN, LS_EVENT_ERR | LS_EVENT_HANGUP, LS_EVENT_IN | LS_EVENT_ERR},
        {0, LS_EVENT_ERR | LS_EVENT_HANGUP, LS_EVENT_ERR},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int ours, theirs, key;
        pairs_open(&ours, &theirs, 1);
        post(registered(place, ours, &key, table[i].filter, LEVEL_ONESHOT), table[i].posted);
        if (table[i].reported != 0) expect(place, &key, table[i].reported);
        net_quiet(place, 0);
        pairs_close(place, &ours, &theirs, 1);
    }
}

TEST_IN(fake_place, place, one_shots_are_told_once)
{
    static const uint8_t triggers[] = {LEVEL_ONESHOT, EDGE_ONESHOT};
    for (int t = 0; t < 2; t++) {
        int ours, theirs, key;
        pairs_open(&ours, &theirs, 1);
        void *system = registered(place, ours, &key, LS_EVENT_IN, triggers[t]);
        post(system, LS_EVENT_IN);
        post(system, LS_EVENT_IN); /* the system does not do that; if it did nobody else may hear of it */
        expect(place, &key, LS_EVENT_IN);
        net_quiet(place, 0);
        assert_int_equal(notify(place, LS_NOTIFY_ENABLE, ours, NULL, LS_EVENT_IN, triggers[t]), LS_OK);
        asked(0, ours, LS_PROCESS_ENABLE, LS_EVENT_IN | LS_EVENT_HANGUP, triggers[t]);
        post(system, LS_EVENT_IN);
        expect(place, &key, LS_EVENT_IN);
        pairs_close(place, &ours, &theirs, 1);
    }
}

TEST_IN(fake_place, place, persistent_ones_go_on_until_they_are_disabled)
{
    static const uint8_t triggers[] = {LEVEL_PERSISTENT, EDGE_PERSISTENT};
    for (int t = 0; t < 2; t++) {
        int ours, theirs, key;
        pairs_open(&ours, &theirs, 1);
        void *system = registered(place, ours, &key, LS_EVENT_IN, triggers[t]);
        for (int i = 0; i < 3; i++) {
            post(system, LS_EVENT_IN);
            expect(place, &key, LS_EVENT_IN);
        }
        post(system, LS_EVENT_IN); /* queued, then disabled */
        assert_int_equal(notify(place, LS_NOTIFY_DISABLE, ours, NULL, 0, 0), LS_OK);
        asked(0, ours, LS_PROCESS_ENABLE, 0, LEVEL_ONESHOT); /* not LS_PROCESS_DISABLE: see iocp_process.c */
        net_quiet(place, 0);
        assert_int_equal(notify(place, LS_NOTIFY_ENABLE, ours, NULL, LS_EVENT_IN, triggers[t]), LS_OK);
        post(system, LS_EVENT_IN);
        expect(place, &key, LS_EVENT_IN);
        pairs_close(place, &ours, &theirs, 1);
    }
}

/* The system tells an EDGE what becomes true while it is enabled; what is true already is looked at. */
TEST_IN(fake_place, place, enabling_an_edge_looks_at_what_is_there)
{
    static const uint8_t triggers[] = {LEVEL_PERSISTENT, LEVEL_ONESHOT, EDGE_PERSISTENT, EDGE_ONESHOT};
    for (int t = 0; t < 4; t++) {
        const bool edge = triggers[t] & LS_TRIGGER_EDGE;
        int ours, theirs, key;
        pairs_open(&ours, &theirs, 1);
        net_write(theirs, "x", 1);
        struct pollfd there = {.fd = ours, .events = POLLRDNORM};
        assert_int_equal(poll(&there, 1, 60000), 1);
        (void)registered(place, ours, &key, LS_EVENT_IN, triggers[t]);
        if (edge) expect(place, &key, LS_EVENT_IN);
        net_quiet(place, 0);
        assert_int_equal(notify(place, LS_NOTIFY_ENABLE, ours, NULL, LS_EVENT_IN, triggers[t]), LS_OK);
        if (edge) expect(place, &key, LS_EVENT_IN);
        net_quiet(place, 0);
        pairs_close(place, &ours, &theirs, 1);
    }
}

TEST_IN(fake_place, place, removing)
{
    int ours, theirs, one, two;
    pairs_open(&ours, &theirs, 1);
    void *system = registered(place, ours, &one, LS_EVENT_IN, LEVEL_PERSISTENT);
    post(system, LS_EVENT_IN);
    assert_int_equal(notify(place, LS_NOTIFY_REMOVE, ours, NULL, 0, 0), LS_OK);
    asked(0, ours, LS_PROCESS_REMOVE, 0, 0);
    const unsigned calls = fake.calls;
    assert_int_equal(notify(place, LS_NOTIFY_REGISTER, ours, &two, LS_EVENT_IN, LEVEL_PERSISTENT), LS_EBUSY);
    assert_int_equal(notify(place, LS_NOTIFY_REMOVE, ours, NULL, 0, 0), LS_ENOENT);
    assert_int_equal(fake.calls, calls);
    post(system, LS_EVENT_REMOVE);
    expect(place, &one, LS_EVENT_REMOVE);
    post(system, LS_EVENT_REMOVE); /* once */
    net_quiet(place, 0);

    void *again = registered(place, ours, &two, LS_EVENT_IN, LEVEL_PERSISTENT);
    assert_ptr_not_equal(again, system);
    post(system, LS_EVENT_IN); /* of the old one */
    net_quiet(place, 0);
    post(again, LS_EVENT_IN);
    expect(place, &two, LS_EVENT_IN);

    /* What the system does not know any more was closed, as far as it is concerned. */
    fake.said[0] = ERROR_NOT_FOUND;
    assert_int_equal(notify(place, LS_NOTIFY_REMOVE, ours, NULL, 0, 0), LS_ENOENT);
    again = registered(place, ours, &one, LS_EVENT_IN, LEVEL_PERSISTENT);

    /* Forgotten: the system removes it, and nobody hears of that. */
    ls_port_unregister(place->port, ours);
    asked(0, ours, LS_PROCESS_REMOVE, 0, 0);
    post(again, LS_EVENT_IN);
    post(again, LS_EVENT_REMOVE);
    net_quiet(place, 0);
    pairs_close(place, &ours, &theirs, 1);
}

/* The number of a closed socket is another's at once. */
TEST_IN(fake_place, place, a_closed_socket_takes_its_registration_along)
{
    int ours[2], theirs[2], one, two;
    for (int attached = 0; attached <= 1; attached++) {
        pairs_open(ours, theirs, 2);
        void *system = registered(place, ours[0], &one, LS_EVENT_IN, LEVEL_PERSISTENT);
        assert_int_equal(dup2(ours[1], ours[0]), ours[0]);
        close(ours[1]);
        post(system, LS_EVENT_IN);
        if (attached) {
            char room;
            ls_op op = {.done = NULL};
            ls_sock *sock = net_attach(place, ours[0], false);
            assert_int_equal(ls_op_recv(&place->ctx, sock, &op, &room, 1), LS_PENDING);
            net_quiet(place, 0);
            assert_int_equal(notify(place, LS_NOTIFY_ENABLE, ours[0], NULL, LS_EVENT_IN, LEVEL_ONESHOT), LS_ENOENT);
            net_write(theirs[1], "x", 1);
            assert_ptr_equal(net_next(place).op, &op);
            ls_sock_close(&place->ctx, sock);
            close(theirs[0]);
            close(theirs[1]);
        } else {
            void *next = registered(place, ours[0], &two, LS_EVENT_IN, LEVEL_PERSISTENT);
            net_quiet(place, 0);
            post(system, LS_EVENT_IN);
            net_quiet(place, 0);
            post(next, LS_EVENT_IN);
            expect(place, &two, LS_EVENT_IN);
            ours[1] = ours[0];
            close(theirs[0]);
            pairs_close(place, &ours[1], &theirs[1], 1);
        }
        net_quiet(place, 0);
    }
}

/* The number of a removed socket is another's, which is removed too, before the first REMOVE packet is taken. */
TEST_IN(fake_place, place, two_removed_sockets_of_one_number)
{
    for (int second_first = 0; second_first <= 1; second_first++) {
        int ours[2], theirs[2], keys[2];
        void *system[2];
        pairs_open(ours, theirs, 2);
        for (int i = 0; i < 2; i++) {
            if (i == 1) assert_int_equal(dup2(ours[1], ours[0]), ours[0]);
            system[i] = registered(place, ours[0], &keys[i], LS_EVENT_IN, LEVEL_PERSISTENT);
            assert_int_equal(notify(place, LS_NOTIFY_REMOVE, ours[0], NULL, 0, 0), LS_OK);
        }
        for (int i = 0; i < 2; i++) {
            const int which = i ^ second_first;
            post(system[which], LS_EVENT_REMOVE);
            expect(place, &keys[which], LS_EVENT_REMOVE);
            post(system[which], LS_EVENT_REMOVE); /* once */
            net_quiet(place, 0);
        }
        void *next = registered(place, ours[0], &keys[0], LS_EVENT_IN, LEVEL_PERSISTENT);
        assert_ptr_not_equal(next, system[1]);
        close(ours[1]);
        close(theirs[1]);
        pairs_close(place, ours, theirs, 1);
    }
    int ours, theirs, key; /* one whose packet is not taken before the port is closed */
    pairs_open(&ours, &theirs, 1);
    (void)registered(place, ours, &key, LS_EVENT_IN, LEVEL_PERSISTENT);
    assert_int_equal(notify(place, LS_NOTIFY_REMOVE, ours, NULL, 0, 0), LS_OK);
    pairs_close(place, &ours, &theirs, 1);
}

/* Two sockets without an address look the same; a wait takes notice of the close. */
TEST_IN(fake_place, place, a_closed_socket_without_an_address)
{
    int one, two;
    for (int removed = 0; removed <= 1; removed++) {
        const int old = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0),
                  next = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
        void *system = registered(place, old, &one, LS_EVENT_IN, LEVEL_PERSISTENT);
        net_quiet(place, 0);
        assert_int_equal(notify(place, LS_NOTIFY_REGISTER, old, &two, LS_EVENT_IN, LEVEL_PERSISTENT), LS_EEXIST);
        if (removed) {
            assert_int_equal(notify(place, LS_NOTIFY_REMOVE, old, NULL, 0, 0), LS_OK);
            post(system, LS_EVENT_REMOVE);
            expect(place, &one, LS_EVENT_REMOVE);
        }
        assert_int_equal(dup2(next, old), old);
        close(next);
        net_quiet(place, 100);
        system = registered(place, old, &two, LS_EVENT_IN, LEVEL_PERSISTENT);
        post(system, LS_EVENT_IN);
        expect(place, &two, LS_EVENT_IN);
        ls_port_unregister(place->port, old);
        close(old);
        net_quiet(place, 0);
    }
}

/* A registration that was dropped without a REMOVE is removed before the next one, which else would keep its key:
 * packets of the old key are ignored. */
TEST_IN(fake_place, place, a_dropped_registration_is_removed_before_the_next)
{
    int ours, theirs, key;
    pairs_open(&ours, &theirs, 1);
    fake.poll_fails = true;
    assert_int_equal(notify(place, LS_NOTIFY_REGISTER, ours, &key, LS_EVENT_IN, LEVEL_PERSISTENT), LS_ENOMEM);
    const void *system = fake.asked[0].key;
    assert_int_equal(fake.removes, 0);
    assert_int_equal(notify(place, LS_NOTIFY_REGISTER, ours, &key, LS_EVENT_IN, LEVEL_PERSISTENT), LS_OK);
    assert_int_equal(fake.removes, 1);
    assert_ptr_equal(fake.removed, system);
    asked(0, ours, LS_PROCESS_ENABLE, LS_EVENT_IN | LS_EVENT_HANGUP, LEVEL_PERSISTENT); /* after the REMOVE */
    assert_ptr_not_equal(fake.asked[0].key, system);
    post(system, LS_EVENT_REMOVE);
    net_quiet(place, 0);
    post(fake.asked[0].key, LS_EVENT_IN);
    expect(place, &key, LS_EVENT_IN);
    pairs_close(place, &ours, &theirs, 1);
    assert_int_equal(fake.removes, 2);
}

TEST_IN(fake_place, place, registering_and_waiting_in_one_call)
{
    int ours, theirs, key;
    ls_packet packet;
    pairs_open(&ours, &theirs, 1);
    ls_registration one = wanted(LS_NOTIFY_REGISTER, ours, &key, LS_EVENT_IN, LEVEL_ONESHOT);
    fake.post_key = &key;
    assert_int_equal(ls_port_notify(place->port, &place->ctx, &one, 1, &packet, 1, 60000), 1);
    assert_int_equal(one.result, LS_OK);
    assert_ptr_equal(packet.key, &key);
    assert_int_equal(packet.events, LS_EVENT_IN);
    one = wanted(LS_NOTIFY_DISABLE, ours, NULL, 0, 0);
    fake.said[0] = ERROR_INVALID_HANDLE;
    assert_int_equal(ls_port_notify(place->port, &place->ctx, &one, 1, &packet, 1, -1), 0); /* it does not wait */
    assert_int_equal(one.result, LS_ENOENT);
    pairs_close(place, &ours, &theirs, 1);
}
