/* test_crew.c - every packet once; a slow worker is replaced, loses what it has not begun, and makes room again. */
#include "port/net_help.h"

#include "base/thread.h"
#include "sched/crew.h"

enum { PATIENCE_MS = 5000 };

typedef struct crew_place {
    net_place net;
    ls_crew *crew;
} crew_place;

/* ---- what the handlers do and count ---------------------------------------------------------------------------- */

typedef struct job {
    ls_op op;
    _Atomic int runs;
    _Atomic unsigned seat;
    _Atomic bool inside, release; /* of a job that blocks until it is released */
} job;

static _Atomic int jobs_run, jobs_inside, jobs_inside_most, bare_run, slow_calls;
static _Atomic unsigned slow_seat;
static _Atomic uint32_t slow_ms_most;

static void job_quick(ls_seat *seat, ls_op *op)
{
    job *j = LS_CONTAINER(op, job, op);
    atomic_store(&j->seat, seat->index);
    atomic_fetch_add(&j->runs, 1);
    atomic_fetch_add(&jobs_run, 1);
}

static void job_counted(ls_seat *seat, ls_op *op) /* sees how many run at one time */
{
    const int now = atomic_fetch_add(&jobs_inside, 1) + 1;
    int most = atomic_load(&jobs_inside_most);
    while (now > most && !atomic_compare_exchange_weak(&jobs_inside_most, &most, now)) {
        /* `most` was read again */
    }
    ls_clock_sleep_ms(1);
    atomic_fetch_sub(&jobs_inside, 1);
    job_quick(seat, op);
}

static void job_blocking(ls_seat *seat, ls_op *op)
{
    job *j = LS_CONTAINER(op, job, op);
    atomic_store(&j->seat, seat->index);
    atomic_store(&j->inside, true);
    while (!atomic_load(&j->release)) ls_clock_sleep_ms(1);
    atomic_store(&j->inside, false);
    job_quick(seat, op);
}

static void take_bare(ls_seat *seat, const ls_packet *packet)
{
    (void)seat;
    if (packet->op != NULL || packet->result != 7) abort();
    atomic_fetch_add(&bare_run, 1);
}

static void told_slow(ls_seat *seat, uint32_t ms, void *user)
{
    uint32_t most = atomic_load(&slow_ms_most);
    if (user != &slow_calls || ms < LS_SLOW_MS) abort();
    atomic_store(&slow_seat, seat->index);
    if (ms > most) atomic_store(&slow_ms_most, ms);
    atomic_fetch_add(&slow_calls, 1);
}

static _Atomic int idle_calls, busy_calls;

static void told_pulse(bool idle, void *user)
{
    if (user != &slow_calls) abort();
    atomic_fetch_add(idle ? &idle_calls : &busy_calls, 1);
}

static void place_open(crew_place *place, unsigned threads, unsigned threads_max)
{
    const ls_crew_options options = {.threads = threads,
                                     .threads_max = threads_max,
                                     .bare = take_bare,
                                     .slow = told_slow,
                                     .pulse = told_pulse,
                                     .user = &slow_calls};
    atomic_store(&jobs_run, 0);
    atomic_store(&jobs_inside_most, 0);
    atomic_store(&bare_run, 0);
    atomic_store(&slow_calls, 0);
    atomic_store(&slow_ms_most, 0);
    net_open(&place->net);
    assert_int_equal(ls_crew_open(place->net.port, place->net.pools, &options, &place->crew), LS_OK);
}

static void place_close(crew_place *place)
{
    ls_crew_close(place->crew);
    net_close(&place->net);
}

static void post(crew_place *place, job *j, ls_op_fn *done)
{
    *j = (job){.op = {.done = done}};
    assert_int_equal(ls_port_post(place->net.port, &j->op, NULL, 0), LS_OK);
}

#define EVENTUALLY(condition)                                                                               \
    do {                                                                                                    \
        for (int waited_ms = 0; !(condition) && waited_ms < PATIENCE_MS; waited_ms++) ls_clock_sleep_ms(1); \
        assert_true(condition);                                                                             \
    } while (0)

static ls_crew_stats stat_of(crew_place *place)
{
    ls_crew_stats stats;
    ls_crew_stat(place->crew, &stats);
    return stats;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void a_crew_that_never_started_can_be_closed(void **state)
{
    crew_place place;
    (void)state;
    place_open(&place, 1, 3);
    assert_int_equal(ls_crew_seat(place.crew, 2)->index, 2);
    ls_crew_stop(place.crew);
    assert_true(ls_crew_join(place.crew, 0));
    place_close(&place);
}

static void every_packet_runs_once(void **state)
{
    enum { N = 20000, BARE = 100 };
    static job jobs[N];
    crew_place place;
    (void)state;
    place_open(&place, 3, 5);
    for (int i = 0; i < N / 2; i++) post(&place, &jobs[i], job_quick); /* before the start: whole batches */
    assert_int_equal(ls_crew_start(place.crew), LS_OK);
    for (int i = N / 2; i < N; i++) {
        post(&place, &jobs[i], job_quick);
        if (i % (N / 2 / BARE) == 0) assert_int_equal(ls_port_post(place.net.port, NULL, &place, 7), LS_OK);
    }
    EVENTUALLY(atomic_load(&jobs_run) == N && atomic_load(&bare_run) == BARE);
    ls_crew_stop(place.crew);
    ls_crew_stop(place.crew); /* again is harmless */
    assert_true(ls_crew_join(place.crew, PATIENCE_MS));
    for (int i = 0; i < N; i++) assert_int_equal(atomic_load(&jobs[i].runs), 1);
    ls_crew_stats stats = stat_of(&place);
    assert_true(atomic_load(&stats.seats.packets) >= N + BARE);
    place_close(&place);
}

/* One running thread; the first packet of its first batch blocks. All that follow run meanwhile, the bare one too. */
static void a_blocked_worker_is_replaced_and_gives_its_batch_back(void **state)
{
    job blocking, behind[LS_WAIT_PACKETS_MAX - 2], later[10];
    crew_place place;
    (void)state;
    place_open(&place, 1, 2);
    post(&place, &blocking, job_blocking);
    for (int i = 0; i < LS_WAIT_PACKETS_MAX - 2; i++) post(&place, &behind[i], job_quick);
    assert_int_equal(ls_port_post(place.net.port, NULL, &place, 7), LS_OK);
    for (int i = 0; i < 10; i++) post(&place, &later[i], job_quick);
    assert_int_equal(ls_crew_start(place.crew), LS_OK);

    EVENTUALLY(atomic_load(&jobs_run) == LS_WAIT_PACKETS_MAX - 2 + 10 && atomic_load(&bare_run) == 1);
    assert_true(atomic_load(&blocking.inside));
    assert_int_equal(stat_of(&place).slow, 1);
    assert_int_equal(stat_of(&place).spares_released, 1);
    EVENTUALLY(atomic_load(&slow_ms_most) >= 4 * LS_SLOW_MS); /* told again while it lasts */
    assert_true(atomic_load(&slow_calls) >= 2);
    assert_int_equal(atomic_load(&slow_seat), atomic_load(&blocking.seat));

    atomic_store(&blocking.release, true);
    EVENTUALLY(stat_of(&place).slow == 0);
    ls_crew_stop(place.crew);
    assert_true(ls_crew_join(place.crew, PATIENCE_MS));
    place_close(&place);
}

/* When it is back, one of the two parks: afterwards no two run together. */
static void after_the_slow_one_is_back_one_too_many_parks(void **state)
{
    enum { N = 60 };
    job blocking, first[8], jobs[N];
    crew_place place;
    (void)state;
    place_open(&place, 1, 3);
    assert_int_equal(ls_crew_start(place.crew), LS_OK);
    for (int round = 1; round <= 3; round++) {
        post(&place, &blocking, job_blocking);
        EVENTUALLY(stat_of(&place).slow == 1);
        atomic_store(&blocking.release, true);
        EVENTUALLY(atomic_load(&blocking.runs) == 1 && stat_of(&place).slow == 0);
        atomic_store(&jobs_run, 0);
        for (int i = 0; i < 8; i++)
            post(&place, &first[i], job_counted); /* one too many may still take some of these */
        EVENTUALLY(atomic_load(&jobs_run) == 8);
        atomic_store(&jobs_inside_most, 0);
        atomic_store(&jobs_run, 0);
        const uint64_t released = stat_of(&place).spares_released;
        for (int i = 0; i < N; i++) post(&place, &jobs[i], job_counted);
        EVENTUALLY(atomic_load(&jobs_run) == N);
        if (stat_of(&place).spares_released == released) /* a 1 ms sleep was not taken for slow by a busy machine */
            assert_int_equal(atomic_load(&jobs_inside_most), 1);
    }
    ls_crew_stop(place.crew);
    assert_true(ls_crew_join(place.crew, PATIENCE_MS));
    place_close(&place);
}

static void several_blocked_workers_are_replaced_up_to_the_limit(void **state)
{
    job blocking[3], more;
    crew_place place;
    (void)state;
    place_open(&place, 1, 3);
    assert_int_equal(ls_crew_start(place.crew), LS_OK);
    for (int i = 0; i < 3; i++) {
        post(&place, &blocking[i], job_blocking);
        EVENTUALLY(atomic_load(&blocking[i].inside));
    }
    EVENTUALLY(stat_of(&place).slow == 3);
    assert_int_equal(stat_of(&place).spares_released, 2);
    post(&place, &more, job_quick);
    ls_clock_sleep_ms(30);
    assert_int_equal(atomic_load(&more.runs), 0); /* nobody is left */
    atomic_store(&blocking[1].release, true);
    EVENTUALLY(atomic_load(&more.runs) == 1);
    assert_int_equal(atomic_load(&more.seat), atomic_load(&blocking[1].seat));
    atomic_store(&blocking[0].release, true);
    atomic_store(&blocking[2].release, true);
    EVENTUALLY(stat_of(&place).slow == 0);
    ls_crew_stop(place.crew);
    assert_true(ls_crew_join(place.crew, PATIENCE_MS));
    place_close(&place);
}

/* After half a second of nothing the watch sleeps; the next packet wakes it, and it still notices a blocked worker. */
static void the_watch_wakes_up_again(void **state)
{
    job quick, blocking, behind;
    crew_place place;
    (void)state;
    place_open(&place, 1, 2);
    assert_int_equal(ls_crew_start(place.crew), LS_OK);
    for (int round = 0; round < 2; round++) {
        const int idle_before = atomic_load(&idle_calls);
        post(&place, &quick, job_quick);
        EVENTUALLY(atomic_load(&quick.runs) == 1);
        EVENTUALLY(atomic_load(&idle_calls) > idle_before);
        post(&place, &blocking, job_blocking);
        EVENTUALLY(atomic_load(&blocking.inside));
        post(&place, &behind, job_quick);
        EVENTUALLY(atomic_load(&behind.runs) == 1);
        atomic_store(&blocking.release, true);
        EVENTUALLY(atomic_load(&blocking.runs) == 1);
    }
    ls_crew_stop(place.crew);
    assert_true(ls_crew_join(place.crew, PATIENCE_MS));
    place_close(&place);
}

static void the_end_waits_for_the_packet_and_leaves_the_others_in_the_port(void **state)
{
    enum { N = 25 };
    job blocking[2], left[N];
    ls_packet packet;
    crew_place place;
    int found = 0;
    (void)state;
    place_open(&place, 2, 2);
    assert_int_equal(ls_crew_start(place.crew), LS_OK);
    for (int i = 0; i < 2; i++) post(&place, &blocking[i], job_blocking);
    EVENTUALLY(atomic_load(&blocking[0].inside) && atomic_load(&blocking[1].inside));
    for (int i = 0; i < N; i++) post(&place, &left[i], job_quick);
    ls_crew_stop(place.crew);
    assert_false(ls_crew_join(place.crew, 30));
    EVENTUALLY(atomic_load(&slow_calls) > 0); /* the watch goes on: a handler may have to be ended */
    atomic_store(&blocking[0].release, true);
    assert_false(ls_crew_join(place.crew, 30));
    atomic_store(&blocking[1].release, true);
    assert_true(ls_crew_join(place.crew, PATIENCE_MS));
    assert_int_equal(atomic_load(&jobs_run), 2);
    while (ls_port_wait(place.net.port, &place.net.seat, &packet, 1, 0) == 1) {
        job *j = LS_CONTAINER(packet.op, job, op);
        assert_int_equal(atomic_fetch_add(&j->runs, 1), 0);
        found++;
    }
    assert_int_equal(found, N);
    place_close(&place);
}

static void a_parked_crew_ends_at_once(void **state)
{
    crew_place place;
    (void)state;
    for (int i = 0; i < 20; i++) {
        place_open(&place, 1 + (unsigned)i % 4, 8);
        assert_int_equal(ls_crew_start(place.crew), LS_OK);
        if (i % 2) ls_clock_sleep_ms(2);
        ls_crew_stop(place.crew);
        assert_true(ls_crew_join(place.crew, PATIENCE_MS));
        place_close(&place);
    }
}

/* Handlers of every length around the limit, posted from inside, while others read the statistics. */
static _Atomic int mix_left;

static void job_mixed(ls_seat *seat, ls_op *op)
{
    static _Atomic unsigned dice;
    const unsigned throw = atomic_fetch_add(&dice, 1) * 2654435761u >> 24;
    if (throw < 4) ls_clock_sleep_ms(3 + throw *3);
    job *j = LS_CONTAINER(op, job, op);
    atomic_fetch_add(&j->runs, 1);
    if (atomic_fetch_sub(&mix_left, 1) > 64) ls_port_post(seat->port, op, NULL, 0);
}

static void slow_and_quick_mixed(void **state)
{
    static job jobs[64];
    crew_place place;
    int runs = 0;
    (void)state;
    place_open(&place, 2, 6);
    const int total = 6000;
    atomic_store(&mix_left, total);
    assert_int_equal(ls_crew_start(place.crew), LS_OK);
    for (int i = 0; i < 64; i++) post(&place, &jobs[i], job_mixed);
    EVENTUALLY(stat_of(&place).slow <= 6 && atomic_load(&mix_left) <= 0);
    ls_crew_stop(place.crew);
    assert_true(ls_crew_join(place.crew, PATIENCE_MS));
    for (int i = 0; i < 64; i++) runs += atomic_load(&jobs[i].runs);
    assert_int_equal(runs, total);
    assert_int_equal(stat_of(&place).slow, 0);
    place_close(&place);
}

/* The crew says that it is idle once for each time that it was not, and work goes on afterwards. */
static void idleness_is_told_once(void **state)
{
    crew_place place;
    job work;
    (void)state;
    place_open(&place, 2, 2);
    assert_int_equal(ls_crew_start(place.crew), LS_OK);
    for (int round = 1; round <= 2; round++) {
        const int before = atomic_load(&idle_calls);
        post(&place, &work, job_quick);
        EVENTUALLY(atomic_load(&jobs_run) == round && atomic_load(&idle_calls) == before + 1);
    }
    ls_crew_stop(place.crew);
    assert_true(ls_crew_join(place.crew, 0));
    place_close(&place);
}

/* While somebody works the pulse goes on, and nobody is called idle. */
static void the_pulse_goes_on_beside_work(void **state)
{
    crew_place place;
    job work;
    (void)state;
    place_open(&place, 1, 2);
    assert_int_equal(ls_crew_start(place.crew), LS_OK);
    post(&place, &work, job_blocking);
    EVENTUALLY(atomic_load(&work.inside));
    const int idle_before = atomic_load(&idle_calls), busy_before = atomic_load(&busy_calls);
    EVENTUALLY(atomic_load(&busy_calls) >= busy_before + 2);
    assert_int_equal(atomic_load(&idle_calls), idle_before);
    atomic_store(&work.release, true);
    EVENTUALLY(atomic_load(&idle_calls) == idle_before + 1);
    ls_crew_stop(place.crew);
    assert_true(ls_crew_join(place.crew, 0));
    place_close(&place);
}

/* ---- threads that do not start ------------------------------------------------------------------------------------ */

static int starts_left = -1; /* then one fails; negative: none does */

int __real_ls_thread_start(ls_thread *thread, const char *name, ls_thread_fn *fn,
                           void *arg); /* NOLINT(*-reserved-*) */
int __wrap_ls_thread_start(ls_thread *thread, const char *name, ls_thread_fn *fn,
                           void *arg);                                                       /* NOLINT(*-reserved-*) */
int __wrap_ls_thread_start(ls_thread *thread, const char *name, ls_thread_fn *fn, void *arg) /* NOLINT(*-reserved-*) */
{
    if (starts_left >= 0 && starts_left-- == 0) return LS_ENOMEM;
    return __real_ls_thread_start(thread, name, fn, arg);
}

/* Any of the workers, the spares and the watch: those that had started end, and what was posted is still in the port. */
static void a_start_that_fails_halfway_leaves_no_thread(void **state)
{
    enum { THREADS = 2, THREADS_MAX = 4 };
    (void)state;
    for (int k = 0; k <= THREADS_MAX; k++) {
        crew_place place;
        job work;
        place_open(&place, THREADS, THREADS_MAX);
        starts_left = k;
        assert_int_equal(ls_crew_start(place.crew), LS_ENOMEM);
        assert_int_equal(starts_left, -1);
        post(&place, &work, job_quick);
        assert_true(ls_crew_join(place.crew, 0)); /* nobody is left to wait for */
        assert_int_equal(atomic_load(&jobs_run), 0);
        ls_packet packet = {0};
        while (packet.op != &work.op)
            assert_int_equal(ls_port_wait(place.net.port, &place.net.seat, &packet, 1, PATIENCE_MS), 1);
        place_close(&place);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crew_that_never_started_can_be_closed),
        cmocka_unit_test(every_packet_runs_once),
        cmocka_unit_test(a_blocked_worker_is_replaced_and_gives_its_batch_back),
        cmocka_unit_test(after_the_slow_one_is_back_one_too_many_parks),
        cmocka_unit_test(several_blocked_workers_are_replaced_up_to_the_limit),
        cmocka_unit_test(the_watch_wakes_up_again),
        cmocka_unit_test(the_end_waits_for_the_packet_and_leaves_the_others_in_the_port),
        cmocka_unit_test(a_parked_crew_ends_at_once),
        cmocka_unit_test(slow_and_quick_mixed),
        cmocka_unit_test(idleness_is_told_once),
        cmocka_unit_test(the_pulse_goes_on_beside_work),
        cmocka_unit_test(a_start_that_fails_halfway_leaves_no_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
