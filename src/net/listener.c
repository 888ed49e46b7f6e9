/* listener.c - see listener.h.
 *
 * An accept is always in one of three states: posted, being handed over, or on limit->waiting with an accepted
 * connection, which is admitted when the count falls below the limit. Only connections count, not posted accepts: else
 * the accepts of one listener would take the limit from the connections of another. */
#include "net/listener.h"

#include <assert.h>
#include <stdlib.h>

#include "base/io/log.h"
#include "net/sock/rawsock.h"

typedef struct accept_slot {
    ls_op op; /* also the packet that reports that its connection was admitted */
    ls_node waiting;
    ls_fd fd; /* while waiting */
    ls_listener *listener;
    ls_sockaddr from;
} accept_slot;

struct ls_listener {
    ls_port *port;
    ls_sock *sock;
    ls_conn_limit *conn_limit;
    ls_accepted_fn *accepted;
    void (*ended)(void *user);
    void *user;
    ls_addr addr;
    ls_path_id path;       /* of a Unix listener */
    _Atomic uint32_t refs; /* posted or waiting slots, plus one for the owner */
    ls_mutex mutex;        /* orders the posting of accepts and the close of the socket */
    bool stopping;         /* under mutex */
    bool started;
    bool kept; /* ls_listener_keep */
    uint32_t slot_count;
    accept_slot slots[];
};

static void accept_done(ls_thread_ctx *ctx, ls_op *op);
static void slot_admitted(ls_thread_ctx *ctx, ls_op *op);

void ls_conn_limit_open(ls_conn_limit *limit, uint32_t connections_max)
{
    atomic_init(&limit->count, 0);
    atomic_init(&limit->accepts, 0);
    atomic_init(&limit->has_waiting, false);
    limit->max = connections_max;
    ls_node_init(&limit->waiting);
    ls_mutex_open(&limit->mutex);
}

void ls_conn_limit_close(ls_conn_limit *limit)
{
    ls_mutex_close(&limit->mutex);
}

/* `accepts` falls after the slot's connection was counted, so read `accepts` first. */
bool ls_conn_limit_idle(const ls_conn_limit *limit)
{
    return atomic_load(&limit->accepts) == 0 && atomic_load(&limit->count) == 0;
}

static void unref(ls_listener *listener, uint32_t count)
{
    if (atomic_fetch_sub(&listener->refs, count) != count) return;
    void (*const ended)(void *user) = listener->ended;
    void *const user = listener->user;
    ls_mutex_close(&listener->mutex);
    free(listener);
    if (ended != NULL) ended(user);
}

bool ls_conn_limit_enter(ls_conn_limit *limit)
{
    uint32_t count = atomic_load(&limit->count);
    do {
        if (count >= limit->max) return false;
    } while (!atomic_compare_exchange_weak(&limit->count, &count, count + 1));
    return true;
}

/* Admit waiting connections in their order while the limit allows it. Packets hand them over, because the caller may
 * be inside an actor. */
static void admit_waiting(ls_conn_limit *limit)
{
    for (;;) {
        accept_slot *slot = NULL;
        ls_mutex_lock(&limit->mutex);
        if (!ls_list_empty(&limit->waiting) && ls_conn_limit_enter(limit)) {
            slot = LS_CONTAINER(limit->waiting.next, accept_slot, waiting);
            ls_list_remove(&slot->waiting);
        }
        atomic_store(&limit->has_waiting, !ls_list_empty(&limit->waiting));
        ls_mutex_unlock(&limit->mutex);
        if (slot == NULL) return;
        slot->op.done = slot_admitted;
        ls_port_post(slot->listener->port, &slot->op, 0);
    }
}

void ls_conn_limit_leave(ls_conn_limit *limit)
{
    uint32_t before = atomic_fetch_sub(&limit->count, 1);
    assert(before > 0);
    (void)before;
    if (atomic_load(&limit->has_waiting)) admit_waiting(limit);
}

/* Hold the connection until it is admitted. */
static void wait_for_admission(accept_slot *slot, ls_fd fd)
{
    ls_conn_limit *limit = slot->listener->conn_limit;
    slot->fd = fd;
    ls_mutex_lock(&limit->mutex);
    ls_list_push(&limit->waiting, &slot->waiting);
    atomic_store(&limit->has_waiting, true);
    ls_mutex_unlock(&limit->mutex);
    admit_waiting(limit); /* the count may have fallen before the connection was on the list */
}

/* Close the accept: its listener was stopped, or it failed for good. */
static void retire(accept_slot *slot, int64_t why)
{
    if (why != LS_ECANCELED) ls_log(LS_LOG_ERROR, "accept failed: %s", ls_err_text((int)why));
    atomic_fetch_sub(&slot->listener->conn_limit->accepts, 1);
    unref(slot->listener, 1);
}

static void post(ls_thread_ctx *ctx, accept_slot *slot)
{
    ls_listener *listener = slot->listener;
    int err = LS_ECANCELED;
    slot->op.done = accept_done;
    ls_mutex_lock(&listener->mutex);
    if (!listener->stopping) err = ls_op_accept(ctx, listener->sock, &slot->op, &slot->from);
    ls_mutex_unlock(&listener->mutex);
    if (err != LS_PENDING) retire(slot, err);
}

/* The connection is admitted. */
static void hand_over(ls_thread_ctx *ctx, accept_slot *slot, ls_fd fd)
{
    /* Post the next accept first: another thread may take it while this one handles the connection. */
    const ls_sockaddr from = slot->from;
    ls_accepted_fn *accepted = slot->listener->accepted;
    void *user = slot->listener->user;
    post(ctx, slot);
    accepted(ctx, user, fd, &from);
}

static void slot_admitted(ls_thread_ctx *ctx, ls_op *op)
{
    accept_slot *slot = LS_CONTAINER(op, accept_slot, op);
    hand_over(ctx, slot, slot->fd);
}

static void accept_done(ls_thread_ctx *ctx, ls_op *op)
{
    accept_slot *slot = LS_CONTAINER(op, accept_slot, op);
    ls_conn_limit *limit = slot->listener->conn_limit;
    if (op->result < 0)
        retire(slot, op->result);
    else if (!atomic_load(&limit->has_waiting) && ls_conn_limit_enter(limit))
        hand_over(ctx, slot, op->accept.fd);
    else
        wait_for_admission(slot, op->accept.fd); /* after the connections that wait already */
}

int ls_listener_open(ls_port *port, const ls_addr *at, const ls_listener_options *options, ls_conn_limit *limit,
                     ls_accepted_fn *accepted, void *user, ls_listener **out)
{
    int err = LS_ENOMEM;
    const uint32_t accepts = options->accepts;
    ls_fd fd;
    ls_listener *l = calloc(1, sizeof *l + accepts * sizeof l->slots[0]);
    if (l == NULL) return err;
    l->port = port;
    l->conn_limit = limit;
    l->accepted = accepted;
    l->ended = options->ended;
    l->user = user;
    l->slot_count = accepts;
    atomic_init(&l->refs, 1);
    for (uint32_t i = 0; i < accepts; i++) {
        l->slots[i].listener = l;
        l->slots[i].op.done = accept_done;
        ls_node_init(&l->slots[i].waiting);
    }
    ls_mutex_open(&l->mutex);
    if ((err = ls_sock_listen(at, options->backlog, options->access, &fd, &l->addr)) < 0) goto fail_mutex;
    ls_sock_path_id(&l->addr, &l->path);
    if ((err = ls_sock_attach(port, fd, false, &l->sock)) < 0) goto fail_fd;
    ls_sock_share(l->sock);
    *out = l;
    return LS_OK;

fail_fd:
    ls_sock_unlink(&l->addr, &l->path);
    ls_sock_discard(fd);
fail_mutex:
    ls_mutex_close(&l->mutex);
    free(l);
    return err;
}

const ls_addr *ls_listener_addr(const ls_listener *listener)
{
    return &listener->addr;
}

void ls_listener_set_backlog(ls_listener *listener, uint32_t backlog)
{
    (void)ls_rawsock_listen(ls_sock_fd(listener->sock), (int)backlog); /* Winsock ignores the second call */
}

ls_fd ls_listener_keep(ls_listener *listener, bool kept)
{
    listener->kept = kept;
    return ls_sock_fd(listener->sock);
}

void ls_listener_start(ls_thread_ctx *ctx, ls_listener *listener)
{
    listener->started = true;
    atomic_fetch_add(&listener->refs, listener->slot_count);
    atomic_fetch_add(&listener->conn_limit->accepts, listener->slot_count);
    for (uint32_t i = 0; i < listener->slot_count; i++) post(ctx, &listener->slots[i]);
}

/* Accept past the limit rather than drop a connection. */
static void accept_last(ls_thread_ctx *ctx, const ls_listener *listener, ls_fd fd, const ls_sockaddr *from)
{
    atomic_fetch_add(&listener->conn_limit->count, 1);
    listener->accepted(ctx, listener->user, fd, from);
}

void ls_listener_stop(ls_thread_ctx *ctx, ls_listener *listener)
{
    ls_conn_limit *limit = listener->conn_limit;
    ls_mutex_lock(&listener->mutex);
    listener->stopping = true;
    ls_mutex_unlock(&listener->mutex);
    /* Before the last accepts: from now on no client can connect, so none is lost when the socket closes. */
    if (!listener->kept) ls_sock_unlink(&listener->addr, &listener->path);

    ls_node held = LS_LIST_INIT(held);
    ls_mutex_lock(&limit->mutex);
    LS_LIST_EACH_DROP (accept_slot, slot, &limit->waiting, waiting) {
        if (slot->listener != listener) continue;
        ls_list_remove(&slot->waiting);
        ls_list_push(&held, &slot->waiting);
    }
    ls_mutex_unlock(&limit->mutex);

    uint32_t retired = 0;
    LS_LIST_TAKE (accept_slot, slot, &held, waiting) {
        accept_last(ctx, listener, slot->fd, &slot->from);
        retired++;
    }
    ls_fd fd;
    ls_sockaddr from;
    while (listener->started && !listener->kept && ls_sock_accept(ls_sock_fd(listener->sock), &fd, &from) == LS_OK)
        accept_last(ctx, listener, fd, &from);

    ls_sock_close(ctx, listener->sock);
    atomic_fetch_sub(&limit->accepts, retired);
    unref(listener, retired + 1); /* and the reference of the owner */
}
