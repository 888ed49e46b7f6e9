/* notify_object.c - ls.notify: notifications for descriptors that something else owns.
 *
 * A notification is a poll (net/stream/poll.h) and what Lua code asked for. Every poll except a persistent edge is
 * one-shot, so that one packet at a time is under way: a persistent level is armed at each wait, which checks its
 * condition again. A persistent edge stays armed.
 *
 *     LIVE ---- n:remove() ----> REMOVING ---- its last report ----> REMOVED
 *       \------ the descriptor is closed ----> ENDED ---- n:remove() ----/
 *
 * A task that waits has the notification on its stack, so that a collected one has no waiters. */

#include "net/sock/rawsock.h"
#include "net/stream/poll.h"
#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/bind/sock/notify_internal.h"
#include "script/core/lua/udata.h"
#include "script/core/task.h"

static const ls_object_type notification_type;

enum { FILTER = LS_EVENT_IN | LS_EVENT_OUT | LS_EVENT_HANGUP };

enum notification_phase { NOTIFICATION_LIVE, NOTIFICATION_REMOVING, NOTIFICATION_ENDED, NOTIFICATION_REMOVED };

typedef struct notification {
    const void *tag;
    ls_poll *poll; /* NULL: none, or removed */
    uint32_t filter, ready;
    uint8_t trigger; /* LS_TRIGGER_*, as the script requested it */
    uint8_t phase;
    bool armed;
    ls_node waiters;        /* the task that waits for events */
    ls_node remove_waiters; /* tasks that wait for the last report */
} notification;

static uint8_t trigger_of(const notification *n)
{
    const uint8_t kind = n->trigger & (LS_TRIGGER_LEVEL | LS_TRIGGER_EDGE);
    const bool persistent = n->trigger == (LS_TRIGGER_EDGE | LS_TRIGGER_PERSISTENT);
    return kind | (persistent ? LS_TRIGGER_PERSISTENT : LS_TRIGGER_ONESHOT);
}

static void notification_event(ls_thread_ctx *ctx, ls_poll *poll, uint32_t events)
{
    notification *n = ls_poll_user(poll);
    if (events & LS_EVENT_REMOVE) {
        ls_task_wake_all(ctx, &n->remove_waiters, LS_OK);
        return;
    }
    if (n->phase != NOTIFICATION_LIVE) return;
    n->ready |= events & (n->filter | LS_EVENT_ERR);
    if (trigger_of(n) & LS_TRIGGER_ONESHOT) n->armed = false;
    if (n->ready != 0) ls_task_wake_all(ctx, &n->waiters, LS_OK);
}

void ls_notify_unregister(lua_State *L, ls_fd fd)
{
    ls_state *state = ls_state_of(L);
    ls_polls *polls = ls_state_runtime(state)->polls;
    if (state->port == NULL) return;
    ls_poll *poll = ls_polls_find(polls, fd, &state->actor, notification_event);
    ls_polls_unregister(polls, fd);
    if (poll == NULL) return;
    notification *n = ls_poll_user(poll);
    n->armed = false;
    n->ready = 0;
    n->phase = NOTIFICATION_ENDED;
    ls_task_wake_all(state->ctx, &n->waiters, LS_ECLOSED);
}

static void notification_close(lua_State *L, notification *n)
{
    ls_poll *poll = n->poll;
    n->poll = NULL;
    n->phase = NOTIFICATION_REMOVED;
    if (poll != NULL && ls_state_of(L)->port != NULL) ls_poll_close(poll); /* else it was closed before */
}

static int notification_gc(lua_State *L)
{
    notification_close(L, lua_touserdata(L, 1));
    return 0;
}

/* ---- the Lua object ----------------------------------------------------------------------------------------- */

/* nil, message, code for an error of the port */
static int push_failed(lua_State *L, int err)
{
    const char *text = err == LS_EINVAL    ? "invalid descriptor"
                       : err == LS_EEXIST  ? "the descriptor is already registered, or is a socket of the server"
                       : err == LS_EBUSY   ? "the previous registration of the descriptor is still being removed"
                       : err == LS_ENOENT  ? "the descriptor was closed"
                       : err == LS_ENOTSUP ? "this kind of descriptor cannot be waited for"
                                           : ls_err_text(err);
    return ls_push_failure_text(L, err, "%s", text);
}

static notification *notification_at(lua_State *L)
{
    return ls_udata_check(L, 1, &notification_type, sizeof(notification), "notification");
}

static bool is_removed(const notification *n)
{
    return n->phase == NOTIFICATION_REMOVING || n->phase == NOTIFICATION_REMOVED;
}

static notification *notification_check(lua_State *L)
{
    notification *n = notification_at(L);
    if (is_removed(n)) luaL_error(L, "this notification was removed");
    return n;
}

static int push_events(lua_State *L, notification *n)
{
    static const struct {
        const char *name;
        uint32_t bit;
    } names[] = {{"in", LS_EVENT_IN}, {"out", LS_EVENT_OUT}, {"hangup", LS_EVENT_HANGUP}, {"err", LS_EVENT_ERR}};
    const uint32_t ready = n->ready;
    n->ready = 0;
    lua_createtable(L, 0, 2);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!(ready & names[i].bit)) continue;
        ls_set_boolean(L, names[i].name, true);
    }
    return 1;
}

static int wait_done(lua_State *L, int status, lua_KContext context)
{
    notification *n = notification_at(L);
    const int result = ls_state_of(L)->current->wake_result;
    if (is_removed(n)) return ls_push_failure(L, LS_ECANCELED);
    if (n->phase == NOTIFICATION_ENDED) return push_failed(L, LS_ENOENT);
    if (n->ready != 0) return push_events(L, n);
    return ls_push_failure(L, result < 0 ? result : LS_ETIMEDOUT);
}

/* n:wait([timeout]) -> events: table<"in"|"out"|"hangup"|"err", true> | nil, message, code
 * Waits for events. */
static int notification_wait(lua_State *L)
{
    notification *n = notification_check(L);
    const double timeout = lua_isnoneornil(L, 2) ? -1 : ls_check_seconds(L, 2);
    ls_state *state = ls_state_of(L);
    lua_settop(L, 1);
    if (n->phase == NOTIFICATION_ENDED) return push_failed(L, LS_ENOENT);
    if (!ls_list_empty(&n->waiters)) return luaL_error(L, "another task already waits for this notification");
    ls_task_may_wait(L);
    if (n->trigger == (LS_TRIGGER_LEVEL | LS_TRIGGER_PERSISTENT) && !n->armed) {
        n->ready = 0; /* the condition may have ended: ENABLE checks it again */
        const int err = ls_poll_arm(n->poll, (uint16_t)n->filter);
        if (err < 0) return push_failed(L, err);
        n->armed = true;
    }
    if (n->ready != 0) return push_events(L, n);
    if (!n->armed)
        return ls_push_failure_text(L, LS_EINVAL, "this one-shot notification has fired; call n:rearm(events) first");
    if (timeout >= 0) ls_task_alarm(L, state->current, timeout);
    ls_list_push(&n->waiters, &state->current->wait_node);
    return ls_task_yield(L, LS_WAIT_WRITE, 0, wait_done);
}

/* n:rearm([events: string|string[]]) -> true | nil, message, code
 * Changes the events, and arms a one-shot registration again. */
static int notification_rearm(lua_State *L)
{
    notification *n = notification_check(L);
    const uint32_t before = n->filter;
    if (!lua_isnoneornil(L, 2)) {
        ls_push_function(L, "luaserve.notify", "filter_of");
        lua_pushliteral(L, "n:rearm");
        lua_pushvalue(L, 2);
        lua_call(L, 2, 1);
        n->filter = (uint32_t)lua_tointeger(L, -1) & FILTER;
    }
    if (n->phase == NOTIFICATION_ENDED) return push_failed(L, LS_ENOENT);
    const int err = ls_poll_arm(n->poll, (uint16_t)n->filter);
    if (err < 0) {
        n->filter = before;
        return push_failed(L, err);
    }
    n->armed = true;
    n->ready = 0;
    return ls_push_boolean(L, true);
}

static int remove_done(lua_State *L, int status, lua_KContext context)
{
    notification_close(L, notification_at(L));
    return ls_push_boolean(L, true);
}

/* n:remove() -> true
 * Ends the registration. Waits for its last packet. */
static int notification_remove(lua_State *L)
{
    notification *n = notification_check(L);
    ls_state *state = ls_state_of(L);
    lua_settop(L, 1);
    ls_task_may_wait(L);
    if (n->phase == NOTIFICATION_LIVE) {
        n->phase = NOTIFICATION_REMOVING;
        ls_task_wake_all(state->ctx, &n->waiters, LS_OK);
        if (ls_poll_remove(n->poll) == LS_OK) {
            ls_list_push(&n->remove_waiters, &state->current->wait_node);
            return ls_task_yield(L, LS_WAIT_WRITE, 0, remove_done);
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
static int core_notify(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    const ls_fd fd = check_fd(L, 1);
    const lua_Integer filter = luaL_checkinteger(L, 2);
    if (state->port == NULL)
        return luaL_error(L,
                          "cannot be called while the site loads; call it in a handler, ls.init or ls.on(\"start\")");
    lua_settop(L, 4);
    notification *n = ls_object_push(L, sizeof *n, 1, &notification_type);
    n->filter = (uint32_t)filter & FILTER;
    n->trigger = (uint8_t)((lua_toboolean(L, 3) ? LS_TRIGGER_EDGE : LS_TRIGGER_LEVEL) |
                           (lua_toboolean(L, 4) ? LS_TRIGGER_ONESHOT : LS_TRIGGER_PERSISTENT));
    n->armed = true;
    ls_node_init(&n->waiters);
    ls_node_init(&n->remove_waiters);
    lua_pushvalue(L, 1); /* keeps the file or socket alive as long as its notification */
    lua_setiuservalue(L, -2, 1);
    const ls_poll_options options = {.actor = &state->actor,
                                     .fd = fd,
                                     .events = (uint16_t)n->filter,
                                     .trigger = trigger_of(n),
                                     .report = notification_event,
                                     .user = n};
    const int err = fd == LS_FD_NONE ? LS_EINVAL : ls_poll_open(ls_state_runtime(state)->polls, &options, &n->poll);
    if (err < 0) return push_failed(L, err);
    if (n->filter & LS_EVENT_IN) ls_console_raw(fd);
    return 1;
}

/* n is a Notify: a descriptor whose events are reported. */
static const luaL_Reg methods[] = {{"n:wait(timeout)", notification_wait},
                                   {"n:rearm(events)", notification_rearm},
                                   {"n:remove()", notification_remove},
                                   {NULL, NULL}};
static const luaL_Reg meta[] = {{"__gc", notification_gc}, {NULL, NULL}};
static const ls_object_type notification_type = {.name = "notification", .methods = methods, .meta = meta};

/* The polls of the resolver belong to the same actor: it has been stopped before. */
static void notify_close(ls_thread_ctx *ctx, ls_state *state)
{
    ls_polls_close_actor(ls_state_runtime(state)->polls, &state->actor);
}

static bool notify_closed(ls_state *state)
{
    return ls_polls_idle(ls_state_runtime(state)->polls, &state->actor);
}

static const luaL_Reg functions[] = {{"notify", core_notify}, {NULL, NULL}};

const ls_module ls_notify_module = {
    .name = "notify", .functions = functions, .close = notify_close, .closed = notify_closed};
