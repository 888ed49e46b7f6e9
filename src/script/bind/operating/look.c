/* look.c - core.look and core.errors: what the server does now, for the status page and `luaserve top`.
 *
 *     core.look() --> looks + 1 --> each state is posted a step --> look_state: what its tasks wait for --> status.answer
 *                               \--> the watchdog asks stalled threads --> ls_look_place: the line that runs
 *
 * A look finds the answers to the looks before, because a state that computes answers late or never; a caller looks
 * once a second. A dict has the answers (lua/luaserve/status.lua).
 *
 * Threads: a place is written by its thread, and read under the mutex. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/shared.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http/http_task.h"
#include "script/bind/http/req.h"
#include "script/bind/operating/look.h"
#include "script/core/wait.h"

enum { TASKS_MAX = 40 /* of an answer */, THREADS_MAX = 1024, LINE_BYTES = 80 };

typedef struct place { /* of a thread */
    uint64_t run;      /* it is the place of this run; 0: of none */
    unsigned state;
    char what[LS_REQUEST_NAME_BYTES], line[LINE_BYTES];
} place;

typedef struct look_common {
    ls_mutex mutex; /* guards the rest */
    place *places;  /* one for each thread, made by the first look; NULL: none */
    ls_worker_look workers[THREADS_MAX];
} look_common;

static look_common *common_of(const ls_state *state)
{
    return ls_runtime_own(ls_state_runtime(state), LS_SLOT_look);
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

/* Push what the task waits for: { what=, scope=, client=, line=, for_s= }. false: it is one of luaserve itself. */
static bool push_task(lua_State *L, const ls_task *task)
{
    const ls_request *r = task->client;
    char line[LINE_BYTES + LS_SHARED_NAME_BYTES_MAX + 40], name[LS_REQUEST_NAME_BYTES];
    lua_createtable(L, 0, 5);
    ls_task_line(task->co, line, LINE_BYTES);
    const bool own = line[0] == '\0' || strncmp(line, "repl:", 5) == 0;
    ls_wait_describe(task, line + strlen(line), sizeof line - LINE_BYTES);
    ls_set_text(L, "line", line);
    ls_set_text(L, "scope", ls_scope_name((enum ls_scope)task->scope));
    if (r == NULL || r->x == NULL) return !own;
    ls_request_log_name(r->x, name);
    ls_set_text(L, "what", name);
    ls_request_push_logged_ip(L, r);
    lua_setfield(L, -2, "client");
    const uint64_t from_ns = ls_request_began_ns(r, task);
    if (from_ns == 0) return true;
    lua_pushnumber(L, (double)(ls_clock_ns() - from_ns) / 1e9);
    lua_setfield(L, -2, "for_s");
    return true;
}

static int answer_main(lua_State *L)
{
    ls_state *state = lua_touserdata(L, 1);
    lua_Integer count = 0;
    ls_push_function(L, "luaserve.status", "answer");
    (void)ls_push_integer(L, (lua_Integer)(intptr_t)state);
    lua_createtable(L, TASKS_MAX, 0);
    LS_LIST_EACH (const ls_task, task, &state->tasks_live, node) {
        if (!task->waiting || count == TASKS_MAX) continue;
        if (push_task(L, task))
            lua_rawseti(L, -2, ++count);
        else
            lua_pop(L, 1);
    }
    lua_call(L, 2, 0);
    return 0;
}

static void look_state(ls_thread_ctx *ctx, ls_state *state)
{
    (void)ls_state_protected(state, ctx, answer_main, state);
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* Inside the hook of a run, on its thread. */
void ls_look_place(lua_State *L, ls_state *state, uint64_t run, unsigned thread)
{
    look_common *common = common_of(state);
    const ls_task *task = state->current;
    const ls_request *r = task != NULL ? task->client : NULL;
    char what[LS_REQUEST_NAME_BYTES], line[LINE_BYTES];
    (void)snprintf(what, sizeof what, "%s", task != NULL ? ls_scope_name((enum ls_scope)task->scope) : "");
    if (r != NULL && r->x != NULL) ls_request_log_name(r->x, what);
    ls_task_line(L, line, sizeof line);
    ls_mutex_lock(&common->mutex);
    if (common->places != NULL && thread < THREADS_MAX) {
        place *p = &common->places[thread];
        *p = (place){.run = run, .state = state->index + 1};
        memcpy(p->what, what, sizeof what);
        memcpy(p->line, line, sizeof line);
    }
    ls_mutex_unlock(&common->mutex);
}

/* ---- core.look --------------------------------------------------------------------------------------------------- */

static void post_steps(ls_generation *generation, void *user)
{
    (void)user;
    ls_states_look(generation);
}

typedef struct state_row {
    const ls_state *id; /* not to be read: it may end */
    unsigned state, running[LS_SCOPES];
    size_t bytes;
    bool previous;
} state_row;
typedef struct state_rows {
    unsigned count;
    state_row at[THREADS_MAX];
} state_rows;

static void collect_states(ls_generation *generation, void *user)
{
    state_rows *rows = user;
    const unsigned count = atomic_load(&generation->state_count);
    for (unsigned n = 0; n < count && rows->count < THREADS_MAX; n++) {
        ls_state *state = atomic_load(&generation->states[n]);
        if (state == NULL || atomic_load(&state->closed)) continue;
        state_row *row = &rows->at[rows->count++];
        *row = (state_row){.id = state,
                           .state = n + 1,
                           .bytes = atomic_load_explicit(&state->bytes_live, memory_order_relaxed),
                           .previous = ls_generation_retired(generation) != 0};
        ls_state_add_running(state, row->running);
    }
}

/* A field of the table below the top, to which what follows adds rows. */
static void begin_list(lua_State *L, const char *name)
{
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, name);
}

static void push_states(lua_State *L, ls_runtime *runtime)
{
    state_rows *rows = lua_newuserdatauv(L, sizeof *rows, 0);
    rows->count = 0;
    ls_runtime_each(runtime, collect_states, rows);
    lua_insert(L, -2);
    begin_list(L, "states");
    for (unsigned n = 0; n < rows->count; n++) {
        const state_row *row = &rows->at[n];
        lua_createtable(L, 0, 8);
        ls_set_integer(L, "id", (lua_Integer)(intptr_t)row->id);
        ls_set_integer(L, "state", row->state);
        ls_set_integer(L, "bytes", (lua_Integer)row->bytes);
        ls_set_integer(L, "requests", row->running[LS_SCOPE_REQUEST]);
        ls_set_integer(L, "websockets", row->running[LS_SCOPE_WEBSOCKET]);
        ls_set_integer(L, "timers", row->running[LS_SCOPE_TIMER]);
        ls_set_integer(L, "jobs",
                       row->running[LS_SCOPE_JOB] + row->running[LS_SCOPE_SITE] + row->running[LS_SCOPE_BATCH]);
        ls_set_boolean(L, "previous", row->previous);
        lua_rawseti(L, -2, n + 1);
    }
    lua_pop(L, 1);
}

/* The places are copied under the mutex, where nothing may raise. */
static void push_threads(lua_State *L, ls_runtime *runtime, look_common *common)
{
    const ls_site_host *host = runtime->host;
    place *p = lua_newuserdatauv(L, sizeof *p, 0);
    ls_mutex_lock(&common->mutex);
    const unsigned count =
        host != NULL && host->threads != NULL ? host->threads(host->server, common->workers, THREADS_MAX) : 0;
    ls_mutex_unlock(&common->mutex);
    lua_insert(L, -2);
    begin_list(L, "threads");
    for (unsigned n = 0; n < count; n++) {
        const uint64_t run =
            n < runtime->cpu_count ? atomic_load_explicit(&runtime->cpus[n].run, memory_order_relaxed) : 0;
        ls_mutex_lock(&common->mutex);
        const ls_worker_look worker = common->workers[n];
        *p = common->places[n];
        ls_mutex_unlock(&common->mutex);
        lua_createtable(L, 0, 6);
        ls_set_integer(L, "thread", n + 1);
        ls_set_boolean(L, "idle", !worker.inside);
        ls_set_boolean(L, "lua", run != 0);
        lua_pushnumber(L, worker.ms / 1e3);
        lua_setfield(L, -2, "for_s");
        if (run != 0 && p->run == run) {
            ls_set_text(L, "what", p->what);
            ls_set_text(L, "line", p->line);
            ls_set_integer(L, "state", p->state);
        }
        lua_rawseti(L, -2, n + 1);
    }
    lua_pop(L, 1);
}

/* core.look() -> { threads =, states = lists }
 * What runs now. `id` of a state is the one of its answers. */
static int core_look(lua_State *L)
{
    const ls_state *state = ls_state_of(L);
    ls_runtime *runtime = ls_state_runtime(state);
    look_common *common = common_of(state);
    lua_settop(L, 0);
    luaL_checkstack(L, 40, NULL);
    if (state->port == NULL) return luaL_error(L, "not while the site loads");
    ls_mutex_lock(&common->mutex);
    if (common->places == NULL) common->places = calloc(THREADS_MAX, sizeof *common->places);
    const bool made = common->places != NULL;
    ls_mutex_unlock(&common->mutex);
    if (!made) return luaL_error(L, "not enough memory");
    atomic_fetch_add(&runtime->looks, 1);
    ls_runtime_each(runtime, post_steps, NULL);
    lua_newtable(L);
    push_states(L, runtime);
    push_threads(L, runtime, common);
    return 1;
}

/* core.errors(known) -> { { number =, at_ms =, text = }, ... }, number
 * The last errors, the youngest first, and its number; nothing if that is `known`. */
static int core_errors(lua_State *L)
{
    const ls_site_host *host = ls_state_runtime(ls_state_of(L))->host;
    ls_log_kept *kept = host != NULL ? host->errors : NULL;
    const lua_Integer known = luaL_checkinteger(L, 1);
    if (kept == NULL) return 0;
    ls_log_kept *copy = lua_newuserdatauv(L, sizeof *copy, 0);
    ls_mutex_lock(&kept->mutex);
    copy->count = kept->count;
    if (copy->count != known) memcpy(copy->at, kept->at, sizeof copy->at);
    ls_mutex_unlock(&kept->mutex);
    if (copy->count == known) return 0;
    lua_createtable(L, LS_LOG_KEPT, 0);
    for (uint32_t n = copy->count, row = 1; n > 0 && row <= LS_LOG_KEPT; n--, row++) {
        lua_createtable(L, 0, 3);
        ls_set_integer(L, "number", n);
        ls_set_integer(L, "at_ms", copy->at[n % LS_LOG_KEPT].at_us / 1000);
        lua_pushlstring(L, copy->at[n % LS_LOG_KEPT].text, copy->at[n % LS_LOG_KEPT].len);
        lua_setfield(L, -2, "text");
        lua_rawseti(L, -2, row);
    }
    return 1 + ls_push_integer(L, copy->count);
}

/* ---- the module --------------------------------------------------------------------------------------------------- */

static int common_open(void *own)
{
    look_common *common = own;
    ls_mutex_open(&common->mutex);
    return LS_OK;
}

static void common_close(void *own)
{
    look_common *common = own;
    free(common->places);
    ls_mutex_close(&common->mutex);
}

static const luaL_Reg functions[] = {{"look", core_look}, {"errors", core_errors}, {NULL, NULL}};
static const ls_module_common common = {.bytes = sizeof(look_common), .open = common_open, .close = common_close};
const ls_module ls_look_module = {.name = "look", .functions = functions, .look = look_state, .common = &common};
