/* state.c - see state.h. */
#include "script/core/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lualib.h>

#include "base/err.h"
#include "base/log.h"
#include "script/core/libraries.h"
#include "script/core/lua_files.h"
#include "script/core/lua_modules.h"
#include "script/core/quiet.h"
#include "script/core/task.h"

/* realloc(3) that takes small blocks from the state's allocator. old_size 0: there is no old block. */
static void *state_resize(ls_alloc *alloc, void *ptr, size_t old_size, size_t new_size)
{
    const bool was_small = old_size - 1 < LS_ALLOC_BYTES_MAX, is_small = new_size <= LS_ALLOC_BYTES_MAX;
    if (!was_small && !is_small) return realloc(ptr, new_size);
    if (was_small && is_small && (old_size - 1) / LS_ALLOC_STEP == (new_size - 1) / LS_ALLOC_STEP) return ptr;
    void *moved = is_small ? ls_alloc_take(alloc, new_size) : malloc(new_size);
    if (moved == NULL || old_size == 0) return moved;
    memcpy(moved, ptr, old_size < new_size ? old_size : new_size);
    if (was_small)
        ls_alloc_give(alloc, ptr);
    else
        free(ptr);
    return moved;
}

/* The lua_Alloc function: counts Lua's memory. Returns NULL past the limit; Lua then collects garbage, tries again and
 * raises. A request for the same or a smaller size never fails: Lua relies on it. */
static void *state_alloc(void *user, void *ptr, size_t old_size, size_t new_size)
{
    ls_state *state = user;
    const size_t live = atomic_load_explicit(&state->bytes_live, memory_order_relaxed);
    if (ptr == NULL) old_size = 0; /* for a new block Lua passes the type of the object here */
    if (new_size == 0) {
        atomic_store_explicit(&state->bytes_live, live - old_size, memory_order_relaxed);
        if (old_size - 1 < LS_ALLOC_BYTES_MAX)
            ls_alloc_give(&state->alloc, ptr);
        else
            free(ptr);
        return NULL;
    }
    if (new_size > old_size && (live >= state->bytes_max || new_size - old_size > state->bytes_max - live)) {
        state->refused = true;
        return NULL;
    }
    void *moved = state_resize(&state->alloc, ptr, old_size, new_size);
    if (moved == NULL && new_size > old_size) return NULL;
    if (moved == NULL) moved = ptr; /* shrinking: keep the old block */
    atomic_store_explicit(&state->bytes_live, live - old_size + new_size, memory_order_relaxed);
    return moved;
}

/* Only a bug in luaserve leads here: a Lua error outside of a protected call. */
static int state_panic(lua_State *L)
{
    const char *text = lua_tostring(L, -1);
    ls_log(LS_LOG_ERROR, "unprotected error in call to the Lua API: %s", text != NULL ? text : "(no text)");
    return 0; /* Lua calls abort() */
}

static const char exceeded_text[] = "the handler used more processor time than max_cpu allows";

void ls_state_hook(lua_State *L, lua_Debug *ar)
{
    ls_state *state = ls_state_of(L);
    if (!ls_cpu_watch_exceeded(state->cpu)) {
        lua_sethook(L, NULL, 0, 0); /* a hook of an earlier run: the coroutine has survived that run */
        return;
    }
    (void)ar;
    ls_state_end_run(L);
}

/* Note the innermost line of Lua code that runs. */
static void note_line(ls_state *state, lua_State *L)
{
    lua_Debug ar;
    for (int level = 0; lua_getstack(L, level, &ar) != 0; level++) {
        if (lua_getinfo(L, "Sl", &ar) == 0 || ar.currentline <= 0) continue;
        (void)snprintf(state->ended_at, sizeof state->ended_at, "%s:%d", ar.short_src, ar.currentline);
        return;
    }
}

void ls_state_raise_unhandled(lua_State *L)
{
    (void)lua_checkstack(L, 1);
    lua_pushliteral(L, "not enough memory"); /* lua_error throws this message as Lua's memory error */
    lua_error(L);
}

void ls_state_end_run(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    ls_task *task = state->current;
    if ((task != NULL || state->loading) && state->ended_at[0] == '\0') note_line(state, L);
    if (task != NULL && task->blocked == 0 && lua_isyieldable(L)) {
        /* Yield and never resume: no pcall, message handler or __close of the script can continue after that. */
        task->killed = true;
        *ls_state_extra(L) |= LS_EXTRA_WAITS;
        lua_yield(L, 0);
        return;
    }
    ls_state_raise_unhandled(L);
}

ls_pool *ls_state_pool(const ls_state *state)
{
    return state->ctx != NULL ? state->ctx->pool : state->generation->load_pool;
}

ls_block *ls_state_block(lua_State *L, size_t size)
{
    ls_state *state = ls_state_of(L);
    ls_block *block = ls_block_get(ls_state_pool(state), size);
    if (block == NULL) {
        (void)lua_gc(L, LUA_GCCOLLECT); /* the collector does not see the size of the blocks that buffers hold */
        block = ls_block_get(ls_state_pool(state), size);
    }
    if (block == NULL) luaL_error(L, "no memory for a buffer: the pool is at its limit");
    return block;
}

int ls_state_protected(ls_state *state, ls_thread_ctx *ctx, lua_CFunction fn, void *with)
{
    lua_State *L = state->L;
    ls_cpu_watch *cpu = ls_state_cpu_watch(state, ctx);
    const int top = lua_gettop(L);
    ls_thread_ctx *const outer_ctx = state->ctx;
    ls_cpu_watch *const outer_cpu = state->cpu;
    state->ctx = ctx;
    state->cpu = cpu;
    ls_cpu_watch_begin(cpu, L, 0);
    lua_pushcfunction(L, fn);
    lua_pushlightuserdata(L, with);
    state->protected_calls++;
    const int status = lua_pcall(L, 1, 0, 0);
    state->protected_calls--;
    (void)ls_cpu_watch_end(cpu);
    lua_settop(L, top);
    if (state->flushes != NULL && state->current == NULL)
        ls_state_flush(ctx, state, false); /* else the end of the running task flushes */
    if (state->loading) {
        state->ctx = outer_ctx;
        state->cpu = outer_cpu;
    }
    return status;
}

int ls_state_report(ls_state *state, ls_thread_ctx *ctx, lua_CFunction fn, void *with)
{
    const size_t room = SIZE_MAX - state->bytes_max,
                 more = room < LS_STATE_REPORT_BYTES ? room : LS_STATE_REPORT_BYTES;
    state->bytes_max += more;
    const int status = ls_state_protected(state, ctx, fn, with);
    state->bytes_max -= more;
    return status;
}

void ls_state_flush(ls_thread_ctx *ctx, ls_state *state, bool suspended)
{
    while (state->flushes != NULL) {
        ls_flush *flush = state->flushes;
        state->flushes = flush->next;
        flush->listed = false;
        flush->run(ctx, state, flush, suspended);
    }
}

/* The state does not receive work from other states, so without a task and a timer it never has one again. */
void ls_state_settle(ls_state *state)
{
    ls_generation *generation = state->generation;
    const ls_site_host *host = generation->runtime->host;
    if (state->ended || state->holds > 0 || atomic_load_explicit(&state->busy, memory_order_relaxed) > 0) return;
    if (!state->started || atomic_load(&generation->retired) || ls_generation_defines(generation)) return;
    state->ended = true;
    if (atomic_fetch_sub_explicit(&generation->states_left, 1, memory_order_relaxed) == 1 && host != NULL)
        host->stop(host->server);
}

/* ---- open -------------------------------------------------------------------------------------------------- */

/* Make the table of `luaserve.core` with the functions of all modules. */
static void define_core(lua_State *L, const ls_generation *generation)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_newtable(L);
    for (unsigned n = 0; n < generation->module_count; n++)
        if (generation->modules[n]->functions != NULL) luaL_setfuncs(L, generation->modules[n]->functions, 0);
    lua_setfield(L, -2, "luaserve.core");
    lua_pop(L, 1);
}

static int state_define(lua_State *L)
{
    ls_state *state = lua_touserdata(L, 1);
    const ls_generation *generation = state->generation;
    lua_settop(L, 0);
    for (unsigned n = 0; n < generation->module_count; n++)
        if (generation->modules[n]->prepare != NULL) generation->modules[n]->prepare(L, state);
    ls_libraries_open(L);
    ls_coroutine_define(L);
    ls_quiet_define(L);
    ls_lua_modules_preload(L, "luaserve", generation->runtime->bytecode);
    ls_lua_files_define(L);
    ls_lua_modules_path(L, generation->path, ls_lua_files_kept); /* the directory of the site comes first */
    lua_pushstring(L, exceeded_text);
    state->exceeded_text_ref = luaL_ref(L, LUA_REGISTRYINDEX); /* for code that may not allocate */
    define_core(L, generation);
    for (unsigned n = 0; n < generation->module_count; n++)
        if (generation->modules[n]->define != NULL) generation->modules[n]->define(L, state);
    /* Requests create short-lived tables and strings beside the long-lived objects of the site. Generational
     * collection saves 15 to 20 % of the time of a route with query and JSON; a hello makes no garbage in either
     * mode. */
    (void)lua_gc(L, LUA_GCGEN, 0, 0);
    return 0;
}

static size_t aligned(size_t bytes)
{
    return (bytes + _Alignof(max_align_t) - 1) & ~(_Alignof(max_align_t) - 1);
}

/* One allocation: the state, the addresses of the modules' data, their counts of definitions, their data. */
static ls_state *state_alloc_with_data(const ls_generation *generation)
{
    const unsigned count = generation->module_count;
    const size_t head = sizeof(ls_state) + count * sizeof(void *), counts = aligned(head + count * sizeof(unsigned));
    size_t bytes = counts;
    for (unsigned n = 0; n < count; n++) bytes += aligned(generation->modules[n]->bytes);
    ls_state *state = calloc(1, bytes);
    if (state == NULL) return NULL;
    state->defined = (unsigned *)(void *)((char *)state + head);
    char *at = (char *)state + counts;
    for (unsigned n = 0; n < count; n++) {
        state->data[n] = at;
        at += aligned(generation->modules[n]->bytes);
    }
    return state;
}

static void step_done(ls_thread_ctx *ctx, ls_op *op);

/* Free what the state holds, without the state itself. Lua is closed. */
static void state_release(ls_state *state)
{
    const ls_generation *generation = state->generation;
    for (unsigned n = 0; n < generation->module_count; n++)
        if (generation->modules[n]->free != NULL) generation->modules[n]->free(state);
    ls_strings_close(&state->strings);
    ls_alloc_close(&state->alloc);
    ls_task_free_all(state);
    state->L = NULL;
}

int ls_state_open(ls_generation *generation, unsigned index, size_t bytes_max, ls_thread_ctx *ctx, ls_state **out,
                  char *message, size_t message_bytes)
{
    ls_state *state = state_alloc_with_data(generation);
    if (state == NULL) goto fail;
    ls_actor_init(&state->actor);
    state->generation = generation;
    state->index = index;
    state->bytes_max = bytes_max;
    state->ctx = ctx;
    state->cpu = ls_state_cpu_watch(state, ctx);
    state->step_op = (ls_op){.done = step_done, .actor = &state->actor};
    ls_node_init(&state->tasks_free);
    ls_node_init(&state->tasks_live);
    ls_alloc_open(&state->alloc);
    ls_strings_open(&state->strings);
    state->loading = true;
    state->L = lua_newstate(state_alloc, state);
    if (state->L == NULL) goto fail_state;
    *ls_state_extra(state->L) = (uintptr_t)state;
    (void)lua_atpanic(state->L, state_panic);
    if (ls_state_protected(state, ctx, state_define, state) != LUA_OK) goto fail_lua;
    *out = state;
    return LS_OK;

fail_lua:
    state->closing = true;
    lua_close(state->L);
fail_state:
    state_release(state);
    free(state);
fail:
    (void)snprintf(message, message_bytes, "not enough memory for a Lua state");
    return LS_ENOMEM;
}

void ls_state_loaded(ls_state *state)
{
    state->loading = false;
    state->port = state->generation->runtime->port;
    state->strings.port = state->port;
}

static int collect(lua_State *L)
{
    (void)lua_gc(L, LUA_GCCOLLECT);
    return 0;
}

void ls_state_count_ended(ls_thread_ctx *ctx, ls_state *state, unsigned *ended, unsigned left)
{
    if (++*ended < LS_COLLECT_AFTER || *ended < left) return;
    *ended = 0;
    (void)ls_state_protected(state, ctx, collect, NULL);
}

/* ---- the phases of the life -------------------------------------------------------------------------------- */

void ls_state_post_step(ls_state *state, ls_port *port)
{
    if (!atomic_exchange(&state->step_posted, true)) {
        atomic_fetch_add_explicit(&state->busy, 1, memory_order_relaxed);
        ls_port_post(port, &state->step_op, NULL, 0);
    }
}

/* Close Lua: nothing refers to the state any more but this thread. */
static void close_lua(ls_thread_ctx *ctx, ls_state *state)
{
    ls_cpu_watch *cpu = ls_state_cpu_watch(state, ctx);
    state->ctx = ctx;
    state->cpu = cpu;
    state->current = NULL;
    state->port = NULL;
    state->strings.port = NULL;
    state->closing = true;
    ls_cpu_watch_begin(cpu, state->L, 0); /* finalizers */
    lua_close(state->L);
    (void)ls_cpu_watch_end(cpu);
    state_release(state);
}

/* A step of the live close. */
static void close_step(ls_thread_ctx *ctx, ls_state *state, enum ls_closing closing)
{
    const ls_generation *generation = state->generation;
    if (atomic_load(&state->closed)) return;
    if (closing != LS_CLOSING_FORCED && (ls_tasks_unfinished(state) || atomic_load(&state->websockets) > 0)) return;
    if (closing != LS_CLOSING_DISCONNECT) ls_tasks_cancel(state);
    for (unsigned n = 0; n < generation->module_count; n++)
        if (generation->modules[n]->close != NULL) generation->modules[n]->close(ctx, state);
    if (closing == LS_CLOSING_DISCONNECT) return;
    ls_tasks_end(ctx, state);
    if (!ls_list_empty(&state->tasks_live) || state->alarms_used > 0 || !ls_strings_closed(&state->strings)) return;
    if (atomic_load(&state->busy) > 0 || ls_actor_has_waiting(&state->actor)) return;
    for (unsigned n = 0; n < generation->module_count; n++)
        if (generation->modules[n]->closed != NULL && !generation->modules[n]->closed(state)) return;
    close_lua(ctx, state);
    atomic_store(&state->closed, true);
}

static void advance(ls_thread_ctx *ctx, ls_state *state)
{
    const ls_generation *generation = state->generation;
    const ls_module *const *modules = generation->modules;
    const bool start = !state->started && atomic_load(&generation->started),
               retire = !state->retired && atomic_load(&generation->retired),
               drain = !state->draining && atomic_load(&generation->draining),
               cut = !state->cut && atomic_load(&generation->cut);
    state->started |= start;
    state->retired |= retire;
    state->draining |= drain;
    state->cut |= cut;
    for (unsigned n = 0; n < generation->module_count && start; n++)
        if (modules[n]->start != NULL) modules[n]->start(ctx, state);
    for (unsigned n = 0; n < generation->module_count && retire; n++)
        if (modules[n]->retire != NULL) modules[n]->retire(ctx, state);
    for (unsigned n = 0; n < generation->module_count && drain; n++)
        if (modules[n]->drain != NULL) modules[n]->drain(ctx, state);
    if (cut) ls_tasks_cut_requests(ctx, state);
}

/* The step counts as busy until it has run the hooks. */
static void step_counted(ls_thread_ctx *ctx, ls_state *state)
{
    if (!atomic_load(&state->closed)) advance(ctx, state);
    atomic_fetch_sub_explicit(&state->busy, 1, memory_order_relaxed);
    const enum ls_closing closing = atomic_load(&state->generation->closing);
    if (closing != LS_CLOSING_NOT)
        close_step(ctx, state, closing);
    else
        ls_state_settle(state);
}

static void step_done(ls_thread_ctx *ctx, ls_op *op)
{
    ls_state *state = LS_CONTAINER(op, ls_state, step_op);
    atomic_store(&state->step_posted, false);
    step_counted(ctx, state);
}

void ls_state_step(ls_thread_ctx *ctx, ls_state *state)
{
    atomic_fetch_add_explicit(&state->busy, 1, memory_order_relaxed);
    step_counted(ctx, state);
}

bool ls_state_at_rest(ls_state *state)
{
    return atomic_load(&state->closed) && atomic_load(&state->actor.held) == 0 &&
           atomic_load(&state->actor.wakeup_queued) == 0 && atomic_load(&state->actor.inbox) == NULL &&
           !atomic_load(&state->step_posted);
}

void ls_state_disconnect(ls_state *state)
{
    state->port = NULL;
    state->strings.port = NULL;
}

void ls_state_discard(ls_state *state, ls_thread_ctx *ctx)
{
    const ls_generation *generation = state->generation;
    ls_state_disconnect(state);
    for (unsigned n = 0; n < generation->module_count; n++)
        if (generation->modules[n]->abandon != NULL) generation->modules[n]->abandon(state);
    close_lua(ctx, state);
    free(state);
}

void ls_state_free(ls_state *state)
{
    if (atomic_load(&state->closed))
        free(state);
    else
        ls_state_discard(state, &state->generation->load_ctx);
}
