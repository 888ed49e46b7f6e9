/* http1.h - HTTP/1.1 on streams (RFC 9112): what the server opens for one listener.
 *
 * One request at a time per connection. What is pipelined behind it waits in the receive block: 64 KiB (LS_BLOCK_LARGE) at
 * most are read ahead, the rest stays with the client. Answers of a run of pipelined requests leave in one send. */
#ifndef LS_PROTO_HTTP1_H
#define LS_PROTO_HTTP1_H

#include "net/listener.h"
#include "port/port.h"
#include "proto/exchange.h"
#include "proto/http_config.h"

typedef struct ls_http1 ls_http1;

typedef struct ls_http1_stats {
    uint64_t connections, requests, responses, refused; /* refused: answered 4xx or 5xx without a handler */
    uint32_t open;                                      /* connections now */
} ls_http1_stats;

/* `threads`: the number of thread contexts that may run it (ctx->index < threads). The config is copied; the handler and the connection limit stay the
 * caller's until close. LS_OK; LS_EINVAL: a limit is out of range; LS_ENOMEM. */
int ls_http1_open(ls_port *port, const ls_http_config *config, const ls_http_handler *handler, ls_conn_limit *limit,
                  unsigned threads, ls_http1 **out);

/* An ls_accepted_fn: `user` is the ls_http1. */
void ls_http1_accepted(ls_thread_ctx *ctx, void *user, ls_fd fd, const ls_sockaddr *from);

/* The address that requests name as theirs; before the first connection. */
void ls_http1_local(ls_http1 *http, const ls_addr *local);

/* From now on every answer closes its connection, and connections that wait for a next request are closed; with `all`
 * also those that have not sent their first one. Returns how many are still open; call again until it is 0. */
uint32_t ls_http1_drain(ls_http1 *http, bool all);

/* End every connection as soon as its current operation allows. */
void ls_http1_abort(ls_http1 *http);

void ls_http1_stat(const ls_http1 *http, ls_http1_stats *out); /* any thread */
void ls_http1_close(ls_http1 *http);                           /* no connection is open */

#endif
