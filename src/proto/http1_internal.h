/* http1_internal.h - what the files of HTTP/1.1 share: http1_conn.c (a connection's life), http1_body.c (a request's body),
 * http1_write.c (what goes out).
 *
 *     FRESH --> HEAD --> HANDLING --> (ENDING) --> (SKIPPING) --> IDLE --> HEAD ...
 *                 \          \________________________________ SENDING (the queue is full, go on when it has left)
 *                  \_________________________________________  LAST (the same, then close)
 *
 * The owner of a connection is whoever runs its packet; in HANDLING the packets are pinned to the exchange's actor. There
 * a receive and a send may be pending at once, the send also from the exchange before, which had the same actor: so
 *
 *     HANDLING and something is pending  =>  stream.actor is the exchange's
 *
 * because a send that goes on with what was queued behind it is posted for stream.actor. Whoever sets that to NULL sends, and
 * begins no exchange before all has left. Behind HANDLING one operation at a time is: ENDING waits for the end of
 * a receive that somebody posted who has not waited for it (a job that reads the body of a request already answered). */
#ifndef LS_PROTO_HTTP1_INTERNAL_H
#define LS_PROTO_HTTP1_INTERNAL_H

#include "base/counter.h"
#include "base/list.h"
#include "base/thread.h"
#include "net/stream.h"
#include "proto/http1.h"
#include "proto/http1_chunk.h"
#include "proto/http_text.h"

/* Of a whole response borrowed bytes below this are copied beside the head, others are sent from where they lie. */
enum { LS_HTTP1_COPY_BYTES = 16384 };

/* The head of a 200 with one Content-Type up to the number of its Content-Length, as it is in this second. */
typedef struct ls_http1_ready {
    const char *type; /* by identity: types are static text */
    int64_t date_s;
    uint32_t len;
    char text[148];
} ls_http1_ready;

enum { LS_HTTP1_READY = 2 };

/* Counters and prepared text, one per thread context, so that no line is shared. */
typedef struct ls_http1_thread {
    _Alignas(64) ls_http1_ready ready[LS_HTTP1_READY];
    unsigned ready_next; /* to be replaced */
    int64_t date_s;
    char date_line[6 + LS_HTTP_DATE_BYTES + 2];
    uint64_t next_id;
    _Atomic uint64_t connections, requests, responses, refused;
} ls_http1_thread;

struct ls_http1 {
    ls_port *port;
    ls_conn_limit *conn_limit;
    const ls_http_handler *handler;
    ls_http_config config;
    ls_addr local;
    _Atomic bool draining, aborting;
    ls_mutex mutex; /* guards the list of connections */
    ls_node conns;
    _Atomic uint32_t open;
    unsigned thread_count;
    ls_http1_thread *threads;
};

enum ls_http1_phase {
    LS_H1_FRESH,
    LS_H1_IDLE,
    LS_H1_HEAD,
    LS_H1_HANDLING,
    LS_H1_ENDING,
    LS_H1_SKIPPING,
    LS_H1_SENDING,
    LS_H1_LAST
};

/* The exchange and what HTTP/1.1 adds to it; lives in one small pool block. */
typedef struct ls_http1_exchange {
    bool awaits_sent;  /* the handler is woken when the queue has left; arriving body bytes always wake it */
    bool ended;        /* ls_http_transport.end was called while the loop of the connection runs */
    int read_error;    /* why no more of the body comes, although the client can still be answered */
    bool continue_due; /* the client waits for 100 Continue */
    bool keep;         /* the connection outlives this exchange; decided with the head of the answer */
    bool chunked_out;
    bool no_body;          /* to HEAD, or none by its status: parts are dropped */
    uint64_t body_left;    /* of a Content-Length */
    uint64_t wait_from_ms; /* a body receive is pending since */
    uint64_t waited_ms;
    uint64_t send_at_ms; /* the deadline of the send that is pending, unless its progress has moved it */
    uint64_t skipped;    /* body bytes that the handler left */
    uint64_t part_bytes; /* written as parts so far */
    ls_chunks chunks;
    ls_addr remote;
    ls_exchange x; /* last: it is large */
} ls_http1_exchange;

_Static_assert(sizeof(ls_http1_exchange) <= LS_BLOCK_SMALL, "an exchange fits a small block");

typedef struct ls_http1_conn {
    ls_stream stream; /* first */
    ls_http1 *http;
    ls_node node;
    ls_block *exchange; /* holds an ls_http1_exchange; NULL between requests */
    ls_block *in;       /* received: in->data[in_from .. in_to) is not consumed yet; NULL: nothing */
    uint32_t in_from, in_to;
    uint32_t seen; /* of those, already given to the parser */
    uint32_t peer_scope;
    _Atomic uint8_t phase; /* the drain looks at it from outside */
    uint8_t peer_family;
    bool looping;   /* ls_http1_run is on the stack */
    bool last_look; /* a drain cancelled the wait once: one more chance for bytes on their way */
    bool linger;    /* close with a lingering end */
    uint16_t peer_port;
    unsigned char peer[16];
} ls_http1_conn;

static inline ls_http1_exchange *ls_http1_of(ls_exchange *x)
{
    return LS_CONTAINER(x, ls_http1_exchange, x);
}

static inline ls_http1_conn *ls_http1_conn_of(ls_exchange *x)
{
    return x->conn;
}

static inline ls_http1_exchange *ls_http1_exchange_of(const ls_http1_conn *c)
{
    return (ls_http1_exchange *)(void *)c->exchange->data;
}

static inline ls_http1_thread *ls_http1_thread_of(ls_http1 *http, const ls_thread_ctx *ctx)
{
    return &http->threads[ctx->index];
}

extern const ls_http_transport ls_http1_transport;

/* http1_conn.c */
void ls_http1_run(ls_thread_ctx *ctx, ls_http1_conn *c); /* no exchange: parse, handle, flush, receive */
/* A receive brought them: into c->in, or a block from the pool. */
void ls_http1_append_rx(ls_http1_conn *c, uint32_t bytes);

/* http1_body.c */
void ls_http1_body_begin(ls_http1_exchange *e);
int ls_http1_body_read(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *out);
void ls_http1_body_received(ls_exchange *x, int64_t result); /* a pending receive ended */
void ls_http1_body_waited(ls_exchange *x);                   /* of that, the clocks alone */
/* Of the receive that is or will be pending. After the first seconds a body must come at the least rate; only time spent waiting
 * for it counts. A send that is pending meanwhile has its own deadline, and the earlier one counts. */
void ls_http1_body_deadline(ls_http1_conn *c);
/* Of the send that is pending; UINT64_MAX: none is. */
uint64_t ls_http1_send_deadline(ls_http1_conn *c);
int ls_http1_body_take(ls_http1_conn *c, ls_slice *out); /* from what is there: LS_DONE, LS_EAGAIN, LS_E* */
int ls_http1_body_receive(ls_thread_ctx *ctx, ls_http1_conn *c);

/* http1_write.c */
int ls_http1_respond(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count);
int ls_http1_write(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count);
int ls_http1_flush(ls_thread_ctx *ctx, ls_exchange *x);
int ls_http1_finish(ls_thread_ctx *ctx, ls_exchange *x);
int ls_http1_wait_sent(ls_thread_ctx *ctx, ls_exchange *x);

/* Flush the stream, with the deadline for a slow reader. As ls_stream_flush. */
int ls_http1_send_out(ls_thread_ctx *ctx, ls_http1_conn *c);

/* A whole answer without a handler: a short text, Connection: close. LS_OK or an error. */
int ls_http1_send_error(ls_thread_ctx *ctx, ls_http1_conn *c, int status, const char *why);

#endif
