/* actor.c - the lock-free inbox behind actor.h, and ls_packet_dispatch.
 *
 * No wake-up is lost. All accesses named here are sequentially consistent, so they lie in one order S.
 *
 *     poster:  P1 push on the inbox              holder:  H1 held = 0
 *              P2 look at held                            H2 look at the inbox
 *
 * If P2 finds the actor held, it read a value older than that holder's H1, so P1 < P2 < H1 < H2 in S: H2 finds the op
 * (or another holder has drained it since) and the holder comes back for it. If P2 finds it free, the poster enters
 * itself, or, being inside another actor, sees to it that the note is in the port's queue:
 *
 *     poster:  P3 exchange noted for 1           taker of the note:  T1 noted = 0
 *              post the note if it was 0                             T2 enter and drain; held: the holder will
 *
 * If P3 finds 1, the T1 that ends this note comes later in S, so P1 < P3 < T1 < T2: the taker sees the op, or fails to
 * enter after P1, which is the first case again. The note is posted by whoever changed 0 to 1 and by nobody else, and
 * T1 happens when it is out of the queue: it is queued at most once at a time. */
#include "sched/actor.h"

#include <assert.h>

static void actor_push(ls_actor *actor, ls_op *op)
{
    ls_op *head = atomic_load_explicit(&actor->inbox, memory_order_relaxed);
    do op->next = head;
    while (!atomic_compare_exchange_weak(&actor->inbox, &head, op));
}

/* The caller holds the actor. The oldest op, or NULL. */
static ls_op *actor_pull(ls_actor *actor)
{
    if (actor->ready == NULL && atomic_load_explicit(&actor->inbox, memory_order_relaxed) != NULL) {
        ls_op *op = atomic_exchange_explicit(&actor->inbox, NULL, memory_order_acquire);
        while (op != NULL) { /* reverse: the oldest first */
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

static void actor_note(ls_actor *actor, ls_thread_ctx *ctx)
{
    if (atomic_exchange(&actor->noted, 1) == 0) ls_port_post(ctx->port, &actor->note, NULL, 0);
}

/* There may be something in the inbox that nobody has promised to look at. */
static void actor_wake(ls_actor *actor, ls_thread_ctx *ctx)
{
    if (ctx->inside == NULL) {
        if (ls_actor_try_enter(actor, ctx)) ls_actor_leave(actor, ctx);
    } else if (atomic_load(&actor->held) == 0) {
        actor_note(actor, ctx);
    }
}

static void actor_note_taken(ls_thread_ctx *ctx, ls_op *op)
{
    ls_actor *actor = (ls_actor *)(void *)((char *)op - offsetof(ls_actor, note));
    atomic_store(&actor->noted, 0);
    actor_wake(actor, ctx);
}

void ls_actor_init(ls_actor *actor)
{
    *actor = (ls_actor){.note = {.done = actor_note_taken}};
}

bool ls_actor_try_enter(ls_actor *actor, ls_thread_ctx *ctx)
{
    int free = 0;
    if (ctx->inside != NULL || atomic_load(&actor->held) != 0 ||
        !atomic_compare_exchange_strong(&actor->held, &free, 1))
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
        const bool more = actor->ready != NULL; /* once it is free, `ready` belongs to the next holder */
        ctx->inside = NULL;
        atomic_store(&actor->held, 0); /* H1 */
        if (!more && atomic_load(&actor->inbox) == NULL) return;
        if (run == LS_ACTOR_RUN_MAX) { /* after H1: who takes the note must find it free, or held by another */
            actor_note(actor, ctx);
            return;
        }
        if (!ls_actor_try_enter(actor, ctx)) return; /* who holds it now does H1 and H2 after us */
    }
}

void ls_actor_post(ls_actor *actor, ls_thread_ctx *ctx, ls_op *op)
{
    if (ctx->inside == NULL && ls_actor_try_enter(actor, ctx)) {
        if (actor->ready == NULL && atomic_load_explicit(&actor->inbox, memory_order_relaxed) == NULL)
            op->done(ctx, op); /* nothing is ahead of it */
        else
            actor_push(actor, op);
        ls_actor_leave(actor, ctx);
        return;
    }
    actor_push(actor, op);
    if (ctx->inside != actor) actor_wake(actor, ctx); /* our own turn drains before it ends */
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
