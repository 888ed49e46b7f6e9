/* proxy_internal.h - the state of a proxy, for proxy.c and proxy_tunnel.c. */
#ifndef LS_HTTP_PROXY_INTERNAL_H
#define LS_HTTP_PROXY_INTERNAL_H

#include "http/exchange_in.h"
#include "http/exchange_out.h"
#include "http/http_client.h"
#include "http/proxy/proxy.h"

/* The room of the user of an upstream stream, and of the stream of a client that has become a tunnel. It outlives the
 * proxy. */
typedef struct ls_proxy_room {
    ls_proxy *proxy;        /* NULL: the stream is closing */
    _Atomic uint32_t *live; /* see ls_proxy_options */
    ls_block *block;        /* into which a receive may be pending */
    ls_conn_limit *limit;   /* of the client; NULL: none */
} ls_proxy_room;
_Static_assert(sizeof(ls_proxy_room) <= LS_PROXY_ROOM_BYTES, "the room of an upstream stream");

enum ls_proxy_request {
    LS_PROXY_SENDING,
    LS_PROXY_AWAITS_100, /* the body waits for 100 Continue of the server */
    LS_PROXY_SENT,       /* the request is queued to its end */
    LS_PROXY_TRUNCATED   /* the server takes no more of it */
};

enum ls_proxy_life {
    LS_PROXY_RUNS,
    LS_PROXY_PAUSED,    /* the head was taken, and the caller decides */
    LS_PROXY_UPGRADING, /* a response 101 waits until the exchange can be upgraded; p->c.in begins with its head */
    LS_PROXY_TUNNEL,
    LS_PROXY_DROPPED
};

enum ls_proxy_direction {
    LS_PROXY_OPEN,
    LS_PROXY_ENDED,
    LS_PROXY_ENDED_BOTH
}; /* its end was received; and passed on */

struct ls_proxy {
    ls_proxy_options with;
    ls_proxy_tap *tap; /* NULL: none */
    int err;           /* see ls_proxy_result */
    enum ls_proxy_request request;
    enum ls_proxy_life life;
    ls_http_client c; /* the response */
    bool of_client;
    bool body_read;
    bool chunked;            /* the request has the chunked coding */
    bool patient;            /* events: no limit between parts */
    bool watching;           /* ls_exchange_expect_end was called */
    bool overruled;          /* see ls_proxy_pause */
    bool own_type;           /* of x, before the head was taken */
    uint8_t ended[2];        /* enum ls_proxy_direction, of a tunnel: from the client, from the server */
    uint32_t own_fields_len; /* of x, before the head was taken */
    ls_block *own;           /* these fields, for a pause; NULL: none */
    ls_stream *up;           /* NULL: none */
    ls_stream *client;       /* of a tunnel */
    void *task;              /* those of x */
    void (*wake)(ls_thread_ctx *ctx, ls_exchange *x);
    ls_block *trailers; /* of the response, as received so far; NULL: none */
    uint64_t progress_ms; /* coarse time of the last byte or packet, but for a receive that ended without one */
};

void ls_proxy_end(ls_thread_ctx *ctx, ls_proxy *p, int err);
void ls_proxy_closed(ls_thread_ctx *ctx, ls_stream *s); /* ls_stream_handler.closed */
void ls_proxy_close_stream(ls_thread_ctx *ctx, ls_stream **s, ls_block *block);
/* A response 101 was taken. LS_PENDING: LS_PROXY_UPGRADING or LS_PROXY_TUNNEL; LS_E*;
 * LS_ECLOSED also when both sides of the tunnel have ended. */
int ls_proxy_tunnel(ls_thread_ctx *ctx, ls_proxy *p);

#endif
