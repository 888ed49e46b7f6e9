/* generation.c - see generation.h. */
#include "script/core/generation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "script/core/state.h"

/* The search for a free state goes over all of them this many times before a further one is made: other threads move
 * from state to state meanwhile, so that one pass may miss the free one. */
enum { PASSES = 3 };

int ls_generation_init(ls_generation *g, ls_runtime *runtime, const ls_module *const *modules, unsigned module_count,
                       const char *path)
{
    int err = LS_ENOMEM;
    g->runtime = runtime;
    g->modules = modules;
    g->module_count = module_count;
    g->path = malloc(strlen(path) + 1);
    g->definitions = calloc(module_count, sizeof *g->definitions);
    if (g->path == NULL || g->definitions == NULL) return err;
    memcpy(g->path, path, strlen(path) + 1);
    if ((err = ls_pools_open(LS_LOAD_POOL_BYTES_MAX, &g->load_pools)) < 0) return err;
    if ((err = ls_pool_open(g->load_pools, &g->load_pool)) < 0) return err;
    ls_pool_enter(g->load_pool);
    ls_thread_ctx_init(&g->load_ctx, NULL, g->load_pool, 0);
    return ls_generation_room(g, 1);
}

void ls_generation_finish(ls_generation *g)
{
    for (unsigned slot = 0; slot < g->module_count && g->definitions != NULL; slot++) {
        ls_definitions *d = &g->definitions[slot];
        void (*const undefine)(void *) = g->modules[slot]->undefine != NULL ? g->modules[slot]->undefine : free;
        for (unsigned n = 0; n < d->count; n++) undefine(d->entries[n]);
        free(d->entries);
    }
    free(g->definitions);
    free(g->states);
    if (g->load_pool != NULL) ls_pool_close(g->load_pool);
    if (g->load_pools != NULL) ls_pools_close(g->load_pools);
    ls_lua_files_free(&g->lua_files);
    free(g->path);
}

int ls_generation_room(ls_generation *g, unsigned states_max)
{
    _Atomic(ls_state *) *states = calloc(states_max, sizeof *states);
    if (states == NULL) return LS_ENOMEM;
    for (unsigned n = 0; n < g->state_count; n++) atomic_init(&states[n], atomic_load(&g->states[n]));
    free(g->states);
    g->states = states;
    g->states_max = states_max;
    return LS_OK;
}

/* ---- states on demand -------------------------------------------------------------------------------------- */

/* Reserve the next index. false: the limit. */
static bool claim(ls_generation *g, unsigned *index)
{
    unsigned count = atomic_load(&g->state_count);
    do {
        if (count >= g->states_max) return false;
    } while (!atomic_compare_exchange_weak(&g->state_count, &count, count + 1));
    *index = count;
    return true;
}

int ls_generation_add_state(ls_generation *g, ls_thread_ctx *ctx, char *message, size_t message_bytes)
{
    const size_t bytes_max =
        g->settings.lua_bytes_max > 0 ? (size_t)g->settings.lua_bytes_max : (size_t)LS_LUA_MIB_MAX << 20;
    unsigned index;
    ls_state *state;
    if (!claim(g, &index)) return LS_ELIMIT;
    int err = ls_state_open(g, index, bytes_max, ctx, &state, message, message_bytes);
    if (err < 0) return err;
    const bool on_worker = ctx != &g->load_ctx;
    if (on_worker) (void)ls_actor_try_enter(&state->actor, ctx);
    err = g->load(g, state, ctx, message, message_bytes);
    if (err == LS_OK && index > 0) err = ls_definitions_check(state, message, message_bytes);
    if (err < 0) {
        if (on_worker) ls_actor_leave(&state->actor, ctx); /* nothing posts to it */
        ls_state_discard(state, ctx);
        return err;
    }
    if (on_worker) ls_state_loaded(state);
    atomic_store(&g->states[index], state);
    return LS_OK;
}

/* Make a state and enter it. NULL: not possible. */
static ls_state *make_state(ls_generation *g, ls_thread_ctx *ctx)
{
    char message[512];
    if (atomic_load_explicit(&g->load_failed, memory_order_relaxed)) return NULL;
    const int err = ls_generation_add_state(g, ctx, message, sizeof message);
    if (err == LS_OK) {
        ls_state *state = (ls_state *)(void *)ctx->inside;
        if (atomic_load(&g->started)) ls_state_step(ctx, state); /* else the start posts the step */
        return state;
    }
    if (err != LS_ELIMIT && !atomic_exchange(&g->load_failed, true))
        ls_log(LS_LOG_ERROR,
               "cannot load the site into a further Lua state; requests wait for the %u existing ones: %s",
               atomic_load(&g->state_count) - 1, message);
    return NULL;
}

/* The state with the smallest load among those of the running threads; NULL: none of them is free. */
static ls_state *least_loaded(ls_generation *g, const ls_thread_ctx *ctx, unsigned count, ls_state_load_fn *load_of)
{
    const unsigned choices = count < g->running_count ? count : g->running_count;
    ls_state *best = NULL;
    unsigned fewest = 0;
    for (unsigned n = 0; n < choices; n++) { /* the thread's own first */
        ls_state *state = atomic_load_explicit(&g->states[(n + ctx->index) % choices], memory_order_acquire);
        if (state == NULL || atomic_load_explicit(&state->actor.held, memory_order_relaxed) != 0) continue;
        const unsigned load = load_of(state);
        if (best != NULL && load >= fewest) continue;
        best = state;
        fewest = load;
    }
    return best;
}

ls_state *ls_generation_enter(ls_generation *g, ls_thread_ctx *ctx, ls_state_load_fn *load_of)
{
    const unsigned own = ctx->index;
    unsigned count = atomic_load_explicit(&g->state_count, memory_order_relaxed);
    ls_state *state = NULL;
    if (load_of != NULL) state = least_loaded(g, ctx, count, load_of);
    if (state != NULL && ls_actor_try_enter(&state->actor, ctx)) return state;
    for (unsigned n = 0; n < PASSES * count; n++) {
        state = atomic_load_explicit(&g->states[(n + own) % count], memory_order_acquire);
        if (state != NULL && ls_actor_try_enter(&state->actor, ctx)) return state;
    }
    return make_state(g, ctx);
}

ls_state *ls_generation_busy_state(ls_generation *g, const ls_thread_ctx *ctx)
{
    const unsigned count = atomic_load(&g->state_count);
    for (unsigned n = 0;; n++) { /* the first state exists */
        ls_state *state = atomic_load(&g->states[(n + ctx->index) % count]);
        if (state != NULL) return state;
    }
}

/* ---- definitions ------------------------------------------------------------------------------------------- */

void *ls_define(lua_State *L, unsigned slot, size_t bytes, unsigned *index)
{
    ls_state *state = ls_state_of(L);
    ls_generation *g = state->generation;
    const ls_module *module = g->modules[slot];
    ls_definitions *d = &g->definitions[slot];
    const unsigned number = state->defined[slot];
    if (number == module->definitions_max) {
        luaL_error(L, "more than %d %s", (int)module->definitions_max, module->defines);
        return NULL;
    }
    if (state->index == 0) {
        if (d->entries == NULL) d->entries = calloc(module->definitions_max, sizeof *d->entries);
        if (d->entries != NULL) d->entries[number] = calloc(1, bytes);
        if (d->entries == NULL || d->entries[number] == NULL) {
            luaL_error(L, "not enough memory");
            return NULL;
        }
        d->count = number + 1;
    } else if (number >= d->count) {
        luaL_error(L, "one Lua state defines more %s than another; a site must define the same ones in every state",
                   module->defines);
        return NULL;
    }
    state->defined[slot] = number + 1;
    *index = number;
    return d->entries[number];
}

bool ls_generation_defines(const ls_generation *g)
{
    for (unsigned slot = 0; slot < g->module_count; slot++)
        if (g->definitions[slot].count > 0) return true;
    return false;
}

int ls_definitions_check(const ls_state *state, char *message, size_t message_bytes)
{
    const ls_generation *g = state->generation;
    for (unsigned slot = 0; slot < g->module_count; slot++) {
        if (g->definitions[slot].count == state->defined[slot]) continue;
        (void)snprintf(message, message_bytes,
                       "%s defines %u %s in one Lua state and %u in another: all states must define the same", g->path,
                       g->definitions[slot].count, g->modules[slot]->defines, state->defined[slot]);
        return LS_ESCRIPT;
    }
    return LS_OK;
}
