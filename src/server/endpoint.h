/* endpoint.h - the open addresses of a server.
 *
 * Endpoints belong to the server, not to a generation of the site. Each generation names the addresses that it wants;
 * a plan finds the endpoints that have them open and opens the others:
 *
 *     plan    new addresses are bound; of the open ones everything is prepared that can fail. Nothing that is served
 *             changes: ls_endpoint_plan_undo gives the plan up
 *     swap    endpoints that stay pass new connections to the new generation; the others move to the list `removed`
 *     run     the new ones start, the removed ones stop and drain
 *     free    what was replaced is freed when it is not used any more
 *
 * Thread: the server serialises all calls, but for `start` and `stop` (see ls_endpoint_plan_run). */
#ifndef LS_SERVER_ENDPOINT_H
#define LS_SERVER_ENDPOINT_H

#include "base/list.h"
#include "http/http2/h2.h"
#include "net/listener.h"
#include "net/sock/addr.h"
#include "net/sock/inherited.h"
#include "net/stream/deadline.h"
#include "sched/grace.h"
#include "script/site/site.h"

enum { LS_MESSAGE_BYTES = 1024 };

typedef struct ls_endpoint ls_endpoint;

typedef struct ls_endpoint_env { /* of the server, the same for all endpoints */
    ls_port *port;
    ls_deadlines *deadlines;
    ls_conn_limit *limit;
    ls_grace *grace;
    ls_http_stats *past; /* the sum of what was closed */
    unsigned threads_max;
} ls_endpoint_env;

typedef struct ls_endpoint_want { /* a listener or an ls.udp call of a new generation */
    const ls_endpoint_env *env;
    const ls_node *open; /* endpoints */
    const struct ls_endpoint_plan *plan;
    ls_site *site;
    unsigned index;
    ls_addr at; /* port 0: any; not with http.sys */
    const ls_site_settings *settings;
    /* LS_MESSAGE_BYTES: receives what failed and why; "": to bind the address, for the reason of the code. */
    char *message;
} ls_endpoint_want;

/* `prepare` is undone by `unprepare` or completed by `replace`. */
typedef struct ls_endpoint_ops {
    int (*open)(const ls_endpoint_want *want, ls_endpoint **out); /* bind; nothing is accepted yet */
    bool (*is_open)(const ls_endpoint *e);                        /* NULL, or false: the site has closed it */
    int (*prepare)(ls_endpoint *e, const ls_endpoint_want *want);
    void (*unprepare)(ls_endpoint *e); /* NULL: there is nothing to undo */
    void (*known)(ls_endpoint *e,
                  ls_site *site); /* NULL, or after a complete plan: make the endpoint known to the site */
    void (*replace)(ls_endpoint *e, uint64_t generation); /* `generation`: the number of the one before */
    void (*start)(ls_thread_ctx *ctx, ls_endpoint *e);    /* accept, and log the address; on a worker */
    void (*stop)(ls_thread_ctx *ctx, ls_endpoint *e);     /* accept no more; once; also without a start */
    /* After the stop: close what waits for a next request; with `all`, also handshakes and what waits for a first
     * request. Returns the number of connections, handshakes, accepts, receives that are left; call again until it is
     * 0. */
    uint32_t (*drain)(ls_endpoint *e, bool all);
    ls_fd (*keep)(ls_endpoint *e); /* NULL, or the socket; e->kept says whether another process has it (below) */
    void (*abort)(ls_endpoint *e);
    /* Free what was replaced and is not used any more. Returns the number of the oldest generation that may still get
     * work through something that was replaced; UINT64_MAX: none does. */
    uint64_t (*free_replaced)(ls_endpoint *e); /* NULL: it keeps nothing that was replaced, as in abort_until */
    void (*abort_until)(ls_endpoint *e, uint64_t generation); /* abort what keeps generations up to this one */
    void (*stat)(const ls_endpoint *e, ls_http_stats *sum, ls_udp_stats *udp); /* adds */
    void (*report)(ls_endpoint *e); /* NULL, or twice a second while the server works: log what the system has lost */
    const char *(*address)(const ls_endpoint *e, unsigned n, char text[LS_ADDR_TEXT_BYTES]); /* NULL: past the last */
    const char *(*scheme)(const ls_endpoint *e); /* what precedes its addresses in a URL: "http://", "" */
    void (*close)(ls_endpoint *e);               /* stopped and drained, then a grace period; or no worker runs */
} ls_endpoint_ops;

/* Time that a drain gives to handshakes, and to connections that have sent nothing yet: `all` from then on. */
enum { LS_ENDPOINT_FRESH_MS = 500 };

extern const ls_endpoint_ops ls_endpoint_stream, ls_endpoint_httpsys, ls_endpoint_udp;

struct ls_endpoint {
    const ls_endpoint_ops *ops;
    ls_node node;       /* of the server's list */
    ls_addr wanted, at; /* what the site named: port 0 for any; what is bound. Not with http.sys */
    bool planned;       /* by the plan that is being made */
    bool fresh;         /* opened by it */
    bool stopped;       /* the call of `stop` has returned */
    /* The service manager or the program that replaces this one has the socket as well: what waits in it, and its path,
     * are left to the next process, and connections get time for the request that is on its way to them. */
    bool kept;
    bool of_unit; /* systemd keeps it in any case */
    /* on the list `removed`: */
    uint64_t generation; /* the last one that used it */
    uint64_t removed_ns;
    uint64_t ticket; /* of the grace period after the drain; 0: not drained yet */
    bool aborted;
};

/* The `address` of an endpoint with one address, e->at. */
const char *ls_endpoint_address(const ls_endpoint *e, unsigned n, char text[LS_ADDR_TEXT_BYTES]);

typedef struct ls_endpoint_plan {
    ls_endpoint **at; /* in the order of the calls in the site: first listeners, then ls.udp */
    unsigned count, room;
    ls_endpoint **leaving; /* those that the site does not name any more; set by the swap */
    unsigned leaving_count;
} ls_endpoint_plan;

/* `open`: the endpoints of the generation before, possibly none. LS_OK; an error with the place in the site and the
 * reason in `message`, and nothing is changed. */
int ls_endpoint_plan_make(const ls_endpoint_env *env, const ls_node *open, ls_site *site,
                          const ls_site_settings *settings, ls_endpoint_plan *out, char *message,
                          size_t message_bytes);

/* Any thread. The site of the plan is closed: its objects know the UDP sockets of the plan. */
void ls_endpoint_plan_undo(ls_port *port, ls_endpoint_plan *plan);

/* The commit in three steps. The swap makes the plan's endpoints the list `open` and moves the others to `removed`;
 * `generation` is the number of the generation before. The run starts and stops sockets: on a worker, outside of the
 * server's mutex, because an accepted connection may run a handler. The end frees the plan. */
void ls_endpoint_plan_swap(ls_endpoint_plan *plan, ls_node *open, ls_node *removed, uint64_t generation);
void ls_endpoint_plan_run(ls_thread_ctx *ctx, const ls_endpoint_plan *plan);
void ls_endpoint_plan_end(ls_endpoint_plan *plan);

/* Set e->kept. Before its stop, on the thread of that. Returns the socket; LS_FD_NONE: of http.sys. */
ls_fd ls_endpoint_keep(ls_endpoint *e, bool kept);
/* The name of the socket for other processes. */
void ls_endpoint_name(ls_endpoint *e, char name[LS_INHERITED_NAME_BYTES]);

/* One step of the endpoints that were removed. `drain_ms`: the time after which their connections are aborted.
 * `oldest`: the number
 * of the oldest generation that is open. Returns the number of the oldest generation that they may still give work to;
 * UINT64_MAX: none. */
uint64_t ls_endpoints_drain_removed(const ls_endpoint_env *env, ls_node *removed, uint32_t drain_ms, uint64_t oldest);

#endif
