/* body_in.c - see body_in.h. */
#include "script/bind/http/body_in.h"

#include <stdlib.h>
#include <string.h>


enum { PIECES_MANY = 8, PIECE_BYTES_SMALL = 1024 };

static bool push(ls_body_in *in, ls_slice slice)
{
    if (in->slices == NULL || in->count == in->room) {
        const unsigned room = in->room == 0 ? 8 : in->room * 2;
        ls_slice *slices = realloc(in->slices, room * sizeof *slices);
        if (slices == NULL) {
            ls_slice_drop(&slice);
            return false;
        }
        in->slices = slices;
        in->room = room;
    }
    in->slices[in->count++] = slice;
    in->len += slice.len;
    return true;
}

/* Room for len bytes after the last piece, in a block of its own, in->fill. NULL when out of memory. */
static char *room_for(ls_body_in *in, ls_pool *pool, const ls_slice *last, size_t len)
{
    if (in->fill != NULL && last->block == in->fill) {
        const size_t used = (size_t)(last->ptr - in->fill->data) + last->len;
        if (in->fill->cap - used >= len) return in->fill->data + used;
    }
    ls_block *block = ls_block_get(pool, in->len < LS_BLOCK_LARGE ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
    if (block == NULL || !push(in, (ls_slice){block, block->data, 0})) return NULL;
    in->fill = block;
    return block->data;
}

/* Adjacent pieces become one slice. When there are many pieces, small ones are copied into one block: otherwise a body
 * of tiny chunks would keep the chunk framing between them in memory, and one slice for each. */
bool ls_body_in_keep(ls_body_in *in, ls_pool *pool, ls_slice slice)
{
    ls_slice *last = in->count > 0 ? &in->slices[in->count - 1] : NULL;
    if (last != NULL && last->block == slice.block && last->ptr + last->len == slice.ptr) {
        last->len += slice.len;
        in->len += slice.len;
        ls_slice_drop(&slice);
        return true;
    }
    if (last == NULL || in->count < PIECES_MANY || slice.len > PIECE_BYTES_SMALL) return push(in, slice);
    char *to = room_for(in, pool, last, slice.len);
    if (to != NULL) {
        memcpy(to, slice.ptr, slice.len);
        ls_pool_copied(pool, slice.len);
        in->slices[in->count - 1].len += slice.len;
        in->len += slice.len;
    }
    ls_slice_drop(&slice);
    return to != NULL;
}

void ls_body_in_drop(ls_body_in *in)
{
    ls_slices_drop(in->slices, in->count);
    free(in->slices);
    in->slices = NULL;
    in->fill = NULL;
    in->count = in->room = 0;
    in->len = 0;
}
