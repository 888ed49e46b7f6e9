/* datagram.c - the part of datagram.h that is the same on every back end. */
#include "port/datagram.h"

#include <assert.h>

#include "port/common_internal.h"
#include "port/datagram_internal.h"

void ls_datagrams_drop(ls_datagrams *batch)
{
    for (unsigned at = 0, end; at < batch->count; at = end) { /* neighbours usually share a block */
        ls_block *const block = batch->at[at].slice.block;
        for (end = at + 1; end < batch->count && batch->at[end].slice.block == block;) end++;
        if (block != NULL) ls_block_drop_many(block, end - at);
    }
    ls_block_drop(batch->block);
}

static size_t head_bytes(unsigned count)
{
    return (sizeof(ls_datagrams) + count * sizeof(ls_datagram) + 15) & ~(size_t)15;
}

ls_datagrams *ls_batch_open(ls_pool *pool, unsigned *count, size_t room, size_t *from)
{
    const size_t head = head_bytes(*count);
    const bool together = head + room <= LS_BLOCK_LARGE;
    if (!together) {
        const unsigned most = LS_DATAGRAM_BLOCKS_MAX * (LS_BLOCK_LARGE / (unsigned)room);
        if (*count > most) *count = most;
        assert(head_bytes(*count) <= LS_BLOCK_SMALL);
    }
    ls_block *block = ls_block_get(pool, together ? LS_BLOCK_LARGE : LS_BLOCK_SMALL);
    if (block == NULL) return NULL;
    *from = together ? head : 0;
    ls_datagrams *batch = (ls_datagrams *)(void *)block->data;
    batch->block = block;
    batch->count = 0;
    return batch;
}

int ls_op_recv_from(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, unsigned count, uint32_t bytes_max)
{
    assert(count >= 1 && count <= LS_DATAGRAMS_MAX && bytes_max >= 1 && bytes_max <= LS_DATAGRAM_BYTES_MAX);
    ls_op_begin(op, KIND_RECV_FROM, ls_sock_key(sock));
    op->count = (uint16_t)count;
    op->len = bytes_max;
    op->recv_from.batch = NULL;
    return ls_sock_post_recv(ctx, sock, op);
}

int ls_op_send_to(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, ls_datagram *datagrams, uint16_t count)
{
    assert(count >= 1);
    ls_op_begin(op, KIND_SEND_TO, ls_sock_key(sock));
    op->count = count;
    op->send_to.at = datagrams;
    for (unsigned i = 0; i < count; i++) datagrams[i].error = LS_OK;
    return ls_sock_post_send(ctx, sock, op);
}

int64_t ls_batch_sent(const ls_op *op)
{
    int64_t left = 0;
    int err = LS_OK;
    for (unsigned i = 0; i < op->count; i++) {
        if (op->send_to.at[i].error == LS_OK)
            left++;
        else if (err == LS_OK)
            err = op->send_to.at[i].error;
    }
    return left > 0 ? left : err;
}
