/* tcp.c - see tcp.h: open and close, receive, deadlines, send, accept, drain. */
#include "script/bind/sock/tcp.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/io/log.h"
#include "script/bind/sock/listeners.h"
#include "script/bind/sock/sock_object.h"
#include "script/bind/sock/sockets.h"

static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result);
static void sent(ls_thread_ctx *ctx, ls_stream *s, int err);
static void closed(ls_thread_ctx *ctx, ls_stream *s);

enum { LOG_NAME_BYTES = LS_ADDR_TEXT_BYTES + 40, LINE_BYTES = 80 };
enum { PIECES_MANY = 8, PIECE_BYTES_SMALL = LS_BLOCK_SMALL / 2 };

const ls_stream_handler ls_tcp_handler = {.received = received, .sent = sent, .closed = closed};

/* ---- open and close ------------------------------------------------------------------------------------------ */

void ls_tcp_set_timeouts(ls_tcp *tcp, uint32_t receive_ms, uint32_t send_ms)
{
    tcp->receive_ms_max = receive_ms;
    tcp->send_ms_max = send_ms;
    ls_stream_send_within(ls_tcp_stream(tcp), send_ms);
}

/* Make the user of a stream that has the room for it. */
static ls_tcp *adopt(ls_state *state, ls_stream *s, const ls_tcp_config *config, ls_conn_limit *limit)
{
    ls_tcp *tcp = ls_stream_user(s);
    ls_stream_set_actor(s, &state->actor);
    tcp->state = state;
    tcp->conn_limit = limit;
    tcp->config = config;
    ls_tcp_set_timeouts(tcp, config->receive_ms_max, config->send_ms_max);
    ls_node_init(&tcp->senders);
    ls_node_init(&tcp->node);
    ls_node_init(&tcp->unflushed);
    ls_list_push(&ls_tcps_of(state)->open, &tcp->node);
    atomic_fetch_add_explicit(&ls_tcps_of(state)->count, 1, memory_order_relaxed);
    atomic_fetch_add(&ls_tcps_of(state)->live, 1);
    return tcp;
}

const size_t ls_tcp_own_bytes = sizeof(ls_tcp) + sizeof(ls_tcp_config);

/* The same with ls_tcp_own_bytes of room, for a copy of `config`. */
static ls_tcp *adopt_alone(ls_state *state, ls_stream *s, const ls_tcp_config *config, ls_conn_limit *limit)
{
    ls_tcp_config *own = (ls_tcp_config *)(void *)((ls_tcp *)ls_stream_user(s) + 1);
    *own = *config;
    return adopt(state, s, own, limit);
}

ls_tcp *ls_tcp_connected(ls_state *state, ls_stream *s, const ls_tcp_config *config)
{
    ls_sockets_opened(state);
    ls_tcp *tcp = adopt_alone(state, s, config, NULL);
    tcp->client = true;
    return tcp;
}

ls_tcp *ls_tcp_upgraded(ls_state *state, ls_stream *s, const ls_tcp_config *config, ls_conn_limit *limit, void **owner)
{
    ls_tcp *tcp = adopt_alone(state, s, config, limit);
    tcp->owner = owner;
    *owner = tcp;
    ls_tcp_flush_later(tcp);
    return tcp;
}

ls_tcp_object *ls_tcp_push(lua_State *L, ls_tcp *tcp)
{
    ls_tcp_object *o = ls_object_push(L, sizeof *o, 0, &ls_sock_type);
    if (tcp != NULL) ls_tcp_attach(o, tcp);
    return o;
}

void ls_tcp_attach(ls_tcp_object *object, ls_tcp *tcp)
{
    object->tcp = tcp;
    tcp->object = object;
}

static void closed(ls_thread_ctx *ctx, ls_stream *s)
{
    ls_tcp *tcp = ls_stream_user(s);
    ls_tcps *tcps = tcp->state != NULL ? ls_tcps_of(tcp->state) : NULL; /* NULL: refused */
    ls_conn_limit *limit = tcp->conn_limit;
    if (tcps != NULL && tcp->finishing) atomic_fetch_sub(&tcps->finishing, 1);
    ls_stream_free(s);
    if (limit != NULL) ls_conn_limit_leave(limit);      /* not earlier: a lingering connection still uses a socket */
    if (tcps != NULL) atomic_fetch_sub(&tcps->live, 1); /* last access to the state: at 0 its owner may close it */
}

static void drop_received(ls_tcp *tcp)
{
    ls_tcp_consume(tcp, tcp->received);
}

/* Close the stream; the queue was sent or dropped. If received bytes are unread, closing the socket makes the
 * kernel send a reset, which can destroy output that the peer has not read yet. Then the stream lingers: it reads
 * and discards input for some time before it closes. */
static void close_stream(ls_thread_ctx *ctx, ls_tcp *tcp)
{
    ls_stream *const s = ls_tcp_stream(tcp);
    const bool linger = tcp->receive_end == LS_OK && tcp->send_end == LS_OK && !ls_stream_receiving(s) &&
                        (tcp->received > 0 || ls_stream_has_unread(s));
    drop_received(tcp);
    ls_list_remove(&tcp->node);
    atomic_fetch_sub_explicit(&ls_tcps_of(tcp->state)->count, 1, memory_order_relaxed);
    if (tcp->client) ls_sockets_closed(tcp->state);
    if (linger)
        ls_stream_linger(ctx, s, LS_TCP_LINGER_MS);
    else
        ls_stream_close(ctx, s);
}

ls_stream *ls_tcp_detach(ls_tcp *tcp)
{
    ls_stream *s = ls_tcp_stream(tcp);
    if (tcp->receive_end != LS_OK || tcp->send_end != LS_OK || tcp->shut || tcp->received > 0 || tcp->topics != NULL ||
        tcp->starttls != NULL || tcp->conn_limit != NULL || ls_stream_receiving(s) || ls_stream_queued(s) > 0)
        return NULL;
    if (tcp->object != NULL) tcp->object->tcp = NULL;
    if (tcp->owner != NULL) *tcp->owner = NULL;
    ls_list_remove(&tcp->unflushed);
    ls_list_remove(&tcp->node);
    ls_tcps *tcps = ls_tcps_of(tcp->state);
    atomic_fetch_sub_explicit(&tcps->count, 1, memory_order_relaxed);
    if (tcp->client) ls_sockets_closed(tcp->state);
    ls_stream_set_actor(s, NULL);
    atomic_fetch_sub(&tcps->live, 1);
    return s;
}

bool ls_tcp_lead(ls_tcp *tcp, void **owner, void (*arrived)(ls_thread_ctx *ctx, ls_tcp *tcp, int result))
{
    if (tcp->receive_end != LS_OK || tcp->send_end != LS_OK || tcp->owner != NULL || tcp->topics != NULL ||
        tcp->starttls != NULL || ls_stream_receiving(ls_tcp_stream(tcp)))
        return false;
    if (tcp->object != NULL) tcp->object->tcp = NULL;
    tcp->object = NULL;
    tcp->owner = owner;
    *owner = tcp;
    tcp->arrived = arrived;
    ls_tcp_set_timeouts(tcp, 0, 0);
    ls_stream_recv_within(ls_tcp_stream(tcp), 0);
    return true;
}

static void drop_queue(ls_tcp *tcp)
{
    if (tcp->receive_end == LS_OK) tcp->receive_end = LS_ECANCELED; /* no linger */
    if (ls_stream_sending(ls_tcp_stream(tcp)))
        ls_stream_abort(ls_tcp_stream(tcp)); /* `sent` follows */
    else
        ls_stream_discard(ls_tcp_stream(tcp));
}

void ls_tcp_finish(ls_thread_ctx *ctx, ls_tcp *tcp)
{
    ls_task *receiver = tcp->receiver;
    ls_tcp_object *const object = tcp->object;
    if (object != NULL) object->tcp = NULL;
    if (tcp->owner != NULL) *tcp->owner = NULL;
    tcp->object = NULL;
    tcp->owner = NULL;
    tcp->receiver = NULL;
    tcp->arrived = NULL;
    tcp->finishing = true;
    atomic_fetch_add(&ls_tcps_of(tcp->state)->finishing, 1);
    if (tcp->starttls != NULL) ls_tcp_starttls_drop(tcp); /* its task is the receiver */
    const int lost = ls_tcp_topics_finish(ctx, tcp);
    if (lost < 0) {
        if (object != NULL) object->lost = (int8_t)lost;
        drop_queue(tcp);
    }
    ls_list_remove(&tcp->unflushed);
    if (!ls_stream_sending(ls_tcp_stream(tcp))) ls_stream_cork_fin(ls_tcp_stream(tcp));
    if (ls_tcp_flush(ctx, tcp) != LS_PENDING) close_stream(ctx, tcp); /* else `sent` closes it and wakes the senders */
    if (receiver != NULL) ls_task_wake(ctx, receiver, LS_OK);
}

void ls_tcp_abort(ls_thread_ctx *ctx, ls_tcp *tcp)
{
    ls_tcp_topics_end(tcp);
    drop_queue(tcp);
    ls_tcp_finish(ctx, tcp);
}

void ls_tcp_lose(ls_thread_ctx *ctx, ls_tcp *tcp, int err)
{
    if (tcp->object != NULL) tcp->object->lost = (int8_t)err;
    ls_tcp_abort(ctx, tcp);
}

/* ---- receive ---------------------------------------------------------------------------------------------------- */

/* A peer that sends byte by byte would occupy one block per byte. Therefore a small piece is copied after the
 * previous one once there are many. No reader uses the bytes after the end of a slice. false: not copied. */
static bool store_copied(ls_thread_ctx *ctx, ls_tcp *tcp, const ls_slice *slice)
{
    const size_t len = slice->len;
    if (tcp->more == NULL || tcp->more->count < PIECES_MANY || len > PIECE_BYTES_SMALL) return false;
    ls_slice *last = &tcp->more->slices[tcp->more->count - 1];
    char *end = last->block->data + (last->ptr - last->block->data) + last->len;
    if (last->block->data + last->block->cap - end < (ptrdiff_t)len) return false;
    memcpy(end, slice->ptr, len);
    ls_pool_copied(ctx->pool, len);
    last->len += len;
    return true;
}

/* Append received bytes to the slices. Takes the reference in every case. false: out of memory. */
static bool store(ls_thread_ctx *ctx, ls_tcp *tcp, ls_slice slice)
{
    ls_tcp_more *more = tcp->more;
    const size_t len = slice.len;
    if (tcp->received == 0) {
        tcp->head = slice;
    } else if (store_copied(ctx, tcp, &slice)) {
        ls_block_drop(slice.block);
    } else {
        if (more == NULL || more->count == more->room) {
            const uint32_t count = more != NULL ? more->count : 0, room = count == 0 ? 8 : count * 2;
            more = realloc(more, sizeof *more + room * sizeof more->slices[0]);
            if (more == NULL) {
                ls_slice_drop(&slice);
                return false;
            }
            more->count = count;
            more->room = room;
            tcp->more = more;
        }
        more->slices[more->count++] = slice;
    }
    tcp->received += len;
    return true;
}

/* Store the result of a receive. Its size decides the size of the next block. */
static void store_result(ls_thread_ctx *ctx, ls_tcp *tcp, int64_t result)
{
    if (result > 0) {
        tcp->large = result >= LS_BLOCK_SMALL;
        if (!store(ctx, tcp, ls_stream_take(ls_tcp_stream(tcp))))
            tcp->receive_end = LS_ENOMEM; /* bytes of the stream are lost */
    } else {
        tcp->receive_end = result == 0 ? LS_ECLOSED : (int8_t)result;
    }
}

static int receive_block(ls_thread_ctx *ctx, ls_tcp *tcp, int64_t *result)
{
    return ls_stream_recv(ctx, ls_tcp_stream(tcp), NULL, tcp->large ? LS_BLOCK_LARGE : LS_BLOCK_SMALL, result);
}

/* Receive in two steps: a receive of length 0 waits until bytes are available, and the block is taken and filled
 * when the completion runs. Hundreds of completions may be queued in the inbox of a busy state; with a one-step
 * receive each of them would already hold a block. */
int ls_tcp_fill(ls_thread_ctx *ctx, ls_tcp *tcp)
{
    int64_t result;
    if (ls_stream_receiving(ls_tcp_stream(tcp))) return LS_PENDING;
    const int probe = ls_stream_recv(ctx, ls_tcp_stream(tcp), NULL, 0, &result);
    tcp->probing = probe == LS_PENDING;
    if (probe == LS_PENDING) return probe;
    const int err = receive_block(ctx, tcp, &result);
    if (err == LS_PENDING || err == LS_ENOMEM) return err;
    store_result(ctx, tcp, err < 0 ? err : result);
    return LS_DONE;
}

int ls_tcp_await(ls_thread_ctx *ctx, ls_tcp *tcp)
{
    int64_t none;
    if (ls_stream_receiving(ls_tcp_stream(tcp))) return LS_OK;
    const int err = ls_stream_recv(ctx, ls_tcp_stream(tcp), NULL, 0, &none);
    tcp->probing = err >= 0;
    if (err == LS_DONE) ls_stream_requeue(ls_tcp_stream(tcp));
    return err < 0 ? err : LS_OK;
}

void ls_tcp_consume(ls_tcp *tcp, size_t n)
{
    ls_tcp_more *more = tcp->more;
    uint32_t dropped = 0;
    assert(n <= tcp->received);
    tcp->received -= n;
    tcp->scanned = 0;
    while (n > 0) {
        if (n < tcp->head.len) {
            tcp->head.ptr += n;
            tcp->head.len -= n;
            break;
        }
        n -= tcp->head.len;
        ls_slice_drop(&tcp->head);
        if (more != NULL && dropped < more->count) tcp->head = more->slices[dropped++];
    }
    if (more == NULL || dropped == 0) return;
    more->count -= dropped;
    memmove(more->slices, more->slices + dropped, more->count * sizeof more->slices[0]);
    if (more->count > 0) return;
    free(more);
    tcp->more = NULL;
}

static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    ls_tcp *tcp = ls_stream_user(s);
    ls_task *receiver = tcp->receiver;
    int wake = LS_OK;
    tcp->silent = result == LS_ETIMEDOUT;
    if (tcp->starttls != NULL) {
        ls_tcp_starttls_received(ctx, tcp, result);
        return;
    }
    if (tcp->probing) {
        tcp->probing = false;
        if (result == LS_OK || result == LS_EAGAIN) { /* LS_EAGAIN: of ls_tcp_await */
            const int err = receive_block(ctx, tcp, &result);
            if (err == LS_PENDING) return; /* a spurious completion: no bytes were available */
            if (err < 0) result = err;
        }
    }
    if (result == LS_ENOMEM)
        tcp->large = false; /* the next attempt takes a small block and first collects garbage buffers */
    else if (result == LS_ETIMEDOUT)
        wake = LS_ETIMEDOUT; /* the next receive may continue */
    else
        store_result(ctx, tcp, result);
    tcp->receiver = NULL;
    if (tcp->arrived != NULL)
        tcp->arrived(ctx, tcp, wake);
    else if (receiver != NULL)
        ls_task_wake(ctx, receiver, wake);
}

void ls_tcp_receive_begins(ls_tcp *tcp, ls_task *task)
{
    tcp->receiver = task;
    ls_stream_recv_within(ls_tcp_stream(tcp), tcp->receive_ms_max);
}

/* ---- send ------------------------------------------------------------------------------------------------------- */

static void take_receiver(ls_tcp *tcp, ls_node *waiting)
{
    if (tcp->receiver != NULL) {
        ls_list_remove(&tcp->receiver->wait_node); /* of the senders: call:flush waits for both */
        ls_list_push(waiting, &tcp->receiver->wait_node);
    }
    tcp->receiver = NULL;
}

/* The queue was dropped because of an error. The connection is closed if its peer accepts nothing, or if a message of
 * a topic is missing now; after other errors bytes that the peer has sent can still be received. May free tcp. */
static void queue_lost(ls_thread_ctx *ctx, ls_tcp *tcp, int err)
{
    if (tcp->arrived != NULL)
        tcp->arrived(ctx, tcp, err);
    else if (err == LS_ETIMEDOUT || ls_tcp_topics_any(tcp))
        ls_tcp_lose(ctx, tcp, err);
}

/* The queue was sent (err LS_OK) or dropped. Wakes the senders; may close the stream and free tcp. */
static void queue_ended(ls_thread_ctx *ctx, ls_tcp *tcp, int err)
{
    ls_node woken;
    if (err < 0 && tcp->send_end == LS_OK) tcp->send_end = (int8_t)err;
    if (err == LS_OK && tcp->shut && !tcp->finishing) (void)ls_stream_shutdown(ctx, ls_tcp_stream(tcp));
    ls_list_move(&woken, &tcp->senders); /* before tcp may be freed */
    if (tcp->finishing)
        close_stream(ctx, tcp);
    else if (tcp->starttls != NULL)
        ls_tcp_starttls_sent(ctx, tcp, err);
    else if (err < 0)
        queue_lost(ctx, tcp, err);
    ls_task_wake_all(ctx, &woken, LS_OK);
}

static void sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    queue_ended(ctx, ls_stream_user(s), err);
}

int ls_tcp_flush(ls_thread_ctx *ctx, ls_tcp *tcp)
{
    const int err = ls_stream_flush(ctx, ls_tcp_stream(tcp));
    if (err < 0 && tcp->send_end == LS_OK) tcp->send_end = (int8_t)err;
    return err;
}

void ls_tcp_flush_later(ls_tcp *tcp)
{
    ls_tcps *tcps = ls_tcps_of(tcp->state);
    if (!ls_list_empty(&tcp->unflushed)) return;
    ls_list_push(&tcps->unflushed, &tcp->unflushed);
    ls_state_flush_later(tcp->state, &tcps->flush);
}

static void flush_all(ls_thread_ctx *ctx, ls_state *state, ls_flush *flush, bool suspended)
{
    ls_tcps *tcps = LS_CONTAINER(flush, ls_tcps, flush);
    LS_LIST_TAKE (ls_tcp, tcp, &tcps->unflushed, unflushed) {
        const int err = ls_tcp_flush(ctx, tcp);
        if (err < 0) queue_lost(ctx, tcp, err);
    }
}

/* ---- accepted --------------------------------------------------------------------------------------------------- */

typedef struct serve_order {
    ls_tcp *tcp;
    unsigned index; /* of the listener */
    ls_task *task;
} serve_order;

static int serve_prepare(lua_State *L)
{
    serve_order *order = lua_touserdata(L, 1);
    ls_tcp *tcp = order->tcp;
    ls_state *state = tcp->state;
    lua_rawgeti(L, LUA_REGISTRYINDEX, ls_listeners_of(state)->at[order->index].dispatch_ref);
    (void)ls_tcp_push(L, tcp);
    order->task = ls_task_take(L, state);
    lua_xmove(L, order->task->co, 2);
    return 0;
}

/* The name of a connection in the log. `tcp` NULL: its handler has closed it. */
static const char *log_name(ls_tcp *tcp, char out[LOG_NAME_BYTES])
{
    char text[LS_ADDR_TEXT_BYTES];
    (void)snprintf(out, LOG_NAME_BYTES, tcp != NULL ? "connection from %s" : "a connection that is closed already",
                   tcp != NULL ? ls_stream_peer_text(ls_tcp_stream(tcp), text) : "");
    return out;
}

/* `task` serves the connection, and is ended although it waits. */
static void log_ended(ls_tcp *tcp, const ls_task *task)
{
    char name[LOG_NAME_BYTES], line[LINE_BYTES];
    ls_task_line(task->co, line, sizeof line);
    ls_log(LS_LOG_INFO, "%s: its handler was ended while it waited at %s: the site was replaced or stopped",
           log_name(tcp, name), line);
}

static char ended; /* its address is the owner of a task whose log_ended was called */

/* A handler returned text as those of ls.listen and ls.udp do: it is not sent. Logged once. */
static void log_returned(const ls_state *state, lua_State *co, unsigned listener)
{
    lua_Debug ar;
    ls_tcps *tcps = ls_tcps_of(state);
    if (tcps->returned_logged) return;
    tcps->returned_logged = true;
    lua_rawgeti(co, LUA_REGISTRYINDEX, ls_listeners_of(state)->at[listener].dispatch_ref);
    (void)lua_getinfo(co, ">S", &ar);
    ls_log(LS_LOG_WARN,
           "%s:%d: a function of ls.tcp returned a %s, which is not sent (logged once): use sock:send(text)",
           ar.short_src, ar.linedefined, luaL_typename(co, -1));
}

/* The handler has ended with the connection of a client that has sent nothing. Those after the first one: level debug. */
static void log_silent(ls_tcp *tcp)
{
    char name[LOG_NAME_BYTES];
    ls_tcps *tcps = ls_tcps_of(tcp->state);
    ls_log(
        tcps->silent_logged ? LS_LOG_DEBUG : LS_LOG_INFO,
        "%s: closed, because it sent nothing for %.3g s: read_timeout of ls.tcp, which false switches off for clients "
        "that may be silent (logged once)",
        log_name(tcp, name), (double)tcp->receive_ms_max / 1000);
    tcps->silent_logged = true;
}

static void serve_ended(ls_thread_ctx *ctx, ls_task *task, int status, int count)
{
    char name[LOG_NAME_BYTES];
    const bool logged = task->owner == &ended;
    if (logged) task->owner = NULL;
    ls_tcp *const tcp = task->owner;
    if (status == LUA_OK && tcp != NULL && tcp->silent && tcp->listener != LS_LISTENER_CONTROL) log_silent(tcp);
    if (status == LUA_OK && count > 0 && tcp != NULL && tcp->listener != LS_LISTENER_CONTROL) {
        ls_task_log_failure(task->co, lua_gettop(task->co) - count + 1, "a function of ls.tcp");
        lua_settop(task->co, -count); /* the first result */
        if (lua_type(task->co, -1) == LUA_TSTRING || ls_buffer_test(task->co, -1) != NULL)
            log_returned(task->state, task->co, tcp->listener);
    }
    if (status != LUA_OK && ls_task_is_canceled(task)) {
        if (!logged) log_ended(task->owner, task);
    } else if (status != LUA_OK) {
        ls_task_log_error(ctx, task, log_name(task->owner, name)); /* may run Lua, which may close the connection */
    }
    if (task->owner != NULL) ls_tcp_finish(ctx, task->owner); /* before the release: it clears task->owner */
    ls_state *state = task->state;
    ls_task_release(ctx, task, status == LUA_OK);
    ls_tcps *tcps = ls_tcps_of(state);
    ls_state_count_ended(ctx, state, &tcps->ended, atomic_load_explicit(&tcps->count, memory_order_relaxed));
}

/* Close a stream that no state takes: its user stays zero, because the server may be freed before the stream is
 * closed. */
static void refuse(ls_thread_ctx *ctx, const ls_tcp_server *server, ls_stream *s)
{
    if (server->conn_limit != NULL) ls_conn_limit_leave(server->conn_limit);
    ls_stream_close(ctx, s);
}

static void serve(ls_thread_ctx *ctx, ls_state *state, ls_tcp_server *server, ls_stream *s)
{
    if (atomic_load(&state->closed)) { /* the handshake has outlasted the site */
        refuse(ctx, server, s);
        return;
    }
    serve_order order = {adopt(state, s, &server->config, server->conn_limit), server->index, NULL};
    if (server->config.keepalive_s > 0)
        (void)ls_stream_keepalive(ls_tcp_stream(order.tcp), true, server->config.keepalive_s);
    if (ls_state_protected(state, ctx, serve_prepare, &order) != LUA_OK || order.task == NULL) {
        ls_log(LS_LOG_ERROR, "not enough memory to serve a connection");
        ls_tcp_finish(ctx, order.tcp);
        return;
    }
    ls_task *task = order.task;
    task->ended = serve_ended;
    task->bare = true;
    task->owner = order.tcp;
    ls_task_enter(task, server->index != LS_LISTENER_CONTROL ? LS_SCOPE_CONNECTION : LS_SCOPE_JOB);
    order.tcp->owner = &task->owner;
    order.tcp->served = true;
    order.tcp->listener = (uint8_t)server->index;
    ls_task_count(task);
    ls_task_run(ctx, task, 1);
}

const size_t ls_tcp_user_bytes = sizeof(ls_tcp);

typedef struct waiting_stream { /* no state is free */
    ls_op op;
    ls_stream *stream;
    ls_tcp_server *server;
} waiting_stream;

static void serve_waiting(ls_thread_ctx *ctx, ls_op *op)
{
    waiting_stream *w = LS_CONTAINER(op, waiting_stream, op);
    ls_tcp_server *server = w->server;
    ls_stream *s = w->stream;
    ls_state *state = ls_state_of_actor(op->actor);
    free(w);
    ls_state_begin_request(ctx, state);
    serve(ctx, state, server, s);
    atomic_fetch_sub(&server->generation->waiting, 1);
}

static unsigned connection_count(const ls_state *state)
{
    return atomic_load_explicit(&ls_tcps_of(state)->count, memory_order_relaxed);
}

void ls_tcp_start(ls_thread_ctx *ctx, ls_stream *s, void *tcp_server)
{
    ls_tcp_server *server = tcp_server;
    ls_generation *generation = server->generation;
    assert(ctx->inside == NULL);
    ls_stream_handover(s, &ls_tcp_handler);
    if (atomic_load(&generation->closing) >= LS_CLOSING) { /* make no state of it any more */
        refuse(ctx, server, s);
        return;
    }
    ls_state *state = ls_generation_enter(generation, ctx, connection_count);
    if (state != NULL) {
        serve(ctx, state, server, s);
        ls_actor_leave(&state->actor, ctx);
        return;
    }
    waiting_stream *w = calloc(1, sizeof *w);
    if (w == NULL) {
        ls_log(LS_LOG_ERROR, "not enough memory to serve a connection");
        refuse(ctx, server, s);
        return;
    }
    w->stream = s;
    w->server = server;
    ls_generation_post(generation, ctx, &w->op, serve_waiting);
}

/* ---- drain and close -------------------------------------------------------------------------------------------- */

/* A stop ends the connections that are idle. */
static void tcp_end(ls_thread_ctx *ctx, ls_state *state, enum ls_end_why why)
{
    if (why != LS_END_STOP) return;
    ls_node waiting = LS_LIST_INIT(waiting);
    LS_LIST_EACH (ls_tcp, tcp, &ls_tcps_of(state)->open, node)
        if (!tcp->client && tcp->received == 0 && tcp->starttls == NULL) take_receiver(tcp, &waiting);
    ls_task_wake_all(ctx, &waiting, LS_OK); /* not in the loop: a task may close any connection */
}

/* Those of a replaced site that send their last bytes continue, until the drain ends by time. */
static void tcp_close(ls_thread_ctx *ctx, ls_state *state)
{
    const bool may_send = atomic_load(&state->generation->closing) == LS_CLOSING;
    ls_node waiting = LS_LIST_INIT(waiting);
    LS_LIST_EACH_DROP (ls_tcp, tcp, &ls_tcps_of(state)->open, node) {
        if (tcp->finishing && may_send) continue;
        if (tcp->receive_end == LS_OK) tcp->receive_end = LS_ECANCELED; /* no linger */
        take_receiver(tcp, &waiting);
        ls_tcp_topics_end(tcp);
        ls_stream_abort(ls_tcp_stream(tcp));
        ls_task *task = tcp->served && tcp->owner != NULL ? LS_CONTAINER(tcp->owner, ls_task, owner) : NULL;
        if (task != NULL && task->ending != LS_END_NONE) log_ended(tcp, task);
        if (!tcp->finishing) ls_tcp_finish(ctx, tcp);
        if (task != NULL && task->ending != LS_END_NONE) task->owner = &ended;
    }
    ls_task_wake_all(ctx, &waiting, LS_OK); /* not in the loop: a task may close any connection */
}

static void tcp_abandon(ls_state *state)
{
    const ls_tcps *tcps = ls_tcps_of(state);
    while (!ls_list_empty(&tcps->open)) {
        ls_tcp *tcp = LS_CONTAINER(tcps->open.next, ls_tcp, node);
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the object freed before has left the list */
        if (tcp->object != NULL) tcp->object->tcp = NULL;
        if (tcp->owner != NULL) *tcp->owner = NULL;
        ls_list_remove(&tcp->node);
        drop_received(tcp);
        if (tcp->starttls != NULL) ls_tcp_starttls_drop(tcp);
        ls_tcp_topics_end(tcp);
        ls_stream_free(ls_tcp_stream(tcp));
    }
}

static bool tcp_closed(ls_state *state)
{
    return atomic_load(&ls_tcps_of(state)->live) == 0;
}

static void tcp_define(lua_State *L, ls_state *state)
{
    ls_tcps *tcps = ls_tcps_of(state);
    ls_node_init(&tcps->open);
    ls_node_init(&tcps->unflushed);
    tcps->flush.run = flush_all;
}

const ls_module ls_tcp_module = {.name = "tcp",
                                 .bytes = sizeof(ls_tcps),
                                 .define = tcp_define,
                                 .end = tcp_end,
                                 .close = tcp_close,
                                 .closed = tcp_closed,
                                 .abandon = tcp_abandon};
