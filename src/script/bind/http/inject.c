/* inject.c - app:inject: a request without a socket. Its exchange is one in memory (http/exchange_memory.h).
 *
 * The object is on the stack of the calling task, which waits until the exchange has ended. While the site loads
 * there is no task that could wait: the request runs inside the call, and a call that would wait raises. */

#include "base/crypto/random.h"
#include "base/err.h"
#include "codec/http_head_check.h"
#include "http/exchange_memory.h"
#include "net/sock/addr.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http/http_task.h"

enum {
    INJECT_NESTED_MAX = 16, /* while the site loads: nested requests share the C stack */
    INJECT_HEAD_MAX = 65536 /* bytes of the method, the target, the names and the values */
};

/* Limits by address work in tests. */
static const ls_addr client = {.family = LS_ADDR_IP4, .bytes_len = 4, .bytes = {127, 0, 0, 1}};

typedef struct inject_data { /* of a state */
    uint64_t last_id;        /* of a request; counted from a random number, 0: none yet */
    unsigned nested;         /* nesting depth while the site loads */
} inject_data;

typedef struct injected {
    const void *tag;
    ls_state *state;
    ls_task *waiter;
    int dispatch_ref, failed_ref;
    ls_memory_exchange m; /* user values keep the text of the head and the body of the request alive */
} injected;

static void inject_ended(ls_thread_ctx *ctx, ls_memory_exchange *m)
{
    injected *in = LS_CONTAINER(m, injected, m);
    ls_task *waiter = in->waiter;
    in->waiter = NULL;
    if (waiter != NULL) ls_task_wake(ctx, waiter, LS_OK);
}

/* ---- the call ---------------------------------------------------------------------------------------------- */

static int inject_gc(lua_State *L)
{
    injected *in = lua_touserdata(L, 1);
    ls_memory_exchange_free(&in->m);
    luaL_unref(L, LUA_REGISTRYINDEX, in->dispatch_ref);
    luaL_unref(L, LUA_REGISTRYINDEX, in->failed_ref);
    in->dispatch_ref = in->failed_ref = LUA_NOREF;
    return 0;
}

static const ls_object_type injected_type = {.name = "injected request", .drop = inject_gc};

static void push_field(lua_State *L, lua_Integer *count, const char *name, size_t name_len)
{
    /* The value is on top of the stack, the list below it. */
    lua_rawseti(L, -2, *count += 2);
    lua_pushlstring(L, name, name_len);
    lua_rawseti(L, -2, *count - 1);
}

/* Push a list of the names and values of fields in turn. Returns its length. */
static lua_Integer push_lines(lua_State *L, const ls_exchange *x,
                              bool (*next)(const ls_exchange *x, size_t *at, ls_pair *out))
{
    ls_pair field;
    lua_Integer count = 0;
    lua_newtable(L);
    for (size_t at = 0; next(x, &at, &field);) {
        lua_pushlstring(L, field.value, field.value_len);
        push_field(L, &count, field.name, field.name_len);
    }
    return count;
}

static void push_fields(lua_State *L, const ls_memory_exchange *m)
{
    lua_Integer count = push_lines(L, &m->x, ls_exchange_next_field);
    if (m->x.type != NULL) {
        lua_pushstring(L, m->x.type);
        push_field(L, &count, "Content-Type", 12);
    }
    if (m->length >= 0) {
        lua_pushfstring(L, "%I", (lua_Integer)m->length);
        push_field(L, &count, "Content-Length", 14);
    }
}

/* The object is on top of the stack. */
static int inject_result(lua_State *L, injected *in)
{
    ls_memory_exchange *m = &in->m;
    if (m->failed < 0) {
        ls_memory_exchange_free(m); /* up to 256 MiB, which need not wait for a collection */
        return ls_push_failure(L, m->failed);
    }
    if (!ls_memory_exchange_complete(m))
        return ls_push_failure_text(L, LS_ECLOSED,
                                    m->x.response == LS_RESPONSE_NONE ? "the request ended without a response"
                                                                      : "the response is incomplete");
    lua_pushinteger(L, m->x.status);
    push_fields(L, m);
    lua_pushlstring(L, m->response != NULL ? m->response : "", m->response_len);
    (void)push_lines(L, &m->x, ls_exchange_next_end_field);
    ls_memory_exchange_free(m);
    return 4;
}

static int inject_waited(lua_State *L, int status, lua_KContext context)
{
    return inject_result(L, lua_touserdata(L, -1));
}

static void inject_start(ls_thread_ctx *ctx, ls_op *op)
{
    injected *in = LS_CONTAINER(op, injected, m.x.op);
    ls_http_task_start(ctx, in->state, &in->m.x, in->dispatch_ref, in->failed_ref, 0);
}

/* Move the string on top of the stack to the text. */
static ls_span move_to(luaL_Buffer *text)
{
    const ls_span span = {(uint32_t)luaL_bufflen(text), (uint32_t)lua_rawlen(text->L, -1)};
    luaL_addvalue(text);
    return span;
}

/* Fill the head of a request: its method is at 3, its target at 4, the names and values of its fields, in turn, in the
 * list at 5. Pushes the text of its spans. 0 or -(HTTP status). */
static int push_head(lua_State *L, ls_exchange *x, const char **why)
{
    const lua_Unsigned count = lua_rawlen(L, 5);
    luaL_Buffer text;
    ls_http_terms terms;
    luaL_buffinit(L, &text);
    x->head.version = 11;
    lua_pushvalue(L, 3);
    x->head.method_name = move_to(&text);
    lua_pushvalue(L, 4);
    x->head.target = move_to(&text);
    for (lua_Unsigned n = 0; n < count && x->head.field_count < LS_HTTP_FIELDS_MAX; n += 2) {
        ls_http_field *field = &x->head.fields[x->head.field_count++];
        (void)lua_rawgeti(L, 5, (lua_Integer)n + 1);
        field->name = move_to(&text);
        (void)lua_rawgeti(L, 5, (lua_Integer)n + 2);
        field->value = move_to(&text);
    }
    const size_t bytes = luaL_bufflen(&text);
    luaL_pushresult(&text);
    x->bytes = lua_tostring(L, -1);
    *why = bytes > INJECT_HEAD_MAX ? "request head too large" : "too many fields";
    if (bytes > INJECT_HEAD_MAX || count > 2 * (lua_Unsigned)LS_HTTP_FIELDS_MAX) return -431;
    return ls_http_head_complete(&x->head, x->bytes, &terms, why);
}

/* Push the object for a request, whose body is at 6. NULL: its head is invalid, and nil, message, code were pushed. */
static injected *push_request(lua_State *L, const char *body, size_t body_len)
{
    const char *why;
    injected *in = ls_object_push(L, sizeof *in, 2, &injected_type);
    ls_memory_exchange_init(&in->m, body, body_len);
    in->dispatch_ref = in->failed_ref = LUA_NOREF;
    lua_pushvalue(L, 6);
    lua_setiuservalue(L, -2, 1);
    const int err = push_head(L, &in->m.x, &why);
    lua_setiuservalue(L, -2, 2);
    if (err == 0) return in;
    (void)ls_push_failure_text(L, LS_EINVAL, "malformed request: %s (%d)", why, -err);
    return NULL;
}

/* core.inject(dispatch, failed, method, target, fields [, body [, body_bytes_max]]) -> status, fields, body, trailers
 * | nil, message, code. `fields` and `trailers`: names and values in turn. */
static int core_inject(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    inject_data *data = ls_state_data(state, LS_SLOT_inject);
    size_t body_len = 0;
    luaL_checktype(L, 1, LUA_TFUNCTION);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    (void)luaL_checkstring(L, 3);
    (void)luaL_checkstring(L, 4);
    luaL_checktype(L, 5, LUA_TTABLE);
    const char *body = luaL_optlstring(L, 6, NULL, &body_len);
    const uint64_t body_bytes_max = (uint64_t)luaL_optinteger(L, 7, -1);
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
    in->m.released = inject_ended;
    in->m.x.remote = &client;
    if (data->last_id == 0) ls_random(&data->last_id, sizeof data->last_id);
    in->m.x.id = ++data->last_id;
    in->m.x.body_bytes_max = body_bytes_max;
    if (state->loading) {
        state->load_waited = false;
        data->nested++;
        inject_start(state->ctx, &in->m.x.op);
        data->nested--;
        if (!state->load_waited && in->m.x.released) return inject_result(L, in);
        return ls_push_failure(L, LS_EBUSY); /* it waits; app.lua says so */
    }
    in->m.x.op = (ls_op){.done = inject_start, .actor = &state->actor};
    in->waiter = state->current;
    ls_actor_post(&state->actor, state->ctx, &in->m.x.op);
    return ls_task_yield(L, LS_WAIT_HELD, 0, inject_waited); /* until the exchange has ended */
}

static const luaL_Reg functions[] = {{"inject", core_inject}, {NULL, NULL}};

const ls_module ls_inject_module = {.name = "inject", .bytes = sizeof(inject_data), .functions = functions};
