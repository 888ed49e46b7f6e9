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

#include "codec/http_text.h"
#include "http/httpsys/httpsys_internal_win32.h"
#include "port/file/shared_file.h"

enum {
    CHUNK_BYTES_MAX = 1 << 30, /* length of one HTTP_DATA_CHUNK; the field is a ULONG */
    LINE_BYTES = 20            /* size line of the chunked coding */
};

/* ---- the queue ---------------------------------------------------------------------------------------------- */

/* Queue one slice. Its reference moves on success. */
static int push(ls_httpsys_exchange *e, const ls_slice *slice)
{
    ls_httpsys_out *out = &e->out;
    if (out->count == out->room) {
        const unsigned room = out->room * 2;
        ls_slice *grown = realloc(out->slices != out->few ? out->slices : NULL, room * sizeof *grown);
        if (grown == NULL) return LS_ENOMEM;
        if (out->slices == out->few) memcpy(grown, out->few, sizeof out->few);
        out->slices = grown;
        out->room = room;
    }
    out->slices[out->count++] = *slice;
    e->x.queued += slice->len;
    return LS_OK;
}

/* Copy bytes into blocks of the queue. The last slice may grow while it is being sent: the pending send has its own
 * length. */
static int push_copy(ls_thread_ctx *ctx, ls_httpsys_exchange *e, const char *bytes, size_t len)
{
    ls_httpsys_out *out = &e->out;
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
            e->x.queued += part;
        } else {
            ls_slice slice = ls_slice_of(out->block, out->filled, part);
            if (push(e, &slice) < 0) {
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

/* Read the range of a file into blocks of the queue. */
static int push_read(ls_thread_ctx *ctx, ls_httpsys_exchange *e, const ls_slice *range)
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
        const int err = n < 0 ? (int)n : n == 0 ? LS_ECHANGED : push(e, &slice);
        if (err < 0) {
            ls_slice_drop(&slice);
            return err;
        }
        at += (size_t)n;
    }
    return LS_OK;
}

/* Queue one slice, with a copy if it has no block. Takes its reference. */
static int push_any(ls_thread_ctx *ctx, ls_httpsys_exchange *e, ls_slice *slice)
{
    int err;
    if (slice->block == NULL) return push_copy(ctx, e, slice->ptr, slice->len);
    if (ls_slice_is_file(slice) && e->http->api.SendResponseEntityBody == NULL) {
        err = push_read(ctx, e, slice);
        ls_slice_drop(slice);
        return err;
    }
    err = slice->len > 0 ? push(e, slice) : LS_OK;
    if (err < 0 || slice->len == 0) ls_slice_drop(slice);
    return err;
}

/* Remove the first `bytes` bytes, which are sent. */
static void consume(ls_httpsys_exchange *e, size_t bytes)
{
    ls_httpsys_out *out = &e->out;
    unsigned sent = 0;
    e->x.queued -= bytes;
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
    e->x.queued = 0;
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
            chunk->FromFileHandle.ByteRange.StartingOffset.QuadPart = file->at + ls_slice_offset(slice);
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
    if (!e->x.no_body && e->response.Headers.KnownHeaders[HttpHeaderContentLength].pRawValue == NULL)
        set_length(e, e->x.queued);
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
        const bool last = complete && bytes == e->x.queued;
        const bool head = !e->head_sent;
        /* A send without buffering completes when the peer has acknowledged it: one part per round trip. With it, the
         * system copies the parts. The flag must be the same for all calls of a response; one that is complete before
         * its first call needs no copy. */
        if (head) e->buffered = !complete && in_parts;
        const ULONG buffered = e->buffered ? HTTP_SEND_RESPONSE_FLAG_BUFFER_DATA : 0;
        const ULONG flags = buffered | (!last        ? HTTP_SEND_RESPONSE_FLAG_MORE_DATA
                                        : e->x.close ? HTTP_SEND_RESPONSE_FLAG_DISCONNECT
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
        consume(e, e->sending);
        return LS_OK;
    }
    const int err = ls_err_from_win32(e->tx.error);
    return err == LS_OK ? LS_ESYS : err;
}

/* ---- the head ----------------------------------------------------------------------------------------------- */

static int put_fields(ls_httpsys_exchange *e)
{
    ls_pair field;
    unsigned fields = 0;
    for (size_t at = 0; ls_exchange_next_field(&e->x, &at, &field);) fields++;
    if (fields > LS_HTTPSYS_UNKNOWN_FEW) {
        HTTP_UNKNOWN_HEADER *many = malloc(fields * sizeof *many);
        if (many == NULL) return LS_ENOMEM;
        e->unknown = many;
    }
    (void)ls_httpsys_fields(&e->x, &e->response.Headers, e->unknown);
    return LS_OK;
}

static int push_body(ls_thread_ctx *ctx, ls_httpsys_exchange *e, ls_slice *slices, unsigned count)
{
    const size_t bytes = ls_slices_bytes(slices, count);
    const bool framed = e->x.framing == LS_FRAMED_BY_PARTS && bytes > 0;
    char line[LINE_BYTES];
    int err = LS_OK;
    unsigned i = 0;
    if (!e->http->api.SendResponseEntityBody && e->x.response == LS_RESPONSE_OPEN &&
        e->x.written > LS_HTTPSYS_WHOLE_MAX)
        err = LS_ELIMIT;
    if (err == LS_OK && framed) err = push_copy(ctx, e, line, (size_t)snprintf(line, sizeof line, "%zx\r\n", bytes));
    for (; err == LS_OK && i < count; i++) err = push_any(ctx, e, &slices[i]);
    if (err == LS_OK && framed) err = push_copy(ctx, e, "\r\n", 2);
    ls_slices_drop(slices + i, count - i);
    return err;
}

/* Fill e->response, which leaves with the first send. */
int ls_httpsys_head(ls_thread_ctx *ctx, ls_exchange *x, int64_t length, ls_slice *slices, unsigned count)
{
    static const char name[] = "luaserve", chunked[] = "chunked", close[] = "close",
                      close_upgrade[] = "close, upgrade";
    ls_httpsys_exchange *e = ls_httpsys_of(x);
    ls_httpsys *http = e->http;
    HTTP_RESPONSE *response = &e->response;
    const int err = put_fields(e);
    if (err < 0) {
        ls_slices_drop(slices, count);
        return err;
    }
    if (atomic_load_explicit(&http->draining, memory_order_relaxed)) x->close = true;
    response->Version = (HTTP_VERSION){1, 1};
    response->StatusCode = (USHORT)x->status;
    response->pReason = ls_status_text(x->status);
    response->ReasonLength = (USHORT)strlen(response->pReason);
    if (response->Headers.KnownHeaders[HttpHeaderServer].pRawValue == NULL)
        set_known(e, HttpHeaderServer, name, sizeof name - 1);
    if (x->type != NULL) set_known(e, HttpHeaderContentType, x->type, strlen(x->type));
    if (x->framing == LS_FRAMED_BY_PARTS)
        set_known(e, HttpHeaderTransferEncoding, chunked, sizeof chunked - 1);
    else if (x->framing == LS_FRAMED_BY_LENGTH && length >= 0) /* else make_whole adds it */
        set_length(e, (uint64_t)length);
    if (x->close && response->Headers.KnownHeaders[HttpHeaderConnection].pRawValue != NULL) /* beside Upgrade */
        set_known(e, HttpHeaderConnection, close_upgrade, sizeof close_upgrade - 1);
    else if (x->close)
        set_known(e, HttpHeaderConnection, close, sizeof close - 1);
    ls_counter_add(&http->threads[ctx->index].responses, 1);
    return push_body(ctx, e, slices, count);
}

/* A send is an operation of the port: so LS_DATA_NOW has no effect. */
int ls_httpsys_data(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count, unsigned how)
{
    ls_httpsys_exchange *e = ls_httpsys_of(x);
    if (how & LS_DATA_LAST) {
        int err = push_copy(ctx, e, "0\r\n", 3);
        if (err == LS_OK && count > 0) err = push_copy(ctx, e, slices[0].ptr, slices[0].len);
        ls_slices_drop(slices, count);
        return err == LS_OK ? push_copy(ctx, e, "\r\n", 2) : err;
    }
    const int err = push_body(ctx, e, slices, count);
    return err == LS_OK && how & LS_DATA_SHARED ? LS_PENDING : err;
}

/* The release cancels an aborted request. Until then nothing is sent after a pending send: see
 * ls_httpsys_transmitted. */
int ls_httpsys_flush(ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_httpsys_exchange *e = ls_httpsys_of(x);
    if (x->error != 0) return x->error;
    const int err = ls_httpsys_send_out(ctx, e);
    if (err <= LS_DONE || x->queued < e->config->write_bytes_high) return err < 0 ? err : LS_DONE;
    e->awaits_sent = true;
    return LS_PENDING;
}

/* ---- without a handler -------------------------------------------------------------------------------------- */

void ls_httpsys_send_error(ls_thread_ctx *ctx, ls_httpsys_exchange *e, int status, const char *why)
{
    ls_exchange_refuse(ctx, &e->x, status, why);
    ls_counter_add(&e->http->threads[ctx->index].refused, 1);
}
