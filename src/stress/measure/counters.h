/* counters.h - the counters of one thread of the load generator.
 *
 * Each thread has its own counters and is their only writer; the sampler (lua/luaserve/stress/sampler.lua) reads all
 * of them at any time. So
 * the counters are relaxed atomics, and plain additions for their writer. Checks by name are separate (checks.h): they
 * are read after the thread has ended. */
#ifndef LS_STRESS_COUNTERS_H
#define LS_STRESS_COUNTERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/counter.h"
#include "stress/measure/histogram.h"

/* X(identifier, name in reports, explanation) */
#define LS_STRESS_ERRORS(X)                                                           \
    X(CONNECT, "connect", "a connect failed")                                         \
    X(TLS, "tls", "a TLS handshake failed")                                           \
    X(HANDSHAKE, "handshake", "a WebSocket handshake failed")                         \
    X(SUBSCRIBE, "subscribe", "a subscriber received no message before the run")      \
    X(READ, "read", "a connection closed or failed before the response was complete") \
    X(WRITE, "write", "a request could not be sent")                                  \
    X(TIMEOUT, "timeout", "no complete response within the time limit")               \
    X(UNANSWERED, "unanswered", "no complete response when the run ended")            \
    X(ANSWER, "answer", "an invalid response, or an echo that differs")               \
    X(SCRIPT, "script", "the script raised an error")                                 \
    X(BODY, "body", "a body longer than --max-body, the limit for scripts")           \
    X(CHECK, "check", "a complete response that failed an expectation or a check")

typedef enum ls_stress_error {
#define X(id, name, text) LS_STRESS_ERROR_##id,
    LS_STRESS_ERRORS(X)
#undef X
        LS_STRESS_ERROR_KINDS
} ls_stress_error;

enum { LS_STRESS_STATUS_MAX = 999 }; /* an HTTP status has three digits (RFC 9110 15) */

/* The codes of Close frames (RFC 6455 section 7.4), with 1005 (no code) and 1006 (no Close frame). */
enum { LS_STRESS_CODE_MIN = 1000, LS_STRESS_CODE_MAX = 4999, LS_STRESS_CODE_COUNT = 4000 };

typedef struct ls_stress_counters {
    _Atomic uint64_t requests;    /* completed, of any status; rates count these */
    _Atomic uint64_t bytes_in;    /* received, heads included */
    _Atomic uint64_t bytes_out;   /* sent, heads included */
    _Atomic uint64_t connections; /* open at this moment */
    _Atomic uint64_t connects;    /* since the start, reconnects included */
    /* Set at the end. Open loop: requests that were due and not sent; how long the first of these had waited or, if
     * all were sent, how late the last one was sent. */
    _Atomic uint64_t unsent;
    _Atomic uint64_t late_ns;
    _Atomic uint64_t wanted_ns; /* set at the end: CPU time used or waited for (ls_thread_wanted_ns) */
    _Atomic uint64_t checks_failed;
    _Atomic uint64_t
        unreceived; /* rounds of a scenario that have returned although their first receive failed: the server
                     * closed */
    _Atomic uint64_t errors[LS_STRESS_ERROR_KINDS];
    _Atomic uint64_t status[LS_STRESS_STATUS_MAX + 1]; /* responses by status code; [0]: the protocol has no status */
    ls_histogram *sent; /* from the send to the response; the latency of a closed loop */
    ls_histogram *due;  /* from the due time to the response; NULL in a closed loop */
    /* From the due time to the moment at which the load generator noticed it; NULL in a closed loop. The wait for an
     * idle connection is not included: the server causes that wait, and `due` contains it. */
    ls_histogram *lag;
    /* At the end of a closed loop, the time since the send of each outstanding request, or for which a scenario has
     * waited for the server; else NULL. The sampler counts the long ones as LS_STRESS_ERROR_UNANSWERED. */
    ls_histogram *waiting;
    _Atomic uint64_t longest_wait_ns; /* of the waits of scenarios that have ended */
    _Atomic uint64_t handshakes_full, handshakes_resumed, handshakes_failed; /* of TLS; of all connects */
    ls_histogram *handshake;                    /* from the connect to the end of the handshake; NULL without TLS */
    _Atomic uint64_t upgrades, upgrades_failed; /* handshakes of WebSocket; of all connects */
    _Atomic uint64_t deflated;                  /* of these, with permessage-deflate */
    ls_histogram *upgrade;                      /* from the request to the response; NULL: not WebSocket */
    /* Fan-out: messages sent; of their deliveries those expected and those lost, set at the end; deliveries after a
     * later one, deliveries again; messages that are not of this run. `requests` counts deliveries, without duplicated
     * ones. */
    _Atomic uint64_t published, expected, lost, reordered, duplicated, foreign;
    _Atomic uint64_t codes[LS_STRESS_CODE_COUNT]; /* ends of WebSockets by the server, by their code */
} ls_stress_counters;

/* Zero the counters and open the histograms: `due` and `lag` only for an open loop, `waiting` only for a closed one,
 * `handshake` only for TLS, `upgrade` only for WebSocket. LS_OK or LS_ENOMEM. */
int ls_stress_counters_open(ls_stress_counters *c, bool open_loop, bool tls, bool websocket);
void ls_stress_counters_close(ls_stress_counters *c);

/* "connect", "read", ...; and a one-line explanation. Static strings. */
const char *ls_stress_error_name(ls_stress_error kind);
const char *ls_stress_error_text(ls_stress_error kind);

#endif
