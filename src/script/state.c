/* state.c - see state.h. */
#include "script/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lua-cjson.h>
#include <lualib.h>

#include "base/err.h"
#include "base/log.h"
#include "net/resolver.h"
#include "script/bind.h"
#include "script/buffer.h"
#include "script/bytecode.h"
#include "script/modules.h"
#include "script/request.h"
#include "script/site_internal.h"
#include "script/tcp.h"

int luaopen_cjson_safe(lua_State *L); /* in the same library, without a line in its header */

/* realloc(3), with the small blocks from the state's own lists. old_size 0: there is none yet. */
static void *state_resize(ls_alloc *alloc, void *ptr, size_t old_size, size_t new_size)
{
    const bool was_small = old_size - 1 < LS_ALLOC_BYTES_MAX, is_small = new_size <= LS_ALLOC_BYTES_MAX;
    if (!was_small && !is_small) return realloc(ptr, new_size);
    if (was_small && is_small && (old_size - 1) / LS_ALLOC_STEP == (new_size - 1) / LS_ALLOC_STEP) return ptr;
    void *moved = is_small ? ls_alloc_take(alloc, new_size) : malloc(new_size);
    if (moved == NULL || old_size == 0) return moved;
    memcpy(moved, ptr, old_size < new_size ? old_size : new_size);
    if (was_small)
        ls_alloc_give(alloc, ptr, old_size);
    else
        free(ptr);
    return moved;
}

/* Lua's memory, counted. Past the limit it is NULL: Lua collects its garbage and asks again, then raises. Blocks that
 * shrink or stay are never refused: Lua relies on it. */
static void *state_alloc(void *user, void *ptr, size_t old_size, size_t new_size)
{
    ls_state *state = user;
    const size_t live = atomic_load_explicit(&state->bytes_live, memory_order_relaxed);
    if (ptr == NULL) old_size = 0; /* Lua says there what kind of object it is */
    if (new_size == 0) {
        atomic_store_explicit(&state->bytes_live, live - old_size, memory_order_relaxed);
        if (old_size - 1 < LS_ALLOC_BYTES_MAX)
            ls_alloc_give(&state->alloc, ptr, old_size);
        else
            free(ptr);
        return NULL;
    }
    if (new_size > old_size && (live >= state->bytes_max || new_size - old_size > state->bytes_max - live))
        return NULL;
    void *moved = state_resize(&state->alloc, ptr, old_size, new_size);
    if (moved == NULL && new_size > old_size) return NULL;
    if (moved == NULL) moved = ptr; /* a block that shrinks may stay where it is */
    atomic_store_explicit(&state->bytes_live, live - old_size + new_size, memory_order_relaxed);
    return moved;
}

/* Nothing but a defect of ours leads here: an error outside of every protected call. */
static int state_panic(lua_State *L)
{
    const char *text = lua_tostring(L, -1);
    ls_log(LS_LOG_ERROR, "a Lua error outside of every protected call: %s", text != NULL ? text : "(no text)");
    return 0; /* Lua aborts */
}

static const char over_text[] = "the handler used more processor time than max_cpu allows";

void ls_state_hook(lua_State *L, lua_Debug *ar)
{
    const ls_state *state = ls_state_of(L);
    if (state->cpu == NULL || !ls_cpu_watch_over(state->cpu)) {
        lua_sethook(L, NULL, 0, 0); /* left over on a coroutine that lives on */
        return;
    }
    ls_task *task = state->current;
    if (task != NULL && task->blocked == 0 && lua_isyieldable(L)) {
        /* Yield and never be resumed: no pcall, message handler or __close of the script can go on from there. */
        task->killed = true;
        *ls_state_extra(L) |= LS_EXTRA_WAITS;
        lua_yield(L, 0);
        return;
    }
    if (lua_getinfo(L, "Sl", ar) != 0 && ar->currentline > 0)
        lua_pushfstring(L, "%s:%d: ", ar->short_src, ar->currentline);
    else
        lua_pushliteral(L, "");
    lua_pushstring(L, over_text);
    lua_concat(L, 2);
    lua_error(L);
}

int ls_state_raise_over(lua_State *L)
{
    return luaL_error(L, "%s", over_text);
}

ls_cpu_watch *ls_state_cpu_watch(ls_state *state, const ls_thread_ctx *ctx)
{
    ls_site *site = state->site;
    return ctx == &site->load_ctx || site->cpus == NULL ? &site->load_cpu : &site->cpus[ctx->index];
}

ls_pool *ls_state_pool(const ls_state *state)
{
    return state->ctx != NULL ? state->ctx->pool : state->site->load_pool;
}

ls_block *ls_state_block(lua_State *L, size_t size)
{
    ls_state *state = ls_state_of(L);
    ls_block *block = ls_block_get(ls_state_pool(state), size);
    if (block == NULL) {
        (void)lua_gc(L, LUA_GCCOLLECT); /* what buffers hold does not count as Lua's memory */
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
    if (state->unflushed != NULL && state->current == NULL) ls_tcps_flush(ctx, state); /* no task will that runs */
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

/* ---- open -------------------------------------------------------------------------------------------------- */

static void preload(lua_State *L)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushcfunction(L, luaopen_cjson_safe);
    lua_setfield(L, -2, "cjson.safe");
    lua_pushcfunction(L, ls_core_open);
    lua_setfield(L, -2, "luaserve.core");
    lua_pop(L, 1);
    ls_modules_preload(L, "luaserve", &ls_state_of(L)->site->bytecode);
}

static int state_define(lua_State *L)
{
    static const char *const methods[LS_HTTP_METHODS] = {"",      "GET",    "HEAD",    "POST",    "PUT",
                                                         "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"};
    ls_state *state = lua_touserdata(L, 1);
    luaL_openlibs(L);
    ls_coroutine_define(L);
    luaL_requiref(L, "cjson", luaopen_cjson, 0);
    lua_getfield(L, -1, "encode");
    state->encode_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_getfield(L, -1, "decode");
    state->decode_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_pop(L, 1);
    preload(L);
    ls_modules_path(L, state->site->path); /* modules beside the site come first */
    for (int n = 0; n < LS_HTTP_METHODS; n++) {
        lua_pushstring(L, methods[n]);
        state->method_refs[n] = luaL_ref(L, LUA_REGISTRYINDEX);
    }
    lua_pushstring(L, over_text);
    state->over_text_ref = luaL_ref(L, LUA_REGISTRYINDEX); /* at hand where nothing may be allocated */
    ls_request_define_req(L, state);
    ls_request_define_res(L, state);
    ls_buffer_define(L, state);
    ls_jobs_define(L, state);
    ls_file_define(L, state);
    ls_timers_define(L, state);
    ls_udp_define(L, state);
    ls_notify_define(L, state);
    ls_tcp_define(L, state);
    ls_connect_define(L, state);
    /* Requests leave short-lived tables and strings behind, next to a site that stays: generational collection
     * took 15 to 20 % off a route with query and JSON, and nothing off a hello, which makes no garbage in either
     * mode. */
    (void)lua_gc(L, LUA_GCGEN, 0, 0);
    return 0;
}

int ls_state_open(ls_site *site, unsigned index, size_t bytes_max, ls_state **out, char *message, size_t message_bytes)
{
    ls_state *state = calloc(1, sizeof *state);
    if (state == NULL) goto fail;
    ls_actor_init(&state->actor);
    state->site = site;
    state->index = index;
    state->bytes_max = bytes_max;
    state->ctx = &site->load_ctx;
    state->cpu = &site->load_cpu;
    ls_node_init(&state->tasks_free);
    ls_node_init(&state->tasks_live);
    ls_node_init(&state->timers);
    ls_node_init(&state->tcps);
    ls_alloc_open(&state->alloc);
    state->L = lua_newstate(state_alloc, state);
    if (state->L == NULL) goto fail_state;
    *ls_state_extra(state->L) = (uintptr_t)state;
    (void)lua_atpanic(state->L, state_panic);
    if (ls_state_protected(state, &site->load_ctx, state_define, state) != LUA_OK) goto fail_lua;
    *out = state;
    return LS_OK;

fail_lua:
    lua_close(state->L);
    ls_alloc_close(&state->alloc);
    ls_udp_script_free(state);
    ls_notify_free(state);
fail_state:
    free(state);
fail:
    (void)snprintf(message, message_bytes, "not enough memory for a Lua state");
    return LS_ENOMEM;
}

void ls_state_close(ls_state *state)
{
    state->ctx = &state->site->load_ctx; /* for finalizers */
    state->cpu = &state->site->load_cpu;
    state->current = NULL;
    ls_timers_free(state);
    ls_tcps_free(state);
    lua_close(state->L);
    ls_alloc_close(&state->alloc);
    if (state->resolver != NULL) ls_resolver_close(state->resolver);
    ls_task_free_all(state);
    ls_udp_script_free(state);
    ls_notify_free(state);
    for (int n = 0; n < LS_HOOKS; n++) free(state->hooks[n].refs);
    free(state->once.refs);
    free(state->listeners);
    free(state);
}
