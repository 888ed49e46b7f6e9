/* wait.h - a task in the queue of a channel or a semaphore (base/waiter.h).
 *
 * Another thread may decide: it wakes the task with an operation posted to the actor of the task's state. A wait ends
 * in one of three ways:
 *
 *     decided   the operation has run and wakes the task
 *     timeout   the alarm, or the client that leaves, wakes the task first. If the decision was made in the meantime
 *               it counts; then its operation
 *               is under way and frees the wait
 *     closed    the state closes: it ends the task, which gives back what it got. When no worker runs any more, the
 *               states do so without their tasks
 *
 *     call --> ls_wait_get --> queued by the channel --> ls_wait_suspend --> continuation: ls_wait_end
 *                                 \--> not queued: ls_wait_drop
 *
 * Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_WAIT_H
#define LS_SCRIPT_WAIT_H

#include "base/waiter.h"
#include "script/core/task.h"

typedef struct ls_wait_kind {
    bool (*cancel)(void *object, ls_waiter *waiter); /* as ls_channel_cancel() */
    /* Undo the wait when no task uses its result: the waiter was cancelled, or was decided. NULL: nothing is taken. */
    void (*give_back)(void *object, ls_waiter *waiter);
    enum ls_wait_for wait; /* scope.h */
    const char *waits_for; /* NULL, or what `object`, an ls_shared_object, is to the task: "the channel" */
} ls_wait_kind;

typedef struct ls_wait {
    ls_waiter waiter; /* first */
    ls_op op;
    ls_state *state;
    ls_task *task; /* NULL: nothing waits for the operation, which frees the wait */
    ls_node node;  /* in the list of its state */
    const ls_wait_kind *kind;
    void *object;     /* of `kind`: the channel or the semaphore; outlives the state */
    _Atomic int idle; /* enum in wait.c */
    bool uncounted;   /* while it waits, task->counted is false */
    bool arrived;     /* the operation has run */
} ls_wait;

/* The task is going to wait for something that only its client needs. LS_OK, or LS_ERESET: the client has left. */
static inline int ls_wait_expect_end(ls_task *task)
{
    if (task->client != NULL && task->state->expect_end != NULL) task->state->expect_end(task->state->ctx, task);
    return task->client_is == LS_CLIENT_LEFT ? LS_ERESET : LS_OK;
}

/* Get the wait of the current task, which can wait (ls_task_can_wait). NULL: out of memory. */
ls_wait *ls_wait_get(lua_State *L, const ls_wait_kind *kind, void *object);
/* The same; raises if the task cannot wait, and without memory. */
ls_wait *ls_wait_begin(lua_State *L, const ls_wait_kind *kind, void *object);
void ls_wait_drop(ls_wait *wait); /* its waiter was not queued */
/* No task uses the wait any more. */
void ls_wait_give_back(ls_wait *wait);

/* Suspend the task until the decision, at most `timeout` seconds if it is not negative. The caller returns the result.
 * `k` gets the wait as its context. `idle`: while the task waits it does not count as busy, so that a server that
 * drains does not wait for it. May raise, as ls_wait_end; then the wait has ended. */
int ls_wait_suspend(lua_State *L, ls_wait *wait, double timeout, bool idle, lua_KFunction k);

/* In `k`: end the wait. Returns the result of the waiter, or LS_ETIMEDOUT: it is off the queue. *message receives the
 * message of the waiter, which the caller owns from now on; NULL if it has none. `message` is NULL for waiters without
 * one. Raises if the client of the task has left and that ends the wait: nothing was taken. */
int ls_wait_end(lua_State *L, ls_wait *wait, struct ls_message **message);

/* For the log: what the task waits for, as ` for the channel "jobs"`; "": no channel and no semaphore. */
void ls_wait_describe(const ls_task *task, char *out, size_t out_bytes);

#endif
