/* http_client.c - see http_client.h. */
#include "http/http_client.h"

#include <string.h>

#include "base/err.h"

void ls_http_client_init(ls_http_client *c, enum ls_asked asked, uint32_t head_bytes_max)
{
    *c = (ls_http_client){.head_bytes_max = head_bytes_max};
    ls_http1_reader_init(&c->reader, asked);
}

void ls_http_client_drop(ls_http_client *c)
{
    ls_slice_drop(&c->in);
}

void ls_http_client_consume(ls_http_client *c, size_t n)
{
    c->in.ptr += n;
    c->in.len -= n;
}

/* The room of the block after the bytes. */
static uint32_t room_of(const ls_slice *in)
{
    return in->block->cap - (uint32_t)(in->ptr - in->block->data) - (uint32_t)in->len;
}

/* A head that fills its block moves to a large one. */
static int make_room(ls_thread_ctx *ctx, ls_http_client *c)
{
    ls_slice *in = &c->in;
    if (room_of(in) > 0) return LS_OK;
    in->block->from = (uint32_t)(in->ptr - in->block->data);
    in->block->to = in->block->from + (uint32_t)in->len;
    const int err = ls_block_move(ctx->pool, &in->block, LS_BLOCK_LARGE);
    if (err == LS_OK) in->ptr = in->block->data;
    return err;
}

static void grow(ls_http_client *c, size_t len)
{
    if (c->phase == LS_CLIENT_SILENT) c->phase = LS_CLIENT_HEAD;
    c->in.len += len;
}

int ls_http_client_received(ls_http_client *c, ls_stream *s, int64_t result)
{
    if (result <= 0) return result == 0 ? ls_http_client_ended(c) : (int)result;
    if (c->in.block == NULL) {
        c->in = ls_stream_take(s);
        c->in.len = 0;
        c->large = result >= LS_BLOCK_SMALL;
    }
    grow(c, (size_t)result);
    c->filled = room_of(&c->in) == 0;
    return LS_DONE;
}

int ls_http_client_receive(ls_thread_ctx *ctx, ls_http_client *c, ls_stream *s)
{
    int64_t result;
    int err;
    if (c->in.len == 0) {
        ls_http_client_drop(c);
        err = ls_stream_recv(ctx, s, NULL, c->large ? LS_BLOCK_LARGE : LS_BLOCK_SMALL, &result);
    } else {
        if ((err = make_room(ctx, c)) < 0) return err;
        err = ls_stream_recv(ctx, s, (char *)c->in.ptr + c->in.len, room_of(&c->in), &result);
    }
    return err < 0 ? err : err == LS_PENDING ? err : ls_http_client_received(c, s, result);
}

int ls_http_client_ended(ls_http_client *c)
{
    if (c->phase < LS_CLIENT_BODY) return c->phase == LS_CLIENT_SILENT ? LS_ECLOSED : LS_ETRUNCATED;
    const int err = ls_http1_read_end(&c->reader);
    if (err == LS_OK) c->phase = LS_CLIENT_WHOLE;
    return err;
}

int64_t ls_http_client_add(ls_thread_ctx *ctx, ls_http_client *c, const ls_slice *slice)
{
    size_t len = slice->len;
    if (c->in.len == 0) {
        ls_http_client_drop(c);
        c->in = (ls_slice){ls_block_hold(slice->block), slice->ptr, 0};
    } else {
        if (make_room(ctx, c) < 0) return LS_ENOMEM;
        if (len > room_of(&c->in)) len = room_of(&c->in);
        memcpy((char *)c->in.ptr + c->in.len, slice->ptr, len);
        ls_pool_copied(ctx->pool, len);
    }
    grow(c, len);
    return (int64_t)len;
}

int ls_http_client_head(ls_http_client *c, size_t *skip)
{
    size_t interims;
    int length;
    *skip = 0;
    do {
        length = ls_http1_read_head(&c->reader, c->in.ptr + *skip, c->in.len - *skip, c->head_bytes_max, &interims,
                                    &c->why);
        *skip += interims;
    } while (length < 0 && c->unfolds && ls_http1_unfold((char *)c->in.ptr + *skip, c->in.len - *skip));
    if (length > 0) c->phase = LS_CLIENT_BODY;
    return length;
}

int ls_http_client_next(ls_http_client *c, ls_slice *part, ls_text *trailers)
{
    ls_chunk_run run;
    if (c->in.len == 0 && c->reader.head.framing != LS_FRAMING_NONE) return LS_EAGAIN;
    const char *const bytes = c->in.len > 0 ? c->in.ptr : "";
    const int err = ls_http1_read_body(&c->reader, bytes, c->in.len, &run, &c->why);
    if (err < 0) return err;
    *trailers = (ls_text){bytes + run.used - run.trailers, run.trailers};
    *part = run.len > 0 ? (ls_slice){ls_block_hold(c->in.block), bytes + run.from, run.len} : (ls_slice){0};
    ls_http_client_consume(c, run.used);
    if (run.end) c->phase = LS_CLIENT_WHOLE;
    return LS_DONE;
}
