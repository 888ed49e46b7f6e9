/* resolver_cares_posix.c - resolver.h over c-ares.
 *
 * c-ares owns its sockets and says what it wants to know of each; that becomes a one-shot level notification. Its packet
 * may be taken by any thread, which only notes the events and posts an operation to the actor. A watch is never freed
 * before the resolver: a packet that another thread had taken when the socket was closed can then do no more than make
 * us look once in vain.
 *
 * c-ares is entered by one function at a time, and lookups that end inside it are told when it has returned. */
#define _GNU_SOURCE
#include "net/resolver.h"

#include <stdlib.h>
#include <string.h>

#include <ares.h>

#include "base/clock.h"
#include "base/list.h"
#include "port/notify.h"

enum { TIMEOUT_MS = 2000, TRIES = 3 }; /* of one question to one name server; each round waits twice as long */

typedef struct watch {
    ls_packet_handler handler; /* first: the key of the registration points here */
    ls_op op;
    ls_resolver *resolver;
    struct watch *next;
    ares_socket_t fd; /* ARES_SOCKET_BAD: free */
    uint16_t wanted;
    _Atomic uint32_t told;
    _Atomic int queued; /* op is in the actor's inbox */
} watch;

struct ls_resolver {
    ls_port *port;
    ares_channel channel;
    watch *watches;
    ls_timer timer;
    bool armed, closing;
    unsigned asked;   /* not yet answered by c-ares */
    ls_node answered; /* lookups to be told */
};

typedef struct cares_lookup {
    ls_lookup base; /* first */
    ls_resolver *resolver;
    ls_node node; /* resolver->answered */
    uint16_t port;
    bool answered, told, dropped;
} cares_lookup;

/* ---- sockets ---------------------------------------------------------------------------------------------------- */

static void watch_taken(ls_thread_ctx *ctx, const ls_packet *packet)
{
    watch *w = packet->key;
    atomic_fetch_or(&w->told, packet->events);
    if (atomic_exchange(&w->queued, 1) == 0) ls_actor_post(w->op.actor, ctx, &w->op);
}

static void go_on(ls_thread_ctx *ctx, ls_resolver *r);

static void watch_arm(watch *w, uint8_t operation)
{
    ls_registration registration = {.fd = w->fd,
                                    .key = w,
                                    .events = w->wanted,
                                    .trigger = LS_TRIGGER_ONESHOT | LS_TRIGGER_LEVEL,
                                    .operation = operation};
    /* When it fails, c-ares's timeout tells. */
    (void)ls_port_notify(w->resolver->port, NULL, &registration, 1, NULL, 0, 0);
}

static void watch_done(ls_thread_ctx *ctx, ls_op *op)
{
    watch *w = LS_CONTAINER(op, watch, op);
    ls_resolver *r = w->resolver;
    atomic_store(&w->queued, 0);
    const uint32_t events = atomic_exchange(&w->told, 0);
    if (w->fd == ARES_SOCKET_BAD) return;
    const uint32_t failed = events & (LS_EVENT_ERR | LS_EVENT_HANGUP); /* it finds out which by trying */
    ares_process_fd(r->channel, (events & LS_EVENT_IN) || failed ? w->fd : ARES_SOCKET_BAD,
                    (events & LS_EVENT_OUT) || failed ? w->fd : ARES_SOCKET_BAD);
    if (w->fd != ARES_SOCKET_BAD) watch_arm(w, LS_NOTIFY_ENABLE);
    go_on(ctx, r);
}

static watch *watch_of(ls_resolver *r, ares_socket_t fd)
{
    watch *w = r->watches;
    while (w != NULL && w->fd != fd) w = w->next;
    return w;
}

/* c-ares says what it wants to know of a socket; nothing at all before it closes it. */
static void socket_wanted(void *data, ares_socket_t fd, int readable, int writable)
{
    ls_resolver *r = data;
    watch *w = watch_of(r, fd);
    if (r->closing) return;
    if (!readable && !writable) {
        if (w == NULL) return;
        ls_port_forget(r->port, fd);
        w->fd = ARES_SOCKET_BAD;
        return;
    }
    const bool known = w != NULL;
    if (!known && (w = watch_of(r, ARES_SOCKET_BAD)) == NULL) {
        w = calloc(1, sizeof *w);
        if (w == NULL) return; /* this question times out */
        w->handler.handle = watch_taken;
        w->resolver = r;
        w->op.done = watch_done;
        w->op.actor = r->timer.op.actor;
        w->next = r->watches;
        r->watches = w;
    }
    w->fd = fd;
    w->wanted = (uint16_t)((readable ? LS_EVENT_IN : 0) | (writable ? LS_EVENT_OUT : 0));
    watch_arm(w, known ? LS_NOTIFY_ENABLE : LS_NOTIFY_REGISTER);
}

/* ---- lookups ---------------------------------------------------------------------------------------------------- */

static void timer_done(ls_thread_ctx *ctx, ls_op *op)
{
    ls_resolver *r = LS_CONTAINER(op, ls_resolver, timer.op);
    r->armed = false;
    ares_process_fd(r->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    go_on(ctx, r);
}

/* After c-ares has returned: its next timeout, and those whom it answered. */
static void go_on(ls_thread_ctx *ctx, ls_resolver *r)
{
    struct timeval tv;
    if (r->asked > 0 && !r->armed && ares_timeout(r->channel, NULL, &tv) != NULL) {
        const uint64_t ns = (uint64_t)tv.tv_sec * 1000000000u + (uint64_t)tv.tv_usec * 1000u;
        r->armed = ls_timer_set(r->port, &r->timer, ls_clock_ns() + ns + 1000000u) == LS_OK;
    }
    while (!ls_list_empty(&r->answered)) {
        cares_lookup *l = LS_CONTAINER(r->answered.next, cares_lookup, node);
        ls_list_remove(&l->node);
        l->told = true;
        l->base.done(ctx, &l->base);
    }
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

static void answered(void *user, int status, int timeouts, struct ares_addrinfo *info)
{
    cares_lookup *l = user;
    ls_resolver *r = l->resolver;
    (void)timeouts;
    r->asked--;
    l->answered = true;
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
    if (info != NULL) ares_freeaddrinfo(info);
    if (l->base.err == LS_OK && l->base.count == 0) l->base.err = LS_ENOENT;
    if (l->dropped)
        free(l);
    else
        ls_list_push(&r->answered, &l->node);
}

int ls_resolver_ask(ls_thread_ctx *ctx, ls_resolver *r, const char *name, uint16_t port, ls_lookup_fn *done,
                    void *user, ls_lookup **out)
{
    const struct ares_addrinfo_hints hints = {.ai_flags = 0}; /* both families, in the order of RFC 6724 */
    cares_lookup *l = calloc(1, sizeof *l);
    if (l == NULL) return LS_ENOMEM;
    l->base.done = done;
    l->base.user = user;
    l->resolver = r;
    l->port = port;
    ls_node_init(&l->node);
    r->asked++;
    ares_getaddrinfo(r->channel, name, NULL, &hints, answered, l);
    *out = &l->base;
    if (l->answered) { /* at once: from the hosts file, or it failed */
        ls_list_remove(&l->node);
        l->told = true;
        return LS_DONE;
    }
    go_on(ctx, r);
    return LS_PENDING;
}

void ls_lookup_drop(ls_lookup *lookup)
{
    cares_lookup *l = (cares_lookup *)(void *)lookup;
    if (l->answered) {
        ls_list_remove(&l->node);
        free(l);
    } else {
        l->dropped = true;
    }
}

/* ---- open and close --------------------------------------------------------------------------------------------- */

int ls_resolver_open(ls_port *port, ls_actor *actor, const char *servers, ls_resolver **out)
{
    int err = LS_ENOMEM;
    ls_resolver *r = calloc(1, sizeof *r);
    if (r == NULL) return err;
    r->port = port;
    r->timer.op = (ls_op){.done = timer_done, .actor = actor};
    ls_node_init(&r->answered);
    struct ares_options options = {
        .timeout = TIMEOUT_MS, .tries = TRIES, .sock_state_cb = socket_wanted, .sock_state_cb_data = r};
    const int status =
        ares_init_options(&r->channel, &options, ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB);
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

void ls_resolver_stop(ls_resolver *resolver)
{
    (void)resolver; /* all that it posts comes from packets of the port */
}

void ls_resolver_close(ls_resolver *r)
{
    r->closing = true; /* the port is closed: its registrations are gone */
    ares_destroy(r->channel);
    while (r->watches != NULL) {
        watch *w = r->watches;
        r->watches = w->next;
        free(w);
    }
    free(r);
}
