/* exchange_run.c - see exchange_run.h. */
#include "http/exchange_run.h"

static void start_posted(ls_thread_ctx *ctx, ls_op *op)
{
    ls_exchange *x = LS_CONTAINER(op, ls_exchange, op);
    if (ls_exchange_start(ctx, x)) x->transport->returned(ctx, x);
}

void ls_exchange_started(ls_thread_ctx *ctx, ls_exchange *x)
{
    if (ctx->inside != NULL) {
        x->transport->returned(ctx, x);
    } else { /* another thread may run the operation at once */
        x->op = (ls_op){.done = start_posted, .actor = x->actor};
        ls_actor_post(x->actor, ctx, &x->op);
    }
}

void ls_exchange_wake(ls_thread_ctx *ctx, ls_exchange *x)
{
    x->running = true;
    x->wake(ctx, x);
    x->running = false;
    x->transport->returned(ctx, x);
}
