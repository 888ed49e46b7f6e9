/* state.c - see state.h. */
#include "script/core/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lualib.h>

#include "base/err.h"
#include "base/log.h"
#include "net/resolver.h"
#include "script/bind/bind.h"
#include "script/bind/buffer.h"
#include "script/bind/json.h"
#include "script/bind/request.h"
#include "script/bind/tcp.h"
#include "script/core/bytecode.h"
#include "script/core/libraries.h"
#include "script/core/modules.h"
#include "script/core/quiet.h"
#include "script/site/site_internal.h"

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
    if (new_size > old_size && (live >= state->bytes_max || new_size - old_size > state->bytes_max - live))
        return NULL;
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
    if (task != NULL && state->ended_at[0] == '\0') note_line(state, L);
    if (task != NULL && task->blocked == 0 && lua_isyieldable(L)) {
        /* Yield and never resume: no pcall, message handler or __close of the script can continue after that. */
        task->killed = true;
        *ls_state_extra(L) |= LS_EXTRA_WAITS;
        lua_yield(L, 0);
        return;
    }
    ls_state_raise_unhandled(L);
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
    if (state->unflushed != NULL && state->current == NULL)
        ls_tcps_flush(ctx, state); /* else the end of the running task flushes */
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

/* The state does not receive work from other states, so without a task and a timer it never has one again. */
void ls_state_settle(ls_state *state)
{
    ls_site *site = state->site;
    if (state->ended || ls_site_served(site) > 0) return;
    if (state->timers_live > 0 || atomic_load_explicit(&state->busy, memory_order_relaxed) > 0) return;
    state->ended = true;
    if (atomic_fetch_sub_explicit(&site->states_left, 1, memory_order_relaxed) == 1 && site->host != NULL)
        site->host->stop(site->host->server);
}

/* ---- open -------------------------------------------------------------------------------------------------- */

static void preload(lua_State *L)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushcfunction(L, ls_cjson_safe_open);
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
    ls_buffer_prepare(L);
    ls_libraries_open(L);
    ls_coroutine_define(L);
    if (state->index > 0) ls_quiet_define(L);
    luaL_requiref(L, "cjson", ls_cjson_open, 0);
    lua_getfield(L, -1, "encode");
    (void)lua_getupvalue(L, -1, 1);
    lua_pushinteger(L, LS_STRING_SHARED_MIN);
    lua_pushcclosure(L, ls_cjson_encode_body, 2);
    state->encode_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_pop(L, 1);
    lua_getfield(L, -1, "decode");
    state->decode_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_pop(L, 1);
    preload(L);
    ls_modules_path(L, state->site->path); /* the directory of the site comes first */
    for (int n = 0; n < LS_HTTP_METHODS; n++) {
        lua_pushstring(L, methods[n]);
        state->method_refs[n] = luaL_ref(L, LUA_REGISTRYINDEX);
    }
    lua_pushstring(L, exceeded_text);
    state->exceeded_text_ref = luaL_ref(L, LUA_REGISTRYINDEX); /* for code that may not allocate */
    ls_core_define(L, state);
    /* Requests create short-lived tables and strings beside the long-lived objects of the site. Generational
     * collection saves 15 to 20 % of the time of a route with query and JSON; a hello makes no garbage in either
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
    ls_strings_open(state);
    state->L = lua_newstate(state_alloc, state);
    if (state->L == NULL) goto fail_state;
    *ls_state_extra(state->L) = (uintptr_t)state;
    (void)lua_atpanic(state->L, state_panic);
    if (ls_state_protected(state, &site->load_ctx, state_define, state) != LUA_OK) goto fail_lua;
    *out = state;
    return LS_OK;

fail_lua:
    lua_close(state->L);
    ls_strings_close(state);
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
    state->closing = true;
    lua_close(state->L);
    ls_strings_close(state);
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
