/* wait.c - see wait.h. */
#include "script/bind/wait.h"

#include <assert.h>
#include <stdlib.h>

#include "script/bind/modules.h"

typedef struct waits { /* of one state */
    ls_node list;
} waits;

/* Whether a waiting task counts in state->busy. The thread that decides makes the task count again before it ends what
 * it does itself: state->busy never misses a task that has something to do. */
enum { COUNTS, IDLE, DECIDED };

static void wait_decided(ls_waiter *waiter)
{
    ls_wait *wait = LS_CONTAINER(waiter, ls_wait, waiter);
    ls_state *state = wait->state;
    ls_port *port = state->port;
    if (atomic_exchange(&wait->idle, DECIDED) == IDLE) atomic_fetch_add_explicit(&state->busy, 1, memory_order_relaxed);
    if (port != NULL) ls_actor_post_later(&state->actor, port, &wait->op); /* else the states of the server are closed, and `abandon` frees the wait */
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
    waits *of_state = ls_state_data(state, LS_SLOT_wait);
    ls_list_push(&of_state->list, &wait->node);
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
        wait->uncounted = true;
        wait->task->counted = false;
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
    if (wait->uncounted) {
        if (atomic_exchange(&wait->idle, DECIDED) == IDLE)
            atomic_fetch_add_explicit(&wait->state->busy, 1, memory_order_relaxed);
        wait->task->counted = true;
    }
    wait->task = NULL;
    if (forgotten || wait->arrived) wait_free(wait); /* else its operation is under way */
    return result;
}

/* ---- the module --------------------------------------------------------------------------------------------- */

static void waits_define(lua_State *L, ls_state *state)
{
    waits *of_state = ls_state_data(state, LS_SLOT_wait);
    (void)L;
    ls_node_init(&of_state->list);
}

/* The live close of a state ends its tasks, and with them their waits; what is left waits for its operation. */
static bool waits_closed(ls_state *state)
{
    const waits *of_state = ls_state_data(state, LS_SLOT_wait);
    return ls_list_empty(&of_state->list);
}

static void waits_abandon(ls_state *state)
{
    const waits *of_state = ls_state_data(state, LS_SLOT_wait);
    for (ls_node *node = of_state->list.next, *next; node != &of_state->list; node = next) {
        ls_wait *wait = LS_CONTAINER(node, ls_wait, node);
        next = node->next;
        if (wait->task != NULL) wait_give_back(wait);
    }
}

static void waits_free(ls_state *state)
{
    waits *of_state = ls_state_data(state, LS_SLOT_wait);
    while (of_state->list.next != NULL && !ls_list_empty(&of_state->list))
        wait_free(LS_CONTAINER(of_state->list.next, ls_wait, node));
}

const ls_module ls_wait_module = {.name = "wait",
                                  .bytes = sizeof(waits),
                                  .define = waits_define,
                                  .closed = waits_closed,
                                  .abandon = waits_abandon,
                                  .free = waits_free};
