/* vu_handshake.h - the TLS handshake of a virtual user, on its stream. The worker counts and times handshakes apart from
 * connects and requests. */
#ifndef LS_STRESS_HANDSHAKE_H
#define LS_STRESS_HANDSHAKE_H

#include "stress/load/vu.h"

/* Begin with a connected stream; u->stream has the handler of the transport, which comes back at the end. The time
 * limit of the connect includes the handshake. LS_DONE: the stream encrypts; LS_PENDING: ls_stress_vu_connected()
 * follows; or LS_E*, counted. */
int ls_stress_handshake(ls_stress_vu *u, const ls_stream_handler *then);

/* The connection closes: drop the session of a handshake that is not complete. */
void ls_stress_handshake_drop(ls_stress_vu *u);

#endif
