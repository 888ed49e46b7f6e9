/* client_call.c - one request of an HTTP client on a connection: the half of ls.fetch that touches every byte, and the
 * handshake of ls.websocket.
 *
 * lua/luaserve/fetch.lua decides: it takes an idle connection from the pool of the server (net/stream/stream_pool.h)
 * or dials (connect.c), which gives a sock, writes the request with sock:send, and makes a call of the sock, which
 * reads the response: http/http_client.h finds the payload in the received blocks, codec/http_coding.h decodes it. At
 * the end the connection goes back to the pool.
 *
 * The call belongs to the task that makes it: when that task ends first, by an error, its time limit or the loss of
 * its client, the connection is closed at once and not when the garbage is collected. Every wait of a call ends when
 * the client of the task leaves. Thread: the one that holds the state's actor. */
#include <string.h>

#include "base/clock.h"
#include "codec/coding/http_coding.h"
#include "http/http_client.h"
#include "net/stream/stream_pool.h"
#include "script/bind/bind_aux.h"
#include "script/bind/sock/sock_object.h"
#include "script/bind/value/buffer.h"
#include "script/core/lua/udata.h"
#include "script/core/runtime.h"
#include "script/core/wait.h"

enum {
    HEAD_BYTES_MAX = LS_BLOCK_LARGE,    /* of a response */
    STRING_BYTES_MAX = LS_BLOCK_SMALL,  /* a piece of this many bytes or more is a buffer, as for sock:chunks */
    SENDING_BYTES_MAX = LS_BLOCK_SMALL, /* of a request that was answered while its send was pending */
    COPY_BYTES_MAX = LS_BLOCK_SMALL / 2 /* a shorter piece of a body is copied: it would keep a whole block */
};

static const double SENDING_S_MAX = 0.1; /* the wait for it: a new connection costs less */

typedef struct client_call {
    const void *tag;
    ls_tcp_object *sock; /* the user value keeps it */
    ls_state *state;
    ls_task_end end;      /* of the task that made the call */
    uint64_t deadline_ns; /* of ls_clock_ns; 0: none */
    const char *damaged;  /* the name of the content coding, if that is why */
    ls_http_client c;
    ls_slice piece;           /* of the body, on its way to Lua */
    ls_decoder *decoder;      /* NULL: the body is taken as it is */
    ls_slice payload;         /* found, and not delivered yet */
    uint64_t found;           /* bytes of it so far */
    bool released;            /* the connection is not the call's any more */
    bool decoded_whole_block; /* the decoder may hold more output */
} client_call;

static const ls_object_type call_type;

static client_call *check_call(lua_State *L)
{
    return ls_udata_check(L, 1, &call_type, sizeof(client_call), "call");
}

/* ---- the end --------------------------------------------------------------------------------------------------- */

/* The task has ended, or the call is garbage. Again: no effect. */
static void call_drop(client_call *call)
{
    ls_state *state = call->state;
    ls_task_end_remove(&call->end);
    ls_slice_drop(&call->piece);
    ls_slice_drop(&call->payload);
    ls_http_client_drop(&call->c);
    ls_decoder_close(call->decoder);
    call->decoder = NULL;
    call->decoded_whole_block = false;
    if (!call->released && call->sock->tcp != NULL && state->port != NULL) ls_tcp_abort(state->ctx, call->sock->tcp);
}

static void task_ended(ls_task_end *end)
{
    call_drop(LS_CONTAINER(end, client_call, end));
}

/* nil, message, code, and whether no byte of the response was received. Closes the connection. */
static int fail(lua_State *L, client_call *call, int err)
{
    const bool begun = call->c.phase != LS_CLIENT_SILENT;
    const char *why = call->c.why != NULL ? call->c.why : ls_err_text(err);
    call_drop(call);
    if (err == LS_EPROTO && call->damaged != NULL)
        (void)ls_push_failure_text(L, err, "invalid response: the content coding %s is damaged", call->damaged);
    else if (err == LS_EPROTO)
        (void)ls_push_failure_text(L, err, "invalid response: %s", why);
    else if (err == LS_ETRUNCATED || (err == LS_ECLOSED && begun))
        (void)ls_push_failure_text(L, LS_ETRUNCATED, "the response was cut off before its end");
    else if (err == LS_ECLOSED)
        (void)ls_push_failure_text(L, err, "the server closed the connection without a response");
    else if (err == LS_EMSGSIZE)
        (void)ls_push_failure_text(L, err, "%s", call->c.why != NULL ? why : "the body is too large");
    else
        (void)ls_push_failure(L, err);
    lua_pushboolean(L, !begun);
    return 4;
}

/* ---- waiting
 * ----------------------------------------------------------------------------------------------------- */

/* Have bytes in the sock. LS_DONE; LS_PENDING: wait; LS_E*: no more bytes follow, LS_ECLOSED at the end of the
 * stream. */
static int fill(lua_State *L, const client_call *call, ls_tcp *tcp)
{
    int err = LS_DONE;
    for (bool collected = false; err == LS_DONE && tcp->received == 0;) {
        if (tcp->receive_end != LS_OK) return tcp->receive_end;
        err = ls_tcp_fill(call->state->ctx, tcp);
        if (err != LS_ENOMEM || collected) continue;
        collected = true;
        (void)lua_gc(L, LUA_GCCOLLECT); /* the collector does not count the blocks of buffers */
        if (call->sock->tcp != tcp) return LS_ECLOSED;
        err = LS_DONE;
    }
    return err;
}

/* Suspend the task until bytes arrive, or the deadline passes. */
static int wait_for_more(lua_State *L, client_call *call, lua_KContext context, lua_KFunction k)
{
    ls_task *task = call->state->current;
    ls_tcp *tcp = call->sock->tcp;
    ls_task_may_wait(L);
    if (tcp->receiver != NULL) return luaL_error(L, "another task already reads this response");
    const uint64_t now_ns = call->deadline_ns != 0 ? ls_clock_ns() : 0;
    if (call->deadline_ns != 0 && now_ns >= call->deadline_ns) return fail(L, call, LS_ETIMEDOUT);
    const uint64_t ms = call->deadline_ns != 0 ? (call->deadline_ns - now_ns) / 1000000u + 1 : 0;
    tcp->receive_ms_max = ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
    ls_tcp_receive_begins(tcp, task);
    return ls_task_yield(L, LS_WAIT_WRITE, context, k);
}

/* The wait has ended. LS_OK: continue; LS_E*. */
static int resume(lua_State *L, client_call *call, int status)
{
    ls_task *task = call->state->current;
    ls_tcp *tcp = call->sock->tcp;
    if (status == LUA_OK) return tcp != NULL ? LS_OK : LS_ECLOSED;
    if (tcp != NULL && tcp->receiver == task) tcp->receiver = NULL;
    return tcp == NULL ? LS_ECLOSED : task->wake_result;
}

/* ---- the head
 * ---------------------------------------------------------------------------------------------------- */

/* Look for the head in what the sock has received. Its length (> 0); 0: it is incomplete; LS_E*. What follows the head
 * stays in the sock: the connection may be used in another way. */
static int find_head(client_call *call, ls_tcp *tcp)
{
    size_t skip;
    const int64_t added = ls_http_client_add(call->state->ctx, &call->c, &tcp->head);
    if (added < 0) return (int)added;
    const int length = ls_http_client_head(&call->c, &skip);
    ls_http_client_consume(&call->c, skip);
    ls_tcp_consume(tcp, (size_t)added - (length > 0 ? call->c.in.len - (size_t)length : 0));
    return length;
}

/* The head is complete: push the status, the text, and the number of the coding if there is a body that can be
 * decoded. */
static int push_head(lua_State *L, client_call *call, size_t length)
{
    const ls_http_response *head = &call->c.reader.head;
    lua_pushinteger(L, head->status);
    lua_pushlstring(L, call->c.in.ptr, length);
    ls_http_client_drop(&call->c);
    if (head->coding >= 0 && ls_coding_built((enum ls_coding)head->coding) && head->framing != LS_FRAMING_NONE)
        lua_pushinteger(L, head->coding);
    else
        lua_pushboolean(L, 0);
    return 3;
}

static int head_continue(lua_State *L, int status, lua_KContext context)
{
    client_call *call = lua_touserdata(L, 1);
    int err = resume(L, call, status);
    while (err == LS_OK && (err = fill(L, call, call->sock->tcp)) == LS_DONE) {
        const int length = find_head(call, call->sock->tcp);
        if (length > 0) return push_head(L, call, (size_t)length);
        if (length < 0) return fail(L, call, length);
    }
    return err == LS_PENDING ? wait_for_more(L, call, context, head_continue) : fail(L, call, err);
}

/* call:head() -> status, head, coding or false | nil, message, code, whether no byte of the response was received */
static int call_head(lua_State *L)
{
    const client_call *call = check_call(L);
    if (call->c.phase >= LS_CLIENT_BODY) return luaL_error(L, "the head was read already");
    lua_settop(L, 1);
    return head_continue(L, LUA_OK, 0);
}

/* ---- the body
 * ---------------------------------------------------------------------------------------------------- */

/* Find payload. LS_DONE: there is some, or the body is whole; LS_PENDING: wait; LS_E*. */
static int find_payload(lua_State *L, client_call *call)
{
    ls_text trailers;
    while (call->payload.len == 0 && call->c.phase != LS_CLIENT_WHOLE) {
        int err = ls_http_client_next(&call->c, &call->payload, &trailers);
        call->found += call->payload.len;
        if (err == LS_DONE) continue;
        ls_tcp *tcp = call->sock->tcp;
        if (err != LS_EAGAIN || tcp == NULL) return err != LS_EAGAIN ? err : LS_ECLOSED;
        err = fill(L, call, tcp);
        if (err == LS_ECLOSED && call->sock->tcp == tcp) err = ls_http_client_ended(&call->c);
        if (err != LS_DONE) return err;
        if (tcp->received == 0) continue; /* the end of the stream is that of the body */
        const int64_t added = ls_http_client_add(call->state->ctx, &call->c, &tcp->head);
        if (added < 0) return (int)added;
        ls_tcp_consume(tcp, (size_t)added);
    }
    return LS_DONE;
}

/* The slice with its reference; *from has none any more. */
static ls_slice moved(ls_slice *from)
{
    const ls_slice slice = *from;
    *from = (ls_slice){0};
    return slice;
}

/* Decode into a new block. LS_DONE: call->piece, or nothing came out; LS_E*. */
static int decode_piece(lua_State *L, client_call *call)
{
    ls_slice *payload = &call->payload;
    ls_block *block = ls_state_block(L, payload->len > STRING_BYTES_MAX / 8 || call->decoded_whole_block
                                            ? LS_BLOCK_LARGE
                                            : LS_BLOCK_SMALL); /* may run finalizers */
    size_t in = payload->len, len = block->cap;
    int err = call->decoder == NULL
                  ? LS_ECLOSED
                  : ls_decoder_run(call->decoder, in > 0 ? payload->ptr : "", &in, block->data, &len);
    if (err == LS_EPROTO) call->damaged = ls_decoder_name(call->decoder);
    if (err == LS_EMSGSIZE) call->c.why = "the compressed body grows too much";
    if (err == LS_OK) {
        payload->ptr += in;
        payload->len -= in;
        if (payload->len == 0) ls_slice_drop(payload);
        call->decoded_whole_block = len == block->cap;
        if (len > 0) {
            call->piece = (ls_slice){block, block->data, len};
            return LS_DONE;
        }
    }
    ls_block_drop(block);
    return err;
}

/* Take the next piece of the body into call->piece. LS_DONE: its length is 0 at the end; LS_PENDING; LS_E*. */
static int take_piece(lua_State *L, client_call *call)
{
    ls_slice_drop(&call->piece); /* one that an error has left */
    for (;;) {
        int err = call->decoded_whole_block ? LS_DONE : find_payload(L, call);
        if (err != LS_DONE) return err;
        if (call->payload.len == 0 && !call->decoded_whole_block) {
            if (call->decoder == NULL || call->found == 0 || ls_decoder_ended(call->decoder)) return LS_DONE;
            return LS_ETRUNCATED;
        }
        if (call->decoder == NULL) {
            call->piece = moved(&call->payload);
            return LS_DONE;
        }
        err = decode_piece(L, call);
        if (err != LS_DONE || call->piece.len > 0) return err;
    }
}

static int read_continue(lua_State *L, int status, lua_KContext context)
{
    client_call *call = lua_touserdata(L, 1);
    int err = resume(L, call, status);
    if (err == LS_ECLOSED && call->c.phase == LS_CLIENT_WHOLE && call->payload.len == 0)
        err = LS_OK; /* it has ended before */
    if (err == LS_OK) err = take_piece(L, call);
    if (err == LS_PENDING) return wait_for_more(L, call, context, read_continue);
    if (err != LS_DONE) return fail(L, call, err);
    const size_t len = call->piece.len;
    if (len == 0) return 0;
    if (len < STRING_BYTES_MAX) {
        lua_pushlstring(L, call->piece.ptr, len);
        ls_slice_drop(&call->piece);
        return 1;
    }
    ls_buffer *buffer = ls_buffer_push(L); /* may raise */
    ls_buffer_add_slice(L, buffer, moved(&call->piece));
    ls_buffer_account(L, len);
    return 1;
}

/* call:read() -> the next piece of the body, a string, or a buffer from 4 KiB on | nothing at its end | nil, message,
 * code */
static int call_read(lua_State *L)
{
    (void)check_call(L);
    lua_settop(L, 1);
    return read_continue(L, LUA_OK, 0);
}

enum { ALL_MAX = 2, ALL_BUFFER = 3 }; /* stack: the limit; the pieces so far, or nil */

static void add_piece(lua_State *L, client_call *call)
{
    ls_buffer *all = lua_touserdata(L, ALL_BUFFER);
    if (all == NULL) {
        all = ls_buffer_push(L);
        lua_replace(L, ALL_BUFFER);
    }
    if (call->piece.len >= COPY_BYTES_MAX) {
        ls_buffer_add_slice(L, all, moved(&call->piece));
        return;
    }
    ls_buffer_add_bytes(L, all, call->piece.ptr, call->piece.len);
    ls_slice_drop(&call->piece);
}

/* The body is complete: push it as a string, and let go of the blocks. */
static int push_all(lua_State *L, client_call *call)
{
    ls_buffer *all = lua_touserdata(L, ALL_BUFFER);
    if (all == NULL) { /* in one piece */
        lua_pushlstring(L, call->piece.len > 0 ? call->piece.ptr : "", call->piece.len);
        ls_slice_drop(&call->piece);
        return 1;
    }
    if (call->piece.len > 0) add_piece(L, call);
    ls_slices_push_string(L, all->slices, all->count, all->len);
    ls_buffer_lend(all);
    ls_buffer_take_back(L, ALL_BUFFER);
    return 1;
}

static int all_continue(lua_State *L, int status, lua_KContext context)
{
    client_call *call = lua_touserdata(L, 1);
    const uint64_t bytes_max = (uint64_t)lua_tointeger(L, ALL_MAX);
    int err = resume(L, call, status);
    if (err == LS_OK && call->decoder == NULL && call->c.reader.left > bytes_max)
        err = LS_EMSGSIZE; /* Content-Length */
    while (err == LS_OK && (err = take_piece(L, call)) == LS_DONE) {
        const ls_buffer *all = lua_touserdata(L, ALL_BUFFER);
        if (call->piece.len > bytes_max - (all != NULL ? all->len : 0))
            err = LS_EMSGSIZE;
        else if (call->piece.len == 0 ||
                 (call->decoder == NULL && call->c.phase == LS_CLIENT_WHOLE && call->payload.len == 0))
            return push_all(L, call);
        else
            add_piece(L, call);
    }
    return err == LS_PENDING ? wait_for_more(L, call, context, all_continue) : fail(L, call, err);
}

/* call:all(bytes_max) -> the rest of the body as a string | nil, message, code */
static int call_all(lua_State *L)
{
    (void)check_call(L);
    luaL_argcheck(L, luaL_checkinteger(L, ALL_MAX) >= 0, ALL_MAX, "bytes must be 0 or more");
    lua_settop(L, ALL_BUFFER);
    lua_pushnil(L);
    lua_replace(L, ALL_BUFFER);
    return all_continue(L, LUA_OK, 0);
}

/* ---- the connection
 * ---------------------------------------------------------------------------------------------- */

/* call:within(seconds): the waits from now on end after this time, together; nil: without a limit. */
static int call_within(lua_State *L)
{
    client_call *call = check_call(L);
    call->deadline_ns = lua_isnoneornil(L, 2) ? 0 : ls_task_deadline(ls_check_seconds(L, 2));
    return 0;
}

/* call:decode(coding) -> true | nil, message, code. Decode the body. */
static int call_decode(lua_State *L)
{
    client_call *call = check_call(L);
    const lua_Integer coding = luaL_checkinteger(L, 2);
    luaL_argcheck(L, coding >= 0 && coding < LS_CODINGS, 2, "no coding");
    return ls_push_result(L, call->decoder != NULL ? LS_OK : ls_decoder_open((enum ls_coding)coding, &call->decoder));
}

static int keep_continue(lua_State *L, int status, lua_KContext context)
{
    client_call *call = lua_touserdata(L, 1);
    ls_state *state = call->state;
    ls_tcp *tcp = state->port != NULL ? call->sock->tcp : NULL;
    const bool ended =
        ls_http_client_may_keep(&call->c) && call->payload.len == 0 && !ls_state_is_ending(state, LS_END_STOP);
    ls_stream *s = NULL;
    size_t len;
    const char *key = lua_tolstring(L, 2, &len);
    if (status != LUA_OK) ls_list_remove(&state->current->wait_node);
    if (ended && tcp != NULL && ls_stream_queued(ls_tcp_stream(tcp)) > 0 && !ls_stream_sending(ls_tcp_stream(tcp)))
        (void)ls_tcp_flush(state->ctx, tcp);
    if (status == LUA_OK && ended && tcp != NULL && ls_stream_sending(ls_tcp_stream(tcp)) &&
        ls_stream_queued(ls_tcp_stream(tcp)) <= SENDING_BYTES_MAX && ls_task_can_wait(L) &&
        ls_task_try_alarm(state->current, SENDING_S_MAX)) {
        ls_list_push(&tcp->senders, &state->current->wait_node); /* the packet of the send is on its way */
        return ls_task_yield(L, LS_WAIT_WRITE, 0, keep_continue);
    }
    if (ended && tcp != NULL && (s = ls_tcp_detach(tcp)) != NULL)
        ls_stream_pool_put(state->ctx, ls_state_runtime(state)->streams, key, len, s);
    call_drop(call);
    return ls_push_boolean(L, s != NULL);
}

/* call:keep(key) -> whether the connection went to the pool; else it is closed, as when the server stops. `key`: see
 * net/stream/stream_pool.h. */
static int call_keep(lua_State *L)
{
    (void)check_call(L);
    (void)luaL_checkstring(L, 2);
    lua_settop(L, 2);
    return keep_continue(L, LUA_OK, 0);
}

/* call:close(): close the connection, if the call still has it. */
static int call_close(lua_State *L)
{
    call_drop(check_call(L));
    return 0;
}

/* call:release(): the head was read, and the connection is to be used in another way: the call has no part in it any
 * more. */
static int call_release(lua_State *L)
{
    client_call *call = check_call(L);
    ls_task_end_remove(&call->end);
    call->released = true;
    return 0;
}

/* core.client_take(key [, repeats]) -> an idle connection of the origin as a sock | nil. repeats: see
 * ls_stream_pool_take. */
static int client_take(lua_State *L)
{
    static const ls_tcp_config config = {.receive_ms_max = 60000,
                                         .send_ms_max = 60000,
                                         .write_bytes_high = UINT32_MAX, /* fetch.lua calls sock:flush */
                                         .queue_bytes_max = 1 << 20,
                                         .line_bytes_max = 1 << 16,
                                         .message_bytes_max = 1 << 23};
    ls_state *state = ls_state_of(L);
    const ls_text key = ls_check_text(L, 1);
    const bool repeats = lua_toboolean(L, 2);
    if (state->port == NULL) return 0;
    ls_tcp_object *object = ls_tcp_push(L, NULL);
    ls_stream *s = ls_stream_pool_take(state->ctx, ls_state_runtime(state)->streams, key.ptr, key.len, repeats);
    if (s == NULL) return 0;
    memset(ls_stream_user(s), 0, ls_tcp_own_bytes);
    ls_stream_handover(s, &ls_tcp_handler);
    ls_tcp_attach(object, ls_tcp_connected(state, s, &config));
    return 1;
}

/* core.client_call(sock, asked [, seconds]) -> call. seconds: as of call:within. `asked`: "head", the request is HEAD; "upgrade", a response 101 may follow; else
 * "body". */
static int client_new(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    ls_tcp_object *sock = ls_tcp_check(L);
    static const char *const names[] = {
        [LS_ASKED_BODY] = "body", [LS_ASKED_HEAD] = "head", [LS_ASKED_UPGRADE] = "upgrade", NULL};
    const enum ls_asked asked = (enum ls_asked)luaL_checkoption(L, 2, NULL, names);
    client_call *call = ls_object_push(L, sizeof *call, 1, &call_type);
    call->sock = sock;
    call->state = state;
    lua_pushvalue(L, 1);
    (void)lua_setiuservalue(L, -2, 1);
    call->deadline_ns = lua_isnoneornil(L, 3) ? 0 : ls_task_deadline(ls_check_seconds(L, 3));
    ls_http_client_init(&call->c, asked, HEAD_BYTES_MAX);
    call->c.unfolds = true;
    call->end.run = task_ended;
    if (state->current != NULL) ls_task_end_add(state->current, &call->end);
    return 1;
}

/* ---- the module
 * -------------------------------------------------------------------------------------------------- */

static const luaL_Reg methods[] = {{"head", call_head},     {"read", call_read},       {"all", call_all},
                                   {"within", call_within}, {"decode", call_decode},   {"keep", call_keep},
                                   {"close", call_close},   {"release", call_release}, {NULL, NULL}};
static const ls_object_type call_type = {.name = "call", .methods = methods, .drop = call_close};

/* A handler of this server may wait at the other end of an idle connection. */
static void client_end(ls_thread_ctx *ctx, ls_state *state, enum ls_end_why why)
{
    if (why == LS_END_STOP) ls_stream_pool_drain(ctx, ls_state_runtime(state)->streams);
}

/* core.codings() -> { { name =, min =, max =, usual = the levels }... }: those that are built in, the best first */
static int core_codings(lua_State *L)
{
    static const enum ls_coding order[LS_CODINGS] = {LS_CODING_ZSTD, LS_CODING_BR, LS_CODING_GZIP};
    lua_newtable(L);
    for (unsigned n = 0; n < LS_CODINGS; n++) {
        const ls_coding_type *type = ls_codings[order[n]];
        if (!ls_coding_built(order[n])) continue;
        lua_createtable(L, 0, 4);
        ls_set_text(L, "name", type->name);
        ls_set_integer(L, "min", type->level_min);
        ls_set_integer(L, "max", type->level_max);
        ls_set_integer(L, "usual", type->level_default);
        lua_rawseti(L, 1, (lua_Integer)lua_rawlen(L, 1) + 1);
    }
    return 1;
}

static const luaL_Reg functions[] = {
    {"client_take", client_take}, {"client_call", client_new}, {"codings", core_codings}, {NULL, NULL}};

const ls_module ls_client_call_module = {.name = "client_call", .functions = functions, .end = client_end};
