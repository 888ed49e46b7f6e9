/* state.h - one Lua state as an actor: only the thread that holds ls_state.actor may use it.
 *
 * The state owns its memory limit, its pool of coroutines (task.h) and the data of its modules (module.h).
 *
 * ls_state_of() finds the state of any lua_State without a lookup: the extra space of the main thread holds a
 * pointer to it, and Lua copies the extra space into every new coroutine. The lowest bits of the pointer are flags
 * of the coroutine:
 *   LS_EXTRA_WAITS     it is suspended as part of a waiting task; no other task may resume it
 *   LS_EXTRA_EXCEEDED  it died of the processor-time limit; it is never closed, because Lua leaves hooks disabled in
 *                      it and its __close functions could not be interrupted
 *
 * A Lua API function that allocates may raise, and an error outside of a protected call ends the process. Therefore
 * every allocation happens inside lua_resume or ls_state_protected(); other code pushes values that need no memory.
 *
 * The life of a state. ls_state_step() brings it up to the phase of its generation: any thread sets the phase there
 * and posts the step to every state, and a state that is made later makes the step itself.
 *
 *     open --> (load) --> started --> ending, for one reason after the other (scope.h) --> closing: cancel what is
 *     pending, again and again, until no task, alarm, string or module needs the state --> lua_close --> closed
 *
 * A state above those of the running threads that was not entered for LS_STATE_UNUSED_TICKS, and that holds nothing,
 * gives its memory back: Lua is closed, the data of the modules is freed, and the struct stays, so that its actor is
 * always valid. ls_state_open() opens it again when all other states are in use; to the site it is a new state. */
#ifndef LS_SCRIPT_STATE_H
#define LS_SCRIPT_STATE_H

#include <lauxlib.h>
#include <lua.h>

#include "base/list.h"
#include "sched/actor.h"
#include "script/core/cpu_limit.h"
#include "script/core/generation.h"
#include "script/core/lua/alloc.h"
#include "script/core/lua/string_block.h"

typedef struct ls_task ls_task;
typedef struct ls_alarm ls_alarm;

enum { LS_STATE_GRANT_BYTES = 1 << 20 }; /* by which a state may grow at a time, or more if it needs more */

struct ls_state {
    ls_actor actor; /* first: every actor of this layer is a state */
    lua_State *L;   /* the main thread: runs the chunk of the site, later only protected calls */
    ls_generation *generation;
    ls_port *port; /* NULL while the site loads, and when finalizers run while the state closes: post nothing */
    unsigned index;
    bool loading;     /* the chunk of the site runs: calls that wait raise */
    bool load_waited; /* such a call has raised */
    bool started;
    _Atomic unsigned ending;             /* bits of enum ls_end_why: the steps that were taken */
    _Atomic unsigned running[LS_SCOPES]; /* tasks by scope; written by the thread that holds the actor */
    _Atomic uint8_t reported;            /* LS_REPORT_* */
    _Atomic unsigned status_turn;        /* of the generation, when the state has answered last */
    unsigned looked;                     /* the last one of ls_runtime.looks that it has answered */
    bool ended;                          /* in a site without listeners: the last task and timer have ended */
    bool closing;                        /* lua_close runs */

    _Atomic bool used;        /* entered since the last tick */
    ls_thread_ctx *ctx;       /* of the thread that runs the current task */
    ls_cpu_watch *cpu;        /* of the current run; never NULL */
    ls_task *current;         /* the running task, or NULL */
    ls_flush *flushes;        /* work for the end or the suspension of the running task */
    ls_flush *observer;       /* dev mode: runs after the flushes of each task; NULL: none */
    unsigned protected_calls; /* nesting depth of ls_state_protected() */

    ls_alloc alloc;               /* allocator of Lua's small objects */
    _Atomic size_t bytes_live;    /* memory in use by Lua; other threads read it for statistics */
    size_t bytes_max;             /* its limit */
    _Atomic size_t bytes_granted; /* Lua may grow to this size without a look at what the others may grow to */
    bool refused;                 /* the limit was reached since the last ls_task_release() */
    bool refused_by_all;          /* and the last time that of all states */

    ls_node waits; /* in the queues of channels and semaphores: wait.h */
    /* Of the requests; NULL: none. The task is going to wait: set task->client_is when its client has left, now or
     * later. */
    void (*expect_end)(ls_thread_ctx *ctx, ls_task *task);

    unsigned works; /* of ls_task_await, on other threads */
    ls_node tasks_free, tasks_live;
    ls_node tasks_held; /* by their wait_node: jobs that have not begun */
    unsigned tasks_free_count;
    unsigned wakes_nested;  /* nesting depth of tasks that ls_task_wake() runs directly */
    unsigned holds;         /* number of timers and the like that keep a site without listeners running */
    _Atomic unsigned busy;  /* unfinished tasks, those with a client not counted, plus pending posted operations */
    _Atomic unsigned steps; /* of the latter those of the life of the state: see state.c */
    ls_alarm *alarms_free, *alarms;
    unsigned alarms_used; /* armed, or their packet is on its way */
    ls_timer watch;       /* counted in alarms_used while it is `watching`: ends the tasks that wait for too long */
    bool watching;

    char refused_at[80]; /* the line that wanted more memory than there is, or "" */
    char ended_at[80];   /* the line at which the current task exceeded the processor-time limit: "site.lua:12" */
    int exceeded_text_ref;
    struct { /* the last call that returned nil and a reason to the site, for ls_task_keep_error() */
        const struct ls_task *task; /* only compared */
        uint32_t message;           /* task->message */
        char text[200];             /* "site.lua:12: reason" */
    } failed;
    ls_strings strings; /* long strings that are being sent */

    _Atomic unsigned long_lived; /* connections that outlive a reload: open, or with a handler that has not returned */

    ls_op step_op;            /* ls_state_step() */
    _Atomic bool step_posted; /* the op is on its way and has not looked at the phase yet */
    _Atomic bool closed;      /* Lua is closed, L is NULL; nothing posts to the actor but steps */
    unsigned unused_ticks;    /* of the watchdog: since it was entered last */
    _Atomic bool gives_back;  /* the step closes Lua if nothing needs the state */

    unsigned *defined; /* by slot: number of definitions so far (generation.h) */
    void *module_data; /* one allocation; NULL: the state has given its memory back */
    void *data[];      /* of the modules, by slot; parts of it */
};

enum { LS_EXTRA_WAITS = 1, LS_EXTRA_EXCEEDED = 2, LS_EXTRA_BITS = 3 };

static inline uintptr_t *ls_state_extra(lua_State *L)
{
    return (uintptr_t *)lua_getextraspace(L);
}

static inline ls_state *ls_state_of(lua_State *L)
{
    return (ls_state *)(*ls_state_extra(L) & ~(uintptr_t)LS_EXTRA_BITS); /* NOLINT(performance-no-int-to-ptr) */
}

static inline ls_state *ls_state_of_actor(ls_actor *actor)
{
    return LS_CONTAINER(actor, ls_state, actor);
}

/* The data of the module with this slot. */
static inline void *ls_state_data(const ls_state *state, unsigned slot)
{
    return state->data[slot];
}

static inline ls_runtime *ls_state_runtime(const ls_state *state)
{
    return state->generation->runtime;
}

/* Whether the reason has ended the work of the state that it ends. */
static inline bool ls_state_is_ending(const ls_state *state, enum ls_end_why why)
{
    return (atomic_load_explicit(&state->ending, memory_order_relaxed) & 1u << why) != 0;
}
/* Whether work of this scope that would begin to wait so, now, would have ended already. */
bool ls_state_ends(const ls_state *state, enum ls_scope scope, enum ls_wait_for wait);
/* The scope by which it ends: what a WebSocket has begun is a job when the state has no WebSocket any more. */
static inline enum ls_scope ls_state_scope(const ls_state *state, enum ls_scope scope)
{
    const bool left = scope == LS_SCOPE_WEBSOCKET && atomic_load(&state->long_lived) == 0;
    return left ? LS_SCOPE_JOB : scope;
}
static inline void ls_state_running(ls_state *state, enum ls_scope scope, int change)
{
    const unsigned count = atomic_load_explicit(&state->running[scope], memory_order_relaxed);
    atomic_store_explicit(&state->running[scope], count + (unsigned)change, memory_order_relaxed);
}

/* Add the tasks of each scope. Any thread. */
static inline void ls_state_add_running(const ls_state *state, unsigned counts[LS_SCOPES])
{
    for (int scope = LS_SCOPE_REQUEST; scope < LS_SCOPES; scope++)
        counts[scope] += atomic_load_explicit(&state->running[scope], memory_order_relaxed);
}

/* Start the state before its first request, if the packet of its step has not come yet. The worker holds its actor. */
void ls_state_start_now(ls_thread_ctx *ctx, ls_state *state);
static inline void ls_state_begin_request(ls_thread_ctx *ctx, ls_state *state)
{
    if (!state->started) ls_state_start_now(ctx, state);
}

/* Enter the actor if it is free and Lua is open. */
static inline bool ls_state_try_enter(ls_state *state, ls_thread_ctx *ctx)
{
    if (!ls_actor_try_enter(&state->actor, ctx)) return false;
    if (state->L == NULL) {
        ls_actor_leave(&state->actor, ctx);
        return false;
    }
    atomic_store_explicit(&state->used, true, memory_order_relaxed);
    ls_state_begin_request(ctx, state);
    return true;
}

/* ls_generation_enter() without a load: for requests and datagrams. `what` as for ls_generation_enter_next. */
static inline ls_state *ls_generation_enter_own(ls_generation *generation, ls_thread_ctx *ctx, const char *what,
                                                size_t what_len)
{
    if (generation->takes_turns) return ls_generation_enter_next(generation, ctx, what, what_len);
    if (ctx->index < atomic_load_explicit(&generation->state_count, memory_order_relaxed)) {
        ls_state *own = atomic_load_explicit(&generation->states[ctx->index], memory_order_acquire);
        if (own != NULL && ls_state_try_enter(own, ctx)) return own;
    }
    return ls_generation_enter(generation, ctx, NULL);
}

/* A state that is closed, with this memory limit. NULL: no memory. */
ls_state *ls_state_new(ls_generation *generation, size_t bytes_max);

/* Open a closed state with the libraries and the modules; does not load the site. The thread holds its actor, unless
 * no worker runs. LS_OK or LS_ENOMEM with the reason in `message`: it holds nothing then. */
int ls_state_open(ls_state *state, ls_thread_ctx *ctx, char *message, size_t message_bytes);
/* The site could not be loaded into it: it is closed again. */
void ls_state_open_failed(ls_state *state, ls_thread_ctx *ctx);

/* Let the states that nothing has used for some time give their memory back. Called by the watchdog every half second
 * while a worker is busy, then as long as it returns true: a state may still give its memory back. */
enum { LS_STATE_UNUSED_TICKS = 20 };
bool ls_states_on_tick(ls_generation *generation);

/* Post a step to each state that is open, for ls_runtime.looks. The caller holds the mutex of the runtime. */
void ls_states_look(ls_generation *generation);

/* The site has loaded: calls may use the port. */
void ls_state_loaded(ls_state *state);

/* Post ls_state_step() to the actor, unless it is on its way. Any thread; the workers run. */
void ls_state_post_step(ls_state *state, ls_port *port);
/* Do what the phase of the generation requires and has not been done. The thread is inside the actor. */
void ls_state_step(ls_thread_ctx *ctx, ls_state *state);

/* Whether the state has closed and no thread or packet uses its actor; a thread may still be leaving it. */
bool ls_state_is_released(ls_state *state);

/* The port is closed, or is not used any more: the state posts nothing from now on. */
void ls_state_disconnect(ls_state *state);

/* Close the state, unless ls_state_step() has closed it, and free it. No thread uses it any more. If it is not closed,
 * no worker runs and the port is closed, or was never used; finalizers then run on the calling thread. */
void ls_state_free(ls_state *state);

/* Call fn with the light userdata `with` in a protected call on the main thread, under the processor-time limit.
 * Returns LUA_OK or the status of the error, whose value is dropped. No task may be running. Tasks that fn or a
 * finalizer wakes run after the call. */
int ls_state_protected(ls_state *state, ls_thread_ctx *ctx, lua_CFunction fn, void *with);

/* The same for a function that reports an error: it may use LS_STATE_REPORT_BYTES beyond the memory limit, because the
 * script may have used up all memory. */
enum { LS_STATE_REPORT_BYTES = 65536 };
int ls_state_report(ls_state *state, ls_thread_ctx *ctx, lua_CFunction fn, void *with);

/* Run `flush` when the running task ends or is suspended; without a task, after the protected call. */
static inline void ls_state_flush_later(ls_state *state, ls_flush *flush)
{
    if (flush->listed) return;
    flush->listed = true;
    flush->next = state->flushes;
    state->flushes = flush;
}

/* Run the list. */
void ls_state_flush(ls_thread_ctx *ctx, ls_state *state, bool suspended);

/* The CPU watch of the thread that `ctx` belongs to. */
static inline ls_cpu_watch *ls_state_cpu_watch(const ls_state *state, const ls_thread_ctx *ctx)
{
    ls_runtime *runtime = state->generation->runtime;
    return ctx == &state->generation->load_ctx || runtime->cpus == NULL ? &runtime->load_cpu
                                                                        : &runtime->cpus[ctx->index];
}

/* The pool of the thread that runs the state now; the load pool while the site loads. */
ls_pool *ls_state_pool(const ls_state *state);

/* Get a block from that pool. If the pool is at its limit, a full garbage collection runs first to free buffers.
 * Raises if there is still no block. */
ls_block *ls_state_block(lua_State *L, size_t size);

/* A full collection. No task runs. */
void ls_state_collect(ls_thread_ctx *ctx, ls_state *state);

/* A connection with a coroutine or an object has ended: count it in *ended; `left` are open. Coroutines and objects of
 * ended connections belong to the old generation, which the collector visits rarely, so they can pile up. Therefore a
 * full collection runs once as many connections have ended as are open, and at least LS_COLLECT_AFTER. No task
 * runs. */
enum { LS_COLLECT_AFTER = 1024 };
void ls_state_count_ended(ls_thread_ctx *ctx, ls_state *state, unsigned *ended, unsigned left);

/* A task or a timer has ended. When it was the last one of a site without listeners, the server stops. The caller
 * holds the actor. */
void ls_state_work_ended(ls_state *state);

/* The debug hook that enforces the processor-time limit. */
void ls_state_hook(lua_State *L, lua_Debug *ar);
/* End the code that runs in L, whose run has exceeded the limit or was cancelled. It suspends the task for ever where
 * the task can be suspended and no call catches it (ls_task_is_caught), else it raises an error that no message
 * handler receives. Returns only if the caller is a hook. */
void ls_state_end_run(lua_State *L);
/* Raise an error without a call of the message handler: inside a hook, a handler would run with hooks disabled, and
 * nothing could end it. */
void ls_state_raise_unhandled(lua_State *L);

#endif
