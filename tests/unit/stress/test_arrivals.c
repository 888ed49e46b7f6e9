/* test_arrivals.c - the open loop: due requests that wait, without connections. */
#include "support.h"

#include "stress/load/arrivals.h"
#include "stress/load/transport.h"

enum { REQUESTS = 10 };

static struct {
    unsigned sends;
    int result; /* of the next ones */
} transport;

static int fake_send(ls_stress_vu *u)
{
    transport.sends++;
    return transport.result;
}

/* As a publisher of WebSocket: a request is complete when it is sent. */
static void send_without_response(ls_stress_vu *u)
{
    assert_true(ls_stress_vu_send(u));
    while (u->outstanding > 0) ls_stress_vu_retire(u);
}

/* The requests that became due while a send was pending are sent when it is complete. */
TEST(due_requests_follow_a_pending_send)
{
    static const ls_stress_transport sends = {.send = fake_send};
    static const ls_stress_proto proto = {.start = send_without_response};
    static ls_stress_plan plan;
    static ls_stress_worker w;
    ls_stress_request request;
    ls_stress_vu u = {.worker = &w,
                      .proto = &proto,
                      .state = LS_STRESS_VU_OPEN,
                      .role = LS_STRESS_ROLE_PUBLISHER,
                      .left = UINT64_MAX,
                      .requests = &request};
    ls_stress_schedule_constant(&plan.schedule, 1e6, 1, UINT64_MAX);
    w = (ls_stress_worker){.plan = &plan,
                           .transport = &sends,
                           .running = true,
                           .open_loop = true,
                           .senders = 1,
                           .batch = 1,
                           .pipeline = 1,
                           .left = REQUESTS,
                           .end_ns = UINT64_MAX,
                           .clock_ns = UINT64_MAX / 2};
    ls_node_init(&w.idle);
    ls_node_init(&u.idle);
    assert_int_equal(ls_stress_counters_open(&w.count, true, false, false), LS_OK);
    ls_stress_arrivals_vu_ready(&w, &u);
    transport.result = LS_PENDING;
    ls_stress_arrivals_dispatch(&w); /* all are due */
    assert_int_equal(transport.sends, 1);
    assert_int_equal(w.left, REQUESTS - 1);
    transport.result = LS_DONE;
    ls_stress_vu_sent(&u, LS_OK);
    assert_int_equal(transport.sends, REQUESTS);
    assert_int_equal(w.left, 0);
    ls_stress_counters_close(&w.count);
}
