/* state.h - one Lua state as an actor: only the thread that holds ls_state.actor may use it.
 *
 * The state owns its memory limit, its pool of coroutines (task.h) and its ring of free request objects
 * (request.h).
 *
 * ls_state_of() finds the state of any lua_State without a lookup: the extra space of the main thread holds a
 * pointer to it, and Lua copies the extra space into every new coroutine. The lowest bits of the pointer are flags
 * of the coroutine:
 *   LS_EXTRA_WAITS     it is suspended as part of a waiting task; no other task may resume it
 *   LS_EXTRA_EXCEEDED  it died of the processor-time limit; it is never closed, because Lua leaves hooks disabled in
 *                      it and its __close functions could not be interrupted
 *
 * A Lua API function that allocates may raise, and an error outside of a protected call ends the process. Therefore
 * every allocation happens inside lua_resume or ls_state_protected(); other code pushes values that need no memory. */
#ifndef LS_SCRIPT_STATE_H
#define LS_SCRIPT_STATE_H

#include <lauxlib.h>
#include <lua.h>

#include "base/list.h"
#include "sched/actor.h"
#include "script/core/alloc.h"
#include "script/core/cpu_limit.h"
#include "script/core/string_block.h"
#include "script/site/site.h"

typedef struct ls_state ls_state;
typedef struct ls_task ls_task;
typedef struct ls_request ls_request;
typedef struct ls_alarm ls_alarm;

enum {
    LS_REQUESTS_RING = 64,     /* below this many free request objects a new one is created, which delays reuse */
    LS_REQUESTS_FREE_MAX = 256 /* further free objects, as after a burst of suspended requests, are dropped */
};

typedef struct ls_state_listener {
    int dispatch_ref, failed_ref;
} ls_state_listener;

enum ls_hook_kind { LS_HOOK_START, LS_HOOK_DRAIN, LS_HOOK_LOG, LS_HOOKS };

typedef struct ls_hooks {
    int *refs;
    unsigned count;
} ls_hooks;

struct ls_state {
    ls_actor actor; /* first: every actor of this layer is a state */
    lua_State *L;   /* the main thread: runs the chunk of the site, later only protected calls */
    ls_site *site;
    unsigned index;
    bool loading;     /* the chunk of the site runs: calls that wait raise */
    bool load_waited; /* such a call has raised */
    bool draining;
    bool ended;   /* in a site without listeners: the last task and timer have ended */
    bool closing; /* lua_close runs */

    ls_thread_ctx *ctx;       /* of the thread that runs the current task */
    ls_cpu_watch *cpu;        /* of the current run; never NULL */
    ls_task *current;         /* the running task, or NULL */
    unsigned protected_calls; /* nesting depth of ls_state_protected() */

    _Atomic size_t buffer_bytes; /* bytes of blocks given to buffers since the last collection for buffers */
    ls_alloc alloc;              /* allocator of Lua's small objects */
    _Atomic size_t bytes_live;   /* memory in use by Lua; other threads read it for statistics */
    size_t bytes_max;            /* its limit */

    ls_node tasks_free, tasks_live;
    unsigned tasks_free_count;
    unsigned wakes_nested;       /* nesting depth of tasks that ls_task_wake() runs directly */
    unsigned injects_nested;     /* nesting depth of app:inject while the site loads */
    unsigned jobs;               /* unfinished jobs of ls.spawn */
    unsigned sockets;            /* sockets.h: open sockets that objects own */
    unsigned sockets_collect_at; /* number of open sockets at which the next open collects garbage first; 0: not set */
    bool socket_opened;          /* since the last collection for sockets */
    _Atomic unsigned busy;       /* unfinished tasks, those of requests not counted, plus pending posted operations */
    ls_alarm *alarms_free, *alarms;

    ls_request *ring[LS_REQUESTS_FREE_MAX]; /* ring buffer of free request objects; the oldest is at ring_at */
    unsigned ring_at, ring_count;
    char ended_at[80]; /* the line at which the current task exceeded the processor-time limit: "site.lua:12" */
    uint64_t serial;   /* of the last request */
    uint64_t injected; /* number of injected requests so far */

    ls_state_listener *listeners;
    unsigned listener_count;
    ls_hooks hooks[LS_HOOKS];
    ls_hooks once;
    ls_node tcps;                 /* open connections (tcp.h) */
    struct ls_resolver *resolver; /* NULL until the first name lookup */
    struct ls_tcp *unflushed;     /* list of the connections with unsent output of the running task */
    unsigned tcps_ended;          /* connections that have ended since the last collection for them */
    _Atomic unsigned tcp_count;   /* length of `tcps`; any thread reads it to choose a state */
    ls_node timers;               /* ls.after and ls.every; the start arms those defined while loading */
    unsigned timers_live;         /* those that will tick again */

    int method_refs[LS_HTTP_METHODS], exceeded_text_ref;
    int encode_ref, decode_ref;      /* ls_cjson_encode_body and cjson.decode */
    struct ls_udp_script *udp;       /* udp_internal.h */
    struct ls_notify_script *notify; /* notify_internal.h */
    int req_meta_ref, res_meta_ref, buffer_meta_ref, job_meta_ref, timer_meta_ref, headers_meta_ref, tcp_meta_ref,
        connecting_meta_ref, loading_meta_ref, listing_meta_ref, lists_meta_ref;
    ls_strings strings; /* long strings that are being sent */
    ls_op start_op, drain_op, disconnect_op, collect_op;
    _Atomic bool collect_ordered; /* collect_op is posted and has not completed */
    bool collect_all;             /* collect_op makes a full collection; set before it is posted */
    uint64_t collect_all_due_ms; /* earliest time of the next full collection while busy; set before collect_op ends */
    _Atomic int buffers_live;    /* number of buffers that hold blocks */
    int buffers_kept;            /* buffers_live at the end of loading */
    struct ls_buffer *late_buffers; /* made by finalizers while the state closes */
    size_t buffer_bytes_seen;       /* buffer_bytes at the watchdog's last tick */
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

/* Open a Lua state with the libraries and the core; does not load the site. `index` is its index in the site,
 * bytes_max its memory limit. Returns LS_OK or LS_ENOMEM with the reason in `message`. */
int ls_state_open(ls_site *site, unsigned index, size_t bytes_max, ls_state **out, char *message,
                  size_t message_bytes);
/* Close and free the state. No worker runs and the port is closed. Finalizers run on the calling thread. */
void ls_state_close(ls_state *state);

/* Call fn with the light userdata `with` in a protected call on the main thread, under the processor-time limit.
 * Returns LUA_OK or the status of the error, whose value is dropped. No task may be running. Tasks that fn or a
 * finalizer wakes run after the call. */
int ls_state_protected(ls_state *state, ls_thread_ctx *ctx, lua_CFunction fn, void *with);

/* The same for a function that reports an error: it may use LS_STATE_REPORT_BYTES beyond the memory limit, because the
 * script may have used up all memory. */
enum { LS_STATE_REPORT_BYTES = 65536 };
int ls_state_report(ls_state *state, ls_thread_ctx *ctx, lua_CFunction fn, void *with);

/* The CPU watch of the thread that `ctx` belongs to. */
ls_cpu_watch *ls_state_cpu_watch(ls_state *state, const ls_thread_ctx *ctx);

/* The pool of the thread that runs the state now; the load pool while the site loads. */
ls_pool *ls_state_pool(const ls_state *state);

/* Get a block from that pool. If the pool is at its limit, a full garbage collection runs first to free buffers.
 * Raises if there is still no block. */
ls_block *ls_state_block(lua_State *L, size_t size);

/* A task or a timer has ended. When it was the last one of a site without listeners, the server stops. The caller holds
 * the actor. */
void ls_state_settle(ls_state *state);

/* The debug hook that enforces the processor-time limit. */
void ls_state_hook(lua_State *L, lua_Debug *ar);
/* End the code that runs in L, whose run has exceeded the limit. It suspends the task for ever where the task can be
 * suspended, else it raises an error that no message handler receives. Returns only if the caller is a hook. */
void ls_state_end_run(lua_State *L);
/* Raise an error without a call of the message handler: inside a hook, a handler would run with hooks disabled, and
 * nothing could end it. */
void ls_state_raise_unhandled(lua_State *L);

#endif
