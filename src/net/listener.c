/* listener.c - see listener.h.
 *
 * An accept is always in one of three places: posted, being handed over, or held back on gate->held. A connection is
 * counted when it is accepted, so at most accepts x listeners more than `max` could be open for a moment; to keep the
 * limit exact, an accept is posted only with a place for its connection reserved in the count. */
#include "net/listener.h"

#include <assert.h>
#include <stdlib.h>

#include "base/log.h"
#include "net/sock.h"

typedef struct accept_slot {
    ls_op op;
    ls_node held;
    ls_listener *listener;
    ls_sockaddr from;
} accept_slot;

struct ls_listener {
    ls_port *port;
    ls_sock *sock;
    ls_gate *gate;
    ls_accepted_fn *accepted;
    void *user;
    ls_addr addr;
    _Atomic uint32_t refs; /* slots in use, and the owner */
    ls_mutex mutex;        /* orders posting an accept and closing the socket */
    bool stopping;         /* under mutex */
    bool started;
    uint32_t slot_count;
    accept_slot slots[];
};

static void accept_done(ls_seat *seat, ls_op *op);

int ls_gate_open(ls_gate *gate, uint32_t connections_max)
{
    atomic_init(&gate->count, 0);
    atomic_init(&gate->some_held, false);
    gate->max = connections_max;
    ls_node_init(&gate->held);
    return ls_mutex_open(&gate->mutex);
}

void ls_gate_close(ls_gate *gate)
{
    ls_mutex_close(&gate->mutex);
}

static void unref(ls_listener *listener, uint32_t count)
{
    if (atomic_fetch_sub(&listener->refs, count) != count) return;
    ls_sock_unlink(&listener->addr);
    ls_mutex_close(&listener->mutex);
    free(listener);
}

/* Reserve a place for one connection. */
static bool enter(ls_gate *gate)
{
    uint32_t count = atomic_load(&gate->count);
    do {
        if (count >= gate->max) return false;
    } while (!atomic_compare_exchange_weak(&gate->count, &count, count + 1));
    return true;
}

static void post(ls_seat *seat, accept_slot *slot);

/* Give the accepts that were held back a place each, while there are places. */
static void release_held(ls_seat *seat, ls_gate *gate)
{
    for (;;) {
        accept_slot *slot = NULL;
        ls_mutex_lock(&gate->mutex);
        if (!ls_list_empty(&gate->held) && enter(gate)) {
            slot = LS_CONTAINER(gate->held.next, accept_slot, held);
            ls_list_remove(&slot->held);
        }
        atomic_store(&gate->some_held, !ls_list_empty(&gate->held));
        ls_mutex_unlock(&gate->mutex);
        if (slot == NULL) return;
        post(seat, slot);
    }
}

void ls_gate_leave(ls_seat *seat, ls_gate *gate)
{
    uint32_t before = atomic_fetch_sub(&gate->count, 1);
    assert(before > 0);
    (void)before;
    if (atomic_load(&gate->some_held)) release_held(seat, gate);
}

/* Hold the accept back until a place is free. */
static void hold_back(ls_seat *seat, accept_slot *slot)
{
    ls_gate *gate = slot->listener->gate;
    ls_mutex_lock(&gate->mutex);
    ls_list_push(&gate->held, &slot->held);
    atomic_store(&gate->some_held, true);
    ls_mutex_unlock(&gate->mutex);
    release_held(seat, gate); /* a place may have become free before the accept was on the list */
}

/* The accept, which has a place, is used no more: its listener was stopped, or it failed for good. */
static void retire(ls_seat *seat, accept_slot *slot, int64_t why)
{
    if (why != LS_ECANCELED) ls_log(LS_LOG_ERROR, "accept: %s", ls_err_text((int)why));
    ls_gate_leave(seat, slot->listener->gate);
    unref(slot->listener, 1);
}

/* The caller reserved a place. */
static void post(ls_seat *seat, accept_slot *slot)
{
    ls_listener *listener = slot->listener;
    int err = LS_ECANCELED;
    ls_mutex_lock(&listener->mutex);
    if (!listener->stopping) err = ls_op_accept(seat, listener->sock, &slot->op, &slot->from);
    ls_mutex_unlock(&listener->mutex);
    if (err != LS_PENDING) retire(seat, slot, err);
}

static void accept_done(ls_seat *seat, ls_op *op)
{
    accept_slot *slot = LS_CONTAINER(op, accept_slot, op);
    ls_listener *listener = slot->listener;
    ls_fd fd = op->accept.fd;
    int64_t result = op->result;
    if (result < 0) {
        retire(seat, slot, result);
        return;
    }
    /* The next accept first: another thread may take it while this one is with the connection. */
    ls_sockaddr from = slot->from;
    ls_accepted_fn *accepted = listener->accepted;
    void *user = listener->user;
    if (enter(listener->gate))
        post(seat, slot);
    else
        hold_back(seat, slot);
    accepted(seat, user, fd, &from);
}

int ls_listener_open(ls_port *port, const ls_addr *at, uint32_t backlog, uint32_t accepts, ls_gate *gate,
                     ls_accepted_fn *accepted, void *user, ls_listener **out)
{
    int err = LS_ENOMEM;
    ls_fd fd;
    ls_listener *l = calloc(1, sizeof *l + accepts * sizeof l->slots[0]);
    if (l == NULL) return err;
    l->port = port;
    l->gate = gate;
    l->accepted = accepted;
    l->user = user;
    l->slot_count = accepts;
    atomic_init(&l->refs, 1);
    for (uint32_t i = 0; i < accepts; i++) {
        l->slots[i].listener = l;
        l->slots[i].op.done = accept_done;
        ls_node_init(&l->slots[i].held);
    }
    if ((err = ls_mutex_open(&l->mutex)) < 0) goto fail_alloc;
    if ((err = ls_sock_listen(at, backlog, &fd, &l->addr)) < 0) goto fail_mutex;
    if ((err = ls_sock_attach(port, fd, l, false, &l->sock)) < 0) goto fail_fd;
    *out = l;
    return LS_OK;

fail_fd:
    ls_sock_discard(fd);
    ls_sock_unlink(&l->addr);
fail_mutex:
    ls_mutex_close(&l->mutex);
fail_alloc:
    free(l);
    return err;
}

const ls_addr *ls_listener_addr(const ls_listener *listener)
{
    return &listener->addr;
}

void ls_listener_start(ls_seat *seat, ls_listener *listener)
{
    listener->started = true;
    for (uint32_t i = 0; i < listener->slot_count; i++) {
        atomic_fetch_add(&listener->refs, 1);
        if (enter(listener->gate))
            post(seat, &listener->slots[i]);
        else
            hold_back(seat, &listener->slots[i]);
    }
}

void ls_listener_stop(ls_seat *seat, ls_listener *listener)
{
    ls_gate *gate = listener->gate;
    ls_mutex_lock(&listener->mutex);
    listener->stopping = true;
    ls_mutex_unlock(&listener->mutex);

    ls_fd fd;
    ls_sockaddr from;
    while (listener->started && ls_sock_accept(ls_sock_fd(listener->sock), &fd, &from) == LS_OK) {
        atomic_fetch_add(&gate->count, 1); /* a place past the limit, rather than a client cut off */
        listener->accepted(seat, listener->user, fd, &from);
    }

    ls_mutex_lock(&gate->mutex);
    ls_node *node = gate->held.next;
    uint32_t retired = 0;
    while (node != &gate->held) {
        accept_slot *slot = LS_CONTAINER(node, accept_slot, held);
        node = node->next;
        if (slot->listener != listener) continue;
        ls_list_remove(&slot->held);
        retired++;
    }
    ls_mutex_unlock(&gate->mutex);

    ls_sock_close(seat, listener->sock);
    unref(listener, retired + 1); /* and the owner's */
}
