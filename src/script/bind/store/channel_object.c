/* channel_object.c - ls.channel: the object over script/store/channel.h, and tasks that wait for room or for a value.
 *
 * No value is lost: one that was handed to a task which does not take it, because its state closes or has no memory
 * for it, goes back to the head of the queue. */
#include <string.h>

#include "base/shared.h"
#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/bind/value/buffer.h"
#include "script/core/lua/udata.h"
#include "script/core/state.h"
#include "script/core/wait.h"
#include "script/store/channel.h"

static const ls_object_type channel_type;

typedef struct channel_handle {
    const void *tag;
    ls_channel *channel; /* of the server; outlives the state */
} channel_handle;

static channel_handle *channel_check(lua_State *L)
{
    return ls_udata_check(L, 1, &channel_type, sizeof(channel_handle), "channel");
}

/* ---- what remains of a wait ------------------------------------------------------------------------------ */

static void send_give_back(void *channel, ls_waiter *waiter)
{
    if (waiter->message != NULL) ls_message_drop(waiter->message); /* else the channel has taken it */
    waiter->message = NULL;
}

static void receive_give_back(void *channel, ls_waiter *waiter)
{
    if (waiter->message != NULL) ls_channel_put_back(channel, waiter->message);
    waiter->message = NULL;
}

static const ls_wait_kind send_kind = {ls_channel_cancel, send_give_back, LS_WAIT_WRITE, "room in the channel"};
static const ls_wait_kind receive_kind = {ls_channel_cancel, receive_give_back, LS_WAIT_MESSAGE, "the channel"},
                          collect_kind = {ls_channel_cancel, receive_give_back, LS_WAIT_RESULT, "the channel"};

/* ---- send --------------------------------------------------------------------------------------------------- */

static ls_message *pack_message(lua_State *L, int index)
{
    const ls_value_options options = {.slices = ls_buffer_slices};
    char why[LS_VALUE_MESSAGE_BYTES];
    ls_value *value;
    luaL_argexpected(L, !lua_isnoneornil(L, index), index, "value that is not nil");
    if (ls_value_pack(L, index, &options, &value, why, sizeof why) < 0) luaL_error(L, "channel:send: %s", why);
    ls_message *message = ls_message_get(value);
    if (message == NULL) luaL_error(L, "not enough memory");
    return message;
}

/* The results of send. A message that the channel has not taken is dropped. */
static int send_result(lua_State *L, int result, ls_message *left, const char *full)
{
    if (left != NULL) ls_message_drop(left);
    return full != NULL ? ls_push_failure_text(L, result, "%s", full) : ls_push_result(L, result);
}

static int send_decided(lua_State *L, int status, lua_KContext context)
{
    ls_message *left;
    const int result = ls_wait_end(L, (ls_wait *)context, &left); /* NOLINT(performance-no-int-to-ptr) */
    return send_result(L, result, left, NULL);
}

/* channel:send(value [, timeout]) -> true | nil, message, code
 * Adds a copy of a value. Waits while the channel is full: ETIMEDOUT after the timeout, ECLOSED when the channel is
 * closed. A timeout of 0: ELIMIT if the channel is full. Raises for a value that cannot be copied. */
static int channel_send(lua_State *L)
{
    ls_channel *channel = channel_check(L)->channel;
    const double timeout = lua_isnoneornil(L, 3) ? -1 : ls_check_seconds(L, 3);
    ls_message *message = pack_message(L, 2);
    int result = ls_channel_send(channel, message, NULL);
    if (result == LS_OK) return send_result(L, LS_OK, NULL, NULL);
    if (result == LS_EAGAIN && timeout == 0) return send_result(L, LS_ELIMIT, message, "full");
    if (result != LS_EAGAIN) return send_result(L, result, message, NULL);
    ls_wait *wait = ls_task_can_wait(L) ? ls_wait_get(L, &send_kind, channel) : NULL;
    if (wait == NULL) {
        ls_message_drop(message);
        ls_task_may_wait(L);
        return luaL_error(L, "not enough memory");
    }
    result = ls_channel_send(channel, message, &wait->waiter);
    if (result == LS_CHANNEL_WAITS) return ls_wait_suspend(L, wait, timeout, false, send_decided);
    ls_wait_drop(wait);
    return send_result(L, result, result == LS_OK ? NULL : message, NULL);
}

/* ---- receive ------------------------------------------------------------------------------------------------ */

static int push_message(lua_State *L) /* (message as light userdata) */
{
    const ls_message *message = lua_touserdata(L, 1);
    ls_value_push(L, message->value);
    return 1;
}

/* The site of a task that collects values was replaced: the next ones are for the new site. */
static bool collects_no_more(const ls_task *task)
{
    return task != NULL && task->scope == LS_SCOPE_BATCH &&
           ls_state_ends(task->state, LS_SCOPE_BATCH, LS_WAIT_MESSAGE);
}

/* Push the value. If there is no memory for it, the message goes back and the error is raised. A task that ends does
 * not get the value. */
static int receive_result(lua_State *L, ls_channel *channel, int result, ls_message *message)
{
    ls_task *task = ls_state_of(L)->current;
    if (result == LS_OK && task != NULL && (task->cpu_exceeded || collects_no_more(task))) {
        ls_channel_put_back(channel, message);
        result = task->cpu_exceeded ? LS_ECANCELED : LS_ETIMEDOUT;
    }
    if (result != LS_OK) return ls_push_failure(L, result == LS_EAGAIN ? LS_ETIMEDOUT : result);
    if (ls_pcall(L, push_message, message, 1) != LUA_OK) {
        ls_channel_put_back(channel, message);
        return lua_error(L);
    }
    ls_message_drop(message);
    if (task == NULL) return 1;
    ls_task_received(task);
    task->message++;
    return 1;
}

static int receive_decided(lua_State *L, int status, lua_KContext context)
{
    ls_wait *wait = (ls_wait *)context; /* NOLINT(performance-no-int-to-ptr) */
    ls_channel *channel = wait->object;
    ls_message *message;
    const int result = ls_wait_end(L, wait, &message);
    return receive_result(L, channel, result, message);
}

/* timeout < 0: no limit */
static int receive(lua_State *L, ls_channel *channel, double timeout)
{
    ls_message *message;
    ls_task *task = ls_state_of(L)->current;
    if (task != NULL && task->client_is == LS_CLIENT_LEFT) return ls_task_left_error(L, "");
    const ls_wait_kind *kind = timeout >= 0 && task != NULL && ls_task_collects(task) ? &collect_kind : &receive_kind;
    ls_task_end_before(L, kind->wait);
    if (kind == &collect_kind && collects_no_more(task)) {
        task->wait = LS_WAIT_RESULT; /* the next call ends the task */
        return receive_result(L, channel, LS_ETIMEDOUT, NULL);
    }
    int result = ls_channel_receive(channel, NULL, &message);
    if (result != LS_EAGAIN || timeout == 0) return receive_result(L, channel, result, message);
    ls_wait *wait = ls_wait_begin(L, kind, channel);
    result = ls_channel_receive(channel, &wait->waiter, &message);
    if (result == LS_CHANNEL_WAITS) return ls_wait_suspend(L, wait, timeout, true, receive_decided);
    ls_wait_drop(wait);
    return receive_result(L, channel, result, message);
}

/* channel:receive([timeout]) -> value | nil, message, code
 * Takes the oldest value. Waits for one: ETIMEDOUT after the timeout (0: at once), ECLOSED when the channel is closed
 * and empty. */
static int channel_receive(lua_State *L)
{
    ls_channel *channel = channel_check(L)->channel;
    const double timeout = lua_isnoneornil(L, 2) ? -1 : ls_check_seconds(L, 2);
    return receive(L, channel, timeout);
}

static int values_next(lua_State *L) /* the iterator: (channel, last value) */
{
    return receive(L, channel_check(L)->channel, -1);
}

/* channel:values() -> iterator: fun(): any
 * Iterates over the values: receives until the channel is closed and empty. */
static int channel_values(lua_State *L)
{
    (void)channel_check(L);
    lua_settop(L, 1);
    lua_pushcfunction(L, values_next);
    lua_insert(L, 1);
    return 2;
}

/* ---- the rest of the object --------------------------------------------------------------------------------- */

/* channel:close()
 * No further values: those in the channel can still be received. */
static int channel_close(lua_State *L)
{
    ls_channel *channel = channel_check(L)->channel;
    ls_channel_close(channel);
    return 0;
}

/* channel:len() -> count: integer
 * The number of values in the channel. */
static int channel_len(lua_State *L)
{
    const channel_handle *handle = channel_check(L);
    return ls_push_integer(L, (lua_Integer)ls_channel_len(handle->channel));
}

static int channel_meta_len(lua_State *L) /* #channel; Lua passes the channel twice */
{
    return ls_push_integer(L, (lua_Integer)ls_channel_len(channel_check(L)->channel));
}

/* channel is a Channel: a queue of values between tasks of all Lua states.
 * channel.name: string - its name
 * channel.capacity: integer - number of values that it holds
 * channel.closed: boolean - whether it was closed
 * #channel: integer */
static int channel_index(lua_State *L)
{
    const channel_handle *handle = channel_check(L);
    if (ls_push_method(L, "a channel")) return 1;
    const char *field = lua_tostring(L, 2);
    if (strcmp(field, "capacity") == 0)
        lua_pushinteger(L, (lua_Integer)ls_channel_capacity(handle->channel));
    else if (strcmp(field, "closed") == 0)
        lua_pushboolean(L, ls_channel_is_closed(handle->channel));
    else /* name */
        lua_pushstring(L, ls_channel_name(handle->channel));
    return 1;
}

static int channel_tostring(lua_State *L)
{
    const channel_handle *handle = channel_check(L);
    lua_pushfstring(L, "channel '%s'%s", ls_channel_name(handle->channel),
                    ls_channel_is_closed(handle->channel) ? " (closed)" : "");
    return 1;
}

static const luaL_Reg methods[] = {{"channel:send(value, timeout)", channel_send},
                                   {"channel:receive(timeout)", channel_receive},
                                   {"channel:values()", channel_values},
                                   {"channel:close()", channel_close},
                                   {"channel:len()", channel_len},
                                   {NULL, NULL}};
static const char *const fields[] = {"capacity", "closed", "name", NULL};
static const luaL_Reg meta[] = {{"__tostring", channel_tostring}, {"__len", channel_meta_len}, {NULL, NULL}};
static const ls_object_type channel_type = {
    .name = "channel", .methods = methods, .meta = meta, .fields = fields, .index = channel_index};

/* core.channel(name, capacity | nil, where) -> channel | nil, where it was defined with another capacity. `where`: the
 * line of the call. */
static int core_channel(lua_State *L)
{
    char before[LS_SHARED_WHERE_BYTES];
    ls_shared_object *object;
    const char *name = luaL_checkstring(L, 1);
    const size_t capacity = (size_t)luaL_optinteger(L, 2, 0);
    const char *where = luaL_checkstring(L, 3);
    channel_handle *handle = ls_object_push(L, sizeof *handle, 0, &channel_type);
    const int err = ls_shared_get(ls_state_runtime(ls_state_of(L))->shared, &ls_channel_kind, name, where,
                                  capacity > 0 ? &capacity : NULL, &object, before);
    if (err == LS_ENOMEM) return luaL_error(L, "not enough memory");
    if (err < 0) return ls_push_nil_text(L, before);
    handle->channel = ls_channel_of(object);
    return 1;
}

static const luaL_Reg channel_functions[] = {{"channel", core_channel}, {NULL, NULL}};

const ls_module ls_channel_module = {.name = "channel", .functions = channel_functions};
