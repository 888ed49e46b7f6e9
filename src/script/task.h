/* task.h - a coroutine with its owner: what runs a handler, a spawned function, a timer's tick.
 *
 * Coroutines come from a pool. One that ended well is used again as it is (resetting would shrink and reallocate its
 * stack); one that failed is closed and dropped.
 *
 *     take --> run --> ended(LUA_OK or an error status) --> release
 *               \--> suspended --> wake --> run ...
 *
 * A task waits for one thing at a time. All calls come from inside the state's actor. */
#ifndef LS_SCRIPT_TASK_H
#define LS_SCRIPT_TASK_H

#include "script/state.h"

enum { LS_TASKS_FREE_MAX = 256 };

/* A shorter sleep only lets other tasks run. In between the task counts as computing (max_cpu). In seconds. */
#define LS_GIVE_WAY_S 0.001

/* The task has ended: its results (`count`), or its error, are on top of task->co. Must release the task. */
typedef void ls_task_ended_fn(ls_thread_ctx *ctx, ls_task *task, int status, int count);

struct ls_task {
    ls_node node; /* free or live list of the state */
    ls_state *state;
    lua_State *co;
    int ref;             /* keeps co */
    bool waiting;        /* suspended; somebody will wake it */
    bool queued;         /* woken; `op` is in the inbox */
    bool over;           /* used too much processor time: every run ends at once */
    bool killed;         /* the hook made it yield, for good */
    bool gave_way;       /* it waits for less than LS_GIVE_WAY_S: its next run is measured */
    bool counted;        /* in state->busy */
    int16_t wake_result; /* why it was woken: 0, or LS_ETIMEDOUT */
    int nargs;           /* for the run that `op` orders */
    unsigned blocked;    /* calls from C in between, across which it cannot be suspended */
    uint64_t serial;     /* of the request that it belongs to; 0: none */
    uint64_t cpu_ns;     /* used by earlier runs, as far as known */
    ls_node wait_node;   /* in the list of those that wait for the same thing */
    ls_alarm *alarm;     /* armed for it, or NULL */
    ls_op op;
    ls_task_ended_fn *ended;
    void *owner;         /* of `ended` */
    ls_request *request; /* that it answers, or NULL */
    int dispatch_ref, failed_ref;
};

/* A timer that wakes a task. Not part of the task: its packet may be on the way when the task no longer waits. */
struct ls_alarm {
    ls_timer timer;
    ls_state *state;
    ls_task *task;         /* NULL: nobody waits any more */
    ls_alarm *next;        /* free list */
    ls_alarm *made_before; /* all alarms of the state */
};

/* A task with an empty stack. `L` is a running coroutine of the state: raises when memory is out. */
ls_task *ls_task_take(lua_State *L, ls_state *state);
/* The same when no Lua code runs. NULL when memory is out. */
ls_task *ls_task_take_outside(ls_state *state, ls_thread_ctx *ctx);
void ls_task_release(ls_thread_ctx *ctx, ls_task *task, bool well);

/* Push the error value at the absolute `index` as a text, also when its __tostring fails. Valid while it is on the stack. */
const char *ls_error_describe(lua_State *L, int index);

/* Log the error on top of a failed task, with a traceback; `what` says where: "in a timer". */
void ls_task_log_error(ls_thread_ctx *ctx, ls_task *task, const char *what);

/* Start: a function and `nargs` arguments are on task->co. Or go on. Runs until it is suspended or ended. */
void ls_task_run(ls_thread_ctx *ctx, ls_task *task, int nargs);
/* The same from the inbox, soon: for callers that are inside another task. */
void ls_task_post(ls_thread_ctx *ctx, ls_task *task, int nargs);

/* Suspend the current task; `k` continues with no values on top of what lies on L's stack now. Returns what the C
 * function must return. Call ls_task_may_wait before anything is set up for the waking. */
void ls_task_may_wait(lua_State *L);
bool ls_task_can_wait(lua_State *L); /* the same as a question */
int ls_task_suspend(lua_State *L, lua_KContext context, lua_KFunction k);
void ls_task_wake(ls_thread_ctx *ctx, ls_task *task, int result); /* nothing happens when it does not wait */
/* Wake all tasks of a list, by their wait_node. It is empty before the first of them runs, and may be gone after that. */
void ls_task_wake_all(ls_thread_ctx *ctx, ls_node *waiters, int result);

/* Wake the current task after `seconds` (>= 0). Raises when memory is out. */
void ls_task_alarm(lua_State *L, ls_task *task, double seconds);
uint64_t ls_task_deadline(double seconds);

/* At the end of the state, when no thread runs. */
void ls_task_free_all(ls_state *state);

#endif
