/* refused.c - see refused.h. */
#include "net/refused.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "base/os/thread.h"

enum { REFUSALS_MS = 60000 };

/* Global, like the log. */
static ls_mutex lock = LS_MUTEX_INIT; /* guards the next two */
static uint64_t second;
static unsigned lines; /* in this second */
static atomic_ulong left_out;

static bool may_log(void)
{
    if (ls_log_level_get() != LS_LOG_INFO) return ls_log_level_get() < LS_LOG_INFO; /* debug: no limit */
    const uint64_t now = ls_clock_ns() / 1000000000u;
    ls_mutex_lock(&lock);
    if (now != second) lines = 0;
    second = now;
    const bool may = lines < LS_REFUSED_LINES_MAX;
    if (may) lines++;
    ls_mutex_unlock(&lock);
    if (!may) atomic_fetch_add_explicit(&left_out, 1, memory_order_relaxed);
    return may;
}

void ls_refused_log(const char *format, ...)
{
    char text[1024];
    va_list args;
    if (!may_log()) return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ls_log(LS_LOG_INFO, "refused %s", text);
}

void ls_refused_report(void)
{
    if (atomic_load_explicit(&left_out, memory_order_relaxed) == 0) return;
    const unsigned long count = atomic_exchange(&left_out, 0);
    ls_log(LS_LOG_INFO, "refused %lu more: the log has at most %d of them a second", count, LS_REFUSED_LINES_MAX);
}

void ls_refusals_add(ls_refusals *r, const ls_addr *addr, const char *reason)
{
    char text[LS_ADDR_TEXT_BYTES], more[80] = "";
    const uint64_t count = atomic_fetch_add(&r->count, 1) + 1, now = ls_clock_coarse_ms();
    uint64_t logged_ms = atomic_load(&r->logged_ms);
    if (logged_ms != 0 && now - logged_ms < REFUSALS_MS) return;
    if (!atomic_compare_exchange_strong(&r->logged_ms, &logged_ms, now)) return; /* another thread logs */
    const uint64_t left_out = count - atomic_exchange(&r->logged, count) - 1;
    if (left_out > 0) (void)snprintf(more, sizeof more, "; %" PRIu64 " more since the last such line", left_out);
    ls_refused_log("%s: %s%s", ls_addr_logged(addr, text), reason, more);
}

void ls_refusals_add_peer(ls_peers *peers, const ls_addr *addr, enum ls_peers_kind kind, uint32_t max)
{
    static const char *const what[] = {"connections: max_connections_per_ip", "HTTP/2 streams: max_streams_per_ip"};
    char reason[80];
    (void)snprintf(reason, sizeof reason, "more than %" PRIu32 " %s", max, what[kind]);
    ls_refusals_add(&peers->refused[kind], addr, reason);
}
