/* noting_transport.h - a transport without bytes: it notes what it is told, and checks that it is told no more than
 * exchange_out.h and exchange_in.h promise. The includer may define NOTING_HOLDS. */
#ifndef LS_TESTS_NOTING_TRANSPORT_H
#define LS_TESTS_NOTING_TRANSPORT_H

#include <string.h>

#include "base/err.h"
#include "codec/http_text.h"
#include "http/exchange_in.h"
#include "http/exchange_out.h"

#ifndef NOTING_HOLDS
#define NOTING_HOLDS(property) assert_true(property)
#endif

enum { NOTING_BYTES_MAX = 1 << 16 };
enum noting_call { NOTING_HINTS, NOTING_HEAD, NOTING_DATA, NOTING_SHARED, NOTING_LAST, NOTING_FLUSH, NOTING_UPGRADE };

typedef struct noting {
    unsigned hints, heads, lasts, aborts, upgrades; /* calls that had no error */
    int64_t length;                                 /* Content-Length of the head, or -1 */
    char body[NOTING_BYTES_MAX], trailers[NOTING_BYTES_MAX], hinted[NOTING_BYTES_MAX];
    size_t body_len, trailers_len, hinted_len;
    bool lost; /* a call had an error: there must be no further one */
    /* The result of a call; NULL: LS_DONE of all. */
    int (*result)(struct noting *n, enum noting_call call);
    /* The next body bytes, as ls_transport.more; NULL: none */
    int (*more)(struct noting *n, ls_slice *out);
    ls_exchange x; /* last: its head is large */
} noting;

static inline noting *noting_of(ls_exchange *x)
{
    return LS_CONTAINER(x, noting, x);
}

static inline int noting_result(noting *n, enum noting_call call)
{
    NOTING_HOLDS(!n->lost && n->x.error == 0);
    const int err = n->result != NULL ? n->result(n, call) : LS_DONE;
    n->lost = err < 0 && call != NOTING_HINTS && call != NOTING_UPGRADE; /* these leave the exchange as it was */
    return err;
}

static inline void noting_add(char *to, size_t *len, ls_slice *slices, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        NOTING_HOLDS(slices[i].len <= NOTING_BYTES_MAX - *len);
        if (slices[i].len > 0) memcpy(to + *len, slices[i].ptr, slices[i].len);
        *len += slices[i].len;
    }
}

static int noting_data(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count, unsigned how)
{
    noting *n = noting_of(x);
    NOTING_HOLDS(n->lasts == 0 && n->upgrades == 0 && n->heads == (how & LS_DATA_HINTS ? 0 : 1));
    const enum noting_call call = how & LS_DATA_HINTS    ? NOTING_HINTS
                                  : how & LS_DATA_LAST   ? NOTING_LAST
                                  : how & LS_DATA_SHARED ? NOTING_SHARED
                                                         : NOTING_DATA;
    const int err = noting_result(n, call);
    switch (call) {
    case NOTING_HINTS:
        NOTING_HOLDS(how == LS_DATA_HINTS && count == 1 && x->response == LS_RESPONSE_NONE && x->head.version > 10);
        if (err >= 0) noting_add(n->hinted, &n->hinted_len, slices, count);
        if (err >= 0) n->hints++;
        break;
    case NOTING_LAST: /* the slice is that of the trailers */
        NOTING_HOLDS(how == LS_DATA_LAST && count <= 1 && x->framing == LS_FRAMED_BY_PARTS && !x->no_body);
        noting_add(n->trailers, &n->trailers_len, slices, count);
        if (err >= 0) n->lasts++;
        break;
    default:
        NOTING_HOLDS(!x->no_body && count > 0);
        NOTING_HOLDS(call != NOTING_SHARED || (count == 1 && slices[0].block != NULL));
        if (err >= 0) noting_add(n->body, &n->body_len, slices, count);
        NOTING_HOLDS(n->length < 0 || n->body_len <= (uint64_t)n->length);
        break;
    }
    ls_slices_drop(slices, count);
    return err;
}

static int noting_head(ls_thread_ctx *ctx, ls_exchange *x, int64_t length, ls_slice *slices, unsigned count)
{
    noting *n = noting_of(x);
    const bool no_content = x->status < 200 || x->status == 204 || x->status == 205 || x->status == 304;
    NOTING_HOLDS(n->heads++ == 0 && n->upgrades == 0);
    const int err = noting_result(n, NOTING_HEAD);
    NOTING_HOLDS(x->no_body == (no_content || x->head.method == LS_HTTP_HEAD));
    NOTING_HOLDS((x->framing == LS_FRAMED_NOT) == (no_content && x->status != 205));
    NOTING_HOLDS(x->framing != LS_FRAMED_BY_CLOSE || x->close);
    NOTING_HOLDS(x->framing == LS_FRAMED_NOT || (x->framing == LS_FRAMED_BY_LENGTH) == (length >= 0) ||
                 x->open_framing == LS_FRAMED_BY_LENGTH);
    NOTING_HOLDS(x->status != 205 || (x->framing == LS_FRAMED_BY_LENGTH && length == 0));
    NOTING_HOLDS(x->type == NULL || !(no_content || x->has_type));
    NOTING_HOLDS(!x->no_body || count == 0);
    NOTING_HOLDS(x->end_fields == NULL || (x->framing == LS_FRAMED_BY_PARTS && !x->no_body));
    n->length = x->framing == LS_FRAMED_BY_LENGTH ? length : -1;
    if (err >= 0) noting_add(n->body, &n->body_len, slices, count);
    NOTING_HOLDS(n->length < 0 || n->body_len <= (uint64_t)n->length);
    ls_slices_drop(slices, count);
    return err;
}

static int noting_flush(ls_thread_ctx *ctx, ls_exchange *x)
{
    noting *n = noting_of(x);
    if (x->error == 0) return noting_result(n, NOTING_FLUSH);
    NOTING_HOLDS(x->error == LS_ECANCELED && n->aborts++ == 0); /* an abort, of an exchange that had no error */
    return x->error;
}

static int noting_more(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *out)
{
    noting *n = noting_of(x);
    NOTING_HOLDS(x->body_done == (out == NULL));
    return out == NULL || n->more == NULL ? LS_OK : n->more(n, out);
}

static int noting_upgrade(ls_thread_ctx *ctx, ls_exchange *x, const char *protocol, size_t protocol_len,
                          const ls_stream_handler *handler, size_t user_bytes, ls_upgraded *out)
{
    noting *n = noting_of(x);
    (void)ctx, (void)protocol, (void)protocol_len, (void)handler, (void)user_bytes, (void)out;
    NOTING_HOLDS(n->heads == 0 && x->body_done && x->response == LS_RESPONSE_NONE);
    const int err = noting_result(n, NOTING_UPGRADE);
    if (err >= 0) n->upgrades++;
    return err;
}

static const ls_transport noting_transport = {.head = noting_head,
                                              .data = noting_data,
                                              .flush = noting_flush,
                                              .more = noting_more,
                                              .upgrade = noting_upgrade,
                                              .hints = true};

#endif
