/* line_log.c - see line_log.h.
 *
 * A ring is written by one thread and read by the writer: `put` and `taken` count bytes since the start, and their
 * difference is what waits. The writer copies whole lines into its batch, so that the ring has room again before the
 * file is written. It sleeps when all rings are empty; then the next line wakes it. */
#include "base/io/line_log.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/counter.h"
#include "base/err.h"
#include "base/io/log.h"
#include "base/io/output.h"
#include "base/os/memory.h"
#include "base/os/thread.h"

enum {
    RING = LS_LINE_LOG_RING_BYTES,
    BATCH = 1 << 18,
    AGAIN_BYTES = BATCH / 2,
    PAUSE_MS = 20,
    RETRY_MS = 50,
    REPORT_MS = 1000
};

typedef struct ring {
    _Alignas(64) _Atomic size_t put; /* by the thread */
    ls_counter dropped;
    _Alignas(64) _Atomic size_t taken; /* by the writer */
    char bytes[RING];
} ring;

struct ls_line_log {
    char *name;
    bool is_stdout;
    ls_line_file file; /* of the writer */
    ls_mutex lock;     /* guards `ending`, and the wait */
    ls_cond changed;
    ls_thread thread;
    bool ending;
    bool looks_last;   /* the writer has seen `ending` */
    uint64_t until_ms; /* then the log ends with lines that are not written */
    _Atomic bool sleeps, reopens;
    uint64_t dropped, dropped_ms, told; /* as of the last look, since when; those of which the log knows */
    bool dropping;                      /* the log has said that lines are dropped */
    size_t at, to;                      /* the batch that is not written: batch[at, to) */
    char *batch;
    unsigned count;
    _Atomic(ring *) rings[]; /* made by the first line of their thread */
};

/* ---- the threads ------------------------------------------------------------------------------------------------ */

static void wake(ls_line_log *log)
{
    ls_mutex_lock(&log->lock);
    ls_cond_signal(&log->changed);
    ls_mutex_unlock(&log->lock);
}

static ring *ring_of(ls_line_log *log, unsigned thread)
{
    ring *r = atomic_load_explicit(&log->rings[thread], memory_order_relaxed);
    if (r != NULL || (r = ls_memory_aligned(_Alignof(ring), sizeof *r)) == NULL) return r;
    memset(r, 0, offsetof(ring, bytes));
    atomic_store_explicit(&log->rings[thread], r, memory_order_release);
    return r;
}

void ls_line_log_put(ls_line_log *log, unsigned thread, const char *line, size_t len)
{
    ring *r = ring_of(log, thread);
    if (r == NULL) return;
    const size_t put = atomic_load_explicit(&r->put, memory_order_relaxed);
    const size_t used = put - atomic_load_explicit(&r->taken, memory_order_acquire), at = put % RING;
    if (RING - used < len) {
        ls_counter_add(&r->dropped, 1);
        return;
    }
    const size_t first = len < RING - at ? len : RING - at;
    memcpy(r->bytes + at, line, first);
    memcpy(r->bytes, line + first, len - first);
    atomic_store_explicit(&r->put, put + len, memory_order_release);
    /* The writer has a barrier between its store of `sleeps` and its look at the rings. */
    const bool half = used < RING / 4 && used + len >= RING / 4;
    if (atomic_load_explicit(&log->sleeps, memory_order_relaxed) ? atomic_exchange(&log->sleeps, false) : half)
        wake(log);
}

void ls_line_log_reopen(ls_line_log *log)
{
    atomic_store(&log->reopens, true);
    wake(log);
}

uint64_t ls_line_log_dropped(const ls_line_log *log)
{
    uint64_t sum = 0;
    for (unsigned n = 0; n < log->count; n++) {
        ring *r = atomic_load_explicit(&log->rings[n], memory_order_acquire);
        if (r != NULL) sum += ls_counter_read(&r->dropped);
    }
    return sum;
}

/* ---- the writer ------------------------------------------------------------------------------------------------- */

/* Copy [from, from + len) of the bytes since the start. */
static void copy(const ring *r, char *to, size_t from, size_t len)
{
    const size_t at = from % RING, first = len < RING - at ? len : RING - at;
    memcpy(to, r->bytes + at, first);
    memcpy(to + first, r->bytes, len - first);
}

/* Move whole lines of the rings into the batch. Whether it has any. */
static bool collect(ls_line_log *log)
{
    for (unsigned n = 0; n < log->count && log->to < BATCH; n++) {
        ring *r = atomic_load_explicit(&log->rings[n], memory_order_acquire);
        if (r == NULL) continue;
        const size_t taken = atomic_load_explicit(&r->taken, memory_order_relaxed);
        size_t len = atomic_load_explicit(&r->put, memory_order_acquire) - taken;
        const bool all = len <= BATCH - log->to;
        if (!all) len = BATCH - log->to;
        copy(r, log->batch + log->to, taken, len);
        while (!all && len > 0 && log->batch[log->to + len - 1] != '\n') len--;
        log->to += len;
        atomic_store_explicit(&r->taken, taken + len, memory_order_release);
    }
    return log->to > log->at;
}

static void reopen(ls_line_log *log)
{
    if (!atomic_exchange(&log->reopens, false) || log->is_stdout) return;
    ls_line_file next = {.name = log->name, .fd = -1};
    const int err = ls_line_file_open(&next);
    if (err < 0) {
        ls_log(LS_LOG_ERROR, "access log %s: cannot be opened again: %s; the file that is open remains", log->name,
               ls_err_text(err));
        return;
    }
    ls_line_file_close(&log->file);
    log->file = next;
    while (log->at > 0 && log->at < log->to && log->batch[log->at - 1] != '\n') log->at++; /* the rest of a line */
}

/* Write what the file takes. LS_OK: all; or the error for which it takes no more now. */
static int write_out(ls_line_log *log)
{
    while (log->at < log->to) {
        const size_t len = log->to - log->at;
        const int64_t n = !log->is_stdout ? ls_line_file_write(&log->file, log->batch + log->at, len)
                          : ls_output_offer(LS_OUTPUT_STDOUT, log->batch + log->at, len) ? (int64_t)len
                                                                                         : LS_EAGAIN;
        if (n < 0) return (int)n;
        log->at += (size_t)n;
    }
    log->at = log->to = 0;
    return LS_OK;
}

/* Say once that lines are dropped, and how many when that has been over for a second. */
static void report(ls_line_log *log, int err)
{
    const uint64_t dropped = ls_line_log_dropped(log), now_ms = ls_clock_coarse_ms();
    if (dropped != log->dropped) {
        if (!log->dropping)
            ls_log(LS_LOG_WARN, "access log %s: lines are dropped: %s", log->name,
                   err == LS_EAGAIN ? "its reader takes no more"
                   : err < 0        ? ls_err_text(err)
                                    : "they are too many");
        log->dropping = true;
        log->dropped = dropped;
        log->dropped_ms = now_ms;
    } else if (log->dropping && err == LS_OK && now_ms - log->dropped_ms >= REPORT_MS) {
        ls_log(LS_LOG_WARN, "access log %s: is written again; %llu lines were dropped", log->name,
               (unsigned long long)(dropped - log->told));
        log->told = dropped;
        log->dropping = false;
    }
}

/* Wait until there may be something to do. `any`: lines were found. false: the log ends. */
static bool pause_after(ls_line_log *log, bool any, int err)
{
    ls_mutex_lock(&log->lock);
    const bool over =
        log->ending && ((log->looks_last && !any && err == LS_OK) || ls_clock_coarse_ms() >= log->until_ms);
    log->looks_last = log->ending; /* what was put before the end began, it sees at its next look */
    const uint32_t ms = log->ending ? 1 : err < 0 ? RETRY_MS : any ? PAUSE_MS : log->dropping ? REPORT_MS : 0;
    if (!over && ms > 0) {
        (void)ls_cond_wait_ms(&log->changed, &log->lock, ms);
    } else {
        while (atomic_load(&log->sleeps) && !atomic_load(&log->reopens) && !log->ending)
            ls_cond_wait(&log->changed, &log->lock);
    }
    ls_mutex_unlock(&log->lock);
    return !over;
}

/* Nothing puts lines any more, and no more are written. */
static void report_lost(ls_line_log *log)
{
    uint64_t lost = ls_line_log_dropped(log) - log->told;
    while (collect(log)) {
        while (log->at < log->to) lost += log->batch[log->at++] == '\n';
        log->at = log->to = 0;
    }
    if (lost > 0)
        ls_log(LS_LOG_WARN, "access log %s: ends, and %llu lines were not written", log->name,
               (unsigned long long)lost);
}

static void run(void *arg)
{
    ls_line_log *log = arg;
    for (bool runs = true; runs;) {
        bool any = collect(log);
        if (!any) {
            atomic_store(&log->sleeps, true);
            ls_thread_barrier();
            if ((any = collect(log))) atomic_store(&log->sleeps, false);
        }
        const bool many = log->to >= AGAIN_BYTES; /* more may wait: no pause */
        reopen(log);
        const int err = write_out(log);
        report(log, err);
        if (!many || err < 0) runs = pause_after(log, any, err);
    }
    report_lost(log);
}

/* ---- open and close --------------------------------------------------------------------------------------------- */

static void free_log(ls_line_log *log)
{
    for (unsigned n = 0; n < log->count; n++) ls_memory_aligned_free(log->rings[n]);
    free(log->batch);
    free(log->name);
    free(log);
}

int ls_line_log_open(const char *name, unsigned threads, ls_line_log **out)
{
    ls_line_log *log = calloc(1, sizeof *log + threads * sizeof log->rings[0]);
    if (log == NULL) return LS_ENOMEM;
    log->count = threads;
    log->is_stdout = strcmp(name, "stdout") == 0;
    log->batch = malloc(BATCH);
    log->name = malloc(strlen(name) + 1);
    int err = log->batch != NULL && log->name != NULL ? LS_OK : LS_ENOMEM;
    if (err == LS_OK) {
        memcpy(log->name, name, strlen(name) + 1);
        log->file = (ls_line_file){.name = log->name, .fd = -1};
        if (!log->is_stdout) err = ls_line_file_open(&log->file);
    }
    if (err < 0) goto fail_memory;
    ls_mutex_open(&log->lock);
    ls_cond_open(&log->changed);
    if ((err = ls_thread_start(&log->thread, "ls-access-log", run, log)) < 0) goto fail_thread;
    *out = log;
    return LS_OK;

fail_thread:
    ls_cond_close(&log->changed);
    ls_mutex_close(&log->lock);
    ls_line_file_close(&log->file);
fail_memory:
    free_log(log);
    return err;
}

void ls_line_log_close(ls_line_log *log, uint32_t ms)
{
    ls_mutex_lock(&log->lock);
    log->ending = true;
    log->until_ms = ls_clock_coarse_ms() + ms;
    ls_cond_signal(&log->changed);
    ls_mutex_unlock(&log->lock);
    ls_thread_join(&log->thread);
    ls_line_file_close(&log->file);
    ls_cond_close(&log->changed);
    ls_mutex_close(&log->lock);
    free_log(log);
}
