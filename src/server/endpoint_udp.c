/* endpoint_udp.c - the endpoint of an ls.udp call: a UDP socket. A replaced one passes its batches to the new
 * generation. */
#include <stdio.h>
#include <stdlib.h>

#include "base/io/log.h"
#include "server/endpoint.h"

typedef struct udp_endpoint {
    ls_endpoint base; /* first */
    ls_port *port;
    ls_udp *udp;
    bool aborted;
    ls_udp_setup setup;
    ls_udp_setup next_setup; /* prepared */
    void *next_user;
    unsigned next_index;   /* of the ls.udp call */
    uint64_t dropped_told; /* the log has this number of dropped datagrams */
} udp_endpoint;

static udp_endpoint *of(ls_endpoint *e)
{
    return (udp_endpoint *)(void *)e;
}

static void unknown_interface(const ls_endpoint_want *want)
{
    char text[LS_ADDR_TEXT_BYTES];
    (void)snprintf(want->message, LS_MESSAGE_BYTES, "cannot receive on udp://%s: unknown network interface",
                   ls_addr_text(&want->at, text));
}

/* One state handles the datagrams in the order in which they were received. */
static ls_udp_setup setup_of(const ls_endpoint_want *want)
{
    ls_udp_setup setup = ls_site_udp_get(want->site, want->index)->setup;
    setup.in_order = ls_site_settings_get(want->site)->states_max == 1;
    return setup;
}

static int udp_open(const ls_endpoint_want *want, ls_endpoint **out)
{
    udp_endpoint *u = calloc(1, sizeof *u);
    if (u == NULL) return LS_ENOMEM;
    u->port = want->env->port;
    u->setup = setup_of(want);
    const int err = ls_udp_open(want->env->port, &u->setup, &want->at, ls_site_udp_batch,
                                ls_site_udp_user(want->site, want->index), &u->udp);
    if (err < 0) {
        if (err == LS_ENOENT) unknown_interface(want);
        free(u);
        return err;
    }
    u->base.at = *ls_udp_addr(u->udp);
    u->next_index = want->index;
    *out = &u->base;
    return LS_OK;
}

static bool udp_is_open(const ls_endpoint *e)
{
    return !ls_udp_closed(((const udp_endpoint *)(const void *)e)->udp); /* by udp:close of the site */
}

static int udp_prepare(ls_endpoint *e, const ls_endpoint_want *want)
{
    udp_endpoint *u = of(e);
    u->next_setup = setup_of(want);
    u->next_user = ls_site_udp_user(want->site, want->index);
    const int err = ls_udp_change(u->udp, &u->setup, &u->next_setup);
    if (err < 0) {
        if (err == LS_ENOENT) unknown_interface(want);
        (void)ls_udp_change(u->udp, &u->next_setup, &u->setup);
        return err;
    }
    u->next_index = want->index;
    return LS_OK;
}

static void udp_known(ls_endpoint *e, ls_site *site)
{
    ls_site_udp_bound(site, of(e)->next_index, of(e)->udp);
}

static void udp_unprepare(ls_endpoint *e)
{
    udp_endpoint *u = of(e);
    (void)ls_udp_change(u->udp, &u->next_setup, &u->setup);
}

static void udp_replace(ls_endpoint *e, uint64_t generation)
{
    udp_endpoint *u = of(e);
    u->setup = u->next_setup;
    ls_udp_replace(u->udp, &u->setup, u->next_user);
}

static void udp_start(ls_thread_ctx *ctx, ls_endpoint *e)
{
    char text[LS_ADDR_TEXT_BYTES];
    ls_udp_start(ctx, of(e)->udp);
    ls_log(LS_LOG_INFO, "listening on udp://%s", ls_addr_text(&e->at, text));
}

static void udp_stop(ls_thread_ctx *ctx, ls_endpoint *e)
{
    ls_udp_stop(ctx, of(e)->udp);
}

static uint32_t udp_drain(ls_endpoint *e, bool all)
{
    return ls_udp_idle(of(e)->udp) ? 0 : 1;
}

static ls_fd udp_keep(ls_endpoint *e)
{
    return ls_udp_closed(of(e)->udp) ? LS_FD_NONE : ls_udp_fd(of(e)->udp);
}

/* The object stays: objects in Lua refer to it. */
static void udp_abort(ls_endpoint *e)
{
    of(e)->aborted = true;
    ls_thread_ctx ctx = {.port = of(e)->port};
    ls_udp_close(&ctx, of(e)->udp);
}

static void udp_stat(const ls_endpoint *e, ls_http_stats *sum, ls_udp_stats *udp)
{
    ls_udp_stat(((const udp_endpoint *)(const void *)e)->udp, udp);
}

/* Once, and again when the number has doubled. */
static void udp_report(ls_endpoint *e)
{
    udp_endpoint *u = of(e);
    char text[LS_ADDR_TEXT_BYTES];
    ls_udp_stats stats = {0};
    ls_udp_stat(u->udp, &stats);
    if (stats.dropped == 0 || stats.dropped < 2 * u->dropped_told) return;
    u->dropped_told = stats.dropped;
    ls_log(LS_LOG_WARN,
           "udp://%s: the system has dropped %llu datagrams, which came while its buffer was full: handlers should "
           "return sooner, or receive_buffer of ls.udp be larger",
           ls_addr_text(&e->at, text), (unsigned long long)stats.dropped);
}

static const char *udp_scheme(const ls_endpoint *e)
{
    return "udp://";
}

static void udp_close(ls_endpoint *e)
{
    udp_endpoint *u = of(e);
    if (!u->aborted) udp_abort(e);
    ls_udp_free(u->udp);
    free(u);
}

const ls_endpoint_ops ls_endpoint_udp = {
    .open = udp_open,
    .is_open = udp_is_open,
    .prepare = udp_prepare,
    .unprepare = udp_unprepare,
    .known = udp_known,
    .replace = udp_replace,
    .start = udp_start,
    .stop = udp_stop,
    .drain = udp_drain,
    .keep = udp_keep,
    .abort = udp_abort,
    .stat = udp_stat,
    .report = udp_report,
    .address = ls_endpoint_address,
    .scheme = udp_scheme,
    .close = udp_close,
};
