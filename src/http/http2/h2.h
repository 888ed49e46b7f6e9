/* h2.h - the HTTP server of one listener on streams, of all versions: the engine of http1.h with HTTP/2 (RFC 9113). A
 * connection has one version: over TLS the one that ALPN has negotiated, on plain connections HTTP/1.1 or, with
 * config->http2, what the client begins with (RFC 9113 section 3.3). nghttp2 reads and writes the frames; a build
 * without it has h2_none.c, which serves HTTP/1.1 alone.
 *
 * Many requests of a connection are under way at a time, each in a Lua state of its own; a slow one delays no other. */
#ifndef LS_HTTP_HTTP2_H2_H
#define LS_HTTP_HTTP2_H2_H

#include "http/http1.h"

/* As ls_http1_open. */
int ls_h2_open(const ls_http_config *config, const ls_http_handler *handler, ls_conn_limit *limit, unsigned threads,
               ls_http_engine **out);

const char *ls_h2_library(void); /* "nghttp2 1.52.0", for --version; NULL: not built in */

#endif
