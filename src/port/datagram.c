/* datagram.c - see datagram.h; what is the same on every back end. */
#include "port/datagram.h"

void ls_datagrams_drop(ls_datagrams *batch)
{
    for (unsigned i = 0; i < batch->count; i++) ls_slice_drop(&batch->at[i].slice);
    ls_block_drop(batch->block);
}
