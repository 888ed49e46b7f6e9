/* redis_stats.h - the numbers of ls.redis and of topics over Redis in ls.stats(), of all states of a server. */
#ifndef LS_SCRIPT_REDIS_STATS_H
#define LS_SCRIPT_REDIS_STATS_H

#include "script/bind/modules.h"
#include "script/core/state.h"

enum ls_redis_stat {
    LS_REDIS_CONNECTIONS, /* that are open */
    LS_REDIS_WAITING,     /* calls that wait for a reply */
    LS_REDIS_COMMANDS,    /* that were sent */
    LS_REDIS_ERRORS,      /* replies that are errors */
    LS_REDIS_LOST,        /* messages of topics */
    LS_REDIS_RECONNECTS,  /* connections of topics */
    LS_REDIS_STATS
};

extern const ls_module_common ls_redis_common;

static inline void ls_redis_count(const ls_state *state, enum ls_redis_stat what, int64_t by)
{
    _Atomic uint64_t *const counts = ls_runtime_own(ls_state_runtime(state), LS_SLOT_redis);
    atomic_fetch_add_explicit(&counts[what], (uint64_t)by, memory_order_relaxed);
}

#endif
