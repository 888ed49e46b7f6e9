/* http_client.h - the response to one request of an HTTP/1 client: the received bytes of its connection that are not
 * consumed, and what of them is head and body.
 *
 *     SILENT --bytes--> HEAD --head()--> BODY --next()*--> WHOLE      the end of the connection: ended()
 *
 * The proxy and ls.fetch read responses with it. Received blocks are passed on without a copy; a head that is spread
 * over several is moved to one. The caller owns the stream, the request and the deadlines. Thread: the owner of the
 * stream. */
#ifndef LS_HTTP_HTTP_CLIENT_H
#define LS_HTTP_HTTP_CLIENT_H

#include "base/text.h"
#include "codec/http1/http1_reader.h"
#include "net/stream/stream.h"

enum ls_client_phase {
    LS_CLIENT_SILENT, /* no byte was received */
    LS_CLIENT_HEAD,   /* the head is incomplete */
    LS_CLIENT_BODY,   /* the head is complete */
    LS_CLIENT_WHOLE   /* and the body */
};

typedef struct ls_http_client {
    ls_http1_reader reader;
    ls_slice in;     /* received and not consumed. Of length 0 it may have a block, until the next receive */
    const char *why; /* of LS_EPROTO: static text */
    uint32_t head_bytes_max;
    uint8_t phase; /* enum ls_client_phase */
    bool large;    /* the next block is large: the last one was filled */
    bool filled;   /* the last receive has filled its block */
    bool unfolds;  /* set after ls_http_client_init by a user agent: see ls_http1_unfold */
} ls_http_client;

/* head_bytes_max: LS_BLOCK_LARGE or less. */
void ls_http_client_init(ls_http_client *c, enum ls_asked asked, uint32_t head_bytes_max);
void ls_http_client_drop(ls_http_client *c); /* the received bytes */

/* Receive once. LS_DONE: there are more bytes; LS_PENDING: ls_http_client_received follows; else as that. */
int ls_http_client_receive(ls_thread_ctx *ctx, ls_http_client *c, ls_stream *s);
/* Take the result of a receive that was pending. LS_DONE; LS_OK: as ls_http_client_ended; LS_E*. */
int ls_http_client_received(ls_http_client *c, ls_stream *s, int64_t result);
/* The stream has ended. LS_OK: so the body is whole; LS_ETRUNCATED; LS_ECLOSED: without a byte. */
int ls_http_client_ended(ls_http_client *c);
/* Add the bytes of a slice that its owner has received: by reference where nothing is unread, else a copy. Returns how
 * many were added, or LS_ENOMEM. */
int64_t ls_http_client_add(ls_thread_ctx *ctx, ls_http_client *c, const ls_slice *slice);

/* Look for the head in c->in. Its length: it is c->reader.head, and begins after *skip bytes of interim responses,
 * which the caller consumes as well; 0: it is incomplete; LS_EPROTO. */
int ls_http_client_head(ls_http_client *c, size_t *skip);
void ls_http_client_consume(ls_http_client *c, size_t n);

/* Take the next part of the body, or its end: *part gets a reference. LS_DONE; LS_EAGAIN: more bytes are needed;
 * LS_EPROTO. *trailers: lines of the trailer section, valid until the next receive. */
int ls_http_client_next(ls_http_client *c, ls_slice *part, ls_text *trailers);

/* Whether another request may follow on the connection: the response is whole, and nothing came after it. */
static inline bool ls_http_client_may_keep(const ls_http_client *c)
{
    return c->phase == LS_CLIENT_WHOLE && c->reader.head.keep_alive && c->in.len == 0;
}

#endif
