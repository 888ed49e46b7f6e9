/* exchange_in.c - see exchange_in.h. */
#include "http/exchange_in.h"

#include "base/err.h"

int ls_exchange_read(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *out)
{
    ls_slice part = ls_slice_static(NULL, 0);
    int err = LS_DONE;
    if (!x->body_done)
        err = x->head.content_length > x->body_bytes_max ? LS_EMSGSIZE : x->transport->more(ctx, x, &part);
    if (err == LS_PENDING) return err;
    x->body_bytes += part.len;
    if (err == LS_DONE && x->body_bytes > x->body_bytes_max) {
        ls_slice_drop(&part);
        err = LS_EMSGSIZE;
    }
    if (err < 0)
        x->close = true;
    else
        *out = part;
    return err;
}

int ls_exchange_expect_end(ls_thread_ctx *ctx, ls_exchange *x)
{
    if (x->error != 0) return x->error;
    return x->body_done ? x->transport->more(ctx, x, NULL) : LS_OK;
}
