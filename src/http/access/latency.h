/* latency.h - how many requests of each route have ended, with which status, after which time and with how many bytes: a
 * sink of records, for the status page and metrics, whose numbers are cells (http/access/cells.h).
 *
 * A route gets its cells at its first request, in the order of enum ls_latency_cell; without memory for them the request
 * is not counted.
 *
 * Thread: `ended` as for all sinks; the others any. */
#ifndef LS_HTTP_ACCESS_LATENCY_H
#define LS_HTTP_ACCESS_LATENCY_H

#include "http/access/cells.h"
#include "http/record.h"

/* Bucket n has the times up to 2^(n / 2) * LS_LATENCY_FIRST_NS, the last one has all longer ones: from 0.05 ms to some 75 s. */
enum { LS_LATENCY_BUCKETS = 43, LS_LATENCY_FIRST_NS = 50000, LS_LATENCY_CLASSES = 5 };

enum ls_latency_cell {
    LS_LATENCY_US = LS_LATENCY_BUCKETS, /* the sum of the times */
    LS_LATENCY_RECEIVED,                /* bytes, as of ls_record */
    LS_LATENCY_SENT,
    LS_LATENCY_ENDS,                                               /* by enum ls_record_end */
    LS_LATENCY_STATUSES = LS_LATENCY_ENDS + LS_RECORD_REFUSED + 1, /* 1xx (of an upgrade), 2xx, ..., each by method */
    LS_LATENCY_CELLS = LS_LATENCY_STATUSES + LS_LATENCY_CLASSES * LS_HTTP_METHODS
};

typedef struct ls_latency {
    ls_record_sink sink; /* its `ended` is ls_latency_ended */
    ls_cells *cells;
    _Atomic uint32_t
        routes[LS_ROUTES_MAX + 1]; /* the first cell of each by its number, 0: of no route. 0: no request */
} ls_latency;

void ls_latency_ended(ls_record_sink *sink, ls_thread_ctx *ctx, const ls_record *record);

#endif
