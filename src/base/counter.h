/* counter.h - counters with one writer thread and any number of readers: a relaxed load and store instead of an atomic
 * addition. A reader never sees a torn value. */
#ifndef LS_BASE_COUNTER_H
#define LS_BASE_COUNTER_H

#include <stdatomic.h>
#include <stdint.h>

typedef _Atomic uint64_t ls_counter;

static inline void ls_counter_add(ls_counter *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

static inline uint64_t ls_counter_read(const ls_counter *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

#endif
