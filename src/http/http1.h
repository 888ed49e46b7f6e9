/* http1.h - the HTTP/1.1 server of one listener, on streams (RFC 9112).
 *
 * A connection handles one request at a time. Pipelined requests wait in the receive block: a connection reads at most
 * 64 KiB (LS_BLOCK_LARGE) ahead. The responses to consecutive pipelined requests leave in one send. */
#ifndef LS_HTTP_HTTP1_H
#define LS_HTTP_HTTP1_H

#include "http/exchange.h"
#include "http/http_config.h"
#include "net/listener.h"
#include "net/stream.h"
#include "port/port.h"

typedef struct ls_http1 ls_http1;

typedef struct ls_http1_stats {
    uint64_t connections, requests, responses, refused; /* refused: 4xx or 5xx responses without a handler */
    uint32_t open;                                      /* connections now */
} ls_http1_stats;

void ls_http1_stats_add(ls_http1_stats *sum, const ls_http1_stats *one);

/* `threads`: the number of thread contexts that may run it (ctx->index < threads). The config is copied. The caller
 * owns the handler and the connection limit and keeps them until the close. LS_OK; LS_EINVAL: a limit is out of range;
 * LS_ENOMEM. */
int ls_http1_open(const ls_http_config *config, const ls_http_handler *handler, ls_conn_limit *limit, unsigned threads,
                  ls_http1 **out);

/* The start of a protocol (net/acceptor.h): `http1` is the ls_http1. The stream has ls_http1_user_bytes of room. */
void ls_http1_start(ls_thread_ctx *ctx, ls_stream *s, void *http1);
extern const size_t ls_http1_user_bytes;

extern const ls_transport ls_http1_transport; /* of all exchanges of HTTP/1.1 */

/* Queue a 400 that says that the port expects https. For ls_acceptor_service_options. LS_OK or LS_ENOMEM. */
int ls_http1_refuse_plain(ls_thread_ctx *ctx, ls_stream *s);

/* The address of the listener, which is the local address of its requests unless it is that of all interfaces. Call it
 * before the first connection. */
void ls_http1_local(ls_http1 *http, const ls_addr *local);

/* Give the requests that begin from now on to another handler. No connection closes, and a request that has begun stays
 * with its handler. The handler before gets no further request once ls_workers_passed. Any thread. */
void ls_http1_replace(ls_http1 *http, const ls_http_handler *handler);

const ls_http_config *ls_http1_config(const ls_http1 *http);

/* Close the connection after every response from now on, and close idle connections; with `all` also those that have
 * not sent a first request. Returns the number of open connections; call again until it is 0. */
uint32_t ls_http1_drain(ls_http1 *http, bool all);

/* Cancel the operations of every connection, so that it closes. */
void ls_http1_abort(ls_http1 *http);

void ls_http1_stat(const ls_http1 *http, ls_http1_stats *out); /* any thread */
void ls_http1_close(ls_http1 *http);                           /* no connection may be open */

#endif
