/* dial.h - a client connection: look the name up, race its addresses, connect, TLS; then a stream.
 *
 * The addresses are tried in the order of RFC 8305: those of IPv6 and IPv4 alternate, an attempt begins 250 ms after
 * the previous one or when that one failed, the first connection wins and the others are closed. One deadline applies
 * to everything. All calls and callbacks run inside one actor. */
#ifndef LS_NET_DIAL_H
#define LS_NET_DIAL_H

#include "net/names/resolver.h"
#include "net/stream/stream.h"
#include "net/tls/tls.h"

typedef struct ls_dial ls_dial;

typedef struct ls_dial_options {
    ls_port *port;
    ls_deadlines *deadlines;
    ls_actor *actor;  /* of the stream, too */
    const char *host; /* a name, an address, or "unix:/path"; copied */
    uint16_t port_number;
    bool public_only;        /* other addresses are refused: LS_EACCES; see ls_addr_is_public */
    uint32_t ms_max;         /* for everything; 0: no limit */
    ls_tls *tls;             /* NULL: plain; held */
    const char *server_name; /* of TLS: NULL: host; copied */
    const ls_stream_handler *handler;
    size_t user_bytes;
    _Atomic uint32_t
        *live; /* NULL, or counts what still waits for packets: dials, also ended ones, and sockets that lost
                             * the race. The port may be closed when it is 0 again */
} ls_dial_options;

/* The end: a connected stream, to which nothing is posted, or an error: LS_ENOENT and others of a look-up (then
 * dial_phase is LS_DIAL_NAME), LS_EREFUSED, LS_ETIMEDOUT, LS_ECERT, ... of the last attempt. The dial is freed when it
 * returns. */
enum ls_dial_phase { LS_DIAL_NAME, LS_DIAL_CONNECT, LS_DIAL_TLS };
typedef struct ls_dial_result {
    ls_stream *stream; /* NULL: failed */
    int err;
    enum ls_dial_phase phase; /* that failed */
    const char *why;          /* of TLS, valid until the callback returns; "" */
} ls_dial_result;
typedef void ls_dial_fn(ls_thread_ctx *ctx, void *user, const ls_dial_result *result);

/* `resolver` is opened at the first use by the caller; NULL is fine for numeric addresses and Unix paths, and makes a
 * name LS_EINVAL. The callback always comes later, never from inside this call. LS_OK; LS_EINVAL: no valid host;
 * LS_ELIMIT: the Unix path is too long; LS_ENOMEM. */
int ls_dial_start(ls_thread_ctx *ctx, const ls_dial_options *options, ls_resolver *resolver, ls_dial_fn *done,
                  void *user, ls_dial **out);
/* Cancel: no callback follows. */
void ls_dial_cancel(ls_thread_ctx *ctx, ls_dial *dial);
/* Free a dial that has not ended. No thread runs any more and the port is closed; the resolver is still there. */
void ls_dial_free(ls_dial *dial);

#endif
