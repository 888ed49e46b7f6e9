/* fuzz_http.h - a peer of a connection of HTTP. */
#ifndef LS_TESTS_FUZZ_HTTP_H
#define LS_TESTS_FUZZ_HTTP_H

#include "../unit/http_config.h"
#include "fuzz_peer.h"

#include "http/http1.h"

typedef struct fuzz_http {
    fuzz_peer peer;
    ls_conn_limit conn_limit;
    ls_http_config config;
    ls_http_handler handler;
    ls_http_engine *http;
    ls_stream *stream; /* of the connection */
} fuzz_http;

/* All but w->http: the fuzzer opens that with its configuration and its handler, and starts it with w->stream. */
static inline void fuzz_http_open(fuzz_http *w, size_t pool_bytes, size_t out_max)
{
    const ls_addr addr = {.family = LS_ADDR_UNIX};
    fuzz_peer_open(&w->peer, pool_bytes, out_max);
    ls_conn_limit_open(&w->conn_limit, 4);
    atomic_store(&w->conn_limit.count, 1);
    test_http_config(&w->config);
    w->config.linger_ms_max = 1;
    FUZZ_HOLDS(ls_stream_open(w->peer.port, w->peer.deadlines, w->peer.ours, true, &addr, NULL, ls_http1_user_bytes,
                              &w->stream) == LS_OK);
}

/* The client hangs up: no connection may stay open. */
static inline void fuzz_http_hang_up(fuzz_http *w, ls_http_stats *stats)
{
    fuzz_peer_hang_up(&w->peer);
    for (int i = 0; i < 1000; i++) {
        fuzz_peer_settle(&w->peer);
        *stats = (ls_http_stats){0};
        w->http->ops->stat(w->http, stats);
        if (stats->open == 0) break;
        (void)fuzz_peer_dispatch(&w->peer, 1);
    }
    FUZZ_HOLDS(stats->open == 0);
    FUZZ_HOLDS(atomic_load(&w->conn_limit.count) == 0);
}

static inline void fuzz_http_close(fuzz_http *w)
{
    w->http->ops->close(w->http);
    ls_conn_limit_close(&w->conn_limit);
    fuzz_peer_close(&w->peer);
}

#endif
