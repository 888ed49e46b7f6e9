/* protocol.h - a protocol of the load generator; protocols.h lists them.
 *
 * A protocol composes the bytes of requests and consumes the bytes of responses. Its functions run in the worker's
 * thread. Where one returns bool, false means that the connection is unusable: the function has counted the error and
 * has closed the connection. */
#ifndef LS_STRESS_PROTOCOL_H
#define LS_STRESS_PROTOCOL_H

#include "stress/load/vu.h"

typedef struct ls_stress_proto {
    bool (*opened)(ls_stress_vu *u);                                  /* connected; may be NULL */
    bool (*received)(ls_stress_vu *u, const char *bytes, size_t len); /* bytes of a stream, or one datagram */
    void (*peer_closed)(ls_stress_vu *u);                             /* the peer closed its sending side */
    bool (*compose)(ls_stress_vu *u, uint32_t count);                 /* output the bytes of `count` requests */
    void (*closed)(ls_stress_vu *u); /* the socket closes: drop partial input; may be NULL */
    void (*sent)(ls_stress_vu *u);   /* a pending send succeeded; may be NULL */
    void (*free)(ls_stress_vu *u);   /* free the protocol's memory; may be NULL */
    void (*start)(ls_stress_vu *u);  /* NULL: compose and send; else start the one request that was recorded */
    /* WebSocket (ws_frames.h): the next bytes of a message, whose kind is u->ws->text. `last`: it ends with them,
     * which may be none. NULL: messages are ignored. */
    bool (*message)(ls_stress_vu *u, const char *bytes, size_t len, bool last);
    /* The handshake of WebSocket is part of the connect: send its request. LS_DONE, LS_PENDING or LS_E*. `received`
     * calls ls_stress_vu_upgraded(). NULL: another protocol. */
    int (*upgrade)(ls_stress_vu *u);
} ls_stress_proto;

#endif
