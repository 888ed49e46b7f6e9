/* sse_response.c - see sse_response.h: res:sse, the messages of topics, the keep-alive, and the ends.
 *
 * The keep-alive of all objects of a state is a wheel with one timer. Each object is checked twice in its time: one
 * that has written nothing since the check before writes a comment. So a message costs one store, and no reading of a
 * clock. */
#include "script/bind/sse/sse_response.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/err.h"
#include "base/io/log.h"
#include "codec/sse_event.h"
#include "script/bind/http/http_task.h"
#include "script/bind/http/respond.h"
#include "script/bind/option.h"

typedef struct sse_data { /* of a state */
    ls_node open;
    ls_wheel *wheel; /* NULL: no object has had a keep-alive yet */
    ls_timer timer;
    uint32_t timer_ms;
    bool armed; /* the timer is armed, or its packet is on its way */
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
    (void)ls_topic_deliver_waiting(ctx, sse->state, &sse->subscriber);
    ls_request *r = sse->request;
    if (r == NULL) return; /* its queue is full, or a send has failed */
    ls_exchange *x = r->x;
    if (x->response != LS_RESPONSE_DONE && ls_request_push_parts(ctx, r) >= 0 && ls_exchange_finish(ctx, x) == LS_DONE)
        (void)ls_exchange_flush(ctx, x);
    end(ctx, sse);
}

static void drop(ls_thread_ctx *ctx, void *sse)
{
    detach(sse);
}

/* The handler has returned: write the messages that wait. */
static void returned(ls_thread_ctx *ctx, void *owned)
{
    ls_sse *sse = owned;
    (void)ls_topic_deliver_waiting(ctx, sse->state, &sse->subscriber);
}

static const ls_response_kind events = {.drop = drop,
                                        .returned = returned,
                                        .no_write =
                                            "the response is a stream of events; write with sse:send or sse:comment"};

bool ls_sse_never_waited(const ls_request *r)
{
    const ls_sse *sse = r->kind == &events ? r->owned : NULL;
    return sse != NULL && sse->run == r->state->cpu->runs;
}

size_t ls_sse_queued(const ls_sse *sse)
{
    const ls_request *r = sse->request;
    const size_t collected = r->out.block != NULL ? r->out.len - r->out.from : 0;
    return ls_exchange_queued(r->x) + collected;
}

/* ---- topics ----------------------------------------------------------------------------------------------------- */

static ls_sse_event event_of(const ls_publication *p)
{
    return (ls_sse_event){.name = p->event.len > 0 ? p->event.ptr : NULL,
                          .name_len = p->event.len,
                          .id = p->id.len > 0 ? p->id.ptr : NULL,
                          .id_len = p->id.len,
                          .data = p->data.ptr != NULL ? p->data.ptr : "",
                          .data_len = p->data.len,
                          .retry_ms = -1};
}

/* The events of the messages, as a part with room around it. */
static int encode(ls_thread_ctx *ctx, const ls_publication *p, ls_slice *out)
{
    ls_sse_event event;
    size_t bytes = 0;
    for (unsigned n = 0; n < p->count; n++) {
        event = event_of(ls_publication_part(p, n));
        bytes += ls_sse_event_bytes(&event);
    }
    char *const room = ls_topic_form_room(LS_SHARED_BEFORE + bytes + LS_SHARED_AFTER, out);
    if (room == NULL) return LS_ENOMEM;
    char *to = room + LS_SHARED_BEFORE;
    ls_shared_part_frame(to, bytes);
    for (unsigned n = 0; n < p->count; n++) {
        event = event_of(ls_publication_part(p, n));
        to = ls_sse_event_write(&event, to);
    }
    return LS_OK;
}

/* Whether the queue has room for `len` bytes more. An empty queue has room for any single message. */
static bool has_room(const ls_sse *sse, size_t len, bool single)
{
    const size_t queued = ls_sse_queued(sse), max = sse->queue_bytes_max;
    return (queued == 0 && single) || (queued <= max && len <= max - queued);
}

/* Collect a message that arrives before the head has left. false: there is not enough room. */
static bool collect_part(ls_request *r, const ls_slice *part)
{
    if (part->len > r->out.block->cap - r->out.len) return false;
    memcpy(r->out.block->data + r->out.len, part->ptr, part->len);
    r->out.len += (uint32_t)part->len;
    ls_request_flush_later(r);
    return true;
}

static void log_full(const ls_exchange *x)
{
    char name[LS_REQUEST_NAME_BYTES], peer[LS_ADDR_TEXT_BYTES];
    ls_request_log_name(x, name);
    ls_log(LS_LOG_INFO, "%s: the stream of events for %s was ended: its queue is longer than max_queue", name,
           x->remote != NULL ? ls_addr_logged(x->remote, peer) : "app:inject");
}

static int deliver(ls_thread_ctx *ctx, ls_subscriber *subscriber, ls_publication *p)
{
    ls_sse *sse = LS_CONTAINER(subscriber, ls_sse, subscriber);
    ls_slice part;
    if (!ls_sse_is_open(ctx, sse)) return LS_ECLOSED;
    ls_request *r = sse->request;
    ls_exchange *x = r->x;
    int err = ls_publication_form(ctx, p, LS_FORM_SSE, encode, &part);
    if (err == LS_OK)
        part = (ls_slice){part.block, part.ptr + LS_SHARED_BEFORE, part.len - LS_SHARED_BEFORE - LS_SHARED_AFTER};
    if (err == LS_OK && !has_room(sse, part.len, p->count == 1)) {
        if (p->count > 1) return LS_EMSGSIZE;
        err = LS_ELIMIT;
        if (sse->skip) return err;
        ls_topic_count_closed(subscriber->inbox);
        log_full(x);
    }
    if (err < 0) { /* also without memory: a message is missing, and the client connects again */
        ls_exchange_abort(ctx, x);
        end(ctx, sse);
        return err;
    }
    if (x->response == LS_RESPONSE_NONE && r->out.block != NULL && collect_part(r, &part)) return LS_OK;
    if (r->out.block != NULL) (void)ls_request_push_parts(ctx, r); /* they were written before */
    const bool now = !ls_topic_inbox_more(subscriber->inbox);      /* else several leave in one send */
    err = ls_exchange_write_shared(ctx, x, &part, now);
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
    else if (r->x->stream != NULL && ahead == 2)
        LS_PREFETCH(r->x->stream);
    else if (r->x->stream != NULL)
        ls_stream_prefetch(r->x->stream);
}

static const ls_subscriber_kind sse_kind = {deliver, prefetch, true};

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
    if (ls_exchange_write(ctx, x, &comment, 1) >= 0 && ls_exchange_flush(ctx, x) >= 0) return true;
    end(ctx, sse);
    return false;
}

static void tick(ls_thread_ctx *ctx, ls_op *op)
{
    ls_state *state = ls_state_of_actor(op->actor);
    sse_data *data = data_of(state);
    const uint32_t now = (uint32_t)(ls_clock_ns() / 1000000u); /* the coarse clock may lag the timer */
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
    ls_node none = LS_LIST_INIT(none);
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

#define OPTION(field) LS_OPTION(sse_options, field)
static const ls_option options[] = {OPTION(retry_ms), OPTION(keepalive_ms), OPTION(queue_bytes_max), OPTION(skip),
                                    LS_OPTIONS_END};

/* Read the options at index 2 and set their header fields. */
static sse_options read_options(lua_State *L, ls_request *r)
{
    sse_options out = {.retry_ms = -1};
    ls_push_function(L, "luaserve.sse", "options");
    lua_insert(L, 2);
    lua_call(L, 1, 1);
    ls_options_read(L, 2, options, &out);
    if (lua_getfield(L, 2, "headers") == LUA_TTABLE) ls_request_set_headers(L, r, 3);
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

/* Begin the response with the parts collected in `block`, after which the head leaves when the task waits or ends: by
 * then it has subscribed, and a client that has the head misses no message; and an error before that is a 500. */
static void begin(ls_request *r, ls_block *block, int64_t retry_ms)
{
    const ls_sse_event retry = {.retry_ms = retry_ms};
    r->x->length = -1;
    r->out.block = block;
    r->out.from = 0;
    r->out.len = retry_ms >= 0 ? (uint32_t)(ls_sse_event_write(&retry, block->data) - block->data) : 0;
    ls_request_flush_later(r);
}

void ls_sse_send_parts(ls_sse *sse)
{
    ls_request *r = sse->request;
    if (r->out.block == NULL) return;
    (void)ls_request_push_parts(sse->state->ctx, r);
    ls_request_drop_parts(r);
}

/* res:sse([options: SseOptions]) -> sse
 * Begins a stream of server-sent events. The head leaves when the task first waits. The object is closed when the
 * handler ends. Raises when the response has begun, for a status other than 200, for invalid options, and when the
 * client has left. WHATWG HTML section 9.2. */
static int res_sse(lua_State *L)
{
    ls_request *r = ls_res_check_open(L);
    ls_state *state = r->state;
    ls_res_check_undescribed(L, r, "res:sse");
    lua_settop(L, 2);
    const sse_options given = read_options(L, r);
    if (r->x->status != 200)
        return luaL_error(L, "res:sse: the status of a stream of events must be 200, not %d", r->x->status);
    add_field(L, r, "Content-Type", "text/event-stream", true);
    add_field(L, r, "Cache-Control", "no-cache", false);
    add_field(L, r, "X-Accel-Buffering", "no", false);
    ls_sse *sse = ls_object_push(L, sizeof *sse, 0, &ls_sse_type);
    sse->state = state;
    sse->ref = LUA_NOREF;
    lua_pushvalue(L, -1);
    sse->ref = luaL_ref(L, LUA_REGISTRYINDEX);
    ls_block *block = ls_block_get(state->ctx->pool, LS_BLOCK_SMALL); /* from here on nothing raises */
    if (block == NULL || ls_request_has_begun(r)) {                   /* a finalizer has responded */
        luaL_unref(L, LUA_REGISTRYINDEX, sse->ref);
        if (block == NULL) return luaL_error(L, "res:sse: not enough memory");
        ls_block_drop(block);
        (void)ls_res_check_open(L);
    }
    begin(r, block, given.retry_ms);
    sse->request = r;
    sse->check_ms = given.keepalive_ms - given.keepalive_ms / 2;
    sse->queue_bytes_max = given.queue_bytes_max;
    sse->skip = given.skip;
    sse->run = state->cpu->runs;
    sse->active = true;
    ls_subscriber_init(&sse->subscriber, ls_topic_inbox_of(state), &sse_kind);
    ls_node_init(&sse->node);
    ls_list_push(&data_of(state)->open, &sse->node);
    ls_http_task_owns(r, sse, &events);
    int err = ls_exchange_expect_end(state->ctx, r->x);
    if (err == 0) err = begin_keepalive(state, sse);
    if (err < 0) {
        end(state->ctx, sse);
        return r->x->error != 0 ? ls_task_left_error(L, "") : luaL_error(L, "res:sse: %s", ls_err_text(err));
    }
    /* A response to HEAD has no events; a client that asks a previous site is to ask the new one. Its handler may not
     * notice. */
    if (r->x->head.method == LS_HTTP_HEAD || ls_generation_retired(state->generation) != 0) {
        ls_sse_finish(state->ctx, sse);
        ls_task_limit(r->task, r->time_ms_max);
    }
    return 1;
}

/* ---- the module ------------------------------------------------------------------------------------------------- */

static void sse_define(lua_State *L, ls_state *state)
{
    static const luaL_Reg methods[] = {{"res:sse(options)", res_sse}, {NULL, NULL}};
    sse_data *data = data_of(state);
    ls_node_init(&data->open);
    data->timer.op.actor = &state->actor;
    data->timer.op.done = tick;
    ls_request_methods(L, ls_requests_of(state)->res_meta_ref, methods);
}

/* The clients connect again: to the new site, or to another server. */
static void sse_ends(ls_thread_ctx *ctx, ls_state *state, enum ls_end_why why)
{
    if (why != LS_END_REPLACED && why != LS_END_STOP) return;
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

static bool sse_unused(ls_state *state)
{
    return !data_of(state)->armed && ls_list_empty(&data_of(state)->open);
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
                                 .end = sse_ends,
                                 .close = sse_close,
                                 .closed = sse_closed,
                                 .unused = sse_unused,
                                 .abandon = sse_abandon,
                                 .free = sse_free};
