/* redis_stats.c - see redis_stats.h. */
#include "script/bind/redis/redis_stats.h"

static void stats(ls_runtime *runtime, ls_site_stat_fn *each, void *to)
{
    static const char *const names[LS_REDIS_STATS] = {"redis_connections", "redis_waiting", "redis_commands",
                                                      "redis_errors",      "topic_lost",    "topic_reconnects"};
    _Atomic uint64_t *const counts = ls_runtime_own(runtime, LS_SLOT_redis);
    for (unsigned n = 0; n < LS_REDIS_STATS; n++) each(to, names[n], (double)atomic_load(&counts[n]));
}

const ls_module_common ls_redis_common = {.bytes = LS_REDIS_STATS * sizeof(_Atomic uint64_t), .stats = stats};
