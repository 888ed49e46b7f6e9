/* test_fanout.c - publications and deliveries, without connections. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include "base/clock.h"
#include "stress/load/transport.h"
#include "stress/protocols/fanout.h"
#include "stress/protocols/protocols.h"

/* One publisher and one subscriber of a worker whose clock the test sets. */
typedef struct run {
    ls_stress_plan plan;
    ls_stress_worker worker;
    ls_stress_request request;
    ls_stress_vu publisher, subscriber;
    struct ls_stress_subscriber *state;
    char message[LS_DELIVERY_HEAD_BYTES + 4];
} run;

static void run_open(run *r)
{
    ls_stress_worker *w = &r->worker;
    memset(r, 0, sizeof *r);
    r->plan.publishers = r->plan.topics = r->plan.connections = r->plan.threads = 1;
    r->plan.mode = LS_STRESS_PLAN_FANOUT;
    r->plan.open_loop = true;
    r->plan.message = "text";
    r->plan.message_len = 4;
    w->plan = &r->plan;
    w->open_loop = w->running = true;
    w->pipeline = 1;
    r->state = calloc(1, sizeof *r->state + sizeof(ls_delivery_track));
    assert_non_null(r->state);
    assert_int_equal(ls_stress_fanout_open(&r->plan, &w->fanout), LS_OK);
    assert_int_equal(ls_stress_counters_open(&w->count, true, false, false), LS_OK);
    r->publisher = (ls_stress_vu){.worker = w, .requests = &r->request};
    r->subscriber = (ls_stress_vu){.worker = w, .subscriber = r->state};
}

static void run_close(run *r)
{
    ls_stress_counters_close(&r->worker.count);
    ls_stress_fanout_close(r->worker.fanout);
    free(r->state);
}

/* A message has 14 digits for its time: fewer than the clock of a machine that has run for years. */
TEST_IN(run, r, a_latency_on_a_machine_that_has_run_for_years)
{
    const uint64_t years_ns = UINT64_C(5) << 56;
    r->worker.fanout->opened_ns = years_ns;
    r->worker.clock_ns = years_ns + 3000;
    r->request.due_ns = years_ns + 1000;
    ls_stress_fanout_write(&r->publisher, 0, r->message);
    r->worker.now_ns = years_ns + 8000;
    ls_stress_fanout_deliver(&r->subscriber, r->message, sizeof r->message);
    assert_int_equal(ls_counter_read(&r->worker.count.requests), 1);
    assert_int_equal(ls_histogram_max(r->worker.count.sent), 5000);
    assert_int_equal(ls_histogram_max(r->worker.count.due), 7000);
}

static void ignore(ls_stress_worker *w, void *user)
{
}

/* One of two threads may receive a message of the other before its command to begin. This delivery is the end of its
 * run. */
TEST_IN(run, r, a_delivery_before_the_worker_begins)
{
    const uint64_t start_ns = ls_clock_ns();
    ls_stress_worker w;
    memset(&w, 0, sizeof w);
    r->plan.requests = r->plan.pipeline = 1;
    r->plan.threads = 2;
    w.plan = &r->plan;
    w.index = w.senders = 1;
    w.transport = &ls_stress_stream_transport;
    w.prepared = w.finished = ignore;
    assert_int_equal(ls_stress_worker_open(&w), LS_OK);
    assert_int_equal(ls_stress_fanout_attach(&w, r->worker.fanout, ls_stress_publisher_protocol(&r->plan),
                                             ls_stress_protocol(&r->plan)),
                     LS_OK);
    r->subscriber.worker = &w;
    r->worker.clock_ns = start_ns + 1000;
    ls_stress_fanout_write(&r->publisher, 0, r->message);
    r->worker.publisher_count = 1;
    ls_stress_fanout_hooks_of_all.ended(&r->worker);
    w.now_ns = start_ns + 5000;
    ls_stress_fanout_deliver(&r->subscriber, r->message, sizeof r->message);
    ls_stress_worker_go(&w, start_ns);
    assert_int_equal(ls_stress_worker_start(&w), LS_OK);
    ls_stress_worker_join(&w);
    assert_int_equal(ls_counter_read(&w.count.requests), 1);
    assert_int_equal(w.ended_ns, start_ns + 5000);
    ls_stress_worker_close(&w);
}
