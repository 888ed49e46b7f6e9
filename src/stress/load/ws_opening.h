/* ws_opening.h - the handshake of WebSocket of a virtual user, on its stream (RFC 6455 section 4.1). The worker counts
 * and times these handshakes apart from connects and from messages. */
#ifndef LS_STRESS_UPGRADE_H
#define LS_STRESS_UPGRADE_H

#include "stress/load/vu.h"

/* Begin with a connected stream with ls_stress_stream_handler; u->step becomes LS_STRESS_STEP_UPGRADE. The time limit
 * of the connect includes the handshake. LS_DONE: the connection is a WebSocket; LS_PENDING: ls_stress_vu_connected()
 * follows; or LS_E*, counted. */
int ls_stress_upgrade(ls_stress_vu *u);

#endif
