/* echo.h - what the echo protocols share: on a stream or as a datagram (echo.c), and as a WebSocket (ws_echo.c).
 *
 * The message is the plan's; numbered messages are "<i>. Thread <t> - <message>", where i counts the messages of
 * connection t, both from 1. The expected message is computed from its number, so sent messages are not stored. */
#ifndef LS_STRESS_ECHO_H
#define LS_STRESS_ECHO_H

#include "stress/load/vu.h"

enum { LS_STRESS_ECHO_NUMBER_BYTES_MAX = 48 }; /* of "<i>. Thread <t> - " */

/* Make room for numbered messages. False: out of memory; the error is counted and the connection closes. */
bool ls_stress_echo_reserve(ls_stress_vu *u);

/* Write message i (from 0) with its number, in at most LS_STRESS_ECHO_NUMBER_BYTES_MAX + message_len bytes. Returns
 * the length. */
size_t ls_stress_echo_write(const ls_stress_vu *u, uint64_t i, char *to);

/* The whole message that the next echo must equal; sets u->echo.len. Call when u->echo.at is 0, and later for the same
 * message. */
const char *ls_stress_echo_expected(ls_stress_vu *u);

/* The echo is complete. False: the connection closes. */
bool ls_stress_echo_complete(ls_stress_vu *u, const char *expected);

/* The echo differs: count the error and close the connection. Returns false. */
bool ls_stress_echo_mismatch(ls_stress_vu *u, const char *bytes, size_t len);

void ls_stress_echo_closed(ls_stress_vu *u); /* echoes of sent messages do not arrive on another connection */

#endif
