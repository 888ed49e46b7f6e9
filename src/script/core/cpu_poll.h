/* cpu_poll.h - the poll of the processor-time limit, for C functions whose loops may run for long.
 *
 * The debug hook of cpu_limit.h ends Lua code only. A function in C therefore polls in each round of such a loop; the
 * patched libraries of Lua do (third_party/patches). A poll is three loads and a branch. */
#ifndef LS_SCRIPT_CPU_POLL_H
#define LS_SCRIPT_CPU_POLL_H

#include "script/core/state.h"

/* Does not return if the run has exceeded the limit. The caller holds nothing that an error would leak. */
static inline void ls_cpu_poll(lua_State *L)
{
    if (ls_cpu_watch_exceeded(ls_state_of(L)->cpu)) ls_state_end_run(L);
}

#endif
