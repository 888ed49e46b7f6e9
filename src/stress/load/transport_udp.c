/* transport_udp.c - datagrams: see transport.h. A message is one datagram. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "net/sock/sock.h"
#include "net/udp/udp.h"
#include "port/datagram.h"
#include "stress/load/worker.h"

enum { DATAGRAMS_AT_ONCE = 4 };

struct ls_stress_udp {
    ls_op rx, tx;
    ls_stress_vu *u;
    ls_sock *sock;        /* NULL: closed */
    uint8_t pending;      /* packets */
    bool sending;         /* the datagram is with the system */
    ls_datagram datagram; /* its slice is the output */
};

/* A packet was handled, which may have closed the socket. */
static void end_packet(struct ls_stress_udp *d)
{
    d->pending--;
    if (d->sock == NULL && d->pending == 0) ls_stress_vu_released(d->u);
}

static void sent(ls_thread_ctx *ctx, ls_op *op)
{
    struct ls_stress_udp *d = LS_CONTAINER(op, struct ls_stress_udp, tx);
    const int64_t result = op->result;
    d->sending = false;
    ls_slice_drop(&d->datagram.slice);
    if (d->sock != NULL) ls_stress_vu_sent(d->u, result < 0 ? (int)result : LS_OK);
    end_packet(d);
}

static void received(ls_thread_ctx *ctx, ls_op *op)
{
    struct ls_stress_udp *d = LS_CONTAINER(op, struct ls_stress_udp, rx);
    const int64_t result = op->result;
    if (d->sock != NULL)
        ls_stress_vu_received(d->u, result);
    else if (result > 0)
        ls_datagrams_drop(op->recv_from.batch);
    end_packet(d);
}

static int open_socket(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    ls_udp_setup setup;
    ls_addr local;
    ls_fd fd;
    struct ls_stress_udp *d = u->udp;
    if (d == NULL && (d = u->udp = calloc(1, sizeof *d)) == NULL) return LS_ENOMEM;
    d->u = u;
    d->rx.done = received;
    d->tx.done = sent;
    ls_udp_setup_defaults(&setup);
    int err = ls_udp_sock_open(&setup, NULL, &w->addr, &fd, &local);
    if (err < 0) return err;
    if ((err = ls_sock_attach(w->port, fd, false, &d->sock)) < 0) {
        d->sock = NULL;
        ls_sock_discard(fd);
        return err;
    }
    u->attached = true;
    return LS_DONE;
}

/* A block whose free end has room for `len` more bytes of this datagram. */
static char *room(ls_stress_vu *u, size_t len)
{
    ls_slice *out = &u->udp->datagram.slice;
    const size_t all = out->len + len;
    if (out->block != NULL && all <= out->block->cap) return out->block->data + out->len;
    ls_block *block = ls_block_get(u->worker->pool, all <= LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
    if (block == NULL) return NULL;
    const size_t before = out->len;
    if (before > 0) memcpy(block->data, out->ptr, before);
    ls_slice_drop(out);
    *out = (ls_slice){block, block->data, before};
    return block->data + before;
}

static bool put(ls_stress_vu *u, const char *bytes, size_t len)
{
    char *to = room(u, len);
    if (to == NULL) return false;
    memcpy(to, bytes, len);
    u->udp->datagram.slice.len += len;
    return true;
}

static bool put_static(ls_stress_vu *u, const char *bytes, size_t len)
{
    assert(u->udp->datagram.slice.len == 0);
    u->udp->datagram.slice = ls_slice_static(bytes, len);
    return true;
}

static int send(ls_stress_vu *u)
{
    struct ls_stress_udp *d = u->udp;
    d->datagram = (ls_datagram){.slice = d->datagram.slice};
    const int err = ls_op_send_to(&u->worker->ctx, d->sock, &d->tx, &d->datagram, 1);
    if (err == LS_PENDING) {
        d->pending++;
        d->sending = true;
    } else {
        ls_slice_drop(&d->datagram.slice);
    }
    return err;
}

static int receive(ls_stress_vu *u, int64_t *result)
{
    struct ls_stress_udp *d = u->udp;
    const int err = ls_op_recv_from(&u->worker->ctx, d->sock, &d->rx, DATAGRAMS_AT_ONCE, LS_UDP_PAYLOAD_MAX);
    if (err == LS_PENDING) d->pending++;
    *result = err == LS_DONE ? d->rx.result : err;
    return err;
}

static bool deliver(ls_stress_vu *u, int64_t result)
{
    ls_stress_worker *w = u->worker;
    ls_datagrams *batch = u->udp->rx.recv_from.batch;
    bool ok = true;
    for (unsigned i = 0; ok && i < batch->count; i++) {
        ls_counter_add(&w->count.bytes_in, batch->at[i].slice.len);
        ok = u->proto->received(u, batch->at[i].slice.ptr, batch->at[i].slice.len);
    }
    ls_datagrams_drop(batch);
    return ok;
}

static void close_socket(ls_stress_vu *u)
{
    struct ls_stress_udp *d = u->udp;
    ls_sock *sock = d->sock;
    d->sock = NULL;
    ls_sock_close(&u->worker->ctx, sock);
    if (!d->sending) ls_slice_drop(&d->datagram.slice);
    if (d->pending == 0) ls_stress_vu_released(u);
}

static void free_udp(ls_stress_vu *u)
{
    if (u->udp != NULL) ls_slice_drop(&u->udp->datagram.slice);
    free(u->udp);
}

const ls_stress_transport ls_stress_udp_transport = {
    .open = open_socket,
    .put = put,
    .put_static = put_static,
    .send = send,
    .receive = receive,
    .deliver = deliver,
    .close = close_socket,
    .free = free_udp,
};
