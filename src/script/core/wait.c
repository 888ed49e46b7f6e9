/* wait.c - see wait.h. */
#include "script/core/wait.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/shared.h"

/* Whether a waiting task counts in state->busy. The thread that decides makes the task count again before it ends what
 * it does itself: state->busy never misses a task that has something to do. */
enum { COUNTS, IDLE, DECIDED };

static void wait_decided(ls_waiter *waiter)
{
    ls_wait *wait = LS_CONTAINER(waiter, ls_wait, waiter);
    ls_state *state = wait->state;
    ls_port *port = state->port;
    if (atomic_exchange(&wait->idle, DECIDED) == IDLE)
        atomic_fetch_add_explicit(&state->busy, 1, memory_order_relaxed);
    if (port != NULL)
        ls_actor_post_later(&state->actor, port, &wait->op); /* else the states of the server are closed */
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

ls_wait *ls_wait_begin(lua_State *L, const ls_wait_kind *kind, void *object)
{
    ls_task_may_wait(L);
    ls_wait *wait = ls_wait_get(L, kind, object);
    if (wait == NULL) luaL_error(L, "not enough memory");
    return wait;
}

void ls_wait_drop(ls_wait *wait)
{
    assert(wait->waiter.result == LS_EAGAIN);
    wait_free(wait);
}

void ls_wait_give_back(ls_wait *wait)
{
    const bool finished = wait->arrived || wait->kind->cancel(wait->object, &wait->waiter);
    wait->task = NULL;
    if (wait->kind->give_back != NULL) wait->kind->give_back(wait->object, &wait->waiter);
    if (finished) wait_free(wait); /* else its operation is under way */
}

int ls_wait_suspend(lua_State *L, ls_wait *wait, double timeout, bool idle, lua_KFunction k)
{
    ls_state *state = wait->state;
    ls_task *task = wait->task;
    int counts = COUNTS;
    if (wait->kind->wait != LS_WAIT_WRITE && ls_wait_expect_end(task) < 0) {
        ls_wait_give_back(wait);
        return ls_task_left_error(L, "");
    }
    if (timeout >= 0 && !ls_task_try_alarm(task, timeout)) {
        ls_wait_give_back(wait);
        return luaL_error(L, "not enough memory");
    }
    if (idle && timeout < 0 && task->counted && atomic_compare_exchange_strong(&wait->idle, &counts, IDLE)) {
        wait->uncounted = true;
        task->counted = false;
        atomic_fetch_sub_explicit(&state->busy, 1, memory_order_relaxed);
        ls_state_work_ended(state);
    }
    return ls_task_yield(L, wait->kind->wait, (lua_KContext)wait, k);
}

void ls_wait_describe(const ls_task *task, char *out, size_t out_bytes)
{
    out[0] = '\0';
    LS_LIST_EACH (const ls_wait, wait, &task->state->waits, node) {
        if (wait->task != task) continue;
        const ls_shared_object *object = wait->kind->waits_for != NULL ? wait->object : NULL;
        if (object != NULL) (void)snprintf(out, out_bytes, " for %s \"%s\"", wait->kind->waits_for, object->name);
    }
}

void ls_task_waited(ls_task *task)
{
    ls_task_times *times = task->times;
    const uint64_t ns = ls_clock_ns() - times->since_ns;
    times->waited_ns += ns;
    if (ns <= times->longest_ns) return;
    times->longest_ns = ns;
    ls_task_line(task->co, times->longest, 80);
    const size_t len = strlen(times->longest);
    ls_wait_describe(task, times->longest + len, sizeof times->longest - len);
}

int ls_wait_end(lua_State *L, ls_wait *wait, struct ls_message **message)
{
    ls_task *task = wait->task;
    const bool cancelled = !wait->arrived && wait->kind->cancel(wait->object, &wait->waiter);
    const int result = cancelled ? LS_ETIMEDOUT : wait->waiter.result;
    const bool left = ls_task_was_left(task);
    if (left && wait->kind->give_back != NULL) wait->kind->give_back(wait->object, &wait->waiter);
    if (message != NULL) *message = wait->waiter.message;
    if (wait->uncounted) {
        if (atomic_exchange(&wait->idle, DECIDED) == IDLE)
            atomic_fetch_add_explicit(&wait->state->busy, 1, memory_order_relaxed);
        task->counted = true;
    }
    wait->task = NULL;
    if (cancelled || wait->arrived) wait_free(wait); /* else its operation is under way */
    return left ? ls_task_left_error(L, "") : result;
}

/* ---- the module --------------------------------------------------------------------------------------------- */

/* The live close of a state ends its tasks, and with them their waits; what is left waits for its operation. */
static bool waits_closed(ls_state *state)
{
    return ls_list_empty(&state->waits);
}

/* The tasks that wait may end: see ls_tasks_spare. */
static bool waits_unused(ls_state *state)
{
    LS_LIST_EACH (const ls_wait, wait, &state->waits, node)
        if (wait->task == NULL) return false;
    return true;
}

/* No worker runs. The port is open: a decision that another thread makes until now is posted to it. */
static void waits_disconnect(ls_thread_ctx *ctx, ls_state *state)
{
    LS_LIST_EACH_DROP (ls_wait, wait, &state->waits, node)
        if (wait->task != NULL) ls_wait_give_back(wait);
}

static void waits_free(ls_state *state)
{
    LS_LIST_EACH_DROP (ls_wait, wait, &state->waits, node) wait_free(wait);
}

const ls_module ls_wait_module = {.name = "wait",
                                  .closed = waits_closed,
                                  .unused = waits_unused,
                                  .disconnect = waits_disconnect,
                                  .free = waits_free};
