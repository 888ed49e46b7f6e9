/* histogram.h - how often which latency was seen: three significant digits from 1 us to 1 h in bounded memory.
 *
 * Values are nanoseconds. The first 2048 slots hold one value each; after them every power of two is cut into 1024
 * equal slots, so a slot is never wider than 1/1024 of the values in it (the layout of HdrHistogram, G. Tene). That
 * is 33,421 counters, 261 KiB, of which a run touches the few pages that its latencies fall into.
 *
 * One thread records; any other may read at the same time. Every counter is an atomic that only its writer stores to,
 * relaxed and without a locked instruction, so recording is the arithmetic of the slot, one load, one store and two
 * compares. A reader sees each counter as it was at some recent moment; what it has summed up may lack the values
 * recorded meanwhile, never hold one twice. All threads are merged by whoever reports: ls_histogram_add(). */
#ifndef LS_STRESS_HISTOGRAM_H
#define LS_STRESS_HISTOGRAM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

#define LS_HISTOGRAM_NS_MAX UINT64_C(3600000000000) /* one hour; longer ones are recorded as this, and counted */

enum {
    LS_HISTOGRAM_DIGIT_BITS = 10, /* 1024 slots for each power of two */
    LS_HISTOGRAM_SLOTS = 33421,   /* the slot of LS_HISTOGRAM_NS_MAX is the last */
};

typedef struct ls_histogram {
    _Atomic uint64_t min;     /* exact; UINT64_MAX while empty */
    _Atomic uint64_t max;     /* exact; 0 while empty */
    _Atomic uint64_t clipped; /* values above LS_HISTOGRAM_NS_MAX */
    _Atomic uint64_t counts[LS_HISTOGRAM_SLOTS];
} ls_histogram;

/* An empty one, to be given back with ls_histogram_close(); NULL when there is no memory. */
ls_histogram *ls_histogram_open(void);
void ls_histogram_close(ls_histogram *h); /* NULL is allowed */

/* Empty it. Its writer only. */
void ls_histogram_clear(ls_histogram *h);

/* The slot of a value of at most LS_HISTOGRAM_NS_MAX. */
static inline size_t ls_histogram_slot(uint64_t ns)
{
    const unsigned bits = LS_HISTOGRAM_DIGIT_BITS + 1;
    unsigned shift = ls_high_bit(ns | ((UINT64_C(1) << bits) - 1)) + 1 - bits;
    return ((size_t)shift << LS_HISTOGRAM_DIGIT_BITS) + (size_t)(ns >> shift);
}

/* Count one value. The one thread that writes this histogram. */
static inline void ls_histogram_record(ls_histogram *h, uint64_t ns)
{
    const memory_order relaxed = memory_order_relaxed;
    if (ns > LS_HISTOGRAM_NS_MAX) {
        atomic_store_explicit(&h->clipped, atomic_load_explicit(&h->clipped, relaxed) + 1, relaxed);
        ns = LS_HISTOGRAM_NS_MAX;
    }
    _Atomic uint64_t *count = &h->counts[ls_histogram_slot(ns)];
    atomic_store_explicit(count, atomic_load_explicit(count, relaxed) + 1, relaxed);
    if (ns > atomic_load_explicit(&h->max, relaxed)) atomic_store_explicit(&h->max, ns, relaxed);
    if (ns < atomic_load_explicit(&h->min, relaxed)) atomic_store_explicit(&h->min, ns, relaxed);
}

/* into += from. The writer of `into`; `from` may be recorded to meanwhile. */
void ls_histogram_add(ls_histogram *into, const ls_histogram *from);

/* into = now - before, where `before` is an older copy of `now`: what was recorded between the two. The least and the
 * greatest value are then those of their slots. */
void ls_histogram_between(ls_histogram *into, const ls_histogram *now, const ls_histogram *before);

uint64_t ls_histogram_count(const ls_histogram *h);
uint64_t ls_histogram_clipped(const ls_histogram *h); /* values that were longer than an hour */
uint64_t ls_histogram_min(const ls_histogram *h);     /* exact; 0 when empty */
uint64_t ls_histogram_max(const ls_histogram *h);     /* exact; 0 when empty */

/* The least value that `percent` (0 to 100) of all values do not exceed, to three digits, never less than what was
 * recorded and never more than the maximum; 100 gives the maximum itself, 0 the minimum. 0 when empty. */
uint64_t ls_histogram_at(const ls_histogram *h, double percent);

/* The same for `n` percentages in ascending order, in two walks for all of them. */
void ls_histogram_at_each(const ls_histogram *h, const double *percents, size_t n, uint64_t *ns);

/* From the middles of the slots: within 0.05% of the exact figure. 0 when empty. The deviation is that of the whole
 * population (divided by n). */
double ls_histogram_mean(const ls_histogram *h);
double ls_histogram_stdev(const ls_histogram *h);

/* Percent of the values that lie within `n` standard deviations of the mean. 0 when empty. */
double ls_histogram_within(const ls_histogram *h, double n);

/* Percent of the values that are at most `ns`; 100 when empty. */
double ls_histogram_below(const ls_histogram *h, uint64_t ns);

/* Walk over what was recorded, in ascending order: begin with *slot = 0; returns the count of the next slot that is not
 * empty and its greatest value in *ns, and moves *slot behind it. 0: there are no more. */
uint64_t ls_histogram_next(const ls_histogram *h, size_t *slot, uint64_t *ns);

#endif
