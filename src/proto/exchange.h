/* exchange.h - one HTTP request and its response, for every transport (HTTP/1.1, http.sys, an injected request).
 *
 * The transport creates an exchange when a request head is complete and passes it to the handler (the script layer).
 * The exchange lives in one pool block. The handler owns it from `start` until it calls transport->release. The
 * handler makes all calls from inside x->actor, the actor that it chose in `start`. Until the release, the operations
 * of the transport are pinned to that actor.
 *
 *   start --> [body reads] --> respond(whole body) -------------> release
 *                         \--> write(part)* -> finish() ---------/
 */
#ifndef LS_PROTO_EXCHANGE_H
#define LS_PROTO_EXCHANGE_H

#include "base/buf.h"
#include "net/listener.h"
#include "net/stream.h"
#include "port/port.h"
#include "proto/http1_parse.h"

typedef struct ls_exchange ls_exchange;
typedef struct ls_http_handler ls_http_handler;

/* The handler of a listener. */
struct ls_http_handler {
    /* Handle the request `x`: choose an actor, enter it, set x->actor, and run. A thread that is inside an actor
     * already (ctx->inside) must use that actor. Returns after the handler responded or suspended. If `start` entered
     * an actor, the transport leaves it (ls_actor_leave) after its own work inside it. If no actor is free, `start`
     * sets x->actor only: the thread is inside none, and the transport posts an operation to x->actor which calls
     * `start` again. It must not touch the exchange after that, because another thread may run the operation at
     * once. */
    void (*start)(const ls_http_handler *handler, ls_thread_ctx *ctx, ls_exchange *x);
};

/* A connection that was taken over from HTTP. */
typedef struct ls_upgraded {
    ls_stream *stream;    /* nothing is received; the response head is queued, not flushed */
    ls_conn_limit *limit; /* the connection keeps its place: ls_conn_limit_leave when it is closed. NULL: none */
} ls_upgraded;

/* The functions of a transport. Results: LS_DONE; LS_PENDING: the transport calls x->wake later; or a negative code:
 * LS_ERESET, LS_EPIPE, LS_ECLOSED, LS_ETIMEDOUT (the connection to the client is lost), LS_EPROTO (invalid body),
 * LS_EMSGSIZE (body limit, or Content-Length exceeded or not reached), LS_ENOMEM. */
typedef struct ls_http_transport {
    /* The local address of the connection; valid until the release. */
    const struct ls_addr *(*local)(const ls_exchange *x);
    /* Optional (NULL): the TLS session of the connection; NULL: plain. Valid until the release. */
    const struct ls_filter *(*session)(const ls_exchange *x);
    /* Get the next body bytes: LS_DONE with *out, which the caller drops; length 0: the body is complete. Sends a due
     * 100 Continue first. */
    int (*read)(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *out);
    /* Queue a whole response: the head, then the slices as its body. Takes the references of the slices. The bytes of a
     * slice without a block are copied before the call returns, here and in write. Slices may be ranges of files
     * (port/shared_file.h): the system reads these, and a file that changes meanwhile ends the connection. */
    int (*respond)(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count);
    /* Queue one part of a response, before the first part also the head. Takes the references, on failure as well. The
     * transport does not collect small parts: the caller collects them in a block, as script/bind/res.c does.
     * LS_PENDING: the part is queued, but the queue is above the high-water mark. The transport calls x->wake when the
     * queue is sent. */
    int (*write)(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count);
    /* Send the queue now; LS_PENDING as for write. The response may be complete. */
    int (*flush)(ls_thread_ctx *ctx, ls_exchange *x);
    /* Write one part that many responses share, behind the head of this one. `chunk` is the part as a whole chunk of
     * the chunked coding (RFC 9112 section 7.1): "size CR LF data CR LF" without extensions. It has a block, of which
     * the queue takes a reference of its own. `now`: send it at once, if nothing is queued. LS_DONE: there is nothing
     * to flush; LS_PENDING: it is queued, also above the high-water mark (see `queued`), and the next flush sends it;
     * or an error. */
    int (*write_chunk)(ls_thread_ctx *ctx, ls_exchange *x, const ls_slice *chunk, bool now);
    /* Optional (NULL): prefetch what write_chunk reads beside *x, in step 0 and, when that has arrived, in step 1. */
    void (*prefetch)(const ls_exchange *x, unsigned step);
    size_t (*queued)(const ls_exchange *x);            /* bytes that the system has not accepted yet */
    int (*finish)(ls_thread_ctx *ctx, ls_exchange *x); /* the response has no more parts */
    /* The handler returns the exchange. The transport continues with the next request or closes the connection.
     * Without a complete response it closes the connection and sends nothing more. Pointers into the request become
     * invalid. */
    void (*release)(ls_thread_ctx *ctx, ls_exchange *x);
    /* The handler gives up the exchange: nothing more of the response is sent, further calls return LS_ECANCELED, and
     * the release closes the connection. */
    void (*abort)(ls_thread_ctx *ctx, ls_exchange *x);
    /* Take the connection over (RFC 9110 sections 7.8 and 9.3.6): queue the head of the response, which is 101 with
     * "Connection: upgrade" and "Upgrade: protocol", or for CONNECT x->status (2xx), with the fields of x; then hand
     * the connection, with the bytes received behind the request, to `handler` with `user_bytes` of room. The actor of
     * the stream is x->actor; a flush of earlier responses may be pending, of which the handler gets `sent`. The
     * exchange stays valid until its release, without a connection and without its TLS session: its response is
     * complete, x->status is the one that was sent, x->error is LS_ECLOSED. LS_OK; LS_EBUSY: a response has begun;
     * LS_EINVAL: the body was not read to its end, the request did not ask for this protocol (Connection and Upgrade),
     * or x->status of a CONNECT is not 2xx; LS_ENOTSUP: see no_upgrade; LS_ERESET and the like: it is lost; LS_ENOMEM.
     * On an error nothing has changed, except that after the last ones Upgrade is not in the fields any more. */
    int (*upgrade)(ls_thread_ctx *ctx, ls_exchange *x, const char *protocol, size_t protocol_len,
                   const ls_stream_handler *handler, size_t user_bytes, ls_upgraded *out);
    /* Optional (NULL): from now on the connection is lost when the client ends its direction, too, for a client that
     * does not do so while it reads the response. Without effect before the body is read. LS_OK, or the error: it is
     * lost. */
    int (*expect_end)(ls_thread_ctx *ctx, ls_exchange *x);
    const char *no_upgrade; /* if upgrade is ls_exchange_no_upgrade: the reason */
} ls_http_transport;

enum ls_response_phase {
    LS_RESPONSE_NONE, /* nothing is queued */
    LS_RESPONSE_OPEN, /* the head is queued, more parts may follow; or the response failed */
    LS_RESPONSE_DONE  /* complete */
};

struct ls_exchange {
    const ls_http_transport *transport;
    void *conn; /* the transport's connection */

    /* What each part of a response reads comes first: one cache line. A message for many clients touches all of
     * them. */
    enum ls_response_phase response;
    int error;          /* 0, or the LS_E* code that ended the exchange; LS_ECANCELED: aborted */
    int64_t length;     /* Content-Length of a body that is written in parts; -1: unknown */
    uint64_t body_sent; /* bytes of the body that the transport has accepted, without framing */

    ls_actor *actor; /* set by start */
    void *task;      /* the handler's data */
    /* The handler sets it before a call that may return LS_PENDING. It calls read again in it, or checks `error`. It is
     * also called when the connection is lost while the handler waits for something else. */
    void (*wake)(ls_thread_ctx *ctx, ls_exchange *x);
    uint64_t id;         /* unique in this process, for logs and req.id */
    const char *bytes;   /* the head, to which spans refer; valid until the release */
    ls_slice head_bytes; /* the reference to the block of `bytes` */
    const struct ls_addr *remote;
    bool secure; /* over TLS */

    /* the request body */
    uint64_t body_bytes_max; /* LS_EMSGSIZE above it; the handler may change it before the first read */
    uint64_t body_bytes;     /* returned by read so far */
    bool body_done;

    /* the response: set before respond or the first write */
    int status;       /* 100..999; default 200 */
    bool close;       /* close the connection after the response */
    bool has_type;    /* `fields` contains Content-Type */
    const char *type; /* Content-Type unless has_type; NULL: no field. Static text */
    ls_block *fields; /* extra header lines "Name: value\r\n"..., or NULL */
    uint32_t fields_len;

    ls_http_head head; /* last: it is large */
};

/* Add a header line to the response. `replace`: remove the lines of that name first. Returns LS_OK, or
 *     LS_EINVAL  `name` is not a token, or `value` contains CR, LF, NUL or another control character
 *     LS_ELIMIT  more than LS_BLOCK_LARGE bytes of fields
 *     LS_ENOMEM
 *     LS_EBUSY   the head is queued already
 *     LS_EACCES  the transport writes this field: Content-Length, Transfer-Encoding, Connection, Date, Keep-Alive,
 *                Trailer. "Connection: close" is allowed and sets x->close
 * Upgrade, which advertises protocols, also adds "Connection: upgrade" (RFC 9110 sections 7.8 and 15.5.22). */
int ls_exchange_header(ls_thread_ctx *ctx, ls_exchange *x, const char *name, size_t name_len, const char *value,
                       size_t value_len, bool replace);

/* Add lines "Name: value\r\n"... that are known to be valid and not to frame the message. Lines of the same names stay.
 * LS_OK, or LS_ELIMIT, LS_ENOMEM, LS_EBUSY as above. */
int ls_exchange_lines(ls_thread_ctx *ctx, ls_exchange *x, const char *lines, size_t len);

/* Remove the lines Upgrade and Connection: the transport writes those of a 101 itself. */
void ls_exchange_drop_upgrade(ls_exchange *x);

/* The response is replaced by another one, such as an error page: forget its status (200) and what describes its body
 * or how long it may be cached: Cache-Control, Content-Disposition, Content-Encoding, Content-Language,
 * Content-Location, Content-Range, Content-Type, ETag, Expires, Last-Modified and the Content-Length. The other lines
 * stay. */
void ls_exchange_drop_content(ls_exchange *x);

/* The value of the first line of that name in the extra fields, or NULL; case is ignored. *value_len receives its
 * length. Valid until the fields change. */
const char *ls_exchange_find(const ls_exchange *x, const char *name, size_t name_len, size_t *value_len);

/* Whether the extra fields contain a line of that name; case is ignored. */
bool ls_exchange_has_field(const ls_exchange *x, const char *name, size_t name_len);

/* Whether transport->upgrade has succeeded for this exchange. */
static inline bool ls_exchange_upgraded(const ls_exchange *x)
{
    return x->status == 101 || (x->head.method == LS_HTTP_CONNECT && x->response == LS_RESPONSE_DONE &&
                                x->error == LS_ECLOSED && x->status >= 200 && x->status <= 299);
}

/* transport->upgrade of a transport that cannot: LS_ENOTSUP. */
int ls_exchange_no_upgrade(ls_thread_ctx *ctx, ls_exchange *x, const char *protocol, size_t protocol_len,
                           const ls_stream_handler *handler, size_t user_bytes, ls_upgraded *out);

/* The data of a chunk as of transport->write_chunk, without a reference of its own. */
static inline ls_slice ls_exchange_chunk_data(const ls_slice *chunk)
{
    size_t at = 1;
    while (chunk->ptr[at++] != '\n') continue;
    return (ls_slice){chunk->block, chunk->ptr + at, chunk->len - at - 2};
}

/* A copy of the request without a connection, for a handler that goes on after the release: the head, the addresses and
 * the id. One allocation of the size that this head needs. Its response is complete, x->error is LS_ECLOSED; its body
 * is complete as well, and a read finds its end. Its addresses have only the room that they need: read them with the
 * functions of net/addr.h, and do not copy the struct. The release frees it. NULL: out of memory. */
ls_exchange *ls_exchange_keep(const ls_exchange *x);

#endif
