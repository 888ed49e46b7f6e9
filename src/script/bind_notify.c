/* bind_notify.c - ls.notify: notifications for descriptors that something else owns.
 *
 * Packets of a registration come to any thread; take_packet notes the events and has the state's actor tell the task.
 * Underneath everything but a persistent edge is one-shot, so that one packet at a time is under way: a persistent level
 * is armed when somebody waits, and looks afresh then. A persistent edge stays armed, and several threads may have
 * packets of it: their events are gathered until the actor comes.
 *
 *     REGISTER --> armed <----------------- ENABLE (wait of a persistent level, rearm)
 *                    \--> told, disarmed ------/
 *                  any of them --> REMOVE asked --> REMOVE packet: gone
 *
 * Registrations go by descriptor, and a descriptor's number may be another's after it was closed. So the site has a
 * table of who has which number, and an object that was superseded asks nothing of the port any more.
 *
 * A thread may still hold a packet of a persistent edge when its REMOVE is taken. So memory is not freed but used again by
 * the same state, and not before QUARANTINE_NS have passed: at worst a wait returns for nothing. */
#include <stdlib.h>
#include <string.h>

#include <lualib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "net/plain.h"
#include "port/notify.h"
#include "script/bind.h"
#include "script/notify_internal.h"
#include "script/object.h"
#include "script/site_internal.h"
#include "script/task.h"

#define QUARANTINE_NS UINT64_C(2000000000)

static const char notice_tag;

enum notice_phase { NOTICE_LIVE, NOTICE_REMOVING, NOTICE_GONE };

typedef struct script_notice {
    ls_taker taker; /* first: the key of the registration */
    ls_op op;       /* tells the state */
    _Atomic uint32_t told;
    _Atomic bool queued; /* op is on its way */
    ls_state *state;
    struct script_notice *next; /* under the table's mutex: in its bucket */
    ls_node node;               /* in script->live, or script->dead */
    uint64_t gone_ns;
    ls_fd fd;
    uint32_t filter, ready;
    uint8_t trigger; /* LS_TRIGGER_*, what the script asked for */
    uint8_t phase;
    bool armed;
    bool handle;      /* Lua still holds it */
    ls_node waiters;  /* the task that waits for events */
    ls_node removers; /* tasks that wait for the REMOVE */
} script_notice;

typedef struct notice_handle {
    const void *tag;
    script_notice *notice; /* NULL: removed */
} notice_handle;

/* ---- who has which descriptor ------------------------------------------------------------------------------ */

enum { NOTICE_BUCKETS = 256 };

struct ls_notify_table {
    ls_mutex mutex;
    script_notice *buckets[NOTICE_BUCKETS];
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

static script_notice **bucket_of(ls_notify_table *table, ls_fd fd)
{
    return &table->buckets[(uint64_t)fd % NOTICE_BUCKETS];
}

/* Take whoever has this descriptor out of the table (or only `which`). With the mutex held. */
static script_notice *unlist(ls_notify_table *table, ls_fd fd, const script_notice *which)
{
    for (script_notice **at = bucket_of(table, fd); *at != NULL; at = &(*at)->next) {
        script_notice *found = *at;
        if (found->fd != fd || (which != NULL && found != which)) continue;
        *at = found->next;
        found->next = NULL;
        return found;
    }
    return NULL;
}

/* Whether this object still has its descriptor. With the mutex held. */
static bool is_listed(ls_notify_table *table, const script_notice *notice)
{
    for (const script_notice *at = *bucket_of(table, notice->fd); at != NULL; at = at->next)
        if (at == notice) return true;
    return false;
}

static uint8_t trigger_of(const script_notice *notice)
{
    const uint8_t kind = notice->trigger & (LS_TRIGGER_LEVEL | LS_TRIGGER_EDGE);
    const bool persistent = notice->trigger == (LS_TRIGGER_EDGE | LS_TRIGGER_PERSISTENT);
    return kind | (persistent ? LS_TRIGGER_PERSISTENT : LS_TRIGGER_ONESHOT);
}

/* Have the port do it, in the name of this object. LS_OK or the registration's result. */
static int ask(script_notice *notice, uint8_t operation)
{
    ls_site *site = notice->state->site;
    ls_notify_table *table = site->notices;
    ls_registration registration = {.fd = notice->fd,
                                    .key = notice,
                                    .events = (uint16_t)notice->filter,
                                    .trigger = trigger_of(notice),
                                    .operation = operation};
    ls_mutex_lock(&table->mutex);
    if (operation != LS_NOTIFY_REGISTER && !is_listed(table, notice)) {
        registration.result = LS_ENOENT;
    } else {
        (void)ls_port_notify(site->port, NULL, &registration, 1, NULL, 0, 0);
        if (operation == LS_NOTIFY_REGISTER && registration.result == LS_OK) {
            (void)unlist(table, notice->fd, NULL); /* of a descriptor that was closed */
            notice->next = *bucket_of(table, notice->fd);
            *bucket_of(table, notice->fd) = notice;
        } else if (registration.result == LS_ENOENT ||
                   (operation == LS_NOTIFY_REMOVE && registration.result == LS_OK)) {
            (void)unlist(table, notice->fd, notice);
        }
    }
    ls_mutex_unlock(&table->mutex);
    return registration.result;
}

/* ---- life -------------------------------------------------------------------------------------------------- */

/* No packet that matters will come. */
static void notice_gone(script_notice *notice)
{
    ls_notify_script *script = notice->state->notify;
    notice->phase = NOTICE_GONE;
    if (notice->handle || atomic_load(&notice->queued)) return;
    notice->gone_ns = ls_clock_ns();
    ls_list_remove(&notice->node);
    ls_list_push(&script->dead, &notice->node);
}

/* It was never registered: nothing can come of it, and it is the next to be used. */
static void notice_refused(script_notice *notice)
{
    notice->phase = NOTICE_GONE;
    notice->handle = false;
    notice->gone_ns = 0;
    ls_list_remove(&notice->node);
    ls_list_push(notice->state->notify->dead.next, &notice->node); /* before the oldest */
}

/* Inside the actor. */
static void notice_told(ls_seat *seat, ls_op *op)
{
    script_notice *notice = LS_CONTAINER(op, script_notice, op);
    atomic_store(&notice->queued, false);
    const uint32_t events = atomic_exchange(&notice->told, 0);
    if (events & LS_EVENT_REMOVE) {
        notice_gone(notice);
        ls_task_wake_all(seat, &notice->removers, LS_OK);
        ls_task_wake_all(seat, &notice->waiters, LS_OK);
        return;
    }
    if (notice->phase != NOTICE_LIVE) {
        if (notice->phase == NOTICE_GONE) notice_gone(notice); /* it only waited for this */
        return;
    }
    notice->ready |= events & (notice->filter | LS_EVENT_ERR);
    if (trigger_of(notice) & LS_TRIGGER_ONESHOT) notice->armed = false;
    if (notice->ready != 0) ls_task_wake_all(seat, &notice->waiters, LS_OK);
}

static void take_packet(ls_seat *seat, const ls_packet *packet)
{
    script_notice *notice = packet->key;
    atomic_fetch_or(&notice->told, packet->events);
    if (!atomic_exchange(&notice->queued, true)) ls_actor_post(&notice->state->actor, seat, &notice->op);
}

static script_notice *notice_new(ls_state *state)
{
    ls_notify_script *script = state->notify;
    script_notice *notice = NULL;
    if (!ls_list_empty(&script->dead)) {
        script_notice *oldest = LS_CONTAINER(script->dead.next, script_notice, node);
        if (ls_clock_ns() - oldest->gone_ns >= QUARANTINE_NS && !atomic_load(&oldest->queued)) notice = oldest;
    }
    if (notice != NULL)
        ls_list_remove(&notice->node);
    else if ((notice = calloc(1, sizeof *notice)) == NULL)
        return NULL;
    notice->taker.take = take_packet;
    notice->op.done = notice_told;
    notice->op.actor = &state->actor;
    notice->state = state;
    notice->ready = 0;
    notice->phase = NOTICE_LIVE;
    atomic_store(&notice->told, 0);
    ls_node_init(&notice->waiters);
    ls_node_init(&notice->removers);
    ls_list_push(&script->live, &notice->node);
    return notice;
}

void ls_notify_forget(lua_State *L, ls_fd fd)
{
    ls_state *state = ls_state_of(L);
    ls_site *site = state->site;
    if (site->port == NULL) return;
    ls_mutex_lock(&site->notices->mutex);
    script_notice *notice = unlist(site->notices, fd, NULL);
    ls_port_forget(site->port, fd);
    ls_mutex_unlock(&site->notices->mutex);
    if (notice == NULL || notice->state != state) return;
    notice->armed = false;
    notice->ready = 0;
    ls_task_wake_all(state->seat, &notice->waiters, LS_ECLOSED);
    if (notice->phase == NOTICE_REMOVING) ls_task_wake_all(state->seat, &notice->removers, LS_OK);
    notice->phase = NOTICE_GONE;
}

static int handle_gc(lua_State *L)
{
    notice_handle *handle = lua_touserdata(L, 1);
    script_notice *notice = handle->notice;
    handle->notice = NULL;
    if (notice == NULL) return 0;
    notice->handle = false;
    if (notice->state->site->port == NULL) return 0; /* the server has ended */
    if (notice->phase == NOTICE_LIVE) {
        notice->phase = NOTICE_REMOVING;
        if (ask(notice, LS_NOTIFY_REMOVE) < 0) notice_gone(notice);
    } else if (notice->phase == NOTICE_GONE) {
        notice_gone(notice);
    }
    return 0;
}

void ls_notify_free(ls_state *state)
{
    ls_notify_script *script = state->notify;
    if (script == NULL) return;
    const ls_node *lists[] = {&script->live, &script->dead};
    for (int n = 0; n < 2; n++) {
        for (ls_node *node = lists[n]->next, *next; node != lists[n]; node = next) {
            next = node->next;
            free(LS_CONTAINER(node, script_notice, node));
        }
    }
    free(script);
    state->notify = NULL;
}

/* ---- what Lua sees ----------------------------------------------------------------------------------------- */

static int push_refused(lua_State *L, int err)
{
    (void)ls_push_failure(L, err);
    const char *text = err == LS_EINVAL    ? "a bad descriptor"
                       : err == LS_EEXIST  ? "the descriptor is registered already, or its socket belongs to the port"
                       : err == LS_EBUSY   ? "the descriptor's last registration is still being removed"
                       : err == LS_ENOENT  ? "the descriptor was closed"
                       : err == LS_ENOTSUP ? "the descriptor is of nothing that can be waited for"
                                           : NULL;
    if (text != NULL) {
        lua_pushstring(L, text);
        lua_replace(L, -3);
    }
    return 3;
}

static notice_handle *handle_check(lua_State *L)
{
    return ls_object_check(L, 1, &notice_tag, sizeof(notice_handle), "notification");
}

static script_notice *notice_check(lua_State *L)
{
    script_notice *notice = handle_check(L)->notice;
    if (notice == NULL || notice->phase == NOTICE_REMOVING) luaL_error(L, "this notification was removed");
    return notice;
}

static int push_events(lua_State *L, script_notice *notice)
{
    static const struct {
        const char *name;
        uint32_t bit;
    } names[] = {{"in", LS_EVENT_IN}, {"out", LS_EVENT_OUT}, {"hangup", LS_EVENT_HANGUP}, {"err", LS_EVENT_ERR}};
    const uint32_t ready = notice->ready;
    notice->ready = 0;
    lua_createtable(L, 0, 2);
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        if (!(ready & names[n].bit)) continue;
        lua_pushboolean(L, 1);
        lua_setfield(L, -2, names[n].name);
    }
    return 1;
}

static int notice_waited(lua_State *L, int status, lua_KContext context)
{
    script_notice *notice = handle_check(L)->notice;
    const int result = ls_state_of(L)->current->wake_result;
    (void)status;
    (void)context;
    if (notice == NULL || notice->phase == NOTICE_REMOVING) return ls_push_failure(L, LS_ECANCELED);
    if (notice->phase == NOTICE_GONE) return push_refused(L, LS_ENOENT);
    if (notice->ready != 0) return push_events(L, notice);
    return ls_push_failure(L, result < 0 ? result : LS_ETIMEDOUT);
}

/* n:wait([timeout]) -> { ["in"] = true, ... } | nil, message, code */
static int notice_wait(lua_State *L)
{
    script_notice *notice = notice_check(L);
    const double timeout = lua_isnoneornil(L, 2) ? -1 : ls_check_seconds(L, 2);
    ls_state *state = ls_state_of(L);
    lua_settop(L, 1);
    if (notice->phase == NOTICE_GONE) return push_refused(L, LS_ENOENT);
    if (!ls_list_empty(&notice->waiters)) return luaL_error(L, "another task waits for this notification already");
    ls_task_may_wait(L);
    if (notice->trigger == (LS_TRIGGER_LEVEL | LS_TRIGGER_PERSISTENT) && !notice->armed) {
        notice->ready = 0; /* what held then may hold no more: look afresh */
        const int err = ask(notice, LS_NOTIFY_ENABLE);
        if (err < 0) return push_refused(L, err);
        notice->armed = true;
    }
    if (notice->ready != 0) return push_events(L, notice);
    if (!notice->armed) {
        lua_pushnil(L);
        lua_pushliteral(L, "a one-shot that was told: call n:rearm(events) first");
        lua_pushliteral(L, "EINVAL");
        return 3;
    }
    if (timeout >= 0) ls_task_alarm(L, state->current, timeout);
    ls_list_push(&notice->waiters, &state->current->wait_node);
    return ls_task_suspend(L, 0, notice_waited);
}

/* core's n:rearm(filter) -> true | nil, message, code */
static int notice_rearm(lua_State *L)
{
    script_notice *notice = notice_check(L);
    const uint32_t before = notice->filter;
    const lua_Integer filter = luaL_optinteger(L, 2, before);
    if (notice->phase == NOTICE_GONE) return push_refused(L, LS_ENOENT);
    notice->filter = (uint32_t)filter & (LS_EVENT_IN | LS_EVENT_OUT | LS_EVENT_HANGUP);
    const int err = ask(notice, LS_NOTIFY_ENABLE);
    if (err < 0) {
        notice->filter = before;
        return push_refused(L, err);
    }
    notice->armed = true;
    notice->ready = 0;
    lua_pushboolean(L, 1);
    return 1;
}

static int notice_removed(lua_State *L, int status, lua_KContext context)
{
    notice_handle *handle = handle_check(L);
    script_notice *notice = handle->notice;
    (void)status;
    (void)context;
    if (notice != NULL) { /* the first of several that removed it */
        handle->notice = NULL;
        notice->handle = false;
        notice_gone(notice);
    }
    lua_pushboolean(L, 1);
    return 1;
}

/* n:remove() -> true, when its last packet has come */
static int notice_remove(lua_State *L)
{
    script_notice *notice = notice_check(L);
    ls_state *state = ls_state_of(L);
    lua_settop(L, 1);
    ls_task_may_wait(L);
    if (notice->phase == NOTICE_LIVE) {
        notice->phase = NOTICE_REMOVING;
        ls_task_wake_all(state->seat, &notice->waiters, LS_OK);
        if (ask(notice, LS_NOTIFY_REMOVE) == LS_OK) {
            ls_list_push(&notice->removers, &state->current->wait_node);
            return ls_task_suspend(L, 0, notice_removed);
        }
    }
    return notice_removed(L, LUA_OK, 0);
}

/* The descriptor that a value stands for: a number, a file of Lua's, or a socket of ls.socket. */
static ls_fd check_fd(lua_State *L, int index)
{
    int whole;
    const lua_Integer number = lua_tointegerx(L, index, &whole);
    ls_fd fd = LS_FD_NONE;
    if (lua_type(L, index) == LUA_TNUMBER && whole)
        return number < 0 || number > INT32_MAX ? LS_FD_NONE : (ls_fd)number;
    if (ls_plain_test(L, index, &fd)) return fd;
    const luaL_Stream *file = luaL_testudata(L, index, LUA_FILEHANDLE);
    if (file != NULL) return file->closef == NULL ? LS_FD_NONE : ls_plain_fileno(file->f);
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
        return luaL_error(L, "nothing can be waited for while the site loads; call it from a handler, ls.once or "
                             "ls.on(\"start\")");
    lua_settop(L, 4);
    notice_handle *handle = lua_newuserdatauv(L, sizeof *handle, 1);
    *handle = (notice_handle){.tag = &notice_tag};
    lua_rawgeti(L, LUA_REGISTRYINDEX, state->notify->meta_ref);
    lua_setmetatable(L, -2);
    lua_pushvalue(L, 1); /* a file or socket lives as long as its notification */
    lua_setiuservalue(L, -2, 1);
    script_notice *notice = notice_new(state);
    if (notice == NULL) return luaL_error(L, "not enough memory");
    notice->fd = fd;
    notice->filter = (uint32_t)filter & (LS_EVENT_IN | LS_EVENT_OUT | LS_EVENT_HANGUP);
    notice->trigger = (uint8_t)((lua_toboolean(L, 3) ? LS_TRIGGER_EDGE : LS_TRIGGER_LEVEL) |
                                (lua_toboolean(L, 4) ? LS_TRIGGER_ONESHOT : LS_TRIGGER_PERSISTENT));
    notice->armed = true;
    notice->handle = true;
    const int err = fd == LS_FD_NONE ? LS_EINVAL : ask(notice, LS_NOTIFY_REGISTER);
    if (err < 0) {
        notice_refused(notice);
        return push_refused(L, err);
    }
    if (notice->filter & LS_EVENT_IN) ls_plain_keys(fd);
    handle->notice = notice;
    return 1;
}

void ls_notify_define(lua_State *L, ls_state *state)
{
    static const luaL_Reg methods[] = {
        {"wait", notice_wait}, {"rearm_core", notice_rearm}, {"remove", notice_remove}, {NULL, NULL}};
    static const luaL_Reg meta[] = {{"__gc", handle_gc}, {NULL, NULL}};
    ls_notify_script *script = state->notify = calloc(1, sizeof *script);
    if (script == NULL) {
        luaL_error(L, "not enough memory");
        return;
    }
    ls_node_init(&script->live);
    ls_node_init(&script->dead);
    luaL_newlib(L, meta);
    luaL_newlib(L, methods);
    lua_pushvalue(L, -1);
    script->methods_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_setfield(L, -2, "__index");
    ls_object_define(L, "notification", &script->meta_ref);
    ls_plain_define(L, script);
}

/* core.notify_methods() -> the table of methods, for the names of events that Lua adds */
int ls_core_notify_methods(lua_State *L)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, ls_state_of(L)->notify->methods_ref);
    return 1;
}
