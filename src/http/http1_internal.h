/* http1_internal.h - shared by the files of HTTP/1.1: http1.c (the engine; connections open and close), http1_conn.c
 * (a connection from request to request), http1_body.c (the request body), http1_write.c (the response), http1_end.c
 * (exchanges that end in another way than with their response), http1_upgrade.c (the end of HTTP on a connection).
 *
 *     FRESH --> HEAD --> HANDLING --> (ENDING) --> (SKIPPING) --> IDLE --> HEAD ...
 *                 \          \________________________________ SENDING (the queue is full; continue when it is sent)
 *                  \_________________________________________  LAST (send the queue, then close)
 *
 * The thread that runs a packet of a connection owns the connection. In HANDLING the packets are pinned to the actor
 * of the exchange. A receive and a send may then be pending at the same time; the send may belong to the previous
 * exchange, which had the same actor. The invariant is
 *
 *     HANDLING and an operation is pending  =>  the stream's actor == exchange.actor
 *
 * because a send that continues with bytes queued after it is posted for the actor of the stream. Code that sets that
 * to NULL sends, and starts no exchange before the queue is sent. After HANDLING at most one operation is pending.
 * ENDING waits for a receive that was pending when the exchange ended (a job read the body of a request that had its
 * response already), or for the packet of the watch.
 *
 * A connection whose handler waits for something else, such as a timer, is watched (ls_stream_watch_begin). When it is
 * lost it frees its socket and its place among max_connections at once; the struct stays until the handler returns
 * the exchange (LS_H1_DETACHED). */
#ifndef LS_HTTP_HTTP1_INTERNAL_H
#define LS_HTTP_HTTP1_INTERNAL_H

#include "base/counter.h"
#include "base/list.h"
#include "base/os/thread.h"
#include "codec/http1/http1_chunk.h"
#include "codec/http1/http1_parse.h"
#include "codec/http_text.h"
#include "http/exchange_in.h"
#include "http/exchange_out.h"
#include "http/exchange_run.h"
#include "http/http1.h"
#include "http/record.h"
#include "net/stream/stream.h"

/* respond copies bytes without a block below this length after the head, into the same block. */
enum { LS_HTTP1_BESIDE_BYTES = 16384 };

/* The head of a 200 response with one Content-Type, up to the number of its Content-Length, valid in the second
 * date_s. */
typedef struct ls_http1_ready {
    const char *type; /* compared by address: types are static text */
    int64_t date_s;
    uint32_t len;
    char text[148];
} ls_http1_ready;

enum { LS_HTTP1_READY = 2 };

/* Counters and prepared text, one per thread context, so that threads share no cache line. Those of HTTP/2 count its
 * connections, streams that it refused, resets, and connections that it ended for the fault of the client. */
typedef struct ls_http_thread {
    _Alignas(64) ls_http1_ready ready[LS_HTTP1_READY];
    unsigned ready_next; /* the next one to replace */
    int64_t date_s;
    char date_line[6 + LS_HTTP_DATE_BYTES + 2];
    uint64_t next_id;
    _Atomic uint64_t connections, requests, responses, refused;
    _Atomic uint64_t http2_connections, http2_refused, http2_resets, http2_ended;
} ls_http_thread;

/* What serves the connections of HTTP/2: http2/h2.c, which is a later folder. */
typedef struct ls_http2_part ls_http2_part;
struct ls_http2_part {
    /* Take a connection, with the bytes it has received, whose reference moves. false: out of memory, and the
     * connection is still the caller's. */
    bool (*start)(ls_thread_ctx *ctx, ls_stream *s, ls_http2_part *part, ls_slice received);
    void (*cancel)(ls_http2_part *part, void (*how)(ls_stream *s)); /* of each connection; under server->mutex */
    void (*close)(ls_http2_part *part);
};

typedef struct ls_http_server {
    ls_http_engine engine;
    ls_stream_handler stream_handler; /* of its streams: leads from a connection to the engine */
    ls_conn_limit *conn_limit;
    _Atomic(const ls_http_handler *) handler; /* of requests from now on, see ls_http1_run */
    ls_http_config config;
    ls_addr local;        /* of the listener */
    ls_http2_part *http2; /* NULL: not built in */
    _Atomic bool draining, aborting;
    ls_mutex mutex; /* guards the lists of connections, also those of http2 */
    ls_node conns;
    _Atomic uint32_t open, http2_open; /* connections now; those of HTTP/2 among them */
    unsigned thread_count;
    ls_http_thread *threads;
} ls_http_server;

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

/* Bits of ls_http1_exchange.link; 0 for almost every exchange, so one test suffices when it ends. */
enum {
    LS_H1_WATCHED = 1,      /* `watch` is pending */
    LS_H1_LOST = 2,         /* the connection is lost: nothing can be sent */
    LS_H1_DETACHED = 4,     /* the socket of the lost connection is closed, or has moved; only the exchange is left */
    LS_H1_UPGRADED = 8,     /* it has moved to the stream of another protocol */
    LS_H1_EXPECTS_END = 16, /* a receive of the end of the stream is pending, see ls_http1_more */
    LS_H1_UNEXPECTS = 32,   /* that receive was cancelled: wake the handler when it has ended */
};

/* The exchange and its HTTP/1.1 state, in one pool block: a tiny one if the received bytes are few and the fields too, whose
 * table is shorter then. The text of the head has room after it. */
typedef struct ls_http1_exchange {
    bool awaits_sent;      /* wake the handler when the queue is sent; received body bytes always wake it */
    bool head_refused;     /* there was no memory for the head of the response: nothing of it is queued */
    bool ahead_is_last;    /* `ahead` ends the body */
    bool fast;             /* the last body receive filled its room: the next one gets a large block */
    uint8_t link;          /* LS_H1_WATCHED, ... */
    ls_http_terms terms;   /* of the request */
    int read_error;        /* the body cannot be read on, but the response can still be sent */
    uint64_t body_left;    /* remaining bytes of a body with Content-Length */
    uint64_t wait_from_ms; /* start of the pending body receive */
    uint64_t waited_ms;    /* total time of body receives */
    uint32_t room;         /* of the last body receive */
    ls_slice ahead;        /* body bytes that were taken before the handler has asked for them, see ls_http1_more */
    uint64_t skipped;      /* body bytes that the handler did not read */
    size_t begin_at;       /* position in the queue of the stream at which this response begins */
    ls_chunks chunks;
    ls_addr remote, local;
    ls_stream_watch watch;
    ls_exchange x; /* last: its table of fields may be shorter */
} ls_http1_exchange;

_Static_assert(sizeof(ls_http1_exchange) <= LS_BLOCK_SMALL, "an exchange fits into a small block");
enum {
    LS_HTTP1_TINY_HEAD_BYTES = 400,
    LS_HTTP1_TINY_FIELDS =
        (LS_BLOCK_TINY - LS_HTTP1_TINY_HEAD_BYTES - offsetof(ls_http1_exchange, x.head.fields)) / sizeof(ls_http_field)
};

typedef struct ls_http1_conn { /* the user data of a stream */
    ls_node node;
    /* Contains an ls_http1_exchange. NULL between requests; in SENDING and LAST, unless it is recorded: until its response
     * is sent. */
    ls_block *exchange;
    /* Receive block: in->data[in->from .. in->to) is unconsumed, and the parser has seen the first in->seen bytes of
     * that; NULL: no bytes. */
    ls_block *in;
    _Atomic uint8_t phase; /* another thread reads it in a drain */
    bool last_look : 1;    /* a drain cancelled the receive once; the next one still takes bytes that are in transit */
    bool linger : 1;       /* close with ls_stream_linger */
    bool lingers : 1;      /* and is in the list until it is closed: an abort ends it */
    bool pipelined : 1;    /* other responses were queued when the last request began, or it has early hints */
    bool began : 1;        /* a request was received */
    _Atomic uint8_t holders; /* the stream; of a detached connection also the exchange */
    uint32_t head_ms;        /* coarse time of the first bytes of the head, in HEAD */
} ls_http1_conn;

_Static_assert(sizeof(ls_http1_conn) <= 40, "an idle connection is small");

typedef struct ls_http1_lease { /* follows the connection, if the listener limits requests or time of connections */
    uint64_t ends_ms;
    uint32_t requests;
} ls_http1_lease;

static inline ls_stream *ls_http1_stream(ls_http1_conn *c)
{
    return ls_stream_of(c);
}

static inline ls_http_server *ls_http1_engine(const ls_http1_conn *c)
{
    const ls_stream_handler *handler = ls_stream_handled_by(ls_stream_of((void *)(uintptr_t)c));
    return LS_CONTAINER((uintptr_t)handler, ls_http_server, stream_handler);
}

static inline uint32_t ls_http1_unparsed(const ls_http1_conn *c) /* bytes */
{
    return c->in == NULL ? 0 : c->in->to - c->in->from;
}

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

static inline void ls_http1_set_phase(ls_http1_conn *c, enum ls_http1_phase phase)
{
    atomic_store_explicit(&c->phase, (uint8_t)phase, memory_order_relaxed);
}

static inline void ls_http1_drop_received(ls_http1_conn *c)
{
    if (c->in != NULL) ls_block_drop(c->in);
    c->in = NULL;
}

static inline void ls_http1_drop_exchange(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    ls_exchange *x = &ls_http1_exchange_of(c)->x;
    ls_exchange_end(ctx, x);
    ls_slice_drop(&x->head_bytes);
    ls_slice_drop(&ls_http1_exchange_of(c)->ahead);
    ls_block_drop(c->exchange);
    c->exchange = NULL;
}

static inline ls_http_thread *ls_http_thread_of(ls_http_server *http, const ls_thread_ctx *ctx)
{
    return &http->threads[ctx->index];
}

/* http1.c */
/* It has no exchange, or one that is recorded now: see below. */
void ls_http1_conn_close(ls_thread_ctx *ctx, ls_http1_conn *c);
void ls_http1_conn_lost(ls_thread_ctx *ctx, ls_http1_conn *c, int err); /* the same; err LS_OK: nothing is lost */
bool ls_http1_is_last(ls_http1_conn *c);                                /* counts the request: its response closes */
void ls_http1_conn_unlist(ls_http1_conn *c);                            /* a drain or an abort no longer finds it */
void ls_http1_conn_drop(ls_http1_conn *c);                              /* one of its holders; the last one frees it */
void ls_http1_closed(ls_thread_ctx *ctx, ls_stream *s);                 /* ls_stream_handler.closed */
void ls_http1_send_last(ls_thread_ctx *ctx, ls_http1_conn *c);          /* send the queue, then close */
/* Send an error response, then close: the bytes of the client are invalid or too slow, or memory is exhausted. */
void ls_http1_end_with_error(ls_thread_ctx *ctx, ls_http1_conn *c, int status, const char *why);
/* After a send that failed with `err`: respond with 503 if a file had changed before a byte was sent,
 * and nothing else was queued. */
bool ls_http1_end_changed(ls_thread_ctx *ctx, ls_http1_conn *c, int err);

/* The listener accepts HTTP/2, and the connection begins with its preface, or with what is of neither version. */
bool ls_http1_is_http2(const ls_http1_conn *c);
void ls_http1_leave(ls_thread_ctx *ctx, ls_http1_conn *c); /* HTTP/2 serves it from now on */

/* http1_conn.c */
extern const ls_stream_handler ls_http1_stream_handler;
/* Without an exchange: parse, handle, flush, receive; the last step of a packet. `handler`: that of the actor the
 * thread is inside, if any. */
void ls_http1_run(ls_thread_ctx *ctx, ls_http1_conn *c, const ls_http_handler *handler);
/* Account for `bytes` that a receive stored in c->in, or that the stream supplies if c->in is NULL. */
void ls_http1_append_rx(ls_http1_conn *c, uint32_t bytes);
/* The handler has released the exchange: end it, then run the next request. */
void ls_http1_end_exchange(ls_thread_ctx *ctx, ls_http1_conn *c);

/* http1_end.c */
typedef enum ls_http1_outcome {
    LS_H1_AGAIN,   /* the next request may run */
    LS_H1_RELEASED /* the connection is closing, or another thread may own it */
} ls_http1_outcome;

/* Read a body that the handler did not read to its end, to find the next request. */
ls_http1_outcome ls_http1_skip_body(ls_thread_ctx *ctx, ls_http1_conn *c);
/* The handler has released an exchange whose response is not complete: nothing more of it is sent. */
void ls_http1_end_incomplete(ls_thread_ctx *ctx, ls_http1_conn *c);
/* The handler has released the exchange. true: no packet of it follows. Else the connection is released: it is closed
 * already, or such a packet calls ls_http1_end_exchange again. */
bool ls_http1_is_complete(ls_thread_ctx *ctx, ls_http1_conn *c, ls_http1_exchange *e);
/* Learn of the loss of the connection while the handler waits for something else. */
void ls_http1_watch(ls_thread_ctx *ctx, ls_http1_conn *c, ls_http1_exchange *e);
/* The watch is not pending any more. false: its packet follows. */
bool ls_http1_end_watch(ls_http1_conn *c, ls_http1_exchange *e);
/* The connection is lost while the handler waits: close the socket now, and wake the handler. It keeps the exchange;
 * its calls return x->error. An operation that is pending ends first, with an error. The connection may be closed
 * afterwards. */
void ls_http1_detach(ls_thread_ctx *ctx, ls_http1_conn *c, ls_http1_exchange *e);

/* http1_body.c */
void ls_http1_body_begin(ls_http1_exchange *e);
int ls_http1_more(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *out);
void ls_http1_body_received(ls_thread_ctx *ctx, ls_exchange *x, int64_t result); /* a body receive completed */
void ls_http1_body_waited(ls_exchange *x); /* the same, but only the time is accounted for */
int ls_http1_body_take(ls_thread_ctx *ctx, ls_http1_conn *c,
                       ls_slice *out); /* from received bytes: LS_DONE, LS_EAGAIN, LS_E* */
int ls_http1_body_receive(ls_thread_ctx *ctx, ls_http1_conn *c);
int ls_http1_expected(ls_http1_conn *c, int64_t result); /* that receive completed: LS_OK, or it is lost: the error */

/* http1_write.c */
int ls_http1_head(ls_thread_ctx *ctx, ls_exchange *x, int64_t length, ls_slice *slices, unsigned count);
int ls_http1_data(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count, unsigned how);
int ls_http1_flush(ls_thread_ctx *ctx, ls_exchange *x);

/* Queue the head of a response that ends HTTP on the connection: 101 with this protocol, or without one (length 0) a
 * 2xx. LS_OK or LS_ENOMEM: then part of it may be queued. */
int ls_http1_put_upgrade(ls_thread_ctx *ctx, ls_exchange *x, int status, const char *protocol, size_t protocol_len);

/* Flush the stream. Results as for ls_stream_flush. */
int ls_http1_send_out(ls_thread_ctx *ctx, ls_http1_conn *c);

/* Queue a whole response without a handler: a short text of so many bytes, Connection: close. These bytes, or an error. */
int ls_http1_send_error(ls_thread_ctx *ctx, ls_http1_conn *c, int status, const char *why);
size_t ls_http1_error_bytes(int status, const char *why);

const char *ls_http_date_now(ls_http_thread *thread); /* LS_HTTP_DATE_BYTES */

/* http1_upgrade.c */
int ls_http1_unexpect_end(ls_thread_ctx *ctx, ls_exchange *x);
int ls_http1_upgrade(ls_thread_ctx *ctx, ls_exchange *x, const char *protocol, size_t protocol_len,
                     const ls_stream_handler *handler, size_t user_bytes, ls_upgraded *out);

#endif
