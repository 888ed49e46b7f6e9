/* output.c - the queues of output.h, and the thread that empties one. */
#include "base/io/output.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/io/log.h"
#include "base/os/thread.h"

enum { QUEUE_BYTES_MAX = 1 << 20, PUT_MS = 1000, FLUSH_MS_MAX = 1000 };

typedef struct piece {
    struct piece *next;
    size_t len;
    char text[];
} piece;

typedef struct output {
    const char *texts, *file; /* for the log */
    ls_mutex lock;            /* guards the following */
    piece *first, **last;
    size_t bytes;             /* of the pieces */
    uint64_t queued, written; /* pieces since the start */
    unsigned long dropped;    /* texts that the log has not told yet */
    bool started;             /* `thread` runs and `changed` is open, for good */
    ls_cond changed;
    ls_thread thread;
} output;

/* Global, like the files. */
static output outputs[LS_OUTPUTS] = {
    [LS_OUTPUT_STDOUT] = {.texts = "printed line", .file = "output", .lock = LS_MUTEX_INIT},
    [LS_OUTPUT_STDERR] = {.texts = "log line", .file = "error", .lock = LS_MUTEX_INIT},
};
static atomic_bool serves;
static atomic_uint flush_ms_left = FLUSH_MS_MAX;

bool ls_output_waits(void)
{
    return !atomic_load_explicit(&serves, memory_order_relaxed);
}

void ls_output_serve(void)
{
    atomic_store_explicit(&serves, true, memory_order_relaxed);
}

/* Tell the number of dropped texts once the queue is empty. The caller holds the lock, which is released meanwhile. */
static void report(output *o)
{
    const unsigned long dropped = o->dropped;
    if (dropped == 0 || o->first != NULL) return;
    o->dropped = 0;
    ls_mutex_unlock(&o->lock);
    ls_log(LS_LOG_WARN, "%lu %s%s dropped: standard %s took no more", dropped, o->texts, dropped == 1 ? "" : "s",
           o->file);
    ls_mutex_lock(&o->lock);
}

static void run(void *arg)
{
    output *o = arg;
    const enum ls_output to = (enum ls_output)(o - outputs);
    (void)ls_log_use(NULL); /* the thread remains after the server that has started it */
    ls_mutex_lock(&o->lock);
    for (;;) {
        while (o->first == NULL) ls_cond_wait(&o->changed, &o->lock);
        piece *p = o->first;
        ls_mutex_unlock(&o->lock);
        for (size_t at = 0; at < p->len;) at += ls_output_put(to, p->text + at, p->len - at, PUT_MS);
        ls_mutex_lock(&o->lock);
        if ((o->first = p->next) == NULL) o->last = &o->first;
        o->bytes -= p->len;
        o->written++;
        free(p);
        ls_cond_broadcast(&o->changed);
        report(o);
    }
}

static bool start(output *o)
{
    if (o->started) return true;
    ls_cond_open(&o->changed);
    o->last = &o->first;
    if (ls_thread_start(&o->thread, "ls-output", run, o) < 0) {
        ls_cond_close(&o->changed);
        return false;
    }
    o->started = true;
    (void)atexit(ls_output_flush);
    return true;
}

static void queue(output *o, const char *text, size_t len, bool wait)
{
    const bool room = o->first == NULL || (o->dropped == 0 && o->bytes + len <= QUEUE_BYTES_MAX);
    piece *p = (room || wait) && start(o) ? malloc(sizeof *p + len) : NULL;
    if (p == NULL) {
        o->dropped++;
        return;
    }
    *p = (piece){.len = len};
    memcpy(p->text, text, len);
    *o->last = p;
    o->last = &p->next;
    o->bytes += len;
    const uint64_t number = ++o->queued;
    ls_cond_broadcast(&o->changed);
    while (wait && o->written < number) ls_cond_wait(&o->changed, &o->lock);
}

void ls_output_write(enum ls_output to, const char *text, size_t len, bool wait)
{
    output *o = &outputs[to];
    ls_mutex_lock(&o->lock);
    const size_t put = o->first == NULL ? ls_output_put(to, text, len, 0) : 0;
    if (put < len) queue(o, text + put, len - put, wait);
    report(o);
    ls_mutex_unlock(&o->lock);
}

bool ls_output_offer(enum ls_output to, const char *text, size_t len)
{
    output *o = &outputs[to];
    ls_mutex_lock(&o->lock);
    const bool taken = o->first == NULL;
    const size_t put = taken ? ls_output_put(to, text, len, 0) : 0;
    if (taken && put < len) queue(o, text + put, len - put, false);
    ls_mutex_unlock(&o->lock);
    return taken;
}

void ls_output_flush(void)
{
    uint32_t ms = atomic_exchange(&flush_ms_left, 0);
    const uint64_t until_ms = ls_clock_ns() / 1000000u + ms;
    for (size_t i = 0; i < LS_OUTPUTS; i++) {
        output *o = &outputs[i];
        ls_mutex_lock(&o->lock);
        while (o->first != NULL && ms > 0) {
            (void)ls_cond_wait_ms(&o->changed, &o->lock, ms);
            const uint64_t now_ms = ls_clock_ns() / 1000000u;
            ms = now_ms < until_ms ? (uint32_t)(until_ms - now_ms) : 0;
        }
        ls_mutex_unlock(&o->lock);
    }
    atomic_store(&flush_ms_left, ms);
}
