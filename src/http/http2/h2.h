/* h2.h - the HTTP/2 server of one listener, on streams (RFC 9113). nghttp2 reads and writes the frames; a build
 * without it has h2_none.c, which opens no engine.
 *
 * Many requests of a connection are under way at a time, each in a Lua state of its own; a slow one delays no other. */
#ifndef LS_HTTP_HTTP2_H2_H
#define LS_HTTP_HTTP2_H2_H

#include "http/http_engine.h"
#include "net/listener.h"
#include "net/stream/stream.h"

/* As ls_http1_open. Also LS_ENOTSUP: built without nghttp2. */
int ls_h2_open(const ls_http_config *config, const ls_http_handler *handler, ls_conn_limit *limit, unsigned threads,
               ls_http_engine **out);

/* As ls_http1_start. `received`, which may be empty, are the first bytes of the client; its reference is taken. */
void ls_h2_start(ls_thread_ctx *ctx, ls_stream *s, ls_http_engine *engine, ls_slice received);

/* As ls_http1_local. */
void ls_h2_local(ls_http_engine *engine, const ls_addr *local);

const char *ls_h2_library(void); /* "nghttp2 1.52.0", for --version; NULL: not built in */

#endif
