/* proxy.h - one request of a client, answered by an upstream server: the part of a reverse proxy that touches every byte.
 *
 *     client --request--> exchange_in --slices--> queue of the upstream stream --> server
 *     client <-- queue <-- exchange_out <--slices-- http1_reader <--blocks-- server
 *
 * Nothing is copied: a slice of a received block is queued on the other connection. A direction receives only while less than
 * LS_PROXY_QUEUE_BYTES are queued on its way out, so that the memory of a body is constant. After a response 101 the
 * two streams are a tunnel (proxy_tunnel.c).
 *
 * The caller owns ls_proxy and what its fields point to, until `done` or ls_proxy_drop. Meanwhile the proxy has the exchange:
 * x->wake and x->task are its own. All calls and packets run inside x->actor. */
#ifndef LS_HTTP_PROXY_H
#define LS_HTTP_PROXY_H

#include "codec/http1/http1_reader.h"
#include "http/exchange_in.h"
#include "http/exchange_out.h"
#include "http/proxy/proxy_head.h"
#include "net/stream/stream_pool.h"

enum {
    LS_PROXY_HEAD_BYTES_MAX = LS_BLOCK_LARGE - 1, /* of a response */
    LS_PROXY_QUEUE_BYTES = LS_BLOCK_LARGE,        /* see above */
    LS_PROXY_LOOK_MS = 1000 /* a silent server: then the client is watched, see ls_exchange_expect_end */
};

typedef struct ls_proxy ls_proxy;

/* The room of the user of an upstream stream, and of the stream of a client that has become a tunnel. It outlives the
 * proxy. */
typedef struct ls_proxy_room {
    ls_proxy *proxy;        /* NULL: the stream is closing */
    _Atomic uint32_t *live; /* counts streams that wait for packets */
    ls_block *block;        /* into which a receive may be pending */
    ls_conn_limit *limit;   /* of the client; NULL: none */
} ls_proxy_room;

enum ls_proxy_blame { LS_PROXY_SERVER, LS_PROXY_CLIENT }; /* LS_PROXY_CLIENT: its body is invalid, or it has left */

struct ls_proxy {
    /* Set by the caller, all else zero. */
    ls_exchange *x;
    ls_stream_pool *pool; /* where the stream goes if it can be kept */
    const char *key;      /* of that pool */
    size_t key_len;
    _Atomic uint32_t *live;
    uint32_t timeout_ms;   /* without a byte from the server while it has all of the request; 0: no limit */
    bool pauses;           /* `done` is called with `paused` when the head of the response has been taken */
    const ls_slice *given; /* a body that was received before; its bytes have no other owner */
    unsigned given_count;
    /* NULL, or it gets each part of the body before the client does; `last`: the body is whole. It may be set while paused. */
    void (*tap)(void *to, const ls_slice *slices, unsigned count, bool last);
    void *tap_to;
    /* The exchange is the caller's again, and nothing of the proxy is pending. */
    void (*done)(ls_thread_ctx *ctx, ls_proxy *p);

    /* For `done`. */
    int err;         /* LS_OK: the response is complete, or paused; LS_E* */
    const char *why; /* of LS_EPROTO from the server: static text */
    uint8_t blame;   /* enum ls_proxy_blame, of an error */
    bool paused;
    bool
        overruled; /* `pauses`: x had a Cache-Control or Expires before, in place of which the server's was left out */
    bool silent;   /* no byte of a response was received */
    bool body_read; /* bytes of the body were sent to the server: the request cannot be sent again */
    bool upgraded;  /* there was a tunnel */

    ls_stream *up;     /* NULL: none */
    ls_stream *client; /* of a tunnel */
    void *task;        /* those of x */
    void (*wake)(ls_thread_ctx *ctx, ls_exchange *x);
    ls_http1_reader reader;
    ls_block *trailers; /* of the response, as received so far; NULL: none */
    ls_block *in;       /* received: data[from .. to); NULL: nothing */
    uint32_t waited_ms; /* for the server, without the pending receive */
    uint32_t wait_ms;   /* of the pending receive */
    bool chunked;       /* the request has the chunked coding */
    bool awaits_100;    /* the body waits for 100 Continue of the server */
    bool sent;          /* the request is queued to its end, or cannot be sent on */
    bool cut;           /* it is not whole */
    bool progressed;    /* bytes of the request were queued since the receive began */
    bool large;         /* the first receive into p->in filled a small block */
    bool filled;        /* the last receive filled its block */
    bool answered;      /* the head of the response was taken */
    bool upgrade_waits; /* a response 101 waits until the exchange can be upgraded */
    bool last;          /* and all of its body */
    bool patient;       /* events: no limit between parts */
    bool watching;      /* ls_exchange_expect_end was called */
    uint8_t
        ended[2]; /* of a tunnel, by direction, from the client and from the server: 1: it has ended; 2: passed on */
    uint32_t own_fields_len; /* of x, before the head was taken */
    ls_block *own;           /* these fields, for `pauses`; NULL: none */
    bool own_type;
};

/* Send the request on `up`, a connected stream with room for ls_proxy_room, to which nothing is posted. It belongs to the
 * proxy now. LS_PENDING: `done` follows, never from inside this call. LS_DONE: p->err has the result already, and `done` is
 * not called. LS_ELIMIT, LS_ENOMEM of ls_proxy_put_request: nothing was sent, and *up is still the caller's. */
int ls_proxy_start(ls_thread_ctx *ctx, ls_proxy *p, ls_stream *up, const ls_proxy_change *change);
/* Go on after `paused`: results as LS_PENDING and LS_DONE above. */
int ls_proxy_go_on(ls_thread_ctx *ctx, ls_proxy *p);

/* End it: close its streams. `done` is not called. No effect after `done`, unless it is paused. */
void ls_proxy_drop(ls_thread_ctx *ctx, ls_proxy *p);
/* The same once no thread runs any more and the port is closed. */
void ls_proxy_abandon(ls_proxy *p);

/* After `paused`, the response of the server is not used: drop the status and the fields that were taken from it. Nothing was
 * sent. The connection to the server is kept if no body follows. */
void ls_proxy_refuse(ls_thread_ctx *ctx, ls_proxy *p);

/* For the files of the proxy. */
void ls_proxy_end(ls_thread_ctx *ctx, ls_proxy *p, int err);
void ls_proxy_closed(ls_thread_ctx *ctx, ls_stream *s); /* ls_stream_handler.closed */
void ls_proxy_close_stream(ls_thread_ctx *ctx, ls_stream **s, ls_block *block);
/* A response 101 was taken, and p->in begins with its head. LS_PENDING: p->upgrade_waits, or the proxy is a tunnel; LS_E*;
 * LS_ECLOSED also when both sides of the tunnel have ended. */
int ls_proxy_tunnel(ls_thread_ctx *ctx, ls_proxy *p);

#endif
