/* http1_body.c - the request body: slices of the receive blocks, without a copy.
 *
 * Body bytes that arrived with the head are in c->in. Further bytes are received into the free end of that block, or
 * into another block. The handler gets slices that share the block.
 *
 * Slow clients must not hold much more memory than they have sent. So a block is small, and large only after a receive
 * that filled its room; a large block that got few bytes is replaced by a small one. */

#include "base/clock.h"
#include "http/http1_internal.h"

enum { TAIL_BYTES_MIN = 1024 }; /* a receive into a smaller free end is not worth it */

void ls_http1_body_begin(ls_http1_exchange *e)
{
    const ls_http_head *head = &e->x.head;
    e->body_left = head->content_length;
    e->x.body_bytes = 0;
    e->x.body_done = !head->has_body;
    e->x.continue_due = e->terms.expect_continue && !e->x.body_done;
    e->waited_ms = 0;
    e->skipped = 0;
    e->read_error = LS_OK;
    e->ahead = ls_slice_static(NULL, 0);
    if (e->terms.chunked) ls_chunks_init(&e->chunks);
}

static void consume(ls_http1_conn *c, uint32_t bytes)
{
    c->in->from += bytes;
    if (c->in->from == c->in->to && c->in->cap - c->in->to < TAIL_BYTES_MIN) ls_http1_drop_received(c);
}

int ls_http1_body_take(ls_thread_ctx *ctx, ls_http1_conn *c, ls_slice *out)
{
    ls_http1_exchange *e = ls_http1_exchange_of(c);
    if (e->ahead.len > 0) {
        *out = e->ahead;
        e->ahead = ls_slice_static(NULL, 0);
        e->x.body_done = e->ahead_is_last;
        return LS_DONE;
    }
    while (!e->x.body_done) {
        const uint32_t have = ls_http1_unparsed(c);
        if (have == 0) return LS_EAGAIN;
        if (!e->terms.chunked) {
            uint32_t len = have < e->body_left ? have : (uint32_t)e->body_left;
            *out = ls_slice_of(c->in, c->in->from, len);
            e->body_left -= len;
            e->x.body_done = e->body_left == 0;
            consume(c, len);
            return LS_DONE;
        }
        ls_chunk_run run;
        const char *const bytes = c->in->data + c->in->from;
        int err = ls_chunks_next(&e->chunks, bytes, have, &run, NULL);
        if (err < 0) return err;
        if (e->chunks.trailers > 0 && run.trailers > 0 &&
            ls_trailers_add(ctx, &e->x.trailers, bytes + run.used - run.trailers, run.trailers) < 0) {
            ls_http1_drop_received(c);
            return e->read_error = LS_ENOMEM;
        }
        bool some = run.len > 0;
        if (some) *out = ls_slice_of(c->in, c->in->from + run.from, run.len);
        e->x.body_done = run.end;
        consume(c, (uint32_t)run.used);
        if (some) return LS_DONE;
    }
    *out = ls_slice_static(NULL, 0);
    return LS_DONE;
}

/* The deadline of the next receive. After body_grace_ms the body must arrive at body_rate_min; only time spent in
 * receives counts. */
static void set_deadline(ls_http1_conn *c)
{
    const ls_http1_exchange *e = ls_http1_exchange_of(c);
    const ls_http_config *config = &ls_http1_engine(c)->config;
    uint64_t allowed_ms = config->body_grace_ms;
    if (config->body_rate_min > 0) allowed_ms += e->x.body_bytes * 1000 / config->body_rate_min;
    const uint64_t left_ms = allowed_ms > e->waited_ms ? allowed_ms - e->waited_ms : 1;
    ls_stream_recv_within(ls_http1_stream(c), left_ms < UINT32_MAX ? (uint32_t)left_ms : UINT32_MAX);
}

int ls_http1_body_receive(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    ls_http1_exchange *e = ls_http1_exchange_of(c);
    ls_stream *const s = ls_http1_stream(c);
    int64_t result;
    int err;
    e->wait_from_ms = ls_clock_coarse_ms();
    set_deadline(c);
    if (c->in != NULL && c->in->to == c->in->cap) e->fast = true;
    if (c->in != NULL) consume(c, 0); /* the head may have filled the block */
    if (c->in != NULL) {
        e->room = c->in->cap - c->in->to;
        err = ls_stream_recv(ctx, s, c->in->data + c->in->to, e->room, &result);
    } else {
        const bool large = e->fast && (e->terms.chunked || e->body_left > LS_BLOCK_SMALL);
        e->room = large ? LS_BLOCK_LARGE : LS_BLOCK_SMALL;
        err = ls_stream_recv(ctx, s, NULL, e->room, &result);
    }
    if (err == LS_DONE) ls_http1_body_received(ctx, &e->x, result);
    return err;
}

void ls_http1_body_waited(ls_exchange *x)
{
    ls_http1_exchange *e = ls_http1_of(x);
    const uint64_t now_ms = ls_clock_coarse_ms();
    if (now_ms > e->wait_from_ms) e->waited_ms += now_ms - e->wait_from_ms;
}

/* The receive got `bytes` bytes. Move few bytes from a large block into a small one, if there is one. */
static void take_received(ls_thread_ctx *ctx, ls_http1_conn *c, uint32_t bytes)
{
    ls_http1_exchange *e = ls_http1_exchange_of(c);
    const bool supplied = c->in == NULL;
    e->fast = bytes == e->room || bytes >= LS_BLOCK_SMALL;
    ls_http1_append_rx(c, bytes);
    if (supplied && c->in->cap == LS_BLOCK_LARGE && bytes <= LS_BLOCK_SMALL)
        (void)ls_block_move(ctx->pool, &c->in, LS_BLOCK_SMALL);
}

void ls_http1_body_received(ls_thread_ctx *ctx, ls_exchange *x, int64_t result)
{
    ls_http1_exchange *e = ls_http1_of(x);
    ls_http1_conn *c = ls_http1_conn_of(x);
    ls_http1_body_waited(x);
    if (result > 0) {
        take_received(ctx, c, (uint32_t)result);
    } else if (result == LS_ETIMEDOUT || result == LS_ENOMEM) { /* the connection is sound: the response is sent */
        e->read_error = (int)result;
        x->close = true;
    } else if (result != LS_ECANCELED ||
               atomic_load(&ls_http1_engine(c)->aborting)) { /* a late cancel of a drain: read on */
        x->error = result == 0 ? LS_ECLOSED : (int)result;
    }
}

/* true: the received bytes are those of the last chunk, which has no data. */
static bool is_last_chunk(const ls_http1_conn *c)
{
    ls_chunks chunks = ls_http1_exchange_of(c)->chunks;
    const uint32_t have = ls_http1_unparsed(c);
    ls_chunk_run run;
    return have > 0 && ls_chunks_next(&chunks, c->in->data + c->in->from, have, &run, NULL) >= 0 && run.end &&
           run.len == 0;
}

/* true: the body has arrived. What the handler has not read of it is in e->ahead, so that c->in is free for what comes
 * after it. It is one run of bytes: a body in several chunks is left where it is. */
static bool has_arrived(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    ls_http1_exchange *e = ls_http1_exchange_of(c);
    ls_exchange *x = &e->x;
    ls_slice none;
    if (x->body_done || ls_stream_receiving(x->stream)) return x->body_done;
    if (e->ahead.len == 0 && ls_http1_body_take(ctx, c, &e->ahead) == LS_DONE && e->ahead.len > 0) {
        const ls_slice ahead = e->ahead;
        e->ahead.len = 0;
        if (!x->body_done && e->terms.chunked && is_last_chunk(c)) (void)ls_http1_body_take(ctx, c, &none);
        e->ahead = ahead;
        e->ahead_is_last = x->body_done;
        x->body_done = false;
    }
    return x->body_done || (e->ahead.len > 0 && e->ahead_is_last);
}

/* Learn of the end of the client's direction. */
static int expect_end(ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_http1_exchange *e = ls_http1_of(x);
    ls_http1_conn *c = ls_http1_conn_of(x);
    int64_t result;
    if (!has_arrived(ctx, c)) return LS_OK;
    if (ls_http1_unparsed(c) > 0 || ls_stream_receiving(x->stream))
        return LS_OK; /* a pipelined request is not the end */
    ls_http1_drop_received(c);
    ls_stream_set_actor(x->stream, x->actor);
    ls_stream_recv_within(x->stream, 0); /* the receive of the next head sets its deadline */
    e->wait_from_ms = ls_clock_coarse_ms();
    const int err = ls_stream_recv(ctx, x->stream, NULL, LS_BLOCK_SMALL, &result);
    if (err == LS_PENDING) e->link |= LS_H1_EXPECTS_END;
    if (err == LS_PENDING || err == LS_ENOMEM) return LS_OK; /* without memory: the loss is found by the next send */
    return ls_http1_expected(c, err < 0 ? err : result);
}

int ls_http1_more(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *out)
{
    ls_http1_exchange *e = ls_http1_of(x);
    ls_http1_conn *c = ls_http1_conn_of(x);
    if (out == NULL) return expect_end(ctx, x);
    for (;;) {
        int err = ls_http1_body_take(ctx, c, out);
        if (err == LS_DONE) x->continue_due = false; /* the client sent the body without waiting */
        if (err != LS_EAGAIN) return err;
        if (x->error != 0) return x->error;
        if (e->read_error != LS_OK) return e->read_error;
        if (ls_stream_receiving(x->stream)) return LS_PENDING; /* posted for another task */
        if (x->continue_due &&
            x->response == LS_RESPONSE_NONE) { /* after the head it would be part of the response body */
            static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
            if (ls_stream_put(ctx, x->stream, text, sizeof text - 1) < 0)
                return e->read_error = LS_ENOMEM; /* still due: the connection closes after the response */
            x->continue_due = false;
        }
        /* The client may wait for 100 Continue, or for parts of the response. */
        ls_stream_set_actor(x->stream, x->actor);
        err = ls_http1_send_out(ctx, c);
        if (err < 0) return x->error = err;
        err = ls_http1_body_receive(ctx, c);
        if (err == LS_PENDING) return LS_PENDING;
        if (err == LS_ENOMEM) return e->read_error = err;
        if (err < 0) return x->error = err;
    }
}

/* ---- after the body ---------------------------------------------------------------------------------------- */

int ls_http1_expected(ls_http1_conn *c, int64_t result)
{
    ls_exchange *x = &ls_http1_exchange_of(c)->x;
    if (result > 0) ls_http1_append_rx(c, (uint32_t)result); /* a pipelined request */
    if (result > 0 || result == LS_ENOMEM || (result == LS_ECANCELED && !atomic_load(&ls_http1_engine(c)->aborting)))
        return LS_OK;
    if (x->error == 0) x->error = result == 0 ? LS_ECLOSED : (int)result;
    return x->error;
}
