/* actor.c - the lock-free inbox of actor.h, and ls_packet_dispatch.
 *
 * No wake-up is lost. All accesses named here are sequentially consistent, so they have one total order S.
 *
 *     poster:  P1 push on the inbox              holder:  H1 held = 0
 *              P2 read held                               H2 read the inbox
 *
 * If P2 finds the actor held, it read a value older than that holder's H1, so P1 < P2 < H1 < H2 in S: H2 finds the op
 * (or another holder has drained it since) and the holder enters again for it. If P2 finds it free, the poster enters
 * it; a poster that is inside another actor makes sure that the wake-up packet is in the port's queue:
 *
 *     poster:  P3 exchange wakeup_queued for 1   receiver of the wake-up:  R1 wakeup_queued = 0
 *              post the wake-up if it was 0                                R2 enter and drain
 *
 * If P3 finds 1, the R1 of this wake-up comes later in S, so P1 < P3 < R1 < R2: the receiver sees the op, or fails to
 * enter after P1: then the holder drains, which is the first case again. Only the thread that changed 0 to 1 posts the
 * wake-up, and R1 happens after the wake-up has left the queue: it is queued at most once at a time. */
#include "sched/actor.h"

#include <assert.h>

static void actor_push(ls_actor *actor, ls_op *op)
{
    ls_op *head = atomic_load_explicit(&actor->inbox, memory_order_relaxed);
    do op->next = head;
    while (!atomic_compare_exchange_weak(&actor->inbox, &head, op));
}

/* The oldest op, or NULL. The caller holds the actor. */
static ls_op *actor_pull(ls_actor *actor)
{
    if (actor->ready == NULL && atomic_load_explicit(&actor->inbox, memory_order_relaxed) != NULL) {
        ls_op *op = atomic_exchange_explicit(&actor->inbox, NULL, memory_order_acquire);
        while (op != NULL) { /* reverse the order: oldest first */
            ls_op *next = op->next;
            op->next = actor->ready;
            actor->ready = op;
            op = next;
        }
    }
    ls_op *op = actor->ready;
    if (op != NULL) actor->ready = op->next;
    return op;
}

static void actor_post_wakeup(ls_actor *actor, ls_port *port)
{
    if (atomic_exchange(&actor->wakeup_queued, 1) == 0) ls_port_post(port, &actor->wakeup, 0);
}

/* The inbox may hold an op that no thread is going to run: drain it here, or post a wake-up. */
static void actor_wake(ls_actor *actor, ls_thread_ctx *ctx)
{
    if (ctx->inside == NULL) {
        if (ls_actor_try_enter(actor, ctx)) ls_actor_leave(actor, ctx);
    } else if (atomic_load(&actor->held) == 0) {
        actor_post_wakeup(actor, ctx->port);
    }
}

static void wakeup_received(ls_thread_ctx *ctx, ls_op *op)
{
    ls_actor *actor = (ls_actor *)(void *)((char *)op - offsetof(ls_actor, wakeup));
    atomic_store(&actor->wakeup_queued, 0);
    actor_wake(actor, ctx);
}

void ls_actor_init(ls_actor *actor)
{
    *actor = (ls_actor){.wakeup = {.done = wakeup_received}};
}

bool ls_actor_try_enter(ls_actor *actor, ls_thread_ctx *ctx)
{
    int expected = 0;
    if (ctx->inside != NULL || atomic_load(&actor->held) != 0 ||
        !atomic_compare_exchange_strong(&actor->held, &expected, 1))
        return false;
    ctx->inside = actor;
    return true;
}

void ls_actor_leave(ls_actor *actor, ls_thread_ctx *ctx)
{
    unsigned run = 0;
    assert(ctx->inside == actor);
    for (;;) {
        for (ls_op *op; run < LS_ACTOR_RUN_MAX && (op = actor_pull(actor)) != NULL; run++) op->done(ctx, op);
        const bool more = actor->ready != NULL; /* read now: after H1 `ready` belongs to the next holder */
        ctx->inside = NULL;
        atomic_store(&actor->held, 0); /* H1 */
        if (!more && atomic_load(&actor->inbox) == NULL) return;
        if (run == LS_ACTOR_RUN_MAX) { /* after H1: the receiver must find the actor free, or held by another thread */
            actor_post_wakeup(actor, ctx->port);
            return;
        }
        if (!ls_actor_try_enter(actor, ctx)) return; /* the new holder does H1 and H2 after us */
    }
}

void ls_actor_post(ls_actor *actor, ls_thread_ctx *ctx, ls_op *op)
{
    if (ctx->inside == NULL && ls_actor_try_enter(actor, ctx)) {
        if (actor->ready == NULL && atomic_load_explicit(&actor->inbox, memory_order_relaxed) == NULL)
            op->done(ctx, op); /* no op is ahead of it */
        else
            actor_push(actor, op);
        ls_actor_leave(actor, ctx);
        return;
    }
    actor_push(actor, op);
    if (ctx->inside != actor) actor_wake(actor, ctx); /* else ls_actor_leave drains it */
}

void ls_actor_post_later(ls_actor *actor, ls_port *port, ls_op *op)
{
    actor_push(actor, op);
    if (atomic_load(&actor->held) == 0) actor_post_wakeup(actor, port);
}

void ls_packet_dispatch(ls_thread_ctx *ctx, const ls_packet *packet)
{
    ls_op *op = packet->op;
    assert(op != NULL);
    if (op->actor == NULL)
        op->done(ctx, op);
    else
        ls_actor_post(op->actor, ctx, op);
}
