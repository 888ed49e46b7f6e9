/* latency.c - see latency.h. The cells of a thread are found by the number of the route, in parts of PART routes. */
#include "http/latency.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/list.h"

enum { THREADS_MAX = 1024, PART = 64, PARTS = LS_ROUTES_MAX / PART + 1 };

typedef struct part {
    _Atomic(ls_latency_cell *) cells[PART];
} part;
typedef struct thread_cells {
    _Atomic(part *) parts[PARTS];
} thread_cells;

struct ls_latency {
    ls_record_sink sink;
    uint64_t limits_ns[LS_LATENCY_BUCKETS];
    _Atomic(thread_cells *) threads[THREADS_MAX]; /* made by its thread, and so all below it */
};

static ls_latency_cell *cell_of(ls_latency *latency, unsigned thread, unsigned route)
{
    if (thread >= THREADS_MAX) return NULL;
    thread_cells *of = atomic_load_explicit(&latency->threads[thread], memory_order_relaxed);
    if (of == NULL) {
        if ((of = calloc(1, sizeof *of)) == NULL) return NULL;
        atomic_store_explicit(&latency->threads[thread], of, memory_order_release);
    }
    part *p = atomic_load_explicit(&of->parts[route / PART], memory_order_relaxed);
    if (p == NULL) {
        if ((p = calloc(1, sizeof *p)) == NULL) return NULL;
        atomic_store_explicit(&of->parts[route / PART], p, memory_order_release);
    }
    ls_latency_cell *cell = atomic_load_explicit(&p->cells[route % PART], memory_order_relaxed);
    if (cell == NULL) {
        if ((cell = calloc(1, sizeof *cell)) == NULL) return NULL;
        atomic_store_explicit(&p->cells[route % PART], cell, memory_order_release);
    }
    return cell;
}

static void ended(ls_record_sink *sink, ls_thread_ctx *ctx, const ls_record *record)
{
    ls_latency *latency = LS_CONTAINER(sink, ls_latency, sink);
    ls_latency_cell *cell = cell_of(latency, ctx->index, record->route != NULL ? record->route->number : 0);
    if (cell == NULL) return;
    const uint64_t ns = record->ended_ns - record->began_ns;
    unsigned low = 0,
             high = LS_LATENCY_BUCKETS; /* the first bucket whose limit is not below the time is within these */
    while (low < high) {
        const unsigned middle = (low + high) / 2;
        if (latency->limits_ns[middle] < ns)
            low = middle + 1;
        else
            high = middle;
    }
    const unsigned method = record->x != NULL ? (unsigned)record->x->head.method : LS_HTTP_OTHER;
    const unsigned class = record->status < 100    ? 1
                           : record->status >= 600 ? LS_LATENCY_CLASSES
                                                   : (unsigned)record->status / 100;
    ls_counter_add(&cell->buckets[low], 1);
    ls_counter_add(&cell->sum_ns, ns);
    ls_counter_add(&cell->received, record->received);
    ls_counter_add(&cell->sent, record->sent);
    ls_counter_add(&cell->statuses[method][class - 1], 1);
    ls_counter_add(&cell->ends[record->end], 1);
}

int ls_latency_open(ls_latency **out)
{
    ls_latency *latency = calloc(1, sizeof *latency);
    if (latency == NULL) return LS_ENOMEM;
    latency->sink.ended = ended;
    for (unsigned n = 0; n < LS_LATENCY_BUCKETS; n++) latency->limits_ns[n] = ls_latency_limit_ns(n);
    *out = latency;
    return LS_OK;
}

void ls_latency_close(ls_latency *latency)
{
    for (unsigned t = 0; t < THREADS_MAX; t++) {
        thread_cells *of = latency->threads[t];
        for (unsigned n = 0; of != NULL && n < PARTS; n++) {
            part *p = of->parts[n];
            for (unsigned k = 0; p != NULL && k < PART; k++) free(p->cells[k]);
            free(p);
        }
        free(of);
    }
    free(latency);
}

ls_record_sink *ls_latency_sink(ls_latency *latency)
{
    return &latency->sink;
}

uint64_t ls_latency_limit_ns(unsigned n)
{
    const uint64_t even = (uint64_t)LS_LATENCY_FIRST_NS << n / 2;
    return n % 2 == 0 ? even : even * 1414214 / 1000000; /* times the square root of 2 */
}

bool ls_latency_add(const ls_latency *latency, unsigned route, ls_latency_cell *sum)
{
    bool found = false;
    for (unsigned t = 0; t < THREADS_MAX; t++) {
        const thread_cells *of = atomic_load_explicit(&latency->threads[t], memory_order_acquire);
        const part *p = of != NULL ? atomic_load_explicit(&of->parts[route / PART], memory_order_acquire) : NULL;
        const ls_latency_cell *cell =
            p != NULL ? atomic_load_explicit(&p->cells[route % PART], memory_order_acquire) : NULL;
        if (cell == NULL) continue;
        found = true;
        for (unsigned n = 0; n <= LS_LATENCY_BUCKETS; n++)
            ls_counter_add(&sum->buckets[n], ls_counter_read(&cell->buckets[n]));
        for (unsigned m = 0; m < LS_HTTP_METHODS; m++)
            for (unsigned c = 0; c < LS_LATENCY_CLASSES; c++)
                ls_counter_add(&sum->statuses[m][c], ls_counter_read(&cell->statuses[m][c]));
        for (unsigned e = 0; e <= LS_RECORD_REFUSED; e++)
            ls_counter_add(&sum->ends[e], ls_counter_read(&cell->ends[e]));
        ls_counter_add(&sum->sum_ns, ls_counter_read(&cell->sum_ns));
        ls_counter_add(&sum->received, ls_counter_read(&cell->received));
        ls_counter_add(&sum->sent, ls_counter_read(&cell->sent));
    }
    return found;
}
