/* site.h - one site.lua and the Lua states that run it: the interface between the script layer and the server.
 *
 * Order of calls: ls_site_open loads the file into the first state, which gives the settings, the listeners or an
 * error. The server then opens its port and workers with these settings, opens the listeners and calls
 * ls_site_ready. ls_site_ready loads the other states, one per thread context of the workers, and checks that each
 * defines as many listeners and UDP sockets as the first. ls_site_start runs the ls.once functions and "start"
 * hooks and starts the timers. A site without listeners and UDP sockets stops the server when its last task and timer
 * have ended.
 *
 * Thread: a single thread makes all calls until the workers have started. */
#ifndef LS_SCRIPT_SITE_H
#define LS_SCRIPT_SITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lua.h>

#include "net/listener.h"
#include "net/network.h"
#include "net/tls.h"
#include "net/udp.h"
#include "proto/exchange.h"
#include "proto/http_config.h"
#include "proto/httpsys.h"
#include "sched/workers.h"

typedef struct ls_site ls_site;

typedef struct ls_site_settings { /* ls.config{...}; 0: not set, the default in the comment applies */
    unsigned threads, threads_max;
    uint32_t connections_max;    /* 65,536 */
    uint64_t pool_bytes_max;     /* all buffer pools together; 256 MiB */
    uint64_t lua_bytes_max;      /* per state; 256 MiB */
    uint32_t jobs_max;           /* unfinished jobs of ls.spawn per state; 10,000 */
    uint32_t handler_cpu_ms_max; /* 5,000 */
    uint32_t drain_ms_max;       /* 15,000 */
    uint32_t accepts_posted;     /* per listener; 4 */
    uint32_t backlog;            /* of listen(2); 1024 */
} ls_site_settings;

typedef struct ls_tcp_config {            /* limits of one `sock` connection */
    uint32_t receive_ms_max, send_ms_max; /* 0: no limit */
    uint32_t write_bytes_high;            /* high-water mark: send waits while more bytes are queued */
    uint32_t line_bytes_max;              /* of receive("*l") and receiveuntil */
    uint64_t message_bytes_max;           /* of receive(n) and receive("*a") */
    uint32_t keepalive_s;                 /* TCP keepalive: idle seconds until the first probe; 0: off */
} ls_tcp_config;

enum ls_site_kind { LS_SITE_HTTP, LS_SITE_TCP, LS_SITE_HTTPSYS };

typedef struct ls_site_listener {     /* one ls.listen or ls.tcp call */
    uint8_t kind;                     /* enum ls_site_kind */
    char host[112];                   /* "": loopback, IPv4 and IPv6; "*": all addresses; an address; "unix:/path" */
    uint16_t port;                    /* 0: any free port */
    ls_path_access access;            /* of a Unix path */
    char urls[LS_HTTPSYS_URLS_BYTES]; /* LS_SITE_HTTPSYS only, instead of host and port: see ls_httpsys_options */
    ls_http_config http;
    ls_tcp_config tcp;
    uint32_t backlog;          /* 0: that of the settings */
    const ls_tls_options *tls; /* NULL: plain */
    bool proxy_protocol;       /* the peers in `trusted` send PROXY headers */
    const ls_network *trusted;
    size_t trusted_count;
    uint32_t handshake_ms_max, handshakes_max; /* of PROXY header and TLS; 0: see ls_acceptor_options */
    bool control;                              /* the control socket of ls_site_options, not a listener of the site */
    char where[80];                            /* position of the call for messages: "site.lua:12" */
} ls_site_listener;

enum { LS_UDP_SOCKETS_MAX = 2 };

typedef struct ls_site_udp { /* one ls.udp call */
    char host[112];          /* "": loopback, IPv4 and IPv6; "*": all addresses; an address */
    uint16_t port;           /* 0: any free port */
    ls_udp_setup setup;
    char where[80];
} ls_site_udp;

/* Callbacks into the server. */
typedef void ls_site_stat_fn(void *to, const char *name, double value);
typedef struct ls_site_host {
    void *server;                                                 /* passed to the callbacks */
    void (*stats)(void *server, ls_site_stat_fn *each, void *to); /* ls.stats(): calls each(to, ...) for every value */
    void (*stop)(void *server);                                   /* starts the drain, as SIGTERM does */
    struct ls_interrupts *interrupts;                             /* bind/interrupt.h; NULL: none */
} ls_site_host;

typedef struct ls_site_options {
    const char *path; /* of site.lua; with `source`, its name in messages and the folder of its modules */
    const char
        *source; /* NULL: read the file `path`; else the text of the site, valid until ls_site_ready has returned */
    size_t source_bytes;
    int (*open)(lua_State *L, void *user); /* NULL, or called in each state before the site: see ls_server_options */
    void *open_user;
    bool control; /* the server has a control socket: one more listener, which lua/luaserve/repl.lua serves */
    int argc;            /* arguments of the site: `...` and arg[1..argc]; arg[0] is the path */
    char **argv;         /* must outlive the site, as must `host` */
    const ls_site_host *host;
} ls_site_options;

/* Load the file into the first state. Returns LS_OK, LS_ESCRIPT (a Lua error), LS_ENOENT or LS_ENOMEM. On failure
 * `message` receives a text such as "site.lua:12: text", truncated to fit, and nothing is left open. */
int ls_site_open(const ls_site_options *options, ls_site **out, char *message, size_t message_bytes);

const ls_site_settings *ls_site_settings_get(const ls_site *site);
unsigned ls_site_listener_count(const ls_site *site);
const ls_site_listener *ls_site_listener_get(const ls_site *site, unsigned index);
const ls_http_handler *ls_site_http_handler(ls_site *site, unsigned listener);

/* The user data of ls_tcp_start() for listener `index` (LS_SITE_TCP). `limit` is the connection limit of the
 * listener; the site leaves it once for every connection that closes. */
typedef struct ls_tcp_server ls_tcp_server;
ls_tcp_server *ls_site_tcp_server(ls_site *site, unsigned index, ls_conn_limit *limit);

/* Number of ls.listen, ls.tcp and ls.udp calls: the listeners and UDP sockets without the control socket. */
unsigned ls_site_served(const ls_site *site);

/* The same for the control socket (ls_site_options.control). */
ls_tcp_server *ls_site_control(ls_site *site, ls_conn_limit *limit);

/* The routes of listener `index`, one line each; "" without routes. */
const char *ls_site_routes(const ls_site *site, unsigned index);

/* Whether the site defines anything that runs: a listener, a UDP socket, a timer, an ls.once function or a "start"
 * hook. */
bool ls_site_has_work(const ls_site *site);

/* The ls.udp calls. For each of them the server opens one socket, or two for the loopback, with the callback
 * ls_site_udp_batch and the user data ls_site_udp_user(), and reports it with ls_site_udp_bound(). The server owns the
 * sockets: it closes them, and frees them after the site. */
unsigned ls_site_udp_count(const ls_site *site);
const ls_site_udp *ls_site_udp_get(const ls_site *site, unsigned index);
void *ls_site_udp_user(ls_site *site, unsigned index);
void ls_site_udp_bound(ls_site *site, unsigned index, ls_udp *udp);

/* Load one state for each further thread context of the workers and set the `user` field of every thread context to
 * its own state. Errors as for ls_site_open(), but the site stays open. */
int ls_site_ready(ls_site *site, ls_port *port, struct ls_deadlines *deadlines, ls_workers *workers, char *message,
                  size_t message_bytes);

/* Post the start: every state runs its ls.once functions and "start" hooks and starts the timers that were defined
 * while loading. The workers must run. */
void ls_site_start(ls_site *site);

/* Post the drain: every state stops its repeating timers and runs its "drain" hooks. The workers must run. */
void ls_site_drain(ls_site *site);
/* Number of unfinished tasks without those of requests, plus posted operations (start, drain, disconnect) that have
 * not run yet. Any thread. */
unsigned ls_site_busy(const ls_site *site);

/* Post to every state the order to close its `sock` connections. The workers must run. */
void ls_site_disconnect(ls_site *site);
uint32_t ls_site_connections(const ls_site *site); /* open `sock` connections, those that are closing included */

/* For ls_workers_options.on_tick. Posts a garbage collection to each state whose buffers may be garbage: a young
 * collection if the state made no buffer since the last tick, a full one if the workers are idle or the last full
 * one is some seconds old. Returns true if it posted one. Thread: the watchdog. */
bool ls_site_on_tick(ls_site *site, bool idle);

/* For ls_workers_options.on_stall. Enforces the processor-time limit. Thread: the watchdog. */
void ls_site_on_stall(ls_thread_ctx *ctx, uint32_t ms, void *site);

/* Close the sockets that Lua objects own. No worker may run any more; the port must be open. */
void ls_site_close_sockets(ls_site *site, ls_thread_ctx *ctx);

/* Close all states and free the site. No worker may run any more. The port must be closed, because its queue and
 * timers may hold operations of unfinished tasks; the buffer pools of the workers must still be open. */
void ls_site_close(ls_site *site);

#endif
