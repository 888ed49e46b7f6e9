/* exchange.h - one HTTP request and its answer, whatever carries it (HTTP/1, an injected request, HTTP/2 later).
 *
 * The transport makes an exchange when a head is complete and hands it to the handler (the script layer). The exchange
 * lives in one pool block. Until ls_exchange_end() the handler owns it; all calls come from inside x->actor, the actor
 * that the handler chose in `start`. Operations of the transport are pinned to that actor meanwhile.
 *
 *   start --> [body reads] --> respond(all) --------------------> end
 *                         \--> write(part)* -> finish() ---------/
 */
#ifndef LS_PROTO_EXCHANGE_H
#define LS_PROTO_EXCHANGE_H

#include "base/buf.h"
#include "port/port.h"
#include "proto/http1_parse.h"

typedef struct ls_exchange ls_exchange;
typedef struct ls_http_handler ls_http_handler;

/* What the handler must supply, one per listener. */
struct ls_http_handler {
    /* A request is there. Choose an actor, enter it if the thread is not inside one already (thread context->inside: then that
     * one must be used), set x->actor, and run. Returns after the handler answered, or suspended; the transport leaves the
     * actor (ls_actor_leave) when it has done what it wants to do inside, if `start` entered one. */
    void (*start)(const ls_http_handler *handler, ls_thread_ctx *ctx, ls_exchange *x);
};

/* What a transport supplies. Results: LS_DONE, LS_PENDING (x->wake comes), or a negative code: the client is gone
 * (LS_ERESET, LS_EPIPE, LS_ECLOSED, LS_ETIMEDOUT), LS_EPROTO (bad body), LS_EMSGSIZE (body limit), LS_ENOMEM. */
typedef struct ls_http_transport {
    /* The next run of body bytes: LS_DONE with *out (len 0: the body is complete), the slice is the caller's to drop.
     * Sends 100 Continue first when it is due. */
    int (*read)(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *out);
    /* The whole answer: head, then the body slices. Takes the references of the slices. */
    int (*respond)(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count);
    /* Send one part of a response, and the head before the first part. Takes the references, on failure as well. Nothing is
     * copied and nothing is collected: the caller collects small parts in a block (as script/bind_res.c does). The bytes of a
     * slice without a block must stay until wait_sent returns something other than LS_PENDING. LS_PENDING: the part is taken, but
     * more than the high-water mark is queued, or bytes without a block are; x->wake comes when the queue has left. */
    int (*write)(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count);
    /* Or NULL. All of a body of x->length bytes, which the system itself takes from the begin of `file`; the head may have been
     * written before. LS_PENDING: x->wake comes. The file stays the caller's, who may close it once this has returned. LS_ENOTSUP:
     * it takes none, nothing was done. */
    int (*write_file)(ls_thread_ctx *ctx, ls_exchange *x, ls_fd file);
    int (*flush)(ls_thread_ctx *ctx, ls_exchange *x);  /* send what is queued now; LS_PENDING as with write */
    int (*finish)(ls_thread_ctx *ctx, ls_exchange *x); /* no more parts */
    /* The handler is done with it: the transport goes on to the next request, closes, or, when nothing was answered,
     * closes without an answer. Pointers into the request die here. */
    void (*release)(ls_thread_ctx *ctx, ls_exchange *x);
    /* Wait until everything queued has left (bytes that the handler keeps alive may go then): LS_DONE or LS_PENDING. */
    int (*wait_sent)(ls_thread_ctx *ctx, ls_exchange *x);
} ls_http_transport;

enum ls_response_phase {
    LS_RESPONSE_NONE,
    LS_RESPONSE_OPEN,
    LS_RESPONSE_DONE
}; /* nothing sent; parts are going out; complete */

struct ls_exchange {
    const ls_http_transport *transport;
    void *conn;      /* the transport's: its connection */
    ls_actor *actor; /* set by start */
    void *task;      /* the handler's */
    void (*wake)(ls_thread_ctx *ctx,
                 ls_exchange *x); /* set by the handler before a call that may return LS_PENDING; the
                                  * caller then calls again (read) or looks at `gone` */
    uint64_t id;                  /* unique in this process, for logs and req.id */
    const char *bytes;            /* of the head; spans point here. Valid until `end` */
    ls_slice head_bytes;          /* holds them */
    const struct ls_addr *remote, *local;
    bool secure; /* over TLS */

    /* the body */
    uint64_t body_bytes_max; /* LS_EMSGSIZE past it; the handler may change it before the first read */
    uint64_t body_bytes;     /* handed out so far */
    bool body_done;

    /* the answer: set before respond or the first write */
    int status; /* 100..999; default 200 */
    enum ls_response_phase response;
    bool close;       /* close the connection after the answer */
    bool has_type;    /* a Content-Type is among the extra fields */
    const char *type; /* Content-Type when has_type is not set; NULL: none. Static text */
    ls_block *fields; /* extra header lines "Name: value\r\n"..., or NULL */
    uint32_t fields_len;
    int64_t length; /* of a body announced but written in parts; -1: not known */
    int error;      /* 0, or why the client can no longer be reached */

    ls_http_head head; /* last: it is large */
};

/* Add a header line to the answer. LS_OK; LS_EINVAL when name is no token or value holds CR, LF, NUL or another control
 * character; LS_ELIMIT past LS_BLOCK_LARGE bytes of fields; LS_ENOMEM; LS_EBUSY when the head has left; LS_EACCES for a
 * field that framing owns (Content-Length, Transfer-Encoding, Connection (but "close" sets x->close), Date, Keep-Alive,
 * Trailer, Upgrade). `replace`: lines of that name go first. */
int ls_exchange_header(ls_thread_ctx *ctx, ls_exchange *x, const char *name, size_t name_len, const char *value,
                       size_t value_len, bool replace);

/* Whether a line of that name, in any case, is among the extra fields. */
bool ls_exchange_has_field(const ls_exchange *x, const char *name, size_t name_len);

#endif
