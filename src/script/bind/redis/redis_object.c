/* redis_object.c - connections to a Redis server (RESP2) for lua/luaserve/redis.lua: encodes commands into the queue
 * of a connection of ls.connect (bind/sock/tcp.h), and wakes the tasks that wait for the replies (redis_reader.h).
 *
 * Replies have no number: the first one belongs to the first command. So a connection has a queue of *calls*, one for
 * each command or pipeline. A task that ends while it waits abandons its call, whose replies are dropped.
 *
 *     core.connect --> conn:open(sock) --> conn:call, conn:many, conn:read ... --> conn:keep(key) or conn:close()
 *                                             \--> lost, timeout, not RESP: every call fails
 *
 * Any number of tasks of the state may call at the same time. What they send in one turn of the thread leaves in one
 * send: an operation after the packets that wait at the port flushes it. User value 1 of the connection has the
 * replies, by the slots of their calls, the arrays that are not complete, and the memory of the calls. Thread: the one
 * that holds the state's actor. */
#include <stdio.h>

#include "base/clock.h"
#include "base/err.h"
#include "net/stream/stream_pool.h"
#include "script/bind/bind_aux.h"
#include "script/bind/redis/redis_reader.h"
#include "script/bind/redis/redis_stats.h"
#include "script/bind/sock/sock_object.h"
#include "script/bind/value/buffer.h"
#include "script/core/lua/udata.h"
#include "script/core/wait.h"

#define ALL UINT32_MAX /* replies of a call: those that have arrived */

enum { REPLIES = 3 }; /* index of the user value in `parse` */

typedef struct redis_call {
    ls_node node; /* in conn->calls, or in conn->spare */
    ls_task_end end;
    struct redis_conn *conn;
    ls_task *task;    /* NULL: it has ended, the replies are dropped */
    int slot;         /* of its reply: the index in the user value of the connection */
    uint32_t replies; /* that are still to come; ALL: those that have arrived end it */
    uint32_t arrived;
    bool list;       /* the reply is a list of replies */
    bool ended;      /* in no list, or about to wake its task */
    bool failed;     /* the reply is the text of an error */
    bool holds;      /* the task keeps the state, but while it waits it is no unfinished work */
    int err;         /* LS_E*: the connection was lost */
    uint64_t due_ms; /* of ls_clock_coarse_ms; 0: none */
} redis_call;

typedef struct redis_conn {
    const void *tag;
    ls_state *state;
    ls_tcp *tcp; /* NULL: not open */
    ls_redis_reader *reader;
    ls_node *done; /* while the reader runs: receives the calls that have ended */
    ls_node node;  /* in the list of the state while it is open */
    ls_node calls, spare;
    ls_node waiters;     /* tasks in conn:wait */
    ls_task_end end;     /* of the task that owns it */
    int slots, self_ref; /* self_ref keeps it while it is open */
    uint64_t reply_bytes_max;
    int err;        /* LS_E*: why it is closed */
    bool shared;    /* it receives at any time; else only while a call waits */
    bool unflushed; /* redis_data.flush sends */
    bool finishing; /* it closes when no call waits */
    bool outlasts;  /* its subscriptions do not end with their site */
} redis_conn;

typedef struct redis_data { /* of a state */
    ls_node open;
    ls_op flush;
    bool flushing; /* `flush` is at the port */
} redis_data;

static const ls_object_type conn_type;

static redis_data *data_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_redis);
}

static redis_conn *check_conn(lua_State *L)
{
    return ls_udata_check(L, 1, &conn_type, sizeof(redis_conn), "connection");
}

/* ---- the end of calls and connections ------------------------------------------------------------------------- */

static void call_spare(redis_call *call)
{
    ls_task_end_remove(&call->end);
    ls_list_remove(&call->node);
    ls_list_push(&call->conn->spare, &call->node);
}

/* All its replies have arrived, or none will (err < 0). Its task is woken when the caller calls wake_all(done). */
static void call_end(redis_call *call, int err, ls_node *done)
{
    call->ended = true;
    call->err = err;
    ls_redis_count(call->conn->state, LS_REDIS_WAITING, -1);
    ls_list_remove(&call->node);
    if (call->task == NULL)
        call_spare(call);
    else
        ls_list_push(done, &call->node);
}

/* The tasks hold their connections; they may close any, and call again. */
static void wake_all(ls_thread_ctx *ctx, ls_node *done)
{
    LS_LIST_TAKE (redis_call, call, done, node) ls_task_wake(ctx, call->task, LS_OK);
}

static void task_left_call(ls_task_end *end)
{
    redis_call *call = LS_CONTAINER(end, redis_call, end);
    call->task = NULL;
    if (call->ended) call_spare(call);
}

/* conn->tcp has left it. */
static void conn_ended(redis_conn *conn, int err)
{
    conn->err = err;
    ls_task_end_remove(&conn->end);
    ls_list_remove(&conn->node);
    ls_redis_count(conn->state, LS_REDIS_CONNECTIONS, -1);
    luaL_unref(conn->state->L, LUA_REGISTRYINDEX, conn->self_ref);
}

/* Close the connection, unless it is closed; each call fails with `err`. The connection may be garbage afterwards. */
static void conn_lose(ls_thread_ctx *ctx, redis_conn *conn, int err, ls_node *done)
{
    if (conn->tcp == NULL) return;
    ls_tcp_abort(ctx, conn->tcp);
    conn_ended(conn, err);
    while (!ls_list_empty(&conn->calls)) call_end(LS_CONTAINER(conn->calls.next, redis_call, node), err, done);
}

static void conn_close(ls_thread_ctx *ctx, redis_conn *conn, int err)
{
    ls_node done = LS_LIST_INIT(done);
    conn_lose(ctx, conn, err, &done);
    wake_all(ctx, &done);
}

static void owner_ended(ls_task_end *end)
{
    redis_conn *conn = LS_CONTAINER(end, redis_conn, end);
    conn->finishing = true;
    if (conn->state->port == NULL) return;
    if (conn->tcp != NULL)
        conn_close(conn->state->ctx, conn, LS_ECANCELED);
    else
        ls_task_wake_all(conn->state->ctx, &conn->waiters, LS_OK);
}

/* ---- replies ---------------------------------------------------------------------------------------------------- */

/* { err = the string on top } */
static void wrap_error(lua_State *L)
{
    lua_createtable(L, 0, 1);
    lua_insert(L, -2);
    lua_setfield(L, -2, "err");
}

/* The reply on top is complete: store it for the first call. false: no command waits for one. */
static bool deliver(lua_State *L, redis_conn *conn, bool is_error)
{
    if (ls_list_empty(&conn->calls)) return false;
    if (is_error && LS_CONTAINER(conn->calls.next, redis_call, node)->list) wrap_error(L); /* may run a finalizer */
    if (conn->tcp == NULL) return true;
    redis_call *call = LS_CONTAINER(conn->calls.next, redis_call, node);
    if (is_error) ls_redis_count(conn->state, LS_REDIS_ERRORS, 1);
    if (call->replies != ALL) call->replies--;
    call->arrived++;
    if (call->task == NULL) {
        lua_pushboolean(L, 0);
        lua_rawseti(L, REPLIES, call->slot);
    } else if (call->list) {
        if (lua_isnil(L, -1)) lua_pushboolean(L, 0);
        lua_rawgeti(L, REPLIES, call->slot);
        lua_insert(L, -2);
        lua_rawseti(L, -2, call->arrived);
    } else {
        call->failed = is_error;
        lua_rawseti(L, REPLIES, call->slot);
    }
    if (call->replies == 0) call_end(call, LS_OK, conn->done);
    return true;
}

/* Take the complete replies from the reader. conn->err receives why the connection cannot continue. */
static int parse(lua_State *L)
{
    redis_conn *conn = lua_touserdata(L, 1);
    bool is_error;
    lua_rawgeti(L, LUA_REGISTRYINDEX, conn->self_ref); /* a finalizer may close the connection */
    lua_getiuservalue(L, -1, 1);
    while (conn->err == LS_OK) {
        const int err = ls_redis_reader_next(L, conn->reader, REPLIES, conn->reply_bytes_max, &is_error);
        if (err == LS_PENDING) break;
        if (conn->tcp == NULL) break;
        if (err != LS_DONE)
            conn->err = err;
        else if (!deliver(L, conn, is_error))
            conn->err = LS_EPROTO;
        lua_settop(L, REPLIES);
    }
    if (ls_list_empty(&conn->calls)) return 0;
    redis_call *call = LS_CONTAINER(conn->calls.next, redis_call, node);
    if (call->replies == ALL && call->arrived > 0) call_end(call, LS_OK, conn->done);
    return 0;
}

/* ---- receive ---------------------------------------------------------------------------------------------------- */

/* Give the bytes that are stored to the reader. LS_OK or why the connection cannot continue. */
static int feed(ls_thread_ctx *ctx, redis_conn *conn, ls_node *done)
{
    ls_tcp *const tcp = conn->tcp;
    const int fed = ls_redis_reader_feed(conn->reader, tcp->head.ptr, tcp->head.len);
    if (fed < 0) return fed;
    ls_tcp_consume(tcp, tcp->head.len);
    conn->done = done;
    const int status = ls_state_protected(conn->state, ctx, parse, conn);
    return status != LUA_OK ? LS_ENOMEM : conn->err;
}

/* The receive deadline is over. LS_OK: the first call has time left. */
static int check_due(const redis_conn *conn)
{
    const uint64_t now_ms = ls_clock_coarse_ms();
    const uint64_t due_ms = ls_list_empty(&conn->calls) ? 0 : LS_CONTAINER(conn->calls.next, redis_call, node)->due_ms;
    if (due_ms != 0 && due_ms <= now_ms) return LS_ETIMEDOUT;
    ls_stream_recv_within(ls_tcp_stream(conn->tcp), due_ms == 0 ? 0 : (uint32_t)(due_ms - now_ms));
    return LS_OK;
}

static void arrived(ls_thread_ctx *ctx, ls_tcp *tcp, int result)
{
    redis_conn *conn = LS_CONTAINER(tcp->owner, redis_conn, tcp);
    ls_node done = LS_LIST_INIT(done);
    int err = result == LS_ETIMEDOUT ? check_due(conn) : result;
    while (err == LS_OK) {
        if (tcp->received > 0)
            err = feed(ctx, conn, &done);
        else if (tcp->receive_end != LS_OK)
            err = tcp->receive_end;
        if (err < 0 || conn->tcp == NULL) break;
        if (ls_list_empty(&conn->calls) && conn->finishing) err = LS_ECANCELED;
        if (err < 0 || (ls_list_empty(&conn->calls) && !conn->shared)) break;
        const int filled = ls_tcp_fill(ctx, tcp);
        if (filled == LS_PENDING) break;
        if (filled < 0) err = filled;
    }
    if (err < 0) conn_lose(ctx, conn, err, &done);
    wake_all(ctx, &done);
}

/* ---- send ------------------------------------------------------------------------------------------------------- */

/* After the packets that wait at the port: send what their tasks have queued. */
static void flush_all(ls_thread_ctx *ctx, ls_op *op)
{
    redis_data *data = LS_CONTAINER(op, redis_data, flush);
    ls_node done = LS_LIST_INIT(done);
    data->flushing = false;
    LS_LIST_EACH_DROP (redis_conn, conn, &data->open, node) {
        if (!conn->unflushed) continue;
        conn->unflushed = false;
        const int err = ls_tcp_flush(ctx, conn->tcp);
        if (err < 0) conn_lose(ctx, conn, err, &done);
    }
    wake_all(ctx, &done);
}

/* The index of the first value from `from` to `to` that is no argument of a command, or 0. *longs: add the strings
 * that are not copied. May raise, for a buffer that has expired. */
static int check_arguments(lua_State *L, int from, int to, unsigned *longs)
{
    for (int n = from; n <= to; n++) {
        const int type = lua_type(L, n);
        if (type == LUA_TSTRING)
            *longs += lua_rawlen(L, n) >= LS_STRING_SHARED_MIN;
        else if (type != LUA_TNUMBER && ls_buffer_test(L, n) == NULL)
            return n;
    }
    return 0;
}

/* Queue one argument: "$length CRLF bytes CRLF". Nothing here allocates in Lua, or raises. */
static int queue_argument(lua_State *L, ls_tcp *tcp, int index)
{
    char head[32], number[LS_NUMBER_BYTES];
    size_t len;
    const int type = lua_type(L, index);
    const ls_buffer *buffer = lua_touserdata(L, index);
    if (type == LUA_TSTRING)
        (void)lua_tolstring(L, index, &len);
    else
        len = type == LUA_TNUMBER ? ls_number_write(number, L, index, true) : buffer->len;
    int err = ls_sock_queue_copy(tcp, head, (size_t)snprintf(head, sizeof head, "$%zu\r\n", len));
    if (err == LS_OK)
        err = type == LUA_TSTRING   ? ls_sock_queue_string(L, tcp, index)
              : type == LUA_TNUMBER ? ls_sock_queue_copy(tcp, number, len)
                                    : ls_sock_queue_buffer(tcp, buffer);
    return err == LS_OK ? ls_sock_queue_copy(tcp, "\r\n", 2) : err;
}

/* Queue the command whose arguments are the values from `from` to `to`. */
static int queue_command(lua_State *L, redis_conn *conn, int from, int to)
{
    char head[32];
    int err = ls_sock_queue_copy(conn->tcp, head, (size_t)snprintf(head, sizeof head, "*%d\r\n", to - from + 1));
    for (int n = from; n <= to && err == LS_OK; n++) err = queue_argument(L, conn->tcp, n);
    if (!conn->unflushed) {
        redis_data *data = data_of(conn->state);
        conn->unflushed = true;
        if (!data->flushing) ls_port_post(conn->state->port, &data->flush, 0);
        data->flushing = true;
    }
    ls_redis_count(conn->state, LS_REDIS_COMMANDS, 1);
    return err;
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

/* nil, message, code of a connection that is closed */
static int push_lost(lua_State *L, const redis_conn *conn, int err)
{
    if (err == LS_EMSGSIZE) return ls_push_failure_text(L, err, "the reply is longer than max_reply");
    if (err != LS_EPROTO || conn->reader == NULL) return ls_push_failure(L, err); /* NULL: a finalizer has kept it */
    const char *why = ls_redis_reader_why(conn->reader);
    return ls_push_failure_text(L, err, "the answer is not that of a Redis server%s%s", why[0] != '\0' ? ": " : "",
                                why);
}

/* A call of the current task that is in no list yet, with its slot. May raise. */
static redis_call *call_new(lua_State *L, redis_conn *conn, bool list)
{
    ls_task_may_wait(L);
    lua_getiuservalue(L, 1, 1);
    if (ls_list_empty(&conn->spare)) {
        lua_pushboolean(L, 0);
        lua_rawseti(L, -2, conn->slots + 1);
        redis_call *more = lua_newuserdatauv(L, sizeof *more, 0);
        *more = (redis_call){.conn = conn, .slot = conn->slots + 1, .end.run = task_left_call};
        lua_rawseti(L, -2, -LS_REDIS_LEVELS_MAX - more->slot);
        conn->slots++;
        ls_node_init(&more->node);
        ls_list_push(&conn->spare, &more->node);
    }
    redis_call *call = LS_CONTAINER(conn->spare.next, redis_call, node);
    if (list)
        lua_newtable(L);
    else
        lua_pushboolean(L, 0);
    lua_rawseti(L, -2, call->slot);
    lua_pop(L, 1);
    call->list = list;
    return call;
}

static int call_ended(lua_State *L, int status, lua_KContext context)
{
    redis_call *call = (redis_call *)context; /* NOLINT(performance-no-int-to-ptr) */
    redis_conn *conn = call->conn;
    ls_state *state = conn->state;
    ls_task *task = state->current;
    ls_task_end_remove(&call->end);
    if (call->holds) {
        ls_task_count(task);
        state->holds--;
    }
    call->task = NULL;
    if (!call->ended) { /* the task resumes only to end, or its client has left */
        if (!conn->shared) conn_close(state->ctx, conn, LS_ECANCELED);
        return ls_task_was_left(task) ? ls_task_left_error(L, "") : ls_push_failure(L, LS_ECANCELED);
    }
    const int err = call->err, slot = call->slot;
    const bool failed = call->failed;
    call_spare(call);
    if (err < 0) return push_lost(L, conn, err);
    if (failed) lua_pushnil(L);
    lua_getiuservalue(L, 1, 1);
    lua_rawgeti(L, -1, slot);
    lua_pushboolean(L, 0);
    lua_rawseti(L, -3, slot);
    lua_remove(L, -2);
    return failed ? 2 : 1;
}

/* Wait for `replies`. The commands were queued with the result `err`. */
static int call_wait(lua_State *L, redis_conn *conn, redis_call *call, uint32_t replies, int err)
{
    ls_state *state = conn->state;
    ls_task *task = state->current;
    if (err == LS_OK && !conn->shared && replies != ALL && ls_wait_expect_end(task) < 0) {
        conn_close(state->ctx, conn, LS_ECANCELED);
        return ls_task_left_error(L, "");
    }
    if (err == LS_OK) err = ls_tcp_await(state->ctx, conn->tcp);
    if (err < 0) {
        conn_close(state->ctx, conn, err);
        return push_lost(L, conn, err);
    }
    const lua_Integer ms = lua_tointeger(L, 2);
    call->task = task;
    call->replies = replies;
    call->arrived = 0;
    call->ended = call->failed = false;
    call->due_ms = ms > 0 ? ls_clock_coarse_ms() + (uint64_t)ms : 0;
    if (ls_list_empty(&conn->calls)) ls_stream_recv_within(ls_tcp_stream(conn->tcp), (uint32_t)ms);
    ls_list_remove(&call->node);
    ls_list_push(&conn->calls, &call->node);
    ls_task_end_add(task, &call->end);
    call->holds = replies == ALL && task->counted;
    if (call->holds) {
        task->counted = false;
        state->holds++;
        atomic_fetch_sub_explicit(&state->busy, 1, memory_order_relaxed);
    }
    ls_redis_count(conn->state, LS_REDIS_WAITING, 1);
    return ls_task_yield(L, conn->shared || replies == ALL ? LS_WAIT_WRITE : LS_WAIT_RESULT, (lua_KContext)call,
                         call_ended);
}

/* conn:call(ms, command, ...) -> reply | nil, text of an error | nil, message, code | false, the index of an argument
 * of another type. ms: time limit for the reply; 0: none. Waits. */
static int conn_call(lua_State *L)
{
    redis_conn *conn = check_conn(L);
    const int last = lua_gettop(L);
    unsigned longs = 0;
    const int wrong = check_arguments(L, 3, last, &longs);
    if (wrong > 0) {
        lua_pushboolean(L, 0);
        lua_pushinteger(L, wrong - 2);
        return 2;
    }
    redis_call *call = call_new(L, conn, false);
    while (longs > 0 && ls_strings_reserve(L, longs)) continue;
    if (conn->tcp == NULL) return push_lost(L, conn, conn->err);
    return call_wait(L, conn, call, 1, queue_command(L, conn, 3, last));
}

/* conn:many(ms, { { command, ..., n = count } ... }) -> replies | nil, message, code. The text of an error is
 * { err = text }, nil is false. */
static int conn_many(lua_State *L)
{
    redis_conn *conn = check_conn(L);
    unsigned longs = 0;
    int err = LS_OK;
    luaL_checktype(L, 3, LUA_TTABLE);
    const lua_Integer commands = luaL_len(L, 3);
    lua_settop(L, 3);
    redis_call *call = call_new(L, conn, true);
    for (int pass = 0; pass < 2; pass++) { /* the first one only checks */
        while (pass == 1 && longs > 0 && ls_strings_reserve(L, longs)) continue;
        if (pass == 1 && conn->tcp == NULL) return push_lost(L, conn, conn->err);
        for (lua_Integer i = 1; i <= commands && err == LS_OK; i++) {
            lua_rawgeti(L, 3, i);
            lua_getfield(L, 4, "n");
            const int count_of = (int)lua_tointeger(L, -1);
            lua_pop(L, 1);
            luaL_checkstack(L, count_of + 4, "too many arguments");
            for (int n = 1; n <= count_of; n++) lua_rawgeti(L, 4, n);
            if (pass == 0 && check_arguments(L, 5, 4 + count_of, &longs) > 0) luaL_error(L, "invalid argument");
            if (pass == 1) err = queue_command(L, conn, 5, 4 + count_of);
            lua_settop(L, 3);
        }
    }
    return call_wait(L, conn, call, (uint32_t)commands, err);
}

/* conn:send(command, ...): no reply follows but messages. A failure is that of the next conn:read. */
static int conn_send(lua_State *L)
{
    redis_conn *conn = check_conn(L);
    const int last = lua_gettop(L);
    unsigned longs = 0;
    luaL_argcheck(L, check_arguments(L, 2, last, &longs) == 0, 2, "invalid argument");
    while (longs > 0 && ls_strings_reserve(L, longs)) continue;
    if (conn->tcp != NULL && queue_command(L, conn, 2, last) < 0) conn_close(conn->state->ctx, conn, LS_ENOMEM);
    return 0;
}

/* conn:outlast(): its subscriptions continue when the site has ended, until it is closed. */
static int conn_outlast(lua_State *L)
{
    check_conn(L)->outlasts = true;
    return 0;
}

/* conn:read(ms) -> messages | nil, message, code. Waits for messages of a subscription: those that have arrived.
 * ECANCELED: the site has ended. */
static int conn_read(lua_State *L)
{
    redis_conn *conn = check_conn(L);
    if (ls_generation_retired(conn->state->generation) != 0 && !conn->outlasts)
        conn_close(conn->state->ctx, conn, LS_ECANCELED);
    redis_call *call = call_new(L, conn, true);
    if (conn->tcp == NULL) return push_lost(L, conn, conn->err);
    return call_wait(L, conn, call, ALL, LS_OK);
}

/* ---- the object ------------------------------------------------------------------------------------------------- */

/* core.redis_connection() -> conn, which is not open; redis_object_none.c: nothing */
static int core_connection(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    redis_conn *conn = ls_object_push(L, sizeof *conn, 1, &conn_type);
    conn->state = state;
    conn->err = LS_ECLOSED;
    conn->end.run = owner_ended;
    ls_node_init(&conn->node);
    ls_node_init(&conn->calls);
    ls_node_init(&conn->spare);
    ls_node_init(&conn->waiters);
    lua_newtable(L);
    (void)lua_setiuservalue(L, -2, 1);
    conn->reader = ls_redis_reader_open();
    return conn->reader != NULL ? 1 : luaL_error(L, "not enough memory");
}

/* conn:open(sock, max_reply, shared) -> true | nil, message, code
 * Takes the connection of the sock, once. shared: it receives at any time; else it is closed when the current task
 * ends, and when the client of the task leaves while it waits. max_reply: bytes. */
static int conn_open(lua_State *L)
{
    redis_conn *conn = check_conn(L);
    ls_state *state = conn->state;
    const uint64_t bytes_max = (uint64_t)luaL_checkinteger(L, 3);
    conn->shared = lua_toboolean(L, 4);
    lua_pushvalue(L, 1);
    const int ref = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_remove(L, 1);
    const ls_tcp_object *sock = ls_tcp_check(L);
    if (conn->self_ref != 0 || sock->tcp == NULL || !ls_tcp_lead(sock->tcp, (void **)&conn->tcp, arrived)) {
        luaL_unref(L, LUA_REGISTRYINDEX, ref);
        return ls_push_failure(L, LS_ECLOSED);
    }
    conn->self_ref = ref;
    conn->err = LS_OK;
    conn->reply_bytes_max = bytes_max;
    ls_list_push(&data_of(state)->open, &conn->node);
    ls_redis_count(conn->state, LS_REDIS_CONNECTIONS, 1);
    if (!conn->shared) ls_task_end_add(state->current, &conn->end);
    const int err = conn->shared ? ls_tcp_await(state->ctx, conn->tcp) : LS_OK;
    if (err < 0) conn_close(state->ctx, conn, err);
    return ls_push_result(L, err);
}

/* conn:close() */
static int conn_close_lua(lua_State *L)
{
    redis_conn *conn = check_conn(L);
    if (conn->state->port != NULL) conn_close(conn->state->ctx, conn, LS_ECANCELED);
    return 0;
}

/* conn:finish(): close it when no call waits. */
static int conn_finish(lua_State *L)
{
    redis_conn *conn = check_conn(L);
    conn->finishing = true;
    return ls_list_empty(&conn->calls) ? conn_close_lua(L) : 0;
}

/* conn:keep(key): give the connection to the pool (net/stream/stream_pool.h), or close it. No call waits. */
static int conn_keep(lua_State *L)
{
    redis_conn *conn = check_conn(L);
    const ls_text key = ls_check_text(L, 2);
    ls_stream *s = NULL;
    if (conn->tcp != NULL && !conn->shared && !ls_state_is_ending(conn->state, LS_END_STOP) &&
        ls_list_empty(&conn->calls) && ls_redis_reader_is_empty(conn->reader))
        s = ls_tcp_detach(conn->tcp);
    if (s == NULL) return conn_close_lua(L);
    conn_ended(conn, LS_ECLOSED);
    ls_stream_pool_put(conn->state->ctx, ls_state_runtime(conn->state)->streams, key.ptr, key.len, s);
    return 0;
}

/* conn:is_open() -> boolean */
static int conn_is_open(lua_State *L)
{
    return ls_push_boolean(L, check_conn(L)->tcp != NULL);
}

enum { WAITS, IDLES, IDLES_COUNTED }; /* how a task is in conn:wait */

static int conn_woken(lua_State *L, int status, lua_KContext how)
{
    ls_state *state = ls_state_of(L);
    ls_task *task = state->current;
    if (how == IDLES_COUNTED) {
        ls_task_count(task);
        state->holds--;
    }
    return ls_push_boolean(L, task->wake_result == LS_OK);
}

/* conn:wait(seconds [, "idle"]) -> whether conn:wake() was called meanwhile, or the task has ended that conn follows.
 * "idle": the task is no unfinished work while it waits. */
static int conn_wait(lua_State *L)
{
    static const char *const names[] = {"", "idle", NULL};
    redis_conn *conn = check_conn(L);
    ls_state *state = conn->state;
    ls_task *task = state->current;
    const double seconds = ls_check_seconds(L, 2);
    int how = luaL_checkoption(L, 3, "", names);
    ls_task_may_wait(L);
    if (conn->finishing) return ls_push_boolean(L, true);
    ls_task_alarm(L, task, seconds);
    if (how == IDLES && task->counted) {
        how = IDLES_COUNTED;
        task->counted = false;
        state->holds++;
        atomic_fetch_sub_explicit(&state->busy, 1, memory_order_relaxed);
    }
    ls_list_push(&conn->waiters, &task->wait_node);
    return ls_task_yield(L, LS_WAIT_WRITE, how, conn_woken);
}

/* conn:follow(): the end of the current task ends each conn:wait. Of one that is not opened. */
static int conn_follow(lua_State *L)
{
    redis_conn *conn = check_conn(L);
    ls_task_may_wait(L);
    ls_task_end_add(conn->state->current, &conn->end);
    return 0;
}

/* conn:follows() -> whether it follows the current task */
static int conn_follows(lua_State *L)
{
    const redis_conn *conn = check_conn(L);
    const ls_task *task = conn->state->current;
    const ls_task_end *end = task != NULL ? task->ends : NULL;
    while (end != NULL && end != &conn->end) end = end->next;
    return ls_push_boolean(L, end != NULL);
}

/* conn:wake() */
static int conn_wake(lua_State *L)
{
    redis_conn *conn = check_conn(L);
    ls_task_wake_all(conn->state->ctx, &conn->waiters, LS_OK);
    return 0;
}

static int conn_gc(lua_State *L)
{
    redis_conn *conn = check_conn(L);
    ls_task_end_remove(&conn->end);
    ls_redis_reader_close(conn->reader);
    conn->reader = NULL;
    return 0;
}

/* core.redis_arguments(...) -> the index of the first value that is no argument of a command | nil */
static int core_arguments(lua_State *L)
{
    unsigned longs = 0;
    const int wrong = check_arguments(L, 1, lua_gettop(L), &longs);
    if (wrong == 0) return 0;
    return ls_push_integer(L, wrong);
}

/* core.redis_count("lost"|"reconnects", n): adds to the numbers of topics over Redis in ls.stats. */
static int core_count(lua_State *L)
{
    static const char *const names[] = {"lost", "reconnects", NULL};
    const int at = LS_REDIS_LOST + luaL_checkoption(L, 1, NULL, names);
    ls_redis_count(ls_state_of(L), (enum ls_redis_stat)at, luaL_checkinteger(L, 2));
    return 0;
}

/* ---- the module ------------------------------------------------------------------------------------------------- */

static const luaL_Reg methods[] = {{"open", conn_open},       {"call", conn_call},       {"many", conn_many},
                                   {"read", conn_read},       {"send", conn_send},       {"close", conn_close_lua},
                                   {"finish", conn_finish},   {"keep", conn_keep},       {"is_open", conn_is_open},
                                   {"wait", conn_wait},       {"wake", conn_wake},       {"follow", conn_follow},
                                   {"follows", conn_follows}, {"outlast", conn_outlast}, {NULL, NULL}};
static const luaL_Reg meta[] = {{"__gc", conn_gc}, {NULL, NULL}};
static const ls_object_type conn_type = {.name = "connection", .methods = methods, .meta = meta};

static void redis_define(lua_State *L, ls_state *state)
{
    redis_data *data = data_of(state);
    ls_node_init(&data->open);
    data->flush = (ls_op){.done = flush_all, .actor = &state->actor};
}

static bool waits_for_messages(const redis_conn *conn)
{
    return !ls_list_empty(&conn->calls) && LS_CONTAINER(conn->calls.next, redis_call, node)->replies == ALL;
}

/* Close idle connections and subscriptions; `all`: each. */
static void close_some(ls_thread_ctx *ctx, ls_state *state, bool all)
{
    redis_data *data = data_of(state);
    ls_node done = LS_LIST_INIT(done);
    LS_LIST_EACH_DROP (redis_conn, conn, &data->open, node) {
        if (all || (conn->shared ? ls_list_empty(&conn->calls) : waits_for_messages(conn) && !conn->outlasts))
            conn_lose(ctx, conn, LS_ECANCELED, &done);
    }
    wake_all(ctx, &done);
}

/* Subscriptions end with their site; idle connections are made again. */
static void redis_end(ls_thread_ctx *ctx, ls_state *state, enum ls_end_why why)
{
    if (why != LS_END_REPLACED && why != LS_END_STOP) return;
    close_some(ctx, state, false);
}

static void redis_close(ls_thread_ctx *ctx, ls_state *state)
{
    close_some(ctx, state, true);
}

static bool redis_closed(ls_state *state)
{
    return !data_of(state)->flushing;
}

static bool redis_unused(ls_state *state)
{
    close_some(state->ctx, state, false);
    return redis_closed(state);
}

static const luaL_Reg functions[] = {{"redis_connection", core_connection},
                                     {"redis_arguments", core_arguments},
                                     {"redis_count", core_count},
                                     {NULL, NULL}};

const ls_module ls_redis_module = {.name = "redis",
                                   .bytes = sizeof(redis_data),
                                   .functions = functions,
                                   .define = redis_define,
                                   .end = redis_end,
                                   .close = redis_close,
                                   .closed = redis_closed,
                                   .unused = redis_unused,
                                   .common = &ls_redis_common};
