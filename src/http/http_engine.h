/* http_engine.h - an engine serves HTTP with certain limits: the HTTP/1.1 server of streams (http1.h), or http.sys
 * (httpsys/httpsys.h). The server drives each by this table and looks no further. */
#ifndef LS_HTTP_HTTP_ENGINE_H
#define LS_HTTP_HTTP_ENGINE_H

#include "http/exchange.h"
#include "http/http_config.h"

typedef struct ls_http_stats {
    uint64_t connections, requests, responses, refused; /* refused: 4xx or 5xx responses without a handler */
    uint32_t open;                                      /* connections now; of http.sys requests, and no connections */
    uint32_t http2_open;                                /* of HTTP/2 among them */
    /* of HTTP/2: connections; streams that were refused because too many handlers run; streams that were reset, by the
     * client or for its fault; connections that were ended for the client's fault */
    uint64_t http2_connections, http2_refused, http2_resets, http2_ended;
} ls_http_stats;

typedef struct ls_http_engine ls_http_engine;

typedef struct ls_http_engine_ops {
    /* Take requests; on a worker, outside of every actor. NULL: a protocol of an acceptor gives it its streams. */
    void (*start)(ls_thread_ctx *ctx, ls_http_engine *e);
    /* LS_OK: `replace` can continue with these limits; LS_ENOTSUP: they need another engine; LS_ENOMEM. Nothing that
     * is served changes. One thread at a time, as `replace`. */
    int (*prepare)(ls_http_engine *e, const ls_http_config *config);
    /* Give the requests that begin from now on to another handler, with the limits of the last successful `prepare`.
     * No connection closes, and a request that has begun keeps its handler. The previous handler gets no further
     * request once ls_workers_passed. */
    void (*replace)(ls_http_engine *e, const ls_http_handler *handler);
    /* Close each connection after its response from now on, and those that are idle; with `all` also those that have
     * not sent a first request. Returns what is left: connections, or requests and receives. Call again until it is
     * 0. */
    uint32_t (*drain)(ls_http_engine *e, bool all);
    void (*abort)(ls_http_engine *e); /* cancel the operations of every connection, so that it closes */
    void (*stat)(const ls_http_engine *e, ls_http_stats *sum); /* adds; any thread */
    void (*close)(ls_http_engine *e);                          /* nothing may be left; or it was not started */
} ls_http_engine_ops;

struct ls_http_engine {
    const ls_http_engine_ops *ops;
    /* Set before `drain`: without `all`, connections that have got a response within the last LS_HTTP_PATIENT_MS stay
     * for a request that is on its way. */
    bool patient;
};
enum { LS_HTTP_PATIENT_MS = 2000 };

#endif
