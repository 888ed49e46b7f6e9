/* udp_sockets.c - see udp_sockets.h. */
#include "server/udp_sockets.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "script/bind/udp.h"
#include "server/addresses.h"

/* One ls.udp call of the site, for ls_addresses_open. */
typedef struct udp_opening {
    ls_udp_sockets *sockets;
    ls_site *site;
    unsigned index;
    ls_port *port;
} udp_opening;

static int open_one(void *user, const ls_addr *at, uint16_t *port)
{
    const udp_opening *what = user;
    ls_udp *udp;
    const int err = ls_udp_open(what->port, &ls_site_udp_get(what->site, what->index)->setup, at, ls_site_udp_batch,
                                ls_site_udp_user(what->site, what->index), &udp);
    if (err < 0) return err;
    what->sockets->at[what->sockets->count++] = udp;
    *port = ls_udp_addr(udp)->port;
    return LS_OK;
}

static void close_one(void *user)
{
    const udp_opening *what = user;
    ls_thread_ctx ctx = {.port = what->port}; /* no worker runs yet */
    ls_udp *udp = what->sockets->at[--what->sockets->count];
    ls_udp_close(&ctx, udp);
    ls_udp_free(udp);
}

int ls_udp_sockets_open(ls_udp_sockets *sockets, ls_site *site, ls_port *port, char *message, size_t message_bytes)
{
    const unsigned calls = ls_site_udp_count(site);
    char text[LS_ADDR_TEXT_BYTES];
    if ((sockets->at = calloc((size_t)calls * LS_UDP_SOCKETS_MAX + 1, sizeof(ls_udp *))) == NULL) {
        (void)snprintf(message, message_bytes, "%s", ls_err_text(LS_ENOMEM));
        return LS_ENOMEM;
    }
    for (unsigned i = 0; i < calls; i++) {
        const ls_site_udp *wanted = ls_site_udp_get(site, i);
        const unsigned before = sockets->count;
        ls_addr at;
        int err = wanted->host[0] != '\0' ? ls_addr_parse(wanted->host, wanted->port, &at) : LS_OK;
        if (err < 0 || (wanted->host[0] != '\0' && at.family == LS_ADDR_UNIX)) {
            (void)snprintf(message, message_bytes,
                           "%s: cannot receive on \"%s\": give an address such as \"127.0.0.1\" or \"::1\", or \"*\"",
                           wanted->where, wanted->host);
            return err < 0 ? err : LS_EINVAL;
        }
        udp_opening what = {sockets, site, i, port};
        const ls_address_opener opener = {&what, open_one, close_one};
        err = ls_addresses_open(&opener, wanted->host, wanted->port, &at);
        if (err < 0) {
            (void)snprintf(message, message_bytes, "%s: cannot receive on udp://%s: %s", wanted->where,
                           ls_addr_text(&at, text), err == LS_ENOENT ? "unknown network interface" : ls_err_text(err));
            return err;
        }
        for (unsigned n = before; n < sockets->count; n++) ls_site_udp_bound(site, i, sockets->at[n]);
    }
    return LS_OK;
}

void ls_udp_sockets_start(ls_udp_sockets *sockets, ls_thread_ctx *ctx)
{
    char text[LS_ADDR_TEXT_BYTES];
    for (unsigned i = 0; i < sockets->count; i++) {
        ls_udp_start(ctx, sockets->at[i]);
        ls_log(LS_LOG_INFO, "listening on udp://%s", ls_addr_text(ls_udp_addr(sockets->at[i]), text));
    }
}

void ls_udp_sockets_stop(ls_udp_sockets *sockets, ls_thread_ctx *ctx)
{
    for (unsigned i = 0; i < sockets->count; i++) ls_udp_stop(ctx, sockets->at[i]);
}

bool ls_udp_sockets_idle(const ls_udp_sockets *sockets)
{
    for (unsigned i = 0; i < sockets->count; i++)
        if (!ls_udp_idle(sockets->at[i])) return false;
    return true;
}

void ls_udp_sockets_close(ls_udp_sockets *sockets, ls_thread_ctx *ctx)
{
    for (unsigned i = 0; i < sockets->count; i++) ls_udp_close(ctx, sockets->at[i]);
}

void ls_udp_sockets_free(ls_udp_sockets *sockets)
{
    for (unsigned i = 0; i < sockets->count; i++) ls_udp_free(sockets->at[i]);
    free(sockets->at);
    *sockets = (ls_udp_sockets){NULL, 0};
}

void ls_udp_sockets_stat(const ls_udp_sockets *sockets, ls_site_stat_fn *each, void *to)
{
    ls_udp_stats sum = {0};
    if (sockets->count == 0) return;
    for (unsigned i = 0; i < sockets->count; i++) {
        ls_udp_stats one;
        ls_udp_stat(sockets->at[i], &one);
        sum.received += one.received;
        sum.batches += one.batches;
        sum.truncated += one.truncated;
        sum.sent += one.sent;
        sum.failed += one.failed;
        sum.own += one.own;
    }
    each(to, "udp_received", (double)sum.received);
    each(to, "udp_batches", (double)sum.batches);
    each(to, "udp_truncated", (double)sum.truncated);
    each(to, "udp_sent", (double)sum.sent);
    each(to, "udp_failed", (double)sum.failed);
    each(to, "udp_own", (double)sum.own);
}

void ls_udp_sockets_describe(const ls_site *site)
{
    for (unsigned i = 0; i < ls_site_udp_count(site); i++) {
        const ls_site_udp *udp = ls_site_udp_get(site, i);
        printf("udp: %s port %u (%s)\n", udp->host[0] == '\0' ? "loopback" : udp->host, udp->port, udp->where);
    }
}
