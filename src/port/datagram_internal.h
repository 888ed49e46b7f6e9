/* datagram_internal.h - the part of datagram.h that every back end shares: where a batch lies, and the
 * result of a send.
 *
 * The head of a batch (struct ls_datagrams) is followed by the bytes in the same large block when one datagram fits
 * after it; else it has a small block of its own. Further bytes lie in large blocks of their own.
 *
 *     | count | at[0] at[1] ... | bytes of 0 | bytes of 1 | ...      next block: | bytes of n | ... */
#ifndef LS_PORT_DATAGRAM_INTERNAL_H
#define LS_PORT_DATAGRAM_INTERNAL_H

#include "port/datagram.h"

/* The room that one datagram of at most bytes_max bytes takes in a block. */
static inline size_t ls_datagram_room(uint32_t bytes_max)
{
    return ((size_t)bytes_max + 15) & ~(size_t)15;
}

/* Take the head for *count datagrams of `room` bytes each; the batch is empty. *count is lowered to what fits into
 * LS_DATAGRAM_BLOCKS_MAX blocks. *from is the offset after the head in batch->block where the bytes begin; 0: the
 * head has a block of its own. NULL: no memory. */
ls_datagrams *ls_batch_open(ls_pool *pool, unsigned *count, size_t room, size_t *from);

/* Every datagram of a send has left or failed: the number of those that left, or the first error when none did. */
int64_t ls_batch_sent(const ls_op *op);

#endif
