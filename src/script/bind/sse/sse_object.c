/* sse_object.c - the object `sse`: events and comments that Lua writes, subscriptions, the wait for the end. */
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/utf8.h"
#include "codec/sse_event.h"
#include "script/bind/sse/sse_response.h"
#include "script/bind/value/buffer.h"
#include "script/bind/value/json.h"
#include "script/core/lua/udata.h"
#include "script/store/copy.h"

static ls_sse *check(lua_State *L)
{
    return ls_udata_check(L, 1, &ls_sse_type, sizeof(ls_sse), "sse");
}

static int push_closed(lua_State *L)
{
    ls_request_tell_left(ls_state_of(L));
    return ls_push_failure(L, LS_ECLOSED);
}

/* ---- send ------------------------------------------------------------------------------------------------------- */

/* The queue was above the high-water mark, or the exchange has another event. */
static int sent(lua_State *L, int status, lua_KContext context)
{
    ls_sse *sse = check(L);
    ls_thread_ctx *ctx = sse->state->ctx;
    if (!ls_sse_is_open(ctx, sse)) return push_closed(L);
    ls_request *r = sse->request;
    const int result = ls_exchange_flush(ctx, r->x);
    if (result == LS_PENDING) return ls_request_wait(L, r, context, sent);
    if (!ls_sse_is_open(ctx, sse)) return push_closed(L);
    return ls_push_boolean(L, true);
}

/* Write the string at `index`. */
static int write_text(lua_State *L, ls_sse *sse, int index)
{
    ls_thread_ctx *ctx = sse->state->ctx;
    size_t len;
    const char *text = lua_tolstring(L, index, &len);
    if (!ls_sse_is_open(ctx, sse)) return push_closed(L); /* a finalizer may have closed it, too */
    ls_request *r = sse->request;
    sse->active = true;
    int result = ls_request_collect(L, r, text, len);
    if (sse->request == NULL) return push_closed(L);
    if (result >= 0 && sse->state->current != r->task) {
        const int pushed = ls_request_push_parts(ctx, r);
        if (pushed != LS_DONE) result = pushed;
    }
    if (result < 0 || !ls_sse_is_open(ctx, sse)) return push_closed(L);
    if (result == LS_PENDING && ls_task_can_wait(L)) return ls_request_wait(L, r, 0, sent);
    return ls_push_boolean(L, true);
}

static const char *check_field(lua_State *L, const char *name, size_t *len)
{
    if (lua_type(L, -1) != LUA_TSTRING && lua_type(L, -1) != LUA_TNUMBER)
        luaL_error(L, "sse:send: %s must be a string; got %s", name, luaL_typename(L, -1));
    const char *text = ls_number_tolstring(L, -1, len);
    if (!ls_sse_is_field(text, *len))
        luaL_error(L, "sse:send: %s must not contain a line break or NUL; lines belong into data", name);
    if (!ls_utf8_valid(text, *len)) luaL_error(L, "sse:send: %s is not valid UTF-8", name);
    return text;
}

/* Replace the data at `index`, an absolute index, by a string. */
static const char *check_data(lua_State *L, int index, size_t *len)
{
    ls_slice text;
    if (lua_type(L, index) == LUA_TTABLE) {
        if (ls_json_encode_in(L, index, "sse:send", &text)) {
            lua_pushlstring(L, text.ptr, text.len);
            lua_replace(L, index);
        }
    } else if (lua_type(L, index) != LUA_TSTRING && lua_type(L, index) != LUA_TNUMBER) {
        const ls_buffer *buffer = ls_buffer_test(L, index);
        if (buffer == NULL) {
            luaL_error(L, "sse:send: data must be a string, number, buffer or table; got %s", luaL_typename(L, index));
            return NULL; /* not reached */
        }
        ls_slices_push_string(L, buffer->slices, buffer->count, buffer->len);
        lua_replace(L, index);
    }
    const char *data = ls_number_tolstring(L, index, len);
    if (!ls_utf8_valid(data, *len))
        luaL_error(L, "sse:send: the data is not valid UTF-8; encode bytes, for instance in base64");
    return data;
}

static int64_t check_retry(lua_State *L)
{
    int is_number;
    const double seconds = lua_tonumberx(L, -1, &is_number);
    if (!is_number || !(seconds >= 0 && seconds * 1000 <= LS_SSE_RETRY_MS_MAX))
        luaL_error(L, "sse:send: retry must be a number of seconds from 0 to %d, such as 2 or 0.5",
                   LS_SSE_RETRY_MS_MAX / 1000);
    return (int64_t)(seconds * 1000 + 0.5);
}

enum { EVENT_FIELDS = 4 };

/* Read the event at index 2; its strings stay at the indices 3 to 6. */
static void check_event(lua_State *L, ls_sse_event *event)
{
    static const char *const names[EVENT_FIELDS + 1] = {"event", "id", "data", "retry", NULL};
    *event = (ls_sse_event){.retry_ms = -1};
    ls_copy_open(L, 2);
    for (int n = 0; n < EVENT_FIELDS; n++) {
        lua_pushstring(L, names[n]);
        if (lua_rawget(L, 2) == LUA_TNIL) continue;
        if (n == 0)
            event->name = check_field(L, "event", &event->name_len);
        else if (n == 1)
            event->id = check_field(L, "id", &event->id_len);
        else if (n == 2)
            event->data = check_data(L, lua_gettop(L), &event->data_len);
        else
            event->retry_ms = check_retry(L);
    }
    lua_pushnil(L);
    while (lua_next(L, 2) != 0) {
        int n = 0;
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        while (names[n] != NULL && strcmp(key, names[n]) != 0) n++;
        if (names[n] == NULL)
            luaL_error(L,
                       "sse:send: unknown field '%s'; the fields are event, id, data and retry; a table as data is "
                       "{ data = { ... } }",
                       luaL_tolstring(L, -2, NULL));
        lua_pop(L, 1);
    }
    if (event->name != NULL && event->data == NULL)
        luaL_error(L, "sse:send: an event without data is ignored by clients; add data = \"\"");
    if (event->id == NULL && event->data == NULL && event->retry_ms < 0)
        luaL_error(L, "sse:send: the table has none of the fields data, id and retry");
}

/* sse:send(event: Data|SseEvent) -> true | nil, message, code
 * Writes an event: the data, or a table with its fields. Waits while too much is queued.
 * event is a SseEvent: an event of sse:send.
 * event.event: string|number|nil - name of the event
 * event.id: string|number|nil - what the client sends as Last-Event-ID when it connects again
 * event.data: Data|table|nil - a table is encoded as JSON
 * event.retry: number? - seconds that the client waits before it connects again */
static int sse_send(lua_State *L)
{
    ls_sse *sse = check(L);
    ls_sse_event event = {.retry_ms = -1};
    luaL_Buffer text;
    luaL_checkany(L, 2);
    lua_settop(L, 2);
    if (lua_type(L, 2) == LUA_TTABLE)
        check_event(L, &event);
    else
        event.data = check_data(L, 2, &event.data_len);
    const size_t bytes = ls_sse_event_bytes(&event);
    (void)ls_sse_event_write(&event, luaL_buffinitsize(L, &text, bytes));
    luaL_pushresultsize(&text, bytes);
    return write_text(L, sse, lua_gettop(L));
}

/* sse:comment(text) -> true | nil, message, code
 * Writes a comment, which clients ignore. */
static int sse_comment(lua_State *L)
{
    ls_sse *sse = check(L);
    luaL_Buffer text;
    size_t len;
    const char *comment = luaL_checklstring(L, 2, &len);
    luaL_argcheck(L, ls_utf8_valid(comment, len), 2, "the comment is not valid UTF-8");
    const size_t bytes = ls_sse_comment_bytes(comment, len);
    (void)ls_sse_comment_write(comment, len, luaL_buffinitsize(L, &text, bytes));
    luaL_pushresultsize(&text, bytes);
    return write_text(L, sse, lua_gettop(L));
}

/* ---- subscriptions ---------------------------------------------------------------------------------------------- */

static ls_subscriber *subscriber_of(ls_sse *sse)
{
    return ls_sse_is_open(sse->state->ctx, sse) ? &sse->subscriber : NULL;
}

static int push_last_id(lua_State *L, const ls_sse *sse)
{
    const ls_exchange *x = sse->request->x;
    const ls_http_field *field = ls_http_head_find(&x->head, x->bytes, "last-event-id", 13);
    if (field == NULL) return 0;
    return ls_push_bytes(L, x->bytes + field->value.at, field->value.len);
}

/* sse:subscribe(topic) -> true | nil, message, code
 * Each message of the topic becomes an event. */
static int sse_subscribe(lua_State *L)
{
    ls_sse *sse = check(L);
    ls_subscriber *subscriber = subscriber_of(sse);
    lua_settop(L, 2);
    const lua_Integer seen = subscriber != NULL && push_last_id(L, sse) > 0 ? lua_tointeger(L, 3) : 0;
    lua_settop(L, 2);
    return ls_topic_lua_subscribe(L, subscriber, 2, seen > 0 ? (uint64_t)seen : 0);
}

/* sse:unsubscribe(topic) -> true | nil, message, code
 * No message of the topic that is published later is sent. */
static int sse_unsubscribe(lua_State *L)
{
    ls_sse *sse = check(L);
    return ls_topic_lua_unsubscribe(L, subscriber_of(sse), 2);
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

enum { DEADLINE = 3 }; /* stack index: the end of sse:wait in ns, or nil */

/* A loop that continues after the end must not spin: while sse:wait() do ... end. */
static int push_ended(lua_State *L, ls_sse *sse)
{
    ls_request_tell_left(ls_state_of(L));
    if (sse->told) {
        ls_task_check_late(L, &sse->late, "sse:wait", "while sse:send(data) do sse:wait(1) end");
        return ls_push_failure(L, LS_ECLOSED);
    }
    sse->told = true;
    return ls_push_boolean(L, true);
}

static int wait_on(lua_State *L, ls_sse *sse, lua_KContext context, lua_KFunction k)
{
    ls_sse_send_parts(sse);
    if (!lua_isnil(L, DEADLINE)) {
        const uint64_t until_ns = (uint64_t)lua_tointeger(L, DEADLINE), now_ns = ls_clock_ns();
        ls_task_alarm(L, sse->state->current, until_ns > now_ns ? (double)(until_ns - now_ns) / 1e9 : 0);
    }
    return ls_request_wait(L, sse->request, context, k);
}

static int waited(lua_State *L, int status, lua_KContext context)
{
    ls_sse *sse = check(L);
    if (!ls_sse_is_open(sse->state->ctx, sse)) return push_ended(L, sse);
    if (sse->state->current->wake_result == LS_ETIMEDOUT) return ls_push_failure(L, LS_ETIMEDOUT);
    return wait_on(L, sse, context, waited);
}

/* sse:wait([seconds]) -> true | nil, message, code
 * Waits until the stream has ended; ETIMEDOUT after the seconds, ECLOSED if a call before has returned true. */
static int sse_wait(lua_State *L)
{
    ls_sse *sse = check(L);
    lua_settop(L, 2);
    const double seconds = lua_isnil(L, 2) ? 0 : ls_check_seconds(L, 2);
    if (ls_sse_is_open(sse->state->ctx, sse) && ls_is_injected(sse->request->x))
        ls_sse_finish(sse->state->ctx, sse); /* app:inject wants what was sent so far: its client goes */
    if (!ls_sse_is_open(sse->state->ctx, sse)) return push_ended(L, sse);
    ls_task_may_wait(L);
    if (lua_isnil(L, 2))
        lua_pushnil(L);
    else
        lua_pushinteger(L, (lua_Integer)ls_task_deadline(seconds));
    return wait_on(L, sse, 0, waited);
}

/* sse:close() -> true
 * Completes the response. The events that were sent before leave first. */
static int sse_close(lua_State *L)
{
    ls_sse *sse = check(L);
    if (sse->state->port != NULL && ls_sse_is_open(sse->state->ctx, sse)) ls_sse_finish(sse->state->ctx, sse);
    return ls_push_boolean(L, true);
}

/* ---- the object ------------------------------------------------------------------------------------------------- */

/* sse is a Sse: a stream of server-sent events.
 * sse.closed: boolean - whether the stream has ended
 * sse.queued: integer - bytes that the system has not accepted yet
 * sse.last_id: string? - the Last-Event-ID of the request */
static int sse_index(lua_State *L)
{
    if (ls_push_method(L, "an sse")) return 1;
    ls_sse *sse = check(L);
    const char *name = lua_tostring(L, 2);
    const bool open = ls_sse_is_open(sse->state->ctx, sse);
    if (strcmp(name, "closed") == 0)
        lua_pushboolean(L, !open);
    else if (strcmp(name, "queued") == 0)
        lua_pushinteger(L, open ? (lua_Integer)ls_sse_queued(sse) : 0);
    else
        return open ? push_last_id(L, sse) : 0;
    return 1;
}

static int sse_tostring(lua_State *L)
{
    return ls_push_text(L, check(L)->request != NULL ? "sse" : "sse (closed)");
}

static const luaL_Reg methods[] = {{"sse:send(event)", sse_send},
                                   {"sse:comment(text)", sse_comment},
                                   {"sse:subscribe(topic)", sse_subscribe},
                                   {"sse:unsubscribe(topic)", sse_unsubscribe},
                                   {"sse:wait(seconds)", sse_wait},
                                   {"sse:close()", sse_close},
                                   {NULL, NULL}};
static const char *const fields[] = {"closed", "queued", "last_id", NULL};
static const luaL_Reg meta[] = {{"__close", sse_close}, {"__tostring", sse_tostring}, {NULL, NULL}};
const ls_object_type ls_sse_type = {
    .name = "sse", .methods = methods, .meta = meta, .fields = fields, .index = sse_index};
