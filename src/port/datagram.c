/* datagram.c - the memory of a batch, and the result of a send: what back ends share of datagram.h. */
#include "port/datagram.h"

#include <assert.h>

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
