/* refused.c - see refused.h. */
#include "net/refused.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "base/os/thread.h"

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
