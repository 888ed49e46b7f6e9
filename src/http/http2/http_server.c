/* http_server.c - see http_server.h. */
#include "http/http2/http_server.h"

#include <stdlib.h>

#include "base/list.h"
#include "http/http1.h"
#include "http/http2/h2.h"
#include "net/tls/tls.h"

typedef struct http_server {
    ls_http_engine engine;
    ls_http_engine *http1, *http2; /* http2: NULL in a build without it */
} http_server;

static http_server *of(const ls_http_engine *e)
{
    return LS_CONTAINER((uintptr_t)e, http_server, engine);
}

static int prepare(ls_http_engine *e, const ls_http_config *config)
{
    return of(e)->http1->ops->prepare(of(e)->http1, config); /* both compare the same limits */
}

static void replace(ls_http_engine *e, const ls_http_handler *handler)
{
    const http_server *server = of(e);
    server->http1->ops->replace(server->http1, handler);
    if (server->http2 != NULL) server->http2->ops->replace(server->http2, handler);
}

static uint32_t drain(ls_http_engine *e, bool all)
{
    const http_server *server = of(e);
    server->http1->patient = e->patient;
    const uint32_t left = server->http1->ops->drain(server->http1, all);
    return left + (server->http2 != NULL ? server->http2->ops->drain(server->http2, all) : 0);
}

static void abort_all(ls_http_engine *e)
{
    const http_server *server = of(e);
    server->http1->ops->abort(server->http1);
    if (server->http2 != NULL) server->http2->ops->abort(server->http2);
}

static void add_stats(const ls_http_engine *e, ls_http_stats *sum)
{
    const http_server *server = of(e);
    server->http1->ops->stat(server->http1, sum);
    if (server->http2 != NULL) server->http2->ops->stat(server->http2, sum);
}

static void close_server(ls_http_engine *e)
{
    http_server *server = of(e);
    server->http1->ops->close(server->http1);
    if (server->http2 != NULL) server->http2->ops->close(server->http2);
    free(server);
}

static const ls_http_engine_ops engine_ops = {NULL, prepare, replace, drain, abort_all, add_stats, close_server};

int ls_http_server_open(const ls_http_config *config, const ls_http_handler *handler, ls_conn_limit *limit,
                        unsigned threads, ls_http_engine **out)
{
    http_server *server = calloc(1, sizeof *server);
    if (server == NULL) return LS_ENOMEM;
    server->engine.ops = &engine_ops;
    int err = ls_http1_open(config, handler, limit, threads, &server->http1);
    if (err == LS_OK) err = ls_h2_open(config, handler, limit, threads, &server->http2);
    if (err == LS_OK && config->http2) ls_http1_hand_over(server->http1, ls_h2_start, server->http2);
    if (err == LS_OK || err == LS_ENOTSUP) {
        *out = &server->engine;
        return LS_OK;
    }
    if (server->http1 != NULL) server->http1->ops->close(server->http1);
    free(server);
    return err;
}

void ls_http_server_start(ls_thread_ctx *ctx, ls_stream *s, void *user)
{
    const http_server *server = of(user);
    const ls_filter *session = ls_stream_filter(s);
    if (session != NULL && ls_tls_speaks(session, "h2"))
        ls_h2_start(ctx, s, server->http2, ls_slice_static(NULL, 0));
    else
        ls_http1_start(ctx, s, server->http1);
}

int ls_http_server_refuse_plain(ls_thread_ctx *ctx, ls_stream *s, void *user, ls_text received)
{
    return ls_http1_refuse_plain(ctx, s, of(user)->http1, received);
}

void ls_http_server_local(ls_http_engine *e, const ls_addr *local)
{
    const http_server *server = of(e);
    ls_http1_local(server->http1, local);
    if (server->http2 != NULL) ls_h2_local(server->http2, local);
}
