/* body_out.c - see body_out.h. */
#include "script/bind/http/body_out.h"

#include <string.h>

int ls_body_out_add(lua_State *L, ls_body_out *out, ls_exchange *x, const char *bytes, size_t len)
{
    ls_state *const state = ls_state_of(L);
    int result = LS_DONE;
    while (len > 0) {
        size_t size = len > LS_BLOCK_SMALL ? LS_BLOCK_LARGE : LS_BLOCK_SMALL;
        if (out->block != NULL && out->len == out->block->cap) {
            const int err = ls_body_out_push(out, state->ctx, x);
            if (err < 0) return err;
            if (err == LS_PENDING) result = err;
            ls_body_out_drop(out);
            size = LS_BLOCK_LARGE;
        }
        if (out->block == NULL) {
            ls_block *block = ls_state_block(L, size);
            if (out->block != NULL) { /* ls_state_block collected garbage, and a finalizer wrote */
                ls_block_drop(block);
                continue;
            }
            out->block = block;
            out->from = out->len = 0;
        }
        size_t run = out->block->cap - out->len;
        if (run > len) run = len;
        memcpy(out->block->data + out->len, bytes, run);
        ls_state_flush_later(state, &out->flush);
        out->len += (uint32_t)run;
        bytes += run;
        len -= run;
    }
    return result;
}

int ls_body_out_push(ls_body_out *out, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slice;
    if (out->block == NULL || x == NULL) return LS_DONE;
    if (out->from == out->len) { /* the head of a stream of events leaves without parts */
        if (x->response != LS_RESPONSE_NONE) return LS_DONE;
        return ls_exchange_write(ctx, x, NULL, 0);
    }
    slice = ls_slice_of(out->block, out->from, out->len - out->from);
    out->from = out->len;
    return ls_exchange_write(ctx, x, &slice, 1);
}
