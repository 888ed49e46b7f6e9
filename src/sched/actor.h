/* actor.h - mutual exclusion with an inbox: the thread that holds an actor runs the ops that others post to it.
 *
 * One thread at a time is inside an actor, but not always the same one. A packet pinned to an actor (op->actor) is put
 * into its inbox. If the actor is free, the poster enters it and runs the ops; otherwise the holder runs them before
 * it leaves. A thread inside one actor never enters a second: it posts the actor's wake-up packet to the port, and the
 * thread that takes the packet drains the inbox.
 *
 *     held == 0  =>  inbox and ready are empty, or a thread is about to enter
 *
 * One leave runs at most LS_ACTOR_RUN_MAX ops and posts a wake-up for the rest, so that the thread returns to the port
 * between the runs. Ops run in the order in which they were posted. Any thread may call these functions. An actor may
 * be freed after the last packet that refers to it, its wake-up included: `pins` counts those that outlive the work
 * that has posted them. */
#ifndef LS_SCHED_ACTOR_H
#define LS_SCHED_ACTOR_H

#include "port/port.h"

enum { LS_ACTOR_RUN_MAX = 64 }; /* maximum number of ops per leave */

struct ls_actor {
    _Atomic int held;
    _Atomic unsigned pins; /* packets on their way that no task of the actor waits for */
    _Atomic(ls_op *) inbox;    /* newest first; reversed when drained */
    ls_op *ready;              /* used by the holder: drained ops that have not run, oldest first */
    _Atomic int wakeup_queued; /* the wake-up is in the port's queue */
    ls_op wakeup;
};

void ls_actor_init(ls_actor *actor);

/* Enter if the actor is free and this thread is inside no actor (ctx->inside is NULL). */
bool ls_actor_try_enter(ls_actor *actor, ls_thread_ctx *ctx);

/* Whether ops wait in the inbox. The calling thread holds the actor. */
static inline bool ls_actor_has_waiting(const ls_actor *actor)
{
    return actor->ready != NULL || atomic_load_explicit(&actor->inbox, memory_order_relaxed) != NULL;
}

/* Run the ops in the inbox and leave. The calling thread holds the actor and is not inside one of its ops. */
void ls_actor_leave(ls_actor *actor, ls_thread_ctx *ctx);

/* Post the op, whose done and result are set. op->done(ctx, op) runs inside the actor; if the calling thread is inside
 * no actor, it may run before this returns. */
void ls_actor_post(ls_actor *actor, ls_thread_ctx *ctx, ls_op *op);

/* The same for a caller that does not know its thread context: op->done runs later, at the end of what the thread
 * inside the actor does now, or from the port's queue. */
void ls_actor_post_later(ls_actor *actor, ls_port *port, ls_op *op);

/* Handle a packet that ls_port_wait returned: call op->done, or post the operation to its actor. The packet has an
 * operation: the caller handles posts without one by their key. */
void ls_packet_dispatch(ls_thread_ctx *ctx, const ls_packet *packet);

#endif
