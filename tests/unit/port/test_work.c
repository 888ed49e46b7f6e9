/* test_work.c - calls on the threads of a port, as work.h promises them. */
#include "port_fixture.h"

#include "base/os/thread.h"
#include "port/work.h"
#include "sched/actor.h"

enum { MANY = 300 };

/* ---- work that waits at a gate
 * ------------------------------------------------------------------------------------ */

static struct {
    ls_mutex mutex;
    ls_cond changed;
    bool shut;
    unsigned inside;            /* threads that wait at it */
    unsigned runs, first[MANY]; /* numbers of the work in the order of its begin */
} gate;

typedef struct piece {
    ls_work work;
    unsigned number;
} piece;

static int64_t pass(ls_work *work)
{
    const piece *p = (piece *)(void *)work;
    ls_mutex_lock(&gate.mutex);
    gate.first[gate.runs++] = p->number;
    gate.inside++;
    ls_cond_broadcast(&gate.changed);
    while (gate.shut) ls_cond_wait(&gate.changed, &gate.mutex);
    gate.inside--;
    ls_mutex_unlock(&gate.mutex);
    return (int64_t)p->number * 7919 - 3;
}

static void gate_set(bool shut)
{
    ls_mutex_lock(&gate.mutex);
    gate.shut = shut;
    gate.runs = 0;
    ls_cond_broadcast(&gate.changed);
    ls_mutex_unlock(&gate.mutex);
}

static void gate_await(unsigned inside)
{
    ls_mutex_lock(&gate.mutex);
    while (gate.inside < inside) ls_cond_wait(&gate.changed, &gate.mutex);
    ls_mutex_unlock(&gate.mutex);
}

/* ---- threads without patience, or that cannot be started
 * ----------------------------------------------------------- */

static bool no_threads;
static _Atomic bool impatient; /* a wait with a time ends at once */
static _Atomic unsigned threads_started;

bool __real_ls_cond_wait_ms(ls_cond *cond, ls_mutex *mutex, uint32_t ms);

bool __wrap_ls_cond_wait_ms(ls_cond *cond, ls_mutex *mutex, uint32_t ms)
{
    return !impatient && __real_ls_cond_wait_ms(cond, mutex, ms);
}

int __real_ls_thread_start(ls_thread *thread, const char *name, ls_thread_fn *fn, void *arg);

int __wrap_ls_thread_start(ls_thread *thread, const char *name, ls_thread_fn *fn, void *arg)
{
    threads_started++;
    return no_threads ? LS_ENOMEM : __real_ls_thread_start(thread, name, fn, arg);
}

/* ---- help
 * ---------------------------------------------------------------------------------------------------------- */

static void never_done(ls_thread_ctx *ctx, ls_op *op)
{
    fail(); /* the tests take packets themselves */
}

static int called;

static void count_called(ls_thread_ctx *ctx, ls_op *op)
{
    called++;
}

static void piece_init(piece *p, unsigned number)
{
    *p = (piece){.work = {.op = {.done = never_done}, .run = pass}, .number = number};
}

/* Take the packet of one of the pieces. */
static piece *take(net_place *place)
{
    const ls_packet packet = net_next(place);
    assert_non_null(packet.op);
    piece *p = LS_CONTAINER(packet.op, piece, work.op);
    assert_int_equal(packet.result, (int64_t)p->number * 7919 - 3);
    assert_int_equal(packet.result, atomic_load(&packet.op->result));
    return p;
}

/* ---- the tests
 * ----------------------------------------------------------------------------------------------------- */

TEST_IN(net_place, place, every_piece_has_one_packet_with_its_result)
{
    static piece pieces[MANY];
    bool seen[MANY] = {false};
    gate_set(false);
    for (unsigned i = 0; i < MANY; i++) {
        piece_init(&pieces[i], i);
        assert_int_equal(ls_port_work(place->port, &pieces[i].work), LS_PENDING);
    }
    for (unsigned i = 0; i < MANY; i++) {
        const piece *p = take(place);
        assert_false(seen[p->number]);
        seen[p->number] = true;
    }
    net_quiet(place, 0);
}

TEST(the_pool_is_bounded_and_begins_in_order)
{
    enum { POSTED = LS_WORK_THREADS_MAX + 3 };
    piece pieces[POSTED];
    net_place place;
    unsigned seen = 0;
    net_place_open(&place);
    gate_set(true);
    for (unsigned i = 0; i < POSTED; i++) {
        piece_init(&pieces[i], i);
        assert_int_equal(ls_port_work(place.port, &pieces[i].work), LS_PENDING);
        if (i < LS_WORK_THREADS_MAX) gate_await(i + 1);
    }
    net_quiet(&place, 20);
    assert_int_equal(gate.inside, LS_WORK_THREADS_MAX);
    for (unsigned i = 0; i < LS_WORK_THREADS_MAX; i++) assert_int_equal(gate.first[i], i);
    gate_set(false);
    for (unsigned i = 0; i < POSTED; i++) seen |= 1u << take(&place)->number;
    assert_int_equal(seen, (1u << POSTED) - 1);

    /* One thread at a time: the others cannot be started. */
    net_place_close(&place);
    net_place_open(&place);
    gate_set(true);
    piece_init(&pieces[0], 0);
    assert_int_equal(ls_port_work(place.port, &pieces[0].work), LS_PENDING);
    gate_await(1);
    no_threads = true;
    for (unsigned i = 1; i < POSTED; i++) {
        piece_init(&pieces[i], i);
        assert_int_equal(ls_port_work(place.port, &pieces[i].work), LS_PENDING);
    }
    gate_set(false);
    for (unsigned i = 0; i < POSTED; i++) assert_int_equal(take(&place)->number, i);
    no_threads = false;
    net_place_close(&place);
}

TEST_IN(net_place, place, without_a_thread_nothing_is_posted)
{
    piece p;
    gate_set(false);
    piece_init(&p, 1);
    no_threads = true;
    assert_int_equal(ls_port_work(place->port, &p.work), LS_ENOMEM);
    no_threads = false;
    net_quiet(place, 0);
    assert_int_equal(ls_port_work(place->port, &p.work), LS_PENDING);
    (void)take(place);
}

TEST_IN(net_place, place, a_thread_that_idles_ends_and_another_begins)
{
    piece p;
    impatient = true;
    threads_started = 0;
    while (threads_started < 3 * LS_WORK_THREADS_MAX) { /* each place is used again */
        gate_set(false);
        piece_init(&p, 1);
        assert_int_equal(ls_port_work(place->port, &p.work), LS_PENDING);
        (void)take(place);
    }
    impatient = false;
}

/* What runs is waited for, what does not is dropped; the memory of both is the caller's again. */
TEST(a_port_that_closes_ends_what_is_pending)
{
    enum { POSTED = 12 };
    piece *pieces[POSTED];
    net_place place;
    net_place_open(&place);
    gate_set(true);
    for (unsigned i = 0; i < POSTED; i++) {
        pieces[i] = malloc(sizeof *pieces[i]);
        piece_init(pieces[i], i);
        assert_int_equal(ls_port_work(place.port, &pieces[i]->work), LS_PENDING);
    }
    gate_await(LS_WORK_THREADS_MAX);
    gate_set(false);
    ls_port_close(place.port);
    assert_int_equal(gate.inside, 0);
    for (int i = 0; i < POSTED; i++) free(pieces[i]);
    ls_pool_close(place.ctx.pool);
    ls_pools_close(place.pools);
}

TEST_IN(net_place, place, packets_are_dispatched_like_all_others)
{
    piece p;
    gate_set(false);
    piece_init(&p, 1);
    p.work.op.done = count_called;
    called = 0;
    assert_int_equal(ls_port_work(place->port, &p.work), LS_PENDING);
    const ls_packet packet = net_next(place);
    ls_packet_dispatch(&place->ctx, &packet);
    assert_int_equal(called, 1);
}

int main(void)
{
    ls_mutex_open(&gate.mutex);
    ls_cond_open(&gate.changed);
    return test_run(NULL, NULL);
}
