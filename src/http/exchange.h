/* exchange.h - one HTTP request and its response, for every transport (HTTP/1.1, http.sys, an injected request).
 *
 * The transport creates an exchange when a request head is complete and passes it to the handler (the script layer).
 * The exchange lives in one pool block. The handler owns it from `start` until it calls ls_exchange_release. The
 * handler makes all calls from inside x->actor, the actor that it chose in `start`. Until the release, the operations
 * of the transport are pinned to that actor. It reads the body with exchange_in.h and responds with exchange_out.h;
 * the transport starts and wakes it with exchange_run.h.
 */
#ifndef LS_HTTP_EXCHANGE_H
#define LS_HTTP_EXCHANGE_H

#include "base/buf.h"
#include "codec/http_head.h"
#include "codec/http_text.h"
#include "net/listener.h"
#include "net/stream/stream.h"
#include "port/port.h"

struct ls_tls_peer; /* net/tls/tls.h */
struct ls_recorder; /* http/record.h, as the next one */
struct ls_route;
struct ls_record_sink;

typedef struct ls_exchange ls_exchange;
typedef struct ls_http_handler ls_http_handler;

/* The handler of a listener. */
struct ls_http_handler {
    /* Handle the request `x`: choose an actor, enter it, set x->actor, and run. If x->actor is set already, the thread
     * is inside that actor: use it. Returns after the handler responded or suspended; ls_exchange_leave leaves the
     * actor. It may respond and release the exchange without an actor. If no actor is free, `start` only sets
     * x->actor, and is called again from inside it. */
    void (*start)(const ls_http_handler *handler, ls_thread_ctx *ctx, ls_exchange *x);
    bool tunnels;                       /* it may upgrade connections to WebSocket */
    const struct ls_recorder *recorder; /* NULL: no sink gets the records of its requests */
};

/* A connection that was taken over from HTTP. */
typedef struct ls_upgraded {
    ls_stream *stream;    /* nothing is received; the response head is queued, not flushed */
    ls_conn_limit *limit; /* the connection keeps its place: ls_conn_limit_leave when it is closed. NULL: none */
} ls_upgraded;

enum ls_framed { /* of the body of a response: see exchange_out.h */
                 LS_FRAMED_NOT,
                 LS_FRAMED_BY_LENGTH,
                 LS_FRAMED_BY_PARTS,
                 LS_FRAMED_BY_CLOSE
};

enum {                     /* bits of `how` */
       LS_DATA_LAST = 1,   /* the end of LS_FRAMED_BY_PARTS; the slice, if any, are the lines of the trailers */
       LS_DATA_SHARED = 2, /* one part that other responses have too: see ls_shared_part_frame */
       LS_DATA_NOW = 4,    /* with LS_DATA_SHARED: send it at once, if nothing is queued */
       LS_DATA_HINTS = 8 /* before the head: the slice are the lines of a response 103. LS_ENOMEM: nothing is queued */
};

/* A transport turns bytes into exchanges and exchanges into bytes, and decides nothing about HTTP: it is called by
 * exchange_out.c and exchange_in.c, which say what they have decided. Results: LS_DONE; LS_PENDING: the transport
 * calls ls_exchange_wake later; or a negative code: LS_ERESET, LS_EPIPE, LS_ECLOSED, LS_ETIMEDOUT (the connection to
 * the client is lost), LS_EPROTO (invalid body), LS_ENOMEM. Slices: their references are taken, on failure as well. */
typedef struct ls_transport {
    /* Queue the head: x->status, x->type, the fields of x, and what x->framing says; of LS_FRAMED_BY_LENGTH, `length`.
     * The slices are the start of the body, often all of it. LS_PENDING, of a filter: it has the whole body, and
     * finishes the response later. */
    int (*head)(ls_thread_ctx *ctx, ls_exchange *x, int64_t length, ls_slice *slices, unsigned count);
    /* Queue a part, framed. With LS_DATA_SHARED, LS_DONE means that all of it was sent, LS_PENDING that it is
     * queued. */
    int (*data)(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count, unsigned how);
    /* Send the queue. LS_PENDING while it is above the high-water mark. If x->error is set, the exchange was aborted:
     * drop of the queue what need not be sent. */
    int (*flush)(ls_thread_ctx *ctx, ls_exchange *x);
    /* Get the next body bytes: *out, or set x->body_done. Sends the due 100 Continue first (x->continue_due). `out` is
     * NULL: from now on the connection is lost when the client ends its direction, too. Without effect if the body has
     * not arrived; what the handler has not read of it is kept. */
    int (*more)(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *out);
    /* The handler has returned. If x->released, the exchange is over: continue with the next request or close the
     * connection; without a complete response close it and send nothing more. Else the handler waits: send what is
     * queued. */
    void (*returned)(ls_thread_ctx *ctx, ls_exchange *x);
    /* See ls_exchange_upgrade, which has checked what is no matter of the transport. NULL: see no_upgrade. */
    int (*upgrade)(ls_thread_ctx *ctx, ls_exchange *x, const char *protocol, size_t protocol_len,
                   const ls_stream_handler *handler, size_t user_bytes, ls_upgraded *out);
    /* See ls_exchange_unexpect_end. NULL: there is nothing to wait for. */
    int (*unexpect_end)(ls_thread_ctx *ctx, ls_exchange *x);
    /* The local address of the connection; valid until the release. */
    const struct ls_addr *(*local)(const ls_exchange *x);
    /* What TLS has negotiated, in *room or elsewhere, valid until the release; NULL: no TLS, or not known any more.
     * The function itself may be NULL: never. */
    const struct ls_tls_peer *(*peer)(const ls_exchange *x, struct ls_tls_peer *room);
    const char *no_upgrade; /* if upgrade is NULL: the reason */
    bool hints;             /* it can send a 103 before the response: LS_DATA_HINTS */
} ls_transport;

/* A filter changes a response on its way to the client: a link before x->transport, which the exchange calls in its
 * place. It decides when the head is queued, and calls `next`. An exchange without filters pays nothing. */
typedef struct ls_response_filter ls_response_filter;
struct ls_response_filter {
    ls_transport ops;                         /* those of `next`, but for what the filter does itself */
    const ls_transport *next;                 /* the ops of the filter `below`, or the transport */
    ls_response_filter *below;                /* NULL: none */
    void (*drop)(ls_response_filter *filter); /* when the exchange ends */
    bool changes;                             /* it sends `bytes` in place of those of the body that it gets */
    uint64_t bytes;
};

enum ls_response_phase {
    LS_RESPONSE_NONE, /* nothing is queued */
    LS_RESPONSE_OPEN, /* the head is queued, more parts may follow; or the response failed */
    LS_RESPONSE_DONE  /* complete */
};

struct ls_exchange {
    /* What each part of a response reads comes first: one cache line. A message for many clients touches all of
     * them. */
    const ls_transport *transport;
    void *conn;            /* the transport's connection */
    ls_stream *stream;     /* whose queue has the response; NULL: that of the transport, which has `queued` bytes */
    _Atomic size_t queued; /* the thread of the connection may take some while the handler adds others */
    int error;             /* 0, or the LS_E* code that ended the exchange; LS_ECANCELED: aborted */
    uint8_t response;      /* enum ls_response_phase */
    uint8_t framing;       /* enum ls_framed, set with the head */
    uint8_t open_framing;  /* that of an unknown length: set by the transport */
    bool no_body;          /* set with the head: the response has no body, or none that is sent */
    bool running;          /* the handler is on the stack: its transport finds a release when it has returned */
    bool released;         /* by the handler */
    int64_t length;        /* Content-Length of a body that is written in parts; -1: unknown */
    uint64_t written;      /* bytes of the body in all parts so far, also of one that is not sent */

    const ls_http_handler *handler; /* set by the transport */
    ls_actor *actor;                /* set by start; by the transport, if the thread is inside one already */
    void *task;                     /* the handler's data */
    /* The handler sets it before a call that may return LS_PENDING. It calls read again in it, or checks `error`. It
     * is also called when the connection is lost while the handler waits for something else. */
    void (*wake)(ls_thread_ctx *ctx, ls_exchange *x);
    uint64_t id;         /* unique, also over processes: counted from a random begin. For logs and req.id */
    const char *bytes;   /* the head, to which spans refer; valid until the release */
    ls_slice head_bytes; /* the reference to the block of `bytes` */
    const struct ls_addr *remote;
    bool secure; /* over TLS */

    /* the request body */
    uint64_t body_bytes_max; /* LS_EMSGSIZE above it; the handler may change it before the first read */
    uint64_t body_bytes;     /* returned by ls_exchange_read so far */
    bool body_done;
    bool continue_due;         /* the client waits for 100 Continue, or for a response */
    uint64_t unread_bytes_max; /* with a longer rest of the body the connection is not kept; set by the transport */

    /* the response: set before respond or the first write */
    int status; /* 100..999; default 200 */
    bool close; /* close the connection after the response; set by the transport if the client does not keep it. Later
                    * also when the connection cannot be kept: see exchange_out.h. Without effect where a connection
                    * carries several exchanges: an unread body ends with its stream */
    bool has_type;        /* `fields` contains Content-Type */
    bool has_date;        /* `fields` contains the Date of an upstream server */
    bool may_have_server; /* false: `fields` contains no Server */
    const char *type;     /* Content-Type unless has_type; NULL: no field. Static text */
    ls_block *fields;     /* extra header lines "Name: value\r\n"..., or NULL: see ls_exchange_next_field */
    uint32_t fields_len;
    /* What few exchanges have, side by side: it costs the others least. */
    ls_block *trailers;   /* of the request, as received, data[0..to): see ls_trailers_add. NULL: none */
    ls_block *end_fields; /* trailers of the response, lines in data[0..to), or NULL: see ls_exchange_trailer */
    const struct ls_recorder *recorder; /* that of the handler; NULL: the next six are not set (http/record.h) */
    uint64_t began_ns, first_ns; /* first_ns 1: as the end */
    const struct ls_route *route;
    struct ls_record_sink *access_log; /* in place of that of the listener; NULL: that one */
    ls_block *record_more;             /* contains an ls_record_more */
    bool refused;                      /* it gets no handler */
    uint32_t id_field; /* 1 + the number of the field of the request whose value names it in logs; 0: `id` does */
    ls_response_filter *filter; /* the first one of the response; NULL: none */

    ls_op op;          /* starts the exchange when no actor was free */
    ls_http_head head; /* last: an exchange may have memory only for the fields that the head has */
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

/* The fields of early hints: see ls_exchange_hints. */
enum { LS_HINTS_BYTES_MAX = 4096 };
typedef struct ls_hints {
    size_t len;
    char lines[LS_HINTS_BYTES_MAX]; /* "Name: value\r\n"... */
} ls_hints;

/* Add a field. LS_OK; LS_EINVAL or LS_EACCES, as above; LS_ELIMIT: there is no room. */
int ls_hints_add(ls_hints *hints, const char *name, size_t name_len, const char *value, size_t value_len);

/* Add a trailer, a field after the body (RFC 9110 section 6.5). It is sent with LS_FRAMED_BY_PARTS; where the response
 * has another framing or no body, trailers are dropped. Those that are added before the head are announced in it, by
 * the field Trailer. LS_OK, or
 *     LS_EINVAL  as above
 *     LS_EACCES  a field of that name cannot be a trailer: ls_http_is_trailer
 *     LS_ELIMIT  more than LS_TRAILER_BYTES_MAX bytes of lines
 *     LS_ENOMEM
 *     LS_EBUSY   the response is complete
 *     x->error   the response cannot be sent */
enum { LS_TRAILER_BYTES_MAX = LS_BLOCK_SMALL };
int ls_exchange_trailer(ls_thread_ctx *ctx, ls_exchange *x, const char *name, size_t name_len, const char *value,
                        size_t value_len);

/* Add the field Trailer with the names of the trailers; without room for it it is left out. */
void ls_exchange_announce_trailers(ls_thread_ctx *ctx, ls_exchange *x);

static inline void ls_exchange_drop_trailers(ls_exchange *x)
{
    if (x->end_fields != NULL) ls_block_drop(x->end_fields);
    x->end_fields = NULL;
}

/* Remove the lines of that name; a Content-Length that was set does not apply any more. */
void ls_exchange_remove(ls_exchange *x, const char *name, size_t name_len);

/* Add lines "Name: value\r\n"... that are known to be valid and not to frame the message. Lines of the same names
 * stay. For Content-Type, Date and Server the caller sets has_type, has_date and may_have_server. LS_OK, or LS_ELIMIT,
 * LS_ENOMEM, LS_EBUSY as above. */
int ls_exchange_lines(ls_thread_ctx *ctx, ls_exchange *x, const char *lines, size_t len);

/* Remove the lines Upgrade and Connection: the transport writes those of a 101 itself. */
void ls_exchange_drop_upgrade(ls_exchange *x);

/* The response is replaced by another one, such as an error page: drop its status (200) and what describes its body
 * or how long it may be cached: Cache-Control, Content-Disposition, Content-Encoding, Content-Language,
 * Content-Location, Content-Range, Content-Type, ETag, Expires, Last-Modified, Location, the Content-Length and the
 * trailers. The other lines stay. */
void ls_exchange_drop_content(ls_exchange *x);

/* The value of the first line of that name in the extra fields, or NULL; case is ignored. *value_len receives its
 * length. Valid until the fields change. */
const char *ls_exchange_find(const ls_exchange *x, const char *name, size_t name_len, size_t *value_len);

/* Whether the extra fields contain a line of that name; case is ignored. */
bool ls_exchange_has_field(const ls_exchange *x, const char *name, size_t name_len);

/* Whether ls_exchange_upgrade has succeeded for this exchange. */
static inline bool ls_exchange_upgraded(const ls_exchange *x)
{
    return x->status == 101 || (x->head.method == LS_HTTP_CONNECT && x->response == LS_RESPONSE_DONE &&
                                x->error == LS_ECLOSED && x->status >= 200 && x->status <= 299);
}

/* Whether the response is complete, and nothing of it is lost. */
static inline bool ls_exchange_is_complete(const ls_exchange *x)
{
    return x->response == LS_RESPONSE_DONE && x->error == 0;
}

/* Get the next extra field, which is valid until the fields change. *at is 0 at first; false: no more fields. */
bool ls_exchange_next_field(const ls_exchange *x, size_t *at, ls_pair *out);
/* The same for the trailers of the response. */
bool ls_exchange_next_end_field(const ls_exchange *x, size_t *at, ls_pair *out);

/* Put a filter before those of the response. It has `drop`, and sets what it does itself in `ops` afterwards. */
void ls_exchange_add_filter(ls_exchange *x, ls_response_filter *filter);
void ls_exchange_drop_filters(ls_exchange *x);

/* The filter with that function, or NULL. */
static inline ls_response_filter *ls_exchange_filter(const ls_exchange *x, void (*drop)(ls_response_filter *filter))
{
    ls_response_filter *filter = x->filter;
    while (filter != NULL && filter->drop != drop) filter = filter->below;
    return filter;
}

/* The transport after all filters. */
static inline const ls_transport *ls_exchange_transport(const ls_exchange *x)
{
    const ls_transport *transport = x->transport;
    for (const ls_response_filter *filter = x->filter; filter != NULL; filter = filter->below)
        transport = filter->next;
    return transport;
}

/* Drop the blocks of fields and trailers, and the filters, when the exchange ends. */
static inline void ls_exchange_drop_fields(ls_exchange *x)
{
    /* One branch for most exchanges. */
    if (((uintptr_t)x->fields | (uintptr_t)x->trailers | (uintptr_t)x->end_fields | (uintptr_t)x->filter) == 0) return;
    if (x->fields != NULL) ls_block_drop(x->fields);
    if (x->trailers != NULL) ls_block_drop(x->trailers);
    if (x->end_fields != NULL) ls_block_drop(x->end_fields);
    if (x->filter != NULL) ls_exchange_drop_filters(x);
}

/* A copy of the request without a connection, for a handler that continues after the release: the head, the addresses
 * and the id. One allocation of the size that this head needs. Its response is complete, x->error is LS_ECLOSED; its
 * body is complete as well, and a read finds its end. Its addresses have only the room that they need: read them with
 * the functions of net/sock/addr.h, and do not copy the struct. The release frees it. NULL: out of memory. */
ls_exchange *ls_exchange_keep(const ls_exchange *x);

#endif
