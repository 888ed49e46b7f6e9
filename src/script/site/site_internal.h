/* site_internal.h - the structs of a site, shared by the files of the script layer. */
#ifndef LS_SCRIPT_SITE_INTERNAL_H
#define LS_SCRIPT_SITE_INTERNAL_H

#include <stdio.h>

#include "proto/file_cache.h"
#include "script/bind/tcp.h"
#include "script/core/state.h"

typedef struct ls_site_handler {
    ls_http_handler base; /* first */
    ls_site *site;
    unsigned index; /* of the listener */
} ls_site_handler;

typedef struct ls_site_entry { /* a listener; allocated one by one, because the server holds pointers into it */
    ls_site_listener listener;
    ls_site_handler handler;
    ls_tcp_server tcp;
    char *routes; /* of ls_site_routes(); NULL: "" */
} ls_site_entry;

struct ls_site {
    ls_site_settings settings;
    ls_site_entry **entries;
    unsigned entry_count;
    struct ls_site_udp_entry **udp_entries; /* udp_internal.h */
    unsigned udp_count;
    struct ls_polls *polls;               /* of ls.notify and the resolvers; NULL before ls_site_ready */
    struct ls_tls_contexts *tls_contexts; /* of ls.connect and sock:starttls; the same */
    struct ls_bytecode *bytecode;         /* NULL after ls_site_ready */
    ls_state **states;
    unsigned state_count;
    unsigned running_count; /* number of threads that run at the same time; new connections go to this many states */
    _Atomic uint32_t tcps_open;   /* `sock` connections of all states */
    _Atomic unsigned states_left; /* without listeners: states that still have tasks or timers */
    ls_cpu_watch *cpus;           /* one per thread context; NULL until ls_site_ready */
    unsigned cpu_count;
    uint64_t cpu_ns_max;
    ls_file_cache *files;           /* of res:file and app:static */
    ls_port *port;                  /* NULL until ls_site_ready */
    struct ls_deadlines *deadlines; /* the same */

    char nameservers[256]; /* "": those of the system */
    char *path;
    const char *source; /* of ls_site_options; NULL after ls_site_ready */
    size_t source_bytes;
    int (*open)(lua_State *L, void *user);
    void *open_user;
    bool control;
    FILE *null; /* the null device, while further states load */
    int argc;
    char **argv;
    const ls_site_host *host;

    ls_pools *load_pools; /* for buffers that are created while the site loads */
    ls_pool *load_pool;
    ls_thread_ctx load_ctx; /* of the thread that loads the site */
    ls_cpu_watch load_cpu;
};

enum { LS_LOAD_POOL_BYTES_MAX = 256 * 1024 * 1024 };
enum { LS_JOBS_MAX = 10000, LS_HANDLER_CPU_MS_MAX = 5000, LS_LUA_MIB_MAX = 256, LS_LISTENERS_MAX = 64 };

/* ls_site_ready() for an array of thread contexts instead of the workers. `port` may be NULL in tests that post
 * nothing. */
int ls_site_ready_ctxs(ls_site *site, ls_port *port, struct ls_deadlines *deadlines, ls_thread_ctx **ctxs,
                       unsigned count, char *message, size_t message_bytes);

#endif
