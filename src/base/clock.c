/* clock.c - see clock.h: the clock of a site. */
#include "base/clock.h"

#include <stdatomic.h>

static _Atomic uint64_t moved_ns;

uint64_t ls_clock_moved_ns(void)
{
    return atomic_load_explicit(&moved_ns, memory_order_relaxed);
}

void ls_clock_move(uint64_t ns)
{
    atomic_fetch_add_explicit(&moved_ns, ns, memory_order_relaxed);
}
