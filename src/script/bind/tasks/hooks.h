/* hooks.h - the functions of ls.on and ls.init in a state. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_HOOKS_H
#define LS_SCRIPT_HOOKS_H

#include "script/bind/modules.h"
#include "script/core/state.h"

enum ls_hook_kind { LS_HOOK_START, LS_HOOK_DRAIN, LS_HOOK_LOG, LS_HOOK_INIT, LS_HOOK_LOADED, LS_HOOKS };

typedef struct ls_hook_list {
    int *refs; /* registry references to functions */
    unsigned count;
} ls_hook_list;

typedef struct ls_hooks {
    ls_hook_list at[LS_HOOKS];
} ls_hooks;

/* Run the functions of ls.init one after another, with the argument `reload`, in one task of the first state. Then the
 * "init_ended" of the host is called: with a message if a function has raised, or if there was no memory. The thread
 * holds the state's actor. */
void ls_hooks_init(ls_thread_ctx *ctx, ls_state *state, bool reload);

/* A lua_CFunction: the site has loaded; calls the functions of core.on_loaded. */
int ls_hooks_loaded(lua_State *L);

static inline ls_hooks *ls_hooks_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_hooks);
}

#endif
