/* endpoint.c - see endpoint.h: plan, commit, and the endpoints that were removed. */
#include "server/endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "base/os/sd_notify.h"
#include "server/addresses.h"

enum { PORT_TRIES = 16 }; /* attempts to find a port that is free on both loopback addresses */

typedef struct planning {
    ls_endpoint_plan *plan;
    ls_endpoint_want want;
    const ls_endpoint_ops *ops;
} planning;

/* ---- plan --------------------------------------------------------------------------------------------------- */

static bool has_address(const ls_endpoint *e, const ls_addr *at)
{
    return ls_addr_same(&e->wanted, at) || (at->port != 0 && ls_addr_same(&e->at, at));
}

const char *ls_endpoint_address(const ls_endpoint *e, unsigned n, char text[LS_ADDR_TEXT_BYTES])
{
    return n == 0 ? ls_addr_text(&e->at, text) : NULL;
}

static int append(ls_endpoint_plan *plan, ls_endpoint *e)
{
    if (plan->count == plan->room) {
        const unsigned room = plan->room == 0 ? 16 : 2 * plan->room;
        ls_endpoint **grown = realloc(plan->at, room * sizeof(ls_endpoint *));
        if (grown == NULL) return LS_ENOMEM;
        plan->at = grown;
        plan->room = room;
    }
    plan->at[plan->count++] = e;
    return LS_OK;
}

/* Undo its step of the plan. */
static void undo(ls_port *port, ls_endpoint *e)
{
    ls_thread_ctx ctx = {.port = port}; /* it has no operation: a context with a port suffices */
    e->planned = false;
    if (e->fresh) {
        e->ops->stop(&ctx, e);
        e->ops->close(e);
    } else if (e->ops->unprepare != NULL) {
        e->ops->unprepare(e);
    }
}

/* Undo the last steps of the plan, so that `count` are left. */
static void shorten(ls_port *port, ls_endpoint_plan *plan, unsigned count)
{
    while (plan->count > count) undo(port, plan->at[--plan->count]);
}

/* Keep `e`, or open the endpoint if it is NULL. */
static int plan_one(planning *p, ls_endpoint *e)
{
    const bool fresh = e == NULL;
    int err = fresh ? p->ops->open(&p->want, &e) : e->ops->prepare(e, &p->want);
    if (err < 0) return err;
    if (fresh) {
        e->ops = p->ops;
        e->fresh = true;
        e->wanted = p->want.at;
        ls_node_init(&e->node);
        const enum ls_inherited kind = ls_inherited_kind(ls_endpoint_keep(e, false));
        e->of_unit = kind == LS_INHERITED_OF_UNIT;
        (void)ls_endpoint_keep(e, kind != LS_INHERITED_NONE);
    }
    e->planned = true;
    if ((err = append(p->plan, e)) < 0) undo(p->want.env->port, e);
    return err;
}

static int plan_address(planning *p, const ls_addr *at, uint16_t port)
{
    const ls_node *const open = p->want.open;
    p->want.at = *at;
    p->want.at.port = port;
    for (const ls_node *node = open->next; node != open; node = node->next) {
        ls_endpoint *e = LS_CONTAINER(node, ls_endpoint, node);
        if (e->planned || e->ops != p->ops || !has_address(e, &p->want.at)) continue;
        if (e->ops->is_open != NULL && !e->ops->is_open(e)) continue;
        return plan_one(p, e);
    }
    return plan_one(p, NULL);
}

/* Both loopback addresses have one port. A machine without IPv6 has only the first. */
static int plan_both(planning *p, const ls_addresses *addresses, uint16_t port)
{
    const unsigned before = p->plan->count;
    int err = LS_EADDRINUSE;
    for (int tries = port == 0 ? PORT_TRIES : 1; tries > 0 && err == LS_EADDRINUSE; tries--) {
        if ((err = plan_address(p, &addresses->at[0], port)) < 0) return err;
        const ls_endpoint *const first = p->plan->at[before];
        err = plan_address(p, &addresses->at[1], first->at.port);
        if (err == LS_OK || ls_address_is_missing(err)) return LS_OK;
        if (!first->fresh) break;
        shorten(p->want.env->port, p->plan, before);
    }
    return err;
}

static int plan_host(planning *p, const char *host, uint16_t port, const char *where, char *message,
                     size_t message_bytes)
{
    const bool udp = p->ops == &ls_endpoint_udp;
    ls_addresses addresses;
    char text[LS_ADDR_TEXT_BYTES];
    int err = ls_addresses_of(host, port, &addresses);
    if (err < 0 || (udp && addresses.at[0].family == LS_ADDR_UNIX)) {
        (void)snprintf(message, message_bytes,
                       "%s: cannot %s \"%s\": give an address such as \"127.0.0.1\" or \"::1\", or \"*\"", where,
                       udp ? "receive on" : "listen on", host);
        return err < 0 ? err : LS_EINVAL;
    }
    if (addresses.count == 2 && !addresses.either) {
        err = plan_both(p, &addresses, port);
    } else {
        err = plan_address(p, &addresses.at[0], port);
        if (addresses.count == 2 && ls_address_is_missing(err)) err = plan_address(p, &addresses.at[1], port);
    }
    if (err < 0 && p->want.message[0] != '\0')
        (void)snprintf(message, message_bytes, "%s: %s", where, p->want.message);
    else if (err < 0)
        (void)snprintf(message, message_bytes, "%s: cannot %s%s: %s", where, udp ? "receive on udp://" : "listen on ",
                       ls_addr_text(&p->want.at, text), ls_err_text(err));
    return err;
}

static int plan_urls(planning *p, const ls_site_listener *listener, char *message, size_t message_bytes)
{
    ls_endpoint *found = NULL;
    for (const ls_node *node = p->want.open->next; node != p->want.open && found == NULL; node = node->next) {
        ls_endpoint *e = LS_CONTAINER(node, ls_endpoint, node);
        if (e->planned || e->ops != p->ops) continue;
        char text[LS_ADDR_TEXT_BYTES];
        const char *url = listener->urls, *own;
        unsigned n = 0;
        while ((own = e->ops->address(e, n, text)) != NULL && strcmp(own, url) == 0) {
            url += strlen(url) + 1;
            n++;
        }
        if (own == NULL && *url == '\0') found = e; /* the same URLs in the same order */
    }
    const int err = plan_one(p, found);
    if (err < 0)
        (void)snprintf(message, message_bytes, "%s: %s", listener->where,
                       p->want.message[0] != '\0' ? p->want.message : ls_err_text(err));
    return err;
}

int ls_endpoint_plan_make(const ls_endpoint_env *env, const ls_node *open, ls_site *site,
                          const ls_site_settings *settings, ls_endpoint_plan *out, char *message, size_t message_bytes)
{
    char reason[LS_MESSAGE_BYTES];
    planning p = {
        .plan = out,
        .want = {.env = env, .open = open, .plan = out, .site = site, .settings = settings, .message = reason}};
    unsigned count = 0;
    int err = LS_OK;
    for (const ls_node *node = open->next; node != open; node = node->next) count++;
    *out = (ls_endpoint_plan){.leaving = calloc((size_t)count + 1, sizeof(ls_endpoint *))};
    if (out->leaving == NULL) {
        (void)snprintf(message, message_bytes, "%s", ls_err_text(LS_ENOMEM));
        return LS_ENOMEM;
    }
    for (unsigned i = 0; i < ls_site_listener_count(site) && err == LS_OK; i++) {
        const ls_site_listener *listener = ls_site_listener_get(site, i);
        p.want.index = i;
        reason[0] = '\0';
        p.ops = listener->kind == LS_SITE_HTTPSYS ? &ls_endpoint_httpsys : &ls_endpoint_stream;
        if (listener->kind == LS_SITE_HTTPSYS)
            err = plan_urls(&p, listener, message, message_bytes);
        else
            err = plan_host(&p, listener->host, listener->port, listener->where, message, message_bytes);
    }
    p.ops = &ls_endpoint_udp;
    for (unsigned i = 0; i < ls_site_udp_count(site) && err == LS_OK; i++) {
        const ls_site_udp *udp = ls_site_udp_get(site, i);
        p.want.index = i;
        reason[0] = '\0';
        err = plan_host(&p, udp->host, udp->port, udp->where, message, message_bytes);
    }
    if (err < 0) ls_endpoint_plan_undo(env->port, out);
    for (unsigned i = 0; i < out->count; i++)
        if (out->at[i]->ops->known != NULL) out->at[i]->ops->known(out->at[i], site);
    return err;
}

void ls_endpoint_plan_undo(ls_port *port, ls_endpoint_plan *plan)
{
    shorten(port, plan, 0);
    ls_endpoint_plan_end(plan);
}

/* ---- commit ------------------------------------------------------------------------------------------------- */

void ls_endpoint_plan_swap(ls_endpoint_plan *plan, ls_node *open, ls_node *removed, uint64_t generation)
{
    ls_node current;
    ls_node_init(&current);
    for (unsigned i = 0; i < plan->count; i++) {
        ls_endpoint *e = plan->at[i];
        ls_list_remove(&e->node);
        ls_list_push(&current, &e->node);
        e->planned = false;
        if (!e->fresh) e->ops->replace(e, generation);
    }
    while (!ls_list_empty(open)) {
        ls_endpoint *e = LS_CONTAINER(open->next, ls_endpoint, node);
        ls_list_remove(&e->node);
        ls_list_push(removed, &e->node);
        e->generation = generation;
        e->removed_ns = ls_clock_ns();
        plan->leaving[plan->leaving_count++] = e;
    }
    ls_list_move(open, &current);
}

ls_fd ls_endpoint_keep(ls_endpoint *e, bool kept)
{
    e->kept = kept;
    return e->ops->keep != NULL ? e->ops->keep(e) : LS_FD_NONE;
}

void ls_endpoint_name(ls_endpoint *e, char name[LS_INHERITED_NAME_BYTES])
{
    if (e->of_unit)
        (void)snprintf(name, LS_INHERITED_NAME_BYTES, "unit");
    else
        ls_inherited_name(ls_endpoint_keep(e, e->kept), e->ops != &ls_endpoint_udp, e->wanted.port == 0, name);
}

/* Have the service manager keep the sockets of the plan, and those no more that leave. */
static void store(ls_endpoint *e, bool leaves)
{
    char name[LS_INHERITED_NAME_BYTES];
    const ls_fd fd = ls_endpoint_keep(e, e->kept);
    if (fd == LS_FD_NONE || e->of_unit || (leaves && !e->kept)) return;
    ls_endpoint_name(e, name);
    if (leaves) ls_sd_remove(name);
    (void)ls_endpoint_keep(e, !leaves && ls_sd_store((intptr_t)fd, name));
}

void ls_endpoint_plan_run(ls_thread_ctx *ctx, const ls_endpoint_plan *plan)
{
    char text[LS_ADDR_TEXT_BYTES];
    const char *address;
    for (unsigned i = 0; i < plan->count; i++) {
        if (!plan->at[i]->fresh) continue;
        plan->at[i]->ops->start(ctx, plan->at[i]);
        store(plan->at[i], false);
    }
    for (unsigned i = 0; i < plan->leaving_count; i++) {
        ls_endpoint *e = plan->leaving[i];
        store(e, true);
        for (unsigned n = 0; (address = e->ops->address(e, n, text)) != NULL; n++)
            ls_log(LS_LOG_INFO, "accepts no more on %s", address);
        e->ops->stop(ctx, e);
    }
}

void ls_endpoint_plan_end(ls_endpoint_plan *plan)
{
    for (unsigned i = 0; i < plan->count; i++) plan->at[i]->fresh = false;
    for (unsigned i = 0; i < plan->leaving_count; i++) plan->leaving[i]->stopped = true;
    free(plan->at);
    free(plan->leaving);
    *plan = (ls_endpoint_plan){.at = NULL};
}

/* ---- removed ------------------------------------------------------------------------------------------------ */

uint64_t ls_endpoints_drain_removed(const ls_endpoint_env *env, ls_node *removed, uint32_t drain_ms, uint64_t oldest)
{
    uint64_t needed = UINT64_MAX;
    for (ls_node *node = removed->next, *next; node != removed; node = next) {
        ls_endpoint *e = LS_CONTAINER(node, ls_endpoint, node);
        const uint64_t ms = (ls_clock_ns() - e->removed_ns) / 1000000u;
        next = node->next;
        if (!e->stopped) {
            needed = e->generation < needed ? e->generation : needed;
            continue;
        }
        if (e->ops->free_replaced != NULL) (void)e->ops->free_replaced(e);
        if (e->ops->drain(e, ms >= LS_ENDPOINT_FRESH_MS) > 0) {
            e->ticket = 0;
            if (ms >= drain_ms && !e->aborted) e->ops->abort(e);
            if (ms >= drain_ms) e->aborted = true;
        } else if (e->ticket == 0) {
            e->ticket = ls_grace_begin(env->grace);
        }
        /* The objects of an ls.udp call refer to its socket as long as their generation is open. */
        const bool referred = e->ops == &ls_endpoint_udp && oldest <= e->generation;
        const bool unused = e->ticket != 0 && ls_grace_over(env->grace, e->ticket);
        if (!unused && e->generation < needed) needed = e->generation;
        if (!unused || referred) continue;
        ls_list_remove(&e->node);
        e->ops->close(e);
    }
    return needed;
}
