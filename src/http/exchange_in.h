/* exchange_in.h - the body of a request: its limit, its end, and what an error of it means, once, above every transport.
 *
 * A transport decodes (`more` in exchange.h) and gives one slice at a time, only when the handler asks: so the client is
 * stopped while the handler does not read. A body that cannot be read on closes the connection after the response,
 * because the begin of the next request is unknown. Thread: inside x->actor. */
#ifndef LS_HTTP_EXCHANGE_IN_H
#define LS_HTTP_EXCHANGE_IN_H

#include "http/exchange.h"

/* Get the next body bytes: LS_DONE with *out, which the caller drops; length 0: the body is complete. LS_PENDING: call
 * again in x->wake. LS_EMSGSIZE: it is longer than x->body_bytes_max; LS_EPROTO: it is invalid; LS_ETIMEDOUT or LS_ENOMEM
 * with x->error 0: it cannot be read on, but the response can be sent; else x->error: the connection is lost. */
int ls_exchange_read(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *out);

/* From now on the connection is lost when the client ends its direction, too: for a client that does not do so while it
 * reads the response. Without effect before the body is read. LS_OK, or the error: it is lost. */
int ls_exchange_expect_end(ls_thread_ctx *ctx, ls_exchange *x);

#endif
