/* generation.h - one site with its settings and its Lua states. Several generations of a site may exist at the same
 * time: a reload makes a new one beside the old one, which ends when its last task has ended.
 *
 * States are made when they are needed. The first one is made while the site loads; script/site makes one for each
 * running thread before the start. A thread that finds every state in use makes a further one and loads the site into
 * it, until there are states_max. While as many are being made as threads run, a thread waits for a free one instead,
 * up to a quarter of a second: more loads at a time would only delay each other. When states_max is reached because
 * that many handlers compute or block, requests are refused if that lasts for a quarter of a second; other work, and
 * all work of a site that sets `states`, waits for a state: it is posted to the state's actor.
 *
 * A state that nothing has used for some time, other than those made before the start, gives its memory back
 * (state.h).
 *
 * What a site defines for all its states, such as listeners, is a *definition*: the first state makes its entry, every
 * additional state must define as many and finds the entry by its number. A module (module.h) has one list of them.
 *
 * Threads: one thread loads the first states. Then any thread reads the settings, the definitions and the list of
 * states. */
#ifndef LS_SCRIPT_GENERATION_H
#define LS_SCRIPT_GENERATION_H

#include <stdint.h>

#include "base/buf.h"
#include "script/core/lua/lua_files.h"
#include "script/core/module.h"
#include "script/core/runtime.h"
#include "script/core/scope.h"

enum {
    LS_JOBS_MAX = 10000,
    LS_TIMERS_MAX = 10000,
    LS_LUA_MIB_MAX = 256,
    LS_LUA_STATES_MORE = 6,
    LS_LOAD_POOL_BYTES_MAX = 256 * 1024 * 1024,
    LS_TURN_KINDS = 64
};

typedef struct ls_site_settings { /* ls.config{...}; 0: not set, the default in the comment applies */
    unsigned threads, threads_max;
    unsigned states_max;         /* threads_max */
    uint32_t connections_max;    /* 65,536 */
    uint64_t pool_bytes_max;     /* all buffer pools together; 256 MiB */
    uint64_t lua_bytes_max;      /* per state; 256 MiB */
    uint64_t lua_all_bytes_max;  /* of all states; ls_generation_lua_bytes_left */
    uint32_t jobs_max;           /* unfinished jobs of ls.spawn per state; 10,000 */
    uint32_t timers_max;         /* of ls.after and ls.every that are to tick, per state; 10,000 */
    uint32_t handler_cpu_ms_max; /* 5,000 */
    uint32_t load_ms_max;        /* 60,000 */
    uint32_t drain_ms_max;       /* 15,000 */
    uint32_t drain_delay_ms;     /* from the stop to the drain; 0 */
    bool drain_ready;            /* the server says that it is ready during that time */
    unsigned old_sites_max;      /* with open WebSockets; 4 */
    uint32_t old_site_ms_max;    /* then its WebSockets are closed; 0: never */
    uint32_t accepts_posted;     /* per listener; 4 */
    uint32_t backlog;            /* of listen(2); 1024 */
    bool mask_addresses;         /* of clients, in the log; false */
    char nameservers[256];       /* "": those of the system */
} ls_site_settings;

/* DISCONNECT: close connections, sockets and timers, but not Lua. */
enum ls_closing { LS_CLOSING_NOT, LS_CLOSING_DISCONNECT, LS_CLOSING, LS_CLOSING_FORCED };

enum { LS_REPORT_NONE, LS_REPORT_WAITING, LS_REPORT_ENDED }; /* in the middle of a drain, at its end by time */

typedef struct ls_definitions { /* of one module */
    void **entries;
    unsigned count;
} ls_definitions;

/* Load the site into `state`, which ls_state_open has opened; the thread holds its actor, unless no worker runs.
 * LS_OK, or an error with its message. */
typedef int ls_generation_load_fn(ls_generation *generation, ls_state *state, ls_thread_ctx *ctx, char *message,
                                  size_t message_bytes);

struct ls_generation {
    ls_runtime *runtime;
    ls_generation *next; /* in the list of the runtime */
    const ls_module *const *modules;
    unsigned module_count;
    ls_definitions *definitions; /* by slot */
    ls_site_settings settings;
    char *path; /* of the site's file */
    ls_lua_files lua_files;
    ls_generation_load_fn *load;

    ls_thread_ctx load_ctx; /* of the thread that loads the first states */
    ls_pools *load_pools;   /* for buffers that are made meanwhile */
    ls_pool *load_pool;

    _Atomic(ls_state *) *states; /* the first state_count; NULL: it is being made */
    bool takes_turns;            /* dev mode: ls_generation_enter_next chooses the state */
    unsigned states_max;
    bool refuses;           /* requests above states_max are refused; else they wait */
    unsigned running_count; /* number of threads that run at the same time: new connections go to this many states */
    _Atomic unsigned state_count;
    _Atomic unsigned states_left;          /* without listeners: states that still have tasks or timers */
    _Atomic bool load_failed;              /* a state could not be made on demand: no further one is tried */
    _Atomic unsigned loading;              /* states that are being made on demand */
    _Atomic uint64_t no_memory_ms;         /* coarse time at which one of them did not get enough memory; or 0 */
    _Atomic bool started;                  /* states made from now on start at once */
    const struct ls_log_target *status_to; /* set once: receives what the states do now, for each new number of: */
    _Atomic unsigned status_turn;
    _Atomic uint8_t reporting;              /* LS_REPORT_*: each state reports once what it still does */
    _Atomic unsigned ending;                /* bits of enum ls_end_why */
    _Atomic unsigned unfinished[LS_SCOPES]; /* tasks by scope that were ended before they were done */
    _Atomic bool holds_jobs;                /* of SITE, until the loops of the previous site have ended */
    _Atomic bool subscribers_warned;        /* functions of ls.subscribe have ended before connections */
    _Atomic bool forwarded_warned;          /* of a proxy that is not in `trusted` */
    uint32_t topic_site;                    /* ls_publication.site of its messages; set by the start */
    _Atomic int closing;                    /* enum ls_closing */
    _Atomic unsigned waiting;               /* work that waits for a state */
    _Atomic uint64_t full_ms;               /* coarse time at which all states were in use last; or 0 */
    _Atomic uint64_t refused_ms;            /* coarse time of the last log line about refused requests; or 0 */

    _Atomic unsigned turn_last;              /* index of the state that was entered last */
    _Atomic unsigned turn_of[LS_TURN_KINDS]; /* the same for each kind of work, by a hash */
};

/* Initialize a zeroed generation for the site `path`. LS_OK or an error; ls_generation_finish() in any case. */
int ls_generation_init(ls_generation *generation, ls_runtime *runtime, const char *path);
/* Free what the generation holds. All states are closed. */
void ls_generation_finish(ls_generation *generation);

/* Make room for states_max states; keeps those that exist. LS_OK or LS_ENOMEM. */
int ls_generation_room(ls_generation *generation, unsigned states_max);

/* Make the next state and load the site into it, in the calling thread; a worker is inside it then. LS_OK, LS_ELIMIT:
 * there are states_max; or an error with its message, and the state stays closed. */
int ls_generation_add_state(ls_generation *generation, ls_thread_ctx *ctx, char *message, size_t message_bytes);

static inline bool ls_generation_is_ending(const ls_generation *generation, enum ls_end_why why)
{
    return (atomic_load(&generation->ending) & 1u << why) != 0;
}

/* The reasons for which it gets no new work, as bits: a reload, a stop. */
static inline unsigned ls_generation_retired(const ls_generation *generation)
{
    return atomic_load(&generation->ending) & (1u << LS_END_REPLACED | 1u << LS_END_STOP);
}

/* The first state. */
static inline ls_state *ls_generation_first(const ls_generation *generation)
{
    return atomic_load_explicit(&generation->states[0], memory_order_relaxed);
}

/* A state chooses between equals by this number: a new connection goes to the smallest. */
typedef unsigned ls_state_load_fn(const ls_state *state);

/* Enter a free state. The thread holds no actor. `load_of` NULL: the thread's own state if it is free; else the state
 * with the smallest load among those of the running threads, of equals the thread's own. Makes a state when all are in
 * use. NULL: all are in use, and there are states_max; use ls_generation_busy_state. See also ls_generation_enter_own
 * (state.h). */
ls_state *ls_generation_enter(ls_generation *generation, ls_thread_ctx *ctx, ls_state_load_fn *load_of);

/* The same if generation->takes_turns: enter neither the state of the work before, nor that of the last work with the
 * same `what`, such as the path of a request. So what is not shared by the states fails at the first try. */
ls_state *ls_generation_enter_next(ls_generation *generation, ls_thread_ctx *ctx, const char *what, size_t what_len);

/* Memory in bytes that Lua may take in all states together, and that it may still take. The latter: with the mutex of
 * the runtime. */
uint64_t ls_generation_lua_bytes_max(const ls_generation *generation);
uint64_t ls_generation_lua_bytes_left(ls_generation *generation);
/* Whether that allows an additional state, or there are states_max. */
bool ls_generation_has_memory(ls_generation *generation);

/* ls_generation_enter has returned NULL: whether a request is to be refused. */
bool ls_generation_is_full(ls_generation *generation);

/* The state whose actor may run the work that found no free state: the thread's own. */
ls_state *ls_generation_busy_state(ls_generation *generation, const ls_thread_ctx *ctx);
/* Post `op` to it: generation->waiting counts the op until its `done` subtracts it. */
void ls_generation_post(ls_generation *generation, ls_thread_ctx *ctx, ls_op *op, ls_op_fn *done);

/* The next definition of the module with this slot in the state that loads: a new zeroed entry of `bytes` bytes in the
 * first state, the entry of the first state in others. *index receives its number. Raises if the first state has
 * fewer, at the limit, and when out of memory. */
void *ls_define(lua_State *L, unsigned slot, size_t bytes, unsigned *index);

static inline unsigned ls_definition_count(const ls_generation *generation, unsigned slot)
{
    return generation->definitions[slot].count;
}

static inline void *ls_definition_get(const ls_generation *generation, unsigned slot, unsigned index)
{
    return generation->definitions[slot].entries[index];
}

/* Whether the generation has a definition that brings work (ls_module.serves). */
bool ls_generation_serves(const ls_generation *generation);

/* Check that the state, which has loaded, defines as many as the first one. LS_OK, or LS_ESCRIPT with a message. */
int ls_definitions_check(const ls_state *state, char *message, size_t message_bytes);

#endif
