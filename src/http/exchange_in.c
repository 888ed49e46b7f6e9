/* exchange_in.c - see exchange_in.h. */
#include "http/exchange_in.h"

#include <string.h>

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

bool ls_trailers_next(const ls_block *lines, size_t *at, ls_pair *out)
{
    while (lines != NULL && ls_lines_next_received(lines->data, lines->to, at, out))
        if (ls_http_is_trailer(out->name, out->name_len)) return true;
    return false;
}

bool ls_exchange_next_trailer(const ls_exchange *x, size_t *at, ls_pair *out)
{
    return x->body_done && ls_trailers_next(x->trailers, at, out);
}

int ls_trailers_add(ls_thread_ctx *ctx, ls_block **to, const char *lines, size_t len)
{
    const size_t have = *to != NULL ? (*to)->to : 0;
    if (*to == NULL || have + len > (*to)->cap) {
        ls_block *larger = ls_block_get(ctx->pool, have + len <= LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
        if (larger == NULL) return LS_ENOMEM;
        if (have > 0) memcpy(larger->data, (*to)->data, have);
        if (have > 0) ls_block_drop(*to);
        *to = larger;
    }
    memcpy((*to)->data + have, lines, len);
    (*to)->to = (uint32_t)(have + len);
    return LS_OK;
}

int ls_exchange_expect_end(ls_thread_ctx *ctx, ls_exchange *x)
{
    if (x->error != 0) return x->error;
    return x->transport->more(ctx, x, NULL);
}
