/* http_server.h - the HTTP server of one listener on streams, of all versions: an engine that joins those of HTTP/1.1
 * (http1.h) and HTTP/2 (http2/h2.h). A connection has one version: over TLS the one that ALPN has negotiated, on plain
 * connections HTTP/1.1 or, with config->http2, what the client begins with (RFC 9113 section 3.3). */
#ifndef LS_HTTP_HTTP2_HTTP_SERVER_H
#define LS_HTTP_HTTP2_HTTP_SERVER_H

#include "base/text.h"
#include "http/http_engine.h"
#include "net/listener.h"
#include "net/stream/stream.h"

/* As ls_http1_open. A build without HTTP/2 serves HTTP/1.1 alone. */
int ls_http_server_open(const ls_http_config *config, const ls_http_handler *handler, ls_conn_limit *limit,
                        unsigned threads, ls_http_engine **out);

/* The start of a protocol (net/acceptor.h): `server` is the ls_http_engine. The stream has ls_http1_user_bytes of room,
 * which is more than HTTP/2 needs. */
void ls_http_server_start(ls_thread_ctx *ctx, ls_stream *s, void *server);

/* As ls_http1_refuse_plain, for ls_acceptor_service_options. */
int ls_http_server_refuse_plain(ls_thread_ctx *ctx, ls_stream *s, void *server, ls_text received);

/* As ls_http1_local. */
void ls_http_server_local(ls_http_engine *server, const ls_addr *local);

#endif
