/* test_notify_table.c - the semantics of notify.h as one table, which each source of events carries out: epoll,
 * AFD polls, ProcessSocketNotifications (process_fake_win32.c). One thread; test_notify_semantics.c has the causes of
 * each event and 16 threads. */
/* sanitizers: asan; no thread starts */
#include "notify_fixture.h"

typedef enum action {
    END, /* of a row */
    REGISTER,
    REGISTER_OTHER, /* with the other key */
    ENABLE,
    ENABLE_OTHER, /* with the other key, which must not matter */
    DISABLE,
    REMOVE,
    FORGET,
    PEER_SENDS,
    READ_ALL,
    FILL, /* until no more can be sent */
    PEER_READS,
    PEER_ENDS,
    PEER_RESETS,
    GET_FIRST,  /* the next packet: events, the first key */
    GET_SECOND, /* the same with the other key */
    NONE,       /* no packet */
} action;

typedef struct step {
    action what;
    uint32_t events;
    uint8_t trigger;
    int result;
} step;

typedef struct row {
    const char *name;
    step steps[24];
} row;

enum { L_P = LEVEL_PERSISTENT, L_O = LEVEL_ONESHOT, E_P = EDGE_PERSISTENT, E_O = EDGE_ONESHOT };
enum { ERR = LS_EVENT_ERR, REM = LS_EVENT_REMOVE };

#define DO(action)      \
    {                   \
        action, 0, 0, 0 \
    }
#define GET(events)             \
    {                           \
        GET_FIRST, events, 0, 0 \
    }
#define GET_OTHER(events)        \
    {                            \
        GET_SECOND, events, 0, 0 \
    }

static const row rows[] = {
    {"level, persistent: repeats while there are data, also after less than all was taken",
     {{REGISTER, IN, L_P, 0},
      DO(NONE),
      DO(PEER_SENDS),
      GET(IN),
      GET(IN),
      GET(IN),
      DO(READ_ALL),
      DO(NONE),
      DO(PEER_SENDS),
      GET(IN),
      DO(READ_ALL),
      DO(NONE)}},
    {"level, one-shot: one packet until it is enabled, which looks at what is there",
     {{REGISTER, IN, L_O, 0},
      DO(PEER_SENDS),
      GET(IN),
      DO(NONE),
      DO(PEER_SENDS),
      DO(NONE),
      {ENABLE, IN, L_O, 0},
      GET(IN),
      DO(READ_ALL),
      {ENABLE, IN, L_O, 0},
      DO(NONE),
      DO(PEER_SENDS),
      GET(IN),
      DO(NONE)}},
    {"edge, persistent: once for each arrival",
     {{REGISTER, IN, E_P, 0},
      DO(NONE),
      DO(PEER_SENDS),
      GET(IN),
      DO(NONE),
      DO(READ_ALL),
      DO(NONE),
      DO(PEER_SENDS),
      GET(IN),
      DO(NONE)}},
    {"edge, one-shot: one packet until it is enabled, which looks at what is there",
     {{REGISTER, IN, E_O, 0},
      DO(PEER_SENDS),
      GET(IN),
      DO(NONE),
      DO(READ_ALL),
      DO(PEER_SENDS),
      DO(NONE),
      {ENABLE, IN, E_O, 0},
      GET(IN),
      DO(NONE),
      DO(READ_ALL),
      {ENABLE, IN, E_O, 0},
      DO(NONE),
      DO(PEER_SENDS),
      GET(IN),
      DO(NONE)}},
    {"level: what is there already is told", {DO(PEER_SENDS), {REGISTER, IN, L_P, 0}, GET(IN), GET(IN)}},
    {"edge: what is there already is told once",
     {DO(PEER_SENDS), {REGISTER, IN, E_P, 0}, GET(IN), DO(NONE), {ENABLE, IN, E_P, 0}, GET(IN), DO(NONE)}},
    {"disable, level persistent: silent until it is enabled",
     {{REGISTER, IN, L_P, 0},
      DO(DISABLE),
      DO(PEER_SENDS),
      DO(NONE),
      DO(DISABLE),
      {ENABLE, IN, L_P, 0},
      GET(IN),
      DO(DISABLE),
      DO(NONE),
      {ENABLE, IN, L_P, 0},
      GET(IN),
      GET(IN)}},
    {"disable, level one-shot",
     {{REGISTER, IN, L_O, 0},
      DO(DISABLE),
      DO(PEER_SENDS),
      DO(NONE),
      {ENABLE, IN, L_O, 0},
      GET(IN),
      DO(DISABLE),
      DO(NONE),
      {ENABLE, IN, L_O, 0},
      GET(IN),
      DO(NONE)}},
    {"disable, edge persistent",
     {{REGISTER, IN, E_P, 0},
      DO(DISABLE),
      DO(PEER_SENDS),
      DO(NONE),
      {ENABLE, IN, E_P, 0},
      GET(IN),
      DO(NONE),
      DO(DISABLE),
      DO(READ_ALL),
      DO(PEER_SENDS),
      DO(NONE),
      {ENABLE, IN, E_P, 0},
      GET(IN),
      DO(NONE)}},
    {"disable, edge one-shot",
     {{REGISTER, IN, E_O, 0}, DO(DISABLE), DO(PEER_SENDS), DO(NONE), {ENABLE, IN, E_O, 0}, GET(IN), DO(NONE)}},
    {"disable: what is queued is dropped", {{REGISTER, IN, L_O, 0}, DO(PEER_SENDS), DO(DISABLE), DO(NONE)}},
    {"disable: an error is not told either, and does not repeat",
     {{REGISTER, IN, L_P, 0}, DO(DISABLE), DO(PEER_RESETS), DO(NONE), {ENABLE, IN, L_P, 0}, GET(IN | ERR)}},
    {"enable: another filter and trigger",
     {{REGISTER, IN, L_P, 0},
      {ENABLE, OUT, L_O, 0},
      GET(OUT),
      DO(PEER_SENDS),
      DO(NONE),
      {ENABLE, IN | OUT, E_P, 0},
      GET(IN | OUT),
      DO(NONE),
      {ENABLE, 0, L_P, 0},
      DO(NONE),
      {ENABLE, IN, L_P, 0},
      GET(IN),
      GET(IN)}},
    {"out: while there is room",
     {{REGISTER, OUT, L_P, 0}, GET(OUT), GET(OUT), DO(FILL), DO(NONE), DO(PEER_READS), GET(OUT)}},
    {"out, edge: when there is room again",
     {{REGISTER, OUT, E_P, 0}, GET(OUT), DO(NONE), DO(FILL), DO(NONE), DO(PEER_READS), GET(OUT), DO(NONE)}},
    {"the peer's end is input to who asks for input alone",
     {{REGISTER, IN, L_P, 0}, DO(NONE), DO(PEER_ENDS), GET(IN), GET(IN)}},
    {"the peer's end, one-shot",
     {{REGISTER, IN, L_O, 0}, DO(PEER_ENDS), GET(IN), DO(NONE), {ENABLE, IN, L_O, 0}, GET(IN)}},
    {"the peer's end, edge", {{REGISTER, IN, E_P, 0}, DO(PEER_ENDS), GET(IN), DO(NONE)}},
    {"the peer's end after data",
     {{REGISTER, IN, L_O, 0}, DO(PEER_SENDS), DO(PEER_ENDS), GET(IN), DO(READ_ALL), {ENABLE, IN, L_O, 0}, GET(IN)}},
    {"the peer's end as a hang-up",
     {{REGISTER, HANGUP, L_O, 0}, DO(PEER_SENDS), DO(NONE), DO(READ_ALL), DO(PEER_ENDS), GET(HANGUP), DO(NONE)}},
    {"the peer's end, both", {{REGISTER, IN | HANGUP, L_O, 0}, DO(PEER_ENDS), GET(IN | HANGUP), DO(NONE)}},
    {"the peer's end is nothing to who sends", {DO(FILL), {REGISTER, OUT, L_O, 0}, DO(PEER_ENDS), DO(NONE)}},
    {"an error is told whatever is asked for", {{REGISTER, 0, L_O, 0}, DO(PEER_RESETS), GET(ERR), DO(NONE)}},
    {"an error includes input", {{REGISTER, IN, L_O, 0}, DO(PEER_RESETS), GET(IN | ERR), DO(NONE)}},
    {"an error includes output", {DO(FILL), {REGISTER, OUT, L_O, 0}, DO(PEER_RESETS), GET(OUT | ERR), DO(NONE)}},
    {"an error includes the hang-up", {{REGISTER, HANGUP, L_O, 0}, DO(PEER_RESETS), GET(HANGUP | ERR), DO(NONE)}},
    {"the key changes by REMOVE and REGISTER alone",
     {DO(PEER_SENDS),
      {REGISTER, IN, L_O, 0},
      GET(IN),
      {ENABLE_OTHER, IN, L_O, 0},
      GET(IN),
      {REGISTER_OTHER, IN, L_O, LS_EEXIST},
      {ENABLE, IN, L_O, 0},
      GET(IN),
      DO(REMOVE),
      GET(REM),
      {REGISTER_OTHER, IN, L_O, 0},
      GET_OTHER(IN),
      {ENABLE, IN, L_O, 0},
      GET_OTHER(IN),
      DO(REMOVE),
      GET_OTHER(REM),
      DO(NONE)}},
    {"REMOVE is the last packet, and a new registration waits for it",
     {{REGISTER, IN, L_P, 0},
      DO(PEER_SENDS),
      GET(IN),
      DO(REMOVE),
      {REGISTER_OTHER, IN, L_P, LS_EBUSY},
      {REMOVE, 0, 0, LS_ENOENT},
      {ENABLE, IN, L_P, LS_ENOENT},
      {DISABLE, 0, 0, LS_ENOENT},
      DO(PEER_SENDS),
      GET(REM),
      DO(NONE),
      {REGISTER_OTHER, IN, L_P, 0},
      GET_OTHER(IN)}},
    {"REMOVE of what is disabled",
     {{REGISTER, IN, E_P, 0}, DO(DISABLE), DO(REMOVE), DO(PEER_SENDS), GET(REM), DO(NONE)}},
    {"REMOVE of a one-shot that was told",
     {{REGISTER, IN, E_O, 0}, DO(PEER_SENDS), GET(IN), DO(REMOVE), GET(REM), DO(NONE)}},
    {"REMOVE: the queued packet is dropped", {{REGISTER, IN, L_O, 0}, DO(PEER_SENDS), DO(REMOVE), GET(REM), DO(NONE)}},
    {"forgotten: no packet follows",
     {{REGISTER, IN, L_P, 0},
      DO(PEER_SENDS),
      DO(FORGET),
      DO(NONE),
      {REGISTER_OTHER, IN, L_O, 0},
      GET_OTHER(IN),
      DO(NONE)}},
};

typedef struct table {
    net_place net;
    pair p;
    int keys[2];
} table;

/* The socket is as the row expects it before its registration hears of it. */
static void cause(pair *p, action what)
{
    switch (what) {
    case PEER_SENDS:
        in_begin(p);
        until(p->ours, POLLIN);
        break;
    case READ_ALL: in_end(p); break;
    case FILL: out_end(p); break;
    case PEER_READS: out_begin(p); break;
    case PEER_ENDS:
        hangup_begin(p);
        until(p->ours, POLLIN);
        break;
    default: err_begin(p); until(p->ours, POLLERR);
    }
}

static void carry_out(table *t, const step *s)
{
    const int fd = t->p.ours;
    ls_port *port = t->net.port;
    int result = s->result;
    switch (s->what) {
    case REGISTER: result = notify(port, LS_NOTIFY_REGISTER, fd, &t->keys[0], s->events, s->trigger); break;
    case REGISTER_OTHER: result = notify(port, LS_NOTIFY_REGISTER, fd, &t->keys[1], s->events, s->trigger); break;
    case ENABLE: result = notify(port, LS_NOTIFY_ENABLE, fd, NULL, s->events, s->trigger); break;
    case ENABLE_OTHER: result = notify(port, LS_NOTIFY_ENABLE, fd, &t->keys[1], s->events, s->trigger); break;
    case DISABLE: result = notify(port, LS_NOTIFY_DISABLE, fd, NULL, 0, 0); break;
    case REMOVE: result = notify(port, LS_NOTIFY_REMOVE, fd, NULL, 0, 0); break;
    case FORGET: ls_port_unregister(port, fd); break;
    case GET_FIRST: expect_event(&t->net, &t->keys[0], s->events); break;
    case GET_SECOND: expect_event(&t->net, &t->keys[1], s->events); break;
    case NONE: net_quiet(&t->net, 10); break;
    default: cause(&t->p, s->what);
    }
    assert_int_equal(result, s->result);
}

TEST(each_row)
{
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        table t = {.keys = {0}};
        net_place_open(&t.net);
        pair_open(&t.p, false);
        print_message("  %s\n", rows[r].name);
        for (const step *s = rows[r].steps; s->what != END; s++) {
            print_message("    step %d\n", (int)(s - rows[r].steps) + 1);
            carry_out(&t, s);
        }
        ls_port_unregister(t.net.port, t.p.ours);
        pair_close(&t.p);
        net_quiet(&t.net, 0);
        net_place_close(&t.net);
    }
}

/* Several registrations in one call that also waits: each has its own result, and the packets come with them. */
TEST_IN(net_place, place, results_and_packets_of_one_call)
{
    enum { SOCKETS = 3, CALLS = 4 };
    static const struct {
        struct {
            uint8_t operation, trigger;
            uint16_t events;
            int result;
        } asked[SOCKETS];
        uint32_t told[SOCKETS]; /* the events of each socket that come with this call */
    } calls[CALLS] = {
        {{{LS_NOTIFY_REGISTER, L_O, IN, 0}, {LS_NOTIFY_REGISTER, E_P, IN, 0}, {LS_NOTIFY_REGISTER, L_P, OUT, 0}},
         {IN, IN, OUT}},
        {{{LS_NOTIFY_REGISTER, L_O, IN, LS_EEXIST}, {LS_NOTIFY_DISABLE, 0, 0, 0}, {LS_NOTIFY_ENABLE, L_O, IN, 0}},
         {0, 0, IN}},
        {{{LS_NOTIFY_ENABLE, E_O, IN, 0}, {LS_NOTIFY_REMOVE, 0, 0, 0}, {LS_NOTIFY_ENABLE, 99, IN, LS_EINVAL}},
         {IN, REM, 0}},
        {{{LS_NOTIFY_REMOVE, 0, 0, 0}, {LS_NOTIFY_REMOVE, 0, 0, LS_ENOENT}, {LS_NOTIFY_NONE, 0, 0, 0}}, {REM, 0, 0}},
    };
    pair p[SOCKETS];
    int keys[SOCKETS];
    for (int i = 0; i < SOCKETS; i++) {
        pair_open(&p[i], false);
        in_begin(&p[i]);
        until(p[i].ours, POLLIN);
    }
    for (int c = 0; c < CALLS; c++) {
        ls_registration asked[SOCKETS];
        ls_packet packets[LS_WAIT_PACKETS_MAX];
        uint32_t told[SOCKETS] = {0};
        int left = 0;
        for (int i = 0; i < SOCKETS; i++) {
            asked[i] = (ls_registration){.fd = p[i].ours,
                                         .key = &keys[i],
                                         .events = calls[c].asked[i].events,
                                         .trigger = calls[c].asked[i].trigger,
                                         .operation = calls[c].asked[i].operation,
                                         .result = 99};
            if (calls[c].told[i] != 0) left++;
        }
        int n = ls_port_notify(place->port, &place->ctx, asked, SOCKETS, packets, LS_WAIT_PACKETS_MAX, PATIENCE_MS);
        for (int i = 0; i < SOCKETS; i++) assert_int_equal(asked[i].result, calls[c].asked[i].result);
        for (;;) {
            for (int k = 0; k < n; k++) {
                const ptrdiff_t i = (const int *)packets[k].key - keys;
                assert_in_range(i, 0, SOCKETS - 1);
                if (told[i] == 0) left--;
                told[i] |= packets[k].events;
            }
            if (left == 0) break;
            packets[0] = net_next(place);
            n = 1;
        }
        for (int i = 0; i < SOCKETS; i++) assert_int_equal(told[i], calls[c].told[i]);
    }
    for (int i = 0; i < SOCKETS; i++) {
        ls_port_unregister(place->port, p[i].ours);
        pair_close(&p[i]);
    }
}
