/* dev.c - dev mode in a Lua state: the table `luaserve.core`.dev, which is nil without it. lua/luaserve/dev.lua is the
 * rest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lauxlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "sched/actor.h"
#include "script/bind/bind.h"
#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/bind/request.h"
#include "script/core/dev.h"
#include "script/core/task.h"

enum { SLOW_MS = 100, HOOK_EVERY = 1000, PLACES = 8, PLACE_BYTES = 96 };

/* The run of a task that a state executes now. A *run* is what happens between two waits. */
typedef struct slow_run {
    uint64_t run;               /* of the CPU watch; 0: none */
    uint64_t began_ns, last_ns; /* of the first and of the last event of the hook */
    uint64_t blocked_ns;        /* reported already */
    struct {
        char place[PLACE_BYTES];
        unsigned count;
    } places[PLACES]; /* where samples found it, once it had run for SLOW_MS */
} slow_run;

typedef struct dev_state { /* of a state */
    ls_node waits;         /* those that have not ended, or whose op is on its way */
    slow_run slow;
} dev_state;

static dev_state *dev_state_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_dev);
}

static ls_dev *dev_of(lua_State *L)
{
    return ls_state_runtime(ls_state_of(L))->dev;
}

/* ---- files and loads --------------------------------------------------------------------------------------- */

/* dev.file(path): the file is about to be loaded, or was looked for. */
static int dev_file(lua_State *L)
{
    if (ls_dev_file(dev_of(L), luaL_checkstring(L, 1)) < 0) return luaL_error(L, "too many files for dev mode");
    return 0;
}

/* dev.has(path) -> whether the file was loaded */
static int dev_has(lua_State *L)
{
    lua_pushboolean(L, ls_dev_has_file(dev_of(L), luaL_checkstring(L, 1)));
    return 1;
}

/* The texts of a shared list are copied before Lua sees them: Lua may raise, and the list is locked. */
typedef struct texts {
    char *bytes;
    size_t len, room;
    bool failed;
} texts;

static void texts_add(texts *to, const char *text)
{
    const size_t len = strlen(text) + 1;
    if (to->failed) return;
    if (to->len + len > to->room) {
        char *grown = realloc(to->bytes, 2 * to->room + len);
        to->failed = grown == NULL;
        if (grown == NULL) return;
        to->bytes = grown;
        to->room = 2 * to->room + len;
    }
    memcpy(to->bytes + to->len, text, len);
    to->len += len;
}

static int texts_push(lua_State *L)
{
    const texts *from = lua_touserdata(L, 1);
    lua_newtable(L);
    lua_Integer n = 0;
    for (size_t at = 0; at < from->len; at += strlen(from->bytes + at) + 1) {
        lua_pushstring(L, from->bytes + at);
        lua_rawseti(L, -2, ++n);
    }
    return 1;
}

/* Push an array of the texts and free them. Raises. */
static void texts_finish(lua_State *L, texts *from)
{
    lua_pushcfunction(L, texts_push);
    lua_pushlightuserdata(L, from);
    const int status = lua_pcall(L, 1, 1, 0);
    free(from->bytes);
    if (status != LUA_OK) (void)lua_error(L);
    if (from->failed) luaL_error(L, "not enough memory");
}

static void add_file(void *user, const char *path, bool exists)
{
    if (exists) texts_add(user, path);
}

/* dev.files() -> array of the paths of loaded files */
static int dev_files(lua_State *L)
{
    texts list = {0};
    ls_dev_files(dev_of(L), add_file, &list);
    texts_finish(L, &list);
    return 1;
}

static void add_failure(void *user, const char *message, const char *traceback)
{
    texts_add(user, message);
    texts_add(user, traceback);
}

/* dev.failure() -> nil, or { message, traceback } of the last load */
static int dev_failure(lua_State *L)
{
    texts list = {0};
    if (!ls_dev_failure(dev_of(L), add_failure, &list)) return 0;
    texts_finish(L, &list);
    return 1;
}

/* dev.version() -> integer */
static int dev_version(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)ls_dev_version(dev_of(L)));
    return 1;
}

/* dev.states() -> the number of Lua states that the site may have */
static int dev_states(lua_State *L)
{
    lua_pushinteger(L, ls_state_of(L)->generation->states_max);
    return 1;
}

/* dev.draining() -> whether the server, or this generation of the site, ends */
static int dev_draining(lua_State *L)
{
    lua_pushboolean(L, ls_state_of(L)->draining);
    return 1;
}

/* dev.once(text) -> whether no state has given this text since the last load */
static int dev_once(lua_State *L)
{
    lua_pushboolean(L, ls_dev_once(dev_of(L), luaL_checkstring(L, 1)));
    return 1;
}

/* ---- waiting ----------------------------------------------------------------------------------------------- */

/* It is freed when the task has ended its wait and the op is not on its way. */
typedef struct change_wait {
    ls_dev_waiter waiter;
    ls_node node; /* in the list of the state */
    ls_dev *dev;
    ls_state *state;
    ls_task *task; /* NULL: it was cancelled */
    ls_op op;
    bool posted; /* the op is on its way; guarded by the lock of ls_dev until the wait has ended */
    bool ended;  /* the wait */
} change_wait;

static void change_free(change_wait *wait)
{
    if (!wait->ended || wait->posted) return;
    ls_list_remove(&wait->node);
    free(wait);
}

/* Inside the actor. */
static void change_done(ls_thread_ctx *ctx, ls_op *op)
{
    change_wait *wait = LS_CONTAINER(op, change_wait, op);
    ls_state *state = wait->state;
    ls_task *task = wait->ended ? NULL : wait->task;
    atomic_fetch_sub_explicit(&state->busy, 1, memory_order_relaxed);
    wait->posted = false;
    change_free(wait);
    if (task != NULL) ls_task_wake(ctx, task, LS_OK);
}

/* From the thread that ends a load, or a state that drains. */
static void change_wake(ls_dev_waiter *waiter)
{
    change_wait *wait = LS_CONTAINER(waiter, change_wait, waiter);
    wait->posted = true;
    atomic_fetch_add_explicit(&wait->state->busy, 1, memory_order_relaxed); /* the state must outlive the op */
    ls_actor_post_later(&wait->state->actor, ls_state_runtime(wait->state)->port, &wait->op);
}

static void change_end(change_wait *wait)
{
    (void)ls_dev_wait_end(wait->dev, &wait->waiter);
    wait->ended = true;
    change_free(wait);
}

/* __gc of the box, when a state is closed whose task still waits. */
static int change_gc(lua_State *L)
{
    change_wait **box = lua_touserdata(L, 1);
    if (*box != NULL) change_end(*box);
    *box = NULL;
    return 0;
}

static int change_waited(lua_State *L, int status, lua_KContext context)
{
    change_wait **box = lua_touserdata(L, (int)context);
    (void)status;
    change_end(*box);
    *box = NULL;
    return dev_version(L);
}

/* dev.wait(seen, seconds) -> the version, as soon as it is not `seen`, after this time, or when the server drains */
static int dev_wait(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    const lua_Integer seen = luaL_checkinteger(L, 1);
    const double seconds = ls_check_seconds(L, 2);
    lua_settop(L, 2);
    if (state->draining) return dev_version(L);
    ls_task_may_wait(L);
    change_wait **box = lua_newuserdatauv(L, sizeof *box, 0);
    *box = NULL;
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, change_gc);
    lua_setfield(L, -2, "__gc");
    lua_setmetatable(L, 3);
    change_wait *wait = calloc(1, sizeof *wait);
    if (wait == NULL) return luaL_error(L, "not enough memory");
    *wait = (change_wait){.waiter = {.owner = state, .wake = change_wake},
                          .dev = dev_of(L),
                          .state = state,
                          .task = state->current,
                          .op = {.done = change_done, .actor = &state->actor}};
    ls_node_init(&wait->waiter.node);
    ls_list_push(&dev_state_of(state)->waits, &wait->node);
    *box = wait;
    ls_task_alarm(L, state->current, seconds);
    if (!ls_dev_wait(wait->dev, &wait->waiter, (uint64_t)seen)) change_wake(&wait->waiter);
    return ls_task_suspend(L, 3, change_waited);
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
    if (task != NULL && task->request != NULL && task->request->x != NULL) ls_request_log_name(task->request->x, name);
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
    (void)snprintf(text, sizeof text, "blocked %llu ms in %s (%s)", (unsigned long long)ms, name, place);
    lua_pop(L, 1);
    log_slow(L, text);
}

static void slow_hook(lua_State *L, lua_Debug *ar)
{
    const ls_state *state = ls_state_of(L);
    slow_run *slow = &dev_state_of(state)->slow;
    const uint64_t now_ns = ls_clock_ns();
    if (slow->run != state->cpu->runs) { /* the task has waited since, or another one ran */
        memset(slow, 0, sizeof *slow);
        slow->run = state->cpu->runs;
        slow->began_ns = slow->last_ns = now_ns;
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
    slow_run *slow = &dev_state_of(state)->slow;
    slow->run = state->cpu->runs;
    slow->began_ns = slow->last_ns = ls_clock_ns();
    slow->blocked_ns = 0;
    memset(slow->places, 0, sizeof slow->places);
    lua_sethook(L, slow_hook, LUA_MASKRET | LUA_MASKCOUNT, HOOK_EVERY);
    return 0;
}

/* dev.slow_end(): the task has ended. Logs where its last run has spent its time, if that was too long. */
static int dev_slow_end(lua_State *L)
{
    const ls_state *state = ls_state_of(L);
    slow_run *slow = &dev_state_of(state)->slow;
    int most = 0;
    if (lua_gethook(L) == slow_hook) lua_sethook(L, NULL, 0, 0); /* the coroutine is used again */
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

/* ---- the module -------------------------------------------------------------------------------------------- */

/* Set the field `dev` of luaserve.core. */
static void define(lua_State *L, ls_state *state)
{
    static const luaL_Reg functions[] = {{"file", dev_file},         {"has", dev_has},
                                         {"files", dev_files},       {"failure", dev_failure},
                                         {"version", dev_version},   {"states", dev_states},
                                         {"draining", dev_draining}, {"once", dev_once},
                                         {"wait", dev_wait},         {"slow_begin", dev_slow_begin},
                                         {"slow_end", dev_slow_end}, {NULL, NULL}};
    const int top = lua_gettop(L);
    ls_node_init(&dev_state_of(state)->waits);
    if (dev_of(L) == NULL) return;
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_getfield(L, -1, "luaserve.core");
    luaL_newlib(L, functions);
    lua_pushstring(L, state->generation->path);
    lua_setfield(L, -2, "site");
    lua_pushstring(L, ls_dev_editor(dev_of(L)));
    lua_setfield(L, -2, "editor");
    lua_setfield(L, -2, "dev");
    lua_settop(L, top);
}

/* The event streams end. */
static void drain(ls_thread_ctx *ctx, ls_state *state)
{
    (void)ctx;
    if (ls_state_runtime(state)->dev != NULL) ls_dev_wake(ls_state_runtime(state)->dev, state);
}

/* The tasks that wait are not woken by their op any more. */
static void cancel(ls_thread_ctx *ctx, ls_state *state)
{
    const dev_state *dev = dev_state_of(state);
    (void)ctx;
    for (ls_node *at = dev->waits.next; at != &dev->waits; at = at->next) {
        change_wait *wait = LS_CONTAINER(at, change_wait, node);
        (void)ls_dev_wait_end(wait->dev, &wait->waiter);
        wait->task = NULL;
    }
}

/* The ops on their way do not complete. */
static void abandon(ls_state *state)
{
    const dev_state *dev = dev_state_of(state);
    for (ls_node *at = dev->waits.next, *next; at != &dev->waits; at = next) {
        change_wait *wait = LS_CONTAINER(at, change_wait, node);
        next = at->next;
        (void)ls_dev_wait_end(wait->dev, &wait->waiter);
        wait->posted = false;
        change_free(wait);
    }
}

const ls_module ls_dev_module = {
    .name = "dev", .bytes = sizeof(dev_state), .define = define, .drain = drain, .close = cancel, .abandon = abandon};

int ls_dev_begin(lua_State *L)
{
    lua_getglobal(L, "require");
    lua_pushliteral(L, "luaserve.dev");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, "begin");
    lua_call(L, 0, 0);
    return 0;
}
