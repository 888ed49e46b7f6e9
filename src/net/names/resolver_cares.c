/* resolver_cares.c - resolver.h over c-ares.
 *
 * c-ares owns its sockets and reports the events it wants for each one; a one-shot level-triggered poll watches for
 * them.
 *
 * Addresses are kept as long as their records allow (name_cache.h); those of the hosts file have no time to live and
 * are looked up each time.
 *
 * One function at a time calls into c-ares. Lookups that complete inside that call are reported after it has
 * returned. */
#define _GNU_SOURCE /* for ares.h, which uses types of the system */
#include "net/names/resolver.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <ares.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/os/signals.h"
#include "base/os/thread.h"
#include "net/names/name_cache.h"

#ifndef ARES_OPT_QUERY_CACHE
#define ARES_OPT_QUERY_CACHE 0 /* c-ares before 1.24 has no cache */
#endif

enum { TIMEOUT_MS = 2000, TRIES = 3 }; /* of one query to one name server; the timeout doubles with each round */

struct ls_resolver {
    ls_port *port;
    ls_polls *polls;
    ares_channel channel;
    ls_timer timer;
    bool armed, closing, ended; /* ended: the channel is destroyed */
    unsigned queries;           /* not complete yet */
    ls_node completed;          /* lookups whose done() is to be called */
    ls_name_cache cache;
};

typedef struct cares_lookup {
    ls_lookup base; /* first */
    ls_resolver *resolver;
    ls_node node; /* resolver->completed */
    uint16_t port;
    bool complete, dropped;
    char name[];
} cares_lookup;

/* ---- sockets ---------------------------------------------------------------------------------------------------- */

static void update(ls_thread_ctx *ctx, ls_resolver *r);

/* c-ares does not write to its TCP connections with MSG_NOSIGNAL. */
static void process(ls_resolver *r, ares_socket_t readable, ares_socket_t writable)
{
    const bool guarded = ls_pipe_guard_enter();
    ares_process_fd(r->channel, readable, writable);
    ls_pipe_guard_leave(guarded);
}

static void socket_ready(ls_thread_ctx *ctx, ls_poll *poll, uint32_t events)
{
    ls_resolver *r = ls_poll_user(poll);
    const ares_socket_t fd = ls_poll_fd(poll);
    const uint32_t failed =
        events & (LS_EVENT_ERR | LS_EVENT_HANGUP); /* c-ares finds the cause when it reads or writes */
    process(r, (events & LS_EVENT_IN) || failed ? fd : ARES_SOCKET_BAD,
            (events & LS_EVENT_OUT) || failed ? fd : ARES_SOCKET_BAD);
    if (ls_polls_find(r->polls, fd, ctx->inside, socket_ready) == poll) /* else c-ares has closed the socket */
        (void)ls_poll_arm(poll, ls_poll_events(poll));
    update(ctx, r);
}

/* ares_sock_state_cb: the events that c-ares wants for a socket; none before it closes the socket. If a poll fails,
 * the timeout of c-ares ends the query. */
static void socket_state_changed(void *data, ares_socket_t fd, int readable, int writable)
{
    ls_resolver *r = data;
    if (r->closing) return;
    ls_poll *poll = ls_polls_find(r->polls, fd, r->timer.op.actor, socket_ready);
    const ls_poll_options options = {.actor = r->timer.op.actor,
                                     .fd = fd,
                                     .events =
                                         (uint16_t)((readable ? LS_EVENT_IN : 0) | (writable ? LS_EVENT_OUT : 0)),
                                     .trigger = LS_TRIGGER_ONESHOT | LS_TRIGGER_LEVEL,
                                     .report = socket_ready,
                                     .user = r};
    if (poll == NULL && options.events != 0) {
        (void)ls_poll_open(r->polls, &options, &poll);
    } else if (poll != NULL && options.events != 0) {
        (void)ls_poll_arm(poll, options.events);
    } else if (poll != NULL) {
        ls_polls_unregister(r->polls, fd);
        ls_poll_close(poll);
    }
}

/* ---- lookups ---------------------------------------------------------------------------------------------------- */

static void timer_done(ls_thread_ctx *ctx, ls_op *op)
{
    ls_resolver *r = LS_CONTAINER(op, ls_resolver, timer.op);
    r->armed = false;
    if (r->ended) return;
    process(r, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    update(ctx, r);
}

/* Call after c-ares has returned: sets the timer for its next timeout, and reports the completed lookups. */
static void update(ls_thread_ctx *ctx, ls_resolver *r)
{
    struct timeval tv;
    if (r->queries > 0 && !r->armed && ares_timeout(r->channel, NULL, &tv) != NULL) {
        const uint64_t ns = (uint64_t)tv.tv_sec * 1000000000u + (uint64_t)tv.tv_usec * 1000u;
        r->armed = ls_timer_set(r->port, &r->timer, ls_clock_ns() + ns + 1000000u) == LS_OK;
    }
    LS_LIST_TAKE (cares_lookup, l, &r->completed, node) l->base.done(ctx, &l->base);
}

static int code_of(int status)
{
    switch (status) {
    case ARES_SUCCESS: return LS_OK;
    case ARES_ENOMEM: return LS_ENOMEM;
    case ARES_ETIMEOUT: return LS_ETIMEDOUT;
    case ARES_ECONNREFUSED: return LS_EREFUSED;
    case ARES_EBADNAME: return LS_EINVAL;
    case ARES_ENODATA:
    case ARES_ENOTFOUND: return LS_ENOENT;
    default: return LS_ESYS;
    }
}

/* The time in seconds for which a result may be kept: the least one of its records, which aliases are, too. */
static uint32_t ttl_of(const struct ares_addrinfo *info)
{
    int ttl = INT_MAX;
    for (const struct ares_addrinfo_node *node = info->nodes; node != NULL; node = node->ai_next)
        if (node->ai_ttl < ttl) ttl = node->ai_ttl;
    for (const struct ares_addrinfo_cname *alias = info->cnames; alias != NULL; alias = alias->next)
        if (alias->ttl < ttl) ttl = alias->ttl;
    return ttl > 0 ? (uint32_t)ttl : 0; /* of 32 bits with the highest one set: 0 (RFC 2181 section 8) */
}

static void lookup_completed(void *user, int status, int timeouts, struct ares_addrinfo *info)
{
    cares_lookup *l = user;
    ls_resolver *r = l->resolver;
    r->queries--;
    l->complete = true;
    l->base.err = code_of(status);
    for (const struct ares_addrinfo_node *node = info != NULL ? info->nodes : NULL;
         node != NULL && l->base.count < LS_LOOKUP_ADDRS_MAX; node = node->ai_next) {
        ls_sockaddr sa = {.len = (uint32_t)node->ai_addrlen};
        if (node->ai_addr == NULL || sa.len > sizeof sa.bytes) continue;
        memcpy(sa.bytes, node->ai_addr, sa.len);
        ls_addr *addr = &l->base.addrs[l->base.count];
        ls_addr_of(&sa, addr);
        addr->port = l->port;
        if (addr->family != LS_ADDR_NONE) l->base.count++;
    }
    if (info != NULL) {
        if (status == ARES_SUCCESS)
            ls_name_cache_add(&r->cache, l->name, ttl_of(info), ls_clock_coarse_ms(), l->base.addrs, l->base.count);
        ares_freeaddrinfo(info);
    }
    if (l->base.err == LS_OK && l->base.count == 0) l->base.err = LS_ENOENT;
    if (l->dropped)
        free(l);
    else
        ls_list_push(&r->completed, &l->node);
}

int ls_resolver_lookup(ls_thread_ctx *ctx, ls_resolver *r, const char *name, uint16_t port, ls_lookup_fn *done,
                       void *user, ls_lookup **out)
{
    const struct ares_addrinfo_hints hints = {.ai_flags = 0}; /* both families, in the order of RFC 6724 */
    const size_t name_bytes = strlen(name) + 1;
    cares_lookup *l = calloc(1, sizeof *l + name_bytes);
    if (l == NULL) return LS_ENOMEM;
    memcpy(l->name, name, name_bytes);
    l->base.done = done;
    l->base.user = user;
    l->resolver = r;
    l->port = port;
    ls_node_init(&l->node);
    *out = &l->base;
    l->base.count =
        ls_name_cache_find(&r->cache, name, port, ls_clock_coarse_ms(), l->base.addrs, LS_LOOKUP_ADDRS_MAX);
    if (l->base.count > 0) {
        l->complete = true;
        return LS_DONE;
    }
    r->queries++;
    ares_getaddrinfo(r->channel, name, NULL, &hints, lookup_completed, l);
    if (l->complete) { /* immediately: found in the hosts file, or failed */
        ls_list_remove(&l->node);
        return LS_DONE;
    }
    update(ctx, r);
    return LS_PENDING;
}

void ls_lookup_drop(ls_lookup *lookup)
{
    cares_lookup *l = (cares_lookup *)(void *)lookup;
    if (l->complete) {
        ls_list_remove(&l->node);
        free(l);
    } else {
        l->dropped = true;
    }
}

/* ---- open and close --------------------------------------------------------------------------------------------- */

int ls_resolver_open(ls_port *port, ls_polls *polls, ls_actor *actor, const char *servers, ls_resolver **out)
{
    static ls_mutex lock = LS_MUTEX_INIT;
    int err = LS_ENOMEM;
    ls_mutex_lock(&lock);
    const int ready = ares_library_init(ARES_LIB_INIT_ALL); /* on Windows it loads functions of the system */
    ls_mutex_unlock(&lock);
    if (ready != ARES_SUCCESS) return code_of(ready);
    ls_resolver *r = calloc(1, sizeof *r);
    if (r == NULL) return err;
    r->port = port;
    r->polls = polls;
    r->timer.op = (ls_op){.done = timer_done, .actor = actor};
    ls_node_init(&r->completed);
    ls_name_cache_init(&r->cache);
    struct ares_options options = {
        .timeout = TIMEOUT_MS, .tries = TRIES, .sock_state_cb = socket_state_changed, .sock_state_cb_data = r};
    /* With a time of 0 c-ares has no cache of its own, in which names that do not exist would be, too. */
    const int status = ares_init_options(
        &r->channel, &options, ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB | ARES_OPT_QUERY_CACHE);
    if (status != ARES_SUCCESS) {
        err = code_of(status);
        goto fail_alloc;
    }
    if (servers[0] != '\0' && ares_set_servers_ports_csv(r->channel, servers) != ARES_SUCCESS) {
        err = LS_EINVAL;
        goto fail_channel;
    }
    *out = r;
    return LS_OK;

fail_channel:
    ares_destroy(r->channel);
fail_alloc:
    free(r);
    return err;
}

bool ls_resolver_end(ls_thread_ctx *ctx, ls_resolver *r)
{
    if (!r->ended) {
        r->ended = true;
        ares_destroy(r->channel); /* closes its sockets, and with them their polls */
        while (!ls_list_empty(&r->completed)) ls_list_remove(r->completed.next); /* dropped by their owners */
    }
    if (r->armed && ls_timer_cancel(ctx->port, &r->timer)) r->armed = false;
    if (r->armed) return false; /* its packet is on its way */
    ls_name_cache_clear(&r->cache);
    free(r);
    return true;
}

void ls_resolver_stop(ls_resolver *resolver)
{
    (void)resolver; /* it posts only while it handles packets of the port */
}

void ls_resolver_close(ls_resolver *r)
{
    r->closing = true; /* the port is closed, and its registrations with it */
    if (!r->ended) ares_destroy(r->channel);
    ls_name_cache_clear(&r->cache);
    free(r);
}
