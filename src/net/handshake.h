/* handshake.h - the handshake of TLS over a stream: receives and sends, one after the other, never both pending.
 *
 * The handler of the stream belongs to the caller, who passes the results of its callbacks on. Nothing is queued and
 * no operation is pending before the start and after the end. The caller sets the deadlines of the stream. Threads: as
 * for the stream. */
#ifndef LS_NET_HANDSHAKE_H
#define LS_NET_HANDSHAKE_H

#include "net/stream/stream.h"
#include "net/tls/tls.h"

typedef struct ls_handshake { /* zeroed: not open */
    ls_filter *session;       /* NULL: not open, or the stream owns it */
    int status;               /* the last result of ls_tls_handshake; LS_EAGAIN: it continues */
    bool fed;                 /* the session has input that it has not seen */
} ls_handshake;

/* Read changed files of the context again (ls_tls_reload), and log a failure or a warning. Any thread. */
void ls_handshake_refresh(ls_tls *tls);

/* server_name: as for ls_tls_session, and so is the result. */
int ls_handshake_open(ls_handshake *h, ls_tls *tls, const char *server_name);
void ls_handshake_close(ls_handshake *h); /* does nothing if it is not open */

/* Begin. LS_PENDING: an operation is pending; its callback continues with one of the next two functions. LS_DONE: the
 * session is the filter of the stream. LS_E*: failed, of the session (then the alert was sent) or of the stream. */
int ls_handshake_begin(ls_thread_ctx *ctx, ls_stream *s, ls_handshake *h);
int ls_handshake_received(ls_thread_ctx *ctx, ls_stream *s, ls_handshake *h, int64_t result);
int ls_handshake_sent(ls_thread_ctx *ctx, ls_stream *s, ls_handshake *h, int err);

/* The reason of the failure `err`, until the close; "": the error says it all. */
const char *ls_handshake_why(const ls_handshake *h, int err);

/* For a caller with a loop of its own: continue the handshake with what the session was fed, and queue its output.
 * *status receives the result of ls_tls_handshake. LS_OK, or LS_ENOMEM: output was dropped. */
int ls_handshake_step(ls_thread_ctx *ctx, ls_stream *s, ls_filter *session, int *status);

#endif
