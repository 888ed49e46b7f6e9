/* state.c - see state.h. */
#include "script/core/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/err.h"
#include "base/io/log.h"
#include "script/core/lua/error_text.h"
#include "script/core/lua/libraries.h"
#include "script/core/lua/lua_files.h"
#include "script/core/lua/lua_modules.h"
#include "script/core/mute.h"
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

/* Let the state grow, and somewhat more, unless it is at its limit or all states together are at theirs. */
LS_NOINLINE static bool grant(ls_state *state, size_t live, size_t more)
{
    ls_mutex *const mutex = &state->generation->runtime->mutex;
    state->refused_by_all = false;
    if (live >= state->bytes_max || more > state->bytes_max - live) return false;
    ls_mutex_lock(mutex); /* else two states would get the same rest */
    const uint64_t left = ls_generation_lua_bytes_left(state->generation);
    const size_t granted = atomic_load_explicit(&state->bytes_granted, memory_order_relaxed);
    const uint64_t all_room = left + granted > live ? left + granted - live : 0, own_room = state->bytes_max - live,
                   room = all_room < own_room ? all_room : own_room;
    const size_t take = room > more && room - more > LS_STATE_GRANT_BYTES ? more + LS_STATE_GRANT_BYTES : (size_t)room;
    state->refused_by_all = more > room;
    if (more <= room) atomic_store_explicit(&state->bytes_granted, live + take, memory_order_relaxed);
    ls_mutex_unlock(mutex);
    return more <= room;
}

/* Note the line: no message handler is called for an error of memory. Not while the stack of a coroutine grows in a
 * version of Lua that has no valid pointers into it then. */
LS_NOINLINE static void refuse(ls_state *state, const void *ptr)
{
    lua_State *running = state->cpu != NULL ? atomic_load_explicit(&state->cpu->running, memory_order_relaxed) : NULL;
    char line[sizeof state->refused_at] = "";
    state->refused = true;
    if (running != NULL && (ptr == NULL || LUA_VERSION_RELEASE_NUM <= 50404)) ls_task_line(running, line, sizeof line);
    if (line[0] != '\0') memcpy(state->refused_at, line, sizeof line); /* else it is a message about the first one */
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
    if (new_size > old_size) {
        const size_t granted = atomic_load_explicit(&state->bytes_granted, memory_order_relaxed);
        if ((live >= granted || new_size - old_size > granted - live) && !grant(state, live, new_size - old_size)) {
            refuse(state, ptr);
            return NULL;
        }
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
    ls_cpu_watch *cpu = state->cpu;
    if (!ls_cpu_watch_exceeded(cpu)) { /* a look, or a hook of an earlier run: the coroutine has survived that run */
        const ls_runtime *runtime = ls_state_runtime(state);
        const uint64_t run = atomic_load_explicit(&cpu->run, memory_order_relaxed);
        lua_sethook(L, NULL, 0, 0);
        if (run == atomic_load_explicit(&cpu->look_run, memory_order_relaxed) && cpu != &runtime->load_cpu)
            runtime->on_look(L, state, run, (unsigned)(cpu - runtime->cpus));
        if (!ls_cpu_watch_exceeded(cpu)) return; /* else the limit has set the hook meanwhile */
    }
    ls_state_end_run(L);
}

void ls_state_raise_unhandled(lua_State *L)
{
    (void)lua_checkstack(L, 1);
    lua_pushliteral(L, "not enough memory"); /* lua_error throws this message as Lua's memory error */
    lua_error(L);
}

/* Keep the traceback of the code that the first of many errors ends: for ls_task_catch(). */
static void keep_traceback(const ls_state *state, lua_State *L)
{
    if (!lua_checkstack(L, LUA_MINSTACK)) return;
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, state->ended_at) == LUA_TNIL) {
        ls_error_traceback(L, L, NULL, 0); /* without memory it raises the error that the caller raises */
        lua_rawsetp(L, LUA_REGISTRYINDEX, state->ended_at);
    }
    lua_pop(L, 1);
}

void ls_state_end_run(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    ls_task *task = state->current;
    if ((task != NULL || state->loading) && state->ended_at[0] == '\0')
        ls_task_line(L, state->ended_at, sizeof state->ended_at);
    if (task != NULL && ls_task_is_caught(task)) {
        keep_traceback(state, L);
    } else if (task != NULL && task->blocked == 0 && lua_isyieldable(L)) {
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
    atomic_fetch_add_explicit(&state->bytes_granted, more, memory_order_relaxed);
    const int status = ls_state_protected(state, ctx, fn, with);
    state->bytes_max -= more;
    atomic_fetch_sub_explicit(&state->bytes_granted, more, memory_order_relaxed);
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
    if (state->observer != NULL) ls_state_flush_later(state, state->observer);
}

/* The state does not receive work from other states, so without a task and a timer it never has one again. */
void ls_state_work_ended(ls_state *state)
{
    ls_generation *generation = state->generation;
    const ls_site_host *host = generation->runtime->host;
    if (state->ended || state->holds > 0 || atomic_load_explicit(&state->busy, memory_order_relaxed) > 0) return;
    if (!state->started || atomic_load(&generation->ending) != 0 || ls_generation_serves(generation)) return;
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
    ls_mute_define(L);
    ls_lua_modules_preload(L, "luaserve");
    ls_lua_files_define(L);
    ls_lua_modules_path(L, generation->path, ls_lua_files_cached); /* the directory of the site comes first */
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

/* The data of the modules is zero, but for the heads of lists. */
static bool state_add_data(ls_state *state)
{
    const ls_generation *generation = state->generation;
    size_t bytes = 0;
    for (unsigned n = 0; n < generation->module_count; n++) bytes += aligned(generation->modules[n]->bytes);
    char *at = state->module_data = calloc(1, bytes);
    for (unsigned n = 0; n < generation->module_count && at != NULL; n++) {
        state->defined[n] = 0;
        state->data[n] = at;
        if (generation->modules[n]->lists) ls_node_init(state->data[n]);
        at += aligned(generation->modules[n]->bytes);
    }
    return at != NULL;
}

static void state_free_data(ls_state *state)
{
    free(state->module_data);
    state->module_data = NULL;
    for (unsigned n = 0; n < state->generation->module_count; n++) state->data[n] = NULL;
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
    atomic_store_explicit(&state->bytes_granted, 0, memory_order_relaxed);
}

static const char no_memory_text[] = "not enough memory for a Lua state";

int ls_state_open(ls_state *state, ls_thread_ctx *ctx, char *message, size_t message_bytes)
{
    if (!state_add_data(state)) goto fail_data;
    state->ctx = ctx;
    state->cpu = ls_state_cpu_watch(state, ctx);
    ls_node_init(&state->tasks_free);
    ls_node_init(&state->tasks_live);
    ls_node_init(&state->tasks_held);
    ls_node_init(&state->waits);
    ls_alloc_open(&state->alloc);
    ls_strings_open(&state->strings);
    state->loading = true;
    state->closing = state->load_waited = state->refused = false;
    state->ended_at[0] = '\0';
    state->L = lua_newstate(state_alloc, state);
    if (state->L == NULL) goto fail_state;
    *ls_state_extra(state->L) = (uintptr_t)state;
    (void)lua_atpanic(state->L, state_panic);
    if (ls_state_protected(state, ctx, state_define, state) == LUA_OK) return LS_OK;

    state->closing = true;
    lua_close(state->L);
fail_state:
    state_release(state);
    state_free_data(state);
fail_data:
    (void)snprintf(message, message_bytes, "%s", no_memory_text);
    return LS_ENOMEM;
}

ls_state *ls_state_new(ls_generation *generation, size_t bytes_max)
{
    /* One allocation: the state, the addresses of the modules' data, their counts of definitions. */
    const unsigned count = generation->module_count;
    const size_t head = sizeof(ls_state) + count * sizeof(void *);
    ls_state *state = calloc(1, head + count * sizeof(unsigned));
    if (state == NULL) return NULL;
    state->defined = (unsigned *)(void *)((char *)state + head);
    ls_actor_init(&state->actor);
    state->generation = generation;
    state->bytes_max = bytes_max;
    state->step_op = (ls_op){.done = step_done, .actor = &state->actor};
    atomic_init(&state->closed, true);
    return state;
}

void ls_state_loaded(ls_state *state)
{
    state->loading = false;
    atomic_store(&state->closed, false);
    state->port = state->generation->runtime->port;
    state->strings.port = state->port;
}

static int collect_protected(lua_State *L)
{
    (void)lua_gc(L, LUA_GCCOLLECT);
    return 0;
}

void ls_state_collect(ls_thread_ctx *ctx, ls_state *state)
{
    (void)ls_state_protected(state, ctx, collect_protected, NULL);
}

void ls_state_count_ended(ls_thread_ctx *ctx, ls_state *state, unsigned *ended, unsigned left)
{
    if (++*ended < LS_COLLECT_AFTER || *ended < left) return;
    *ended = 0;
    ls_state_collect(ctx, state);
}

/* ---- the phases of the life -------------------------------------------------------------------------------- */

/* A step makes the state busy, as a task does; ls.stats() counts the tasks alone. */
static void step_begins(ls_state *state)
{
    atomic_fetch_add(&state->steps, 1);
    atomic_fetch_add(&state->busy, 1);
}

static void step_ends(ls_state *state)
{
    atomic_fetch_sub(&state->busy, 1);
    atomic_fetch_sub(&state->steps, 1);
}

/* The caller has set step_posted. */
static void post_step(ls_state *state, ls_port *port)
{
    step_begins(state);
    ls_port_post(port, &state->step_op, 0);
}

void ls_state_post_step(ls_state *state, ls_port *port)
{
    if (!atomic_exchange(&state->step_posted, true)) post_step(state, port);
}

/* Close Lua: nothing refers to the state any more but this thread. */
static void close_lua(ls_thread_ctx *ctx, ls_state *state)
{
    ls_cpu_watch *cpu = ls_state_cpu_watch(state, ctx);
    state->ctx = ctx;
    state->cpu = cpu;
    state->current = NULL;
    ls_tasks_run_ends(state);
    state->port = NULL;
    state->strings.port = NULL;
    state->closing = true;
    ls_cpu_watch_begin(cpu, state->L, 0); /* finalizers */
    lua_close(state->L);
    (void)ls_cpu_watch_end(cpu);
    state_release(state);
}

/* Nothing of it is under way. */
static bool is_idle(ls_state *state)
{
    return state->alarms_used == 0 && ls_strings_closed(&state->strings) && atomic_load(&state->busy) == 0 &&
           !ls_actor_has_waiting(&state->actor);
}

/* A step of the live close. */
static void close_step(ls_thread_ctx *ctx, ls_state *state, enum ls_closing closing)
{
    const ls_generation *generation = state->generation;
    if (atomic_load(&state->closed)) return;
    if (closing != LS_CLOSING_FORCED && (ls_tasks_unfinished(state, false) || atomic_load(&state->long_lived) > 0))
        return;
    if (closing != LS_CLOSING_DISCONNECT) {
        ls_tasks_begin_held(ctx, state, LS_END_CLOSED);
        ls_tasks_cancel(state, closing == LS_CLOSING_FORCED ? LS_END_CLOSED : LS_END_UNUSED);
        atomic_fetch_or(&state->ending, 1u << LS_END_CLOSED);
    }
    for (unsigned n = 0; n < generation->module_count; n++)
        if (generation->modules[n]->close != NULL) generation->modules[n]->close(ctx, state);
    if (closing == LS_CLOSING_DISCONNECT) return;
    ls_tasks_end(ctx, state);
    if (!ls_list_empty(&state->tasks_live) || !is_idle(state)) return;
    for (unsigned n = 0; n < generation->module_count; n++)
        if (generation->modules[n]->closed != NULL && !generation->modules[n]->closed(state)) return;
    close_lua(ctx, state);
    atomic_store(&state->closed, true);
}

/* Close Lua; no packet refers to the state any more. */
static void state_abandon(ls_state *state, ls_thread_ctx *ctx)
{
    const ls_generation *generation = state->generation;
    ls_state_disconnect(state);
    for (unsigned n = 0; n < generation->module_count; n++)
        if (generation->modules[n]->abandon != NULL) generation->modules[n]->abandon(state);
    close_lua(ctx, state);
}

/* Whether nothing needs the state. `mark`: then it is closed, and the ticks and the statistics do not look at its data any
 * more. */
static bool is_unused(ls_state *state, bool mark)
{
    const ls_generation *generation = state->generation;
    const ls_module *const *modules = generation->modules;
    bool unused = !atomic_load(&state->used) && atomic_load(&state->long_lived) == 0 && state->holds == 0;
    ls_mutex_lock(&generation->runtime->mutex);
    for (unsigned n = 0; n < generation->module_count && unused; n++) {
        bool (*const is_unused)(ls_state *) = modules[n]->unused != NULL ? modules[n]->unused : modules[n]->closed;
        unused = is_unused == NULL || is_unused(state);
    }
    unused = unused && is_idle(state);
    if (unused && mark) atomic_store(&state->closed, true);
    ls_mutex_unlock(&generation->runtime->mutex);
    return unused;
}

static void give_back(ls_thread_ctx *ctx, ls_state *state)
{
    if (!ls_tasks_spare(state)) return;
    state->ctx = ctx;
    ls_tasks_end(ctx, state); /* none yet: this stops the timer that watches them */
    if (!is_unused(state, false)) return;
    ls_tasks_cancel(state, LS_END_SPARE);
    ls_tasks_end(ctx, state);
    if (!ls_list_empty(&state->tasks_live) || state->flushes != NULL || !is_unused(state, true)) return;
    close_lua(ctx, state);
    state->started = false;
    atomic_store(&state->ending, 0);
    atomic_store(&state->reported, LS_REPORT_NONE);
    state_free_data(state);
}

void ls_state_open_failed(ls_state *state, ls_thread_ctx *ctx)
{
    state_abandon(state, ctx);
    state_free_data(state);
}

/* Post the step of a state that is open, unless the generation closes. */
static void post_open(ls_generation *g, ls_state *state)
{
    if (atomic_exchange(&state->step_posted, true)) return;
    if (atomic_load(&g->closing) != LS_CLOSING_NOT) /* after the store: see ls_state_is_released */
        atomic_store(&state->step_posted, false);
    else
        post_step(state, g->runtime->port);
}

void ls_states_look(ls_generation *g)
{
    const unsigned count = atomic_load(&g->state_count);
    for (unsigned n = 0; n < count && atomic_load(&g->started); n++) {
        ls_state *state = atomic_load(&g->states[n]);
        if (state != NULL && !atomic_load(&state->closed)) post_open(g, state);
    }
}

bool ls_states_on_tick(ls_generation *g)
{
    const unsigned count = atomic_load(&g->state_count);
    bool more = false;
    if (!atomic_load(&g->started) || g->takes_turns || !ls_generation_serves(g)) return false;
    for (unsigned n = g->running_count; n < count && atomic_load(&g->closing) == LS_CLOSING_NOT; n++) {
        ls_state *state = atomic_load(&g->states[n]);
        if (state == NULL || atomic_load(&state->closed)) continue;
        more = true; /* also after a try that has failed */
        if (atomic_exchange(&state->used, false)) state->unused_ticks = 0;
        if (++state->unused_ticks % LS_STATE_UNUSED_TICKS != 0) continue;
        atomic_store(&state->gives_back, true);
        post_open(g, state);
    }
    return more;
}

bool ls_state_ends(const ls_state *state, enum ls_scope scope, enum ls_wait_for wait)
{
    const unsigned reasons = ls_generation_retired(state->generation) | atomic_load(&state->ending);
    return ls_scope_end_of(reasons, ls_state_scope(state, scope), wait) != LS_END_NONE;
}

/* Take the step for one reason. */
static void end(ls_thread_ctx *ctx, ls_state *state, enum ls_end_why why)
{
    const ls_generation *generation = state->generation;
    const ls_module *const *modules = generation->modules;
    if (why == LS_END_UNUSED && ls_tasks_unfinished(state, true)) return; /* asked again */
    atomic_fetch_or(&state->ending, 1u << why);
    ls_tasks_begin_held(ctx, state, why);
    ls_tasks_cancel(state, why);
    ls_tasks_end(ctx, state);
    if (why == LS_END_STOP) ls_state_collect(ctx, state); /* sockets of tasks that were ended are still open */
    for (unsigned n = 0; n < generation->module_count; n++)
        if (modules[n]->end != NULL) modules[n]->end(ctx, state, why);
}

/* What it does now, for ls_site_ask_status. */
static void tell_status(ls_thread_ctx *ctx, ls_state *state, unsigned turn)
{
    const ls_generation *generation = state->generation;
    const ls_log_target *before = ls_log_use(generation->status_to);
    for (unsigned n = 0; n < generation->module_count; n++)
        if (generation->modules[n]->report != NULL) generation->modules[n]->report(ctx, state);
    (void)ls_log_use(before);
    atomic_store(&state->status_turn, turn);
}

static void advance(ls_thread_ctx *ctx, ls_state *state)
{
    const ls_generation *generation = state->generation;
    const ls_module *const *modules = generation->modules;
    const uint8_t reporting = atomic_load(&generation->reporting);
    const unsigned ending = atomic_load(&generation->ending) & ~atomic_load(&state->ending);
    const bool start = !state->started && atomic_load(&generation->started),
               report = atomic_load(&state->reported) < reporting;
    state->started |= start;
    for (unsigned n = 0; n < generation->module_count && start; n++)
        if (modules[n]->start != NULL) modules[n]->start(ctx, state);
    for (enum ls_end_why why = LS_END_REPLACED; ending != 0 && why < LS_ENDS; why++)
        if ((ending & 1u << why) != 0) end(ctx, state, why);
    if (!atomic_load(&generation->holds_jobs)) ls_tasks_begin_held(ctx, state, LS_END_NONE);
    for (unsigned n = 0; n < generation->module_count && report; n++)
        if (modules[n]->report != NULL) modules[n]->report(ctx, state);
    if (report) atomic_store(&state->reported, reporting);
    const unsigned turn = atomic_load(&generation->status_turn);
    if (turn != atomic_load(&state->status_turn)) tell_status(ctx, state, turn);
    const unsigned looks = atomic_load(&ls_state_runtime(state)->looks);
    if (state->looked == looks) return;
    state->looked = looks;
    for (unsigned n = 0; n < generation->module_count; n++)
        if (modules[n]->look != NULL) modules[n]->look(ctx, state);
}

void ls_state_start_now(ls_thread_ctx *ctx, ls_state *state)
{
    if (!atomic_load(&state->generation->started)) return;
    step_begins(state);
    advance(ctx, state);
    step_ends(state);
}

/* The step counts as busy until it has run the hooks. */
static void step_counted(ls_thread_ctx *ctx, ls_state *state)
{
    if (!atomic_load(&state->closed)) advance(ctx, state);
    step_ends(state);
    const enum ls_closing closing = atomic_load(&state->generation->closing);
    if (closing != LS_CLOSING_NOT)
        close_step(ctx, state, closing);
    else if (atomic_exchange(&state->gives_back, false) && !atomic_load(&state->closed))
        give_back(ctx, state);
    else
        ls_state_work_ended(state);
}

static void step_done(ls_thread_ctx *ctx, ls_op *op)
{
    ls_state *state = LS_CONTAINER(op, ls_state, step_op);
    atomic_store(&state->step_posted, false);
    step_counted(ctx, state);
}

void ls_state_step(ls_thread_ctx *ctx, ls_state *state)
{
    step_begins(state);
    step_counted(ctx, state);
}

bool ls_state_is_released(ls_state *state)
{
    return atomic_load(&state->closed) && atomic_load(&state->actor.held) == 0 &&
           atomic_load(&state->actor.pins) == 0 && atomic_load(&state->actor.wakeup_queued) == 0 &&
           atomic_load(&state->actor.inbox) == NULL && !atomic_load(&state->step_posted);
}

void ls_state_disconnect(ls_state *state)
{
    state->port = NULL;
    state->strings.port = NULL;
}

void ls_state_free(ls_state *state)
{
    if (!atomic_load(&state->closed)) state_abandon(state, &state->generation->load_ctx);
    state_free_data(state);
    free(state);
}
