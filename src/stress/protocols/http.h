/* http.h - the HTTP/1.1 protocol, as far as that of a publisher over server-sent events has it (fanout_sse.c). */
#ifndef LS_STRESS_HTTP_H
#define LS_STRESS_HTTP_H

#include "stress/load/vu.h"

/* Of ls_stress_proto. */
bool ls_stress_http_received(ls_stress_vu *u, const char *bytes, size_t len);
void ls_stress_http_peer_closed(ls_stress_vu *u);
void ls_stress_http_closed(ls_stress_vu *u); /* drop a partial response: the next bytes begin one */

/* Build the CRC-32 table. Call once, before any worker runs. */
void ls_stress_http_init(void);

#endif
