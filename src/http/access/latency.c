/* latency.c - see latency.h. */
#include "http/access/latency.h"

#include "base/list.h"

static uint32_t first_cell(ls_latency *latency, unsigned route)
{
    uint32_t found = atomic_load_explicit(&latency->routes[route], memory_order_relaxed);
    if (found != 0) return found;
    const uint32_t first = ls_cells_give(latency->cells, LS_LATENCY_CELLS);
    return atomic_compare_exchange_strong(&latency->routes[route], &found, first) ? first : found;
}

static unsigned bucket_of(uint64_t ns)
{
    static const uint64_t limits_ns[2] = {LS_LATENCY_FIRST_NS, LS_LATENCY_FIRST_NS * UINT64_C(1414214) / 1000000};
    unsigned n = 0;
    while (n < LS_LATENCY_BUCKETS - 1 && ns > limits_ns[n % 2] << n / 2) n++;
    return n;
}

void ls_latency_ended(ls_record_sink *sink, ls_thread_ctx *ctx, const ls_record *record)
{
    ls_latency *latency = LS_CONTAINER(sink, ls_latency, sink);
    const uint32_t first = first_cell(latency, record->route != NULL ? record->route->number : 0);
    ls_cell *cells =
        first != 0 && ctx->index + 1 < LS_CELLS_SLOTS ? ls_cells_of(latency->cells, ctx->index + 1, first) : NULL;
    if (cells == NULL) return;
    const uint64_t ns = record->ended_ns - record->began_ns;
    const unsigned method = record->x != NULL ? (unsigned)record->x->head.method : LS_HTTP_OTHER;
    const unsigned class = record->status < 100    ? 1
                           : record->status >= 600 ? LS_LATENCY_CLASSES
                                                   : (unsigned)record->status / 100;
    ls_cell_add(&cells[bucket_of(ns)], 1);
    ls_cell_add(&cells[LS_LATENCY_US], (double)ns / 1e3);
    ls_cell_add(&cells[LS_LATENCY_RECEIVED], (double)record->received);
    ls_cell_add(&cells[LS_LATENCY_SENT], (double)record->sent);
    ls_cell_add(&cells[LS_LATENCY_ENDS + record->end], 1);
    ls_cell_add(&cells[LS_LATENCY_STATUSES + (class - 1) * LS_HTTP_METHODS + method], 1);
}
