/* proxy.h - one request of a client, answered by an upstream server: the part of a reverse proxy that touches every
 * byte.
 *
 *     client --request--> exchange_in --slices--> queue of the upstream stream --> server
 *     client <-- queue <-- exchange_out <--slices-- http1_reader <--blocks-- server
 *
 * Nothing is copied: a slice of a received block is queued on the other connection. A direction receives only while
 * less than LS_PROXY_QUEUE_BYTES are queued on its way out, so that the memory of a body is constant. After a response
 * 101 the two streams are a tunnel (proxy_tunnel.c).
 *
 * What the options point to stays valid until `done` or ls_proxy_drop. Meanwhile the proxy has the exchange: x->wake
 * and x->task are its own. All calls and packets run inside x->actor. */
#ifndef LS_HTTP_PROXY_H
#define LS_HTTP_PROXY_H

#include "http/exchange.h"
#include "http/proxy/proxy_head.h"
#include "net/stream/stream_pool.h"

enum {
    LS_PROXY_HEAD_BYTES_MAX = LS_BLOCK_LARGE - 1, /* of a response */
    LS_PROXY_QUEUE_BYTES = LS_BLOCK_LARGE,        /* see above */
    LS_PROXY_ROOM_BYTES = 4 * sizeof(void *),     /* what the user of an upstream stream needs, see ls_stream_user */
    LS_PROXY_LOOK_MS = 1000 /* a silent server: then the client is watched, see ls_exchange_expect_end */
};

typedef struct ls_proxy ls_proxy;

typedef struct ls_proxy_options {
    ls_exchange *x;
    ls_stream_pool *pool; /* where the stream goes if it can be kept */
    const char *key;      /* of that pool */
    size_t key_len;
    _Atomic uint32_t *live; /* counts streams that wait for packets */
    uint32_t timeout_ms;    /* without a byte from the server while it has all of the request; 0: no limit */
    bool pauses;            /* `done` is called when the head of the response has been taken, see ls_proxy_is_paused */
    const ls_slice *given;  /* a body that was received before; its bytes have no other owner */
    unsigned given_count;
    ls_proxy_place place;
    ls_proxy_filter filter; /* its text is valid until ls_proxy_new returns */
    /* The exchange is the caller's again, and nothing of the proxy is pending. */
    void (*done)(ls_thread_ctx *ctx, ls_proxy *p);
} ls_proxy_options;

/* Make a proxy with `user_bytes` of zeros for its user. NULL: out of memory. */
ls_proxy *ls_proxy_new(const ls_proxy_options *options, size_t user_bytes);
void *ls_proxy_user(ls_proxy *p);
/* Free a proxy that was not started, or that has ended: after `done` without a pause, or ls_proxy_drop. */
void ls_proxy_free(ls_proxy *p);

/* Send the request on `up`, a connected stream with room for LS_PROXY_ROOM_BYTES, to which nothing is posted. It
 * belongs to the proxy now. LS_PENDING: `done` follows, never from inside this call. LS_DONE: the result is there
 * already, and `done` is not called. LS_ELIMIT, LS_ENOMEM of ls_proxy_put_request: nothing was sent, and *up is still
 * the caller's. */
int ls_proxy_start(ls_thread_ctx *ctx, ls_proxy *p, ls_stream *up, const ls_proxy_change *change);
/* Continue after a pause: results as LS_PENDING and LS_DONE above. */
int ls_proxy_resume(ls_thread_ctx *ctx, ls_proxy *p);

/* End it: close its streams. `done` is not called. No effect after `done`, unless it is paused. */
void ls_proxy_drop(ls_thread_ctx *ctx, ls_proxy *p);
/* The same once no thread runs any more and the port is closed. */
void ls_proxy_abandon(ls_proxy *p);

/* ---- the result ------------------------------------------------------------------------------------------------- */

typedef struct ls_proxy_result {
    int err;         /* LS_OK: the response is complete, or paused; LS_E* */
    const char *why; /* of LS_EPROTO from the server: static text */
    bool of_client;  /* the error: its body is invalid, or it has left */
    bool unanswered; /* no byte of a response was received, and none of the client's body was sent: it may be sent
                     * again */
    bool body_read;  /* bytes of the body were sent to the server */
    bool upgraded;   /* there was a tunnel */
} ls_proxy_result;

ls_proxy_result ls_proxy_result_of(const ls_proxy *p);
bool ls_proxy_has_head(const ls_proxy *p); /* the head of the response was taken */

/* ---- a pause: the head of the response was taken, and nothing of it was sent ------------------------------------ */

bool ls_proxy_is_paused(const ls_proxy *p);
typedef struct ls_proxy_pause {
    ls_exchange *x;
    ls_text own_fields; /* those that the response had before */
    bool trusted;       /* see ls_proxy_filter */
    bool
        overruled; /* the response had a Cache-Control or Expires before, in place of which the server's was left out */
    bool ends_with_stream; /* the body ends with the connection: it may be cut off */
} ls_proxy_pause;
ls_proxy_pause ls_proxy_pause_of(const ls_proxy *p);
/* The response of the server is not used: drop the status and the fields that were taken from it. The connection to
 * the server is kept if no body follows. */
void ls_proxy_refuse(ls_thread_ctx *ctx, ls_proxy *p);

/* A tap gets each part of the body before the client does; `last`: the body is whole. Of the one that is set last. */
typedef struct ls_proxy_tap ls_proxy_tap;
struct ls_proxy_tap {
    void (*take)(ls_proxy_tap *tap, const ls_slice *slices, unsigned count, bool last);
    ls_proxy *of; /* NULL: of none, or the proxy has ended */
};
void ls_proxy_tap_set(ls_proxy *p, ls_proxy_tap *tap);
void ls_proxy_tap_remove(ls_proxy_tap *tap); /* no effect on one that is not set */

#endif
