/* wait.h - a task in the queue of a channel or a semaphore (script/shared/waiter.h).
 *
 * Another thread may decide: it wakes the task with an operation posted to the actor of the task's state. A wait ends
 * in one of three ways:
 *
 *     decided   the operation has run and wakes the task
 *     timeout   the alarm wakes the task first. If the decision was made in the meantime it counts; then its operation
 *               is under way and frees the wait
 *     closed    the state closes: it ends the task, which gives back what it got. When no worker runs any more, the
 *               states do so without their tasks
 *
 *     call --> ls_wait_get --> queued by the channel --> ls_wait_suspend --> continuation: ls_wait_end
 *                                 \--> not queued: ls_wait_drop
 *
 * Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_BIND_WAIT_H
#define LS_SCRIPT_BIND_WAIT_H

#include "script/core/task.h"
#include "script/shared/waiter.h"

typedef struct ls_wait_kind {
    bool (*forget)(void *object, ls_waiter *waiter); /* as ls_channel_forget() */
    /* Undo the wait when no task uses its result: the waiter was forgotten, or was decided. */
    void (*give_back)(void *object, ls_waiter *waiter);
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

/* Get the wait of the current task, which can wait (ls_task_can_wait). NULL: out of memory. */
ls_wait *ls_wait_get(lua_State *L, const ls_wait_kind *kind, void *object);
void ls_wait_drop(ls_wait *wait); /* its waiter was not queued */

/* Suspend the task until the decision, at most `timeout` seconds if it is not negative. The caller returns the result.
 * `k` gets the wait as its context. `idle`: while the task waits it does not count as busy, so that a server that
 * drains does not wait for it. */
int ls_wait_suspend(lua_State *L, ls_wait *wait, double timeout, bool idle, lua_KFunction k);

/* In `k`: end the wait. Returns the result of the waiter, or LS_ETIMEDOUT: it is off the queue. *message receives the
 * message of the waiter, which the caller owns from now on; NULL if it has none. */
int ls_wait_end(ls_wait *wait, struct ls_message **message);

#endif
