/* exchange_out.c - see exchange_out.h. */
#include "http/exchange_out.h"

#include <assert.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/err.h"
#include "codec/http_text.h"
#include "net/refused.h"

enum { AT_ONCE_BYTES = 65536 }; /* the first byte of such a response leaves with the last one */
enum { SEND_AT_BYTES = 16384 }; /* write sends the queue when it has this length */

/* The client must not take the bytes sent so far for a complete response. */
int ls_exchange_fail(ls_exchange *x, int err)
{
    x->error = err;
    x->close = true;
    x->response = LS_RESPONSE_OPEN;
    return err;
}

/* Whether the next request of the connection is out of reach. */
static bool unread_is_long(const ls_exchange *x)
{
    return x->continue_due || (x->head.has_length && x->head.content_length - x->body_bytes > x->unread_bytes_max);
}

/* Decide the framing, and queue the head and the start of the body. `length` < 0: unknown. */
static int begin(ls_thread_ctx *ctx, ls_exchange *x, int64_t length, ls_slice *slices, unsigned count)
{
    const bool has_content = ls_status_has_content(x->status);
    if (!has_content) length = 0;
    if (x->has_type || !has_content) x->type = NULL;
    x->no_body = !has_content || x->head.method == LS_HTTP_HEAD;
    x->framing = length < 0 ? x->open_framing : ls_status_is_framed(x->status) ? LS_FRAMED_BY_LENGTH : LS_FRAMED_NOT;
    if (x->recorder != NULL) x->first_ns = length >= 0 && length <= AT_ONCE_BYTES ? 1 : ls_clock_ns();
    if (x->framing == LS_FRAMED_BY_CLOSE || (!x->body_done && unread_is_long(x))) x->close = true;
    if (x->no_body) {
        ls_slices_drop(slices, count);
        count = 0;
    }
    return x->transport->head(ctx, x, length, slices, count);
}

int ls_exchange_hints(ls_thread_ctx *ctx, ls_exchange *x, const ls_hints *hints)
{
    ls_slice slice = ls_slice_static(hints->lines, hints->len);
    if (x->error != 0) return x->error;
    if (x->response != LS_RESPONSE_NONE) return LS_EBUSY;
    if (!x->transport->hints || x->head.version == 10) return LS_DONE;
    const int err = x->transport->data(ctx, x, &slice, 1, LS_DATA_HINTS);
    return err < 0 ? err : ls_exchange_flush(ctx, x);
}

/* As begin, of a response with trailers: announce them, or drop them if it will have no end where they have a
 * place. */
LS_NOINLINE static int begin_with_trailers(ls_thread_ctx *ctx, ls_exchange *x, int64_t length, ls_slice *slices,
                                           unsigned count)
{
    const bool in_parts = length < 0 && x->open_framing == LS_FRAMED_BY_PARTS && ls_status_has_content(x->status);
    if (in_parts) ls_exchange_announce_trailers(ctx, x);
    if (!in_parts || x->head.method == LS_HTTP_HEAD) ls_exchange_drop_trailers(x);
    return begin(ctx, x, length, slices, count);
}

/* A whole response has no length for the sake of its trailers, if the transport marks the end of such a body. */
LS_NOINLINE static int respond_with_trailers(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count)
{
    x->length = x->open_framing == LS_FRAMED_BY_PARTS ? -1 : (int64_t)x->written;
    const int err = begin_with_trailers(ctx, x, x->length, slices, count);
    if (err < 0) return ls_exchange_fail(x, err);
    x->response = LS_RESPONSE_OPEN;
    return err == LS_PENDING ? LS_DONE : ls_exchange_finish(ctx, x);
}

int ls_exchange_respond(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count)
{
    if (x->error != 0) {
        ls_slices_drop(slices, count);
        return x->error;
    }
    assert(x->response == LS_RESPONSE_NONE);
    x->written = ls_slices_bytes(slices, count);
    if (x->end_fields != NULL) return respond_with_trailers(ctx, x, slices, count);
    const int err = begin(ctx, x, (int64_t)x->written, slices, count);
    if (err < 0) return ls_exchange_fail(x, err);
    x->response = err == LS_PENDING ? LS_RESPONSE_OPEN : LS_RESPONSE_DONE;
    return LS_DONE;
}

int ls_exchange_write(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count)
{
    int err = LS_DONE;
    if (x->error != 0) {
        ls_slices_drop(slices, count);
        return x->error;
    }
    x->written += ls_slices_bytes(slices, count);
    if (x->length >= 0 && x->written > (uint64_t)x->length) {
        ls_slices_drop(slices, count);
        err = LS_EMSGSIZE;
    } else if (x->response == LS_RESPONSE_NONE) {
        x->response = LS_RESPONSE_OPEN;
        err = (x->end_fields != NULL ? begin_with_trailers : begin)(ctx, x, x->length, slices, count);
    } else if (x->no_body) {
        ls_slices_drop(slices, count);
    } else if (count > 0) {
        err = x->transport->data(ctx, x, slices, count, 0);
    }
    if (err < 0) return ls_exchange_fail(x, err);
    return ls_exchange_queued(x) >= SEND_AT_BYTES ? ls_exchange_flush(ctx, x) : LS_DONE;
}

int ls_exchange_write_shared(ls_thread_ctx *ctx, ls_exchange *x, const ls_slice *part, bool now)
{
    assert(x->error != 0 || (x->response == LS_RESPONSE_OPEN && x->length < 0));
    if (x->error != 0) return x->error;
    if (x->no_body) return LS_DONE;
    ls_slice slice = *part;
    x->written += slice.len;
    (void)ls_block_hold(slice.block);
    const int err = x->transport->data(ctx, x, &slice, 1, LS_DATA_SHARED | (now ? LS_DATA_NOW : 0));
    return err < 0 ? ls_exchange_fail(x, err) : err;
}

int ls_exchange_flush(ls_thread_ctx *ctx, ls_exchange *x)
{
    if (x->error != 0) return x->error;
    const int err = x->transport->flush(ctx, x);
    return err < 0 ? ls_exchange_fail(x, err) : err;
}

int ls_exchange_finish(ls_thread_ctx *ctx, ls_exchange *x)
{
    int err = LS_DONE;
    if (x->error != 0) return x->error;
    if (x->response == LS_RESPONSE_NONE) return ls_exchange_respond(ctx, x, NULL, 0);
    if (x->length >= 0 && !x->no_body && x->written != (uint64_t)x->length) return ls_exchange_fail(x, LS_EMSGSIZE);
    if (x->framing == LS_FRAMED_BY_PARTS && !x->no_body) {
        const bool trailers = x->end_fields != NULL;
        ls_slice lines = trailers ? ls_slice_of(x->end_fields, 0, x->end_fields->to) : ls_slice_static(NULL, 0);
        err = x->transport->data(ctx, x, &lines, trailers, LS_DATA_LAST);
    }
    if (err < 0) return ls_exchange_fail(x, err);
    x->response = LS_RESPONSE_DONE;
    return LS_DONE;
}

void ls_exchange_refuse(ls_thread_ctx *ctx, ls_exchange *x, int status, const char *why)
{
    char text[160], from[LS_ADDR_TEXT_BYTES];
    const char *status_text = ls_status_text(status);
    const int len =
        snprintf(text, sizeof text, "%s%s%s\n", status_text, why != NULL ? ": " : "", why != NULL ? why : "");
    ls_slice slice = ls_slice_static(text, len < (int)sizeof text ? (size_t)len : sizeof text - 1);
    ls_refused_log("%s %d: %s", ls_addr_logged(x->remote, from), status, why != NULL ? why : status_text);
    x->status = status;
    x->refused = true;
    x->type = "text/plain; charset=utf-8";
    x->close = true;
    (void)ls_exchange_respond(ctx, x, &slice, 1);
}

void ls_exchange_abort(ls_thread_ctx *ctx, ls_exchange *x)
{
    const bool lost = x->error != 0;
    if (!lost) x->error = LS_ECANCELED;
    if (!lost) (void)x->transport->flush(ctx, x);
}

int ls_exchange_unexpect_end(ls_thread_ctx *ctx, ls_exchange *x)
{
    if (x->error != 0) return x->error;
    return x->transport->unexpect_end != NULL && x->body_done ? x->transport->unexpect_end(ctx, x) : LS_DONE;
}

int ls_exchange_upgrade(ls_thread_ctx *ctx, ls_exchange *x, const char *protocol, size_t protocol_len,
                        const ls_stream_handler *handler, size_t user_bytes, ls_upgraded *out)
{
    const bool tunnel = x->head.method == LS_HTTP_CONNECT;
    if (x->error != 0) return x->error;
    if (x->transport->upgrade == NULL) return LS_ENOTSUP;
    if (x->response != LS_RESPONSE_NONE) return LS_EBUSY;
    if (!x->body_done || (tunnel && (x->status < 200 || x->status > 299))) return LS_EINVAL;
    const int err = x->transport->upgrade(ctx, x, protocol, protocol_len, handler, user_bytes, out);
    if (err < 0) return err;
    if (!tunnel) x->status = 101;
    x->response = LS_RESPONSE_DONE;
    x->error = LS_ECLOSED;
    x->stream = NULL;
    return LS_OK;
}
