/* histogram.c - the read functions. Each walks once or twice over the counters between minimum and maximum, which
 * takes about ten microseconds at most. None is called per request. */
#include "stress/measure/histogram.h"

#include <math.h>
#include <stdlib.h>

#define LOAD(counter)         atomic_load_explicit(&(counter), memory_order_relaxed)
#define STORE(counter, value) atomic_store_explicit(&(counter), (value), memory_order_relaxed)

enum { HALF = 1 << LS_HISTOGRAM_DIGIT_BITS };

static uint64_t slot_least(size_t slot)
{
    if (slot < 2 * HALF) return slot;
    unsigned shift = (unsigned)(slot / HALF) - 1;
    return (uint64_t)(slot - (size_t)shift * HALF) << shift;
}

static uint64_t slot_greatest(size_t slot)
{
    if (slot < 2 * HALF) return slot;
    if (slot == LS_HISTOGRAM_SLOTS - 1) return LS_HISTOGRAM_NS_MAX;
    return slot_least(slot + 1) - 1;
}

/* The slots that may be in use: `from` up to, not including, `to`. The writer counts a value before it updates the
 * extremes, so a value that is being recorded may lie outside; the next read finds it. */
typedef struct range {
    size_t from;
    size_t to;
} range;

static range used(const ls_histogram *h)
{
    uint64_t min = LOAD(h->min), max = LOAD(h->max);
    if (min > max) return (range){0, 0};
    return (range){ls_histogram_slot(min), ls_histogram_slot(max) + 1};
}

ls_histogram *ls_histogram_open(void)
{
    /* The system zeroes the memory page by page, so slots that are never used take no memory. */
    ls_histogram *h = calloc(1, sizeof *h);
    if (h != NULL) STORE(h->min, UINT64_MAX);
    return h;
}

void ls_histogram_close(ls_histogram *h)
{
    free(h);
}

void ls_histogram_clear(ls_histogram *h)
{
    range r = used(h);
    for (size_t i = r.from; i < r.to; i++) STORE(h->counts[i], 0);
    STORE(h->min, UINT64_MAX);
    STORE(h->max, 0);
    STORE(h->clipped, 0);
}

void ls_histogram_add(ls_histogram *into, const ls_histogram *from)
{
    /* The extremes are read once, so that every copied value lies between the copied extremes. */
    uint64_t min = LOAD(from->min), max = LOAD(from->max);
    if (min > max) return;
    for (size_t i = ls_histogram_slot(min), last = ls_histogram_slot(max); i <= last; i++) {
        uint64_t n = LOAD(from->counts[i]);
        if (n != 0) STORE(into->counts[i], LOAD(into->counts[i]) + n);
    }
    if (min < LOAD(into->min)) STORE(into->min, min);
    if (max > LOAD(into->max)) STORE(into->max, max);
    STORE(into->clipped, LOAD(into->clipped) + LOAD(from->clipped));
}

void ls_histogram_between(ls_histogram *into, const ls_histogram *now, const ls_histogram *before)
{
    uint64_t min = UINT64_MAX, max = 0;
    range r = used(now);
    ls_histogram_clear(into);
    for (size_t i = r.from; i < r.to; i++) {
        uint64_t n = LOAD(now->counts[i]) - LOAD(before->counts[i]);
        if (n == 0) continue;
        STORE(into->counts[i], n);
        if (min == UINT64_MAX) min = slot_least(i);
        max = slot_greatest(i);
    }
    STORE(into->min, min);
    STORE(into->max, max);
    STORE(into->clipped, LOAD(now->clipped) - LOAD(before->clipped));
}

uint64_t ls_histogram_count(const ls_histogram *h)
{
    uint64_t sum = 0;
    range r = used(h);
    for (size_t i = r.from; i < r.to; i++) sum += LOAD(h->counts[i]);
    return sum;
}

uint64_t ls_histogram_min(const ls_histogram *h)
{
    uint64_t min = LOAD(h->min);
    return min == UINT64_MAX ? 0 : min;
}

uint64_t ls_histogram_max(const ls_histogram *h)
{
    return LOAD(h->max);
}

/* Limit a value to the exact extremes. */
static uint64_t clamp(const ls_histogram *h, uint64_t ns)
{
    uint64_t min = ls_histogram_min(h), max = ls_histogram_max(h);
    if (ns > max) return max;
    return ns < min ? min : ns;
}

/* The rank of a percentile, from 1. In binary 99.9% of 1000 is 999.0000000000001; the rank is 999. */
static uint64_t rank_of(double percent, uint64_t total)
{
    double exact = percent / 100 * (double)total;
    double rank = ceil(exact - exact * 1e-12);
    return rank < 1 ? 1 : (uint64_t)rank;
}

uint64_t ls_histogram_percentile(const ls_histogram *h, double percent)
{
    const uint64_t total = ls_histogram_count(h);
    if (percent >= 100) return ls_histogram_max(h);
    if (percent <= 0 || total == 0) return ls_histogram_min(h);
    const uint64_t wanted = rank_of(percent, total);
    uint64_t seen = 0;
    range r = used(h);
    while (seen < wanted && r.from < r.to) seen += LOAD(h->counts[r.from++]);
    return clamp(h, slot_greatest(r.from - 1));
}

/* The estimate for a value of this slot: its middle, limited by the exact extremes. */
static double likely(const ls_histogram *h, size_t slot)
{
    uint64_t least = slot_least(slot), greatest = slot_greatest(slot), min = ls_histogram_min(h),
             max = ls_histogram_max(h);
    double middle = (double)least + (double)(greatest - least) / 2;
    if (middle > (double)max) return (double)max;
    return middle < (double)min ? (double)min : middle;
}

/* The mean of (value - center)^power; 0 without a value. */
static double moment(const ls_histogram *h, double center, double power)
{
    uint64_t count, ns;
    double sum = 0, n = 0;
    for (size_t i = 0; (count = ls_histogram_next(h, &i, &ns)) > 0;) {
        n += (double)count;
        sum += (double)count * pow(likely(h, i - 1) - center, power);
    }
    return n > 0 ? sum / n : 0;
}

double ls_histogram_mean(const ls_histogram *h)
{
    return moment(h, 0, 1);
}

static double stdev_from(const ls_histogram *h, double mean)
{
    return sqrt(moment(h, mean, 2));
}

double ls_histogram_stdev(const ls_histogram *h)
{
    return stdev_from(h, ls_histogram_mean(h));
}

double ls_histogram_within(const ls_histogram *h, double n)
{
    double mean = ls_histogram_mean(h), reach = n * stdev_from(h, mean), inside = 0, all = 0;
    /* Equal values have no deviation, but their mean is rounded. */
    double slack = mean * 1e-12;
    uint64_t count, ns;
    for (size_t i = 0; (count = ls_histogram_next(h, &i, &ns)) > 0;) {
        all += (double)count;
        if (fabs(likely(h, i - 1) - mean) <= reach + slack) inside += (double)count;
    }
    return all > 0 ? 100 * inside / all : 0;
}

double ls_histogram_below(const ls_histogram *h, uint64_t ns)
{
    if (ns >= LS_HISTOGRAM_NS_MAX) return 100;
    size_t last = ls_histogram_slot(ns);
    uint64_t below = 0, all = 0;
    uint64_t count, greatest;
    for (size_t i = 0; (count = ls_histogram_next(h, &i, &greatest)) > 0;) {
        all += count;
        if (i - 1 <= last) below += count;
    }
    return all > 0 ? 100 * ((double)below / (double)all) : 100;
}

uint64_t ls_histogram_next(const ls_histogram *h, size_t *slot, uint64_t *ns)
{
    range r = used(h);
    for (size_t i = *slot > r.from ? *slot : r.from; i < r.to; i++) {
        uint64_t count = LOAD(h->counts[i]);
        if (count == 0) continue;
        *slot = i + 1;
        *ns = clamp(h, slot_greatest(i));
        return count;
    }
    *slot = LS_HISTOGRAM_SLOTS;
    return 0;
}
