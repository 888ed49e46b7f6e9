/* latency.h - how many requests of each route have ended, with which status, after which time and with how many bytes: a
 * sink of records, for the status page and metrics.
 *
 * Each thread has cells of its own, one for each route that it has served, so that counting takes no lock. A cell is made
 * at the first request; without memory for it the request is not counted.
 *
 * Thread: `ended` as for all sinks; the others any. */
#ifndef LS_HTTP_LATENCY_H
#define LS_HTTP_LATENCY_H

#include "base/counter.h"
#include "http/record.h"

/* Bucket n has the times up to 2^(n / 2) * LS_LATENCY_FIRST_NS, the last one has all longer ones: from 0.05 ms to some 75 s. */
enum { LS_LATENCY_BUCKETS = 42, LS_LATENCY_FIRST_NS = 50000, LS_LATENCY_CLASSES = 5 };

typedef struct ls_latency_cell {
    ls_counter buckets[LS_LATENCY_BUCKETS + 1];
    ls_counter statuses[LS_HTTP_METHODS][LS_LATENCY_CLASSES]; /* by method; 1xx (of an upgrade), 2xx, ..., 5xx */
    ls_counter sum_ns, received, sent;                        /* bytes: as of ls_record */
    ls_counter ends[LS_RECORD_REFUSED + 1];                   /* by enum ls_record_end */
} ls_latency_cell;

typedef struct ls_latency ls_latency;
int ls_latency_open(ls_latency **out);      /* LS_OK or LS_ENOMEM */
void ls_latency_close(ls_latency *latency); /* no request is left */
ls_record_sink *ls_latency_sink(ls_latency *latency);

/* The upper limit of bucket n < LS_LATENCY_BUCKETS. */
uint64_t ls_latency_limit_ns(unsigned n);

/* Add what is counted of the route of this number (0: of no route) to *sum. false: it has no request. */
bool ls_latency_add(const ls_latency *latency, unsigned route, ls_latency_cell *sum);

#endif
