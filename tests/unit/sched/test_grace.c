/* test_grace.c - tickets are over when the packets that ran at their moment have ended. */
#include "port/port_fixture.h"

#include "sched/grace.h"

enum { PATIENCE_MS = 60000, JOBS = 3 };

typedef struct job { /* a packet that runs until release is set */
    ls_op op;
    _Atomic bool inside, release, ended;
} job;

typedef struct grace_place {
    net_place net;
    ls_workers *workers;
    ls_grace grace;
    job jobs[JOBS];
} grace_place;

#define EVENTUALLY(condition)                                                                               \
    do {                                                                                                    \
        for (int waited_ms = 0; !(condition) && waited_ms < PATIENCE_MS; waited_ms++) ls_clock_sleep_ms(1); \
        assert_true(condition);                                                                             \
    } while (0)

static void job_run(ls_thread_ctx *ctx, ls_op *op)
{
    job *j = LS_CONTAINER(op, job, op);
    atomic_store(&j->inside, true);
    while (!atomic_load(&j->release)) ls_clock_sleep_ms(1);
    atomic_store(&j->ended, true);
}

static void grace_place_open(grace_place *p)
{
    const ls_workers_options options = {.threads = JOBS, .threads_max = JOBS};
    memset((void *)p, 0, sizeof *p);
    net_place_open(&p->net);
    assert_int_equal(ls_workers_open(p->net.port, p->net.pools, &options, &p->workers), LS_OK);
    assert_int_equal(ls_grace_open(&p->grace, p->workers), LS_OK);
    assert_int_equal(ls_workers_start(p->workers), LS_OK);
}

/* Run job n on a worker. */
static void begin(grace_place *p, int n)
{
    p->jobs[n].op = (ls_op){.done = job_run};
    ls_port_post(p->net.port, &p->jobs[n].op, 0);
    EVENTUALLY(atomic_load(&p->jobs[n].inside));
}

static void end(grace_place *p, int n)
{
    atomic_store(&p->jobs[n].release, true);
    EVENTUALLY(atomic_load(&p->jobs[n].ended));
}

static void grace_place_close(grace_place *p)
{
    ls_workers_stop(p->workers);
    assert_true(ls_workers_join(p->workers, PATIENCE_MS));
    ls_grace_close(&p->grace);
    ls_workers_close(p->workers);
    net_place_close(&p->net);
}

TEST_IN(grace_place, p, it_is_over_when_no_packet_runs)
{
    const uint64_t ticket = ls_grace_begin(&p->grace);
    assert_true(ticket > 0);
    EVENTUALLY(ls_grace_over(&p->grace, ticket));
    assert_true(ls_grace_over(&p->grace, ticket)); /* for ever */
    const uint64_t second = ls_grace_begin(&p->grace);
    assert_true(second > ticket);
    EVENTUALLY(ls_grace_over(&p->grace, second));
}

TEST_IN(grace_place, p, it_waits_for_the_packets_of_its_moment)
{
    begin(p, 0);
    const uint64_t ticket = ls_grace_begin(&p->grace);
    assert_false(ls_grace_over(&p->grace, ticket));
    begin(p, 1); /* later: it is not waited for */
    end(p, 0);
    EVENTUALLY(ls_grace_over(&p->grace, ticket));
    assert_false(atomic_load(&p->jobs[1].ended));
    end(p, 1);
}

/* The snapshot under way does not contain the packets that have begun since: tickets that are taken meanwhile wait for
 * the next one, and share it. */
TEST_IN(grace_place, p, tickets_that_are_taken_meanwhile_wait_for_the_next_snapshot)
{
    begin(p, 0);
    const uint64_t first = ls_grace_begin(&p->grace);
    begin(p, 1);
    const uint64_t second = ls_grace_begin(&p->grace), third = ls_grace_begin(&p->grace);
    assert_true(second > first);
    assert_true(third == second);
    end(p, 0);
    EVENTUALLY(ls_grace_over(&p->grace, first));
    assert_false(ls_grace_over(&p->grace, second)); /* begins its snapshot, which has job 1 */
    begin(p, 2);
    end(p, 1);
    EVENTUALLY(ls_grace_over(&p->grace, second));
    assert_true(ls_grace_over(&p->grace, third));
    end(p, 2);
}

/* Nobody asked for the ticket before. */
TEST_IN(grace_place, p, a_later_ticket_alone_is_asked_for)
{
    begin(p, 0);
    const uint64_t first = ls_grace_begin(&p->grace), second = ls_grace_begin(&p->grace);
    assert_false(ls_grace_over(&p->grace, second));
    end(p, 0);
    EVENTUALLY(ls_grace_over(&p->grace, second));
    assert_true(ls_grace_over(&p->grace, first));
}

TEST(one_that_is_zero_may_be_closed)
{
    ls_grace grace = {.turns = NULL};
    ls_grace_close(&grace);
}
