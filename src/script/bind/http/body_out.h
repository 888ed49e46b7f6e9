/* body_out.h - parts of a response that its transport has not got yet: many small writes become few slices. Part of an
 * ls_request. */
#ifndef LS_SCRIPT_BODY_OUT_H
#define LS_SCRIPT_BODY_OUT_H

#include <lua.h>

#include "http/exchange_out.h"
#include "script/core/state.h"

typedef struct ls_body_out {
    ls_block
        *block; /* the parts are block[from .. len); NULL: there are none, and the response was not begun by one */
    uint32_t from, len;
    uint64_t written; /* bytes that Lua has written as parts */
    ls_flush flush;   /* sends the parts when the task waits */
} ls_body_out;

/* Append bytes to the parts; a full block goes to the transport. LS_DONE, LS_PENDING or LS_E*. May raise or run a
 * finalizer. */
int ls_body_out_add(lua_State *L, ls_body_out *out, ls_exchange *x, const char *bytes, size_t len);

/* Pass the parts to the transport, also the head alone: `block` is empty. Returns LS_DONE, LS_PENDING or LS_E*. */
int ls_body_out_push(ls_body_out *out, ls_thread_ctx *ctx, ls_exchange *x);

static inline void ls_body_out_drop(ls_body_out *out)
{
    if (out->block != NULL) ls_block_drop(out->block);
    out->block = NULL;
    out->from = out->len = 0;
}

#endif
