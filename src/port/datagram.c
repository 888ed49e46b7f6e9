/* datagram.c - see datagram.h; what is the same on every back end. */
#include "port/datagram.h"

void ls_datagrams_drop(ls_datagrams *batch)
{
    for (unsigned at = 0, end; at < batch->count; at = end) { /* neighbours mostly lie in one block */
        ls_block *const block = batch->at[at].slice.block;
        for (end = at + 1; end < batch->count && batch->at[end].slice.block == block;) end++;
        if (block != NULL) ls_block_drop_many(block, end - at);
    }
    ls_block_drop(batch->block);
}
