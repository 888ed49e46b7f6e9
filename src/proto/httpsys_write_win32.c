/* httpsys_write_win32.c - responses through http.sys: HTTP_RESPONSE, bodies, and bodies in parts.
 *
 * A response is a queue of slices, passed to http.sys as data chunks that point to the bytes. Only bytes without a
 * block are copied, into blocks. A file may follow, which http.sys reads itself. One send is pending at a time. For a
 * body of unknown length this file writes the chunked coding: HttpSendResponseEntityBody sends the bytes unchanged. A
 * system without HttpSendResponseEntityBody (Wine 8.0) gets every response as a whole, with its length, when it is
 * complete; it refuses data chunks that are files, so their bytes are read into blocks.
 *
 * http.sys writes the status line and Date, and appends its own name to Server. A Connection field and the flag
 * HTTP_SEND_RESPONSE_FLAG_DISCONNECT announce and cause the end of the connection. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "port/shared_file.h"
#include "proto/http_text.h"
#include "proto/httpsys_internal_win32.h"

enum {
    SEND_AT_BYTES = 16384,     /* write sends the queue when it has this length */
    CHUNK_BYTES_MAX = 1 << 30, /* length of one HTTP_DATA_CHUNK; the field is a ULONG */
    LINE_BYTES = 20            /* size line of the chunked coding */
};

/* ---- the queue ---------------------------------------------------------------------------------------------- */

/* Queue one slice. Its reference moves on success. */
static int push(ls_httpsys_out *out, const ls_slice *slice)
{
    if (out->count == out->room) {
        const unsigned room = out->room * 2;
        ls_slice *grown = realloc(out->slices != out->few ? out->slices : NULL, room * sizeof *grown);
        if (grown == NULL) return LS_ENOMEM;
        if (out->slices == out->few) memcpy(grown, out->few, sizeof out->few);
        out->slices = grown;
        out->room = room;
    }
    out->slices[out->count++] = *slice;
    out->bytes += slice->len;
    return LS_OK;
}

/* Copy bytes into blocks of the queue. The last slice may grow while it is being sent: the pending send has its own
 * length. */
static int push_copy(ls_thread_ctx *ctx, ls_httpsys_out *out, const char *bytes, size_t len)
{
    while (len > 0) {
        if (out->block != NULL && out->filled == out->block->cap) {
            ls_block_drop(out->block);
            out->block = NULL;
        }
        if (out->block == NULL) {
            out->block = ls_block_get(ctx->pool, len <= LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
            out->filled = 0;
            if (out->block == NULL) return LS_ENOMEM;
        }
        const size_t room = out->block->cap - out->filled, part = len < room ? len : room;
        char *const to = out->block->data + out->filled;
        ls_slice *last = out->count > 0 ? &out->slices[out->count - 1] : NULL;
        memcpy(to, bytes, part);
        if (last != NULL && last->block == out->block && last->ptr + last->len == to) {
            last->len += part;
            out->bytes += part;
        } else {
            ls_slice slice = ls_slice_of(out->block, out->filled, part);
            if (push(out, &slice) < 0) {
                ls_slice_drop(&slice);
                return LS_ENOMEM;
            }
        }
        out->filled += (uint32_t)part;
        bytes += part;
        len -= part;
    }
    return LS_OK;
}

/* Queue one slice, with a copy if it has no block. Takes its reference. */
/* Read the range of a file into blocks of the queue. */
static int push_read(ls_thread_ctx *ctx, ls_httpsys_out *out, const ls_slice *range)
{
    if (range->len > LS_HTTPSYS_WHOLE_MAX) return LS_ELIMIT;
    for (size_t at = 0; at < range->len;) {
        ls_block *block = ls_block_get(ctx->pool, LS_BLOCK_LARGE);
        if (block == NULL) return LS_ENOMEM;
        const size_t left = range->len - at;
        const int64_t n = ls_shared_file_read(ls_shared_file_of(range), block->data,
                                              left < block->cap ? left : block->cap, ls_slice_offset(range) + at);
        ls_slice slice = ls_slice_of(block, 0, n > 0 ? (size_t)n : 0);
        ls_block_drop(block);
        const int err = n < 0 ? (int)n : n == 0 ? LS_ECHANGED : push(out, &slice);
        if (err < 0) {
            ls_slice_drop(&slice);
            return err;
        }
        at += (size_t)n;
    }
    return LS_OK;
}

static int push_any(ls_thread_ctx *ctx, ls_httpsys_exchange *e, ls_slice *slice)
{
    int err;
    if (slice->block == NULL) return push_copy(ctx, &e->out, slice->ptr, slice->len);
    if (ls_slice_is_file(slice) && e->http->api.SendResponseEntityBody == NULL) {
        err = push_read(ctx, &e->out, slice);
        ls_slice_drop(slice);
        return err;
    }
    err = slice->len > 0 ? push(&e->out, slice) : LS_OK;
    if (err < 0 || slice->len == 0) ls_slice_drop(slice);
    return err;
}

/* Remove the first `bytes` bytes, which are sent. */
static void consume(ls_httpsys_out *out, size_t bytes)
{
    unsigned sent = 0;
    out->bytes -= bytes;
    for (; sent < out->count && bytes >= out->slices[sent].len; sent++) {
        bytes -= out->slices[sent].len;
        ls_slice_drop(&out->slices[sent]);
    }
    out->count -= sent;
    if (sent > 0) memmove(out->slices, out->slices + sent, out->count * sizeof *out->slices);
    if (bytes > 0) {
        out->slices[0].ptr += bytes;
        out->slices[0].len -= bytes;
    }
}

void ls_httpsys_out_drop(ls_httpsys_exchange *e)
{
    assert(!e->tx_pending);
    ls_slices_drop(e->out.slices, e->out.count);
    e->out.count = 0;
    e->out.bytes = 0;
    if (e->out.block != NULL) ls_block_drop(e->out.block);
    e->out.block = NULL;
    if (e->out.slices != e->out.few) free(e->out.slices);
    e->out.slices = e->out.few;
    e->out.room = LS_HTTPSYS_SLICES_FEW;
    if (e->chunks != e->chunks_few) free(e->chunks);
    e->chunks = e->chunks_few;
    if (e->unknown != e->unknown_few) free(e->unknown);
    e->unknown = e->unknown_few;
}

/* ---- the send ----------------------------------------------------------------------------------------------- */

/* Fill e->chunks with data chunks for the front of the queue. Returns the number of chunks, or LS_ECHANGED: a file was
 * changed after it was opened. *bytes receives the number of bytes in them. */
static int chunks_of(ls_httpsys_exchange *e, unsigned max, size_t *bytes)
{
    USHORT count = 0;
    *bytes = 0;
    for (; count < max && count < e->out.count; count++) {
        const ls_slice *slice = &e->out.slices[count];
        HTTP_DATA_CHUNK *chunk = &e->chunks[count];
        if (ls_slice_is_file(slice)) {
            const ls_shared_file *file = ls_shared_file_of(slice);
            if (!ls_shared_file_unchanged(file)) return LS_ECHANGED;
            *chunk = (HTTP_DATA_CHUNK){.DataChunkType = HttpDataChunkFromFileHandle};
            chunk->FromFileHandle.ByteRange.StartingOffset.QuadPart = ls_slice_offset(slice);
            chunk->FromFileHandle.ByteRange.Length.QuadPart = slice->len;
            chunk->FromFileHandle.FileHandle = (HANDLE)file->fd; /* NOLINT(performance-no-int-to-ptr) */
            *bytes += slice->len;
            continue;
        }
        const bool partial = slice->len > CHUNK_BYTES_MAX;
        *chunk = (HTTP_DATA_CHUNK){.DataChunkType = HttpDataChunkFromMemory};
        chunk->FromMemory.pBuffer = (void *)(uintptr_t)slice->ptr;
        chunk->FromMemory.BufferLength = partial ? CHUNK_BYTES_MAX : (ULONG)slice->len;
        *bytes += chunk->FromMemory.BufferLength;
        if (partial) return count + 1;
    }
    return count;
}

static void set_known(ls_httpsys_exchange *e, HTTP_HEADER_ID id, const char *value, size_t len)
{
    e->response.Headers.KnownHeaders[id] = (HTTP_KNOWN_HEADER){(USHORT)len, value};
}

static void set_length(ls_httpsys_exchange *e, uint64_t length)
{
    const int len = snprintf(e->length_text, sizeof e->length_text, "%llu", (unsigned long long)length);
    set_known(e, HttpHeaderContentLength, e->length_text, (size_t)len);
}

/* Prepare the whole queue for one call, for a system that sends only whole responses. */
static int make_whole(ls_httpsys_exchange *e)
{
    if (e->chunks != e->chunks_few) free(e->chunks);
    e->chunks = e->chunks_few;
    if (e->out.count > UINT16_MAX) return LS_ELIMIT;
    if (e->out.count > LS_HTTPSYS_CHUNKS) {
        HTTP_DATA_CHUNK *many = malloc(e->out.count * sizeof *many);
        if (many == NULL) return LS_ENOMEM;
        e->chunks = many;
    }
    if (!e->no_body && e->response.Headers.KnownHeaders[HttpHeaderContentLength].pRawValue == NULL)
        set_length(e, e->out.bytes);
    return LS_OK;
}

int ls_httpsys_send_out(ls_thread_ctx *ctx, ls_httpsys_exchange *e)
{
    const ls_httpsys *http = e->http;
    const bool in_parts = http->api.SendResponseEntityBody != NULL;
    if (e->tx_pending) return LS_PENDING;
    for (;;) {
        const bool complete = e->x.response == LS_RESPONSE_DONE;
        size_t bytes;
        int err;
        if (e->last_sent || (!complete && (!in_parts || !ls_httpsys_has_output(e)))) return LS_DONE;
        if (!in_parts && (err = make_whole(e)) < 0) return err;
        const int chunks = chunks_of(e, in_parts ? LS_HTTPSYS_CHUNKS : UINT16_MAX, &bytes);
        if (chunks < 0) return chunks;
        const USHORT count = (USHORT)chunks;
        const bool last = complete && bytes == e->out.bytes;
        const bool head = !e->head_sent;
        /* A send without buffering completes when the peer has acknowledged it: one part per round trip. With it, the
         * system copies the parts. The flag must be the same for all calls of a response; one that is complete before
         * its first call needs no copy. */
        if (head) e->buffered = !complete && in_parts;
        const ULONG buffered = e->buffered ? HTTP_SEND_RESPONSE_FLAG_BUFFER_DATA : 0;
        const ULONG flags = buffered | (!last       ? HTTP_SEND_RESPONSE_FLAG_MORE_DATA
                                        : e->closes ? HTTP_SEND_RESPONSE_FLAG_DISCONNECT
                                                    : 0);
        ULONG error;
        e->head_sent = true;
        e->last_sent = last;
        e->sending = bytes;
        e->tx_pending = true;
        e->tx.op.actor = e->x.actor;
        ls_overlapped_prepare(&e->tx);
        if (head) {
            e->response.EntityChunkCount = count;
            e->response.pEntityChunks = count > 0 ? e->chunks : NULL;
            error = http->api.SendHttpResponse(http->queue, e->id, flags, &e->response, NULL, NULL, NULL, 0,
                                               &e->tx.overlapped, NULL);
        } else {
            error = http->api.SendResponseEntityBody(http->queue, e->id, flags, count, count > 0 ? e->chunks : NULL,
                                                     NULL, NULL, 0, &e->tx.overlapped, NULL);
        }
        if (ls_overlapped_posted(ctx, &e->tx, error, true) == LS_PENDING) return LS_PENDING;
        if ((err = ls_httpsys_sent(e)) < 0) return err;
    }
}

int ls_httpsys_sent(ls_httpsys_exchange *e)
{
    e->tx_pending = false;
    if (e->tx.error == NO_ERROR) {
        consume(&e->out, e->sending);
        return LS_OK;
    }
    const int err = ls_err_from_win32(e->tx.error);
    return err == LS_OK ? LS_ESYS : err;
}

/* ---- the head ----------------------------------------------------------------------------------------------- */

static int put_fields(ls_httpsys_exchange *e)
{
    const ls_exchange *x = &e->x;
    unsigned lines = 0;
    if (x->fields == NULL || x->fields_len == 0) return LS_OK;
    for (const char *at = x->fields->data, *const all = at + x->fields_len; at < all; lines++)
        at = (const char *)memchr(at, '\n', (size_t)(all - at)) + 1;
    if (lines > LS_HTTPSYS_UNKNOWN_FEW) {
        HTTP_UNKNOWN_HEADER *many = malloc(lines * sizeof *many);
        if (many == NULL) return LS_ENOMEM;
        e->unknown = many;
    }
    (void)ls_httpsys_fields(x->fields->data, x->fields_len, &e->response.Headers, e->unknown);
    return LS_OK;
}

/* Fill e->response, which leaves with the first send. `length` < 0: unknown. */
static int put_head(ls_thread_ctx *ctx, ls_httpsys_exchange *e, int64_t length)
{
    static const char name[] = "luaserve", chunked[] = "chunked", close[] = "close",
                      close_upgrade[] = "close, upgrade";
    ls_exchange *x = &e->x;
    ls_httpsys *http = e->http;
    const bool framed = ls_status_is_framed(x->status), has_content = ls_status_has_content(x->status);
    HTTP_RESPONSE *response = &e->response;
    int err;

    if (!has_content) length = 0;
    e->no_body = !has_content || x->head.method == LS_HTTP_HEAD;
    const bool open = length < 0 && framed && http->api.SendResponseEntityBody != NULL;
    e->chunked_out = open && x->head.version_minor > 0 && !e->http2;
    e->closes = x->close || !x->head.keep_alive || atomic_load_explicit(&http->draining, memory_order_relaxed) ||
                (open && !e->chunked_out); /* the body ends with the connection, or with the stream of HTTP/2 */

    response->Version = (HTTP_VERSION){1, 1};
    response->StatusCode = (USHORT)x->status;
    response->pReason = ls_status_text(x->status);
    response->ReasonLength = (USHORT)strlen(response->pReason);
    if ((err = put_fields(e)) < 0) return err;
    if (response->Headers.KnownHeaders[HttpHeaderServer].pRawValue == NULL)
        set_known(e, HttpHeaderServer, name, sizeof name - 1);
    if (x->type != NULL && !x->has_type && has_content) set_known(e, HttpHeaderContentType, x->type, strlen(x->type));
    if (e->chunked_out)
        set_known(e, HttpHeaderTransferEncoding, chunked, sizeof chunked - 1);
    else if (length >= 0 && framed)
        set_length(e, (uint64_t)length);
    if (e->closes && response->Headers.KnownHeaders[HttpHeaderConnection].pRawValue != NULL) /* beside Upgrade */
        set_known(e, HttpHeaderConnection, close_upgrade, sizeof close_upgrade - 1);
    else if (e->closes)
        set_known(e, HttpHeaderConnection, close, sizeof close - 1);
    ls_counter_add(&http->threads[ctx->index].responses, 1);
    return LS_OK;
}

/* The response cannot be completed. The client must not take the bytes sent so far for a complete response. */
static int fail(ls_exchange *x, int err)
{
    x->error = err;
    x->close = true;
    x->response = LS_RESPONSE_OPEN;
    return err;
}

int ls_httpsys_respond(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count)
{
    ls_httpsys_exchange *e = ls_httpsys_of(x);
    assert(x->response == LS_RESPONSE_NONE);
    const size_t bytes = ls_slices_bytes(slices, count);
    int err = x->error;
    unsigned i = 0;
    if (err == 0) err = put_head(ctx, e, (int64_t)bytes);
    for (; err == LS_OK && !e->no_body && i < count; i++) err = push_any(ctx, e, &slices[i]);
    if (i < count) ls_slices_drop(slices + i, count - i);
    if (err < 0) return x->error != 0 ? x->error : fail(x, err);
    if (!e->no_body) x->body_sent = bytes;
    x->response = LS_RESPONSE_DONE;
    return LS_DONE;
}

/* ---- parts -------------------------------------------------------------------------------------------------- */

/* Send the queue. LS_PENDING while it is above the high-water mark, or, with `all`, while it is not empty. */
static int send_and_wait(ls_thread_ctx *ctx, ls_exchange *x, bool all)
{
    ls_httpsys_exchange *e = ls_httpsys_of(x);
    const int err = ls_httpsys_send_out(ctx, e);
    if (err < 0) return fail(x, err);
    if (err == LS_DONE || (!all && e->out.bytes < e->config->write_bytes_high)) return LS_DONE;
    e->awaits_sent = true;
    return LS_PENDING;
}

static int push_line(ls_thread_ctx *ctx, ls_httpsys_exchange *e, size_t size)
{
    char line[LINE_BYTES];
    const int len = snprintf(line, sizeof line, "%zx\r\n", size);
    return push_copy(ctx, &e->out, line, (size_t)len);
}

int ls_httpsys_write(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count)
{
    ls_httpsys_exchange *e = ls_httpsys_of(x);
    const size_t bytes = ls_slices_bytes(slices, count);
    int err = x->error;
    unsigned i = 0;
    if (err == 0 && x->response == LS_RESPONSE_NONE) {
        err = put_head(ctx, e, x->length);
        x->response = LS_RESPONSE_OPEN;
    }
    if (err == 0) {
        e->part_bytes += bytes;
        if (x->length >= 0 && e->part_bytes > (uint64_t)x->length) err = LS_EMSGSIZE;
        if (!e->http->api.SendResponseEntityBody && e->part_bytes > LS_HTTPSYS_WHOLE_MAX) err = LS_ELIMIT;
        if (!e->no_body) x->body_sent = e->part_bytes;
    }
    const bool framed = e->chunked_out && !e->no_body && bytes > 0;
    if (err == 0 && framed) err = push_line(ctx, e, bytes);
    for (; err == 0 && !e->no_body && i < count; i++) err = push_any(ctx, e, &slices[i]);
    if (err == 0 && framed) err = push_copy(ctx, &e->out, "\r\n", 2);
    if (i < count) ls_slices_drop(slices + i, count - i);
    if (err < 0) return fail(x, err);
    return e->out.bytes >= SEND_AT_BYTES ? send_and_wait(ctx, x, false) : LS_DONE;
}

int ls_httpsys_write_chunk(ls_thread_ctx *ctx, ls_exchange *x, const ls_slice *chunk, bool now)
{
    ls_httpsys_exchange *e = ls_httpsys_of(x);
    const ls_slice data = ls_exchange_chunk_data(chunk);
    ls_slice part = e->chunked_out ? *chunk : data;
    int err = x->error;
    (void)now; /* a send is an operation of the port */
    if (err != 0 || e->no_body) return err;
    if (!e->http->api.SendResponseEntityBody && e->part_bytes + data.len > LS_HTTPSYS_WHOLE_MAX)
        return fail(x, LS_ELIMIT);
    (void)ls_block_hold(part.block);
    if ((err = push_any(ctx, e, &part)) < 0) return fail(x, err);
    e->part_bytes += data.len;
    x->body_sent = e->part_bytes;
    return LS_PENDING;
}

int ls_httpsys_flush(ls_thread_ctx *ctx, ls_exchange *x)
{
    return x->error != 0 ? x->error : send_and_wait(ctx, x, false);
}

/* The release cancels the request. Until then nothing is sent behind a pending send: see ls_httpsys_transmitted. */
void ls_httpsys_abort_response(ls_thread_ctx *ctx, ls_exchange *x)
{
    (void)ctx;
    if (x->error == 0) x->error = LS_ECANCELED;
}

int ls_httpsys_finish(ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_httpsys_exchange *e = ls_httpsys_of(x);
    if (x->error != 0) return x->error;
    if (x->response == LS_RESPONSE_NONE) return ls_httpsys_respond(ctx, x, NULL, 0);
    if (x->length >= 0 && !e->no_body && e->part_bytes != (uint64_t)x->length) return fail(x, LS_EMSGSIZE);
    if (e->chunked_out && !e->no_body && push_copy(ctx, &e->out, "0\r\n\r\n", 5) < 0) return fail(x, LS_ENOMEM);
    x->response = LS_RESPONSE_DONE;
    return LS_DONE;
}

/* ---- without a handler -------------------------------------------------------------------------------------- */

void ls_httpsys_send_error(ls_thread_ctx *ctx, ls_httpsys_exchange *e, int status, const char *why)
{
    ls_exchange *x = &e->x;
    char text[160];
    const int len = snprintf(text, sizeof text, "%s%s%s\n", ls_status_text(status), why != NULL ? ": " : "",
                             why != NULL ? why : "");
    ls_slice slice = ls_slice_static(text, len < (int)sizeof text ? (size_t)len : sizeof text - 1);
    x->status = status;
    x->type = "text/plain; charset=utf-8";
    x->close = true;
    (void)ls_httpsys_respond(ctx, x, &slice, 1);
    ls_counter_add(&e->http->threads[ctx->index].refused, 1);
}
