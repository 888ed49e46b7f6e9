/* topic_function.c - ls.subscribe: a function of Lua as a subscriber.
 *
 * Each message runs the function in a task of its own, one at a time and in order; later messages wait in a queue. The
 * handle keeps itself in the registry until the subscription has ended, its queue is empty and no task runs.
 *
 * A subscription that the top of the file makes is a definition (core/generation.h): the function runs in the first
 * state only, once for the server, and the handles of the other states can end it, as with timers (tasks/time.c).
 *
 * Two generations of a site may exist at the same time, each with a function for the same messages. Every publication
 * belongs to one generation (ls_topics_site_starts), and a function gets those of its own. But one that a reload does
 * not end (scope.h), because it belongs to a connection, gets all messages. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/io/log.h"
#include "script/bind/bind_aux.h"
#include "script/bind/dev_mode.h"
#include "script/bind/option.h"
#include "script/bind/store/publish_internal.h"
#include "script/core/generation.h"
#include "script/core/lua/udata.h"
#include "script/core/task.h"

enum { QUEUE_MESSAGES_MAX = 1000, QUEUE_BYTES_MAX = 16777216, QUEUE_ROOM_MIN = 8 };

static const ls_object_type function_type;

typedef struct topic_function { /* the handle; user value 1 is the function, 2 the topic, 3 each_state */
    const void *tag;
    ls_subscriber subscriber;
    ls_state *state;
    ls_node node, ready; /* in the lists of the state */
    int self_ref;
    bool ended;             /* no further messages */
    bool elsewhere;         /* the first state has the function */
    _Atomic bool *canceled; /* by any state; the first one notices it at the next message. NULL: of one state */
    bool lagging;           /* a message was dropped since the queue was empty */
    uint8_t scope;          /* enum ls_scope: of the task that has subscribed */
    bool own;               /* of a topic of luaserve itself, as those of ls.on_presence */
    bool used;              /* it has received a message */
    ls_task_end handler;    /* that has subscribed */
    char line[80];          /* of the call */
    ls_task *task;
    ls_publication *current; /* of the task, until the function has its data */
    ls_publication **queue;  /* a ring */
    unsigned room, head, count;
    size_t bytes; /* of the data in the queue */
} topic_function;

/* ---- the queue ---------------------------------------------------------------------------------------------- */

static bool queue_grow(topic_function *f)
{
    const unsigned room = f->room > 0 ? f->room * 2 : QUEUE_ROOM_MIN;
    ls_publication **queue = malloc(room * sizeof(ls_publication *));
    if (queue == NULL) return false;
    for (unsigned n = 0; n < f->count; n++) queue[n] = f->queue[(f->head + n) & (f->room - 1)];
    free(f->queue);
    f->queue = queue;
    f->room = room;
    f->head = 0;
    return true;
}

/* Queue the publication with a reference of its own. false: the queue is full. */
static bool queue_push(topic_function *f, ls_publication *p)
{
    const bool full = f->count == QUEUE_MESSAGES_MAX || (f->count > 0 && p->data.len > QUEUE_BYTES_MAX - f->bytes);
    if (full || (f->count == f->room && !queue_grow(f))) return false;
    f->queue[(f->head + f->count) & (f->room - 1)] = ls_publication_hold(p);
    f->count++;
    f->bytes += p->data.len;
    return true;
}

/* The oldest publication with its reference; the queue is not empty. */
static ls_publication *queue_take(topic_function *f)
{
    ls_publication *p = f->queue[f->head];
    f->head = (f->head + 1) & (f->room - 1);
    f->bytes = --f->count == 0 ? 0 : f->bytes - p->data.len;
    if (f->count > 0) return p;
    f->lagging = false;
    free(f->queue);
    f->queue = NULL;
    f->room = f->head = 0;
    return p;
}

static void queue_drop(topic_function *f)
{
    while (f->count > 0) ls_publication_drop(queue_take(f));
}

/* ---- tasks -------------------------------------------------------------------------------------------------- */

/* Nothing uses the handle any more but Lua. */
static void release(topic_function *f)
{
    if (!f->ended || f->task != NULL || f->count > 0 || f->self_ref == LUA_NOREF) return;
    const int ref = f->self_ref;
    f->self_ref = LUA_NOREF;
    ls_list_remove(&f->node);
    ls_list_remove(&f->ready);
    luaL_unref(f->state->L, LUA_REGISTRYINDEX, ref);
}

static int function_returned(lua_State *L, int status, lua_KContext context) /* (handle, results...) */
{
    char what[sizeof "the function of ls.subscribe at " + sizeof((topic_function *)0)->line];
    const topic_function *f = lua_touserdata(L, 1);
    (void)snprintf(what, sizeof what, "the function of ls.subscribe at %s", f->line);
    ls_task_log_failure(L, 2, what);
    return 0;
}

static int function_main(lua_State *L) /* (handle) */
{
    topic_function *f = lua_touserdata(L, 1);
    lua_getiuservalue(L, 1, 1);
    lua_pushlstring(L, f->current->data.ptr, f->current->data.len);
    lua_getiuservalue(L, 1, 2);
    ls_publication_drop(f->current);
    f->current = NULL;
    lua_callk(L, 2, LUA_MULTRET, 0, function_returned);
    return function_returned(L, LUA_OK, 0);
}

static bool is_canceled(const topic_function *f)
{
    return f->canceled != NULL && atomic_load(f->canceled);
}

static void begin(ls_thread_ctx *ctx, topic_function *f);

static void function_ended(ls_thread_ctx *ctx, ls_task *task, int status, int count)
{
    topic_function *f = task->owner;
    if (f->current != NULL) ls_publication_drop(f->current);
    f->current = NULL;
    if (status != LUA_OK) ls_task_log_error(ctx, task, "in a function of ls.subscribe");
    f->task = NULL;
    if (!ls_topic_data_of(f->state)->starting) begin(ctx, f); /* before the release: a drain waits for the queue */
    ls_task_release(ctx, task, status == LUA_OK);
    release(f);
}

/* Post a task for the oldest message, or run it at the start; unless one runs or the site loads. */
static void begin(ls_thread_ctx *ctx, topic_function *f)
{
    ls_state *state = f->state;
    const enum ls_scope scope = f->scope == LS_SCOPE_WEBSOCKET ? LS_SCOPE_WEBSOCKET : LS_SCOPE_JOB;
    if (is_canceled(f)) queue_drop(f);
    if (f->task != NULL || f->count == 0 || !ls_topic_data_of(state)->begun) return;
    ls_task *task = ls_task_begin(state, ctx, scope, function_ended, f, "in a function of ls.subscribe");
    if (task == NULL) {
        queue_drop(f);
        return;
    }
    f->task = task;
    f->current = queue_take(f);
    lua_pushcfunction(task->co, function_main);
    lua_rawgeti(task->co, LUA_REGISTRYINDEX, f->self_ref);
    if (ls_topic_data_of(state)->starting)
        ls_task_run(ctx, task, 1);
    else
        ls_task_post(ctx, task, 1);
}

static void begin_ready(ls_thread_ctx *ctx, ls_state *state, ls_flush *flush, bool suspended)
{
    ls_topic_data *data = LS_CONTAINER(flush, ls_topic_data, flush);
    if (!data->begun) return;
    LS_LIST_TAKE (topic_function, f, &data->ready, ready) {
        lua_rawgeti(state->L, LUA_REGISTRYINDEX, f->self_ref); /* the function may remove its subscription */
        do begin(ctx, f);
        while (data->starting && f->task == NULL && f->count > 0);
        lua_pop(state->L, 1);
    }
}

/* Queue the publication; the function begins at the end of the batch or of the running task. */
static bool receive(topic_function *f, ls_publication *p)
{
    ls_topic_data *data = ls_topic_data_of(f->state);
    if (!queue_push(f, p)) {
        if (!f->lagging)
            ls_log(LS_LOG_WARN, "ls.subscribe: the function of topic '%.*s' lags: messages are dropped while %u wait",
                   (int)p->topic_len, p->topic, f->count);
        f->lagging = true;
        return false;
    }
    f->used = true;
    if (f->task != NULL || !ls_list_empty(&f->ready)) return true;
    ls_list_push(&data->ready, &f->ready);
    ls_state_flush_later(f->state, &data->flush);
    return true;
}

static bool ends_with_site(const topic_function *f)
{
    return ls_scope_ends(LS_END_REPLACED, (enum ls_scope)f->scope, LS_WAIT_PUBLISH) == LS_ENDS_NOW;
}

static void end(topic_function *f, bool drop)
{
    f->ended = true;
    ls_task_end_remove(&f->handler);
    ls_subscriber_end(&f->subscriber);
    if (drop) queue_drop(f);
    release(f);
}

static int deliver(ls_thread_ctx *ctx, ls_subscriber *subscriber, ls_publication *p)
{
    topic_function *f = LS_CONTAINER(subscriber, topic_function, subscriber);
    if (p->site != f->state->generation->topic_site && ends_with_site(f))
        return LS_ECLOSED; /* a function of that generation gets it */
    if (is_canceled(f)) {
        end(f, true);
        return LS_ECLOSED;
    }
    return receive(f, p) ? LS_OK : LS_ELIMIT;
}

static const ls_subscriber_kind function_kind = {.deliver = deliver};

/* ---- the object --------------------------------------------------------------------------------------------- */

/* The request or connection whose handler has subscribed has ended. */
static void handler_ended(ls_task_end *ending)
{
    topic_function *f = LS_CONTAINER(ending, topic_function, handler);
    ls_topic_data *data = ls_topic_data_of(f->state);
    if (f->scope == LS_SCOPE_REQUEST && !f->used && !data->request_warned) {
        data->request_warned = true;
        ls_log(LS_LOG_WARN,
               "%s: ls.subscribe: the function has ended with its request, before a message; to keep it, subscribe at "
               "the top of the site or in a job of ls.spawn",
               f->line);
    }
    end(f, false);
}

typedef struct subscribe_options {
    bool each_state;
} subscribe_options;

/* The options at index 3. Returns each_state, which user value 3 keeps for dev/variables.lua.
 * options is a SubscribeOptions: options of ls.subscribe.
 * options.each_state: boolean - at the top of the file and in "start": in each Lua state; default false */
static bool take_options(lua_State *L)
{
    static const ls_option options[] = {LS_OPTION(subscribe_options, each_state), LS_OPTIONS_END};
    subscribe_options given = {false};
    ls_options_take(L, 3, "ls.subscribe", options, &given);
    return given.each_state;
}

/* Subscribe; the handle is at index 3. */
static int subscribe(lua_State *L, topic_function *f, size_t topic_len, enum ls_scope scope)
{
    ls_state *state = f->state;
    ls_publication *retained = NULL;
    lua_pushvalue(L, 3);
    f->self_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    const int err = ls_topic_subscribe(&f->subscriber, lua_tostring(L, 1), topic_len, &retained);
    if (err < 0) {
        luaL_unref(L, LUA_REGISTRYINDEX, f->self_ref);
        f->self_ref = LUA_NOREF;
        return ls_push_failure(L, err);
    }
    f->ended = false;
    f->scope = (uint8_t)scope;
    f->handler.run = handler_ended;
    if (state->current != NULL) ls_task_handler_end_add(state->current, &f->handler);
    f->own = ls_topic_is_own(lua_tostring(L, 1));
    ls_task_line(L, f->line, sizeof f->line);
    ls_list_push(&ls_topic_data_of(state)->functions, &f->node);
    if (retained != NULL) {
        if (ls_topic_data_of(state)->begun) (void)receive(f, retained); /* else at the start */
        ls_publication_drop(retained);
    }
    return 1;
}

/* ls.subscribe(topic, fn: fun(data: string, topic: string) [, options: SubscribeOptions]) -> subscription | nil,
 * message, code
 * Calls the function for each message of the topic, one at a time and in order, in this Lua state. At the top of the
 * file and in "start": once for the server. */
int ls_core_subscribe(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    size_t len;
    (void)ls_topic_check(L, 1, &len);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    ls_check_arguments(L, 3, "ls.subscribe(topic, fn, options)");
    const bool each_state = take_options(L), once = !each_state && ls_is_once(state);
    const enum ls_scope scope = state->current != NULL ? (enum ls_scope)state->current->scope : LS_SCOPE_SITE;
    lua_settop(L, 2);
    /* else the end follows the start of the state */
    if (!state->loading && ls_state_ends(state, scope, LS_WAIT_PUBLISH)) return ls_push_failure(L, LS_ECLOSED);
    topic_function *f = ls_object_push(L, sizeof *f, 3, &function_type);
    unsigned number;
    f->state = state;
    f->self_ref = LUA_NOREF;
    f->ended = true;
    ls_subscriber_init(&f->subscriber, ls_topic_data_of(state)->inbox, &function_kind);
    ls_node_init(&f->node);
    ls_node_init(&f->ready);
    lua_pushvalue(L, 2);
    lua_setiuservalue(L, 3, 1);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, 3, 2);
    lua_pushboolean(L, each_state);
    lua_setiuservalue(L, 3, 3);
    if (once && state->loading) f->canceled = ls_define(L, LS_SLOT_topic, sizeof *f->canceled, &number);
    f->elsewhere = once && state->index > 0;
    return f->elsewhere ? 1 : subscribe(L, f, len, scope);
}

/* subscription is a Subscription: what ls.subscribe returns.
 * subscription:remove()
 * Ends the subscription and drops the messages that wait. */
static int function_remove(lua_State *L)
{
    topic_function *f = ls_udata_check(L, 1, &function_type, sizeof *f, "subscription");
    if (f->canceled != NULL) atomic_store(f->canceled, true);
    if (f->elsewhere && f->canceled == NULL) ls_refuse_once(L, "subscription:remove");
    end(f, true);
    return 0;
}

static int function_tostring(lua_State *L)
{
    const topic_function *f = ls_udata_check(L, 1, &function_type, sizeof *f, "subscription");
    lua_getiuservalue(L, 1, 2);
    const bool removed = f->elsewhere ? is_canceled(f) : f->ended;
    lua_pushfstring(L, "subscription of '%s'%s", lua_tostring(L, -1), removed ? " (removed)" : "");
    return 1;
}

static const luaL_Reg methods[] = {{"subscription:remove()", function_remove}, {NULL, NULL}};
static const luaL_Reg meta[] = {{"__tostring", function_tostring}, {NULL, NULL}};
static const ls_object_type function_type = {.name = "subscription", .methods = methods, .meta = meta};

void ls_topic_functions_define(ls_topic_data *data)
{
    data->flush.run = begin_ready;
}

/* ---- the state ---------------------------------------------------------------------------------------------- */

static ls_topic_data *receive_retained(ls_state *state)
{
    ls_topic_data *data = ls_topic_data_of(state);
    data->begun = true;
    LS_LIST_EACH (topic_function, f, &data->functions, node) {
        ls_publication *retained = ls_subscriber_retained(&f->subscriber, state->generation->topic_site);
        if (retained == NULL) continue;
        (void)receive(f, retained);
        ls_publication_drop(retained);
    }
    return data;
}

/* core.subscribers_start(): the functions of the process of a test file run, whose state never starts. */
int ls_core_subscribers_start(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    ls_topic_inbox_start_later(receive_retained(state)->inbox, state->port);
    return 0;
}

void ls_topic_functions_start(ls_thread_ctx *ctx, ls_state *state)
{
    ls_topic_data *data = receive_retained(state);
    data->starting = true;
    ls_topic_inbox_start(ctx, data->inbox, state->port);
    ls_state_flush(ctx, state, false);
    data->starting = false;
}

/* Connections of the previous site stay open: a function that sends to them, as from a table of the state, sends
 * nothing any more. Logged by the first state of the generation that has some. */
static void warn_of_connections(const ls_state *state)
{
    ls_generation *generation = state->generation;
    unsigned connections = atomic_load(&state->long_lived);
    LS_LIST_EACH (const ls_task, task, &state->tasks_live, node) connections += task->scope == LS_SCOPE_CONNECTION;
    bool first = true;
    if (ls_generation_is_ending(generation, LS_END_STOP) || connections == 0 || ls_dev_of(generation->runtime) != NULL)
        return;
    const ls_node *const list = &ls_topic_data_of(state)->functions;
    LS_LIST_EACH (const topic_function, f, list, node) {
        if (f->ended || f->own || !ends_with_site(f)) continue;
        if (first && atomic_exchange(&generation->subscribers_warned, true)) return;
        first = false;
        ls_log(LS_LOG_WARN,
               "the function of ls.subscribe at %s ends with the previous site, whose WebSockets and TCP connections "
               "stay open: it sends them nothing any more. ws:subscribe and sock:subscribe continue, as does "
               "ls.subscribe inside their handlers",
               f->line);
    }
}

void ls_topic_functions_retire(ls_state *state)
{
    ls_topic_data *data = ls_topic_data_of(state);
    warn_of_connections(state);
    LS_LIST_EACH_DROP (topic_function, f, &data->functions, node)
        if (ls_state_ends(state, (enum ls_scope)f->scope, LS_WAIT_PUBLISH)) end(f, false);
}

void ls_topic_functions_end(ls_state *state)
{
    ls_topic_data *data = ls_topic_data_of(state);
    LS_LIST_EACH_DROP (topic_function, f, &data->functions, node) end(f, true);
}

void ls_topic_functions_abandon(ls_state *state)
{
    ls_topic_data *data = ls_topic_data_of(state);
    while (!ls_list_empty(&data->functions)) {
        topic_function *f = LS_CONTAINER(data->functions.next, topic_function, node);
        if (f->current != NULL) ls_publication_drop(f->current);
        f->current = NULL;
        f->task = NULL;
        end(f, true);
    }
}
