/* site.h - one site.lua and the Lua states that run it: what the server sees of the script layer.
 *
 * Life: ls_site_open loads the file into the first state, which yields settings, listeners and errors. The server
 * then makes its port and workers from the settings, opens the listeners, and calls ls_site_ready, which loads the
 * other states (one for each thread context of the workers) and compares what they define with the first. ls_site_start runs
 * ls.once functions, "start" hooks and timers. Calls are made by one thread until the workers has started. */
#ifndef LS_SCRIPT_SITE_H
#define LS_SCRIPT_SITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/addr.h"
#include "net/listener.h"
#include "net/udp.h"
#include "proto/exchange.h"
#include "proto/http_config.h"
#include "proto/httpsys.h"
#include "sched/workers.h"

typedef struct ls_site ls_site;

typedef struct ls_site_settings { /* ls.config{...}; 0 means: not set, the server chooses */
    unsigned threads, threads_max;
    uint32_t connections_max;    /* 65,536 */
    uint64_t pool_bytes_max;     /* of buffers; 256 MiB */
    uint64_t lua_bytes_max;      /* per state; 256 MiB */
    uint32_t handler_cpu_ms_max; /* 5,000 */
    uint32_t drain_ms_max;       /* 15,000 */
    uint32_t accepts_posted;     /* per listener; 4 */
    uint32_t backlog;            /* of listen(2); 1024 */
} ls_site_settings;

typedef struct ls_tcp_config { /* limits of one connection that Lua reads and writes; 0 ms: no limit */
    uint32_t receive_ms_max, send_ms_max;
    uint32_t write_bytes_high;  /* sends wait when more is queued */
    uint32_t line_bytes_max;    /* of receive("*l"), receiveuntil */
    uint64_t message_bytes_max; /* of receive(n), receive("*a") */
    uint32_t keepalive_s;       /* TCP's own: idle seconds until it probes; 0: off */
} ls_tcp_config;

enum ls_site_kind { LS_SITE_HTTP, LS_SITE_TCP, LS_SITE_HTTPSYS };

typedef struct ls_site_listener {     /* one ls.listen or ls.tcp call */
    uint8_t kind;                     /* enum ls_site_kind */
    char host[112];                   /* "" : the loopback, both families; "*"; an address; "unix:/path" */
    uint16_t port;                    /* 0: pick a free one */
    char urls[LS_HTTPSYS_URLS_BYTES]; /* of LS_SITE_HTTPSYS instead: as ls_httpsys_options has them */
    ls_http_config http;
    ls_tcp_config tcp;
    uint32_t backlog; /* 0: the server's */
    char where[80];   /* "site.lua:12", for messages */
} ls_site_listener;

enum { LS_UDP_SOCKETS_MAX = 2 };

typedef struct ls_site_udp { /* one ls.udp call */
    char host[112];          /* "": the loopback, both families; "*"; an address */
    uint16_t port;           /* 0: pick a free one */
    ls_udp_setup setup;
    char where[80];
} ls_site_udp;

/* What the server lends to the site: the values behind ls.stats(), as name and number. */
typedef void ls_site_stat_fn(void *to, const char *name, double value);
typedef struct ls_site_host {
    void *server;
    void (*stats)(void *server, ls_site_stat_fn *each, void *to);
    void (*stop)(void *server); /* begin to drain, as SIGTERM does */
} ls_site_host;

typedef struct ls_site_options {
    const char *path; /* of site.lua */
    int argc;         /* arguments after it: `...`, and arg[1..]; arg[0] is the path */
    char **argv;
    const ls_site_host *host;
} ls_site_options;

/* Load the file into the first state. LS_OK; LS_ESCRIPT with a message "site.lua:12: text" in `message` (cut to fit);
 * LS_ENOENT, LS_ENOMEM likewise with a message. On failure nothing is left open. */
int ls_site_open(const ls_site_options *options, ls_site **out, char *message, size_t message_bytes);

const ls_site_settings *ls_site_settings_get(const ls_site *site);
unsigned ls_site_listener_count(const ls_site *site);
const ls_site_listener *ls_site_listener_get(const ls_site *site, unsigned index);
const ls_http_handler *ls_site_http_handler(ls_site *site, unsigned listener);

/* For ls_listener_open: connections of listener `index` (of LS_SITE_TCP), whose places are in `connection limit`. */
typedef struct ls_tcp_server ls_tcp_server;
ls_tcp_server *ls_site_tcp_server(ls_site *site, unsigned index, ls_conn_limit *limit);
void ls_tcp_accepted(ls_thread_ctx *ctx, void *tcp_server, ls_fd fd, const ls_sockaddr *from);

/* Tell the site where a listener came to be bound (ls.on("start") and ls.stats may say so). */
void ls_site_listener_bound(ls_site *site, unsigned index, const ls_addr *at);

/* What ls.udp defined. The server opens a socket for each, two for the loopback, with ls_site_udp_batch and _user, and
 * tells the site; it closes them, and frees them after the site. */
unsigned ls_site_udp_count(const ls_site *site);
const ls_site_udp *ls_site_udp_get(const ls_site *site, unsigned index);
void ls_site_udp_batch(ls_thread_ctx *ctx, void *user, ls_udp *udp, ls_datagrams *batch); /* ls_udp_batch_fn */
void *ls_site_udp_user(ls_site *site, unsigned index);
void ls_site_udp_bound(ls_site *site, unsigned index, ls_udp *udp);

/* Load one more state for each further thread context of the workers, and give every thread context its home (thread context->user). Errors as
 * above. */
int ls_site_ready(ls_site *site, ls_port *port, ls_workers *workers, char *message, size_t message_bytes);

/* Queue ls.once functions, "start" hooks and the timers defined while loading. The workers runs. */
void ls_site_start(ls_site *site);

/* Queue the "drain" hooks; timers that repeat stop. ls_site_busy: tasks that are not finished (requests apart). */
void ls_site_drain(ls_site *site);
unsigned ls_site_busy(const ls_site *site);

/* Order the states to close the connections that they still have. The workers runs. */
void ls_site_disconnect(ls_site *site);
uint32_t ls_site_connections(const ls_site *site); /* that Lua has, those included that are just closing */

/* For ls_workers_options.tick: states whose buffers may be garbage are ordered to collect it: the young when none were
 * made since the last tick, all when idle, or else every few seconds. true: some were. The watchdog's thread. */
bool ls_site_on_tick(ls_site *site, bool idle);

/* For ls_workers_options.stalled: enforces the CPU budget. The watchdog's thread. */
void ls_site_on_stall(ls_thread_ctx *ctx, uint32_t ms, void *site);

/* Close the sockets that Lua objects hold. No thread runs any more; the port is open. */
void ls_site_close_sockets(ls_site *site, ls_thread_ctx *ctx);

/* Close all states. No thread runs any more and the port is closed: its queue and its timers may hold operations of
 * tasks that never ended. Its pools are still there. */
void ls_site_close(ls_site *site);

#endif
