/* runtime.h - what all generations of a server share: the port, the CPU watches of its threads, callbacks into the
 * server, and what each module has once per server. It is opened before the first site is loaded and closed after the
 * last one.
 *
 * A generation (generation.h) is in the list of the runtime from the load of its second state until it is closed. The
 * watchdog goes through this list, so the mutex is held there: a generation is never closed meanwhile.
 *
 * Thread: any, except where a comment names another one. Fields are set before the workers start. */
#ifndef LS_SCRIPT_RUNTIME_H
#define LS_SCRIPT_RUNTIME_H

#include <stdio.h>

#include "base/io/log.h"
#include "base/os/thread.h"
#include "port/port.h"
#include "sched/workers.h"
#include "script/core/cpu_limit.h"
#include "script/core/module.h"

typedef struct ls_generation ls_generation;

/* Callbacks into the server. */
typedef void ls_site_stat_fn(void *to, const char *name, double value);
typedef struct ls_site_host {
    void *server;                                                 /* passed to the callbacks */
    bool check;                                                   /* sites are only checked: dicts lock no files */
    void (*stats)(void *server, ls_site_stat_fn *each, void *to); /* ls.stats(): calls each(to, ...) for every value */
    bool (*file_busy)(void *server,
                      const char *path); /* NULL, or another process uses the file: wait; true: try again */
    void (*stop)(void *server);          /* starts the drain, as SIGTERM does */
    void (*init_ended)(void *server, const char *failure); /* see ls_site_init; failure NULL: all have returned */
    unsigned (*threads)(void *server, ls_worker_look *out, unsigned max); /* ls_workers_look */
    ls_log_kept *errors;                                                  /* of the server; NULL: none */
} ls_site_host;

/* What a module has once per server: `bytes` bytes of zeroed data, which ls_runtime_own() finds. Every function may be
 * NULL. */
struct ls_module_common {
    size_t bytes;
    int (*open)(void *own);   /* with the runtime. LS_OK, or an error that leaves nothing open */
    void (*close)(void *own); /* with the runtime: every site is closed */
    void (*stats)(ls_runtime *runtime, ls_site_stat_fn *each, void *to); /* its numbers of ls.stats() */
};

/* Why app:health says that the server is not ready: by `luaserve unready`, and by the drain. */
enum { LS_UNREADY_ASKED = 1, LS_UNREADY_DRAINS = 2 };

struct ls_runtime {
    ls_port *port;                  /* NULL before the server opens it */
    struct ls_deadlines *deadlines; /* the same; of all streams */
    struct ls_polls *polls;         /* the same; of ls.notify, ls.process and the resolvers */
    struct ls_stream_pool *streams; /* the same; idle ones of ls.fetch, proxies and ls.redis */
    const ls_site_host *host;       /* NULL: none */
    _Atomic unsigned unready;       /* bits; 0: the server is ready */
    struct ls_shared *shared;       /* what the site shares by name: it outlives each generation */

    FILE *null;         /* the null device, for the output of additional states; NULL: it appears once per state */
    ls_cpu_watch *cpus; /* one for each thread context; NULL before the port is open */
    unsigned cpu_count;
    ls_cpu_watch load_cpu; /* of the thread that calls ls_site_open and ls_site_ready, one at a time */
    uint64_t load_from_ns; /* of ls_runtime_load_begin */
    _Atomic uint64_t load_ns_max, load_cpu_ns_max; /* from then, and processor time of one chunk */
    _Atomic uint64_t cpu_ns_max;                   /* the limit of the youngest generation that has started */

    /* A look at what runs (bind/operating/look.c) adds 1 to `looks`: the watchdog then asks each stalled thread for its place,
     * once, and the hook of ls_cpu_limit calls on_look there, which may not raise or allocate. */
    _Atomic unsigned looks;
    void (*on_look)(lua_State *L, struct ls_state *state, uint64_t run, unsigned thread); /* NULL: none */

    ls_mutex mutex; /* guards the list, and what the states grow by */
    ls_generation *generations;

    const ls_module *const *modules;
    unsigned module_count;
    void *own[]; /* of the modules, by slot */
};

/* The data of the module with this slot. */
static inline void *ls_runtime_own(const ls_runtime *runtime, unsigned slot)
{
    return runtime->own[slot];
}

enum { LS_HANDLER_CPU_MS_MAX = 5000, LS_LOAD_MS_MAX = 60000 };

/* Open a runtime without a port, for these modules. LS_OK, or an error of the mutex or of a module. */
int ls_runtime_open(const ls_site_host *host, const ls_module *const *modules, unsigned module_count,
                    ls_runtime **out);
/* Make the CPU watches of `count` thread contexts and install the CPU limit. LS_OK, LS_ENOMEM, LS_ESYS. */
int ls_runtime_watch(ls_runtime *runtime, unsigned count);
/* No generation is open. No worker runs. */
void ls_runtime_close(ls_runtime *runtime);

void ls_runtime_add(ls_runtime *runtime, ls_generation *generation);
void ls_runtime_remove(ls_runtime *runtime, ls_generation *generation);
/* Call fn(generation, user) for every generation in the list. */
void ls_runtime_each(ls_runtime *runtime, void (*fn)(ls_generation *generation, void *user), void *user);

/* Call each(to, name, value) for the numbers of ls.stats(): of all states, of the modules, of the server. */
void ls_runtime_stats(ls_runtime *runtime, ls_site_stat_fn *each, void *to);

/* For ls_workers_options.on_stall; `runtime` is its user data. Enforces the processor-time limit. Returns the
 * processor time of the run in ns since the first call for it. Thread: the watchdog. */
uint64_t ls_runtime_on_stall(ls_thread_ctx *ctx, uint32_t ms, void *runtime);
/* For ls_workers_options.on_thread_end. */
void ls_runtime_on_thread_end(ls_thread_ctx *ctx, void *runtime);

/* Limit the loading of a site by this thread: between begin and end another thread calls ls_runtime_on_load every few
 * milliseconds, which ends a chunk past the limits; `end`: in any case. LS_OK or LS_ESYS. */
int ls_runtime_load_begin(ls_runtime *runtime);
void ls_runtime_limit_load(ls_runtime *runtime, uint32_t cpu_ms_max, uint32_t ms_max); /* of the site; 0: no change */
void ls_runtime_on_load(ls_runtime *runtime, bool end);
void ls_runtime_load_end(ls_runtime *runtime);

#endif
