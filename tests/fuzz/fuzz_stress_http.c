/* fuzz_stress_http.c - the HTTP protocol of the load generator gives the same result for any split of a connection's
 * bytes: the same responses, errors and checks, and the same end of the connection. One exception: the head of a
 * response in pieces is parsed at each line end, so an error in an unfinished line is not found; the close of the
 * connection is the error then.
 *
 * The first byte of the input has options: bit 0: the second of three requests is HEAD; bit 1: the server closes after
 * its bytes; bit 2: one connection per request. */
#include "fuzz.h"

#include "stress/load/transport.h"
#include "stress/load/worker.h"
#include "stress/protocols/protocols.h"

enum { PIPELINE = 3 };

typedef struct outcome {
    uint64_t requests, errors[LS_STRESS_ERROR_KINDS], status[LS_STRESS_STATUS_MAX + 1], checks_passed, checks_failed;
    uint64_t retries;
    uint32_t outstanding;
    uint8_t state;
} outcome;

static ls_stress_worker w;
static ls_stress_plan plan;

static void open_once(void)
{
    if (w.plan != NULL) return;
    plan.threads = plan.connections = 1;
    plan.pipeline = PIPELINE;
    plan.mode = LS_STRESS_PLAN_STATIC;
    ls_stress_schedule_constant(&plan.schedule, 0, 1, UINT64_MAX);
    plan.status_from = 200;
    plan.status_to = 299;
    plan.has_length = plan.has_crc = true;
    plan.length = 5;
    plan.crc = 0x3610a686; /* of "hello" */
    plan.expected_body = "hello";
    plan.expected_body_len = 5;
    ls_stress_http_init();
    w.plan = &plan;
    w.senders = w.vu_count = 1;
    w.proto = &ls_stress_http_proto;
    w.transport = &ls_stress_stream_transport;
    FUZZ_HOLDS(ls_stress_worker_open(&w) == LS_OK);
    w.running = true;
}

/* A connection with three outstanding requests. */
static ls_stress_vu *begin(unsigned options)
{
    ls_stress_vu *u = &w.vus[0];
    plan.keepalive = !(options & 4);
    atomic_store(&w.count.requests, 0);
    for (int i = 0; i < LS_STRESS_ERROR_KINDS; i++) atomic_store(&w.count.errors[i], 0);
    for (int i = 0; i <= LS_STRESS_STATUS_MAX; i++) atomic_store(&w.count.status[i], 0);
    atomic_store(&w.count.connections, 1);
    ls_stress_checks_close(&w.checks);
    w.checks = (ls_stress_checks){0};
    w.first_failure[0] = '\0';
    w.cached_len = 0;
    ls_node_init(&w.to_open);
    ls_node_init(&u->to_open);
    w.unclosed = 1;
    w.retries = 0;
    w.outstanding = u->outstanding = PIPELINE;
    u->first = u->retries = 0;
    u->reconnect_later = u->used = false;
    u->http.phase = LS_STRESS_HTTP_START;
    u->http.buf.len = 0;
    u->state = LS_STRESS_VU_OPEN;
    for (unsigned i = 0; i < PIPELINE; i++) u->requests[i] = (ls_stress_request){.is_head = i == 1 && (options & 1)};
    return u;
}

static outcome run(const uint8_t *data, size_t size, size_t step, unsigned options)
{
    ls_stress_vu *u = begin(options);
    outcome o = {0};
    bool good = true;
    for (size_t at = 0; good && at < size; at += step) {
        const size_t n = size - at < step ? size - at : step;
        char *copy = fuzz_copy_exact(data + at, n);
        good = ls_stress_http_proto.received(u, copy, n);
        free(copy);
        FUZZ_HOLDS(good == (u->state == LS_STRESS_VU_OPEN));
    }
    if (good && (options & 2)) {
        ls_stress_http_proto.peer_closed(u);
        FUZZ_HOLDS(u->state == LS_STRESS_VU_CLOSED);
    }
    FUZZ_HOLDS(u->state == LS_STRESS_VU_OPEN ||
               (u->state == LS_STRESS_VU_CLOSED && u->outstanding == 0 && w.unclosed == 0));
    FUZZ_HOLDS(w.outstanding == u->outstanding && w.retries == u->retries);
    o.requests = ls_counter_read(&w.count.requests);
    for (int i = 0; i < LS_STRESS_ERROR_KINDS; i++) o.errors[i] = ls_counter_read(&w.count.errors[i]);
    for (int i = 0; i <= LS_STRESS_STATUS_MAX; i++) o.status[i] = ls_counter_read(&w.count.status[i]);
    for (size_t i = 0; i < w.checks.count; i++) {
        o.checks_passed += w.checks.list[i].passed;
        o.checks_failed += w.checks.list[i].failed;
    }
    o.retries = w.retries;
    o.outstanding = u->outstanding;
    o.state = u->state;
    FUZZ_HOLDS(o.checks_passed + o.checks_failed == 4 * o.requests);
    /* Each request is complete, failed, to be retried, or outstanding; an unexpected byte is one more error. A response
     * with a failed check is complete. */
    uint64_t errors = 0;
    for (int i = 0; i < LS_STRESS_ERROR_KINDS; i++) errors += i != LS_STRESS_ERROR_CHECK ? o.errors[i] : 0;
    FUZZ_HOLDS(o.requests + errors + o.retries + o.outstanding - PIPELINE <= (o.requests == PIPELINE ? 1 : 0));
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    open_once();
    const unsigned options = data[0];
    const outcome whole = run(data + 1, size - 1, size, options);
    static const size_t steps[] = {1, 7, 64};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        outcome cut = run(data + 1, size - 1, steps[i], options);
        if (cut.errors[LS_STRESS_ERROR_ANSWER] == 0 && whole.errors[LS_STRESS_ERROR_ANSWER] > 0) {
            FUZZ_HOLDS(cut.outstanding + cut.errors[LS_STRESS_ERROR_READ] == whole.errors[LS_STRESS_ERROR_ANSWER]);
            memcpy(cut.errors, whole.errors, sizeof cut.errors);
            cut.outstanding = whole.outstanding;
            cut.state = whole.state;
        }
        FUZZ_HOLDS(memcmp(&whole, &cut, sizeof cut) == 0);
    }
    return 0;
}
