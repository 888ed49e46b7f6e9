/* httpsys.h - HTTP on Windows' own server, the HTTP Server API (kernel-mode http.sys): what the server opens for a listener
 * with engine = "http.sys". httpsys_win32.c supplies it; httpsys_posix.c says on other systems that there is none.
 *
 * http.sys owns the connections: it accepts, parses, keeps alive and times out; to us come whole heads, and each request is an
 * exchange like those of http1.h, so that the layers above see no difference. A session, a group of URLs and a request
 * queue belong to each listener; the queue's handle is bound to the completion port, and `receives` receives are posted on it. */
#ifndef LS_PROTO_HTTPSYS_H
#define LS_PROTO_HTTPSYS_H

#include "port/port.h"
#include "proto/exchange.h"
#include "proto/http1.h"
#include "proto/http_config.h"

typedef struct ls_httpsys ls_httpsys;

enum { LS_HTTPSYS_URLS_MAX = 16, LS_HTTPSYS_URLS_BYTES = 2048 /* in all, ends included */ };

typedef struct ls_httpsys_options {
    const char *urls;             /* UTF-8, one behind the other, each ended by NUL, the last by two */
    const ls_http_config *config; /* copied */
    const ls_http_handler *handler;
    unsigned threads;      /* the number of thread contexts that may run it (ctx->index < threads) */
    unsigned receives;     /* posted on the request queue */
    uint32_t requests_max; /* under way; past it no receive is posted until one has ended */
} ls_httpsys_options;

/* Whether this system can have one at all; httpapi.dll is looked for when one is opened. */
bool ls_httpsys_supported(void);

/* Open session, queue and group, and register the URLs: from then on http.sys queues requests for them. On failure nothing
 * is left open, *out is untouched, and `message` says in one line which URL was refused and why: LS_EACCES (error 5),
 * LS_EEXIST (183), LS_EINVAL, LS_ENOTSUP (no httpapi.dll, or not this system), LS_ENOMEM, LS_ESYS. */
int ls_httpsys_open(ls_port *port, const ls_httpsys_options *options, ls_httpsys **out, char *message,
                    size_t message_bytes);

/* Post the receives; on a thread of the workers, inside no actor. */
void ls_httpsys_start(ls_thread_ctx *ctx, ls_httpsys *http);

/* Take the URLs away, so that no further request is routed here, close the connection behind each answer, and when no request
 * is under way end the receives and shut the queue down. Returns how many requests and receives are left; call again until
 * it is 0. Any one thread. */
uint32_t ls_httpsys_drain(ls_httpsys *http);

/* Shut the queue down at once: requests under way are cancelled, their connections closed. */
void ls_httpsys_abort(ls_httpsys *http);

/* Connections are http.sys's: the result counts none, and `open` is the number of requests under way. Any thread. */
void ls_httpsys_stat(const ls_httpsys *http, ls_http1_stats *out);

void ls_httpsys_close(ls_httpsys *http); /* never started, or drained to 0 */

#endif
