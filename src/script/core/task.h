/* task.h - a task: a coroutine that runs a request handler, a spawned function or a timer function.
 *
 * Coroutines come from a pool. A coroutine that ended without an error is reused as it is, because a reset would
 * shrink and later reallocate its stack; one that failed is closed and dropped.
 *
 *     take --> run --> ended(LUA_OK or an error status) --> release
 *               \--> suspended --> wake --> run ...
 *
 * A task waits for one event at a time. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_TASK_H
#define LS_SCRIPT_TASK_H

#include "script/core/state.h"

typedef struct ls_request ls_request;

enum { LS_TASKS_FREE_MAX = 256 };

/* In seconds. A wait renews the processor time of a task (max_cpu). A shorter sleep is not a wait: it only gives way to
 * other tasks, and gives back the time for which it lasted. */
#define LS_GIVE_WAY_S 0.001

/* Called when the task has ended: its `count` results, or its error, are on top of task->co. Must release the task. */
typedef void ls_task_ended_fn(ls_thread_ctx *ctx, ls_task *task, int status, int count);

/* Called when a task ends badly: by an error, or because it has exceeded the processor-time limit, after which none of
 * its code runs any more. For objects that the task holds for the length of a call. */
typedef struct ls_task_end ls_task_end;
struct ls_task_end {
    ls_task_end *next, **at; /* at NULL: in no list */
    void (*run)(ls_task_end *end);
};

struct ls_task {
    ls_node node; /* in the free or the live list of the state */
    ls_state *state;
    lua_State *co;
    int ref;             /* registry reference that keeps co alive */
    bool waiting;        /* suspended until ls_task_wake() */
    bool queued;         /* `op` is in the actor's inbox */
    bool cpu_exceeded;   /* it has used too much processor time: every further run ends at once */
    bool killed;         /* the hook has suspended it forever */
    bool canceled;       /* its state closes; implies cpu_exceeded */
    bool held;           /* an operation that cannot be cancelled refers to it: only that one wakes it */
    bool gave_way;       /* it sleeps for less than LS_GIVE_WAY_S: its next run is measured */
    bool counted;        /* in state->busy */
    bool of_websocket;   /* it goes on when the requests of an old site are cut */
    int16_t wake_result; /* the `result` of ls_task_wake(): LS_OK, LS_ETIMEDOUT, ... */
    int nargs;           /* for the run that `op` starts */
    unsigned blocked;    /* number of C calls on its stack that it cannot yield across */
    uint64_t serial;     /* of the request it belongs to; 0: none */
    uint64_t cpu_ns;     /* gave_way: measured processor time since the last wait */
    uint64_t sleep_ns;   /* gave_way: the time at which the sleep began */
    ls_node wait_node;   /* in the list of the tasks that wait for the same event */
    ls_alarm *alarm;     /* armed to wake it, or NULL */
    ls_op op;
    ls_task_ended_fn *ended;
    void *owner;         /* user data of `ended` */
    ls_request *request; /* the request that it responds to, or NULL */
    ls_task_end *ends;
    int dispatch_ref, failed_ref;
    struct ls_interrupt *interrupt; /* bind/interrupt.h: its code can be ended from outside; NULL mostly */
};

/* A timer that wakes a task. It is a separate object because its packet may still be queued when the task no longer
 * waits. */
struct ls_alarm {
    ls_timer timer;
    ls_state *state;
    ls_task *task;      /* NULL: the task no longer waits */
    ls_alarm *next;     /* free list */
    ls_alarm *all_next; /* all alarms of the state */
};

/* Get a task with an empty stack. `L` is a running coroutine of the state. Raises when out of memory. */
ls_task *ls_task_take(lua_State *L, ls_state *state);
/* The same while no Lua code runs. NULL: out of memory. */
ls_task *ls_task_take_outside(ls_state *state, ls_thread_ctx *ctx);
/* The same with a new coroutine, for a task that waits for long: a used one keeps the stack and the call frames of the
 * deepest run that it has had. */
ls_task *ls_task_take_new(ls_state *state, ls_thread_ctx *ctx);
/* Return a task that has ended to the pool, or free it. `well`: it ended without an error. */
void ls_task_release(ls_thread_ctx *ctx, ls_task *task, bool well);

/* Push the message of a task that has exceeded the processor-time limit. `route`: "GET /a (site.lua:9)", or NULL. */
const char *ls_task_push_exceeded(lua_State *L, const ls_task *task, const char *route);

/* Log the error on top of a failed task with a traceback. `what` names its place: "in a timer". */
void ls_task_log_error(ls_thread_ctx *ctx, ls_task *task, const char *what);

/* Start the task (a function and `nargs` arguments are on task->co) or resume it. Returns when it is suspended or has
 * ended; then `ended` has been called and the task may be freed. */
void ls_task_run(ls_thread_ctx *ctx, ls_task *task, int nargs);
/* The same from the actor's inbox: for callers inside another task. */
void ls_task_post(ls_thread_ctx *ctx, ls_task *task, int nargs);

/* Raise if the current task cannot be suspended here. Call it before anything is set up to wake the task. */
void ls_task_may_wait(lua_State *L);
bool ls_task_can_wait(lua_State *L); /* false where ls_task_may_wait() raises */
/* Suspend the current task. The caller returns the result of this call. After the wake `k` continues with the stack
 * of L as it is now. */
int ls_task_suspend(lua_State *L, lua_KContext context, lua_KFunction k);
/* Wake a task with this wake_result. It runs inside the call if no other code of the state is running, else from the
 * inbox. Does nothing if the task does not wait. */
void ls_task_wake(ls_thread_ctx *ctx, ls_task *task, int result);
/* Wake all tasks that are in the list by their wait_node. The list is emptied before the first of them runs; the tasks
 * may free its owner. */
void ls_task_wake_all(ls_thread_ctx *ctx, ls_node *waiters, int result);

/* Arm a timer that wakes `task` with LS_ETIMEDOUT after `seconds` (>= 0). Raises when out of memory. */
void ls_task_alarm(lua_State *L, ls_task *task, double seconds);
bool ls_task_try_alarm(ls_task *task, double seconds); /* the same; false: out of memory */
/* The time `seconds` from now on the clock of ls_clock_ns(). */
uint64_t ls_task_deadline(double seconds);

/* Call end->run(end) if the task ends badly before ls_task_end_remove(). */
void ls_task_end_add(ls_task *task, ls_task_end *end);
void ls_task_end_remove(ls_task_end *end); /* no effect on one that is in no list */

/* Whether a task of a request runs or waits, or one that counts as busy. */
bool ls_tasks_unfinished(const ls_state *state);
/* The old site is cut: the tasks of requests that wait end now, the others when they run next. */
void ls_tasks_cut_requests(ls_thread_ctx *ctx, ls_state *state);
/* The state closes: mark all tasks, so that each ends when it runs next. */
void ls_tasks_cancel(ls_state *state);
/* Then wake those that wait, except those that are `held`. The thread is inside the actor and no task runs. */
void ls_tasks_end(ls_thread_ctx *ctx, ls_state *state);

/* Free all tasks and alarms of a state that closes. Lua is closed; no packet of an alarm follows. */
void ls_task_free_all(ls_state *state);

#endif
