/* test_httpsys_drain.c - a request arrives during a drain of http.sys: once after each instruction of the drain.
 *
 * The trap flag stops the processor after every instruction. A handler of that exception counts the instructions of
 * ls_httpsys_drain itself. After a chosen instruction it does what another thread could do at that moment. */
#include "httpsys_fixture.h"

#include <x86intrin.h>

enum { TRAP = 0x100 };

typedef uint32_t drain_fn(ls_http_engine *http, bool all);

static struct {
    fixture *r;
    ls_packet packet; /* of a receive that returned a request */
    unsigned steps, at;
    bool on;
} interruption;

static LONG CALLBACK stepped(EXCEPTION_POINTERS *e)
{
    DWORD64 base;
    if (e->ExceptionRecord->ExceptionCode != EXCEPTION_SINGLE_STEP) return EXCEPTION_CONTINUE_SEARCH;
    if (!interruption.on) return EXCEPTION_CONTINUE_EXECUTION;
    const RUNTIME_FUNCTION *in = RtlLookupFunctionEntry(e->ContextRecord->Rip, &base, NULL);
    if (in != NULL && base + in->BeginAddress == (DWORD64)(uintptr_t)ls_httpsys_drain &&
        ++interruption.steps == interruption.at) {
        interruption.on = false;
        ls_packet_dispatch(&interruption.r->ctx, &interruption.packet);
    } else {
        e->ContextRecord->EFlags |= TRAP;
    }
    return EXCEPTION_CONTINUE_EXECUTION;
}

/* Return the result of a drain during which a request starts after `at` instructions. *reached receives whether the
 * drain has that many instructions. */
static uint32_t drain_with_request(unsigned at, bool *reached)
{
    drain_fn *volatile drain = ls_httpsys_drain; /* the optimiser must not inline the call */
    fixture *r = fixture_open(respond_later, 1);
    fake_arrives((fake_request){.id = 1});
    assert_int_equal(ls_port_wait(r->port, &r->ctx, &interruption.packet, 1, 0), 1);
    assert_int_equal(r->http->ops->drain(r->http, false), 1); /* too late to cancel that receive */
    interruption.r = r;
    interruption.steps = 0;
    interruption.at = at;
    interruption.on = true;
    __writeeflags(__readeflags() | TRAP);
    const uint32_t left = drain(r->http, false);
    *reached = !interruption.on;
    interruption.on = false;
    if (!*reached) ls_packet_dispatch(&r->ctx, &interruption.packet);
    fixture_resume(r);
    fixture_close(r);
    return left;
}

TEST(a_request_that_starts_during_a_drain_is_counted)
{
    bool reached = true;
    void *handler = AddVectoredExceptionHandler(1, stepped);
    assert_non_null(handler);
    for (unsigned at = 1; reached; at++)
        if (drain_with_request(at, &reached) == 0) fail_msg("the drain misses a request after instruction %u", at);
    assert_in_range(interruption.steps, 10, 1000);
    (void)RemoveVectoredExceptionHandler(handler);
}
