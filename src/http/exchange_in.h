/* exchange_in.h - the body of a request: its limit, its end, and what an error of it means, once, above every
 * transport.
 *
 * A transport decodes (`more` in exchange.h) and gives one slice at a time, only when the handler asks: so the client
 * is stopped while the handler does not read. A body that cannot be read on closes the connection after the response,
 * because the start of the next request is unknown. Thread: inside x->actor. */
#ifndef LS_HTTP_EXCHANGE_IN_H
#define LS_HTTP_EXCHANGE_IN_H

#include "http/exchange.h"

/* Get the next body bytes: LS_DONE with *out, which the caller drops; length 0: the body is complete. LS_PENDING: call
 * again in x->wake. LS_EMSGSIZE: it is longer than x->body_bytes_max; LS_EPROTO: it is invalid; LS_ETIMEDOUT or
 * LS_ENOMEM with x->error 0: it cannot be read on, but the response can be sent; else x->error: the connection is
 * lost. */
int ls_exchange_read(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *out);

/* Get the next trailer of the request (RFC 9110 section 6.5). *at is 0 at first; false: no more, or the body is
 * not complete. Those that have no effect as trailers (ls_http_is_trailer) are passed over. */
bool ls_exchange_next_trailer(const ls_exchange *x, size_t *at, ls_pair *out);

/* For a transport and a proxy: add lines "Name: value\r\n", whole or in pieces, that are known to be valid, to *to,
 * such as x->trailers (NULL: none yet); white space around a value is not part of it. An empty line is the end. The
 * caller limits their bytes. LS_OK or LS_ENOMEM. */
int ls_trailers_add(ls_thread_ctx *ctx, ls_block **to, const char *lines, size_t len);
/* As ls_exchange_next_trailer, of complete lines; NULL: none. */
bool ls_trailers_next(const ls_block *lines, size_t *at, ls_pair *out);

/* From now on the connection is lost when the client ends its direction, too: for a client that does not do so while
 * it reads the response. Without effect before the body has arrived: read, or received with the head. LS_OK, or the
 * error: it is lost. */
int ls_exchange_expect_end(ls_thread_ctx *ctx, ls_exchange *x);

#endif
