/* counters.h - what one thread of the load engine counts while it runs.
 *
 * Each thread has its own and is the only one that writes it; the reporter reads all of them at any time (sampler.h). The
 * counters are relaxed atomics for that reason, and plain additions for their writer. Checks by name are kept aside
 * (checks.h): they are read when the thread has ended. */
#ifndef LS_STRESS_COUNTERS_H
#define LS_STRESS_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/counter.h"
#include "stress/histogram.h"

/* X(identifier, name in reports, what it means) */
#define LS_STRESS_ERRORS(X)                                                            \
    X(CONNECT, "connect", "a connection could not be made")                            \
    X(READ, "read", "a connection ended or failed while an answer was due")            \
    X(WRITE, "write", "a request could not be sent")                                   \
    X(TIMEOUT, "timeout", "no whole answer within the time limit")                     \
    X(ANSWER, "answer", "an answer that breaks its protocol, or is not what was sent") \
    X(SCRIPT, "script", "the script raised an error")

typedef enum ls_stress_error {
#define X(id, name, text) LS_STRESS_ERROR_##id,
    LS_STRESS_ERRORS(X)
#undef X
        LS_STRESS_ERROR_KINDS
} ls_stress_error;

enum { LS_STRESS_STATUS_MAX = 999 }; /* an HTTP status has three digits (RFC 9110 15) */

typedef struct ls_stress_counters {
    _Atomic uint64_t requests;    /* answered in full, whatever the status; this is what rates are made of */
    _Atomic uint64_t bytes_in;    /* received, heads included */
    _Atomic uint64_t bytes_out;   /* sent, heads included */
    _Atomic uint64_t connections; /* open at this moment */
    _Atomic uint64_t connects;    /* made since the start, reconnects included */
    _Atomic uint64_t unsent;      /* open loop: were due before the end and have not been sent. Set at the end */
    _Atomic uint64_t
        behind_ns; /* open loop: how long the first of these had waited, or, when all were sent, how late the
                                   * last one was. Set at the end */
    _Atomic uint64_t wanted_ns; /* processor time that the thread had or waited for (ls_thread_wanted_ns). Likewise */
    _Atomic uint64_t checks_failed;
    _Atomic uint64_t errors[LS_STRESS_ERROR_KINDS];
    _Atomic uint64_t status[LS_STRESS_STATUS_MAX + 1]; /* answers by status code; 0 where the protocol has none */
    ls_histogram *sent;                                /* answer - actual send. In closed loop this is the latency */
    ls_histogram *due;                                 /* answer - moment the request was due; NULL in closed loop */
    ls_histogram *lag; /* moment the engine turned to a request - moment it was due; NULL in closed loop. Waiting for a
                         * connection to become free is not lag: that is the server's doing and is in `due` */
} ls_stress_counters;

/* Open the histograms and zero the rest; `open_loop` decides whether there are `due` and `lag`. LS_OK or LS_ENOMEM. */
int ls_stress_counters_open(ls_stress_counters *c, int open_loop);
void ls_stress_counters_close(ls_stress_counters *c);

/* "connect", "read", ...; and one line that explains it. Static texts. */
const char *ls_stress_error_name(ls_stress_error kind);
const char *ls_stress_error_text(ls_stress_error kind);

#endif
