/* test_port_threads.c - the contract of port.h on each back end: several threads at one port: busy ones, races of
 * close, cancel and completion, echoes. */
#include "port_fixture.h"

#include "base/os/thread.h"
#include "system.h"

enum { WORKERS = 4 };

typedef struct visitor { /* a thread that posts, and then does something else for long */
    net_place *place;
    ls_thread_ctx ctx;
    ls_sock *sock;
    ls_op op, send;
    char room[8];
    ls_slice slice;
    ls_mutex mutex;
    ls_cond changed;
    bool posted, may_end;
    int theirs;
} visitor;

static void visitor_main(void *arg)
{
    visitor *v = arg;
    net_ctx_open(v->place, &v->ctx, 1);
    assert_int_equal(ls_op_recv(&v->ctx, v->sock, &v->op, v->room, sizeof v->room), LS_PENDING);
    const int how = ls_op_send(&v->ctx, v->sock, &v->send, &v->slice, 1, NULL);
    assert_true(how >= 0);
    if (how == LS_DONE) ls_port_post(v->place->port, &v->send, 5);
    ls_mutex_lock(&v->mutex);
    v->posted = true;
    ls_cond_signal(&v->changed);
    while (!v->may_end) ls_cond_wait(&v->changed, &v->mutex);
    ls_mutex_unlock(&v->mutex);
    ls_pool_close(v->ctx.pool);
}

static void write_late(void *arg)
{
    const visitor *v = arg;
    ls_clock_sleep_ms(20); /* the test's thread is asleep in its wait by now, which has no timeout */
    net_write(v->theirs, "hello", 5);
}

TEST(others_take_what_a_busy_thread_has_posted)
{
    for (int late = 0; late <= 1; late++) { /* the bytes come before the wait, or during it */
        visitor v = {.op = op_new(), .send = op_new(), .slice = ls_slice_static("ahoy!", 5)};
        net_place place;
        ls_thread thread, other;
        char got[8];
        int ours, theirs, seen = 0;
        net_place_open(&place);
        net_pair(&ours, &theirs);
        v.theirs = theirs;
        v.place = &place;
        v.sock = net_attach(&place, ours, true);
        ls_mutex_open(&v.mutex);
        ls_cond_open(&v.changed);
        assert_int_equal(ls_thread_start(&thread, "visitor", visitor_main, &v), LS_OK);
        ls_mutex_lock(&v.mutex);
        while (!v.posted) ls_cond_wait(&v.changed, &v.mutex);
        ls_mutex_unlock(&v.mutex);
        if (late)
            assert_int_equal(ls_thread_start(&other, "late", write_late, &v), LS_OK);
        else
            net_write(theirs, "hello", 5);
        for (int i = 0; i < 2; i++) {
            ls_packet packet;
            assert_int_equal(ls_port_wait(place.port, &place.ctx, &packet, 1, -1), 1);
            assert_int_equal(packet.result, 5);
            seen |= packet.op == &v.op ? 1 : 2;
        }
        if (late) ls_thread_join(&other);
        assert_int_equal(seen, 3);
        assert_memory_equal(v.room, "hello", 5);
        net_read(theirs, got, 5);
        assert_memory_equal(got, "ahoy!", 5);

        /* The next receive is posted here; then the thread ends. */
        char room[8];
        ls_op op = op_new();
        assert_int_equal(ls_op_recv(&place.ctx, v.sock, &op, room, sizeof room), LS_PENDING);
        ls_mutex_lock(&v.mutex);
        v.may_end = true;
        ls_cond_signal(&v.changed);
        ls_mutex_unlock(&v.mutex);
        ls_thread_join(&thread);
        net_quiet(&place, 10);
        net_write(theirs, "more", 4);
        expect_packet(&place, &op, 4);
        assert_memory_equal(room, "more", 4);
        ls_sock_close(&place.ctx, v.sock);
        close(theirs);
        ls_cond_close(&v.changed);
        ls_mutex_close(&v.mutex);
        net_place_close(&place);
    }
}

/* Races: four threads wait, write and cancel, while the test's own thread posts and closes. */
typedef struct race {
    ls_op op;                  /* the receive */
    ls_op post, write, cancel; /* make a worker do it */
    ls_sock *sock;
    int theirs;
    _Atomic int completions, errands, posted;
} race;

static _Atomic bool race_over;

static void race_received(ls_thread_ctx *ctx, ls_op *op)
{
    race *r = LS_CONTAINER(op, race, op);
    const int64_t result = atomic_load(&op->result);
    if (result > 0) ls_block_drop(op->recv.block);
    if (result != 1 && result != LS_ECANCELED) abort();
    atomic_fetch_add(&r->completions, 1);
}

static void race_post(ls_thread_ctx *ctx, ls_op *op)
{
    race *r = LS_CONTAINER(op, race, post);
    if (ls_op_recv(ctx, r->sock, &r->op, NULL, LS_BLOCK_SMALL) != LS_PENDING) abort();
    atomic_store(&r->posted, 1);
}

static void race_write(ls_thread_ctx *ctx, ls_op *op)
{
    race *r = LS_CONTAINER(op, race, write);
    if (send(r->theirs, "x", 1, MSG_NOSIGNAL) < 0) { /* closed by now: as good */
    }
    atomic_fetch_add(&r->errands, 1);
}

static void race_cancel(ls_thread_ctx *ctx, ls_op *op)
{
    race *r = LS_CONTAINER(op, race, cancel);
    ls_op_cancel(ctx->port, r->sock, &r->op);
    atomic_fetch_add(&r->errands, 1);
}

static void race_main(void *arg)
{
    net_place *place = arg;
    ls_thread_ctx ctx;
    ls_packet packets[LS_WAIT_PACKETS_MAX];
    net_ctx_open(place, &ctx, 1);
    while (!atomic_load(&race_over)) {
        const int n = ls_port_wait(place->port, &ctx, packets, LS_WAIT_PACKETS_MAX, 5);
        for (int i = 0; i < n; i++) packets[i].op->done(&ctx, packets[i].op);
    }
    ls_pool_close(ctx.pool);
}

TEST_IN(net_place, place, whatever_races_there_is_one_completion)
{
    enum { ROUNDS = 3000 / SYSTEM_SLOWNESS };
    static race races[ROUNDS];
    ls_thread threads[WORKERS];
    atomic_store(&race_over, false);
    for (int i = 0; i < WORKERS; i++) assert_int_equal(ls_thread_start(&threads[i], "race", race_main, place), LS_OK);
    for (int i = 0; i < ROUNDS; i++) {
        race *r = &races[i];
        const bool writes = i % 3 != 2, cancels = i % 3 != 1; /* write and cancel; write and close; cancel and close */
        int ours;
        memset(r, 0, sizeof *r);
        r->op.done = race_received;
        r->write.done = race_write;
        r->cancel.done = race_cancel;
        net_pair(&ours, &r->theirs);
        r->sock = net_attach(place, ours, false);
        r->post.done = race_post;
        if (i & 1)
            race_post(&place->ctx, &r->post);
        else
            ls_port_post(place->port, &r->post, 0);
        while (atomic_load(&r->posted) == 0) ls_clock_sleep_ms(0);
        if (writes) ls_port_post(place->port, &r->write, 0);
        if (cancels) { /* needs the socket open */
            ls_port_post(place->port, &r->cancel, 0);
            while (atomic_load(&r->errands) < writes + cancels) ls_clock_sleep_ms(0);
        } else {
            for (volatile int spin = 0; spin < i % 2000; spin++) continue;
        }
        ls_sock_close(&place->ctx, r->sock);
        while (atomic_load(&r->errands) < writes + cancels || atomic_load(&r->completions) == 0) ls_clock_sleep_ms(0);
        close(r->theirs);
    }
    ls_clock_sleep_ms(20); /* for one completion too many */
    atomic_store(&race_over, true);
    for (int i = 0; i < WORKERS; i++) ls_thread_join(&threads[i]);
    for (int i = 0; i < ROUNDS; i++) assert_int_equal(atomic_load(&races[i].completions), 1);
}

/* Echo over many connections by four threads: receive and send re-posted from inside, in any thread. */
typedef struct echo {
    ls_op in, out, start;
    ls_sock *sock;
    ls_slice slice;
} echo;

static _Atomic int echoes_open;

static void echo_receive(ls_thread_ctx *ctx, echo *e);

static void echo_sent(ls_thread_ctx *ctx, ls_op *op)
{
    echo *e = LS_CONTAINER(op, echo, out);
    ls_slice_drop(&e->slice);
    echo_receive(ctx, e);
}

static void echo_received(ls_thread_ctx *ctx, ls_op *op)
{
    echo *e = LS_CONTAINER(op, echo, in);
    const int64_t n = atomic_load(&op->result);
    if (n <= 0) {
        ls_sock_close(ctx, e->sock);
        atomic_fetch_sub(&echoes_open, 1);
        return;
    }
    e->slice = (ls_slice){op->recv.block, op->recv.block->data, (size_t)n};
    const int how = ls_op_send(ctx, e->sock, &e->out, &e->slice, 1, NULL);
    if (how < 0) abort();
    if (how == LS_DONE) echo_sent(ctx, &e->out);
}

static void echo_receive(ls_thread_ctx *ctx, echo *e)
{
    const int how = ls_op_recv(ctx, e->sock, &e->in, NULL, LS_BLOCK_SMALL);
    if (how < 0) abort();
    if (how == LS_DONE) echo_received(ctx, &e->in);
}

static void echo_start(ls_thread_ctx *ctx, ls_op *op)
{
    echo_receive(ctx, LS_CONTAINER(op, echo, start));
}

TEST_IN(net_place, place, echoes_from_any_thread_lose_no_byte)
{
    enum { PEERS = 16, ROUNDS = 60 / SYSTEM_SLOWNESS, LEN = 20000 };
    static echo echoes[PEERS];
    static char got[LEN];
    int theirs[PEERS], ours;
    ls_thread threads[WORKERS];
    char *bytes = pattern(LEN, 7);
    atomic_store(&race_over, false);
    atomic_store(&echoes_open, PEERS);
    for (int i = 0; i < WORKERS; i++) assert_int_equal(ls_thread_start(&threads[i], "echo", race_main, place), LS_OK);
    for (int i = 0; i < PEERS; i++) {
        net_tcp_pair(&ours, &theirs[i]);
        echoes[i] = (echo){.in = {.done = echo_received}, .out = {.done = echo_sent}, .start = {.done = echo_start}};
        echoes[i].sock = net_attach(place, ours, true);
        if (i & 1)
            echo_start(&place->ctx, &echoes[i].start);
        else
            ls_port_post(place->port, &echoes[i].start, 0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        const size_t len = round % 3 ? 1 + (size_t)round : LEN;
        for (int i = 0; i < PEERS; i++) net_write(theirs[i], bytes, len);
        for (int i = 0; i < PEERS; i++) {
            net_read(theirs[i], got, len);
            assert_memory_equal(got, bytes, len);
        }
    }
    for (int i = 0; i < PEERS; i++) close(theirs[i]);
    for (int ms = 0; atomic_load(&echoes_open) > 0 && ms < 5000; ms++) ls_clock_sleep_ms(1);
    assert_int_equal(atomic_load(&echoes_open), 0);
    atomic_store(&race_over, true);
    for (int i = 0; i < WORKERS; i++) ls_thread_join(&threads[i]);
    free(bytes);
}
