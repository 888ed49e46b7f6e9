/* worker_state.c - the state of a worker, as its virtual users and their protocols change it. See worker.h. */
#include <stdio.h>

#include "base/clock.h"
#include "stress/load/worker.h"

uint64_t ls_stress_worker_now(ls_stress_worker *w)
{
    if (w->clock_stale) {
        w->clock_ns = ls_clock_ns();
        w->clock_stale = false;
    }
    return w->clock_ns;
}

void ls_stress_worker_record_failure(ls_stress_worker *w, const char *why, const char *bytes, size_t len)
{
    if (w->first_failure[0] != '\0') return;
    size_t at = (size_t)snprintf(w->first_failure, sizeof w->first_failure, len > 0 ? "%s: \"" : "%s", why);
    if (len == 0) return;
    for (size_t i = 0; i < len && i < 48 && at + 8 < sizeof w->first_failure; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        at += (size_t)snprintf(w->first_failure + at, sizeof w->first_failure - at,
                               c >= 0x20 && c < 0x7f && c != '"' && c != '\\' ? "%c" : "\\x%02x", c);
    }
    (void)snprintf(w->first_failure + at, sizeof w->first_failure - at, "\"");
}

void ls_stress_worker_count_check(ls_stress_worker *w, ls_stress_request *request, const char *name, size_t len,
                                  bool passed)
{
    if (!passed) {
        ls_counter_add(&w->count.checks_failed, 1);
        request->check_failed = true;
    }
    (void)ls_stress_checks_count(&w->checks, name, len, passed); /* out of memory: counted in the total alone */
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

void ls_stress_worker_record_ages(ls_stress_worker *w, const ls_stress_vu *u, uint32_t count)
{
    if (w->fanout != NULL) return; /* those of publications are no latencies */
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t due_ns = u->requests[(u->first + i) % w->pipeline].due_ns;
        ls_histogram_record(w->count.due, w->now_ns > due_ns ? w->now_ns - due_ns : 0);
    }
}

void ls_stress_worker_drop_retries(ls_stress_worker *w, ls_stress_vu *u)
{
    ls_stress_worker_record_ages(w, u, u->retries);
    ls_counter_add(&w->count.unsent, u->retries);
    w->retries -= u->retries;
    u->retries = 0;
}

/* ---- virtual users ---------------------------------------------------------------------------------------------- */

void ls_stress_worker_vu_prepared(ls_stress_worker *w, ls_stress_vu *u)
{
    if (u->prepared) return;
    u->prepared = true;
    w->prepared_ns = w->now_ns;
    if (++w->prepared_vus == w->vu_count) w->prepared(w, w->user);
}

void ls_stress_worker_request_stop(ls_stress_worker *w)
{
    w->stop_requested = true;
}

void ls_stress_worker_check_end(ls_stress_worker *w)
{
    if (!w->running || (w->ending && w->fanout != NULL)) return;
    if (w->ending) {
        if (w->outstanding == 0) w->end_requested = true;
        return;
    }
    if (w->outstanding + w->retries > 0) return;
    bool finished = w->left == 0;
    if (!finished && w->plan->sends > 0) {
        finished = true;
        for (uint32_t i = 0; finished && i < w->vu_count; i++)
            finished = w->vus[i].left == 0 && w->vus[i].outstanding + w->vus[i].retries == 0;
    }
    if (finished) w->end_requested = true;
}

void ls_stress_worker_vu_closed(ls_stress_worker *w, ls_stress_vu *u)
{
    if (w->ending) {
        if (w->open_loop) ls_stress_worker_drop_retries(w, u);
        if (w->unclosed == 0 && (w->fanout == NULL || w->closing || !w->running)) w->done = true;
        return;
    }
    if (u->reconnect_later) w->any_reconnect = true;
    if (!u->inactive && !u->reconnect_later && ls_list_empty(&u->to_open)) ls_list_push(&w->to_open, &u->to_open);
}
