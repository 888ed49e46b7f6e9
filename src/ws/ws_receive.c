/* ws_receive.c - received frames become messages: see ws_internal.h.
 *
 * A frame is unmasked and checked in the block that received it. A message of one frame that lies in one block is
 * handed over as one slice of that block, which needs neither a copy nor a reference: no byte is received while it
 * waits.
 *
 * Blocks. A receive without a block of ours gets one from the port when bytes arrive, small or large by the bytes of
 * the last one. A frame that does not fit into the rest of its block moves to a large one if it fits there and few
 * bytes must be copied; else the parts become slices. A large block is taken only for a peer whose bytes have filled a
 * small one: the announcement of a long frame costs us nothing.
 *
 * A receive into a small block is posted at once, which saves a second completion. But each completion that waits for
 * a busy actor would hold its block. So when others wait for the actor, and always for a large block, a receive of
 * length 0 waits for the bytes, and the block is taken inside the actor. */
#include <string.h>

#include "ws/ws_internal.h"

enum {
    JOIN_BYTES_MAX = LS_BLOCK_SMALL / 2, /* shorter parts of a message are copied after the part before */
    MOVED_BYTES_MAX = LS_BLOCK_SMALL,    /* bytes of a frame that are copied to another block */
    TAIL_BYTES_MIN = 512,                /* less room at the end of a block is no room for a receive */
    FRAMES_MAX = 64                      /* then other packets of the actor run */
};

/* ---- the message ------------------------------------------------------------------------------------------------ */

void ls_ws_drop_message(ls_ws *ws)
{
    if (ws->borrowed) {
        ws->parts.count = 0;
        ws->parts.bytes = 0;
        ws->borrowed = false;
    } else {
        ls_slices_clear(&ws->parts);
    }
}

static void drop_block(ls_ws *ws)
{
    if (ws->in == NULL) return;
    if (ws->borrowed) ls_block_hold(ws->in);
    ws->borrowed = false;
    ls_block_drop(ws->in);
    ws->in = NULL;
    ws->from = ws->ready = ws->to = 0;
}

void ls_ws_drop_received(ls_ws *ws)
{
    if (!ws->waiting) ls_ws_drop_message(ws);
    drop_block(ws);
    ws->in_frame = ws->in_message = false;
    ws->left = 0;
}

void ls_ws_skip_messages(ls_ws *ws)
{
    if (!ws->waiting) ls_ws_drop_message(ws);
    ws->in_message = false;
    if (ws->in_frame) ws->from = ws->ready;
}

/* Append the payload at [from, ready) to the parts. LS_OK or LS_ENOMEM. */
static int add_part(ls_thread_ctx *ctx, ls_ws *ws)
{
    const uint32_t len = ws->ready - ws->from;
    char *const bytes = ws->in->data + ws->from;
    ls_slices *const parts = &ws->parts;
    if (len == 0) return LS_OK;
    if (parts->count > 0) {
        ls_slice *const last = &ls_slices_items(parts)[parts->count - 1];
        const size_t used = (size_t)(last->ptr - last->block->data) + last->len;
        char *const end = last->block->data + used;
        /* No reader uses the bytes after a slice. In the same block these are heads of frames that were read. */
        const bool joins = len <= JOIN_BYTES_MAX && last->block->cap - used >= len;
        if (joins && end != bytes) {
            memmove(end, bytes, len);
            ls_pool_copied(ctx->pool, len);
        }
        if (joins || end == bytes) {
            last->len += len;
            parts->bytes += len;
            return LS_OK;
        }
    }
    const ls_slice slice = ls_slice_of(ws->in, ws->from, len);
    const int err = ls_slices_add(parts, slice);
    if (err < 0) ls_block_drop(slice.block);
    return err;
}

static void borrow_part(ls_ws *ws)
{
    const uint32_t len = ws->ready - ws->from;
    ws->parts.one = (ls_slice){ws->in, ws->in->data + ws->from, len};
    ws->parts.count = 1;
    ws->parts.bytes = len;
    ws->borrowed = true;
}

/* 0, or the code to refuse the message with. */
static unsigned inflate(ls_thread_ctx *ctx, ls_ws *ws, const char **why)
{
    ls_slices out = {.count = 0};
    if (ws->borrowed) ls_block_hold(ws->in);
    ws->borrowed = false;
    const int err = ls_ws_inflate_message(ctx->pool, &ws->deflate, ls_slices_items(&ws->parts), ws->parts.count,
                                          ws->config->message_bytes_max, &out);
    ws->parts.count = 0; /* the references were taken */
    ls_slices_clear(&ws->parts);
    ws->parts = out;
    *why = err == LS_EMSGSIZE ? "message too long" : err == LS_EPROTO ? "invalid compressed data" : "out of memory";
    if (err < 0) return err == LS_EMSGSIZE ? LS_WS_TOO_BIG : err == LS_EPROTO ? LS_WS_BAD_DATA : LS_WS_INTERNAL;
    const ls_slice *slices = ls_slices_items(&ws->parts);
    for (unsigned i = 0; ws->text && i < ws->parts.count; i++) {
        if (!ls_utf8_feed(&ws->utf8, slices[i].ptr, slices[i].len)) {
            *why = "text is not UTF-8";
            return LS_WS_BAD_DATA;
        }
    }
    return 0;
}

static void message_ends(ls_thread_ctx *ctx, ls_ws *ws)
{
    const char *why;
    unsigned code = 0;
    ws->in_message = ws->timed = false;
    if (ws->compressed) code = inflate(ctx, ws, &why);
    if (code == 0 && ws->text && !ls_utf8_complete(&ws->utf8)) {
        code = LS_WS_BAD_DATA;
        why = "text ends inside a UTF-8 character";
    }
    if (code != 0) {
        ls_ws_refuse(ctx, ws, code, why);
        return;
    }
    if (ws->parts.count == 0) borrow_part(ws); /* empty, like the bytes before the next head */
    ws->message = (ls_ws_message){ws->text, ws->parts.count, ls_slices_items(&ws->parts), ws->parts.bytes};
    ws->waiting = true;
    ws->events->message(ctx, ws);
}

/* ---- frames ----------------------------------------------------------------------------------------------------- */

/* Handle a control frame. false: more bytes are needed; its head is read again. */
static bool take_control(ls_thread_ctx *ctx, ls_ws *ws, const ls_ws_head *head, uint32_t head_bytes)
{
    if (ws->to - ws->from < head_bytes + head->length) return false;
    char *const payload = ws->in->data + ws->from + head_bytes;
    const size_t len = (size_t)head->length;
    if (head->masked) ls_ws_mask(payload, len, head->key, 0);
    ws->from = ws->ready = ws->from + head_bytes + (uint32_t)len;
    if (ws->state == LS_WS_STATE_OPEN && !ws->in_message)
        ws->timed = false; /* a part of this frame was received before */
    if (head->opcode == LS_WS_PING) {
        if (ws->state == LS_WS_STATE_OPEN) ls_ws_pong_later(ctx, ws, payload, len);
    } else if (head->opcode == LS_WS_CLOSE) {
        unsigned code;
        const char *reason;
        size_t reason_len;
        const int err = ls_ws_close_parse(payload, len, &code, &reason, &reason_len);
        if (err < 0)
            ls_ws_refuse(ctx, ws, (unsigned)-err,
                         err == -LS_WS_BAD_DATA ? "the reason of the Close frame is not UTF-8"
                                                : "invalid Close frame");
        else
            ls_ws_close_received(ctx, ws, code, reason, reason_len);
    } /* a pong says only that the peer lives, as all bytes do */
    return true;
}

static void begin_data(ls_thread_ctx *ctx, ls_ws *ws, const ls_ws_head *head)
{
    const bool first = head->opcode != LS_WS_CONTINUATION;
    if (first == ws->in_message) {
        ls_ws_refuse(ctx, ws, LS_WS_PROTOCOL_ERROR,
                     first ? "a message begins inside another one" : "a continuation without a message");
        return;
    }
    if (first) {
        ws->in_message = true;
        ws->text = head->opcode == LS_WS_TEXT;
        ws->compressed = head->compressed;
        ws->utf8 = (ls_utf8){.missing = 0};
    }
    const uint64_t bytes_max =
        ws->compressed ? ls_ws_deflate_bound(ws->config->message_bytes_max) : ws->config->message_bytes_max;
    if (head->length > bytes_max || ws->parts.bytes > bytes_max - head->length)
        ls_ws_refuse(ctx, ws, LS_WS_TOO_BIG, "message too long");
}

/* Read the head of the next frame. false: more bytes are needed. */
static bool take_head(ls_thread_ctx *ctx, ls_ws *ws)
{
    const ls_ws_rules rules = {.masked = !ws->config->client, .compressed = ls_ws_deflate_active(&ws->deflate)};
    ls_ws_head head;
    const char *why;
    const int n = ls_ws_head_parse(ws->in->data + ws->from, ws->to - ws->from, &rules, &head, &why);
    if (n == 0) return false;
    if (n < 0) {
        ls_ws_refuse(ctx, ws, (unsigned)-n, why);
        return true;
    }
    if (head.opcode >= LS_WS_CLOSE) return take_control(ctx, ws, &head, (uint32_t)n);
    if (ws->state == LS_WS_STATE_OPEN) begin_data(ctx, ws, &head);
    ws->from = ws->ready = ws->from + (uint32_t)n;
    ws->in_frame = true;
    ws->fin = head.fin;
    ws->left = head.length;
    memcpy(ws->key, head.key, sizeof ws->key);
    return true;
}

/* Skip the payload. false: more bytes are needed. */
static bool skip_payload(ls_ws *ws)
{
    const uint32_t have = ws->to - ws->ready, n = ws->left < have ? (uint32_t)ws->left : have;
    ws->from = ws->ready += n;
    ws->left -= n;
    ws->in_frame = ws->left > 0;
    return !ws->in_frame;
}

static bool take_payload(ls_thread_ctx *ctx, ls_ws *ws)
{
    const uint32_t have = ws->to - ws->ready, n = ws->left < have ? (uint32_t)ws->left : have;
    if (n == 0 && ws->left > 0) return false; /* perhaps there is no block */
    char *const bytes = ws->in->data + ws->ready;
    if (!ws->config->client) ls_ws_mask(bytes, n, ws->key, 0);
    if (ws->text && !ws->compressed && !ls_utf8_feed(&ws->utf8, bytes, n)) {
        ls_ws_refuse(ctx, ws, LS_WS_BAD_DATA, "text is not UTF-8");
        return true;
    }
    ws->ready += n;
    ws->left -= n;
    if (ws->left > 0) {
        uint8_t key[4];
        for (unsigned i = 0; i < 4; i++) key[i] = ws->key[(n + i) & 3];
        memcpy(ws->key, key, sizeof key);
        return false;
    }
    ws->in_frame = false;
    if (ws->fin && ws->parts.count == 0) {
        borrow_part(ws);
    } else if (add_part(ctx, ws) < 0) {
        ls_ws_refuse(ctx, ws, LS_WS_INTERNAL, "out of memory");
        return true;
    }
    ws->from = ws->ready;
    if (ws->fin) message_ends(ctx, ws);
    return true;
}

enum ls_ws_taken ls_ws_take_frames(ls_thread_ctx *ctx, ls_ws *ws)
{
    unsigned frames = 0;
    while (ws->state <= LS_WS_STATE_CLOSING) {
        const bool skipping = ws->state == LS_WS_STATE_CLOSING;
        if (ws->waiting && !skipping) return LS_WS_TAKEN_MESSAGE;
        if (ws->ready == ws->to && (!ws->in_frame || ws->left > 0)) return LS_WS_TAKEN_ALL;
        if (!ws->in_frame) {
            if (frames++ >= FRAMES_MAX && ls_ws_others_wait(ctx)) return LS_WS_TAKEN_MANY;
            if (!take_head(ctx, ws)) return LS_WS_TAKEN_ALL;
        } else if (skipping) {
            if (!skip_payload(ws)) return LS_WS_TAKEN_ALL;
        } else if (!take_payload(ctx, ws)) {
            return LS_WS_TAKEN_ALL;
        }
    }
    return LS_WS_TAKEN_LAST;
}

/* ---- receive ---------------------------------------------------------------------------------------------------- */

static int move_bytes(ls_thread_ctx *ctx, ls_ws *ws, size_t size)
{
    const uint32_t have = ws->to - ws->from;
    ls_block *next = ls_block_get(ctx->pool, size);
    if (next == NULL) return LS_ENOMEM;
    memcpy(next->data, ws->in->data + ws->from, have);
    ls_pool_copied(ctx->pool, have);
    const uint32_t ready = ws->ready - ws->from;
    drop_block(ws);
    ws->in = next;
    ws->ready = ready;
    ws->to = have;
    return LS_OK;
}

/* Have room after the received bytes, or no block. LS_OK or LS_ENOMEM. */
static int make_room(ls_thread_ctx *ctx, ls_ws *ws)
{
    if (ws->short_read && ws->left <= LS_BLOCK_SMALL) ws->large = false;
    ws->short_read = false;
    if (ws->state == LS_WS_STATE_ENDING) ws->from = ws->ready = ws->to;
    const uint32_t have = ws->to - ws->from, room = ws->in != NULL ? ws->in->cap - ws->to : 0;
    const uint64_t need = ws->in_frame ? ws->left : TAIL_BYTES_MIN;
    if (have == 0 && (!ws->in_frame || need > room || ws->state != LS_WS_STATE_OPEN)) {
        drop_block(ws);
        return LS_OK;
    }
    if (need <= room) return LS_OK;
    if (have <= MOVED_BYTES_MAX && have + need <= LS_BLOCK_LARGE) {
        const bool small = ws->in_frame ? have + need <= LS_BLOCK_SMALL : !ws->large;
        if (!small && !ws->large && room >= TAIL_BYTES_MIN) return LS_OK;
        return move_bytes(ctx, ws, small ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
    }
    if (room >= TAIL_BYTES_MIN) return LS_OK;
    if (add_part(ctx, ws) < 0) return LS_ENOMEM;
    drop_block(ws);
    return LS_OK;
}

void ls_ws_bytes_received(ls_ws *ws, uint32_t bytes)
{
    if (ws->in == NULL) {
        const ls_slice slice = ls_stream_take(ls_ws_stream_of(ws));
        ws->in = slice.block;
        ws->from = ws->ready = ws->to = (uint32_t)(slice.ptr - slice.block->data);
        ws->short_read = bytes < LS_BLOCK_SMALL;
    }
    ws->to += bytes;
    if (ws->to == ws->in->cap) ws->large = true;
    ws->pinged = false;
}

int ls_ws_receive(ls_thread_ctx *ctx, ls_ws *ws)
{
    ls_stream *const s = ls_ws_stream_of(ws);
    const bool probed = ws->probed;
    int64_t result;
    int err = make_room(ctx, ws);
    if (err < 0) return err;
    ws->probed = false;
    ws->begun = true;
    if (ws->in != NULL) {
        err = ls_stream_recv(ctx, s, ws->in->data + ws->to, ws->in->cap - ws->to, &result);
    } else {
        if (!probed && (ws->large || ls_ws_others_wait(ctx))) {
            err = ls_stream_recv(ctx, s, NULL, 0, &result);
            ws->probing = err == LS_PENDING;
            if (err != LS_DONE) return err;
            if (result < 0) return (int)result;
        }
        err = ls_stream_recv(ctx, s, NULL, ws->large ? LS_BLOCK_LARGE : LS_BLOCK_SMALL, &result);
    }
    if (err != LS_DONE) return err;
    if (result <= 0) return result == 0 ? LS_ECLOSED : (int)result;
    ls_ws_bytes_received(ws, (uint32_t)result);
    return LS_DONE;
}
