/* http1.h - the HTTP/1.1 server of one listener, on streams (RFC 9112).
 *
 * A connection handles one request at a time. Pipelined requests wait in the receive block: a connection reads at most
 * 64 KiB (LS_BLOCK_LARGE) ahead. The responses to consecutive pipelined requests leave in one send. */
#ifndef LS_HTTP_HTTP1_H
#define LS_HTTP_HTTP1_H

#include "base/text.h"
#include "http/http_engine.h"
#include "net/listener.h"
#include "net/stream/stream.h"
#include "port/port.h"

/* `threads`: the number of thread contexts that may run it (ctx->index < threads). The config is copied. The caller
 * owns the handler and the connection limit and keeps them until the close. LS_OK; LS_EINVAL: a limit is out of range;
 * LS_ENOMEM. */
int ls_http1_open(const ls_http_config *config, const ls_http_handler *handler, ls_conn_limit *limit, unsigned threads,
                  ls_http_engine **out);

/* The start of a protocol (net/acceptor.h): `engine` is the ls_http_engine. The stream has ls_http1_user_bytes of
 * room. */
void ls_http1_start(ls_thread_ctx *ctx, ls_stream *s, void *engine);
extern const size_t ls_http1_user_bytes;
size_t ls_http1_room(const ls_http_config *config); /* the same, of an engine with these limits */

extern const ls_transport ls_http1_transport; /* of all exchanges of HTTP/1.1 */

/* Queue a 400 that says that the port expects https, and record it; for ls_acceptor_service_options. LS_OK or
 * LS_ENOMEM. */
int ls_http1_refuse_plain(ls_thread_ctx *ctx, ls_stream *s, void *engine, ls_text received);

/* The address of the listener, which is the local address of its requests unless it is that of all interfaces. Call it
 * before the first connection. */
void ls_http1_local(ls_http_engine *engine, const ls_addr *local);

#endif
