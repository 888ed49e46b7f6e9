/* ws_client.c - ls.websocket: a dial (connect.h), the opening handshake of a client (RFC 6455 section 4.1), then a
 * `ws` object.
 *
 *     dial --> the request is sent, the response received, both at a time --> ls_ws_begin, the task wakes
 *
 * One deadline applies to all of it. During the handshake the stream has a handler of this file, and the `opening` on
 * the task's stack owns it: nothing stays open when the task ends early. The object is made before the dial, so that
 * no memory is needed for Lua at the end of the handshake. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "codec/http1/http1_reader.h"
#include "script/bind/bind.h"
#include "script/bind/bind_aux.h"
#include "script/bind/sock/connect.h"
#include "script/bind/sock/sockets.h"
#include "script/bind/ws/ws.h"
#include "script/core/runtime.h"

enum {
    OBJECT = LS_CONNECTING_TLS + 1, /* stack index */
    HEAD_BYTES_MAX = 16384          /* of a response; fits into the block */
};

typedef struct client_link { /* user data of the connection */
    ls_ws_link link;
    ls_ws_config config;
} client_link;

typedef struct opening {
    ls_connecting c;
    ls_node node;      /* in the list of the state while `stream` is not NULL */
    ls_stream *stream; /* during the handshake */
    ls_ws_object *object;
    uint64_t deadline_ms; /* of ls_clock_coarse_ms; 0: none */
    ls_ws_config config;
    ls_ws_deflate_options wanted;
    ls_ws_deflate deflate; /* first what the offer may need, then what was negotiated */
    ls_ws_request request; /* its texts belong to the table of limits */
    ls_ws_response response;

    ls_block *block; /* received bytes */
    size_t len;
    ls_http1_reader reader;
    uint32_t head_bytes; /* before the frames, when the response was accepted; 0: not yet */
    bool compress;       /* offer to compress messages */
    bool opened;         /* the object has its connection */
    int err;             /* of the handshake; LS_OK: the dial has failed */
    unsigned status;     /* the server has answered with another status than 101; else 0 */
    char text[256];      /* of the error; "": that of the code */
    const char *names[]; /* request.protocols */
} opening;

typedef struct stream_link { /* user data of the stream during the handshake */
    opening *o;              /* NULL: cancelled */
    _Atomic uint32_t *live;
} stream_link;

typedef struct client_data { /* of a state */
    ls_node openings;        /* with a stream */
    int meta_ref;
} client_data;

static client_data *data_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_ws_client);
}

/* ---- the end of the handshake ----------------------------------------------------------------------------------- */

static void drop_block(opening *o)
{
    if (o->block != NULL) ls_block_drop(o->block);
    o->block = NULL;
}

/* Close the stream of the handshake, if there is one. */
static void close_stream(ls_thread_ctx *ctx, opening *o)
{
    ls_stream *s = o->stream;
    if (s == NULL) return;
    ((stream_link *)ls_stream_user(s))->o = NULL;
    o->stream = NULL;
    ls_list_remove(&o->node);
    ls_sockets_closed(o->c.task->state);
    ls_stream_close(ctx, s);
}

static void fail(ls_thread_ctx *ctx, opening *o, int err, const char *text)
{
    o->err = err;
    (void)snprintf(o->text, sizeof o->text, "%s", text);
    close_stream(ctx, o);
    ls_task_wake(ctx, o->c.task, LS_OK);
}

static void fail_stream(ls_thread_ctx *ctx, opening *o, int err)
{
    fail(ctx, o, err, err == LS_ETIMEDOUT ? "timeout: the server has not answered the handshake" : "");
}

/* The request was sent and the response accepted: the stream becomes a WebSocket. */
static void open_ws(ls_thread_ctx *ctx, opening *o)
{
    ls_stream *const s = o->stream;
    stream_link *const old = ls_stream_user(s);
    _Atomic uint32_t *const live = old->live;
    if (o->len > o->head_bytes)
        ls_stream_unread(s, ls_slice_of(o->block, o->head_bytes, o->len - o->head_bytes)); /* frames behind the head */
    drop_block(o);
    o->stream = NULL;
    ls_list_remove(&o->node);
    ls_stream_recv_within(s, 0);
    ls_stream_handover(s, &ls_ws_stream_handler);
    memset(old, 0, sizeof *old);
    client_link *const link = ls_ws_user(ls_stream_user(s));
    link->config = o->config;
    ls_ws *const ws = ls_ws_open(s, &link->config, &o->deflate, &ls_ws_lua_events);
    ls_ws_connect(o->object, ws, NULL);
    link->link.counted = true;
    o->object->config = &link->config;
    o->object->begun = true;
    o->opened = true;
    atomic_fetch_sub(live, 1); /* ls_ws_connect has counted the connection */
    ls_task *const task = o->c.task;
    ls_ws_begin(ctx, ws);
    ls_task_wake(ctx, task, LS_OK);
}

/* ---- the response ----------------------------------------------------------------------------------------------- */

/* Take over what was negotiated about permessage-deflate. */
static int take_deflate(opening *o)
{
    if (o->request.deflate != NULL) ls_ws_deflate_end(&o->deflate);
    if (!o->response.deflated) return LS_OK;
    return ls_ws_deflate_begin(ls_state_runtime(o->c.task->state)->ws_deflates, &o->response.deflate,
                               o->wanted.bytes_min, true, &o->deflate);
}

/* Read what was received. LS_PENDING: more is needed; else the handshake has ended, or waits for the end of the send. */
static int read_response(ls_thread_ctx *ctx, opening *o)
{
    char text[sizeof o->text] = "";
    const char *why = "", *const bytes = o->block->data;
    size_t skip;
    const int length = ls_http1_read_head(&o->reader, bytes, o->len, HEAD_BYTES_MAX, &skip, &why);
    int err = length;
    if (length < 0) {
        (void)snprintf(text, sizeof text, "invalid response to the handshake: %s", why);
    } else if (length == 0) {
        o->len -= skip;
        memmove(o->block->data, bytes + skip, o->len);
        return LS_PENDING;
    } else {
        err = ls_ws_response_check(&o->reader.head, bytes + skip, &o->request, &o->response, text);
        if (err == LS_OK) err = take_deflate(o);
    }
    if (err == LS_EREFUSED) o->status = o->reader.head.status;
    if (err < 0) {
        fail(ctx, o, err, text);
        return LS_DONE;
    }
    o->head_bytes = (uint32_t)(skip + (size_t)length);
    if (!ls_stream_sending(o->stream)) open_ws(ctx, o);
    return LS_DONE;
}

/* Handle the result of a receive. LS_PENDING: receive again. */
static int take(ls_thread_ctx *ctx, opening *o, int64_t result)
{
    if (result > 0) {
        o->len += (size_t)result;
        return read_response(ctx, o);
    }
    if (result == 0)
        fail(ctx, o, LS_ECLOSED, "the server closed the connection instead of answering the handshake");
    else
        fail_stream(ctx, o, (int)result);
    return LS_DONE;
}

/* Receive until an operation is pending or the handshake has ended. */
static void receive(ls_thread_ctx *ctx, opening *o)
{
    int64_t result;
    int err;
    do {
        err = ls_stream_recv(ctx, o->stream, o->block->data + o->len, (uint32_t)(LS_BLOCK_LARGE - o->len), &result);
        if (err == LS_PENDING) return;
    } while (take(ctx, o, err < 0 ? err : result) == LS_PENDING);
}

static void handshake_received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    opening *o = ((stream_link *)ls_stream_user(s))->o;
    if (o != NULL && take(ctx, o, result) == LS_PENDING) receive(ctx, o);
}

static void handshake_sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    opening *o = ((stream_link *)ls_stream_user(s))->o;
    if (o == NULL) return;
    if (err < 0)
        fail_stream(ctx, o, err);
    else if (o->head_bytes > 0)
        open_ws(ctx, o);
}

static void handshake_closed(ls_thread_ctx *ctx, ls_stream *s)
{
    _Atomic uint32_t *live = ((stream_link *)ls_stream_user(s))->live;
    (void)ctx;
    ls_stream_free(s);
    atomic_fetch_sub(live, 1); /* last access to the state */
}

static const ls_stream_handler handshake_handler = {
    .received = handshake_received, .sent = handshake_sent, .closed = handshake_closed};

/* ---- the request ------------------------------------------------------------------------------------------------ */

static int queue_request(ls_thread_ctx *ctx, opening *o)
{
    const size_t room = ls_ws_request_write(&o->request, NULL, 0) + 1;
    if (room > LS_BLOCK_LARGE) return LS_EMSGSIZE;
    char *to = ls_stream_room(ctx, o->stream, room);
    if (to == NULL) return LS_ENOMEM;
    ls_stream_commit(o->stream, ls_ws_request_write(&o->request, to, room));
    return LS_OK;
}

/* The time that the dial has left; 0: no limit. */
static uint32_t ms_left(const opening *o)
{
    const uint64_t now = ls_clock_coarse_ms();
    if (o->deadline_ms == 0) return 0;
    return o->deadline_ms > now ? (uint32_t)(o->deadline_ms - now) : 1;
}

static void connected(ls_thread_ctx *ctx, ls_connecting *c, ls_stream *s)
{
    opening *o = (opening *)(void *)c;
    ls_state *state = c->task->state;
    *(stream_link *)ls_stream_user(s) = (stream_link){o, c->live};
    atomic_fetch_add(c->live, 1);
    ls_sockets_opened(state);
    o->stream = s;
    ls_list_push(&data_of(state)->openings, &o->node);
    ls_stream_recv_within(s, ms_left(o));
    int err = queue_request(ctx, o);
    if (err == LS_OK && (o->block = ls_block_get(ctx->pool, LS_BLOCK_LARGE)) == NULL) err = LS_ENOMEM;
    if (err == LS_OK) err = ls_stream_flush(ctx, s);
    if (err < 0)
        fail_stream(ctx, o, err);
    else
        receive(ctx, o);
}

/* ---- the call --------------------------------------------------------------------------------------------------- */

static int drop_opening(lua_State *L)
{
    opening *o = lua_touserdata(L, 1);
    ls_state *state = ls_state_of(L);
    ls_connecting_drop(state, &o->c);
    if (state->port != NULL) close_stream(state->ctx, o);
    if (o->stream != NULL) ls_stream_free(o->stream);
    o->stream = NULL;
    ls_list_remove(&o->node);
    drop_block(o);
    ls_ws_deflate_end(&o->deflate);
    return 0;
}

/* nil, message, code [, status] */
static int push_error(lua_State *L, const opening *o)
{
    const unsigned status = o->status;
    char text[sizeof o->text];
    memcpy(text, o->text, sizeof text);
    const int count = ls_connecting_fail(L, o->err);
    if (text[0] != '\0') {
        lua_pushstring(L, text);
        lua_replace(L, -3);
    }
    if (status == 0) return count;
    lua_pushinteger(L, status);
    return count + 1;
}

static int open_ended(lua_State *L, int status, lua_KContext context)
{
    opening *o = lua_touserdata(L, LS_CONNECTING);
    (void)status;
    (void)context;
    if (!o->opened) return o->err < 0 ? push_error(L, o) : ls_connecting_failed(L, &o->c);
    if (o->response.protocol >= 0) {
        lua_pushstring(L, o->names[o->response.protocol]);
        lua_setiuservalue(L, OBJECT, LS_WS_PROTOCOL);
    }
    lua_settop(L, OBJECT);
    return 1;
}

#define REQUEST(field) LS_OPTION_AS(#field, opening, request.field)
static const ls_option options[] = {REQUEST(host), REQUEST(target), REQUEST(fields), LS_OPTION(opening, compress),
                                    LS_OPTIONS_END};

/* Offer permessage-deflate. Context takeover only if there is memory for it, which is reserved. */
static void offer(const ls_state *state, opening *o)
{
    ls_ws_deflate_store *store = ls_state_runtime(state)->ws_deflates;
    if (store == NULL || !o->compress) return;
    const ls_ws_deflate_params most = {true, true, o->wanted.server_bits, o->wanted.client_bits};
    if (o->wanted.takeover && ls_ws_deflate_begin(store, &most, o->wanted.bytes_min, true, &o->deflate) < 0)
        o->wanted.takeover = false;
    o->request.deflate = &o->wanted;
}

/* core.websocket(host, port, { host=, target=, fields=, protocols=, compress..., connect_ms_max=, tls=, limits of
 * ls_ws_config }) -> ws | nil, message, code [, status]. `host`: the field Host; `fields`: further lines of the
 * request; tls: see connect.h. */
static int core_websocket(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    luaL_checktype(L, 3, LUA_TTABLE);
    const unsigned names = lua_getfield(L, 3, "protocols") == LUA_TTABLE ? (unsigned)lua_rawlen(L, -1) : 0;
    lua_settop(L, 3);
    opening *o =
        (opening *)(void *)ls_connecting_new(L, sizeof *o + names * sizeof o->names[0], data_of(state)->meta_ref);
    ls_node_init(&o->node);
    o->c.handler = &handshake_handler;
    o->c.user_bytes = ls_ws_room(sizeof(client_link));
    o->c.live = &ls_wss_of(state)->live;
    o->c.connected = connected;
    o->c.ended = open_ended;
    if (o->c.ms_max > 0) o->deadline_ms = ls_clock_coarse_ms() + o->c.ms_max;
    ls_options_read(L, LS_CONNECTING_LIMITS, ls_ws_limits, &o->config);
    ls_options_read(L, LS_CONNECTING_LIMITS, ls_ws_deflate_limits, &o->wanted);
    ls_options_read(L, LS_CONNECTING_LIMITS, options, o);
    o->config.client = true;
    if (names > 0) {
        lua_getfield(L, LS_CONNECTING_LIMITS, "protocols");
        o->request.protocols = (ls_ws_names){o->names, ls_ws_read_names(L, lua_gettop(L), o->names)};
        lua_pop(L, 1);
    }
    luaL_argcheck(L, o->request.host != NULL && o->request.target != NULL, 3, "host and target expected");
    o->object = ls_ws_push(L); /* at OBJECT */
    offer(state, o);
    ls_ws_key(o->request.key);
    ls_http1_reader_init(&o->reader, LS_ASKED_UPGRADE);
    return ls_connecting_begin(L, &o->c);
}

/* ---- the module ------------------------------------------------------------------------------------------------- */

static void client_define(lua_State *L, ls_state *state)
{
    static const luaL_Reg meta[] = {{"__gc", drop_opening}, {NULL, NULL}};
    ls_node_init(&data_of(state)->openings);
    luaL_newlib(L, meta);
    data_of(state)->meta_ref = luaL_ref(L, LUA_REGISTRYINDEX);
}

static void client_close(ls_thread_ctx *ctx, ls_state *state)
{
    while (!ls_list_empty(&data_of(state)->openings)) {
        opening *o = LS_CONTAINER(data_of(state)->openings.next, opening, node);
        fail(ctx, o, LS_ECANCELED, "");
    }
}

static const luaL_Reg functions[] = {{"websocket", core_websocket}, {NULL, NULL}};

const ls_module ls_ws_client_module = {.name = "ws_client",
                                       .bytes = sizeof(client_data),
                                       .functions = functions,
                                       .define = client_define,
                                       .close = client_close};
