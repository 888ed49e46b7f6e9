/* ws_client.c - ls.websocket: the opening handshake of a client (RFC 6455 section 4.1), and the change of its
 * connection to a WebSocket.
 *
 *     core.ws_opening --> core.connect --> sock:send, core.client_call, call:head --> core.ws_open
 *
 * lua/luaserve/ws_client.lua has this order; the connection and its response are those of ls.fetch (client_call.c). */

#include "codec/http1/http1_reader.h"
#include "script/bind/bind_aux.h"
#include "script/bind/sock/sock_object.h"
#include "script/bind/sock/sockets.h"
#include "script/bind/ws/ws.h"
#include "script/core/lua/udata.h"

typedef struct client_link { /* user data of the connection */
    ls_ws_link link;
    ls_ws_config config;
} client_link;

typedef struct opening { /* an object; its user value is the table of options, which has the texts */
    const void *tag;
    ls_ws_config config;
    ls_ws_deflate_options wanted;
    ls_ws_deflate deflate; /* first what the offer may need, then what was negotiated */
    ls_ws_request request;
    bool compress;       /* offer to compress messages */
    const char *names[]; /* request.protocols */
} opening;

static int drop_opening(lua_State *L)
{
    opening *o = lua_touserdata(L, 1);
    ls_ws_deflate_end(&o->deflate);
    return 0;
}

static const ls_object_type opening_type = {.name = "opening", .drop = drop_opening};

/* ---- the request ------------------------------------------------------------------------------------------------ */

#define REQUEST(field) LS_OPTION_AS(#field, opening, request.field)
static const ls_option options[] = {REQUEST(host), REQUEST(target), REQUEST(fields), LS_OPTION(opening, compress),
                                    LS_OPTIONS_END};

/* Offer permessage-deflate. Context takeover only if there is memory for it, which is reserved. */
static void offer(const ls_state *state, opening *o)
{
    ls_ws_deflate_store *store = ls_ws_deflates_of(state);
    if (store == NULL || !o->compress) return;
    const ls_ws_deflate_params most = {true, true, o->wanted.server_bits, o->wanted.client_bits};
    if (o->wanted.takeover && ls_ws_deflate_begin(store, &most, o->wanted.bytes_min, true, &o->deflate) < 0)
        o->wanted.takeover = false;
    o->request.deflate = &o->wanted;
}

/* core.ws_opening({ host=, target=, fields=, protocols=, compress..., limits of ls_ws_config }) -> opening, the text
 * of the request. `host`: the field Host; `fields`: further lines of the request. */
static int core_ws_opening(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    luaL_Buffer text;
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    const unsigned names = lua_getfield(L, 1, "protocols") == LUA_TTABLE ? (unsigned)lua_rawlen(L, 2) : 0;
    opening *o = ls_object_push(L, sizeof *o + names * sizeof o->names[0], 1, &opening_type);
    lua_pushvalue(L, 1);
    (void)lua_setiuservalue(L, 3, 1);
    ls_options_read(L, 1, ls_ws_limits, &o->config);
    ls_options_read(L, 1, ls_ws_deflate_limits, &o->wanted);
    ls_options_read(L, 1, options, o);
    o->config.client = true;
    if (names > 0) o->request.protocols = (ls_ws_names){o->names, ls_ws_read_names(L, 2, o->names)};
    luaL_argcheck(L, o->request.host != NULL && o->request.target != NULL, 1, "host and target expected");
    offer(state, o);
    ls_ws_key(o->request.key);
    const size_t len = ls_ws_request_write(&o->request, NULL, 0);
    lua_settop(L, 3);
    (void)ls_ws_request_write(&o->request, luaL_buffinitsize(L, &text, len + 1), len + 1);
    luaL_pushresultsize(&text, len);
    return 2;
}

/* ---- the response ----------------------------------------------------------------------------------------------- */

/* Take over what was negotiated about permessage-deflate. */
static int take_deflate(const ls_state *state, opening *o, const ls_ws_response *response)
{
    if (o->request.deflate != NULL) ls_ws_deflate_end(&o->deflate);
    if (!response->deflated) return LS_OK;
    return ls_ws_deflate_begin(ls_ws_deflates_of(state), &response->deflate, o->wanted.bytes_min, true, &o->deflate);
}

static void lost(ls_thread_ctx *ctx, ls_stream *s)
{
    ls_stream_free(s);
}

/* Take the connection away from the sock, with the frames that were received after the head, and with the room that a
 * WebSocket needs. LS_OK; LS_ECLOSED; LS_ENOMEM: it is closed. */
static int take_stream(ls_state *state, const ls_tcp_object *sock, ls_stream **out)
{
    static const ls_stream_handler lost_handler = {.closed = lost};
    ls_tcp *tcp = sock->tcp;
    ls_slice frames = {0};
    if (tcp == NULL || tcp->received > tcp->head.len) return LS_ECLOSED; /* else in the block of the end of the head */
    if (tcp->received > 0) {
        frames = (ls_slice){ls_block_hold(tcp->head.block), tcp->head.ptr, tcp->received};
        ls_tcp_consume(tcp, frames.len);
    }
    ls_stream *s = ls_tcp_detach(tcp);
    if (s == NULL) {
        ls_slice_drop(&frames);
        return LS_ECLOSED;
    }
    ls_stream_set_actor(s, &state->actor);
    ls_stream_recv_within(s, 0);
    ls_stream_send_within(s, 0);
    if (frames.len > 0) ls_stream_unread(s, frames);
    const int err = ls_stream_move(s, &ls_ws_stream_handler, ls_ws_room(sizeof(client_link)), out);
    if (err == LS_OK) {
        ls_stream_free(s);
        return LS_OK;
    }
    ls_stream_handover(s, &lost_handler);
    ls_stream_close(state->ctx, s);
    return err;
}

static void begin(ls_state *state, opening *o, ls_ws_object *object, ls_stream *s)
{
    client_link *const link = ls_ws_user(ls_stream_user(s));
    link->config = o->config;
    ls_ws *const ws = ls_ws_open(s, &link->config, &o->deflate, &ls_ws_lua_events);
    ls_ws_connect(object, ws, NULL);
    ls_sockets_opened(state);
    link->link.counted = true;
    object->config = &link->config;
    object->begun = true;
    ls_ws_begin(state->ctx, ws);
}

/* core.ws_open(sock, opening, head) -> ws | nil, message, code. `head`: of the response, which the sock has received.
 * With success the sock is closed. EREFUSED: the status is another one than 101. */
static int core_ws_open(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    const ls_tcp_object *sock = ls_tcp_check(L);
    opening *o = ls_udata_check(L, 2, &opening_type, sizeof *o, "opening");
    ls_http1_reader reader;
    ls_ws_response response = {.protocol = -1};
    ls_stream *s = NULL;
    const char *wrong;
    char why[LS_WS_WHY_BYTES] = "";
    size_t len, skip;
    const char *head = luaL_checklstring(L, 3, &len);
    ls_http1_reader_init(&reader, LS_ASKED_UPGRADE);
    luaL_argcheck(L, ls_http1_read_head(&reader, head, len, len + 1, &skip, &wrong) > 0, 3, "not a head");
    int err = ls_ws_response_check(&reader.head, head + skip, &o->request, &response, why);
    ls_ws_object *object = ls_ws_push(L); /* may raise, and a finalizer may close the sock */
    if (err == LS_OK && response.protocol >= 0) {
        lua_pushstring(L, o->names[response.protocol]);
        (void)lua_setiuservalue(L, -2, LS_WS_PROTOCOL);
    }
    if (err == LS_OK) err = take_deflate(state, o, &response);
    if (err == LS_OK) err = take_stream(state, sock, &s);
    if (err < 0) return why[0] != '\0' ? ls_push_failure_text(L, err, "%s", why) : ls_push_failure(L, err);
    begin(state, o, object, s);
    return 1;
}

/* ---- the module ------------------------------------------------------------------------------------------------- */

static const luaL_Reg functions[] = {{"ws_opening", core_ws_opening}, {"ws_open", core_ws_open}, {NULL, NULL}};

const ls_module ls_ws_client_module = {.name = "ws_client", .functions = functions};
