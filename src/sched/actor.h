/* actor.h - exclusive access by inbox: whoever holds the actor drains what others put in.
 *
 * An actor needs one thread at a time, not a particular one. Packets pinned to it (op->actor) are put in its inbox.
 * If nobody holds it, the poster takes it and runs them; else the holder sees them before it leaves. A thread that is
 * inside one actor never enters a second: it leaves a note in the port, and any thread comes to drain.
 *
 *     held == 0  =>  inbox and ready are empty, or somebody is about to enter
 *
 * A long inbox is drained in runs of LS_ACTOR_RUN_MAX, with a note for the rest, so that the thread looks at the port
 * between them. Any thread. Ops run in the order in which they were posted. An actor ends after the last packet that
 * could name it, its note included. */
#ifndef LS_SCHED_ACTOR_H
#define LS_SCHED_ACTOR_H

#include "port/port.h"

enum { LS_ACTOR_RUN_MAX = 64 }; /* ops that one leave runs */

struct ls_actor {
    _Atomic int held;
    _Atomic(ls_op *) inbox; /* newest first; reversed when it is drained */
    ls_op *ready;           /* the holder's: drained, oldest first, not yet run */
    _Atomic int noted;      /* the note is in the port's queue */
    ls_op note;
};

void ls_actor_init(ls_actor *actor);

/* Enter if nobody holds it and this thread is in none (thread context->inside is NULL). */
bool ls_actor_try_enter(ls_actor *actor, ls_thread_ctx *ctx);

/* Drain the inbox and leave. The calling thread holds the actor, and is not inside one of its ops. */
void ls_actor_leave(ls_actor *actor, ls_thread_ctx *ctx);

/* Give the op (done set, result set) to the actor; op->done(thread context, op) runs inside it, perhaps before this returns
 * when the calling thread is inside no actor. */
void ls_actor_post(ls_actor *actor, ls_thread_ctx *ctx, ls_op *op);

#endif
