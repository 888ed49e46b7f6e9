/* ws_accept.c - the route of app:ws: its configuration, and the handshake inside an ordinary request.
 *
 * The handshake runs as the handler of a GET request, inside its middleware. It upgrades the connection at once; the
 * 101 leaves when the task of the request waits or has ended. Then `req` gets a copy of the request without a
 * connection if the first function takes it, the exchange is released, and ls_ws_serve starts that function. An error
 * of middleware after the upgrade is logged, and the WebSocket continues: its response was complete. */
#include <stdlib.h>
#include <string.h>

#include "base/crypto/digest.h"
#include "base/err.h"
#include "base/io/log.h"
#include "codec/http_text.h"
#include "http/exchange_run.h"
#include "script/bind/http/http_task.h"
#include "script/bind/http/req.h"
#include "script/bind/ws/ws.h"

static const ls_object_type route_type;

/* ---- the route ------------------------------------------------------------------------------------------------ */

enum { ROUTE_TABLE = 1, ROUTE_SLOTS }; /* user values: the table of options, which keeps its strings alive */

unsigned ls_ws_read_names(lua_State *L, int table, const char **out)
{
    const unsigned count = (unsigned)lua_rawlen(L, table);
    for (unsigned n = 0; n < count; n++) {
        lua_rawgeti(L, table, n + 1);
        out[n] = luaL_checkstring(L, -1);
        lua_pop(L, 1);
    }
    return count;
}

/* The number of entries of the field `name`, which is left on the stack; 0 for nil. */
static unsigned push_names(lua_State *L, const char *name)
{
    return lua_getfield(L, 1, name) == LUA_TTABLE ? (unsigned)lua_rawlen(L, -1) : 0;
}

#define LIMIT(field) LS_OPTION(ls_ws_config, field)
const ls_option ls_ws_limits[] = {LIMIT(message_bytes_max), LIMIT(queue_bytes_max),   LIMIT(write_bytes_high),
                                  LIMIT(ping_ms),           LIMIT(pong_ms),           LIMIT(message_ms_max),
                                  LIMIT(close_ms_max),      LIMIT(send_stall_ms_max), LS_OPTIONS_END};
#define DEFLATE(name, field) LS_OPTION_AS("compress_" #name, ls_ws_deflate_options, field)
const ls_option ls_ws_deflate_limits[] = {DEFLATE(takeover, takeover), DEFLATE(bytes_min, bytes_min),
                                          DEFLATE(bits, server_bits), DEFLATE(bits, client_bits), LS_OPTIONS_END};
#define OPTION(field) LS_OPTION(ls_ws_route, field)
static const ls_option route_options[] = {OPTION(compress), OPTION(skip), OPTION(name),
                                          LS_OPTION_AS("any_origin", ls_ws_route, policy.any_origin), LS_OPTIONS_END};

static int function_of(lua_State *L, const char *name)
{
    const int type = lua_getfield(L, 1, name);
    lua_pop(L, 1);
    return type == LUA_TNIL ? LUA_NOREF : ls_option_function(L, 1, name);
}

/* Whether a call of the function with two arguments passes the second one to it. */
static bool takes_two(lua_State *L, int ref)
{
    lua_Debug ar;
    if (ref == LUA_NOREF) return false;
    lua_rawgeti(L, LUA_REGISTRYINDEX, ref);
    (void)lua_getinfo(L, ">u", &ar);
    return ar.nparams >= 2 || ar.isvararg;
}

static int ws_accept(lua_State *L);

/* core.ws{ name=, serve=fn | open=fn, message=fn, close=fn, protocols={...}, origins={...}, any_origin=, skip=,
 * compress=, compress_takeover=, compress_bytes_min=, compress_bits=, limits of ls_ws_config } -> the handler of the
 * route */
int ls_core_ws(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    const int err = ls_digest_start(); /* for the handshakes */
    if (err < 0) return luaL_error(L, "%s", ls_err_text(err));
    const unsigned protocols = push_names(L, "protocols"), origins = push_names(L, "origins"); /* at 2 and 3 */
    const size_t bytes = sizeof(ls_ws_route) + (protocols + origins) * sizeof(char *);
    ls_ws_route *route = ls_object_push(L, bytes, ROUTE_SLOTS - 1, &route_type);
    const char **names = (const char **)(void *)(route + 1);
    route->serve_ref = route->open_ref = route->message_ref = route->close_ref = LUA_NOREF;
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, ROUTE_TABLE);
    if (protocols > 0) route->policy.protocols = (ls_ws_names){names, ls_ws_read_names(L, 2, names)};
    names += protocols;
    if (origins > 0) route->policy.origins = (ls_ws_names){names, ls_ws_read_names(L, 3, names)};
    ls_options_read(L, 1, route_options, route);
    ls_options_read(L, 1, ls_ws_limits, &route->config);
    ls_options_read(L, 1, ls_ws_deflate_limits, &route->deflate);
    route->serve_ref = function_of(L, "serve");
    route->open_ref = function_of(L, "open");
    route->message_ref = function_of(L, "message");
    route->close_ref = function_of(L, "close");
    route->takes_request = takes_two(L, route->serve_ref) || takes_two(L, route->open_ref);
    lua_pushcclosure(L, ws_accept, 1);
    return 1;
}

/* core.ws_origin(value) -> whether the value is a string with a valid origin */
int ls_core_ws_origin(lua_State *L)
{
    size_t len;
    const char *text = lua_type(L, 1) == LUA_TSTRING ? lua_tolstring(L, 1, &len) : NULL;
    return ls_push_boolean(L, text != NULL && ls_ws_origin_valid(text, len));
}

static int route_gc(lua_State *L)
{
    const ls_ws_route *route = lua_touserdata(L, 1);
    const int refs[] = {route->serve_ref, route->open_ref, route->message_ref, route->close_ref};
    for (int n = 0; n < 4; n++) luaL_unref(L, LUA_REGISTRYINDEX, refs[n]);
    return 0;
}

static const ls_object_type route_type = {.name = "route", .drop = route_gc};

/* ---- the handshake ---------------------------------------------------------------------------------------------- */

/* Between the upgrade and the end of the request: the owner of the request's task. */
typedef struct handover {
    ls_ws_object *object;
    ls_exchange *x;
    ls_exchange *kept;       /* NULL: no function takes the request */
    ls_task_ended_fn *ended; /* of the request */
} handover;

/* The state closes: no handler runs. */
static void request_canceled(ls_thread_ctx *ctx, ls_task *task, int status, int count)
{
    const handover h = *(handover *)task->owner;
    free(task->owner);
    task->owner = h.x;
    h.ended(ctx, task, status, count);
    if (h.kept != NULL) ls_exchange_release(ctx, h.kept);
    ls_ws_object_close(ctx, h.object, LS_WS_INTERNAL, NULL, 0);
    h.object->canceled = true;
    ls_ws_serve(ctx, h.object, NULL);
}

/* The request is over, its task released: the WebSocket begins. */
static void hand_over(ls_thread_ctx *ctx, ls_request *r, void *owner)
{
    const handover h = *(handover *)owner;
    free(owner);
    if (h.kept != NULL) {
        r->x = h.kept;
        r->task = NULL;
        h.kept->task = r;
        ls_request_release_res(r);
    } else {
        ls_request_release(ctx, r);
    }
    h.x->task = NULL;
    ls_exchange_release(ctx, h.x);
    ls_ws_serve(ctx, h.object, h.kept != NULL ? r : NULL);
}

/* The task that runs the "log" hooks after an error has ended. */
static void logged(ls_thread_ctx *ctx, ls_task *task, int status, int count)
{
    ls_request *r = task->client;
    void *const owner = task->owner;
    ls_task_release(ctx, task, status == LUA_OK);
    hand_over(ctx, r, owner);
}

/* The task of the request has ended. */
static void request_ended(ls_thread_ctx *ctx, ls_task *task, int status, int count)
{
    ls_request *r = task->client;
    void *const owner = task->owner;
    if (task->ending != LS_END_NONE) {
        request_canceled(ctx, task, status, count);
        return;
    }
    if (status == LUA_OK) {
        ls_task_release(ctx, task, true);
    } else if ((task = ls_http_task_failed(ctx, task, ((handover *)owner)->x)) != NULL) {
        task->owner = owner;
        task->ended = logged;
        ls_task_run(ctx, task, 1);
        return;
    }
    hand_over(ctx, r, owner);
}

static const char *field_text(lua_State *L, const ls_exchange *x, const char *name)
{
    const ls_http_field *field = ls_http_head_find(&x->head, x->bytes, name, strlen(name));
    if (field == NULL) return lua_pushliteral(L, "");
    return lua_pushlstring(L, x->bytes + field->value.at, field->value.len);
}

/* The results of a route that refuses: the status and a line of text, which is also logged, because browsers do not
 * show it. */
static int refuse(lua_State *L, ls_request *r, int status, const char *why)
{
    char name[LS_REQUEST_NAME_BYTES];
    const ls_exchange *x = r->x;
    if (status == 403) {
        (void)lua_getfield(L, 1, "authority");
        lua_pushfstring(L, "%s: the Origin is %s, the host of the request is %s\n", why, field_text(L, x, "Origin"),
                        luaL_tolstring(L, -2, NULL));
    } else {
        lua_pushfstring(L, "%s\n", why);
    }
    lua_pushinteger(L, status);
    lua_insert(L, -2); /* below: what the text refers to */
    ls_request_log_name(x, name);
    ls_log(LS_LOG_INFO, "%s: no WebSocket: %.*s", name, (int)lua_rawlen(L, -1) - 1, lua_tostring(L, -1));
    return 2;
}

/* Negotiate compression, and add the field of the response. The first offer that is acceptable counts. */
static int negotiate(lua_State *L, ls_request *r, const ls_ws_route *route, ls_ws_deflate *out)
{
    static const char name[] = "sec-websocket-extensions";
    ls_exchange *x = r->x;
    char text[LS_WS_DEFLATE_TEXT_MAX];
    size_t len;
    int err = LS_ENOENT;
    *out = (ls_ws_deflate){0};
    if (!route->compress) return LS_OK;
    for (uint32_t n = 0; n < x->head.field_count && err == LS_ENOENT; n++) {
        const ls_http_field *field = &x->head.fields[n];
        if (!ls_text_same(x->bytes + field->name.at, field->name.len, name, sizeof name - 1)) continue;
        err = ls_ws_deflate_negotiate(ls_ws_deflates_of(ls_state_of(L)), x->bytes + field->value.at, field->value.len,
                                      &route->deflate, out, text, &len);
    }
    if (err == LS_ENOENT) return LS_OK;
    if (err == LS_OK) err = ls_exchange_header(r->state->ctx, x, "Sec-WebSocket-Extensions", 24, text, len, true);
    if (err < 0) ls_ws_deflate_end(out);
    return err;
}

static int refuse_error(lua_State *L, ls_request *r, int err)
{
    switch (err) {
    case LS_ENOTSUP: return refuse(L, r, 501, ls_no_upgrade(r->x));
    case LS_ENOMEM: return refuse(L, r, 503, "not enough memory");
    case LS_EPROTO: return refuse(L, r, 400, "invalid Sec-WebSocket-Extensions");
    default: return refuse(L, r, 400, ls_err_text(err));
    }
}

/* Keep of the request what its first function needs: a copy, or the name. LS_OK or LS_ENOMEM. */
static int keep(const ls_request *r, ls_ws_object *o, handover *h)
{
    char name[LS_REQUEST_NAME_BYTES];
    h->kept = NULL;
    if (!ls_ws_has_first(o->route)) return LS_OK;
    if (o->route->takes_request) return (h->kept = ls_exchange_keep(r->x)) != NULL ? LS_OK : LS_ENOMEM;
    ls_request_log_name(r->x, name);
    const size_t bytes = strlen(name) + 1;
    if ((o->name = malloc(bytes)) == NULL) return LS_ENOMEM;
    memcpy(o->name, name, bytes);
    return LS_OK;
}

static const ls_response_kind websocket = {
    .sent =
        "the response 101 was sent, and the connection is a WebSocket: set header fields before next(), and send data "
        "with ws:send"};

/* Upgrade the connection. Neither raises nor allocates in Lua. */
static int upgrade(ls_request *r, ls_ws_object *o, handover *h, ls_ws_deflate *deflate)
{
    ls_thread_ctx *ctx = r->state->ctx;
    ls_upgraded up;
    int err = keep(r, o, h);
    if (err < 0) return err;
    err = ls_exchange_upgrade(ctx, r->x, "websocket", 9, &ls_ws_stream_handler, ls_ws_room(sizeof(ls_ws_link)), &up);
    if (err < 0) {
        if (h->kept != NULL) ls_exchange_release(ctx, h->kept);
        return err;
    }
    ls_ws_connect(o, ls_ws_open(up.stream, &o->route->config, deflate, &ls_ws_lua_events), up.limit);
    r->kind = &websocket;
    o->advancing = true; /* no handler runs before ls_ws_serve */
    h->object = o;
    h->x = r->x;
    h->ended = r->task->ended;
    r->task->ended = request_ended;
    r->task->owner = h;
    ls_ws_flush_later(o); /* if the task waits before it ends */
    return LS_OK;
}

static int accept_again(lua_State *L, int status, lua_KContext context)
{
    lua_settop(L, 2);
    return ws_accept(L);
}

/* The handler of the route: (req, res) -> nothing, or a status and a text. Upvalue: the route. */
static int ws_accept(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    const ls_ws_route *route = lua_touserdata(L, lua_upvalueindex(1));
    ls_request *r = ls_request_check_res(L, 2);
    ls_ws_handshake shake;
    ls_ws_deflate deflate;
    const char *host = lua_getfield(L, 1, "authority") == LUA_TSTRING ? lua_tostring(L, -1) : "";
    const int status = ls_ws_handshake_check(&r->x->head, r->x->bytes, r->x->secure, host, &route->policy, &shake);
    if (status != 101) {
        if (shake.fields[0] != '\0') (void)ls_exchange_lines(state->ctx, r->x, shake.fields, strlen(shake.fields));
        return refuse(L, r, status, shake.why);
    }
    if (ls_state_is_ending(state, LS_END_STOP)) return refuse(L, r, 503, "the server stops");
    if (state->current != r->task) return luaL_error(L, "app:ws: the handshake must run in the task of the request");
    if (ls_exchange_unexpect_end(state->ctx, r->x) == LS_PENDING) return ls_request_wait(L, r, 0, accept_again);

    if (route->takes_request) ls_request_keep_tls(L, r); /* afterwards the session is that of the WebSocket */
    ls_ws_object *o = ls_ws_push(L);
    o->route = route;
    o->config = &route->config;
    if (shake.protocol != NULL) {
        lua_pushlstring(L, shake.protocol, shake.protocol_len);
        lua_setiuservalue(L, -2, LS_WS_PROTOCOL);
    }
    o->self_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    if (ls_request_has_begun(r)) { /* also by a finalizer just now */
        luaL_unref(L, LUA_REGISTRYINDEX, o->self_ref);
        return luaL_error(L, "app:ws: the response was sent already");
    }
    int err = negotiate(L, r, route, &deflate);
    handover *h = NULL;
    if (err == LS_OK)
        err = ls_exchange_header(state->ctx, r->x, "Sec-WebSocket-Accept", 20, shake.accept, LS_WS_ACCEPT_CHARS, true);
    if (err == LS_OK && shake.protocol != NULL)
        err = ls_exchange_header(state->ctx, r->x, "Sec-WebSocket-Protocol", 22, shake.protocol, shake.protocol_len,
                                 true);
    if (err == LS_OK && (h = malloc(sizeof *h)) == NULL) err = LS_ENOMEM;
    if (err == LS_OK) err = upgrade(r, o, h, &deflate);
    if (err == LS_OK) return 0;
    free(h);
    ls_ws_deflate_end(&deflate);
    luaL_unref(L, LUA_REGISTRYINDEX, o->self_ref);
    return refuse_error(L, r, err);
}
