/* histogram.h - a latency histogram: three significant digits from 1 us to 1 h in bounded memory.
 *
 * Values are nanoseconds. The first 2048 slots hold one value each; above them every power of two is divided into 1024
 * equal slots, so a slot is at most 1/1024 as wide as its values (the layout of HdrHistogram by G. Tene). That makes
 * 33,421 counters, 261 KiB; a run touches only the pages of its latencies.
 *
 * One thread records; any other may read at the same time. Every counter is an atomic with one writer, relaxed and
 * without a locked instruction, so recording costs the slot arithmetic, one load, one store and two compares. A reader
 * sees a recent value of each counter: its sum may lack values that are being recorded and never counts one twice. The
 * reports merge the threads with ls_histogram_add(). */
#ifndef LS_STRESS_HISTOGRAM_H
#define LS_STRESS_HISTOGRAM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

#define LS_HISTOGRAM_NS_MAX UINT64_C(3600000000000) /* one hour; longer values count as one hour, and in `clipped` */

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

/* A new empty histogram, to be freed with ls_histogram_close(); NULL: out of memory. */
ls_histogram *ls_histogram_open(void);
void ls_histogram_close(ls_histogram *h); /* NULL is allowed */

/* Remove all values. The writer only. */
void ls_histogram_clear(ls_histogram *h);

/* The slot of a value of at most LS_HISTOGRAM_NS_MAX. */
static inline size_t ls_histogram_slot(uint64_t ns)
{
    const unsigned bits = LS_HISTOGRAM_DIGIT_BITS + 1;
    unsigned shift = ls_high_bit(ns | ((UINT64_C(1) << bits) - 1)) + 1 - bits;
    return ((size_t)shift << LS_HISTOGRAM_DIGIT_BITS) + (size_t)(ns >> shift);
}

/* Record one value. The writer only. */
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

/* into += from. The writer of `into` only; `from` may be recorded to at the same time. */
void ls_histogram_add(ls_histogram *into, const ls_histogram *from);

/* into = now - before, where `before` is an older copy of `now`: the values recorded between the two. The minimum and
 * the maximum are those of their slots. */
void ls_histogram_between(ls_histogram *into, const ls_histogram *now, const ls_histogram *before);

uint64_t ls_histogram_count(const ls_histogram *h);
uint64_t ls_histogram_min(const ls_histogram *h); /* exact; 0 when empty */
uint64_t ls_histogram_max(const ls_histogram *h); /* exact; 0 when empty */

/* The smallest value that at least `percent` (0 to 100) of all values do not exceed: to three digits, never below the
 * recorded value and never above the maximum; 100 gives the exact maximum, 0 the exact minimum. 0 when empty. */
uint64_t ls_histogram_percentile(const ls_histogram *h, double percent);

/* Computed from the middles of the slots: within 0.05% of the exact figure. 0 when empty. The deviation is that of the
 * population (divided by n). */
double ls_histogram_mean(const ls_histogram *h);
double ls_histogram_stdev(const ls_histogram *h);

/* The percentage of values within `n` standard deviations of the mean. 0 when empty. */
double ls_histogram_within(const ls_histogram *h, double n);

/* The percentage of values that are at most `ns`; 100 when empty. */
double ls_histogram_below(const ls_histogram *h, uint64_t ns);

/* Iterate over the recorded values in ascending order, beginning with *slot = 0. Returns the count of the next slot
 * that is not empty, its greatest value in *ns, and moves *slot after it. 0: no more slots. */
uint64_t ls_histogram_next(const ls_histogram *h, size_t *slot, uint64_t *ns);

#endif
