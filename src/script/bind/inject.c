/* inject.c - app:inject: a request without a socket. The transport of its exchange stores the response in memory.
 *
 * The object is on the stack of the calling task, which waits until the exchange has ended. While the site loads
 * there is no task that could wait: the request runs inside the call, and a call that would wait raises. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "net/addr.h"
#include "port/shared_file.h"
#include "proto/http_config.h"
#include "proto/http_text.h"
#include "script/bind/bind.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http_task.h"
#include "script/bind/modules.h"
#include "script/bind/request.h"

enum {
    INJECT_BYTES_MAX = 256 * 1024 * 1024, /* of the fields or the body of a response */
    INJECT_NESTED_MAX = 16,               /* while the site loads: nested requests share the C stack */
};

typedef struct inject_data { /* of a state */
    uint64_t injected;       /* number of requests so far */
    unsigned nested;         /* nesting depth while the site loads */
} inject_data;

typedef struct inject_text {
    char *bytes;
    size_t len, room;
} inject_text;

typedef struct injected {
    ls_state *state;
    ls_task *waiter;
    ls_op op; /* starts the request */
    int dispatch_ref, failed_ref;
    const char *body; /* of the request; a user value keeps it alive, as it does the head */
    size_t body_len;
    bool ended, complete, too_large;
    inject_text fields, response_body;
    ls_exchange x;
} injected;

static bool text_add(inject_text *text, const char *bytes, size_t len)
{
    if (len > text->room - text->len) {
        size_t room = text->room == 0 ? 256 : text->room;
        char *grown;
        if (len > INJECT_BYTES_MAX - text->len) return false;
        while (room < text->len + len) room *= 2;
        grown = realloc(text->bytes, room);
        if (grown == NULL) return false;
        text->bytes = grown;
        text->room = room;
    }
    if (len > 0) memcpy(text->bytes + text->len, bytes, len);
    text->len += len;
    return true;
}

/* ---- the transport ----------------------------------------------------------------------------------------- */

static const ls_addr *inject_local(const ls_exchange *x)
{
    (void)x;
    return NULL;
}

static int inject_read(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *out)
{
    const injected *in = x->conn;
    (void)ctx;
    if (in->body_len > x->body_bytes_max) return LS_EMSGSIZE;
    *out = ls_slice_static(in->body, x->body_done ? 0 : in->body_len);
    x->body_bytes = in->body_len;
    x->body_done = true;
    return LS_DONE;
}

static void copy_head(injected *in)
{
    ls_exchange *x = &in->x;
    if (x->fields != NULL && !text_add(&in->fields, x->fields->data, x->fields_len)) in->too_large = true;
    if (!x->has_type && x->type != NULL) {
        if (!text_add(&in->fields, "Content-Type: ", 14) || !text_add(&in->fields, x->type, strlen(x->type)) ||
            !text_add(&in->fields, "\r\n", 2))
            in->too_large = true;
    }
}

/* false: the text is too long, or the file cannot be read. */
static bool add_slice(inject_text *text, const ls_slice *slice)
{
    char part[4096];
    if (!ls_slice_is_file(slice)) return text_add(text, slice->ptr, slice->len);
    for (size_t at = 0; at < slice->len;) {
        const size_t left = slice->len - at;
        const int64_t n = ls_shared_file_read(ls_shared_file_of(slice), part, left < sizeof part ? left : sizeof part,
                                              ls_slice_offset(slice) + at);
        if (n <= 0 || !text_add(text, part, (size_t)n)) return false;
        at += (size_t)n;
    }
    return true;
}

static void copy_slices(injected *in, ls_slice *slices, unsigned count)
{
    const ls_exchange *x = &in->x;
    const bool dropped = x->head.method == LS_HTTP_HEAD || !ls_status_has_content(x->status);
    for (unsigned n = 0; n < count; n++) {
        if (!dropped && !add_slice(&in->response_body, &slices[n])) in->too_large = true;
        ls_slice_drop(&slices[n]);
    }
    in->x.body_sent = in->response_body.len;
}

static int inject_respond(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count)
{
    injected *in = x->conn;
    char length[48];
    size_t sum = 0;
    (void)ctx;
    copy_head(in);
    for (unsigned n = 0; n < count; n++) sum += slices[n].len;
    if (ls_status_is_framed(x->status)) {
        const int len = snprintf(length, sizeof length, "Content-Length: %zu\r\n", sum);
        if (!text_add(&in->fields, length, (size_t)len)) in->too_large = true;
    }
    copy_slices(in, slices, count);
    x->response = LS_RESPONSE_DONE;
    in->complete = true;
    return LS_DONE;
}

static int inject_write(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count)
{
    injected *in = x->conn;
    (void)ctx;
    if (x->response == LS_RESPONSE_NONE) copy_head(in);
    x->response = LS_RESPONSE_OPEN;
    copy_slices(in, slices, count);
    return LS_DONE;
}

static int inject_write_chunk(ls_thread_ctx *ctx, ls_exchange *x, const ls_slice *chunk, bool now)
{
    (void)now;
    ls_slice data = ls_exchange_chunk_data(chunk);
    (void)ls_block_hold(data.block);
    return inject_write(ctx, x, &data, 1);
}

static size_t inject_queued(const ls_exchange *x)
{
    (void)x;
    return 0;
}

static int inject_flush(ls_thread_ctx *ctx, ls_exchange *x)
{
    return x->response == LS_RESPONSE_DONE ? LS_DONE : inject_write(ctx, x, NULL, 0);
}

static int inject_finish(ls_thread_ctx *ctx, ls_exchange *x)
{
    injected *in = x->conn;
    (void)inject_write(ctx, x, NULL, 0);
    x->response = LS_RESPONSE_DONE;
    in->complete = true;
    return LS_DONE;
}

static void inject_abort(ls_thread_ctx *ctx, ls_exchange *x)
{
    injected *in = x->conn;
    (void)ctx;
    if (x->error == 0) x->error = LS_ECANCELED;
    in->complete = false;
}

static void inject_end(ls_thread_ctx *ctx, ls_exchange *x)
{
    injected *in = x->conn;
    ls_task *waiter = in->waiter;
    if (x->fields != NULL) {
        ls_block_drop(x->fields);
        x->fields = NULL;
    }
    in->ended = true;
    in->waiter = NULL;
    if (waiter != NULL) ls_task_wake(ctx, waiter, LS_OK);
}

static const ls_http_transport inject_transport = {
    .local = inject_local,
    .read = inject_read,
    .respond = inject_respond,
    .write = inject_write,
    .write_chunk = inject_write_chunk,
    .queued = inject_queued,
    .flush = inject_flush,
    .finish = inject_finish,
    .release = inject_end,
    .abort = inject_abort,
    .upgrade = ls_exchange_no_upgrade,
    .no_upgrade = "app:inject has no connection to hand over",
};

bool ls_is_injected(const ls_exchange *x)
{
    return x->transport == &inject_transport;
}

/* ---- the call ---------------------------------------------------------------------------------------------- */

static int inject_gc(lua_State *L)
{
    injected *in = lua_touserdata(L, 1);
    free(in->fields.bytes);
    free(in->response_body.bytes);
    if (in->x.fields != NULL) ls_block_drop(in->x.fields);
    luaL_unref(L, LUA_REGISTRYINDEX, in->dispatch_ref);
    luaL_unref(L, LUA_REGISTRYINDEX, in->failed_ref);
    in->fields.bytes = in->response_body.bytes = NULL;
    in->x.fields = NULL;
    in->dispatch_ref = in->failed_ref = LUA_NOREF;
    return 0;
}

/* Push an array of {name, value} for lines "Name: value\r\n". */
static void push_fields(lua_State *L, const inject_text *text)
{
    lua_Integer count = 0;
    lua_newtable(L);
    for (size_t at = 0; at < text->len;) {
        const char *line = text->bytes + at;
        const char *end = memchr(line, '\r', text->len - at);
        const char *colon = memchr(line, ':', (size_t)(end - line));
        lua_createtable(L, 2, 0);
        lua_pushlstring(L, line, (size_t)(colon - line));
        lua_rawseti(L, -2, 1);
        lua_pushlstring(L, colon + 2, (size_t)(end - colon - 2));
        lua_rawseti(L, -2, 2);
        lua_rawseti(L, -2, ++count);
        at += (size_t)(end - line) + 2;
    }
}

/* The object is on top of the stack. */
static int inject_result(lua_State *L, const injected *in)
{
    if (in->too_large) return ls_push_failure(L, LS_ELIMIT);
    if (!in->complete) {
        lua_pushnil(L);
        lua_pushstring(L, in->x.response == LS_RESPONSE_NONE ? "the request ended without a response"
                                                             : "the response is incomplete");
        lua_pushliteral(L, "ECLOSED");
        return 3;
    }
    lua_pushinteger(L, in->x.status);
    push_fields(L, &in->fields);
    lua_pushlstring(L, in->response_body.bytes != NULL ? in->response_body.bytes : "", in->response_body.len);
    return 3;
}

static int inject_waited(lua_State *L, int status, lua_KContext context)
{
    (void)status;
    (void)context;
    return inject_result(L, lua_touserdata(L, -1));
}

static void inject_start(ls_thread_ctx *ctx, ls_op *op)
{
    injected *in = LS_CONTAINER(op, injected, op);
    ls_http_task_start(ctx, in->state, &in->x, in->dispatch_ref, in->failed_ref);
}

/* Push the request head as text. Stack: method at 3, target at 4, headers at 5. */
static void push_head(lua_State *L, size_t body_len, bool has_body)
{
    bool host = false, length = false;
    const lua_Integer count = (lua_Integer)lua_rawlen(L, 5);
    lua_pushvalue(L, 3);
    lua_pushliteral(L, " ");
    lua_pushvalue(L, 4);
    lua_pushliteral(L, " HTTP/1.1\r\n");
    lua_concat(L, 4);
    for (lua_Integer n = 1; n <= count; n++) {
        size_t len;
        lua_rawgeti(L, 5, n);
        luaL_checktype(L, -1, LUA_TTABLE);
        lua_rawgeti(L, -1, 1);
        lua_rawgeti(L, -2, 2);
        const char *name = luaL_checklstring(L, -2, &len);
        (void)luaL_checkstring(L, -1);
        if (ls_text_same(name, len, "host", 4)) host = true;
        if (ls_text_same(name, len, "content-length", 14)) length = true;
        lua_pushvalue(L, -2);
        lua_pushliteral(L, ": ");
        lua_pushvalue(L, -3); /* the value */
        lua_pushliteral(L, "\r\n");
        lua_concat(L, 4);
        lua_insert(L, -4);
        lua_pop(L, 3); /* the value, the name, the pair */
        lua_concat(L, 2);
    }
    if (!host) {
        lua_pushliteral(L, "Host: localhost\r\n");
        lua_concat(L, 2);
    }
    if (has_body && !length) {
        lua_pushfstring(L, "Content-Length: %I\r\n", (LUAI_UACINT)body_len);
        lua_concat(L, 2);
    }
    lua_pushliteral(L, "\r\n");
    lua_concat(L, 2);
}

/* Push the object for a request (method at 3, target, headers, body at 6) and parse its head. NULL: the head is
 * invalid, and nil, message, code were pushed. */
static injected *push_request(lua_State *L, const char *body, size_t body_len)
{
    const ls_http_limits limits = {65536, 65536, LS_HTTP_FIELDS_MAX};
    const char *why = NULL;
    size_t head_len;
    injected *in = lua_newuserdatauv(L, sizeof *in, 2); /* 7 */
    memset(in, 0, sizeof *in);
    in->dispatch_ref = in->failed_ref = LUA_NOREF;
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, inject_gc);
    lua_setfield(L, -2, "__gc");
    lua_setmetatable(L, 7);
    lua_pushvalue(L, 6);
    lua_setiuservalue(L, 7, 1);
    push_head(L, body_len, body != NULL);
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, 7, 2);
    in->x.bytes = lua_tolstring(L, -1, &head_len);
    in->body = body != NULL ? body : "";
    in->body_len = body_len;

    const int parsed = ls_http1_parse(in->x.bytes, head_len, 0, &limits, &in->x.head, &why);
    if (parsed > 0 && (size_t)parsed == head_len) {
        lua_settop(L, 7);
        return in;
    }
    lua_pushnil(L);
    lua_pushfstring(L, "malformed request: %s (%d)", why != NULL ? why : "the head is incomplete",
                    parsed < 0 ? -parsed : 400);
    lua_pushliteral(L, "EINVAL");
    return NULL;
}

/* core.inject(dispatch, failed, method, target, headers, body|nil) -> status, headers, body | nil, message, code */
static int core_inject(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    inject_data *data = ls_state_data(state, LS_SLOT_inject);
    ls_http_config config;
    size_t body_len = 0;
    luaL_checktype(L, 1, LUA_TFUNCTION);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    (void)luaL_checkstring(L, 3);
    (void)luaL_checkstring(L, 4);
    luaL_checktype(L, 5, LUA_TTABLE);
    const char *body = luaL_optlstring(L, 6, NULL, &body_len);
    lua_settop(L, 6);
    if (!state->loading) ls_task_may_wait(L);
    if (data->nested == INJECT_NESTED_MAX)
        return luaL_error(L, "app:inject: more than %d nested requests while the site loads", INJECT_NESTED_MAX);

    injected *in = push_request(L, body, body_len);
    if (in == NULL) return 3;
    lua_pushvalue(L, 1);
    in->dispatch_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_pushvalue(L, 2);
    in->failed_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    in->state = state;
    in->x.transport = &inject_transport;
    in->x.conn = in;
    in->x.id = (uint64_t)1 << 63 | (uint64_t)state->index << 40 | ++data->injected;
    ls_http_config_defaults(&config);
    in->x.body_bytes_max = config.body_bytes_max;
    in->x.status = 200;
    in->x.length = -1;
    if (state->loading) {
        state->load_waited = false;
        data->nested++;
        inject_start(state->ctx, &in->op);
        data->nested--;
        if (!state->load_waited && in->ended) return inject_result(L, in);
        lua_pushnil(L);
        lua_pushliteral(L, "the handler waits, which is not possible while the site loads");
        lua_pushliteral(L, "EBUSY");
        return 3;
    }
    in->op.actor = &state->actor;
    in->op.done = inject_start;
    in->waiter = state->current;
    state->current->held = true; /* until the exchange has ended */
    ls_actor_post(&state->actor, state->ctx, &in->op);
    return ls_task_suspend(L, 0, inject_waited);
}

static const luaL_Reg functions[] = {{"inject", core_inject}, {NULL, NULL}};

const ls_module ls_inject_module = {.name = "inject", .bytes = sizeof(inject_data), .functions = functions};
