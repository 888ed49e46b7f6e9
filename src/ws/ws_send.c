/* ws_send.c - messages become frames in the queue of the stream: see ws_internal.h.
 *
 * A message is one frame. A short one is written in the background its head; of a long one the blocks are queued. What
 * a client sends is masked, and so copied: the bytes may belong to others. */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/crypto/random.h"
#include "ws/ws_internal.h"

enum { COPIED_BYTES_MAX = 2048, PUBLISHED_COPIED_BYTES_MAX = 512 }; /* longer ones are queued as slices */

static size_t put_head(const ls_ws *ws, ls_ws_head *head, char *to)
{
    head->masked = ws->config->client;
    if (head->masked) ls_random(head->key, sizeof head->key);
    return ls_ws_head_write(head, to);
}

static ls_ws_head head_of(enum ls_ws_opcode opcode, uint64_t length, bool compressed)
{
    return (ls_ws_head){.length = length, .opcode = (uint8_t)opcode, .fin = true, .compressed = compressed};
}

/* Queue bytes by copying them, masked if the head says so. `at`: their position in the payload. LS_OK or LS_ENOMEM. */
static int put_bytes(ls_thread_ctx *ctx, ls_stream *s, const ls_ws_head *head, uint64_t at, const char *bytes,
                     size_t len)
{
    while (len > 0) {
        const size_t run = len < LS_BLOCK_LARGE ? len : LS_BLOCK_LARGE;
        char *const to = ls_stream_room(ctx, s, run);
        if (to == NULL) return LS_ENOMEM;
        if (head->masked)
            ls_ws_mask_copy(to, bytes, run, head->key, at);
        else
            memcpy(to, bytes, run);
        ls_stream_commit(s, run);
        at += run;
        bytes += run;
        len -= run;
    }
    return LS_OK;
}

/* Queue a frame whose payload is copied into one piece with its head. LS_OK or LS_ENOMEM. */
static int put_short(ls_thread_ctx *ctx, ls_ws *ws, ls_ws_head *head, const ls_slice *slices, unsigned count)
{
    ls_stream *const s = ls_ws_stream_of(ws);
    char *const from = ls_stream_room(ctx, s, LS_WS_HEAD_BYTES_MAX + (size_t)head->length);
    if (from == NULL) return LS_ENOMEM;
    char *to = from + put_head(ws, head, from);
    for (unsigned i = 0; i < count; i++) {
        memcpy(to, slices[i].ptr, slices[i].len);
        to += slices[i].len;
    }
    if (head->masked) ls_ws_mask(to - head->length, (size_t)head->length, head->key, 0);
    ls_stream_commit(s, (size_t)(to - from));
    return LS_OK;
}

/* Queue a frame; the references of slices that are queued move to the queue. LS_OK or LS_ENOMEM. */
static int put_long(ls_thread_ctx *ctx, ls_ws *ws, ls_ws_head *head, ls_slice *slices, unsigned count)
{
    ls_stream *const s = ls_ws_stream_of(ws);
    uint64_t at = 0;
    char *const from = ls_stream_room(ctx, s, LS_WS_HEAD_BYTES_MAX);
    if (from == NULL) return LS_ENOMEM;
    ls_stream_commit(s, put_head(ws, head, from));
    for (unsigned i = 0; i < count; i++) {
        const size_t len = slices[i].len;
        int err = LS_OK;
        if (head->masked || slices[i].block == NULL) {
            err = put_bytes(ctx, s, head, at, slices[i].ptr, len);
        } else if (len > 0 && (err = ls_stream_push(ctx, s, &slices[i])) == LS_OK) {
            slices[i].block = NULL;
        }
        if (err < 0) return err;
        at += len;
    }
    return LS_OK;
}

/* Queue a message. What was queued of it is removed on LS_ENOMEM. */
static int put_message(ls_thread_ctx *ctx, ls_ws *ws, enum ls_ws_opcode opcode, bool compressed, ls_slice *slices,
                       unsigned count, size_t bytes)
{
    ls_stream *const s = ls_ws_stream_of(ws);
    ls_ws_head head = head_of(opcode, bytes, compressed);
    if (bytes <= COPIED_BYTES_MAX) return put_short(ctx, ws, &head, slices, count);
    const size_t begin = ls_stream_end(s);
    const int err = put_long(ctx, ws, &head, slices, count);
    if (err < 0 && !ls_stream_truncate(s, begin) && !ls_stream_sending(s)) ls_stream_discard(s);
    return err;
}

/* LS_OK; LS_EAGAIN: send it uncompressed; LS_ENOMEM. */
static int put_compressed(ls_thread_ctx *ctx, ls_ws *ws, enum ls_ws_opcode opcode, const ls_slice *slices,
                          unsigned count)
{
    ls_slices out = {.count = 0};
    int err = ls_ws_deflate_message(ctx->pool, &ws->deflate, slices, count, 0, &out);
    if (err == LS_OK) err = put_message(ctx, ws, opcode, true, ls_slices_items(&out), out.count, out.bytes);
    ls_slices_clear(&out);
    if (err == LS_ENOMEM && ws->deflate.send_takeover)
        ls_ws_abort(ctx, ws); /* its compressor is ahead of the peer's */
    return err;
}

int ls_ws_send(ls_thread_ctx *ctx, ls_ws *ws, enum ls_ws_opcode opcode, ls_slice *slices, unsigned count)
{
    int err = LS_ECLOSED;
    if (ws->state == LS_WS_STATE_OPEN) {
        const size_t bytes = ls_slices_bytes(slices, count);
        err = LS_EAGAIN;
        if (ls_ws_deflate_active(&ws->deflate)) err = put_compressed(ctx, ws, opcode, slices, count);
        if (err == LS_EAGAIN) err = put_message(ctx, ws, opcode, false, slices, count, bytes);
    }
    ls_slices_drop(slices, count);
    if (err < 0) return err;
    if (ls_stream_queued(ls_ws_stream_of(ws)) <= ws->config->write_bytes_high) return LS_DONE;
    ws->awaits_drained = true;
    return LS_PENDING;
}

int ls_ws_publish(ls_thread_ctx *ctx, ls_ws *ws, const ls_slice *plain, const ls_slice *compressed, bool now)
{
    ls_stream *const s = ls_ws_stream_of(ws);
    const ls_slice *const frame = compressed != NULL && ls_ws_takes_compressed(ws) ? compressed : plain;
    const size_t queued = ls_stream_queued(s);
    if (ws->state != LS_WS_STATE_OPEN) return LS_ECLOSED;
    if (queued > 0 && queued + frame->len > ws->config->queue_bytes_max) return LS_ELIMIT;
    const size_t sent = now ? ls_stream_try_send(s, frame->ptr, frame->len) : 0, len = frame->len - sent;
    if (len == 0) return LS_DONE;
    int err;
    if (len <= PUBLISHED_COPIED_BYTES_MAX) { /* costs less than the two changes of a shared reference count */
        err = ls_stream_put(ctx, s, frame->ptr + sent, len);
    } else {
        const ls_slice own = {ls_block_hold(frame->block), frame->ptr + sent, len};
        if ((err = ls_stream_push(ctx, s, &own)) < 0) ls_block_drop(own.block);
    }
    if (err < 0 && sent > 0) ls_ws_abort(ctx, ws); /* the rest of the frame is missing */
    return err < 0 ? err : LS_PENDING;
}

void ls_ws_prefetch(ls_ws *ws, unsigned step)
{
    const ls_stream *s = ls_ws_stream_of(ws);
    if (step > 0) {
        ls_stream_prefetch(s);
    } else {
        LS_PREFETCH(s);
        LS_PREFETCH(ws);
    }
}

bool ls_ws_takes_compressed(const ls_ws *ws)
{
    return ls_ws_deflate_shares(&ws->deflate);
}

/* ---- control frames --------------------------------------------------------------------------------------------- */

int ls_ws_put_control(ls_thread_ctx *ctx, ls_ws *ws, enum ls_ws_opcode opcode, const char *bytes, size_t len,
                      bool last)
{
    ls_stream *const s = ls_ws_stream_of(ws);
    ls_ws_head head = head_of(opcode, len, false);
    char *const to = last ? ls_stream_room_reserved(ctx, s, LS_WS_HEAD_BYTES_MAX + len)
                          : ls_stream_room(ctx, s, LS_WS_HEAD_BYTES_MAX + len);
    if (to == NULL) return LS_ENOMEM;
    const size_t n = put_head(ws, &head, to);
    if (len > 0) memcpy(to + n, bytes, len);
    if (head.masked) ls_ws_mask(to + n, len, head.key, 0);
    ls_stream_commit(s, n + len);
    return LS_OK;
}

int ls_ws_put_close(ls_thread_ctx *ctx, ls_ws *ws, unsigned code, const char *reason, size_t reason_len)
{
    char payload[LS_WS_CONTROL_BYTES_MAX];
    if (code == LS_WS_NO_CODE) return ls_ws_put_control(ctx, ws, LS_WS_CLOSE, NULL, 0, true);
    if (reason_len > LS_WS_REASON_BYTES_MAX) reason_len = LS_WS_REASON_BYTES_MAX;
    payload[0] = (char)(code >> 8);
    payload[1] = (char)code;
    if (reason_len > 0) memcpy(payload + 2, reason, reason_len);
    return ls_ws_put_control(ctx, ws, LS_WS_CLOSE, payload, 2 + reason_len, true);
}

int ls_ws_control(ls_thread_ctx *ctx, ls_ws *ws, enum ls_ws_opcode opcode, const char *bytes, size_t len)
{
    if (ws->state != LS_WS_STATE_OPEN) return LS_ECLOSED;
    return ls_ws_put_control(ctx, ws, opcode, bytes, len, false);
}

/* A peer that sends pings and reads nothing gets one pong when it reads again (RFC 6455 section 5.5.3). Without memory
 * it gets none. */
void ls_ws_pong_later(ls_thread_ctx *ctx, ls_ws *ws, const char *bytes, size_t len)
{
    if (!ls_stream_sending(ls_ws_stream_of(ws))) {
        (void)ls_ws_put_control(ctx, ws, LS_WS_PONG, bytes, len, false);
        return;
    }
    ls_ws_pong *pong = ws->pong;
    if (pong == NULL) pong = malloc(sizeof *pong + LS_WS_CONTROL_BYTES_MAX);
    if (pong == NULL) return;
    ws->pong = pong;
    pong->len = (uint8_t)len;
    memcpy(pong->bytes, bytes, len);
}

void ls_ws_put_pong(ls_thread_ctx *ctx, ls_ws *ws)
{
    if (ws->pong == NULL) return;
    if (ws->state == LS_WS_STATE_OPEN)
        (void)ls_ws_put_control(ctx, ws, LS_WS_PONG, ws->pong->bytes, ws->pong->len, false);
    free(ws->pong);
    ws->pong = NULL;
}
