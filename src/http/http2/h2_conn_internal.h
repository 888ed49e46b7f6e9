/* h2_conn_internal.h - shared by the files of HTTP/2: h2.c (the engine; connections open and close), h2_conn.c (a
 * connection: frames in and out, its ticks, its end), h2_request.c (from the first frame of a request to its handler),
 * h2_exchange.c (the transport: what a handler asks for), h2_output.c (what the connection makes of it), h2_limits.c
 * (clients that only cost).
 *
 *     socket --> received --> nghttp2 --> a request: e->start, later -------> the handler, in a Lua state
 *                                                                               | head, data, more, returned
 *     socket <-- one flush <-- nghttp2 <-- ls_h2_pump, later <-- c->ready <-----/
 *
 * Threads. A connection is an actor: its stream is pinned to c->actor, and whatever touches c->session runs inside it.
 * A handler runs inside the actor of its Lua state. The two meet in a few fields of the exchange ("shared"), under
 * c->lock, which is held for some instructions and never while anything is called that could wait. Neither enters the
 * actor of the other:
 *
 *     handler -> connection   the exchange goes to the list c->ready, at most once at a time, and c->pump is run later
 *                             (ls_workers_later): after the requests of the same read, so that their responses leave
 *                             in one send
 *     connection -> handler   e->wake, at most one at a time, is run later in x->actor
 *
 * Lifetime. The handler owns an exchange from its start to the release. Only the connection frees it: after the
 * release, when nghttp2 has closed its stream, and no wake is on its way. A connection whose stream is closed stays
 * until its last exchange is freed. Then it goes to the engine's list of unused ones, and its memory is freed only with
 * the engine: a thread may still look at its actor (ls_actor_post reads `held` after it has pushed an op). For the same
 * reason the actor, and the flags of the ops that are on their way, are not reset when a connection is used again.
 *
 * Memory. What nghttp2 allocates for a connection, 27 kB at least, is in c->memory. An idle connection needs 3 kB
 * of it: it is packed when a receive ends by LS_H2_IDLE_MS, and unpacked by the next packet of c->actor. */
#ifndef LS_HTTP_HTTP2_H2_CONN_INTERNAL_H
#define LS_HTTP_HTTP2_H2_CONN_INTERNAL_H

#include <nghttp2/nghttp2.h>

#include "base/os/arena.h"
#include "base/slices.h"
#include "codec/http2/h2_head.h"
#include "http/http1_internal.h"
#include "net/stream/deadline.h"
#include "net/tls/tls.h"
#include "sched/actor.h"
#include "sched/workers.h"

enum {
    LS_H2_WINDOW = 65535,        /* of a stream at first (RFC 9113 section 6.9.2) */
    LS_H2_CONN_WINDOW = 1 << 20, /* of a connection at first, at most http2_window_bytes_max */
    LS_H2_SEND_AHEAD = 65536,    /* bytes in the stream's queue at which no further frame is made */
    LS_H2_TICK_MS = 1000,        /* between looks at the deadlines of the streams */
    LS_H2_IDLE_MS = 500,         /* without a stream, until the memory of the connection is packed */
    LS_H2_UNSENT_MAX = 65536,    /* bytes that the system has taken and not sent */
    LS_H2_OPENED_MAX = 64,
    LS_H2_FRAME_HEAD = 9 /* bytes, RFC 9113 section 4.1 */
};

typedef struct ls_h2_conn ls_h2_conn;

/* What a connection has cost: see h2_limits.c. */
typedef struct ls_h2_limits {
    uint64_t received, payload; /* bytes: of all frames; of bodies both ways, heads and the like */
    uint32_t budget;            /* resets that the client has left, of http2_resets_max */
    struct {
        int32_t id;
        bool ended;             /* by the client */
    } opened[LS_H2_OPENED_MAX]; /* ring: the streams that were opened last */
    uint32_t opened_at;         /* where the oldest of these is */
    int32_t opened_last;
} ls_h2_limits;

typedef struct ls_h2 {
    ls_http2_part part; /* of `server` */
    ls_http_server *server;
    ls_stream_handler stream_handler; /* of its streams */
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *options;
    ls_transport transport; /* of its exchanges: ls_h2_transport with upgrades */
    ls_node conns;          /* open connections; this and the next under server->mutex */
    ls_h2_conn *unused;     /* by their next_unused */
} ls_h2;

/* Slices that wait, in their order. */
typedef struct ls_h2_queue {
    ls_slices list;
    unsigned at; /* those before it are taken */
    size_t bytes;
} ls_h2_queue;

/* What the handler waits for. */
enum { LS_H2_AWAITS_BODY = 1, LS_H2_AWAITS_SENT = 2 };

/* A request, its response and their state in HTTP/2, in one small pool block; the fields of the request follow it
 * there, unless they are long. */
typedef struct ls_h2_exchange {
    ls_h2_conn *c;
    ls_block *self;
    int32_t id; /* of the stream */

    /* of the connection */
    ls_node node;        /* of c->exchanges */
    bool closed;         /* nghttp2 has closed the stream, or the connection is lost */
    bool counted;        /* in c->running */
    bool of_peer;        /* among the streams of its address */
    bool returned;       /* `released`, as the connection has seen it: it may look at x */
    bool submitted;      /* the head of the response */
    bool deferred;       /* nghttp2 waits for data */
    bool dribbles;       /* as deferred, for a larger window: see read_data */
    bool waited;         /* it has waited long enough */
    bool connects;       /* a CONNECT: what follows its head is for a tunnel */
    bool ends_early;     /* it is not complete: the stream is reset when its bytes are sent */
    bool end_sent;       /* the last frame of the response was made */
    int64_t left;        /* bytes of the response that are still to come; -1: unknown */
    uint32_t window;     /* of the stream */
    uint32_t arrived;    /* bytes of the body since the window has grown */
    uint32_t uncredited; /* bytes of the body for which the connection has given no credit yet */
    uint32_t waited_ms;  /* for the body, in all */
    uint32_t stalled_ms; /* of the current measurement of the response's rate */
    uint64_t measured;   /* bytes sent in it */
    uint64_t unread_ms;  /* since when the body is discarded: see skip_body; 0: it is not */
    uint64_t body_received;
    ls_block *in_fill; /* where short pieces of the body are put side by side */
    uint32_t in_filled;
    char text[4 + LS_HTTP_DATE_BYTES + 20]; /* status, date and length, for nghttp2 */
    ls_h2_head head;

    /* of the handler */
    ls_block *fill; /* where bytes without a block are copied to; NULL: none yet */
    uint32_t filled;
    bool headed;    /* head_due from the next ls_h2_unlock on */
    int64_t length; /* of the response; -1: it is sent in parts. With head_due it is the connection's */

    /* shared, under c->lock */
    ls_h2_queue out, in;
    ls_block *in_trailers; /* lines */
    ls_block *hints;       /* lines of a 103 */
    size_t credit;         /* bytes of the body that were read */
    int lost;              /* LS_ERESET or the like: the stream, or the connection, has ended before its time */
    int in_error;          /* LS_ETIMEDOUT: the body is too slow */
    uint8_t awaits;        /* LS_H2_AWAITS_* */
    bool in_end;           /* the body is complete */
    bool head_due, out_end, trailers_due, continue_due, aborted;
    struct ls_h2_tunnel *tunnel;                                       /* NULL: none, or not any more */
    void (*tunnel_tell)(ls_thread_ctx *ctx, struct ls_h2_exchange *e); /* see ls_h2_tell */
    bool tunnels;                                                      /* it was upgraded */
    bool entered;  /* x.actor is known: the handler has suspended */
    bool released; /* by the handler; or it has none */
    bool listed;   /* in c->ready */
    bool waking;   /* `wake` is on its way */
    struct ls_h2_exchange *next_ready;
    ls_op wake;

    ls_exchange x; /* last: it is large. x.op starts it */
} ls_h2_exchange;

enum { LS_H2_HEAD_ROOM_MIN = 1024 };
_Static_assert(sizeof(ls_h2_exchange) + LS_H2_HEAD_ROOM_MIN <= LS_BLOCK_SMALL, "most requests need one block");

struct ls_h2_conn {
    ls_actor actor;         /* never reset: see above */
    _Atomic bool pump_runs; /* `pump` is on its way; never reset either */
    ls_op pump;
    ls_mutex lock;
    ls_arena memory; /* of nghttp2; packed while the connection is idle */
    ls_h2_conn *next_unused;

    ls_h2 *h2;
    ls_http_server *http;     /* h2->server */
    ls_thread_ctx *ctx;       /* of the thread that is inside `actor`, for the callbacks of nghttp2 */
    uint64_t now_ms;          /* when it has entered */
    ls_stream *s;             /* NULL: closed */
    nghttp2_session *session; /* NULL: not begun, or ended: bytes of the client are discarded until its end */
    ls_op begin, ended;
    uint8_t head[LS_H2_FRAME_HEAD]; /* of the frame that is received */
    uint8_t head_bytes;             /* of these that were */
    uint32_t frame_left;            /* bytes of the frame, or of the preface, that are still to come */
    ls_slice in;                    /* bytes that nghttp2 reads now; before that, those that the opener has received */
    ls_h2_exchange *heading;        /* whose fields arrive; NULL: a stream that was refused, or is closed */
    ls_node node;                   /* of h2->conns */
    ls_node exchanges;
    _Atomic(ls_h2_exchange *) ready; /* newest first */
    uint32_t streams;                /* exchanges that are not closed */
    uint32_t running;                /* exchanges with a handler */
    ls_addr remote, local;
    ls_tls_peer *peer;       /* NULL: no TLS */
    ls_deadlines *deadlines; /* of the streams of tunnels */
    bool tunnels;            /* it has told the client that it may ask for tunnels */
    bool listed;             /* in h2->conns */
    bool failed;             /* close it at once */
    bool closing;            /* ls_stream_close was called */
    bool paused;             /* no receive is posted until answers of nghttp2 are sent */
    bool fast;               /* the last receive has filled its room */
    bool idle;               /* without a stream, for LS_H2_IDLE_MS */
    uint8_t drain;           /* enum ls_h2_drain */
    uint64_t head_ms;        /* since when a header block is open; 0: none is */
    uint64_t opened_ms, requests;
    uint64_t drain_ms, tick_ms, idle_ms; /* the beginning of the drain, the last tick, the end of the last stream */
    ls_h2_limits limits;
};

enum ls_h2_drain { LS_H2_OPEN, LS_H2_ANNOUNCED, LS_H2_ANSWERED, LS_H2_GOING };

static inline ls_h2_exchange *ls_h2_of(ls_exchange *x)
{
    return LS_CONTAINER(x, ls_h2_exchange, x);
}

/* ---- the queues: under c->lock ------------------------------------------------------------------------------- */

/* Append `slice`, whose reference is taken, on failure as well. LS_OK or LS_ENOMEM. */
int ls_h2_queue_add(ls_h2_queue *q, ls_slice slice);
/* The first slice; NULL: none. */
static inline ls_slice *ls_h2_queue_first(ls_h2_queue *q)
{
    return q->at < q->list.count ? &ls_slices_items(&q->list)[q->at] : NULL;
}
/* Take at most `max` bytes of the first slice, with a reference. There is one. */
ls_slice ls_h2_queue_take(ls_h2_queue *q, size_t max);
void ls_h2_queue_clear(ls_h2_queue *q);

/* ---- h2_conn.c: inside c->actor, unless said otherwise ----------------------------------------------------------- */

/* A connection that was used before, or a new one; NULL: no memory. And back, of one that was not begun. Any thread. */
ls_h2_conn *ls_h2_take_conn(ls_h2 *h2);
void ls_h2_put_back(ls_h2 *h2, ls_h2_conn *c);
extern const ls_stream_handler ls_h2_stream_handler;
void ls_h2_begin(ls_thread_ctx *ctx, ls_op *op); /* c->begin */
void ls_h2_pump(ls_thread_ctx *ctx, ls_op *op);  /* c->pump */
void ls_h2_goaway_sent(ls_h2_conn *c);           /* the first one of a drain, or another one */

/* ---- h2_request.c: inside c->actor ------------------------------------------------------------------------------- */

int ls_h2_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user);
int ls_h2_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                 const uint8_t *value, size_t value_len, uint8_t flags, void *user);
int ls_h2_data_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes, size_t len,
                     void *user);
int ls_h2_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user);
int ls_h2_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *user);

/* ---- h2_exchange.c ----------------------------------------------------------------------------------------------- */

extern const ls_transport ls_h2_transport;
/* Have c->pump run after the packets of now. Any thread. */
void ls_h2_run_later(ls_thread_ctx *ctx, ls_h2_conn *c);
/* End a change of the shared fields by the handler, which began with the lock of c->lock. `changed`: the connection has
 * to look. */
void ls_h2_unlock(ls_thread_ctx *ctx, ls_h2_exchange *e, bool changed);
/* Have c->pump serve the exchange. Under c->lock. */
void ls_h2_list(ls_thread_ctx *ctx, ls_h2_exchange *e);
/* Let the handler, or the tunnel, learn what the connection has changed. Under c->lock. */
void ls_h2_tell(ls_thread_ctx *ctx, ls_h2_exchange *e);
/* The stream has ended; `lost`, unless 0: before its time. May free the exchange. */
void ls_h2_end_stream(ls_thread_ctx *ctx, ls_h2_exchange *e, int lost);
/* Free the exchange if its stream has ended and nothing uses it. */
void ls_h2_free_if_unused(ls_h2_exchange *e);

/* Queue a slice of the response, with a copy if it has no block. Takes its reference. By the handler. LS_OK, LS_ENOMEM, or
 * e->lost. */
int ls_h2_add(ls_thread_ctx *ctx, ls_h2_exchange *e, ls_slice slice);

/* ---- h2_tunnel.c ------------------------------------------------------------------------------------------------- */

/* ls_transport.upgrade */
int ls_h2_tunnel(ls_thread_ctx *ctx, ls_exchange *x, const char *protocol, size_t protocol_len,
                 const ls_stream_handler *handler, size_t user_bytes, ls_upgraded *out);

/* ---- h2_output.c: inside c->actor -------------------------------------------------------------------------------- */

/* Do what the handler asks for. May free the exchange. */
void ls_h2_serve(ls_thread_ctx *ctx, ls_h2_exchange *e);
/* Reset the stream with this code; `why`, unless NULL, for the log. */
void ls_h2_reset(ls_h2_exchange *e, uint32_t code, const char *why);
/* Respond to a request that gets no handler. */
void ls_h2_refuse(ls_thread_ctx *ctx, ls_h2_exchange *e, int status, const char *why);
/* Have the window of the stream be so many bytes, at most http2_window_bytes_max, unless it is larger, and that of the
 * connection no smaller. */
void ls_h2_widen(ls_h2_exchange *e, uint64_t to);
/* Resume a response that waits for a larger window; `enough`: also if it is not larger yet. */
void ls_h2_window_grew(ls_h2_exchange *e, bool enough);
int ls_h2_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t length,
                    nghttp2_data_source *source, void *user);
int ls_h2_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user);

/* ---- h2_limits.c: inside c->actor -------------------------------------------------------------------------------- */

void ls_h2_limit_options(nghttp2_option *options);
/* A frame of the client begins, which nghttp2 does not have yet. `word`: the number of 31 bits in its first four bytes;
 * -1: these have not arrived. */
void ls_h2_begin_frame(ls_h2_conn *c, const nghttp2_frame_hd *head, int32_t word);
int ls_h2_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int code, void *user);
/* End the connection with this error; `why` for the log. */
void ls_h2_go_away(ls_h2_conn *c, uint32_t code, const char *why);
/* A stream was reset, by the client or for its fault: it costs one of the budget. */
void ls_h2_count_reset(ls_h2_conn *c);
/* Bytes were received. */
void ls_h2_count_received(ls_h2_conn *c, size_t bytes);
/* Look at the deadlines; `ms` after the last look. */
void ls_h2_tick(ls_thread_ctx *ctx, ls_h2_conn *c, uint32_t ms);
uint32_t ls_h2_deadline(const ls_h2_conn *c); /* of the next receive, in ms */

#endif
