/* bind_notify.c - ls.notify: notifications for descriptors that something else owns.
 *
 * A packet of a registration arrives on any thread: watcher_packet adds its events to pending_events and posts `op` to
 * the state's actor, which wakes the task. Every registration except a persistent edge is one-shot in the port, so
 * that one packet at a time is under way: a persistent level is armed at each wait, which checks its condition again.
 * A persistent edge stays armed, and several threads may hold packets of it: pending_events collects their events
 * until the actor runs.
 *
 *     REGISTER --> armed <------------------- ENABLE (wait on a persistent level, rearm)
 *                    \--> fired, disarmed ------/
 *                  any of them --> REMOVE submitted --> REMOVE packet: ended
 *
 * The port identifies registrations by descriptor, and the system reuses the number of a closed descriptor. So the
 * site has a table of the watcher of each number, and a watcher that another one replaced submits nothing to the port.
 *
 * A thread may still hold a packet of a persistent edge when the REMOVE packet is taken. So the memory of a watcher is
 * not freed: its state reuses it, and not before QUARANTINE_NS have passed. At worst, a packet later than that
 * wakes a wait without an event. */
#include <stdlib.h>
#include <string.h>

#include <lualib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "net/rawsock.h"
#include "port/notify.h"
#include "script/bind.h"
#include "script/bind_aux.h"
#include "script/notify_internal.h"
#include "script/site_internal.h"
#include "script/task.h"
#include "script/udata.h"

#define QUARANTINE_NS UINT64_C(2000000000)

static const char watcher_tag;

enum watcher_phase { WATCHER_LIVE, WATCHER_REMOVING, WATCHER_ENDED };

typedef struct script_watcher {
    ls_packet_handler handler; /* first: the key of the registration */
    ls_op op;                  /* posted to the state's actor when events are pending */
    _Atomic uint32_t pending_events;
    _Atomic bool queued; /* op is posted and not yet handled */
    ls_state *state;
    struct script_watcher *next; /* in its bucket of the table; under the table's mutex */
    ls_node node;                /* in script->live or script->retired */
    uint64_t ended_ns;
    ls_fd fd;
    uint32_t filter, ready;
    uint8_t trigger; /* LS_TRIGGER_*, as the script requested it */
    uint8_t phase;
    bool armed;
    bool handle;            /* Lua has a handle of it */
    ls_node waiters;        /* the task that waits for events */
    ls_node remove_waiters; /* tasks that wait for the REMOVE */
} script_watcher;

typedef struct watcher_handle {
    const void *tag;
    script_watcher *watcher; /* NULL: removed */
} watcher_handle;

/* ---- watchers by descriptor -------------------------------------------------------------------------------- */

enum { WATCHER_BUCKETS = 256 };

struct ls_notify_table {
    ls_mutex mutex;
    script_watcher *buckets[WATCHER_BUCKETS];
};

int ls_notify_table_open(ls_notify_table **out)
{
    ls_notify_table *table = calloc(1, sizeof *table);
    if (table == NULL) return LS_ENOMEM;
    const int err = ls_mutex_open(&table->mutex);
    if (err < 0) {
        free(table);
        return err;
    }
    *out = table;
    return LS_OK;
}

void ls_notify_table_close(ls_notify_table *table)
{
    ls_mutex_close(&table->mutex);
    free(table);
}

static script_watcher **bucket_of(ls_notify_table *table, ls_fd fd)
{
    return &table->buckets[(uint64_t)fd % WATCHER_BUCKETS];
}

/* Remove the watcher of this descriptor from the table, or only `which` unless NULL. The mutex is held. */
static script_watcher *table_remove(ls_notify_table *table, ls_fd fd, const script_watcher *which)
{
    for (script_watcher **at = bucket_of(table, fd); *at != NULL; at = &(*at)->next) {
        script_watcher *found = *at;
        if (found->fd != fd || (which != NULL && found != which)) continue;
        *at = found->next;
        found->next = NULL;
        return found;
    }
    return NULL;
}

/* Whether this watcher is still that of its descriptor. The mutex is held. */
static bool table_has(ls_notify_table *table, const script_watcher *watcher)
{
    for (const script_watcher *at = *bucket_of(table, watcher->fd); at != NULL; at = at->next)
        if (at == watcher) return true;
    return false;
}

static uint8_t trigger_of(const script_watcher *watcher)
{
    const uint8_t kind = watcher->trigger & (LS_TRIGGER_LEVEL | LS_TRIGGER_EDGE);
    const bool persistent = watcher->trigger == (LS_TRIGGER_EDGE | LS_TRIGGER_PERSISTENT);
    return kind | (persistent ? LS_TRIGGER_PERSISTENT : LS_TRIGGER_ONESHOT);
}

/* Submit one operation of this watcher to the port. LS_OK, or the result of the registration. */
static int submit(script_watcher *watcher, uint8_t operation)
{
    ls_site *site = watcher->state->site;
    ls_notify_table *table = site->watchers;
    ls_registration registration = {.fd = watcher->fd,
                                    .key = watcher,
                                    .events = (uint16_t)watcher->filter,
                                    .trigger = trigger_of(watcher),
                                    .operation = operation};
    ls_mutex_lock(&table->mutex);
    if (operation != LS_NOTIFY_REGISTER && !table_has(table, watcher)) {
        registration.result = LS_ENOENT;
    } else {
        (void)ls_port_notify(site->port, NULL, &registration, 1, NULL, 0, 0);
        if (operation == LS_NOTIFY_REGISTER && registration.result == LS_OK) {
            (void)table_remove(table, watcher->fd, NULL); /* the watcher of an earlier descriptor with this number */
            watcher->next = *bucket_of(table, watcher->fd);
            *bucket_of(table, watcher->fd) = watcher;
        } else if (registration.result == LS_ENOENT ||
                   (operation == LS_NOTIFY_REMOVE && registration.result == LS_OK)) {
            (void)table_remove(table, watcher->fd, watcher);
        }
    }
    ls_mutex_unlock(&table->mutex);
    return registration.result;
}

/* ---- life -------------------------------------------------------------------------------------------------- */

/* No relevant packet follows. The watcher retires once it has no handle and its op is not posted. */
static void watcher_ended(script_watcher *watcher)
{
    ls_notify_script *script = watcher->state->notify;
    watcher->phase = WATCHER_ENDED;
    if (watcher->handle || atomic_load(&watcher->queued)) return;
    watcher->ended_ns = ls_clock_ns();
    ls_list_remove(&watcher->node);
    ls_list_push(&script->retired, &watcher->node);
}

/* The registration failed, so no packet exists: the memory may be reused next. */
static void watcher_register_failed(script_watcher *watcher)
{
    watcher->phase = WATCHER_ENDED;
    watcher->handle = false;
    watcher->ended_ns = 0;
    ls_list_remove(&watcher->node);
    ls_list_push(watcher->state->notify->retired.next, &watcher->node); /* the front of the list: before the oldest */
}

/* `op` arrives inside the actor. */
static void watcher_op_done(ls_thread_ctx *ctx, ls_op *op)
{
    script_watcher *watcher = LS_CONTAINER(op, script_watcher, op);
    atomic_store(&watcher->queued, false);
    const uint32_t events = atomic_exchange(&watcher->pending_events, 0);
    if (events & LS_EVENT_REMOVE) {
        watcher_ended(watcher);
        ls_task_wake_all(ctx, &watcher->remove_waiters, LS_OK);
        ls_task_wake_all(ctx, &watcher->waiters, LS_OK);
        return;
    }
    if (watcher->phase != WATCHER_LIVE) {
        if (watcher->phase == WATCHER_ENDED) watcher_ended(watcher); /* it could not retire while op was posted */
        return;
    }
    watcher->ready |= events & (watcher->filter | LS_EVENT_ERR);
    if (trigger_of(watcher) & LS_TRIGGER_ONESHOT) watcher->armed = false;
    if (watcher->ready != 0) ls_task_wake_all(ctx, &watcher->waiters, LS_OK);
}

/* The packet handler; runs on any thread, outside the actor. */
static void watcher_packet(ls_thread_ctx *ctx, const ls_packet *packet)
{
    script_watcher *watcher = packet->key;
    atomic_fetch_or(&watcher->pending_events, packet->events);
    if (!atomic_exchange(&watcher->queued, true)) ls_actor_post(&watcher->state->actor, ctx, &watcher->op);
}

static script_watcher *watcher_new(ls_state *state)
{
    ls_notify_script *script = state->notify;
    script_watcher *watcher = NULL;
    if (!ls_list_empty(&script->retired)) {
        script_watcher *oldest = LS_CONTAINER(script->retired.next, script_watcher, node);
        if (ls_clock_ns() - oldest->ended_ns >= QUARANTINE_NS && !atomic_load(&oldest->queued)) watcher = oldest;
    }
    if (watcher != NULL)
        ls_list_remove(&watcher->node);
    else if ((watcher = calloc(1, sizeof *watcher)) == NULL)
        return NULL;
    watcher->handler.handle = watcher_packet;
    watcher->op.done = watcher_op_done;
    watcher->op.actor = &state->actor;
    watcher->state = state;
    watcher->ready = 0;
    watcher->phase = WATCHER_LIVE;
    atomic_store(&watcher->pending_events, 0);
    ls_node_init(&watcher->waiters);
    ls_node_init(&watcher->remove_waiters);
    ls_list_push(&script->live, &watcher->node);
    return watcher;
}

void ls_notify_forget(lua_State *L, ls_fd fd)
{
    ls_state *state = ls_state_of(L);
    ls_site *site = state->site;
    if (site->port == NULL) return;
    ls_mutex_lock(&site->watchers->mutex);
    script_watcher *watcher = table_remove(site->watchers, fd, NULL);
    ls_port_forget(site->port, fd);
    ls_mutex_unlock(&site->watchers->mutex);
    if (watcher == NULL || watcher->state != state) return;
    watcher->armed = false;
    watcher->ready = 0;
    ls_task_wake_all(state->ctx, &watcher->waiters, LS_ECLOSED);
    if (watcher->phase == WATCHER_REMOVING) ls_task_wake_all(state->ctx, &watcher->remove_waiters, LS_OK);
    watcher->phase = WATCHER_ENDED;
}

static int handle_gc(lua_State *L)
{
    watcher_handle *handle = lua_touserdata(L, 1);
    script_watcher *watcher = handle->watcher;
    handle->watcher = NULL;
    if (watcher == NULL) return 0;
    watcher->handle = false;
    if (watcher->state->site->port == NULL) return 0; /* the server has ended */
    if (watcher->phase == WATCHER_LIVE) {
        watcher->phase = WATCHER_REMOVING;
        if (submit(watcher, LS_NOTIFY_REMOVE) < 0) watcher_ended(watcher);
    } else if (watcher->phase == WATCHER_ENDED) {
        watcher_ended(watcher);
    }
    return 0;
}

void ls_notify_free(ls_state *state)
{
    ls_notify_script *script = state->notify;
    if (script == NULL) return;
    const ls_node *lists[] = {&script->live, &script->retired};
    for (int n = 0; n < 2; n++) {
        for (ls_node *node = lists[n]->next, *next; node != lists[n]; node = next) {
            next = node->next;
            free(LS_CONTAINER(node, script_watcher, node));
        }
    }
    free(script);
    state->notify = NULL;
}

/* ---- the Lua object ----------------------------------------------------------------------------------------- */

/* nil, message, code for an error of the port */
static int push_failed(lua_State *L, int err)
{
    (void)ls_push_failure(L, err);
    const char *text = err == LS_EINVAL    ? "invalid descriptor"
                       : err == LS_EEXIST  ? "the descriptor is already registered, or is a socket of the server"
                       : err == LS_EBUSY   ? "the previous registration of the descriptor is still being removed"
                       : err == LS_ENOENT  ? "the descriptor was closed"
                       : err == LS_ENOTSUP ? "this kind of descriptor cannot be waited for"
                                           : NULL;
    if (text != NULL) {
        lua_pushstring(L, text);
        lua_replace(L, -3);
    }
    return 3;
}

static watcher_handle *handle_check(lua_State *L)
{
    return ls_udata_check(L, 1, &watcher_tag, sizeof(watcher_handle), "notification");
}

static script_watcher *watcher_check(lua_State *L)
{
    script_watcher *watcher = handle_check(L)->watcher;
    if (watcher == NULL || watcher->phase == WATCHER_REMOVING) luaL_error(L, "this notification was removed");
    return watcher;
}

static int push_events(lua_State *L, script_watcher *watcher)
{
    static const struct {
        const char *name;
        uint32_t bit;
    } names[] = {{"in", LS_EVENT_IN}, {"out", LS_EVENT_OUT}, {"hangup", LS_EVENT_HANGUP}, {"err", LS_EVENT_ERR}};
    const uint32_t ready = watcher->ready;
    watcher->ready = 0;
    lua_createtable(L, 0, 2);
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        if (!(ready & names[n].bit)) continue;
        lua_pushboolean(L, 1);
        lua_setfield(L, -2, names[n].name);
    }
    return 1;
}

static int wait_done(lua_State *L, int status, lua_KContext context)
{
    script_watcher *watcher = handle_check(L)->watcher;
    const int result = ls_state_of(L)->current->wake_result;
    (void)status;
    (void)context;
    if (watcher == NULL || watcher->phase == WATCHER_REMOVING) return ls_push_failure(L, LS_ECANCELED);
    if (watcher->phase == WATCHER_ENDED) return push_failed(L, LS_ENOENT);
    if (watcher->ready != 0) return push_events(L, watcher);
    return ls_push_failure(L, result < 0 ? result : LS_ETIMEDOUT);
}

/* n:wait([timeout]) -> { ["in"] = true, ... } | nil, message, code */
static int watcher_wait(lua_State *L)
{
    script_watcher *watcher = watcher_check(L);
    const double timeout = lua_isnoneornil(L, 2) ? -1 : ls_check_seconds(L, 2);
    ls_state *state = ls_state_of(L);
    lua_settop(L, 1);
    if (watcher->phase == WATCHER_ENDED) return push_failed(L, LS_ENOENT);
    if (!ls_list_empty(&watcher->waiters)) return luaL_error(L, "another task already waits for this notification");
    ls_task_may_wait(L);
    if (watcher->trigger == (LS_TRIGGER_LEVEL | LS_TRIGGER_PERSISTENT) && !watcher->armed) {
        watcher->ready = 0; /* the condition may have ended: ENABLE checks it again */
        const int err = submit(watcher, LS_NOTIFY_ENABLE);
        if (err < 0) return push_failed(L, err);
        watcher->armed = true;
    }
    if (watcher->ready != 0) return push_events(L, watcher);
    if (!watcher->armed) {
        lua_pushnil(L);
        lua_pushliteral(L, "this one-shot notification has fired; call n:rearm(events) first");
        lua_pushliteral(L, "EINVAL");
        return 3;
    }
    if (timeout >= 0) ls_task_alarm(L, state->current, timeout);
    ls_list_push(&watcher->waiters, &state->current->wait_node);
    return ls_task_suspend(L, 0, wait_done);
}

/* core's n:rearm(filter) -> true | nil, message, code */
static int watcher_rearm(lua_State *L)
{
    script_watcher *watcher = watcher_check(L);
    const uint32_t before = watcher->filter;
    const lua_Integer filter = luaL_optinteger(L, 2, before);
    if (watcher->phase == WATCHER_ENDED) return push_failed(L, LS_ENOENT);
    watcher->filter = (uint32_t)filter & (LS_EVENT_IN | LS_EVENT_OUT | LS_EVENT_HANGUP);
    const int err = submit(watcher, LS_NOTIFY_ENABLE);
    if (err < 0) {
        watcher->filter = before;
        return push_failed(L, err);
    }
    watcher->armed = true;
    watcher->ready = 0;
    lua_pushboolean(L, 1);
    return 1;
}

static int remove_done(lua_State *L, int status, lua_KContext context)
{
    watcher_handle *handle = handle_check(L);
    script_watcher *watcher = handle->watcher;
    (void)status;
    (void)context;
    if (watcher != NULL) { /* the first of several tasks that removed it */
        handle->watcher = NULL;
        watcher->handle = false;
        watcher_ended(watcher);
    }
    lua_pushboolean(L, 1);
    return 1;
}

/* n:remove() -> true, after the last packet of the registration */
static int watcher_remove(lua_State *L)
{
    script_watcher *watcher = watcher_check(L);
    ls_state *state = ls_state_of(L);
    lua_settop(L, 1);
    ls_task_may_wait(L);
    if (watcher->phase == WATCHER_LIVE) {
        watcher->phase = WATCHER_REMOVING;
        ls_task_wake_all(state->ctx, &watcher->waiters, LS_OK);
        if (submit(watcher, LS_NOTIFY_REMOVE) == LS_OK) {
            ls_list_push(&watcher->remove_waiters, &state->current->wait_node);
            return ls_task_suspend(L, 0, remove_done);
        }
    }
    return remove_done(L, LUA_OK, 0);
}

/* The descriptor of the value at `index`: a number, a file of the io library, or a socket of ls.socket. LS_FD_NONE for
 * a number out of range or a closed file or socket. Raises for any other value. */
static ls_fd check_fd(lua_State *L, int index)
{
    int whole;
    const lua_Integer number = lua_tointegerx(L, index, &whole);
    ls_fd fd = LS_FD_NONE;
    if (lua_type(L, index) == LUA_TNUMBER && whole)
        return number < 0 || number > INT32_MAX ? LS_FD_NONE : (ls_fd)number;
    if (ls_socket_test(L, index, &fd)) return fd;
    const luaL_Stream *file = luaL_testudata(L, index, LUA_FILEHANDLE);
    if (file != NULL) return file->closef == NULL ? LS_FD_NONE : ls_socket_fileno(file->f);
    luaL_typeerror(L, index, "descriptor (a number, a file, or a socket of ls.socket)");
    return LS_FD_NONE;
}

/* core.notify(fd, filter, edge, oneshot) -> n | nil, message, code */
int ls_core_notify(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    const ls_fd fd = check_fd(L, 1);
    const lua_Integer filter = luaL_checkinteger(L, 2);
    if (state->loading || state->site->port == NULL)
        return luaL_error(L,
                          "cannot be called while the site loads; call it in a handler, ls.once or ls.on(\"start\")");
    lua_settop(L, 4);
    watcher_handle *handle = lua_newuserdatauv(L, sizeof *handle, 1);
    *handle = (watcher_handle){.tag = &watcher_tag};
    lua_rawgeti(L, LUA_REGISTRYINDEX, state->notify->meta_ref);
    lua_setmetatable(L, -2);
    lua_pushvalue(L, 1); /* keeps the file or socket alive as long as its notification */
    lua_setiuservalue(L, -2, 1);
    script_watcher *watcher = watcher_new(state);
    if (watcher == NULL) return luaL_error(L, "not enough memory");
    watcher->fd = fd;
    watcher->filter = (uint32_t)filter & (LS_EVENT_IN | LS_EVENT_OUT | LS_EVENT_HANGUP);
    watcher->trigger = (uint8_t)((lua_toboolean(L, 3) ? LS_TRIGGER_EDGE : LS_TRIGGER_LEVEL) |
                                 (lua_toboolean(L, 4) ? LS_TRIGGER_ONESHOT : LS_TRIGGER_PERSISTENT));
    watcher->armed = true;
    watcher->handle = true;
    const int err = fd == LS_FD_NONE ? LS_EINVAL : submit(watcher, LS_NOTIFY_REGISTER);
    if (err < 0) {
        watcher_register_failed(watcher);
        return push_failed(L, err);
    }
    if (watcher->filter & LS_EVENT_IN) ls_console_raw(fd);
    handle->watcher = watcher;
    return 1;
}

void ls_notify_define(lua_State *L, ls_state *state)
{
    static const luaL_Reg methods[] = {
        {"wait", watcher_wait}, {"rearm_core", watcher_rearm}, {"remove", watcher_remove}, {NULL, NULL}};
    static const luaL_Reg meta[] = {{"__gc", handle_gc}, {NULL, NULL}};
    ls_notify_script *script = state->notify = calloc(1, sizeof *script);
    if (script == NULL) {
        luaL_error(L, "not enough memory");
        return;
    }
    ls_node_init(&script->live);
    ls_node_init(&script->retired);
    luaL_newlib(L, meta);
    luaL_newlib(L, methods);
    lua_pushvalue(L, -1);
    script->methods_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    ls_set_methods(L, "a notification");
    ls_udata_define(L, "notification", &script->meta_ref);
    ls_socket_define(L, script);
}

/* core.notify_methods() -> the table of methods; notify.lua adds rearm, which takes names of events */
int ls_core_notify_methods(lua_State *L)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, ls_state_of(L)->notify->methods_ref);
    return 1;
}
