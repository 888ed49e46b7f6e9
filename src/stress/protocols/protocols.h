/* protocols.h - the protocols (protocol.h), and which of them a run has. That of scenarios is in scenario.h. */
#ifndef LS_STRESS_PROTOCOLS_H
#define LS_STRESS_PROTOCOLS_H

#include "stress/load/protocol.h"
#include "stress/plan/plan.h"

extern const ls_stress_proto ls_stress_http_proto, ls_stress_echo_proto, ls_stress_ws_echo_proto, ls_stress_hold_proto,
    ls_stress_ws_hold_proto, ls_stress_ws_cycle_proto, ls_stress_sse_subscriber_proto, ls_stress_sse_publisher_proto,
    ls_stress_ws_subscriber_proto, ls_stress_ws_publisher_proto;

/* HTTP/1.1, as far as that of a publisher over server-sent events has it (fanout_sse.c). */
bool ls_stress_http_received(ls_stress_vu *u, const char *bytes, size_t len);
void ls_stress_http_peer_closed(ls_stress_vu *u);
void ls_stress_http_closed(ls_stress_vu *u); /* drop a partial response: the next bytes begin one */

/* Build the CRC-32 table. Call once, before any worker runs. */
void ls_stress_http_init(void);

/* Of the virtual users of a run; of a fan-out run that of its subscribers, and that of its publishers. */
const ls_stress_proto *ls_stress_protocol(const ls_stress_plan *plan);
const ls_stress_proto *ls_stress_publisher_protocol(const ls_stress_plan *plan);

#endif
