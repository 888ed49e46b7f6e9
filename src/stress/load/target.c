/* target.c - see target.h: a port of its own for one lookup or one connection, whose packets this thread takes. */
#include "stress/load/target.h"

#include "net/dial.h"
#include "net/stream/deadline.h"
#include "port/notify.h"
#include "sched/actor.h"

enum { SOCKETS_MAX = 32 };

typedef struct network {
    ls_pools *pools;
    ls_pool *pool;
    ls_port *port;
    ls_deadlines *deadlines;
    ls_polls *polls;
    ls_resolver *resolver;
    ls_actor actor;
    ls_thread_ctx ctx;
    _Atomic uint32_t live; /* see ls_dial_options */
    bool done;
    int err;
    ls_addr addr; /* of the connection */
} network;

static void network_close(network *n)
{
    if (n->resolver != NULL) ls_resolver_stop(n->resolver);
    if (n->port != NULL) ls_port_close(n->port);
    if (n->resolver != NULL) ls_resolver_close(n->resolver);
    if (n->polls != NULL) ls_polls_close(n->polls);
    if (n->deadlines != NULL) ls_deadlines_close(n->deadlines);
    if (n->pool != NULL) ls_pool_close(n->pool);
    if (n->pools != NULL) ls_pools_close(n->pools);
}

/* LS_OK or an error; network_close follows in either case. */
static int network_open(network *n)
{
    int err = ls_pools_open(LS_BLOCK_LARGE, &n->pools);
    if (err < 0 || (err = ls_pool_open(n->pools, &n->pool)) < 0) return err;
    ls_pool_enter(n->pool);
    if ((err = ls_port_open(&(ls_port_options){.sockets_max = SOCKETS_MAX}, &n->port)) < 0) return err;
    ls_thread_ctx_init(&n->ctx, n->port, n->pool, 0);
    ls_actor_init(&n->actor);
    if ((err = ls_stream_deadlines_open(n->port, &n->deadlines)) < 0) return err;
    if ((err = ls_polls_open(n->port, &n->polls)) < 0) return err;
    return ls_resolver_open(n->port, n->polls, &n->actor, "", &n->resolver);
}

/* Take packets until the result is there and no dial waits for one. */
static void wait(network *n)
{
    ls_packet packets[LS_WAIT_PACKETS];
    while (!n->done || atomic_load(&n->live) > 0) {
        const int count = ls_port_wait(n->port, &n->ctx, packets, LS_WAIT_PACKETS, -1);
        for (int i = 0; i < count; i++) {
            if (packets[i].op != NULL)
                ls_packet_dispatch(&n->ctx, &packets[i]);
            else if (ls_packet_current(n->port, &packets[i])) /* of a socket of c-ares */
                ls_packet_handler_call(&n->ctx, &packets[i]);
        }
    }
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

static void looked_up(ls_thread_ctx *ctx, ls_lookup *lookup)
{
    network *n = lookup->user;
    n->done = true;
}

int ls_stress_target_lookup(const char *host, uint16_t port, ls_addr out[LS_LOOKUP_ADDRS_MAX])
{
    network n = {0};
    ls_lookup *lookup = NULL;
    if (ls_addr_parse(host, port, &out[0]) == LS_OK) return 1;
    int result = network_open(&n);
    if (result == LS_OK) {
        (void)ls_actor_try_enter(&n.actor, &n.ctx);
        result = ls_resolver_lookup(&n.ctx, n.resolver, host, port, looked_up, &n, &lookup);
        ls_actor_leave(&n.actor, &n.ctx);
        n.done |= result != LS_PENDING;
        wait(&n);
    }
    if (lookup != NULL) {
        result = lookup->err < 0 ? lookup->err : (int)lookup->count;
        for (unsigned i = 0; i < lookup->count; i++) out[i] = lookup->addrs[i];
        ls_lookup_drop(lookup);
    }
    network_close(&n);
    return result;
}

/* ---- connections ------------------------------------------------------------------------------------------------ */

static void closed(ls_thread_ctx *ctx, ls_stream *s)
{
    network *n = *(network **)ls_stream_user(s);
    ls_stream_free(s);
    n->done = true;
}

static const ls_stream_handler handler = {.closed = closed};

static void dialled(ls_thread_ctx *ctx, void *user, const ls_dial_result *result)
{
    network *n = user;
    n->err = result->stream != NULL ? LS_OK : result->err;
    if (result->stream == NULL) {
        n->done = true;
        return;
    }
    ls_stream_peer(result->stream, &n->addr);
    *(network **)ls_stream_user(result->stream) = n;
    ls_stream_close(ctx, result->stream);
}

int ls_stress_target_connect(const char *host, uint16_t port, uint32_t timeout_ms, ls_addr *out)
{
    network n = {0};
    ls_dial *dial;
    int err = network_open(&n);
    if (err == LS_OK) {
        const ls_dial_options options = {.port = n.port,
                                         .deadlines = n.deadlines,
                                         .actor = &n.actor,
                                         .host = host,
                                         .port_number = port,
                                         .ms_max = timeout_ms,
                                         .handler = &handler,
                                         .user_bytes = sizeof(network *),
                                         .live = &n.live};
        err = ls_dial_start(&n.ctx, &options, n.resolver, dialled, &n, &dial);
        if (err == LS_OK) {
            wait(&n);
            err = n.err;
        }
    }
    network_close(&n);
    if (err < 0) return err;
    if (ls_addr_parse(host, port, out) < 0) *out = n.addr; /* the address of a stream has no path */
    return LS_OK;
}
