/* test_workers.c - every packet runs once; a stalled worker is replaced, its remaining packets are requeued, and it
 * idles when it returns. */
#include "port/port_fixture.h"

#include "base/clock.h"
#include "base/os/thread.h"
#include "sched/workers_internal.h"

enum { PATIENCE_MS = 60000 };

typedef struct workers_place {
    net_place net;
    ls_workers *workers;
} workers_place;

/* ---- handlers and counters ------------------------------------------------------------------------------------- */

typedef struct job {
    ls_op op;
    _Atomic int runs, order; /* order: number of jobs that ran before */
    _Atomic unsigned ctx;
    _Atomic bool inside, release; /* for a job that blocks until release is set */
} job;

static _Atomic int jobs_run, jobs_inside, jobs_inside_most, user_packets_run, stall_calls;
static _Atomic unsigned stalled_ctx;
static _Atomic uint32_t stalled_ms_most;

static void job_quick(ls_thread_ctx *ctx, ls_op *op)
{
    job *j = LS_CONTAINER(op, job, op);
    atomic_store(&j->ctx, ctx->index);
    atomic_store(&j->order, atomic_load(&jobs_run));
    atomic_fetch_add(&j->runs, 1);
    atomic_fetch_add(&jobs_run, 1); /* last: the test may use the job again */
}

static void job_counted(ls_thread_ctx *ctx, ls_op *op) /* counts how many run concurrently */
{
    const int now = atomic_fetch_add(&jobs_inside, 1) + 1;
    int most = atomic_load(&jobs_inside_most);
    while (now > most && !atomic_compare_exchange_weak(&jobs_inside_most, &most, now)) {
        /* the exchange failed and has read `most` again */
    }
    ls_clock_sleep_ms(1);
    atomic_fetch_sub(&jobs_inside, 1);
    job_quick(ctx, op);
}

static void job_blocking(ls_thread_ctx *ctx, ls_op *op)
{
    job *j = LS_CONTAINER(op, job, op);
    atomic_store(&j->ctx, ctx->index);
    atomic_store(&j->inside, true);
    while (!atomic_load(&j->release)) ls_clock_sleep_ms(1);
    atomic_store(&j->inside, false);
    job_quick(ctx, op);
}

static void take_user_packet(ls_thread_ctx *ctx, const ls_packet *packet)
{
    if (packet->op != NULL || packet->result != 7) abort();
    atomic_fetch_add(&user_packets_run, 1);
}

static uint64_t count_stall(ls_thread_ctx *ctx, uint32_t ms, void *user)
{
    uint32_t most = atomic_load(&stalled_ms_most);
    if (user != &stall_calls || ms == 0) abort();
    atomic_store(&stalled_ctx, ctx->index);
    if (ms > most) atomic_store(&stalled_ms_most, ms);
    atomic_fetch_add(&stall_calls, 1);
    return UINT64_MAX; /* it computes */
}

static _Atomic int idle_calls, busy_calls;

static bool count_tick(bool idle, void *user)
{
    if (user != &stall_calls) abort();
    atomic_fetch_add(idle ? &idle_calls : &busy_calls, 1);
    return false;
}

static _Atomic int thread_ends;

static void count_thread_end(ls_thread_ctx *ctx, void *user)
{
    if (user != &stall_calls || ctx == NULL) abort();
    atomic_fetch_add(&thread_ends, 1);
}

static uint32_t standby_idle_ms_max; /* 0: the default */

static void stop_and_join(ls_workers *workers, uint32_t ms)
{
    ls_workers_stop(workers);
    assert_true(ls_workers_join(workers, ms));
}

static void workers_place_open(workers_place *place, unsigned threads, unsigned threads_max)
{
    const ls_workers_options options = {.threads = threads,
                                        .threads_max = threads_max,
                                        .standby_idle_ms_max = standby_idle_ms_max,
                                        .on_user_packet = take_user_packet,
                                        .on_stall = count_stall,
                                        .on_tick = count_tick,
                                        .on_thread_end = count_thread_end,
                                        .user = &stall_calls};
    atomic_store(&jobs_run, 0);
    atomic_store(&jobs_inside_most, 0);
    atomic_store(&user_packets_run, 0);
    atomic_store(&stall_calls, 0);
    atomic_store(&thread_ends, 0);
    atomic_store(&stalled_ms_most, 0);
    net_place_open(&place->net);
    assert_int_equal(ls_workers_open(place->net.port, place->net.pools, &options, &place->workers), LS_OK);
}

static void workers_place_close(workers_place *place)
{
    ls_workers_close(place->workers);
    net_place_close(&place->net);
}

static void post(workers_place *place, job *j, ls_op_fn *done)
{
    *j = (job){.op = {.done = done}};
    ls_port_post(place->net.port, &j->op, 0);
}

#define EVENTUALLY(condition)                                                                               \
    do {                                                                                                    \
        for (int waited_ms = 0; !(condition) && waited_ms < PATIENCE_MS; waited_ms++) ls_clock_sleep_ms(1); \
        assert_true(condition);                                                                             \
    } while (0)

static ls_workers_stats stat_of(workers_place *place)
{
    ls_workers_stats stats;
    ls_workers_stat(place->workers, &stats);
    return stats;
}

/* ---- tests
 * ------------------------------------------------------------------------------------------------------- */

TEST_IN(workers_place, place, workers_that_never_started_can_be_closed, 3, 5)
{
    assert_int_equal(ls_workers_ctx(place->workers, 2)->index, 2);
    stop_and_join(place->workers, 0);
}

TEST_IN(workers_place, place, every_packet_runs_once, 3, 5)
{
    enum { N = 20000, USER_PACKETS = 100 };
    static job jobs[N];
    for (int i = 0; i < N / 2; i++) post(place, &jobs[i], job_quick); /* before the start: whole batches */
    assert_int_equal(ls_workers_start(place->workers), LS_OK);
    for (int i = N / 2; i < N; i++) {
        post(place, &jobs[i], job_quick);
        if (i % (N / 2 / USER_PACKETS) == 0) assert_int_equal(ls_port_post_key(place->net.port, place, 7), LS_OK);
    }
    EVENTUALLY(atomic_load(&jobs_run) == N && atomic_load(&user_packets_run) == USER_PACKETS);
    ls_workers_stop(place->workers);
    ls_workers_stop(place->workers); /* again is harmless */
    assert_true(ls_workers_join(place->workers, PATIENCE_MS));
    for (int i = 0; i < N; i++) assert_int_equal(atomic_load(&jobs[i].runs), 1);
    ls_workers_stats stats = stat_of(place);
    assert_true(atomic_load(&stats.sum.packets) >= N + USER_PACKETS);
}

/* One running thread; the first packet of its first batch blocks. All later packets run meanwhile, including the user
 * packet. */
TEST_IN(workers_place, place, a_blocked_worker_is_replaced_and_its_batch_requeued, 1, 2)
{
    job blocking, behind[LS_WAIT_PACKETS_MAX - 2], later[10];
    post(place, &blocking, job_blocking);
    for (int i = 0; i < LS_WAIT_PACKETS_MAX - 2; i++) post(place, &behind[i], job_quick);
    assert_int_equal(ls_port_post_key(place->net.port, place, 7), LS_OK);
    for (int i = 0; i < 10; i++) post(place, &later[i], job_quick);
    assert_int_equal(ls_workers_start(place->workers), LS_OK);

    EVENTUALLY(atomic_load(&jobs_run) == LS_WAIT_PACKETS_MAX - 2 + 10 && atomic_load(&user_packets_run) == 1);
    assert_true(atomic_load(&blocking.inside));
    assert_int_equal(stat_of(place).stalled, 1);
    assert_int_equal(stat_of(place).standbys_released, 1);
    EVENTUALLY(atomic_load(&stalled_ms_most) >= 4 * LS_STALL_MS); /* reported again while it lasts */
    EVENTUALLY(atomic_load(&stall_calls) >= 2);
    assert_int_equal(atomic_load(&stalled_ctx), atomic_load(&blocking.ctx));

    atomic_store(&blocking.release, true);
    EVENTUALLY(stat_of(place).stalled == 0);
    stop_and_join(place->workers, PATIENCE_MS);
}

/* When the stalled worker returns, one of the two becomes idle: afterwards no two jobs run concurrently. */
TEST_IN(workers_place, place, an_excess_worker_idles_after_a_stall, 1, 3)
{
    enum { N = 16 };
    job blocking, first[8], jobs[N];
    assert_int_equal(ls_workers_start(place->workers), LS_OK);
    for (int round = 1; round <= 3; round++) {
        post(place, &blocking, job_blocking);
        EVENTUALLY(stat_of(place).stalled == 1);
        atomic_store(&blocking.release, true);
        EVENTUALLY(atomic_load(&blocking.runs) == 1 && stat_of(place).stalled == 0);
        atomic_store(&jobs_run, 0);
        for (int i = 0; i < 8; i++)
            post(place, &first[i], job_counted); /* an excess worker may still take some of these */
        EVENTUALLY(atomic_load(&jobs_run) == 8);
        const uint64_t until_ns = ls_clock_ns() + PATIENCE_MS * UINT64_C(1000000);
        do { /* for some milliseconds two may run, and on a busy machine a job of 1 ms is a stall */
            atomic_store(&jobs_inside_most, 0);
            atomic_store(&jobs_run, 0);
            for (int i = 0; i < N; i++) post(place, &jobs[i], job_counted);
            EVENTUALLY(atomic_load(&jobs_run) == N);
        } while (atomic_load(&jobs_inside_most) != 1 && ls_clock_ns() < until_ns);
        assert_int_equal(atomic_load(&jobs_inside_most), 1);
    }
    stop_and_join(place->workers, PATIENCE_MS);
}

/* The standby threads of a stall end after it, also while no work follows, and the next stall starts new ones. With
 * the lower priority that on_stall asks for, a worker that returns goes on, or is replaced. */
TEST(standby_threads_end_and_start_again)
{
    enum { STANDBYS = 6 };
    job blocking[STANDBYS], last[2];
    workers_place place;
    standby_idle_ms_max = 20;
    workers_place_open(&place, 2, 2 + STANDBYS);
    standby_idle_ms_max = 0;
    assert_int_equal(ls_workers_start(place.workers), LS_OK);
    for (int round = 1; round <= 3; round++) {
        for (int i = 0; i < STANDBYS; i++) {
            post(&place, &blocking[i], job_blocking);
            EVENTUALLY(atomic_load(&blocking[i].inside));
        }
        EVENTUALLY(stat_of(&place).stalled == STANDBYS);
        for (int i = 0; i < STANDBYS; i++) atomic_store(&blocking[i].release, true);
        EVENTUALLY(stat_of(&place).stalled == 0);
        EVENTUALLY(atomic_load(&thread_ends) >= round * STANDBYS); /* each of them, or one that has a low priority */
    }
    unsigned others = 2;
    for (int tries = 0; others > 0 && tries < PATIENCE_MS / 10; tries++) { /* the first two threads run again */
        others = 0;
        for (int i = 0; i < 2; i++) {
            post(&place, &last[i], job_blocking);
            EVENTUALLY(atomic_load(&last[i].inside));
            others += atomic_load(&last[i].ctx) > 1;
        }
        for (int i = 0; i < 2; i++) atomic_store(&last[i].release, true);
        EVENTUALLY(atomic_load(&last[0].runs) == 1 && atomic_load(&last[1].runs) == 1);
    }
    assert_int_equal(others, 0);
    stop_and_join(place.workers, PATIENCE_MS);
    workers_place_close(&place);
}

/* ---- ops that run later ---------------------------------------------------------------------------------------- */

static struct later {
    int asked; /* number of jobs */
    int odd;   /* the job that has odd_done instead of job_quick */
    ls_op_fn *odd_done;
    ls_op *post;      /* NULL: nothing to post */
    ls_workers *stop; /* NULL: nothing to stop */
    job jobs[3 * LS_LATER_OPS_MAX];
} later;

static void job_slow(ls_thread_ctx *ctx, ls_op *op)
{
    ls_clock_sleep_ms(LS_LATER_MS_MAX + 1);
    job_quick(ctx, op);
}

static void run_later(ls_thread_ctx *ctx)
{
    for (int i = 0; i < later.asked; i++) {
        later.jobs[i] = (job){.op = {.done = i == later.odd && later.odd_done != NULL ? later.odd_done : job_quick}};
        ls_workers_later(ctx, &later.jobs[i].op);
    }
    if (later.post != NULL) ls_port_post(ctx->port, later.post, 0);
    if (later.stop != NULL) ls_workers_stop(later.stop);
}

static void job_first(ls_thread_ctx *ctx, ls_op *op)
{
    run_later(ctx);
    job_quick(ctx, op);
}

static void job_first_and_blocking(ls_thread_ctx *ctx, ls_op *op)
{
    run_later(ctx);
    job_blocking(ctx, op);
}

/* A job that is taken with `behind` packets runs `asked` others later and posts one, which runs behind those within
 * the limits. false: the watchdog has found a stall, on a busy machine. */
static bool later_order(int asked, int behind, int slow)
{
    job first, posted = {.op = {.done = job_quick}}, others[LS_WAIT_PACKETS_MAX];
    workers_place place;
    workers_place_open(&place, 1, 1);
    later = (struct later){.asked = asked, .odd = slow, .odd_done = slow > 0 ? job_slow : NULL, .post = &posted.op};
    post(&place, &first, job_first);
    for (int i = 0; i < behind; i++) post(&place, &others[i], job_quick);
    assert_int_equal(ls_workers_start(place.workers), LS_OK);
    EVENTUALLY(atomic_load(&jobs_run) == 1 + behind + asked + 1);
    stop_and_join(place.workers, PATIENCE_MS);
    workers_place_close(&place);
    if (atomic_load(&stalled_ms_most) >= LS_STALL_MS) return false;
    const int limit = slow > 0 ? slow + 1 : (1 + behind) * LS_LATER_OPS_MAX, turn = atomic_load(&posted.order);
    assert_in_range(turn, 1 + behind, 1 + behind + (asked < limit ? asked : limit));
    for (int i = 0, at = 1 + behind; i < asked; i++, at++)
        assert_int_equal(atomic_load(&later.jobs[i].order), at < turn ? at : at + 1);
    return true;
}

TEST(ops_run_later_in_their_order_behind_the_packets_of_the_wait)
{
    static const struct {
        int asked, behind, slow;
    } cases[] = {{1, 0, 0},
                 {3, 7, 0},
                 {LS_LATER_OPS_MAX, LS_WAIT_PACKETS_MAX - 1, 0},
                 {LS_LATER_OPS_MAX + 1, 0, 0},
                 {3 * LS_LATER_OPS_MAX, 1, 0},
                 {10, 0, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int tries = 100;
        while (!later_order(cases[i].asked, cases[i].behind, cases[i].slow)) assert_true(--tries > 0);
    }
}

TEST_IN(workers_place, place, a_thread_outside_of_a_packet_posts_what_it_runs_later, 1, 1)
{
    job work[2] = {{.op = {.done = job_quick}}, {.op = {.done = job_quick}}};
    ls_workers_later(&place->net.ctx, &work[0].op);                   /* no worker */
    ls_workers_later(ls_workers_ctx(place->workers, 0), &work[1].op); /* a worker without a thread */
    assert_int_equal(ls_workers_start(place->workers), LS_OK);
    EVENTUALLY(atomic_load(&jobs_run) == 2);
    stop_and_join(place->workers, PATIENCE_MS);
}

/* The ops of a handler that blocks, and then those behind an op that blocks. */
TEST_IN(workers_place, place, what_runs_later_does_not_wait_for_a_blocked_worker, 1, 2)
{
    enum { N = 100 };
    assert_int_equal(ls_workers_start(place->workers), LS_OK);
    for (int round = 0; round < 2; round++) {
        job first, *blocked = round == 0 ? &first : &later.jobs[0];
        atomic_store(&jobs_run, 0);
        later = (struct later){.asked = N, .odd_done = round == 0 ? NULL : job_blocking};
        post(place, &first, round == 0 ? job_first_and_blocking : job_first);
        EVENTUALLY(atomic_load(&jobs_run) == N);
        assert_true(atomic_load(&blocked->inside));
        atomic_store(&blocked->release, true);
        EVENTUALLY(atomic_load(&jobs_run) == N + 1 && stat_of(place).stalled == 0);
        for (int i = 0; i < N; i++) assert_int_equal(atomic_load(&later.jobs[i].runs), 1);
    }
    stop_and_join(place->workers, PATIENCE_MS);
}

TEST_IN(workers_place, place, a_stop_keeps_what_runs_later, 1, 1)
{
    enum { N = 100 };
    job first, behind;
    ls_packet packet;
    int found = 0;
    later = (struct later){.asked = N, .stop = place->workers};
    post(place, &first, job_first);
    post(place, &behind, job_quick);
    assert_int_equal(ls_workers_start(place->workers), LS_OK);
    assert_true(ls_workers_join(place->workers, PATIENCE_MS));
    assert_int_equal(atomic_load(&jobs_run), 1);
    for (; ls_port_wait(place->net.port, &place->net.ctx, &packet, 1, 0) == 1; found++)
        assert_int_equal(atomic_fetch_add(&LS_CONTAINER(packet.op, job, op)->runs, 1), 0);
    assert_int_equal(found, N + 1);
}

/* Ops that run themselves later, or post themselves, while a thread does all the time what the watchdog does when a
 * worker stalls. An op that runs twice finds `queued` false; one that is lost does not reach its number of runs. */
enum { RACERS = 300 };

static struct racer {
    ls_op op;
    _Atomic bool queued;
    int left;
} racers[RACERS];
static _Atomic int racers_left;

static void race(ls_thread_ctx *ctx, ls_op *op)
{
    struct racer *racer = LS_CONTAINER(op, struct racer, op);
    if (!atomic_exchange(&racer->queued, false)) abort();
    if (--racer->left == 0) {
        atomic_fetch_sub(&racers_left, 1);
        return;
    }
    atomic_store(&racer->queued, true);
    if (racer->left % 16 == 0)
        ls_port_post(ctx->port, op, 0);
    else
        ls_workers_later(ctx, op);
}

TEST_IN(workers_place, place, what_runs_later_runs_once_beside_a_watchdog, 3, 3)
{
    ls_workers *workers = place->workers;
    atomic_store(&racers_left, RACERS);
    assert_int_equal(ls_workers_start(workers), LS_OK);
    for (int i = 0; i < RACERS; i++) {
        racers[i] = (struct racer){.op = {.done = race}, .queued = true, .left = 200 + i};
        ls_port_post(place->net.port, &racers[i].op, 0);
    }
    const uint64_t end_ns = ls_clock_ns() + PATIENCE_MS * UINT64_C(1000000);
    for (unsigned round = 0; atomic_load(&racers_left) > 0 && ls_clock_ns() < end_ns; round++) {
        for (volatile unsigned pause = round % 64 * 16; pause > 0; pause--) continue; /* lists of every length */
        ls_mutex_lock(&workers->mutex);
        for (unsigned i = 0; i < 3; i++) ls_workers_requeue_unstarted(workers, &workers->array[i]);
        ls_mutex_unlock(&workers->mutex);
    }
    assert_int_equal(atomic_load(&racers_left), 0);
    stop_and_join(workers, PATIENCE_MS);
}

/* ---- the limit of threads -------------------------------------------------------------------------------------- */

TEST_IN(workers_place, place, several_blocked_workers_are_replaced_up_to_the_limit, 1, 3)
{
    job blocking[3], more;
    assert_int_equal(ls_workers_start(place->workers), LS_OK);
    for (int i = 0; i < 3; i++) {
        post(place, &blocking[i], job_blocking);
        EVENTUALLY(atomic_load(&blocking[i].inside));
    }
    EVENTUALLY(stat_of(place).stalled == 3);
    assert_true(stat_of(place).standbys_released >= 2); /* one may have idled before the third job came */
    post(place, &more, job_quick);
    ls_clock_sleep_ms(30);
    assert_int_equal(atomic_load(&more.runs), 0); /* no worker is left */
    atomic_store(&blocking[1].release, true);
    EVENTUALLY(atomic_load(&more.runs) == 1);
    assert_int_equal(atomic_load(&more.ctx), atomic_load(&blocking[1].ctx));
    atomic_store(&blocking[0].release, true);
    atomic_store(&blocking[2].release, true);
    EVENTUALLY(stat_of(place).stalled == 0);
    stop_and_join(place->workers, PATIENCE_MS);
}

/* After half a second without work the watchdog sleeps; the next packet wakes it, and it still detects a blocked
 * worker. */
TEST_IN(workers_place, place, a_packet_wakes_the_watchdog, 1, 2)
{
    job quick, blocking, behind;
    assert_int_equal(ls_workers_start(place->workers), LS_OK);
    for (int round = 0; round < 2; round++) {
        const int idle_before = atomic_load(&idle_calls);
        post(place, &quick, job_quick);
        EVENTUALLY(atomic_load(&quick.runs) == 1);
        EVENTUALLY(atomic_load(&idle_calls) > idle_before);
        post(place, &blocking, job_blocking);
        EVENTUALLY(atomic_load(&blocking.inside));
        post(place, &behind, job_quick);
        EVENTUALLY(atomic_load(&behind.runs) == 1);
        atomic_store(&blocking.release, true);
        EVENTUALLY(atomic_load(&blocking.runs) == 1);
    }
    stop_and_join(place->workers, PATIENCE_MS);
}

TEST_IN(workers_place, place, a_stop_waits_for_the_current_packet_and_keeps_the_others, 2, 2)
{
    enum { N = 25 };
    job blocking[2], left[N];
    ls_packet packet;
    int found = 0;
    assert_int_equal(ls_workers_start(place->workers), LS_OK);
    for (int i = 0; i < 2; i++) post(place, &blocking[i], job_blocking);
    EVENTUALLY(atomic_load(&blocking[0].inside) && atomic_load(&blocking[1].inside));
    for (int i = 0; i < N; i++) post(place, &left[i], job_quick);
    ls_workers_stop(place->workers);
    assert_false(ls_workers_join(place->workers, 30));
    EVENTUALLY(atomic_load(&stall_calls) > 0); /* the watchdog continues: a handler may have to be interrupted */
    atomic_store(&blocking[0].release, true);
    assert_false(ls_workers_join(place->workers, 30));
    atomic_store(&blocking[1].release, true);
    assert_true(ls_workers_join(place->workers, PATIENCE_MS));
    assert_int_equal(atomic_load(&jobs_run), 2);
    while (ls_port_wait(place->net.port, &place->net.ctx, &packet, 1, 0) == 1) {
        job *j = LS_CONTAINER(packet.op, job, op);
        assert_int_equal(atomic_fetch_add(&j->runs, 1), 0);
        found++;
    }
    assert_int_equal(found, N);
}

/* A worker that waits has passed at once; one inside a packet passes when it has ended it, not when a new one begins
 * on another worker. */
TEST_IN(workers_place, place, a_snapshot_is_passed_when_every_worker_has_left_its_packet, 2, 3)
{
    job blocking[2], quick;
    uint64_t turns[3];
    ls_workers_snapshot(place->workers, turns);
    assert_true(ls_workers_passed(place->workers, turns)); /* no worker runs */
    assert_int_equal(ls_workers_start(place->workers), LS_OK);
    for (int i = 0; i < 2; i++) {
        post(place, &blocking[i], job_blocking);
        EVENTUALLY(atomic_load(&blocking[i].inside));
    }
    ls_workers_snapshot(place->workers, turns);
    assert_false(ls_workers_passed(place->workers, turns));
    post(place, &quick, job_quick); /* the standby thread runs it */
    EVENTUALLY(atomic_load(&quick.runs) == 1);
    assert_false(ls_workers_passed(place->workers, turns));
    atomic_store(&blocking[0].release, true);
    EVENTUALLY(atomic_load(&blocking[0].runs) == 1);
    assert_false(ls_workers_passed(place->workers, turns));
    atomic_store(&blocking[1].release, true);
    EVENTUALLY(ls_workers_passed(place->workers, turns));
    assert_true(ls_workers_passed(place->workers, turns)); /* for ever */
    stop_and_join(place->workers, PATIENCE_MS);
}

/* A worker that runs packets all the time passes too, between two packets of one batch. Each packet reads an object
 * through an atomic pointer, as the packets of a server find their handler; the objects are freed after a snapshot, so
 * that a sanitizer sees a packet that reads one too late. */
static _Atomic(int *) shared_object;
static _Atomic bool readers_end;

static void job_reader(ls_thread_ctx *ctx, ls_op *op)
{
    const int *object = atomic_load_explicit(&shared_object, memory_order_acquire);
    for (int i = 0; i < 100; i++) assert_int_equal(*(const volatile int *)object, 42);
    if (!atomic_load(&readers_end))
        (ctx->index == 0 ? ls_workers_later(ctx, op) : ls_port_post(ctx->port, op, 0));
    else
        job_quick(ctx, op);
}

TEST(an_object_may_be_freed_after_a_passed_snapshot)
{
    enum { READERS = 40, ROUNDS = 200 };
    job readers[READERS];
    workers_place place;
    uint64_t turns[5];
    int *object = malloc(sizeof *object);
    *object = 42;
    atomic_store(&shared_object, object);
    atomic_store(&readers_end, false);
    workers_place_open(&place, 2, 5);
    assert_int_equal(ls_workers_start(place.workers), LS_OK);
    for (int i = 0; i < READERS; i++) post(&place, &readers[i], job_reader);
    for (int round = 0; round < ROUNDS; round++) {
        int *next = malloc(sizeof *next);
        *next = 42;
        int *before = atomic_exchange(&shared_object, next);
        ls_workers_snapshot(place.workers, turns);
        EVENTUALLY(ls_workers_passed(place.workers, turns));
        *before = 0;
        free(before);
    }
    atomic_store(&readers_end, true);
    EVENTUALLY(atomic_load(&jobs_run) == READERS);
    stop_and_join(place.workers, PATIENCE_MS);
    workers_place_close(&place);
    free(atomic_load(&shared_object));
}

TEST(idle_workers_end_immediately)
{
    workers_place place;
    for (int i = 0; i < 20; i++) {
        workers_place_open(&place, 1 + (unsigned)i % 4, 8);
        assert_int_equal(ls_workers_start(place.workers), LS_OK);
        if (i % 2) ls_clock_sleep_ms(2);
        stop_and_join(place.workers, PATIENCE_MS);
        workers_place_close(&place);
    }
}

/* Handlers of every length around the limit, posted from inside, while another thread reads the statistics. */
static _Atomic int mix_left;

static void job_mixed(ls_thread_ctx *ctx, ls_op *op)
{
    static _Atomic unsigned dice;
    const unsigned throw = atomic_fetch_add(&dice, 1) * 2654435761u >> 24;
    if (throw < 4) ls_clock_sleep_ms(3 + throw *3);
    job *j = LS_CONTAINER(op, job, op);
    atomic_fetch_add(&j->runs, 1);
    if (atomic_fetch_sub(&mix_left, 1) > 64) ls_port_post(ctx->port, op, 0);
}

TEST_IN(workers_place, place, stalled_and_quick_handlers_mixed, 2, 6)
{
    static job jobs[64];
    int runs = 0;
    const int total = 6000;
    atomic_store(&mix_left, total);
    assert_int_equal(ls_workers_start(place->workers), LS_OK);
    for (int i = 0; i < 64; i++) post(place, &jobs[i], job_mixed);
    EVENTUALLY(stat_of(place).stalled <= 6 && atomic_load(&mix_left) <= 0);
    stop_and_join(place->workers, PATIENCE_MS);
    for (int i = 0; i < 64; i++) runs += atomic_load(&jobs[i].runs);
    assert_int_equal(runs, total);
    assert_int_equal(stat_of(place).stalled, 0);
}

/* on_tick reports idle once per idle period, and work continues afterwards. */
TEST_IN(workers_place, place, idleness_is_reported_once, 2, 2)
{
    job work;
    assert_int_equal(ls_workers_start(place->workers), LS_OK);
    for (int round = 1; round <= 2; round++) {
        const int before = atomic_load(&idle_calls);
        post(place, &work, job_quick);
        EVENTUALLY(atomic_load(&jobs_run) == round && atomic_load(&idle_calls) == before + 1);
    }
    stop_and_join(place->workers, 0);
}

/* While a worker is busy the ticks continue, and none reports idle. */
TEST_IN(workers_place, place, ticks_continue_while_workers_are_busy, 1, 2)
{
    job work;
    assert_int_equal(ls_workers_start(place->workers), LS_OK);
    post(place, &work, job_blocking);
    EVENTUALLY(atomic_load(&work.inside));
    const int idle_before = atomic_load(&idle_calls), busy_before = atomic_load(&busy_calls);
    EVENTUALLY(atomic_load(&busy_calls) >= busy_before + 2);
    assert_int_equal(atomic_load(&idle_calls), idle_before);
    atomic_store(&work.release, true);
    EVENTUALLY(atomic_load(&idle_calls) == idle_before + 1);
    stop_and_join(place->workers, 0);
}

/* A packet now and then, as of a fast timer: its scans alone were counted, so 200 packets were one tick. */
TEST_IN(workers_place, place, ticks_follow_the_time_not_the_packets, 1, 2)
{
    job work;
    int packets = 0;
    assert_int_equal(ls_workers_start(place->workers), LS_OK);
    const int before = atomic_load(&busy_calls);
    for (; atomic_load(&busy_calls) == before && packets < 100; packets++) {
        post(place, &work, job_quick);
        EVENTUALLY(atomic_load(&jobs_run) == packets + 1);
        ls_clock_sleep_ms(40);
    }
    assert_in_range(packets, 1, 99);
    stop_and_join(place->workers, 0);
}

/* ---- threads that do not start
 * ------------------------------------------------------------------------------------ */

static int starts_left = -1; /* starts until one fails; negative: none fails */

typedef int start_fn(ls_thread *thread, const char *name, ls_thread_fn *fn, void *arg);
start_fn __real_ls_thread_start, __wrap_ls_thread_start;               /* NOLINT(*-reserved-*) */
start_fn __real_ls_thread_start_parent, __wrap_ls_thread_start_parent; /* NOLINT(*-reserved-*) */

static int start_or_fail(start_fn *start, ls_thread *thread, const char *name, ls_thread_fn *fn, void *arg)
{
    if (starts_left >= 0 && starts_left-- == 0) return LS_ENOMEM;
    return start(thread, name, fn, arg);
}

int __wrap_ls_thread_start(ls_thread *thread, const char *name, ls_thread_fn *fn, void *arg) /* NOLINT(*-reserved-*) */
{
    return start_or_fail(__real_ls_thread_start, thread, name, fn, arg);
}

int __wrap_ls_thread_start_parent(ls_thread *thread, const char *name, ls_thread_fn *fn, /* NOLINT(*-reserved-*) */
                                  void *arg)
{
    return start_or_fail(__real_ls_thread_start_parent, thread, name, fn, arg);
}

/* At each thread in turn (workers, watchdog): the started ones end, and posted packets stay in the port. */
TEST(a_start_that_fails_halfway_leaves_no_thread)
{
    enum { THREADS = 2, THREADS_MAX = 4 };
    for (int k = 0; k <= THREADS; k++) {
        workers_place place;
        job work;
        workers_place_open(&place, THREADS, THREADS_MAX);
        starts_left = k;
        assert_int_equal(ls_workers_start(place.workers), LS_ENOMEM);
        assert_int_equal(starts_left, -1);
        post(&place, &work, job_quick);
        assert_true(ls_workers_join(place.workers, 0)); /* no thread is left */
        assert_int_equal(atomic_load(&jobs_run), 0);
        ls_packet packet = {0};
        while (packet.op != &work.op)
            assert_int_equal(ls_port_wait(place.net.port, &place.net.ctx, &packet, 1, PATIENCE_MS), 1);
        workers_place_close(&place);
    }
}

TEST_IN(workers_place, place, a_standby_thread_that_cannot_start_is_tried_again, 1, 2)
{
    job blocking, quick;
    assert_int_equal(ls_workers_start(place->workers), LS_OK);
    starts_left = 0;
    post(place, &blocking, job_blocking);
    post(place, &quick, job_quick);
    EVENTUALLY(atomic_load(&quick.runs) == 1);
    assert_int_equal(starts_left, -1);
    atomic_store(&blocking.release, true);
    EVENTUALLY(atomic_load(&blocking.runs) == 1);
    stop_and_join(place->workers, PATIENCE_MS);
}
