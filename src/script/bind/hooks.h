/* hooks.h - the functions of ls.on and ls.once in a state. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_HOOKS_H
#define LS_SCRIPT_HOOKS_H

#include "script/bind/modules.h"
#include "script/core/state.h"

enum ls_hook_kind { LS_HOOK_START, LS_HOOK_DRAIN, LS_HOOK_LOG, LS_HOOK_ONCE, LS_HOOKS };

typedef struct ls_hook_list {
    int *refs; /* registry references to functions */
    unsigned count;
} ls_hook_list;

typedef struct ls_hooks {
    ls_hook_list at[LS_HOOKS];
} ls_hooks;

static inline ls_hooks *ls_hooks_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_hooks);
}

#endif
