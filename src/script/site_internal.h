/* site_internal.h - what the files of this layer know about a site. */
#ifndef LS_SCRIPT_SITE_INTERNAL_H
#define LS_SCRIPT_SITE_INTERNAL_H

#include "script/state.h"
#include "script/tcp.h"

typedef struct ls_site_handler {
    ls_http_handler base; /* first */
    ls_site *site;
    unsigned index; /* of the listener */
} ls_site_handler;

typedef struct ls_site_entry { /* a listener; entries do not move, others hold pointers to them */
    ls_site_listener listener;
    ls_site_handler handler;
    ls_tcp_server tcp;
    ls_addr bound;
    bool is_bound;
} ls_site_entry;

struct ls_site {
    ls_site_settings settings;
    ls_site_entry **entries;
    unsigned entry_count;
    struct ls_site_udp_entry **udp_entries; /* bind_udp.c */
    unsigned udp_count;
    struct ls_notify_table *watchers; /* bind_notify.c */
    struct ls_bytecode *bytecode;     /* while the states are made; then NULL */
    ls_state **states;
    unsigned state_count;
    unsigned running_count;     /* of the states: as many as threads that run at a time */
    _Atomic uint32_t tcps_open; /* connections that Lua has, in all states */
    ls_cpu_watch *cpus;         /* one for each thread context; NULL until ls_site_ready */
    unsigned cpu_count;
    uint64_t cpu_ns_max;
    ls_port *port; /* NULL until ls_site_ready */

    char nameservers[256]; /* "": the system's */
    char *path;
    int argc;
    char **argv;
    const ls_site_host *host;

    ls_pools *load_pools; /* for buffers made while the site loads */
    ls_pool *load_pool;
    ls_thread_ctx load_ctx; /* of the thread that loads */
    ls_cpu_watch load_cpu;
};

enum { LS_LOAD_POOL_BYTES_MAX = 256 * 1024 * 1024 };
enum { LS_HANDLER_CPU_MS_MAX = 5000, LS_LUA_MIB_MAX = 256, LS_LISTENERS_MAX = 64 };

/* ls_site_ready with its thread contexts given: what it does once it has found them in the workers. */
int ls_site_ready_ctxs(ls_site *site, ls_port *port, ls_thread_ctx **ctxs, unsigned count, char *message,
                       size_t message_bytes);

#endif
