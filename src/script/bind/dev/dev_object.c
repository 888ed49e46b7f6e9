/* dev_object.c - dev mode in a Lua state: the table `luaserve.core`.dev, which is nil without it. lua/luaserve/dev.lua
 * is the rest. */
#include "script/bind/dev/dev_object.h"

#include <stdio.h>
#include <string.h>

#include <lauxlib.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "script/bind/bind_aux.h"
#include "script/bind/files/file_serve.h"
#include "script/bind/http/request.h"
#include "script/bind/modules.h"
#include "script/bind/sse/sse_response.h"
#include "script/bind/tasks/hooks.h"
#include "script/core/task.h"

enum { SLOW_MS = 100, HOOK_EVERY = 1000, PLACES = 8, PLACE_BYTES = 96 };

/* The run of a task that a state executes now. A *run* is what happens between two waits. */
typedef struct slow_run {
    ls_flush observer;          /* compares the variables of the site after each run */
    int check_ref;              /* of the function */
    uint64_t run;               /* of the CPU watch; 0: none */
    uint64_t began_ns, last_ns; /* of the first and of the last event of the hook */
    uint64_t blocked_ns;        /* reported already */
    struct {
        char place[PLACE_BYTES];
        unsigned count;
    } places[PLACES]; /* where samples found it, once it had run for SLOW_MS */
} slow_run;

static slow_run *slow_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_dev);
}

static ls_dev *dev_of(lua_State *L)
{
    return ls_dev_of(ls_state_runtime(ls_state_of(L)));
}

/* ---- files and loads --------------------------------------------------------------------------------------- */

/* dev.file(path [, "source" | "data" | "own"]): the file is about to be loaded, or was looked for; is about to be
 * read; or to be written. */
static int dev_file(lua_State *L)
{
    static const char *const uses[] = {[LS_DEV_SOURCE] = "source", [LS_DEV_DATA] = "data", [LS_DEV_OWN] = "own", NULL};
    const int use = luaL_checkoption(L, 2, "source", uses);
    if (ls_dev_file(dev_of(L), luaL_checkstring(L, 1), (enum ls_dev_use)use) < 0)
        return luaL_error(L, "too many files for dev mode");
    return 0;
}

/* dev.find(name) -> the path of the source that has this name in messages, or nil */
static int dev_find(lua_State *L)
{
    char path[LS_DEV_PATH_BYTES_MAX + 1];
    const ls_text name = ls_check_text(L, 1);
    if (strlen(name.ptr) != name.len || !ls_dev_find(dev_of(L), name.ptr, path)) return 0;
    return ls_push_text(L, path);
}

/* dev.failure() -> nothing, or message, traceback of the last load */
static int dev_failure(lua_State *L)
{
    char message[LS_DEV_TEXT_BYTES], traceback[LS_DEV_TEXT_BYTES];
    if (!ls_dev_failure(dev_of(L), message, traceback)) return 0;
    lua_pushstring(L, message);
    lua_pushstring(L, traceback);
    return 2;
}

/* dev.version() -> integer */
static int dev_version(lua_State *L)
{
    return ls_push_integer(L, (lua_Integer)ls_dev_version(dev_of(L)));
}

/* dev.styles() -> integer */
static int dev_styles(lua_State *L)
{
    return ls_push_integer(L, (lua_Integer)ls_dev_styles(dev_of(L)));
}

/* dev.states() -> the number of Lua states from the start; the site has loaded */
static int dev_states(lua_State *L)
{
    const unsigned most = ls_state_of(L)->generation->settings.states_max;
    return ls_push_integer(L, most > 0 && most < LS_DEV_STATES ? most : LS_DEV_STATES);
}

/* dev.draining() -> whether the server, or this generation of the site, ends */
static int dev_draining(lua_State *L)
{
    return ls_push_boolean(L, ls_state_is_ending(ls_state_of(L), LS_END_STOP));
}

/* dev.once(text) -> whether no state has given this text since the last load */
static int dev_once(lua_State *L)
{
    return ls_push_boolean(L, ls_dev_once(dev_of(L), luaL_checkstring(L, 1)));
}

/* dev.task() -> whether the running task works for a client, as others may do at the same time, the number of the
 * message that it works on, whether a timer of it is one for the whole server, and whether it is a function of "start";
 * nothing: the coroutine is no task */
static int dev_task(lua_State *L)
{
    const ls_task *task = ls_state_of(L)->current;
    if (task == NULL || task->co != L) return 0;
    lua_pushboolean(L, task->serial != 0 || (task->scope >= LS_SCOPE_REQUEST && task->scope <= LS_SCOPE_WEBSOCKET));
    lua_pushinteger(L, task->message);
    lua_pushboolean(L, ls_is_once(task->state));
    lua_pushboolean(L, task->starts);
    return 4;
}

/* dev.hooks("start" | "drain" | "log" | "init") -> array of the functions */
static int dev_hooks(lua_State *L)
{
    static const char *const kinds[] = {"start", "drain", "log", "init", NULL}; /* enum ls_hook_kind */
    const ls_hook_list *list = &ls_hooks_of(ls_state_of(L))->at[luaL_checkoption(L, 1, NULL, kinds)];
    lua_createtable(L, (int)list->count, 0);
    for (unsigned n = 0; n < list->count; n++) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, list->refs[n]);
        lua_rawseti(L, -2, (lua_Integer)n + 1);
    }
    return 1;
}

/* dev.on_page(fn): fn(req, text, policy, middleware) is called for each page that a handler returns, and may return
 * another text. `policy`: the value of Content-Security-Policy, or nil; false: the text has no media type, and is sent
 * as plain text. `middleware`: the place of the one that has returned the page; nil: the handler has. */
static int dev_on_page(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_settop(L, 1);
    ls_requests_of(ls_state_of(L))->page_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    return 0;
}

/* dev.sse_never_waited(res) -> whether the handler has begun a stream of events and not waited since */
static int dev_sse_never_waited(lua_State *L)
{
    const ls_request *r = ls_request_of_res(L, 1);
    return ls_push_boolean(L, r != NULL && ls_sse_never_waited(r));
}

/* ---- slow handlers ----------------------------------------------------------------------------------------- */

/* The innermost line of the site, as "site.lua:12"; false: none. */
static bool site_place(lua_State *L, char place[PLACE_BYTES])
{
    lua_Debug ar;
    for (int level = 0; lua_getstack(L, level, &ar) != 0; level++) {
        if (lua_getinfo(L, "Sl", &ar) == 0 || ar.currentline <= 0 || strncmp(ar.source, "@luaserve/", 10) == 0)
            continue;
        (void)snprintf(place, PLACE_BYTES, "%s:%d", ar.short_src, ar.currentline);
        return true;
    }
    return false;
}

static void sample(lua_State *L, slow_run *slow)
{
    char place[PLACE_BYTES];
    if (!site_place(L, place)) return;
    for (int n = 0; n < PLACES; n++) {
        if (slow->places[n].count > 0 && strcmp(slow->places[n].place, place) != 0) continue;
        if (slow->places[n].count++ == 0) (void)strcpy(slow->places[n].place, place);
        return;
    }
}

static void log_slow(lua_State *L, const char *text)
{
    const ls_task *task = ls_state_of(L)->current;
    char name[LS_REQUEST_NAME_BYTES] = "a task";
    const ls_request *r = task != NULL ? task->client : NULL;
    if (r != NULL && r->x != NULL) ls_request_log_name(r->x, name);
    ls_log(LS_LOG_WARN, "%s: slow: %s", name, text);
}

/* A function in C has just returned, after `ms`. Its name, and the line that called it, are those of a traceback:
 * "stack traceback:\n\t[C]: in function 'io.popen'\n\tsite.lua:12: in ...". */
static void log_blocked(lua_State *L, uint64_t ms)
{
    char place[PLACE_BYTES], text[256], name[64] = "a function in C";
    if (!site_place(L, place)) return;
    luaL_traceback(L, L, NULL, 0);
    const char *trace = lua_tostring(L, -1), *from = strchr(trace, '\''),
               *to = from != NULL ? strchr(from + 1, '\'') : NULL;
    const char *line = strstr(trace, "[C]: in ");
    if (line != NULL && from != NULL && to != NULL && from < line + 24 && to - from < (int)sizeof name)
        (void)snprintf(name, sizeof name, "%.*s", (int)(to - from - 1), from + 1);
    if (strcmp(name, "for iterator") == 0) (void)strcpy(name, "the iterator of a loop, as that of file:lines");
    (void)snprintf(text, sizeof text, "blocked %llu ms in %s (%s)", (unsigned long long)ms, name, place);
    lua_pop(L, 1);
    log_slow(L, text);
}

static void slow_begin(const ls_state *state, slow_run *slow)
{
    slow->run = state->cpu->runs;
    slow->began_ns = slow->last_ns = ls_clock_ns();
    slow->blocked_ns = 0;
    memset(slow->places, 0, sizeof slow->places);
}

static bool is_of_site(lua_State *L, lua_Debug *ar)
{
    return lua_getinfo(L, "S", ar) != 0 && *ar->source == '@' && strncmp(ar->source, "@luaserve/", 10) != 0;
}

/* A function of luaserve returns to the site: nil, a message and a code are reported if the line does not use them. */
static void note_failure(lua_State *L, lua_Debug *ar)
{
    const int top = lua_gettop(L);
    lua_Debug caller;
    if (lua_getinfo(L, "r", ar) == 0 || ar->ntransfer < 3 || lua_getlocal(L, ar, ar->ftransfer) == NULL) return;
    if (lua_isnil(L, -1) && lua_getlocal(L, ar, ar->ftransfer + 1) != NULL && lua_type(L, -1) == LUA_TSTRING &&
        lua_getlocal(L, ar, ar->ftransfer + 2) != NULL && lua_type(L, -1) == LUA_TSTRING &&
        *lua_tostring(L, -1) == 'E' && !is_of_site(L, ar) && lua_getstack(L, 1, &caller) != 0 &&
        is_of_site(L, &caller)) {
        ls_push_function(L, "luaserve.dev_state", "note_failure");
        lua_insert(L, -3);
        (void)lua_getinfo(L, "n", ar);
        lua_pushstring(L, ar->name); /* NULL, nil in Lua, of one that a tail call has replaced */
        lua_call(L, 3, 0);
    }
    lua_settop(L, top);
}

/* Of every coroutine: lua_newthread copies the hook of the thread that makes it. */
static void return_hook(lua_State *L, lua_Debug *ar)
{
    note_failure(L, ar);
}

static void slow_hook(lua_State *L, lua_Debug *ar)
{
    const ls_state *state = ls_state_of(L);
    slow_run *slow = slow_of(state);
    const uint64_t now_ns = ls_clock_ns();
    if (ar->event == LUA_HOOKRET) note_failure(L, ar);
    if (slow->run != state->cpu->runs) { /* the task has waited since, or another one ran */
        slow_begin(state, slow);
        return;
    }
    const uint64_t gap_ns = now_ns - slow->last_ns;
    slow->last_ns = now_ns;
    if (gap_ns >= SLOW_MS * UINT64_C(1000000) && ar->event == LUA_HOOKRET && lua_getinfo(L, "S", ar) != 0 &&
        *ar->what == 'C') {
        slow->blocked_ns += gap_ns;
        log_blocked(L, gap_ns / 1000000u);
    } else if (ar->event == LUA_HOOKCOUNT &&
               now_ns - slow->began_ns - slow->blocked_ns >= SLOW_MS * UINT64_C(1000000)) {
        sample(L, slow);
    }
}

/* dev.slow_begin(): observe the running task from here on. */
static int dev_slow_begin(lua_State *L)
{
    const ls_state *state = ls_state_of(L);
    slow_begin(state, slow_of(state));
    lua_sethook(L, slow_hook, LUA_MASKRET | LUA_MASKCOUNT, HOOK_EVERY);
    return 0;
}

/* dev.slow_end(): the task has ended. Logs where its last run has spent its time, if that was too long. */
static int dev_slow_end(lua_State *L)
{
    const ls_state *state = ls_state_of(L);
    slow_run *slow = slow_of(state);
    int most = 0;
    if (lua_gethook(L) == slow_hook) lua_sethook(L, return_hook, LUA_MASKRET, 0); /* the coroutine is used again */
    if (slow->run != state->cpu->runs) return 0;
    slow->run = 0;
    const uint64_t ms = (ls_clock_ns() - slow->began_ns - slow->blocked_ns) / 1000000u;
    for (int n = 1; n < PLACES; n++)
        if (slow->places[n].count > slow->places[most].count) most = n;
    if (ms < SLOW_MS || slow->places[most].count == 0) return 0;
    char text[256];
    (void)snprintf(text, sizeof text, "computed for %llu ms without a wait, mostly at %s", (unsigned long long)ms,
                   slow->places[most].place);
    log_slow(L, text);
    return 0;
}

/* ---- after each run ---------------------------------------------------------------------------------------- */

static int check_main(lua_State *L)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, slow_of(ls_state_of(L))->check_ref);
    lua_call(L, 0, 0);
    return 0;
}

/* A task of the state waits or has ended. */
static void check(ls_thread_ctx *ctx, ls_state *state, ls_flush *flush, bool suspended)
{
    if (state->loading || state->closing || atomic_load(&state->generation->closing) != LS_CLOSING_NOT) return;
    if (ls_state_protected(state, ctx, check_main, NULL) != LUA_OK)
        ls_log(LS_LOG_ERROR, "dev: the comparison of variables has failed");
}

/* dev.on_run(fn): fn() is called after each run of a task. */
static int dev_on_run(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    slow_run *slow = slow_of(state);
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_settop(L, 1);
    slow->check_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    slow->observer.run = check;
    state->observer = &slow->observer;
    ls_state_flush_later(state, state->observer);
    return 0;
}

/* ---- the module -------------------------------------------------------------------------------------------- */

/* Set the field `dev` of luaserve.core. */
static void define(lua_State *L, ls_state *state)
{
    static const luaL_Reg functions[] = {{"file", dev_file},
                                         {"find", dev_find},
                                         {"failure", dev_failure},
                                         {"version", dev_version},
                                         {"styles", dev_styles},
                                         {"states", dev_states},
                                         {"task", dev_task},
                                         {"hooks", dev_hooks},
                                         {"draining", dev_draining},
                                         {"once", dev_once},
                                         {"on_page", dev_on_page},
                                         {"on_run", dev_on_run},
                                         {"slow_begin", dev_slow_begin},
                                         {"slow_end", dev_slow_end},
                                         {"sse_never_waited", dev_sse_never_waited},
                                         {NULL, NULL}};
    const int top = lua_gettop(L);
    if (dev_of(L) == NULL) return;
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_getfield(L, -1, "luaserve.core");
    luaL_newlib(L, functions);
    ls_set_text(L, "site", state->generation->path);
    ls_set_text(L, "editor", ls_dev_editor(dev_of(L)));
    lua_setfield(L, -2, "dev");
    lua_settop(L, top);
}

/* ---- once per server -------------------------------------------------------------------------------------------- */

void ls_dev_attach(ls_runtime *runtime, ls_dev *dev)
{
    *(ls_dev **)ls_runtime_own(runtime, LS_SLOT_dev) = dev;
    ls_file_cache_examine_always(ls_file_cache_of(runtime));
}

static void common_close(void *own)
{
    ls_dev *dev = *(ls_dev **)own;
    if (dev != NULL) ls_dev_close(dev);
}

static const ls_module_common common = {.bytes = sizeof(ls_dev *), .close = common_close};

const ls_module ls_dev_module = {.name = "dev", .bytes = sizeof(slow_run), .define = define, .common = &common};

static int call(lua_State *L, const char *name)
{
    ls_push_function(L, "luaserve.dev", name);
    lua_call(L, 0, 0);
    return 0;
}

int ls_dev_begin(lua_State *L)
{
    return call(L, "begin");
}

int ls_dev_loaded(lua_State *L)
{
    (void)call(L, "loaded");
    lua_sethook(L, return_hook, LUA_MASKRET, 0);
    return 0;
}
