/* endpoint_stream.c - the endpoint of ls.listen and ls.tcp: an acceptor, its service, and the HTTP engines.
 *
 * A *service* is what new connections get: HTTP or TCP, TLS, PROXY protocol. A handshake keeps the service it began
 * with, so a replaced service waits on the list `retired` until the last of its handshakes has ended.
 *
 * An *engine* is an ls_http_engine that gets streams, of HTTP/1.1. A reload with the same limits keeps the engine and
 * replaces its handler. With other limits new connections get another engine; existing connections keep their limits
 * and get the new handler. When the address changes from HTTP to TCP, its engines drain, with the handler they
 * have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io/log.h"
#include "net/acceptor.h"
#include "net/sock/sock.h"
#include "server/endpoint.h"

typedef struct engine {
    ls_node node;
    ls_http_engine *http;
    unsigned services; /* that start connections of it */
    uint64_t ticket;   /* not used any more: of its grace period; 0: used */
    bool draining;
    uint64_t generation; /* draining: the number of the one whose handler it has */
} engine;

typedef struct service {
    ls_node node; /* of the list `retired` */
    ls_acceptor_service *service;
    engine *engine;                 /* NULL: TCP */
    const ls_http_handler *handler; /* HTTP */
    ls_tls *tls;                    /* NULL: plain */
    char *tls_key;
    bool self_signed;
    uint32_t backlog;
    uint64_t generation, ticket; /* retired: the number of its generation; of its grace period */
} service;

typedef struct stream_endpoint {
    ls_endpoint base; /* first */
    const ls_endpoint_env *env;
    ls_acceptor *acceptor;
    service *current, *next; /* next: prepared; NULL */
    ls_path_access access, next_access;
    ls_node retired, engines;
} stream_endpoint;

static stream_endpoint *of(const ls_endpoint *e)
{
    return (stream_endpoint *)(void *)(uintptr_t)e;
}

/* ---- TLS ---------------------------------------------------------------------------------------------------- */

static ls_tls *tls_in(const ls_endpoint *e, const char *key)
{
    if (e->ops != &ls_endpoint_stream) return NULL;
    const stream_endpoint *s = of(e);
    const service *used = s->next != NULL ? s->next : s->current;
    return used->tls != NULL && strcmp(used->tls_key, key) == 0 ? used->tls : NULL;
}

/* A context with the same options that is in use already: its ticket keys, its sessions and a self-signed certificate
 * stay. *fresh: it belongs to this plan, and its certificates were just read. */
static ls_tls *find_tls(const ls_endpoint_want *want, const char *key, bool *fresh)
{
    ls_tls *found = NULL;
    for (unsigned i = 0; i < want->plan->count && found == NULL; i++) found = tls_in(want->plan->at[i], key);
    *fresh = found != NULL;
    for (const ls_node *node = want->open->next; node != want->open && found == NULL; node = node->next)
        found = tls_in(LS_CONTAINER(node, ls_endpoint, node), key);
    return found;
}

static int open_tls(const ls_endpoint_want *want, const ls_tls_options *options, service *s)
{
    char why[512] = "";
    if (options == NULL) return LS_OK;
    if ((s->tls_key = ls_tls_options_key(options)) == NULL) return LS_ENOMEM;
    bool fresh;
    int err = LS_OK;
    ls_tls *shared = find_tls(want, s->tls_key, &fresh);
    if (shared == NULL)
        err = ls_tls_open(options, &s->tls, why, sizeof why);
    else if (!fresh)
        err = ls_tls_reload(shared, true, why, sizeof why);
    if (err < 0) {
        (void)snprintf(want->message, LS_MESSAGE_BYTES, "tls: %s", why);
        return err;
    }
    if (shared != NULL) s->tls = ls_tls_hold(shared);
    const ls_site_listener *listener = ls_site_listener_get(want->site, want->index);
    if (why[0] != '\0') ls_log(LS_LOG_WARN, "%s: tls: %s", listener->where, why);
    ls_tls_check_names(s->tls, options->names, listener->where);
    ls_tls_expect_names(s->tls, options->names, fresh);
    s->self_signed = options->self_signed;
    return LS_OK;
}

/* ---- services and engines ----------------------------------------------------------------------------------- */

static uint32_t open_of(const engine *engine)
{
    ls_http_stats stats = {0};
    engine->http->ops->stat(engine->http, &stats);
    return stats.open;
}

static void close_engine(stream_endpoint *s, engine *engine)
{
    engine->http->ops->stat(engine->http, s->env->past);
    ls_list_remove(&engine->node);
    engine->http->ops->close(engine->http);
    free(engine);
}

/* The engine with these limits, or a new one. */
static int find_engine(stream_endpoint *s, const ls_http_config *config, const ls_http_handler *handler, engine **out)
{
    for (ls_node *node = s->engines.next; node != &s->engines; node = node->next) {
        engine *known = LS_CONTAINER(node, engine, node);
        if (!known->draining && known->http->ops->prepare(known->http, config) == LS_OK) {
            *out = known;
            return LS_OK;
        }
    }
    engine *made = calloc(1, sizeof *made);
    if (made == NULL) return LS_ENOMEM;
    const int err = ls_h2_open(config, handler, s->env->limit, s->env->threads_max, &made->http);
    if (err < 0) {
        free(made);
        return err;
    }
    if (s->acceptor != NULL) ls_http1_local(made->http, &s->base.at);
    ls_list_push(&s->engines, &made->node);
    *out = made;
    return LS_OK;
}

static void drop_service(service *old)
{
    if (old->service != NULL) ls_acceptor_service_drop(old->service);
    if (old->engine != NULL) old->engine->services--;
    if (old->tls != NULL) ls_tls_drop(old->tls);
    free(old->tls_key);
    free(old);
}

static int open_service(stream_endpoint *s, const ls_endpoint_want *want, service **out)
{
    const ls_site_listener *wanted = ls_site_listener_get(want->site, want->index);
    ls_acceptor_protocol protocol = {ls_tcp_start, NULL, ls_tcp_user_bytes};
    service *made = calloc(1, sizeof *made);
    if (made == NULL) return LS_ENOMEM;
    ls_node_init(&made->node);
    made->backlog = wanted->backlog != 0 ? wanted->backlog : want->settings->backlog;
    int err = open_tls(want, wanted->tls, made);
    if (err < 0) goto fail;
    if (wanted->kind == LS_SITE_TCP) {
        protocol.user = ls_site_tcp_server(want->site, want->index, want->env->limit);
    } else {
        made->handler = ls_site_http_handler(want->site, want->index);
        if ((err = find_engine(s, &wanted->http, made->handler, &made->engine)) < 0) goto fail;
        made->engine->services++;
        protocol = (ls_acceptor_protocol){ls_http1_start, made->engine->http, ls_http1_room(&wanted->http)};
    }
    const ls_acceptor_service_options options = {.protocol = protocol,
                                                 .proxy_protocol = wanted->proxy_protocol,
                                                 .trusted = wanted->trusted,
                                                 .trusted_count = wanted->trusted_count,
                                                 .allow = wanted->allow,
                                                 .allow_count = wanted->allow_count,
                                                 .deny = wanted->deny,
                                                 .deny_count = wanted->deny_count,
                                                 .per_ip_max = wanted->per_ip_max,
                                                 .tls = made->tls,
                                                 .handshake_ms_max = wanted->handshake_ms_max,
                                                 .handshakes_max = wanted->handshakes_max,
                                                 .refuse_plain_http =
                                                     wanted->kind == LS_SITE_TCP ? NULL : ls_http1_refuse_plain};
    if ((err = ls_acceptor_service_open(&options, &made->service)) < 0) goto fail;
    *out = made;
    return LS_OK;

fail:
    drop_service(made);
    return err;
}

/* Close the engines that no service and no connection uses, when the packets that have ended the last connection are
 * over: at the earliest in the next call. */
static void close_engines(stream_endpoint *s)
{
    for (ls_node *node = s->engines.next, *next; node != &s->engines; node = next) {
        engine *engine = LS_CONTAINER(node, struct engine, node);
        next = node->next;
        if (engine->services > 0 || open_of(engine) > 0)
            engine->ticket = 0;
        else if (engine->ticket == 0)
            engine->ticket = ls_grace_begin(s->env->grace);
        else if (ls_grace_over(s->env->grace, engine->ticket))
            close_engine(s, engine);
    }
}

/* ---- open and close ----------------------------------------------------------------------------------------- */

static void stream_close(ls_endpoint *e)
{
    stream_endpoint *s = of(e);
    if (s->acceptor != NULL) ls_acceptor_close(s->acceptor);
    if (s->current != NULL) drop_service(s->current);
    while (!ls_list_empty(&s->retired)) {
        service *old = LS_CONTAINER(s->retired.next, service, node);
        ls_list_remove(&old->node);
        drop_service(old);
    }
    while (!ls_list_empty(&s->engines)) close_engine(s, LS_CONTAINER(s->engines.next, engine, node));
    free(s);
}

static void explain_access(const ls_endpoint_want *want, int err)
{
    const ls_path_access *access = &ls_site_listener_get(want->site, want->index)->access;
    char text[LS_ADDR_TEXT_BYTES];
    if (err == LS_EACCES && (access->has_user || access->has_group))
        (void)snprintf(
            want->message, LS_MESSAGE_BYTES,
            "cannot listen on %s: %s; only root may set another user as owner, or a group of which it is no member",
            ls_addr_text(&want->at, text), ls_err_text(err));
}

static int stream_open(const ls_endpoint_want *want, ls_endpoint **out)
{
    const ls_site_listener *wanted = ls_site_listener_get(want->site, want->index);
    stream_endpoint *s = calloc(1, sizeof *s);
    if (s == NULL) return LS_ENOMEM;
    s->env = want->env;
    ls_node_init(&s->retired);
    ls_node_init(&s->engines);
    int err = open_service(s, want, &s->current);
    if (err < 0) goto fail;
    const ls_acceptor_options options = {.deadlines = want->env->deadlines,
                                         .limit = want->env->limit,
                                         .listener = {.backlog = s->current->backlog,
                                                      .accepts = want->settings->accepts_posted,
                                                      .access = &wanted->access}};
    err = ls_acceptor_open(want->env->port, &want->at, &options, s->current->service, &s->acceptor);
    if (err < 0) {
        explain_access(want, err);
        goto fail;
    }
    s->base.at = *ls_acceptor_addr(s->acceptor);
    s->access = wanted->access;
    if (s->current->engine != NULL) ls_http1_local(s->current->engine->http, &s->base.at);
    *out = &s->base;
    return LS_OK;

fail:
    stream_close(&s->base);
    return err;
}

/* ---- replace ------------------------------------------------------------------------------------------------ */

static bool same_access(const ls_path_access *a, const ls_path_access *b)
{
    return a->has_mode == b->has_mode && a->has_user == b->has_user && a->has_group == b->has_group &&
           a->mode == b->mode && a->user == b->user && a->group == b->group;
}

/* Set the access to a Unix path to `to`, which replaces `from`. */
static int change_access(const stream_endpoint *s, const ls_path_access *from, const ls_path_access *to)
{
    return same_access(from, to) ? LS_OK : ls_sock_set_access(&s->base.at, to);
}

static int stream_prepare(ls_endpoint *e, const ls_endpoint_want *want)
{
    stream_endpoint *s = of(e);
    int err = open_service(s, want, &s->next);
    if (err < 0) return err;
    s->next_access = ls_site_listener_get(want->site, want->index)->access;
    if ((err = change_access(s, &s->access, &s->next_access)) < 0) {
        explain_access(want, err);
        e->ops->unprepare(e);
    }
    return err;
}

static void stream_unprepare(ls_endpoint *e)
{
    stream_endpoint *s = of(e);
    (void)change_access(s, &s->next_access, &s->access);
    drop_service(s->next);
    s->next = NULL;
    close_engines(s);
}

/* The beginning of the address in the log; the path of a Unix socket says enough. */
static const char *scheme_of(const stream_endpoint *s, const service *of)
{
    const bool path = s->base.at.family == LS_ADDR_UNIX;
    if (of->engine == NULL) return of->tls != NULL ? "tls://" : path ? "" : "tcp://";
    return of->tls != NULL ? "https://" : path ? "" : "http://";
}

static void log_address(const stream_endpoint *s)
{
    char text[LS_ADDR_TEXT_BYTES];
    ls_log(LS_LOG_INFO, "listening on %s%s", scheme_of(s, s->current), ls_addr_text(&s->base.at, text));
    if (s->current->self_signed) {
        char fingerprint[96];
        ls_tls_fingerprint(s->current->tls, fingerprint);
        ls_log(LS_LOG_INFO, "its certificate is self-signed; SHA-256 fingerprint %s", fingerprint);
    }
}

/* Let the open connections continue: as HTTP with the new handler, or, if the address is TCP now, to their next
 * response. */
static void replace_handlers(stream_endpoint *s, uint64_t generation)
{
    for (ls_node *node = s->engines.next; node != &s->engines; node = node->next) {
        engine *engine = LS_CONTAINER(node, struct engine, node);
        if (engine->draining) continue;
        if (s->current->engine != NULL) {
            engine->http->ops->replace(engine->http, s->current->handler);
        } else {
            engine->draining = true;
            engine->generation = generation;
            (void)engine->http->ops->drain(engine->http, false);
        }
    }
}

static void stream_replace(ls_endpoint *e, uint64_t generation)
{
    stream_endpoint *s = of(e);
    service *before = s->current;
    s->current = s->next;
    s->next = NULL;
    s->access = s->next_access;
    replace_handlers(s, generation);
    (void)ls_acceptor_replace(s->acceptor, s->current->service);
    if (s->current->backlog != before->backlog) ls_acceptor_set_backlog(s->acceptor, s->current->backlog);
    before->generation = generation;
    before->ticket = ls_grace_begin(s->env->grace);
    ls_list_push(&s->retired, &before->node);
    if (strcmp(scheme_of(s, before), scheme_of(s, s->current)) != 0) log_address(s);
}

static uint64_t stream_free_replaced(ls_endpoint *e)
{
    stream_endpoint *s = of(e);
    uint64_t needed = UINT64_MAX;
    for (ls_node *node = s->retired.next, *next; node != &s->retired; node = next) {
        service *old = LS_CONTAINER(node, service, node);
        next = node->next;
        if (ls_grace_over(s->env->grace, old->ticket) && !ls_acceptor_service_used(old->service)) {
            ls_list_remove(&old->node);
            drop_service(old);
        } else if (old->generation < needed) {
            needed = old->generation;
        }
    }
    close_engines(s);
    for (ls_node *node = s->engines.next; node != &s->engines; node = node->next) {
        engine *engine = LS_CONTAINER(node, struct engine, node);
        if (engine->draining) (void)engine->http->ops->drain(engine->http, true);
        if (engine->draining && engine->ticket == 0 && engine->generation < needed) needed = engine->generation;
    }
    return needed;
}

static void stream_abort_until(ls_endpoint *e, uint64_t generation)
{
    stream_endpoint *s = of(e);
    for (ls_node *node = s->retired.next; node != &s->retired; node = node->next) {
        const service *old = LS_CONTAINER(node, service, node);
        if (old->generation <= generation) ls_acceptor_abort_service(s->acceptor, old->service);
    }
    for (ls_node *node = s->engines.next; node != &s->engines; node = node->next) {
        engine *engine = LS_CONTAINER(node, struct engine, node);
        if (engine->draining && engine->generation <= generation) engine->http->ops->abort(engine->http);
    }
}

/* ---- start and stop ----------------------------------------------------------------------------------------- */

static void stream_start(ls_thread_ctx *ctx, ls_endpoint *e)
{
    stream_endpoint *s = of(e);
    ls_acceptor_start(ctx, s->acceptor);
    log_address(s);
}

static void stream_stop(ls_thread_ctx *ctx, ls_endpoint *e)
{
    ls_acceptor_stop(ctx, of(e)->acceptor);
}

static uint32_t stream_drain(ls_endpoint *e, bool all)
{
    stream_endpoint *s = of(e);
    uint32_t left = ls_acceptor_drain(s->acceptor, all);
    for (ls_node *node = s->engines.next; node != &s->engines; node = node->next) {
        ls_http_engine *http = LS_CONTAINER(node, engine, node)->http;
        http->patient = e->kept;
        left += http->ops->drain(http, all);
    }
    return left;
}

static ls_fd stream_keep(ls_endpoint *e)
{
    return ls_acceptor_keep(of(e)->acceptor, e->kept);
}

static void stream_abort(ls_endpoint *e)
{
    stream_endpoint *s = of(e);
    ls_acceptor_abort(s->acceptor);
    for (ls_node *node = s->engines.next; node != &s->engines; node = node->next) {
        ls_http_engine *http = LS_CONTAINER(node, engine, node)->http;
        http->ops->abort(http);
    }
}

static void stream_stat(const ls_endpoint *e, ls_http_stats *sum, ls_udp_stats *udp)
{
    const stream_endpoint *s = of(e);
    for (const ls_node *node = s->engines.next; node != &s->engines; node = node->next) {
        const ls_http_engine *http = LS_CONTAINER(node, engine, node)->http;
        http->ops->stat(http, sum);
    }
}

static const char *stream_scheme(const ls_endpoint *e)
{
    const stream_endpoint *s = (const stream_endpoint *)(const void *)e;
    return scheme_of(s, s->current);
}

const ls_endpoint_ops ls_endpoint_stream = {
    .open = stream_open,
    .prepare = stream_prepare,
    .unprepare = stream_unprepare,
    .replace = stream_replace,
    .start = stream_start,
    .stop = stream_stop,
    .drain = stream_drain,
    .keep = stream_keep,
    .abort = stream_abort,
    .free_replaced = stream_free_replaced,
    .abort_until = stream_abort_until,
    .stat = stream_stat,
    .address = ls_endpoint_address,
    .scheme = stream_scheme,
    .close = stream_close,
};
