/* state.h - one Lua state as an actor: whoever holds ls_state.actor may use it, nobody else.
 *
 * The state owns its memory budget, its pool of coroutines (task.h) and its ring of request objects (request.h).
 * Any lua_State of it leads here without a lookup: Lua copies the extra space of the main thread into every
 * coroutine. The lowest bits there mark a coroutine that waits as part of a task, so that no other task resumes it
 * meanwhile, and one that died of its processor time: Lua leaves hooks off in it, so nothing could end its __close
 * functions.
 *
 * Calls of the Lua API that can allocate may raise, and outside a protected call that ends the process. So
 * everything that allocates runs inside a coroutine's resume or in ls_state_protected(); outside, only light
 * values are pushed. */
#ifndef LS_SCRIPT_STATE_H
#define LS_SCRIPT_STATE_H

#include <lauxlib.h>
#include <lua.h>

#include "base/list.h"
#include "sched/actor.h"
#include "script/alloc.h"
#include "script/cpu_limit.h"
#include "script/site.h"

typedef struct ls_state ls_state;
typedef struct ls_task ls_task;
typedef struct ls_request ls_request;
typedef struct ls_alarm ls_alarm;

enum {
    LS_REQUESTS_RING = 64,     /* free request objects: fewer, and a new one is made, so that one comes round late */
    LS_REQUESTS_FREE_MAX = 256 /* more, after a burst of suspended requests, are dropped */
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
    ls_actor actor; /* first: an ls_actor of this layer is a state */
    lua_State *L;   /* the main thread: the site's chunk, then only protected calls */
    ls_site *site;
    unsigned index;
    bool loading;     /* the chunk runs: nothing may wait */
    bool load_waited; /* something wanted to */
    bool draining;

    ls_thread_ctx *ctx; /* the thread that is inside, while a task runs */
    ls_cpu_watch *cpu;
    ls_task *current;         /* the task that runs, NULL outside */
    unsigned protected_calls; /* under way, one inside the other */

    _Atomic size_t buffer_bytes; /* of blocks that buffers were given since the last collection for their sake */
    ls_alloc alloc;              /* Lua's small objects */
    _Atomic size_t bytes_live;   /* of Lua's memory; others read it for statistics */
    size_t bytes_max;

    ls_node tasks_free, tasks_live;
    unsigned tasks_free_count;
    unsigned wakes_nested;   /* tasks that run inside the wake of another, one in the other */
    unsigned injects_nested; /* requests that app:inject runs inside each other, while the site loads */
    _Atomic unsigned busy;   /* tasks that are not requests, and orders not yet carried out */
    ls_alarm *alarms_free, *alarms;

    ls_request *ring[LS_REQUESTS_FREE_MAX]; /* free request objects, oldest first from ring_at on, going round */
    unsigned ring_at, ring_count;
    uint64_t serial;   /* of the last request */
    uint64_t injected; /* requests without a socket so far */

    ls_state_listener *listeners;
    unsigned listener_count;
    ls_hooks hooks[LS_HOOKS];
    ls_hooks once;
    ls_node tcps;                 /* connections (tcp.h) */
    struct ls_resolver *resolver; /* of names; NULL until one is looked up */
    struct ls_tcp *unflushed;     /* of these, what the running task has sent on */
    unsigned tcps_ended;          /* since the last collection for their sake */
    _Atomic unsigned tcp_count;   /* of tcps; read by any thread that looks for a state */
    ls_node timers;               /* ls.after and ls.every, armed or to be armed at the start */

    int method_refs[LS_HTTP_METHODS], over_text_ref;
    int encode_ref, decode_ref;      /* cjson's */
    struct ls_udp_script *udp;       /* of bind_udp.c */
    struct ls_notify_script *notify; /* of bind_notify.c */
    int req_meta_ref, res_meta_ref, buffer_meta_ref, job_meta_ref, timer_meta_ref, headers_meta_ref, tcp_meta_ref,
        connecting_meta_ref, reading_meta_ref;
    ls_op start_op, drain_op, disconnect_op, collect_op;
    _Atomic bool collect_ordered; /* collect_op is on its way */
    bool collect_all;             /* it is to look at old objects, too; set before it is posted */
    uint64_t collect_all_due_ms;  /* when it may again, in a state that is never idle; set before it is over */
    _Atomic int buffers_live;     /* buffers that hold blocks; `buffers_kept`: how many did when the site was loaded */
    int buffers_kept;
    size_t buffer_bytes_seen; /* by the watchdog, at its last pulse */
};

enum { LS_EXTRA_WAITS = 1, LS_EXTRA_OVER = 2, LS_EXTRA_BITS = 3 };

static inline uintptr_t *ls_state_extra(lua_State *L)
{
    return (uintptr_t *)lua_getextraspace(L);
}

static inline ls_state *ls_state_of(lua_State *L)
{
    return (ls_state *)(*ls_state_extra(L) & ~(uintptr_t)LS_EXTRA_BITS); /* NOLINT(performance-no-int-to-ptr) */
}

/* LS_OK, or LS_ENOMEM / LS_ESCRIPT with the reason in `message`. */
int ls_state_open(ls_site *site, unsigned index, size_t bytes_max, ls_state **out, char *message,
                  size_t message_bytes);
void ls_state_close(ls_state *state);

/* Run fn(L, light userdata `with`) protected, on the main thread, within the processor-time budget. Its error, if
 * any, is dropped. LUA_OK or the status of the error. No task runs; those that fn wakes, or a finalizer, run later. */
int ls_state_protected(ls_state *state, ls_thread_ctx *ctx, lua_CFunction fn, void *with);

/* The same, to tell of an error: with LS_STATE_REPORT_BYTES more than scripts may use, for what has used up all of them. */
enum { LS_STATE_REPORT_BYTES = 65536 };
int ls_state_report(ls_state *state, ls_thread_ctx *ctx, lua_CFunction fn, void *with);

/* The CPU watch of a thread. */
ls_cpu_watch *ls_state_cpu_watch(ls_state *state, const ls_thread_ctx *ctx);

/* The pool for buffers made now. */
ls_pool *ls_state_pool(const ls_state *state);

/* A block; when the pool is at its limit, buffers that are garbage are collected first. Raises when there is none. */
ls_block *ls_state_block(lua_State *L, size_t size);

/* The hook behind the processor-time budget. */
void ls_state_hook(lua_State *L, lua_Debug *ar);
int ls_state_raise_over(lua_State *L);

#endif
