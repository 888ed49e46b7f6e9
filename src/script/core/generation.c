/* generation.c - see generation.h. */
#include "script/core/generation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/io/log.h"
#include "script/core/state.h"

/* The search for a free state goes over all of them this many times before a further one is made: other threads move
 * from state to state meanwhile, so that one pass may miss the free one. */
enum { PASSES = 3, PASSES_FULL = 32, TURN_WAIT_MS = 20, FULL_WAIT_MS = 250, FULL_MS = 1000, NO_MEMORY_MS = 5000 };
/* FULL: before work is refused; see enter_full. NO_MEMORY: after a load without memory none is tried for so long */

int ls_generation_init(ls_generation *g, ls_runtime *runtime, const char *path)
{
    int err = LS_ENOMEM;
    g->runtime = runtime;
    g->modules = runtime->modules;
    g->module_count = runtime->module_count;
    g->path = malloc(strlen(path) + 1);
    g->definitions = calloc(g->module_count, sizeof *g->definitions);
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

static size_t lua_bytes_max(const ls_generation *g)
{
    return g->settings.lua_bytes_max > 0 ? (size_t)g->settings.lua_bytes_max : (size_t)LS_LUA_MIB_MAX << 20;
}

/* What the states may have without a look at the others; what a state has given back is not its own any more. `open`:
 * only of those that are open, and it receives their number; NULL: also of those that load. The mutex is held. */
static uint64_t lua_bytes_granted(ls_generation *g, unsigned *open)
{
    const unsigned count = atomic_load(&g->state_count);
    uint64_t used = 0;
    for (unsigned n = 0; n < count; n++) {
        ls_state *state = atomic_load(&g->states[n]);
        if (state == NULL || (open != NULL && atomic_load(&state->closed))) continue;
        const size_t most = atomic_load_explicit(&state->bytes_live, memory_order_relaxed) + LS_STATE_GRANT_BYTES;
        size_t granted = atomic_load_explicit(&state->bytes_granted, memory_order_relaxed);
        if (granted > most) atomic_store_explicit(&state->bytes_granted, granted = most, memory_order_relaxed);
        used += granted;
        if (open != NULL) ++*open;
    }
    return used;
}

uint64_t ls_generation_lua_bytes_max(const ls_generation *g)
{
    const uint64_t set = g->settings.lua_all_bytes_max, states = 2 * (uint64_t)g->running_count + LS_LUA_STATES_MORE;
    return set > 0 ? set : lua_bytes_max(g) < UINT64_MAX / states ? states * lua_bytes_max(g) : UINT64_MAX;
}

uint64_t ls_generation_lua_bytes_left(ls_generation *g)
{
    const uint64_t used = lua_bytes_granted(g, NULL), max = ls_generation_lua_bytes_max(g);
    return used < max ? max - used : 0;
}

static uint64_t open_states(ls_generation *g, unsigned *open)
{
    ls_mutex_lock(&g->runtime->mutex);
    *open = 0;
    const uint64_t used = lua_bytes_granted(g, open);
    ls_mutex_unlock(&g->runtime->mutex);
    return used;
}

/* Whether so many states of the average size fit beside the open ones, and none failed to load for lack of memory
 * shortly before. */
static bool has_memory(ls_generation *g, unsigned more)
{
    const uint64_t failed_ms = atomic_load_explicit(&g->no_memory_ms, memory_order_relaxed);
    unsigned open;
    const uint64_t used = open_states(g, &open);
    if (open == 0 || open == g->states_max) return true;
    if (failed_ms > 0 && ls_clock_coarse_ms() - failed_ms < NO_MEMORY_MS) return false;
    return used + used / open * more <= ls_generation_lua_bytes_max(g);
}

bool ls_generation_has_memory(ls_generation *g)
{
    return has_memory(g, atomic_load(&g->loading) + 1);
}

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

/* Open the state, which is closed, and load the site into it. The worker holds its actor. */
static int open_state(ls_generation *g, ls_state *state, ls_thread_ctx *ctx, char *message, size_t message_bytes)
{
    int err = ls_state_open(state, ctx, message, message_bytes);
    if (err < 0) return err;
    err = g->load(g, state, ctx, message, message_bytes);
    if (err == LS_OK && state->index > 0) err = ls_definitions_check(state, message, message_bytes);
    if (err < 0)
        ls_state_open_failed(state, ctx);
    else if (ctx != &g->load_ctx)
        ls_state_loaded(state);
    else
        atomic_store(&state->closed, false); /* ls_state_loaded follows, before the start */
    return err;
}

int ls_generation_add_state(ls_generation *g, ls_thread_ctx *ctx, char *message, size_t message_bytes)
{
    const bool on_worker = ctx != &g->load_ctx;
    if (atomic_load(&g->state_count) >= g->states_max) return LS_ELIMIT;
    ls_state *state = ls_state_new(g, lua_bytes_max(g));
    if (state == NULL) return LS_ENOMEM;
    if (!claim(g, &state->index)) {
        free(state);
        return LS_ELIMIT;
    }
    if (on_worker) (void)ls_actor_try_enter(&state->actor, ctx);
    atomic_store(&g->states[state->index], state); /* closed; it counts for the memory while it loads */
    const int err = open_state(g, state, ctx, message, message_bytes);
    if (err < 0 && on_worker) ls_actor_leave(&state->actor, ctx);
    return err;
}

/* Open and enter a closed state. LS_ENOENT: no state is closed. */
static int reopen_state(ls_generation *g, ls_thread_ctx *ctx, char *message, size_t message_bytes)
{
    const unsigned count = atomic_load(&g->state_count);
    for (unsigned n = g->running_count; n < count && atomic_load(&g->closing) == LS_CLOSING_NOT; n++) {
        ls_state *state = atomic_load_explicit(&g->states[n], memory_order_acquire);
        if (state == NULL || !atomic_load(&state->closed) || !ls_actor_try_enter(&state->actor, ctx)) continue;
        const int err = state->L == NULL ? open_state(g, state, ctx, message, message_bytes) : LS_ENOENT;
        if (err == LS_OK) return LS_OK;
        ls_actor_leave(&state->actor, ctx);
        if (err != LS_ENOENT) return err;
    }
    return LS_ENOENT;
}

/* Make a state and enter it. NULL: not possible. */
static ls_state *make_state(ls_generation *g, ls_thread_ctx *ctx)
{
    char message[512] = "not enough memory";
    unsigned open;
    int err = LS_ELIMIT;
    if (atomic_load_explicit(&g->load_failed, memory_order_relaxed)) return NULL;
    if (has_memory(g, atomic_fetch_add(&g->loading, 1) + 1)) {
        err = reopen_state(g, ctx, message, sizeof message);
        if (err == LS_ENOENT) err = ls_generation_add_state(g, ctx, message, sizeof message);
    }
    atomic_fetch_sub(&g->loading, 1);
    if (err == LS_OK) {
        ls_state *state = ls_state_of_actor(ctx->inside);
        atomic_store_explicit(&state->used, true, memory_order_relaxed);
        if (atomic_load(&g->started)) ls_state_step(ctx, state); /* else the start posts the step */
        return state;
    }
    if (err == LS_ENOMEM) atomic_store_explicit(&g->no_memory_ms, ls_clock_coarse_ms(), memory_order_relaxed);
    if (err != LS_ELIMIT && (err == LS_ENOMEM || !atomic_exchange(&g->load_failed, true))) {
        (void)open_states(g, &open);
        ls_log(LS_LOG_ERROR, "cannot load the site into an additional Lua state; %s the %u open ones: %s",
               err == LS_ENOMEM ? "soon it is tried again, until then there are" : "requests wait for", open, message);
    }
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

static ls_state *enter_any(ls_generation *g, ls_thread_ctx *ctx, unsigned count, unsigned passes)
{
    for (unsigned n = 0; n < passes * count; n++) { /* the thread's own first */
        ls_state *state = atomic_load_explicit(&g->states[(n + ctx->index) % count], memory_order_acquire);
        if (state != NULL && !atomic_load_explicit(&state->closed, memory_order_relaxed) &&
            ls_state_try_enter(state, ctx))
            return state;
    }
    return NULL;
}

/* A handler may be about to leave its state: look again for some time, with `makes` only while as many states are being made as
 * threads run. */
static ls_state *enter_soon(ls_generation *g, ls_thread_ctx *ctx, bool makes)
{
    ls_state *state = NULL;
    for (unsigned ms = 0; state == NULL && ms < FULL_WAIT_MS && (!makes || atomic_load(&g->loading) >= g->running_count); ms++) {
        ls_clock_sleep_ms(1);
        state = enter_any(g, ctx, atomic_load(&g->state_count), 1);
    }
    return state;
}

/* All states are in use. After a search that has failed the next ones do not wait. */
static ls_state *enter_full(ls_generation *g, ls_thread_ctx *ctx)
{
    ls_state *state = enter_any(g, ctx, g->states_max, PASSES_FULL);
    if (state == NULL && ls_clock_coarse_ms() - atomic_load_explicit(&g->full_ms, memory_order_relaxed) > FULL_MS)
        state = enter_soon(g, ctx, false);
    if (state == NULL) atomic_store_explicit(&g->full_ms, ls_clock_coarse_ms(), memory_order_relaxed);
    return state;
}

ls_state *ls_generation_enter(ls_generation *g, ls_thread_ctx *ctx, ls_state_load_fn *load_of)
{
    const unsigned count = atomic_load_explicit(&g->state_count, memory_order_relaxed);
    ls_state *state = NULL;
    if (g->takes_turns) return ls_generation_enter_next(g, ctx, "", 0);
    if (load_of != NULL) state = least_loaded(g, ctx, count, load_of);
    if (state != NULL && ls_state_try_enter(state, ctx)) return state;
    if ((state = enter_any(g, ctx, count, PASSES)) != NULL) return state;
    if ((state = enter_soon(g, ctx, true)) != NULL) return state; /* a further one would delay those that are being made */
    if ((state = make_state(g, ctx)) != NULL || !ls_generation_is_full(g)) return state;
    return enter_full(g, ctx);
}

bool ls_generation_is_full(ls_generation *g)
{
    return g->refuses && !atomic_load_explicit(&g->load_failed, memory_order_relaxed) &&
           (atomic_load_explicit(&g->state_count, memory_order_relaxed) == g->states_max ||
            !ls_generation_has_memory(g));
}

/* NULL: the state is in use, or being made. */
static ls_state *enter_at(ls_generation *g, ls_thread_ctx *ctx, unsigned at)
{
    ls_state *state = atomic_load_explicit(&g->states[at], memory_order_acquire);
    return state != NULL && ls_state_try_enter(state, ctx) ? state : NULL;
}

ls_state *ls_generation_enter_next(ls_generation *g, ls_thread_ctx *ctx, const char *what, size_t what_len)
{
    const unsigned count = atomic_load(&g->state_count);
    unsigned hash = 0;
    for (size_t n = 0; n < what_len; n++) hash = 31 * hash + (unsigned char)what[n];
    _Atomic unsigned *const same = &g->turn_of[hash % LS_TURN_KINDS];
    unsigned at = (atomic_load(&g->turn_last) + 1) % count;
    if (at == atomic_load(same) && count > 2) at = (at + 1) % count;
    ls_state *state = enter_at(g, ctx, at);
    for (unsigned ms = 0; state == NULL && ms < TURN_WAIT_MS; ms++) { /* its thread may be about to leave */
        ls_clock_sleep_ms(1);
        state = enter_at(g, ctx, at);
    }
    for (unsigned n = 1; state == NULL && n < count; n++) state = enter_at(g, ctx, at = (at + 1) % count);
    if (state == NULL && (state = make_state(g, ctx)) == NULL) return NULL;
    atomic_store(&g->turn_last, state->index);
    atomic_store(same, state->index);
    return state;
}

ls_state *ls_generation_busy_state(ls_generation *g, const ls_thread_ctx *ctx)
{
    const unsigned states = atomic_load(&g->state_count),
                   count = states < g->running_count ? states : g->running_count;
    for (unsigned n = 0;; n++) { /* the first state exists; these give no memory back */
        ls_state *state = atomic_load(&g->states[(n + ctx->index) % count]);
        if (state != NULL) return state;
    }
}

void ls_generation_post(ls_generation *g, ls_thread_ctx *ctx, ls_op *op, ls_op_fn *done)
{
    ls_state *state = ls_generation_busy_state(g, ctx);
    *op = (ls_op){.done = done, .actor = &state->actor};
    atomic_fetch_add(&g->waiting, 1);
    ls_actor_post(&state->actor, ctx, op);
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

bool ls_generation_serves(const ls_generation *g)
{
    for (unsigned slot = 0; slot < g->module_count; slot++)
        if (g->modules[slot]->serves && g->definitions[slot].count > 0) return true;
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
