/* test_httpsys_drain.c - a drain of the http.sys engine, during which a request begins: behind each of its instructions once.
 *
 * The processor stops behind every instruction (the trap flag), and a handler of that exception counts those of
 * ls_httpsys_drain itself. Behind the one that is asked for it does what another thread would do in that moment. */
#include "httpsys_fixture.h"

#include <x86intrin.h>

enum { TRAP = 0x100 };

typedef uint32_t drain_fn(ls_httpsys *http);

static struct {
    fixture *r;
    ls_packet packet; /* the receive's: a request has come */
    unsigned steps, at;
    bool on;
} moment;

static LONG CALLBACK stepped(EXCEPTION_POINTERS *e)
{
    DWORD64 base;
    if (e->ExceptionRecord->ExceptionCode != EXCEPTION_SINGLE_STEP) return EXCEPTION_CONTINUE_SEARCH;
    if (!moment.on) return EXCEPTION_CONTINUE_EXECUTION;
    const RUNTIME_FUNCTION *in = RtlLookupFunctionEntry(e->ContextRecord->Rip, &base, NULL);
    if (in != NULL && base + in->BeginAddress == (DWORD64)(uintptr_t)ls_httpsys_drain && ++moment.steps == moment.at) {
        moment.on = false;
        ls_packet_dispatch(&moment.r->ctx, &moment.packet);
    } else {
        e->ContextRecord->EFlags |= TRAP;
    }
    return EXCEPTION_CONTINUE_EXECUTION;
}

static void waits(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    if (r->step++ == 0) return;
    assert_int_equal(x->transport->respond(ctx, x, NULL, 0), LS_DONE);
    fixture_end(r, ctx, x);
}

/* How many are left, says a drain of which `at` instructions are over when the request begins. *came: it has so many. */
static uint32_t drain_with_request(unsigned at, bool *came)
{
    drain_fn *volatile drain = ls_httpsys_drain; /* called, whatever the optimiser sees */
    fixture *r = fixture_open(waits, 1);
    fake_arrives((fake_request){.id = 1});
    assert_int_equal(ls_port_wait(r->port, &r->ctx, &moment.packet, 1, 0), 1);
    assert_int_equal(ls_httpsys_drain(r->http), 1); /* too late to cancel that receive */
    moment.r = r;
    moment.steps = 0;
    moment.at = at;
    moment.on = true;
    __writeeflags(__readeflags() | TRAP);
    const uint32_t left = drain(r->http);
    *came = !moment.on;
    moment.on = false;
    if (!*came) ls_packet_dispatch(&r->ctx, &moment.packet);
    fixture_resume(r);
    fixture_close(r);
    return left;
}

static void a_request_that_begins_meanwhile_is_counted(void **state)
{
    bool came = true;
    (void)state;
    void *handler = AddVectoredExceptionHandler(1, stepped);
    assert_non_null(handler);
    for (unsigned at = 1; came; at++)
        if (drain_with_request(at, &came) == 0) fail_msg("behind instruction %u it is overlooked", at);
    assert_in_range(moment.steps, 10, 1000);
    (void)RemoveVectoredExceptionHandler(handler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_request_that_begins_meanwhile_is_counted)};
    return cmocka_run_group_tests_name("proto/httpsys_drain", tests, NULL, NULL);
}
