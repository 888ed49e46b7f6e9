/* publish.c - ls.publish, ls.topics, the inbox of a state; and the subscribe and unsubscribe of all objects. */
#include "script/bind/store/publish.h"

#include <string.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "base/utf8.h"
#include "script/bind/bind_aux.h"
#include "script/bind/dev_mode.h"
#include "script/bind/store/publish_internal.h"
#include "script/bind/value/buffer.h"
#include "script/bind/value/json.h"
#include "script/core/lua/udata.h"

enum { TOPIC_FUNCTIONS_MAX = 4096 };

ls_topic_inbox *ls_topic_inbox_of(const ls_state *state)
{
    return ls_topic_data_of(state)->inbox;
}

static const char own_prefix[] = "luaserve:";
static int own_name(lua_State *L)
{
    lua_getiuservalue(L, 1, 1);
    return 1;
}

static const luaL_Reg own_meta[] = {{"__tostring", own_name}, {NULL, NULL}};
static const ls_object_type own_type = {.name = "topic of luaserve", .meta = own_meta};

typedef struct own_topic {
    const void *tag;
} own_topic;

/* core.own_topic(name) -> in place of a topic, for those of luaserve itself: names that begin with "luaserve:". Sites, which
 * may let clients name topics, cannot. */
static int core_own_topic(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TSTRING);
    (void)ls_object_push(L, sizeof(own_topic), 1, &own_type);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, 1);
    return 1;
}

bool ls_topic_is_own(const char *name)
{
    return strncmp(name, own_prefix, sizeof own_prefix - 1) == 0;
}

const char *ls_topic_check(lua_State *L, int index, size_t *len)
{
    const bool own = ls_udata_test(L, index, &own_type, sizeof(own_topic)) != NULL;
    if (own) lua_getiuservalue(L, index, 1);
    if (own) lua_replace(L, index);
    if (lua_type(L, index) != LUA_TSTRING) luaL_typeerror(L, index, "topic (a string)");
    const char *name = lua_tolstring(L, index, len);
    luaL_argcheck(L, own || !ls_topic_is_own(name), index,
                  "topics that begin with 'luaserve:' are those of luaserve itself");
    luaL_argcheck(L, *len > 0, index, "the topic must not be empty");
    if (*len > LS_TOPIC_NAME_BYTES_MAX)
        luaL_argerror(L, index,
                      lua_pushfstring(L, "the topic has %I bytes; at most %d are possible", (lua_Integer)*len,
                                      (int)LS_TOPIC_NAME_BYTES_MAX));
    return name;
}

/* ---- subscribe and unsubscribe of an object ----------------------------------------------------------------- */

/* dev_state.lua sees the call, in dev mode: its name, and its arguments from index `first`. */
static void observe(lua_State *L, const char *call, int first)
{
    const int top = lua_gettop(L);
    if (ls_dev_of(ls_state_runtime(ls_state_of(L))) == NULL) return;
    ls_push_function(L, "luaserve.dev_state", call);
    for (int n = first; n <= top; n++) lua_pushvalue(L, n);
    lua_call(L, top - first + 1, 0);
}

int ls_topic_lua_subscribe(lua_State *L, ls_subscriber *subscriber, int index, uint64_t seen)
{
    const ls_state *state = ls_state_of(L);
    ls_retained *retained = NULL;
    size_t len;
    const char *name = ls_topic_check(L, index, &len);
    observe(L, "watch_topic", index);
    int err = subscriber != NULL ? ls_topic_subscribe_all(subscriber, name, len, &retained) : LS_ECLOSED;
    if (err == LS_ELIMIT)
        return ls_push_failure_text(L, err, "%d topics are subscribed, the limit of an object",
                                    (int)LS_TOPIC_SUBSCRIPTIONS_MAX);
    if (err < 0 && err != LS_EEXIST) return ls_push_failure(L, err);
    for (unsigned n = 0; retained != NULL && err == LS_OK && n < retained->count;
         n++) /* an error may have freed the subscriber */
        if (retained->at[n]->position == 0 || retained->at[n]->position > seen)
            err = subscriber->kind->deliver(state->ctx, subscriber, retained->at[n]);
    ls_retained_drop(retained);
    return ls_push_result(L, LS_OK);
}

int ls_topic_lua_unsubscribe(lua_State *L, ls_subscriber *subscriber, int index)
{
    size_t len;
    const char *name = ls_topic_check(L, index, &len);
    return ls_push_result(L, subscriber != NULL ? ls_topic_unsubscribe(subscriber, name, len) : LS_ECLOSED);
}

int ls_topic_lua_presence(lua_State *L, const char *function, const char *call)
{
    const int count = lua_gettop(L);
    ls_push_function(L, "luaserve.presence", function);
    lua_pushstring(L, call);
    for (int n = 1; n <= count; n++) lua_pushvalue(L, n);
    lua_call(L, count + 1, LUA_MULTRET);
    return lua_gettop(L) - count;
}

int ls_topic_deliver_waiting(ls_thread_ctx *ctx, ls_state *state, ls_subscriber *subscriber)
{
    state->protected_calls++; /* ls_task_wake posts */
    const int err = ls_subscriber_deliver_waiting(ctx, subscriber);
    state->protected_calls--;
    return err;
}

/* ---- publish ------------------------------------------------------------------------------------------------ */

static bool kind_is_binary(lua_State *L, int index, const char *name)
{
    const char *kind = lua_type(L, index) == LUA_TSTRING ? lua_tostring(L, index) : "";
    if (strcmp(kind, "binary") == 0) return true;
    if (strcmp(kind, "text") != 0) luaL_argerror(L, 3, lua_pushfstring(L, "%s must be \"text\" or \"binary\"", name));
    return false;
}

/* The value at the top: a field of a server-sent event, which the table of options keeps. */
static ls_slice check_field(lua_State *L, const char *name)
{
    ls_slice field = {NULL, NULL, 0};
    if (lua_type(L, -1) != LUA_TSTRING)
        luaL_argerror(L, 3, lua_pushfstring(L, "%s must be a string, got %s", name, luaL_typename(L, -1)));
    field.ptr = lua_tolstring(L, -1, &field.len);
    if (field.len == 0 || field.len > LS_TOPIC_EVENT_BYTES_MAX)
        luaL_argerror(L, 3,
                      lua_pushfstring(L, "%s has %I bytes; 1 to %d are possible", name, (lua_Integer)field.len,
                                      (int)LS_TOPIC_EVENT_BYTES_MAX));
    if (strlen(field.ptr) != field.len || strpbrk(field.ptr, "\r\n") != NULL || !ls_utf8_valid(field.ptr, field.len))
        luaL_argerror(L, 3, lua_pushfstring(L, "%s must be UTF-8 without NUL, CR and LF", name));
    return field;
}

/* The kind or the table of options at index 3. */
static void check_options(lua_State *L, ls_publish_order *order)
{
    order->text = true;
    if (lua_isnoneornil(L, 3)) return;
    if (lua_type(L, 3) != LUA_TTABLE) {
        order->text = !kind_is_binary(L, 3, "the kind");
        return;
    }
    lua_pushnil(L);
    while (lua_next(L, 3) != 0) { /* key, value */
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        if (strcmp(key, "kind") == 0) {
            order->text = !kind_is_binary(L, -1, "kind");
        } else if (strcmp(key, "retain") == 0) {
            const lua_Integer count = lua_isboolean(L, -1) ? lua_toboolean(L, -1) : lua_tointeger(L, -1);
            luaL_argcheck(L, lua_isboolean(L, -1) || (count >= 1 && count <= LS_TOPIC_RETAINED_MAX), 3,
                          "retain must be true, false or the number of messages to keep, from 1 to 1000");
            order->retain = (unsigned)count;
            order->history = !lua_isboolean(L, -1); /* which a client that may write a message does not empty */
        } else if (strcmp(key, "event") == 0) {
            order->event = check_field(L, "event");
        } else if (strcmp(key, "id") == 0 && lua_isboolean(L, -1) && lua_toboolean(L, -1)) {
            order->numbered = true;
        } else if (strcmp(key, "id") == 0) {
            order->id = check_field(L, "id");
        } else {
            luaL_argerror(L, 3,
                          lua_pushfstring(L, "unknown option '%s'; the options are kind, retain, event and id",
                                          luaL_tolstring(L, -2, NULL)));
        }
        lua_pop(L, 1);
    }
    luaL_argcheck(L, !order->numbered || order->retain > 0, 3,
                  "id = true needs retain, as in { retain = 100, id = true }: without retained messages a client that "
                  "connects again misses those in between");
}

/* A buffer of several slices becomes one. */
static ls_slice join(lua_State *L, const ls_buffer *buffer)
{
    ls_slice slice = {NULL, "", 0};
    if (buffer->count == 1) {
        slice = buffer->slices[0];
        (void)ls_block_hold(slice.block);
    } else if (buffer->count > 1) {
        char *to = ls_topic_form_room(buffer->len, &slice);
        if (to == NULL) luaL_error(L, "not enough memory");
        for (unsigned n = 0; n < buffer->count; n++) {
            memcpy(to, buffer->slices[n].ptr, buffer->slices[n].len);
            to += buffer->slices[n].len;
        }
    }
    return slice;
}

/* The data at index 2: a slice without a block is valid until Lua runs again. */
static ls_slice check_data(lua_State *L, bool text)
{
    ls_slice slice = {NULL, NULL, 0};
    const ls_buffer *buffer;
    switch (lua_type(L, 2)) {
    case LUA_TTABLE:
        luaL_argcheck(L, text, 3, "a table is encoded as JSON text: it has no kind \"binary\"");
        if (ls_json_encode_in(L, 2, "ls.publish", &slice)) return slice;
        break; /* the text is at index 2 */
    case LUA_TSTRING:
    case LUA_TNUMBER: break;
    default:
        buffer = ls_buffer_test(L, 2);
        if (buffer == NULL) luaL_typeerror(L, 2, "string, number, table or buffer");
        return join(L, buffer);
    }
    slice.ptr = ls_number_tolstring(L, 2, &slice.len);
    return slice;
}

/* core.publish_here(topic, data, options) -> subscribers | nil, message, code: ls.publish in this server only. */
static int core_publish_here(lua_State *L)
{
    const ls_state *state = ls_state_of(L);
    ls_publish_order order = {.retain = 0};
    order.topic = ls_topic_check(L, 1, &order.topic_len);
    check_options(L, &order);
    ls_check_arguments(L, 3, "ls.publish(topic, data, options)");
    if (state->loading)
        return luaL_error(L, "ls.publish: cannot be called while the site loads, because each Lua state loads the "
                             "site; call it in ls.init or ls.on(\"start\")");
    order.data = check_data(L, order.text);
    if (order.text && !ls_utf8_valid(order.data.ptr, order.data.len)) {
        ls_slice_drop(&order.data);
        return luaL_argerror(L, 2, "the data is not valid UTF-8; publish it with the kind \"binary\"");
    }
    if (state->port == NULL) { /* a finalizer, while the state closes */
        ls_slice_drop(&order.data);
        return ls_push_failure(L, LS_ECLOSED);
    }
    order.own = ls_topic_inbox_of(state);
    ls_topics *topics = ls_topics_of(ls_state_runtime(state));
    const int64_t count = ls_topics_publish(topics, &order);
    const uint32_t unkept = order.retain > 0 ? ls_topics_unkept(topics, ls_clock_coarse_ms()) : 0;
    if (unkept > 0)
        ls_log(LS_LOG_WARN,
               "the retained messages of all topics have reached their limit (%d MiB): messages that were delivered, "
               "but not "
               "kept, or in place of more older ones of their topic: %u, the last one of %.*s; remove those that are "
               "over, as "
               "in ls.publish(topic, \"\", { retain = true })",
               LS_TOPIC_RETAINED_BYTES_MAX / 1048576, unkept, (int)order.topic_len, order.topic);
    if (count == LS_ELIMIT)
        return ls_push_failure_text(L, LS_ELIMIT,
                                    "the messages on their way to the caller's Lua state have reached their limit");
    if (count < 0) return ls_push_failure(L, (int)count);
    return ls_push_integer(L, (lua_Integer)count);
}

/* ls.publish(topic, data: string|number|table|Buffer [, options: "text"|"binary"|PublishOptions]) -> subscribers:
 * integer | nil, message, code
 * Sends a message to all subscribers of a topic, in all Lua states. A table is encoded as JSON. The options are a
 * table, or the kind.
 * options is a PublishOptions: options of ls.publish.
 * options.kind: "text"|"binary" - "text", the default, must be valid UTF-8
 * options.retain: boolean|integer - keep the message for later subscribers; a number: so many messages, at most 1000
 * options.event: string - name of the server-sent event
 * options.id: string|true - id of the server-sent event; true: a number above those of all earlier messages */
static int core_publish(lua_State *L)
{
    if (lua_type(L, 1) == LUA_TSTRING) observe(L, "watch_publish", 1);
    const int through = ls_topic_data_of(ls_state_of(L))->through_ref;
    if (through == 0) return core_publish_here(L);
    lua_rawgeti(L, LUA_REGISTRYINDEX, through);
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

/* core.publish_through(fn): from now on ls.publish of this state calls fn(topic, data, options). */
static int core_publish_through(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_settop(L, 1);
    ls_topic_data_of(ls_state_of(L))->through_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    return 0;
}

/* ls.topics([prefix: string]) -> topics: table<string, integer>
 * The topics and their numbers of subscribers; with a prefix, those that begin with it. */
static int core_topics(lua_State *L)
{
    ls_topics *topics = ls_topics_of(ls_state_runtime(ls_state_of(L)));
    size_t prefix_len;
    const char *prefix = luaL_optlstring(L, 1, "", &prefix_len);
    ls_check_arguments(L, 1, "ls.topics(prefix)");
    lua_settop(L, 1);
    lua_newtable(L);
    for (unsigned part = 0; part < LS_TOPIC_SHARDS; part++) {
        size_t room = 0, needed;
        char none[1], *list = none;
        while ((needed = ls_topics_list(topics, part, prefix, prefix_len, list, room)) > room) {
            room = needed + needed / 4;
            lua_settop(L, 2);
            list = lua_newuserdatauv(L, room, 0);
        }
        const char *at = list;
        for (ls_topic_info info; ls_topics_next(&at, list + needed, &info);) {
            lua_pushlstring(L, info.name, info.len);
            lua_pushinteger(L, (lua_Integer)info.subscribers);
            lua_rawset(L, 2);
        }
        lua_settop(L, 2);
    }
    return 1;
}

/* ---- the module --------------------------------------------------------------------------------------------- */

static void batch_ended(ls_thread_ctx *ctx, void *user)
{
    ls_state *state = user;
    ls_topic_data *data = ls_topic_data_of(state);
    ls_state_flush(ctx, state, false);
    if (!data->retiring || !ls_topic_inbox_idle(data->inbox)) return;
    data->retiring = false;
    ls_topic_functions_retire(state);
}

static void topic_define(lua_State *L, ls_state *state)
{
    ls_topic_data *data = ls_topic_data_of(state);
    ls_node_init(&data->functions);
    ls_node_init(&data->ready);
    ls_topic_functions_define(data);
    if (ls_topic_inbox_open(ls_topics_of(ls_state_runtime(state)), &state->actor, batch_ended, state, &data->inbox) <
        0)
        luaL_error(L, "not enough memory");
}

/* The functions get the messages that were published before the next generation started, and no later ones. */
static void topic_end(ls_thread_ctx *ctx, ls_state *state, enum ls_end_why why)
{
    if (why != LS_END_REPLACED && why != LS_END_STOP) return;
    ls_topic_data *data = ls_topic_data_of(state);
    data->retiring = !ls_topic_inbox_idle(data->inbox);
    if (!data->retiring) ls_topic_functions_retire(state);
}

static void topic_close(ls_thread_ctx *ctx, ls_state *state)
{
    ls_topic_functions_end(state);
    ls_topic_inbox_close(ls_topic_data_of(state)->inbox);
}

static bool topic_closed(ls_state *state)
{
    return ls_topic_inbox_closed(ls_topic_data_of(state)->inbox);
}

static bool topic_unused(ls_state *state)
{
    ls_topic_data *data = ls_topic_data_of(state);
    return ls_list_empty(&data->functions) && ls_topic_inbox_idle(data->inbox) && !ls_topic_inbox_posted(data->inbox);
}

static void topic_abandon(ls_state *state)
{
    ls_topic_functions_abandon(state);
    ls_topic_inbox_close(ls_topic_data_of(state)->inbox);
}

static void topic_free(ls_state *state)
{
    ls_topic_inbox *inbox = ls_topic_data_of(state)->inbox;
    if (inbox == NULL) return;
    ls_topic_inbox_close(inbox);
    ls_topic_inbox_free(inbox);
}

/* ---- once per server -------------------------------------------------------------------------------------------- */

static int common_open(void *own)
{
    return ls_topics_open(own);
}

static void common_close(void *own)
{
    ls_topics_close(*(ls_topics **)own);
}

static void stats(ls_runtime *runtime, ls_site_stat_fn *each, void *to)
{
    ls_topics_stats topics;
    ls_topics_stat(ls_topics_of(runtime), &topics);
    each(to, "topics", (double)topics.topics);
    each(to, "topic_subscriptions", (double)topics.subscriptions);
    each(to, "topic_published", (double)topics.published);
    each(to, "topic_delivered", (double)topics.delivered);
    each(to, "topic_dropped", (double)topics.dropped);
    each(to, "topic_closed", (double)topics.closed);
    each(to, "topic_retained_bytes", (double)topics.retained_bytes);
}

static const ls_module_common common = {
    .bytes = sizeof(ls_topics *), .open = common_open, .close = common_close, .stats = stats};

static const luaL_Reg functions[] = {{"publish", core_publish},
                                     {"publish_here", core_publish_here},
                                     {"publish_through", core_publish_through},
                                     {"subscribe", ls_core_subscribe},
                                     {"subscribers_start", ls_core_subscribers_start},
                                     {"topics", core_topics},
                                     {"own_topic", core_own_topic},
                                     {NULL, NULL}};

const ls_module ls_topic_module = {.name = "topic",
                                   .bytes = sizeof(ls_topic_data),
                                   .functions = functions,
                                   .defines = "functions of ls.subscribe at the top of the file (each handles each "
                                              "message once for the server)",
                                   .definitions_max = TOPIC_FUNCTIONS_MAX,
                                   .define = topic_define,
                                   .start = ls_topic_functions_start,
                                   .end = topic_end,
                                   .close = topic_close,
                                   .closed = topic_closed,
                                   .unused = topic_unused,
                                   .abandon = topic_abandon,
                                   .free = topic_free,
                                   .common = &common};
