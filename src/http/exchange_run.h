/* exchange_run.h - a handler's turn: the start of an exchange, its wake-ups, and the release.
 *
 *     start --> the handler --> released: transport->returned ends the exchange
 *       |            \--------> waits:    transport->returned sends what is queued; ls_exchange_wake --> the handler
 *       \--> no actor is free: x->op starts it again, inside x->actor
 *
 * A release inside the handler is only noted, so that the transport ends the exchange and runs the next request when
 * the stack of the handler is unwound. */
#ifndef LS_HTTP_EXCHANGE_RUN_H
#define LS_HTTP_EXCHANGE_RUN_H

#include "http/exchange.h"
#include "sched/actor.h"

/* For ls_exchange_start: the handler has not released the exchange. */
void ls_exchange_started(ls_thread_ctx *ctx, ls_exchange *x);

/* Start `x` with x->handler. true: the handler has released it, and the caller does what `returned` does then. false:
 * it continues later, and another thread may own it now. */
static inline bool ls_exchange_start(ls_thread_ctx *ctx, ls_exchange *x)
{
    x->released = false;
    x->running = true;
    x->handler->start(x->handler, ctx, x);
    x->running = false;
    if (x->released) return true;
    ls_exchange_started(ctx, x);
    return false;
}

/* Leave the actor that a start has entered: the last step of a thread that was outside of every actor before. */
static inline void ls_exchange_leave(ls_thread_ctx *ctx)
{
    if (ctx->inside != NULL) ls_actor_leave(ctx->inside, ctx);
}

/* Resume the handler, inside x->actor. */
void ls_exchange_wake(ls_thread_ctx *ctx, ls_exchange *x);

/* The handler returns the exchange: pointers into the request become invalid. */
static inline void ls_exchange_release(ls_thread_ctx *ctx, ls_exchange *x)
{
    x->released = true;
    if (!x->running) x->transport->returned(ctx, x);
}

#endif
