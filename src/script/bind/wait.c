/* wait.c - see wait.h. */
#include "script/bind/wait.h"

#include <assert.h>
#include <stdlib.h>

/* Whether a waiting task counts in state->busy. The thread that decides makes the task count again before it ends what
 * it does itself: state->busy never misses a task that has something to do. */
enum { COUNTS, IDLE, DECIDED };

static void wait_decided(ls_waiter *waiter)
{
    ls_wait *wait = LS_CONTAINER(waiter, ls_wait, waiter);
    ls_state *state = wait->state;
    ls_port *port = state->site->port;
    if (atomic_exchange(&wait->idle, DECIDED) == IDLE) atomic_fetch_add_explicit(&state->busy, 1, memory_order_relaxed);
    if (port != NULL) ls_actor_post_later(&state->actor, port, &wait->op); /* else the server closes its states */
}

static void wait_free(ls_wait *wait)
{
    ls_list_remove(&wait->node);
    free(wait);
}

static void wait_arrived(ls_thread_ctx *ctx, ls_op *op)
{
    ls_wait *wait = LS_CONTAINER(op, ls_wait, op);
    wait->arrived = true;
    if (wait->task != NULL)
        ls_task_wake(ctx, wait->task, LS_OK); /* no effect after a timeout: the task runs soon and frees the wait */
    else
        wait_free(wait);
}

ls_wait *ls_wait_get(lua_State *L, const ls_wait_kind *kind, void *object)
{
    ls_state *state = ls_state_of(L);
    ls_wait *wait = malloc(sizeof *wait);
    if (wait == NULL) return NULL;
    *wait = (ls_wait){.state = state, .task = state->current, .kind = kind, .object = object};
    wait->op = (ls_op){.done = wait_arrived, .actor = &state->actor};
    ls_waiter_init(&wait->waiter, wait_decided);
    ls_list_push(&state->waits, &wait->node);
    return wait;
}

void ls_wait_drop(ls_wait *wait)
{
    assert(wait->waiter.result == LS_EAGAIN);
    wait_free(wait);
}

/* No task uses the wait any more. */
static void wait_give_back(ls_wait *wait)
{
    const bool finished = wait->arrived || wait->kind->forget(wait->object, &wait->waiter);
    wait->task = NULL;
    wait->kind->give_back(wait->object, &wait->waiter);
    if (finished) wait_free(wait); /* else its operation is under way */
}

int ls_wait_suspend(lua_State *L, ls_wait *wait, double timeout, bool idle, lua_KFunction k)
{
    ls_state *state = wait->state;
    int counts = COUNTS;
    if (timeout >= 0 && !ls_task_try_alarm(wait->task, timeout)) {
        wait_give_back(wait);
        return luaL_error(L, "not enough memory");
    }
    if (idle && timeout < 0 && wait->task->counted && atomic_compare_exchange_strong(&wait->idle, &counts, IDLE)) {
        atomic_fetch_sub_explicit(&state->busy, 1, memory_order_relaxed);
        ls_state_settle(state);
    }
    return ls_task_suspend(L, (lua_KContext)wait, k);
}

int ls_wait_end(ls_wait *wait, struct ls_message **message)
{
    const bool forgotten = !wait->arrived && wait->kind->forget(wait->object, &wait->waiter);
    const int result = forgotten ? LS_ETIMEDOUT : wait->waiter.result;
    *message = wait->waiter.message;
    wait->task = NULL;
    if (forgotten || wait->arrived) wait_free(wait); /* else its operation is under way */
    return result;
}

void ls_waits_close(ls_state *state)
{
    for (ls_node *node = state->waits.next, *next; node != &state->waits; node = next) {
        ls_wait *wait = LS_CONTAINER(node, ls_wait, node);
        next = node->next;
        if (wait->task != NULL) wait_give_back(wait);
    }
}

bool ls_waits_closed(const ls_state *state)
{
    return ls_list_empty(&state->waits);
}

void ls_waits_free(ls_state *state)
{
    while (!ls_list_empty(&state->waits)) wait_free(LS_CONTAINER(state->waits.next, ls_wait, node));
}
