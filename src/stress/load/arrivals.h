/* arrivals.h - which virtual user sends when. All functions run in the worker's thread.
 *
 * Closed loop: a virtual user sends its next request when a response has completed and its script's delay has passed.
 * Open loop: a timer dispatches due requests to idle virtual users, in the order in which these became idle. Due
 * requests that find no idle virtual user wait; their latency counts from the due time. */
#ifndef LS_STRESS_ARRIVALS_H
#define LS_STRESS_ARRIVALS_H

#include "stress/load/worker.h"

/* The virtual user may have room for a request: closed loop sends one at once; open loop dispatches a waiting one, or
 * lists the virtual user as idle. */
void ls_stress_arrivals_vu_ready(ls_stress_worker *w, ls_stress_vu *u);

/* Open loop: dispatch all due requests to idle virtual users, and set the timer for the next one. */
void ls_stress_arrivals_dispatch(ls_stress_worker *w);

/* Open loop, at the end: count due requests that were not sent. Their ages are corrected latencies. */
void ls_stress_arrivals_count_unsent(ls_stress_worker *w);

/* Completions: of the worker's arrival timer; of a virtual user's delay, of its ls_stress_timer. */
void ls_stress_arrivals_on_timer(ls_thread_ctx *ctx, ls_op *op);
void ls_stress_arrivals_on_delay(ls_thread_ctx *ctx, ls_op *op);

#endif
