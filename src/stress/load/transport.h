/* transport.h - the connection of a virtual user (vu.h): a stream, plain or over TLS (transport_stream.c), a stream of
 * a shared HTTP/2 connection (transport_h2_nghttp2.c), or a socket for datagrams (transport_udp.c). The plan decides
 * which one all virtual users of a run have.
 *
 * Results arrive through ls_stress_vu_connected(), _sent(), _received() and _released(), which packets call; the
 * functions below never call the first three. */
#ifndef LS_STRESS_TRANSPORT_H
#define LS_STRESS_TRANSPORT_H

#include "stress/load/vu.h"

typedef struct ls_stress_transport {
    /* Connect. LS_DONE; LS_PENDING: ls_stress_vu_connected() follows; or LS_E*. Sets u->attached if there is a socket
     * to close, also with an error. */
    int (*open)(ls_stress_vu *u);
    /* Virtual users share connections, which the transport counts. Called by ls_stress_vu_connected() without an error:
     * LS_OK; LS_PENDING: that function is called again; or LS_E*. NULL: each virtual user has a connection. */
    int (*ready)(ls_stress_vu *u);
    /* Append to the output: a copy of the bytes, or bytes that stay valid. False: out of memory. */
    bool (*put)(ls_stress_vu *u, const char *bytes, size_t len);
    bool (*put_static)(ls_stress_vu *u, const char *bytes, size_t len);
    /* Send the output. LS_DONE; LS_PENDING: ls_stress_vu_sent() follows; or LS_E*. */
    int (*send)(ls_stress_vu *u);
    /* LS_DONE: *result is as of ls_stress_vu_received(); LS_PENDING: that function follows; or LS_E*. */
    int (*receive)(ls_stress_vu *u, int64_t *result);
    /* Pass received data (result > 0, directly after its receive) to the protocol. False: the connection closes. */
    bool (*deliver)(ls_stress_vu *u, int64_t result);
    /* ls_stress_vu_released() follows, perhaps before this returns. */
    void (*close)(ls_stress_vu *u);
    void (*free)(ls_stress_vu *u); /* no thread runs, the port is closed */
} ls_stress_transport;

extern const ls_stress_transport ls_stress_stream_transport, ls_stress_udp_transport;
extern const ls_stress_transport *const ls_stress_h2_transport; /* NULL: not built in */

/* ---- called by a transport, from a packet ----------------------------------------------------------------------- */

/* LS_OK, LS_E*, or LS_PENDING: no effect, because the call follows later. */
void ls_stress_vu_connected(ls_stress_vu *u, int err);
void ls_stress_vu_sent(ls_stress_vu *u, int err);
/* More than 0: data; 0: the end of the stream; or LS_E*. */
void ls_stress_vu_received(ls_stress_vu *u, int64_t result);
/* The socket is closed, and no packet is pending. */
void ls_stress_vu_released(ls_stress_vu *u);

#endif
