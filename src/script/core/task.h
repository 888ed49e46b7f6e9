/* task.h - a task: a coroutine that runs a handler, a spawned function or a timer function.
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

#include "port/work.h"
#include "script/core/state.h"

enum { LS_TASKS_FREE_MAX = 256 };

/* In seconds. A wait renews the processor time of a task (max_cpu). A shorter sleep is not a wait: it only yields to
 * other tasks, and gives back the time for which it lasted. */
#define LS_YIELD_SLEEP_S 0.001

/* Processor time, and time of waits, of the code that continues after ls_task_catch(). */
enum { LS_TASK_CAUGHT_MS = 1000 };

/* Called when the task has ended: its `count` results, or its error, are on top of task->co. Must release the task. */
typedef void ls_task_ended_fn(ls_thread_ctx *ctx, ls_task *task, int status, int count);

/* Called when a task ends, also after it has exceeded the processor-time limit. For objects that it holds. */
typedef struct ls_task_end ls_task_end;
struct ls_task_end {
    ls_task_end *next, **at; /* at NULL: in no list */
    void (*run)(ls_task_end *end);
};

/* Whether the client of a task is there. */
enum ls_client { LS_CLIENT_HERE, LS_CLIENT_LEFT, LS_CLIENT_IGNORED };

struct ls_task {
    ls_node node; /* in the free or the live list of the state */
    ls_state *state;
    lua_State *co;
    int ref; /* registry reference that keeps co alive */

    /* When it ends: scope.h. */
    uint8_t scope;     /* enum ls_scope */
    uint8_t wait;      /* enum ls_wait_for: of its wait, or of the last one while it runs */
    uint8_t ending;    /* enum ls_end_why: it has resumed, or will resume, only to end; implies cpu_exceeded */
    uint8_t client_is; /* enum ls_client. IGNORED: it knows that its client has left, no wait ends because of it */

    /* How it runs. */
    bool waiting;      /* suspended until ls_task_wake() */
    bool queued;       /* `op` is in the actor's inbox */
    bool counted;      /* in state->busy */
    bool yield_sleep;  /* it sleeps for less than LS_YIELD_SLEEP_S: its next run is measured */
    bool cpu_exceeded; /* it has used too much processor time: every further run ends at once */
    bool killed;       /* the hook has suspended it forever */

    /* Its function. */
    bool protects; /* does itself what task_main does */
    bool bare;     /* has no protected call, which an idle connection would pay with 64 bytes: see task_close() */
    bool traced;   /* the traceback of its error is in the registry */
    bool starts;   /* a function of "start" itself */
    bool of_test;  /* runs the tests: its alarms do not follow the clock of a test */

    int16_t wake_result;  /* the `result` of ls_task_wake(): LS_OK, LS_ETIMEDOUT, ... */
    int nargs;            /* for the run that `op` starts */
    unsigned blocked;     /* number of C calls on its stack that it cannot yield across */
    unsigned late;        /* number of its sends to connections that have ended: ls_task_sent_late() */
    unsigned catches;     /* number of protected calls on its stack that a limit ends with an error: ls_task_catch() */
    uint32_t message;     /* a number that changes when it receives a message, or ends: for dev mode */
    uint64_t serial;      /* of the client it works for, also of a task that has none itself; 0: none */
    uint32_t time_ms_max; /* the task ends when it has waited for so long without ls_task_progress(); 0: no limit */
    uint64_t due_ns;      /* when it does; 0: it has not waited since then */
    uint64_t cpu_ns;      /* yield_sleep: measured processor time since the last wait */
    uint64_t sleep_ns;    /* yield_sleep: the time at which the sleep began */
    ls_node wait_node;    /* in the list of the tasks that wait for the same event */
    ls_alarm *alarm;      /* armed to wake it, or NULL */
    ls_op op;
    ls_task_ended_fn *ended;
    void *owner;                 /* user data of `ended` */
    ls_task_end **ends_of;       /* of its connection, which outlives the task of an event; NULL: its own `ends` */
    struct ls_task_times *times; /* NULL: nothing measures its waits */
    void *client;                /* what it answers, an object of a binding such as a request, or NULL */
    ls_task_end *ends;
    int dispatch_ref, failed_ref;   /* registry references to functions of the owner */
    struct ls_interrupt *interrupt; /* bind/interrupt.h: its code can be ended from outside; NULL mostly */
};

/* The waits of a task, for a request that may be slow. The owner has the memory, until the task ends. */
typedef struct ls_task_times {
    uint64_t began_ns, ended_ns; /* of the task: set by the owner */
    uint64_t since_ns;           /* of the wait that lasts */
    uint64_t waited_ns, longest_ns;
    char longest[160]; /* where it has waited longest: "site.lua:13 in a sleep" */
} ls_task_times;

/* A wait of a task with `times` ends: count it. */
void ls_task_waited(ls_task *task);

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
/* The task has this scope, and is in the statistics, until it ends; each task has one before it runs. */
static inline void ls_task_enter(ls_task *task, enum ls_scope scope)
{
    if (task->scope != LS_SCOPE_NONE) ls_state_running(task->state, (enum ls_scope)task->scope, -1);
    if (scope != LS_SCOPE_NONE) ls_state_running(task->state, scope, 1);
    task->scope = (uint8_t)scope;
}
/* The task counts as unfinished work of its state until it ends (ls_tasks_unfinished). */
void ls_task_count(ls_task *task);
/* A task that counts, with these fields. NULL: out of memory; that is logged with `what`, such as "in a timer". */
ls_task *ls_task_begin(ls_state *state, ls_thread_ctx *ctx, enum ls_scope scope, ls_task_ended_fn *ended, void *owner,
                       const char *what);
/* A continuation without results, for lua_callk. */
int ls_task_no_results(lua_State *L, int status, lua_KContext context);
/* Return a task that has ended to the pool, or free it. `well`: it ended without an error. */
void ls_task_release(ls_thread_ctx *ctx, ls_task *task, bool well);

/* Whether it ends for another reason than a limit of its own. */
static inline bool ls_task_is_canceled(const ls_task *task)
{
    return task->ending > LS_END_TIMEOUT;
}
/* Whether its client has left, and the wait that was its last one is of a kind that this ends. */
static inline bool ls_task_was_left(const ls_task *task)
{
    return task->client_is == LS_CLIENT_LEFT &&
           ls_scope_ends(LS_END_CLIENT_LEFT, (enum ls_scope)task->scope, (enum ls_wait_for)task->wait) == LS_ENDS_NOW;
}

/* Push the message of a task that has exceeded the limit of processor time or of time. `route`: "GET /a (site.lua:9)",
 * or NULL. */
const char *ls_task_push_exceeded(lua_State *L, const ls_task *task, const char *route);

/* A limit of processor time or of time ends the code of a task; where task->catches > 0 it does so by errors, one at
 * each instruction, until a protected call of C has them. That call counts in task->catches and asks first whether a
 * limit is the reason. */
static inline bool ls_task_is_caught(const ls_task *task)
{
    return task->catches > 0 && !ls_task_is_canceled(task);
}
static inline bool ls_task_is_over(const ls_task *task) /* in that call */
{
    return ls_cpu_watch_exceeded(task->state->cpu) && !ls_task_is_canceled(task);
}
/* Then Lua code may run in L again; pushes the traceback of the code that was ended, or nil. `until`: task->ends as
 * they were before the call; those after it are run. */
void ls_task_catch(lua_State *L, ls_task *task, const ls_task_end *until);
/* And the limits start again, with LS_TASK_CAUGHT_MS; ls_task_push_exceeded() is no longer possible. */
void ls_task_continue(ls_task *task);

/* A message handler: keeps the error as text with its traceback, and leaves it as it is. An error of a __close
 * function that ends the task in its place names the one before. */
int ls_task_keep_error(lua_State *L);
/* Push what ls_task_keep_error() has kept of the task, or `message` with the traceback of its coroutine. */
void ls_task_push_traceback(lua_State *L, ls_task *task, const char *message);
/* The error was caught. */
void ls_task_drop_error(ls_task *task);
/* Push the error on top of a coroutine that it has ended, where it stays. */
static inline void ls_task_copy_error(lua_State *L, lua_State *co)
{
    (void)lua_checkstack(co, 1); /* the error has left no room */
    lua_pushvalue(co, -1);
    lua_xmove(co, L, 1);
}

/* Log the error on top of a failed task with a traceback. `what` names its place: "in a timer". `text` (NULL: nothing)
 * receives the message, truncated to fit. */
void ls_task_log_error_to(ls_thread_ctx *ctx, ls_task *task, const char *what, char *text, size_t text_bytes);
/* Log results from the index `first` on that say nil, a message and a code, because nothing looks at them. */
void ls_task_log_failure(lua_State *L, int first, const char *what);
static inline void ls_task_log_error(ls_thread_ctx *ctx, ls_task *task, const char *what)
{
    ls_task_log_error_to(ctx, task, what, NULL, 0);
}

/* Start the task (a function and `nargs` arguments are on task->co) or resume it. Returns when it is suspended or has
 * ended; then `ended` has been called and the task may be freed. */
void ls_task_run(ls_thread_ctx *ctx, ls_task *task, int nargs);
/* The same from the actor's inbox: for callers inside another task. */
void ls_task_post(ls_thread_ctx *ctx, ls_task *task, int nargs);

/* Raise if the current task cannot be suspended here. Call it before anything is set up to wake the task. */
void ls_task_may_wait(lua_State *L);
bool ls_task_can_wait(lua_State *L); /* false where ls_task_may_wait() raises */
/* It ends, also where a time limit that has passed before would have been caught. */
void ls_task_cancel(ls_task *task, enum ls_end_why why);
/* Before a wait, while the task holds nothing yet: end it here if its site was replaced, or the server stops, and that
 * ends such a wait. Where it cannot be suspended it continues; then the wait raises. */
void ls_task_end_before(lua_State *L, enum ls_wait_for wait);
/* Suspend the current task. The caller returns the result of this call. After the wake `k` continues with the stack
 * of L as it is now. A wait that is idle does not begin in a site that was replaced, if that ends it. */
int ls_task_yield(lua_State *L, enum ls_wait_for wait, lua_KContext context, lua_KFunction k);
/* Wake a task with this wake_result. It runs inside the call if no other code of the state is running, else from the
 * inbox. Does nothing if the task does not wait. */
void ls_task_wake(ls_thread_ctx *ctx, ls_task *task, int result);
/* Wake all tasks that are in the list by their wait_node. The list is emptied before the first of them runs; the tasks
 * may free its owner. */
void ls_task_wake_all(ls_thread_ctx *ctx, ls_node *waiters, int result);

/* Work on a thread of the port for which a task waits. Set work.run; the object lives in a userdata on the stack of
 * the task. */
typedef struct ls_task_work {
    ls_work work;
    ls_task *task;
} ls_task_work;

/* Have w->work.run called on another thread, or on this one while the site loads, and continue with `k`; the caller
 * returns the result of this call. Raises where the task cannot wait; then the work was not begun. */
int ls_task_await(lua_State *L, ls_task_work *w, lua_KContext context, lua_KFunction k);
/* In `k`: the result of the work, or LS_ENOMEM. */
static inline int64_t ls_task_work_result(const ls_task_work *w)
{
    return atomic_load_explicit(&w->work.op.result, memory_order_relaxed);
}

/* Arm a timer that wakes `task` with LS_ETIMEDOUT after `seconds` (>= 0). Raises when out of memory. */
void ls_task_alarm(lua_State *L, ls_task *task, double seconds);
bool ls_task_try_alarm(ls_task *task, double seconds); /* the same; false: out of memory */
/* Set due_ns of a task that waits. */
void ls_task_watch(ls_task *task);
/* For the clock of a test: whether all tasks but the current one wait, none for ls_task_await; the time of the earliest alarm of a task of the
 * site, or UINT64_MAX; and all of these alarms earlier by `ns`. */
bool ls_tasks_wait(const ls_state *state);
uint64_t ls_task_alarms_next(const ls_state *state);
void ls_task_alarms_move(ls_state *state, uint64_t ns);
/* The time `seconds` from now on the clock of ls_clock_ns(). */
uint64_t ls_task_deadline(double seconds);

/* The task has made progress: the time until due_ns starts again. */
static inline void ls_task_progress(ls_task *task)
{
    if (task->due_ns == 0) return;
    task->due_ns = 0;
    if (task->waiting) ls_task_watch(task);
}

/* The task ends when it waits for longer than `ms` from now on; 0: it has no limit. */
static inline void ls_task_limit(ls_task *task, uint32_t ms)
{
    task->time_ms_max = ms;
    task->due_ns = 0;
    if (ms != 0 && task->waiting) ls_task_watch(task);
}

/* The task has received a value: a reload ends it when it receives the next one. */
static inline void ls_task_received(ls_task *task)
{
    ls_task_enter(task, ls_scope_with_value((enum ls_scope)task->scope));
    task->wait = LS_WAIT_MESSAGE;
}
/* Whether it has waited for nothing but further values since: they may belong together. */
static inline bool ls_task_collects(const ls_task *task)
{
    return task->scope == LS_SCOPE_BATCH && task->wait == LS_WAIT_MESSAGE;
}

/* As luaL_error, whose line may be one of luaserve: raises with the innermost line of the site. */
int ls_task_error(lua_State *L, const char *format, ...);
/* Raise the error of a task whose client has left. Its message begins with `what`. */
int ls_task_left_error(lua_State *L, const char *what);
/* Whether the value at `index` is that error, whatever its beginning. */
bool ls_task_is_left_error(lua_State *L, int index);

/* Find the innermost function of the site in a coroutine: `ar` receives its short_src and currentline. */
bool ls_task_find_line(lua_State *co, lua_Debug *ar);
/* A function that L runs returns nil and this reason. Kept if the site has called it, and not luaserve: an error about a
 * nil value in the same task names it. */
void ls_task_failed(lua_State *L, const char *reason);
/* Where a coroutine waits in a file of the site: "site.lua:12", or "". */
void ls_task_line(lua_State *co, char *out, size_t out_bytes);

/* The running task has sent to a connection that has ended. The log names the line of one that does not notice it,
 * after LS_TASK_LATE_MAX times: each client may leave such a loop. */
enum { LS_TASK_LATE_MAX = 1000 };
void ls_task_sent_late(lua_State *L);
/* `call` is about to return nil because of the end of its connection. Raises when that was so LS_TASK_LATE_MAX times in a row, which *late
 * counts: the loop around it would never wait, nor end. `loop` shows the right one. */
void ls_task_check_late(lua_State *L, uint16_t *late, const char *call, const char *loop);

/* Call end->run(end) if the task ends before ls_task_end_remove(). */
void ls_task_end_add(ls_task *task, ls_task_end *end);
/* The same if the client of the handler that runs in the task leaves: at the end of its request or connection. No effect
 * in the task of a job. */
void ls_task_handler_end_add(ls_task *task, ls_task_end *end);
void ls_task_ends_run(ls_task_end **ends, const ls_task_end *until); /* those before it */
void ls_task_end_remove(ls_task_end *end);                           /* no effect on one that is in no list */

/* Whether LS_END_SPARE would end each task. */
bool ls_tasks_spare(const ls_state *state);
/* Whether a task with a client runs or waits, or one that counts as busy. `ended`: among those that LS_END_UNUSED
 * ends. */
bool ls_tasks_unfinished(const ls_state *state, bool ended);
/* Run the jobs that wait for the end of the loops of the previous site (ls_generation.holds_jobs), only to end for
 * this reason if there is one. */
void ls_tasks_begin_held(ls_thread_ctx *ctx, ls_state *state, enum ls_end_why why);
/* Mark the tasks that end for this reason, also those that end later. */
void ls_tasks_cancel(ls_state *state, enum ls_end_why why);
/* Then wake those of them that wait. The thread is inside the actor and no task runs. */
void ls_tasks_end(ls_thread_ctx *ctx, ls_state *state);

/* Free all tasks and alarms of a state that closes. Lua is closed; no packet of an alarm follows. */
void ls_task_free_all(ls_state *state);
/* Before Lua is closed with tasks that live: run their ls_task_end. */
void ls_tasks_run_ends(ls_state *state);

#endif
