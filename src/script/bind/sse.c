/* sse.c - see sse.h: res:sse, the messages of topics, the keep-alive, and the ends.
 *
 * The keep-alive of all objects of a state is a wheel with one timer. Each object is checked twice in its time: one
 * that has written nothing since the check before writes a comment. So a message costs one store, and no reading of a
 * clock. */
#include "script/bind/sse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/err.h"
#include "proto/sse_event.h"
#include "script/bind/bind.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http_task.h"
#include "script/bind/option.h"
#include "script/bind/res.h"

enum { KEEPALIVE_MS = 15000, QUEUE_BYTES_MAX = 1 << 20 };

typedef struct sse_data { /* of a state */
    ls_node open;
    ls_wheel *wheel; /* NULL: no object has had a keep-alive yet */
    ls_timer timer;
    uint32_t timer_ms;
    bool armed; /* the timer is armed, or its packet is on its way */
    int meta_ref;
} sse_data;

static sse_data *data_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_sse);
}

static uint32_t now_ms(void)
{
    return (uint32_t)ls_clock_coarse_ms();
}

/* ---- the ends --------------------------------------------------------------------------------------------------- */

/* Nothing refers to the object any more but Lua. */
static void detach(ls_sse *sse)
{
    ls_subscriber_end(&sse->subscriber);
    ls_wheel_remove(&sse->entry);
    ls_list_remove(&sse->node);
    sse->request->owned = NULL;
    sse->request = NULL;
    luaL_unref(sse->state->L, LUA_REGISTRYINDEX, sse->ref);
    sse->ref = LUA_NOREF;
}

/* The same, and wake the tasks that wait for its end or its queue. They may end the request. */
static void end(ls_thread_ctx *ctx, ls_sse *sse)
{
    ls_request *r = sse->request;
    detach(sse);
    ls_task_wake_all(ctx, &r->waiters, LS_OK);
}

bool ls_sse_is_open(ls_thread_ctx *ctx, ls_sse *sse)
{
    if (sse->request == NULL) return false;
    const ls_exchange *x = sse->request->x;
    if (x->error == 0 && x->response != LS_RESPONSE_DONE) return true;
    end(ctx, sse);
    return false;
}

void ls_sse_finish(ls_thread_ctx *ctx, ls_sse *sse)
{
    ls_request *r = sse->request;
    ls_exchange *x = r->x;
    if (x->response != LS_RESPONSE_DONE && ls_request_push_parts(ctx, r) >= 0 &&
        x->transport->finish(ctx, x) == LS_DONE)
        (void)x->transport->flush(ctx, x);
    end(ctx, sse);
}

static void drop(ls_thread_ctx *ctx, void *sse)
{
    (void)ctx;
    detach(sse);
}

size_t ls_sse_queued(const ls_sse *sse)
{
    const ls_request *r = sse->request;
    const size_t collected = r->out != NULL ? r->out_len - r->out_from : 0;
    return r->x->transport->queued(r->x) + collected;
}

/* ---- topics ----------------------------------------------------------------------------------------------------- */

/* The event of a message, as a chunk of HTTP/1.1. */
static int encode(ls_thread_ctx *ctx, const ls_publication *p, ls_slice *out)
{
    char line[20];
    const ls_sse_event event = {.name = p->event.len > 0 ? p->event.ptr : NULL,
                                .name_len = p->event.len,
                                .id = p->id.len > 0 ? p->id.ptr : NULL,
                                .id_len = p->id.len,
                                .data = p->data.ptr != NULL ? p->data.ptr : "",
                                .data_len = p->data.len,
                                .retry_ms = -1};
    const size_t bytes = ls_sse_event_bytes(&event);
    const size_t line_len = (size_t)snprintf(line, sizeof line, "%zx\r\n", bytes);
    char *to = ls_topic_form_room(line_len + bytes + 2, out);
    (void)ctx;
    if (to == NULL) return LS_ENOMEM;
    memcpy(to, line, line_len);
    to = ls_sse_event_write(&event, to + line_len);
    to[0] = '\r';
    to[1] = '\n';
    return LS_OK;
}

/* Whether the queue has room for `len` bytes more. An empty queue has room for any message. */
static bool has_room(const ls_sse *sse, size_t len)
{
    const size_t queued = ls_sse_queued(sse), max = sse->queue_bytes_max;
    return queued == 0 || (queued <= max && len <= max - queued);
}

/* Collect a message that arrives before the head has left. false: there is not enough room. */
static bool collect_chunk(ls_request *r, const ls_slice *chunk)
{
    const ls_slice data = ls_exchange_chunk_data(chunk);
    if (data.len > r->out->cap - r->out_len) return false;
    memcpy(r->out->data + r->out_len, data.ptr, data.len);
    r->out_len += (uint32_t)data.len;
    ls_request_flush_later(r);
    return true;
}

static int deliver(ls_thread_ctx *ctx, ls_subscriber *subscriber, ls_publication *p)
{
    ls_sse *sse = LS_CONTAINER(subscriber, ls_sse, subscriber);
    ls_slice chunk;
    if (!ls_sse_is_open(ctx, sse)) return LS_ECLOSED;
    ls_request *r = sse->request;
    ls_exchange *x = r->x;
    int err = ls_publication_form(ctx, p, LS_FORM_SSE, encode, &chunk);
    if (err == LS_OK && !has_room(sse, chunk.len)) {
        err = LS_ELIMIT;
        if (sse->skip) return err;
        ls_topic_count_closed(subscriber->inbox);
    }
    if (err < 0) { /* also without memory: a message is missing, and the client connects again */
        x->transport->abort(ctx, x);
        end(ctx, sse);
        return err;
    }
    if (x->response == LS_RESPONSE_NONE && r->out != NULL && collect_chunk(r, &chunk)) return LS_OK;
    if (r->out != NULL) (void)ls_request_push_parts(ctx, r);  /* they were written before */
    const bool now = !ls_topic_inbox_more(subscriber->inbox); /* else several leave in one send */
    err = x->transport->write_chunk(ctx, x, &chunk, now);
    if (err < 0) {
        end(ctx, sse);
        return err == LS_ENOMEM ? err : LS_ECLOSED;
    }
    if (err == LS_PENDING) ls_request_flush_later(r);
    sse->active = true;
    return LS_OK;
}

static void prefetch(const ls_subscriber *subscriber, unsigned ahead)
{
    const ls_request *r = LS_CONTAINER(subscriber, ls_sse, subscriber)->request;
    if (r == NULL) return;
    if (ahead == 4)
        LS_PREFETCH(r);
    else if (ahead == 3)
        LS_PREFETCH(r->x);
    else if (r->x->transport->prefetch != NULL)
        r->x->transport->prefetch(r->x, ahead == 2 ? 0 : 1);
}

static const ls_subscriber_kind sse_kind = {deliver, prefetch};

/* ---- keep-alive ------------------------------------------------------------------------------------------------- */

static void arm(ls_state *state)
{
    sse_data *data = data_of(state);
    uint32_t at_ms;
    if (state->port == NULL || !ls_wheel_next(data->wheel, &at_ms)) return;
    const int32_t ahead_ms = (int32_t)(at_ms - now_ms());
    const uint64_t at_ns = (ls_clock_coarse_ms() + (ahead_ms > 0 ? (uint32_t)ahead_ms : 0)) * 1000000u;
    if (!data->armed) {
        data->armed = ls_timer_set(state->port, &data->timer, at_ns) == LS_OK; /* else the next object tries again */
        data->timer_ms = at_ms;
    } else if ((int32_t)(at_ms - data->timer_ms) < 0 && ls_timer_move(state->port, &data->timer, at_ns)) {
        data->timer_ms = at_ms;
    }
}

/* Write a comment, unless the client has not taken earlier bytes: then the deadline of the send decides. false: the
 * object is closed, and perhaps freed. */
static bool keep_alive(ls_thread_ctx *ctx, ls_sse *sse)
{
    ls_request *r = sse->request;
    ls_exchange *x = r->x;
    ls_slice comment = ls_slice_static(":\n\n", 3);
    if (ls_sse_queued(sse) > 0) return true;
    if (x->transport->write(ctx, x, &comment, 1) >= 0 && x->transport->flush(ctx, x) >= 0) return true;
    end(ctx, sse);
    return false;
}

static void tick(ls_thread_ctx *ctx, ls_op *op)
{
    ls_state *state = (ls_state *)(void *)op->actor;
    sse_data *data = data_of(state);
    const uint32_t now = (uint32_t)(ls_clock_ns() / 1000000u); /* the coarse clock may be behind the timer */
    ls_node due;
    data->armed = false;
    ls_node_init(&due);
    ls_wheel_advance(data->wheel, now, &due);
    while (!ls_list_empty(&due)) {
        ls_sse *sse = LS_CONTAINER(due.next, ls_sse, entry.node);
        ls_wheel_remove(&sse->entry);
        /* A task that this wakes may end others: they leave `due`. */
        if (!sse->active && (!ls_sse_is_open(ctx, sse) || !keep_alive(ctx, sse))) continue;
        sse->active = !sse->active; /* the comment counts */
        ls_wheel_add(data->wheel, &sse->entry, now + sse->check_ms);
    }
    arm(state);
}

/* Keep-alives begin. LS_OK or LS_ENOMEM. */
static int begin_keepalive(ls_state *state, ls_sse *sse)
{
    sse_data *data = data_of(state);
    if (sse->check_ms == 0) return LS_OK;
    if (data->wheel == NULL) {
        if ((data->wheel = malloc(sizeof *data->wheel)) == NULL) return LS_ENOMEM;
        ls_wheel_open(data->wheel, now_ms());
    }
    ls_node none;
    ls_node_init(&none);
    uint32_t at_ms;
    if (!ls_wheel_next(data->wheel, &at_ms)) ls_wheel_advance(data->wheel, now_ms(), &none); /* it is empty */
    ls_wheel_add(data->wheel, &sse->entry, now_ms() + sse->check_ms);
    arm(state);
    return LS_OK;
}

/* ---- res:sse ---------------------------------------------------------------------------------------------------- */

typedef struct sse_options {
    int64_t retry_ms; /* -1: none */
    uint32_t keepalive_ms, queue_bytes_max;
    bool skip;
} sse_options;

/* Read the options at index 2 and set their header fields. */
static sse_options read_options(lua_State *L, ls_request *r)
{
    sse_options out = {-1, KEEPALIVE_MS, QUEUE_BYTES_MAX, false};
    uint64_t retry_ms;
    if (lua_isnil(L, 2)) return out;
    if (!ls_push_function(L, "luaserve.sse", "options")) luaL_error(L, "res:sse: luaserve is not loaded");
    lua_insert(L, 2);
    lua_call(L, 1, 1);
    if (ls_option_number(L, 2, "retry_ms", UINT32_MAX, &retry_ms)) out.retry_ms = (int64_t)retry_ms;
    ls_option_u32(L, 2, "keepalive_ms", UINT32_MAX, &out.keepalive_ms);
    ls_option_u32(L, 2, "queue_bytes_max", UINT32_MAX, &out.queue_bytes_max);
    out.skip = ls_option_flag(L, 2, "skip");
    if (lua_getfield(L, 2, "headers") == LUA_TTABLE) {
        lua_pushnil(L);
        while (lua_next(L, 3) != 0) {
            ls_request_set_header(L, r, 4, 5);
            lua_settop(L, 4);
        }
    }
    lua_settop(L, 2);
    return out;
}

/* Add a field unless the site has set it. */
static void add_field(lua_State *L, ls_request *r, const char *name, const char *value, bool replace)
{
    if (!replace && ls_exchange_has_field(r->x, name, strlen(name))) return;
    if (ls_exchange_header(r->state->ctx, r->x, name, strlen(name), value, strlen(value), true) < 0)
        luaL_error(L, "res:sse: not enough room for the header fields");
}

/* Begin the response with the parts collected in `block`, behind which the head leaves when the task waits or ends: by
 * then it has subscribed, and a client that has the head misses no message; and an error before that is a 500. */
static void begin(ls_request *r, ls_block *block, int64_t retry_ms)
{
    const ls_sse_event retry = {.retry_ms = retry_ms};
    r->x->length = -1;
    r->out = block;
    r->out_from = 0;
    r->out_len = retry_ms >= 0 ? (uint32_t)(ls_sse_event_write(&retry, block->data) - block->data) : 0;
    ls_request_flush_later(r);
}

void ls_sse_send_parts(ls_sse *sse)
{
    ls_request *r = sse->request;
    if (r->out == NULL) return;
    (void)ls_request_push_parts(sse->state->ctx, r);
    ls_block_drop(r->out);
    r->out = NULL;
    r->out_from = r->out_len = 0;
}

/* res:sse([options]) -> sse | nil, message, code
 * Begins a stream of events, and returns the object that writes them. The head leaves when the task first waits. The
 * object is closed when the handler ends. Raises when the response has begun, for a status other than 200, and for
 * invalid options. WHATWG HTML section 9.2. */
int ls_res_sse(lua_State *L)
{
    ls_request *r = ls_res_check_open(L);
    ls_state *state = r->state;
    ls_check_arguments(L, 2, "res:sse{ retry = 2 }");
    lua_settop(L, 2);
    const sse_options options = read_options(L, r);
    if (r->x->status != 200)
        return luaL_error(L, "res:sse: the status of a stream of events must be 200, not %d", r->x->status);
    add_field(L, r, "Content-Type", "text/event-stream", true);
    add_field(L, r, "Cache-Control", "no-cache", false);
    add_field(L, r, "X-Accel-Buffering", "no", false);
    ls_sse *sse = lua_newuserdatauv(L, sizeof *sse, 0);
    memset(sse, 0, sizeof *sse);
    sse->tag = &ls_sse_tag;
    sse->state = state;
    sse->ref = LUA_NOREF;
    lua_rawgeti(L, LUA_REGISTRYINDEX, data_of(state)->meta_ref);
    lua_setmetatable(L, -2);
    lua_pushvalue(L, -1);
    sse->ref = luaL_ref(L, LUA_REGISTRYINDEX);
    ls_block *block = ls_block_get(state->ctx->pool, LS_BLOCK_SMALL);            /* from here on nothing raises */
    if (block == NULL || r->x->response != LS_RESPONSE_NONE || r->out != NULL) { /* a finalizer has responded */
        luaL_unref(L, LUA_REGISTRYINDEX, sse->ref);
        if (block == NULL) return ls_push_failure(L, LS_ENOMEM);
        ls_block_drop(block);
        (void)ls_res_check_open(L);
    }
    begin(r, block, options.retry_ms);
    sse->request = r;
    sse->check_ms = options.keepalive_ms - options.keepalive_ms / 2;
    sse->queue_bytes_max = options.queue_bytes_max;
    sse->skip = options.skip;
    sse->active = true;
    ls_subscriber_init(&sse->subscriber, ls_topic_inbox_of(state), &sse_kind);
    ls_node_init(&sse->node);
    ls_list_push(&data_of(state)->open, &sse->node);
    ls_http_task_owns(r, sse, drop);
    int err = r->x->error;
    if (err == 0 && r->x->transport->expect_end != NULL) err = r->x->transport->expect_end(state->ctx, r->x);
    if (err == 0) err = begin_keepalive(state, sse);
    if (err < 0) {
        end(state->ctx, sse);
        return ls_push_failure(L, err);
    }
    /* A response to HEAD has no events; a client that asks an old site is to ask the new one. */
    if (r->x->head.method == LS_HTTP_HEAD || state->retired) ls_sse_finish(state->ctx, sse);
    return 1;
}

/* ---- the module ------------------------------------------------------------------------------------------------- */

static void sse_define(lua_State *L, ls_state *state)
{
    sse_data *data = data_of(state);
    ls_node_init(&data->open);
    data->timer.op.actor = &state->actor;
    data->timer.op.done = tick;
    ls_sse_define(L, &data->meta_ref);
}

/* The clients connect again: to the new site, or to another server. */
static void sse_retire(ls_thread_ctx *ctx, ls_state *state)
{
    const ls_node *open = &data_of(state)->open;
    while (!ls_list_empty(open)) ls_sse_finish(ctx, LS_CONTAINER(open->next, ls_sse, node));
}

static void sse_close(ls_thread_ctx *ctx, ls_state *state)
{
    sse_data *data = data_of(state);
    while (!ls_list_empty(&data->open)) end(ctx, LS_CONTAINER(data->open.next, ls_sse, node));
    if (data->armed && ls_timer_cancel(ctx->port, &data->timer)) data->armed = false;
}

static bool sse_closed(ls_state *state)
{
    return !data_of(state)->armed;
}

static void sse_abandon(ls_state *state)
{
    const ls_node *open = &data_of(state)->open;
    while (!ls_list_empty(open)) detach(LS_CONTAINER(open->next, ls_sse, node));
}

static void sse_free(ls_state *state)
{
    free(data_of(state)->wheel);
}

const ls_module ls_sse_module = {.name = "sse",
                                 .bytes = sizeof(sse_data),
                                 .define = sse_define,
                                 .retire = sse_retire,
                                 .close = sse_close,
                                 .closed = sse_closed,
                                 .abandon = sse_abandon,
                                 .free = sse_free};
