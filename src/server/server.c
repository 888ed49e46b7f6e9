/* server.c - the life of a server: load the site, open port, workers and endpoints, serve, drain, close.
 *
 * Order of closing: endpoints, worker threads, port, Lua states, pools. */
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/rlimit.h"
#include "base/utf8.h"
#include "net/stream.h"
#include "port/notify.h"
#include "proto/file_cache.h"
#include "script/shared/topic.h"
#include "server/server_internal.h"

enum {
    DRAIN_FRESH_MS = 1000, /* time given to a connection that has sent nothing yet */
    JOIN_MS_MIN = 1000,    /* time given at least to the threads to end after the drain */
    DISCONNECT_MS = 3000,  /* time given to closing connections once all handlers have ended */
    DESCRIPTORS_OWN = 64,  /* descriptors of the server itself, besides connections and cached files */
    SOCKETS_MAX = 1 << 25, /* upper limit of ls_port_options.sockets_max */
};

int ls_server_explain(int err, char *message, size_t bytes, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(message, bytes, format, args);
    va_end(args);
    return err;
}

/* Call fn for each endpoint, also those that are gone. The caller holds `lists`. */
typedef void endpoint_fn(ls_endpoint *e, void *user);

static void each_endpoint(ls_server *server, endpoint_fn *fn, void *user)
{
    ls_node *const lists[] = {&server->endpoints, &server->gone};
    for (int i = 0; i < 2; i++)
        for (ls_node *node = lists[i]->next, *next; node != lists[i]; node = next) {
            next = node->next;
            fn(LS_CONTAINER(node, ls_endpoint, node), user);
        }
}

/* ---- statistics ----------------------------------------------------------------------------------------------- */

typedef struct endpoint_stats {
    ls_http1_stats http;
    ls_udp_stats udp;
    bool has_udp;
} endpoint_stats;

static void add_stats(ls_endpoint *e, void *user)
{
    endpoint_stats *sum = user;
    e->ops->stat(e, &sum->http, &sum->udp);
    sum->has_udp |= e->ops == &ls_endpoint_udp;
}

/* A site may call this while it loads, and a finalizer after everything is closed: a missing part counts as 0. */
static void stats(void *user, ls_site_stat_fn *each, void *to)
{
    ls_server *server = user;
    ls_pools_stats pools = {0};
    ls_workers_stats workers = {0};
    endpoint_stats sum;
    if (server->pools != NULL) ls_pools_stat(server->pools, &pools);
    if (server->workers != NULL) ls_workers_stat(server->workers, &workers);
    ls_mutex_lock(&server->lists);
    sum = (endpoint_stats){.http = server->past};
    each_endpoint(server, add_stats, &sum);
    ls_mutex_unlock(&server->lists);
    each(to, "uptime", (double)(ls_clock_ns() - server->opened_ns) / 1e9);
    each(to, "connections", (double)sum.http.connections);
    each(to, "connections_open", (double)sum.http.open);
    each(to, "requests", (double)sum.http.requests);
    each(to, "responses", (double)sum.http.responses);
    each(to, "refused", (double)sum.http.refused);
    each(to, "threads", (double)workers.threads);
    each(to, "threads_max", (double)workers.threads_max);
    each(to, "threads_stalled", (double)workers.stalled);
    each(to, "standbys_released", (double)workers.standbys_released);
    each(to, "packets", (double)workers.sum.packets);
    each(to, "waits", (double)workers.sum.waits);
    each(to, "accepts", (double)workers.sum.accepts);
    each(to, "recv_inline", (double)workers.sum.recv_inline);
    each(to, "recv_queued", (double)workers.sum.recv_queued);
    each(to, "send_inline", (double)workers.sum.send_inline);
    each(to, "send_queued", (double)workers.sum.send_queued);
    each(to, "blocks_live", (double)pools.blocks_live);
    each(to, "blocks_peak", (double)pools.blocks_peak);
    each(to, "bytes_live", (double)pools.bytes_live);
    each(to, "bytes_peak", (double)pools.bytes_peak);
    each(to, "bytes_copied", (double)pools.bytes_copied);
    each(to, "bytes_encrypted", (double)pools.bytes_encrypted);
    if (sum.has_udp) {
        each(to, "udp_received", (double)sum.udp.received);
        each(to, "udp_batches", (double)sum.udp.batches);
        each(to, "udp_truncated", (double)sum.udp.truncated);
        each(to, "udp_sent", (double)sum.udp.sent);
        each(to, "udp_failed", (double)sum.udp.failed);
        each(to, "udp_own", (double)sum.udp.own);
    }
}

int ls_server_post(ls_server *server, const void *data, size_t bytes)
{
    return ls_posts_add(&server->posts, data, bytes);
}

int ls_server_publish(ls_server *server, const char *topic, const void *data, size_t bytes)
{
    const ls_publish_order order = {.topic = topic,
                                    .topic_len = strlen(topic),
                                    .data = ls_slice_static(data, bytes),
                                    .text = ls_utf8_valid(data, bytes)};
    const int64_t count = ls_topics_publish(server->runtime->topics, &order);
    return count > INT_MAX ? INT_MAX : (int)count;
}

static void deliver_post(void *user, ls_thread_ctx *ctx, ls_host_post *post)
{
    ls_server *server = user;
    ls_mutex_lock(&server->lists);
    ls_site *site = server->site; /* if a reload replaces it now, it stays until this packet has ended */
    ls_mutex_unlock(&server->lists);
    ls_site_post(site, ctx, post);
}

typedef struct counter_search {
    const char *name;
    double value;
    bool found;
} counter_search;

static void compare_counter(void *to, const char *name, double value)
{
    counter_search *search = to;
    if (strcmp(name, search->name) != 0) return;
    search->value = value;
    search->found = true;
}

int ls_server_counter(ls_server *server, const char *name, double *value)
{
    counter_search search = {.name = name};
    ls_runtime_stats(server->runtime, compare_counter, &search);
    if (!search.found) return LS_ENOENT;
    *value = search.value;
    return LS_OK;
}

static void stop_from_signal(void *user)
{
    ls_server_stop(user);
}

static void other_signal(void *user, const char *name)
{
    ls_server *server = user;
    if (strcmp(name, "SIGHUP") == 0)
        ls_server_ask_reload(server);
    else if (strcmp(name, "SIGUSR1") == 0 && server->options.reopen_logs != NULL)
        server->options.reopen_logs(server->options.user);
    else
        ls_log(LS_LOG_INFO, "%s has no effect; SIGHUP reloads the site, SIGTERM stops the server", name);
}

/* Begin the drain. from_outside: by a signal or the program, not by the site; the second such stop ends the server at
 * once. */
static void stop(ls_server *server, bool from_outside)
{
    ls_mutex_lock(&server->mutex);
    const bool first = server->phase < PHASE_DRAINING;
    if (first) server->stopped_ns = ls_clock_ns();
    if (first) ls_posts_stop(&server->posts);
    if (first)
        server->phase = PHASE_DRAINING;
    else if (from_outside && server->stopped_from_outside)
        server->phase = PHASE_HARD;
    server->stopped_from_outside |= from_outside;
    ls_cond_broadcast(&server->changed);
    ls_mutex_unlock(&server->mutex);
    if (first) ls_log(LS_LOG_INFO, "draining");
}

/* Several states of a site may call this concurrently, and again during the drain. A signal that follows may come from
 * a service manager that does not know of it: it does not cut the drain. */
static void stop_from_site(void *server)
{
    stop(server, false);
}

/* ---- open ------------------------------------------------------------------------------------------------------ */

/* Return free memory to the system when the workers are idle. If Lua collects first, idle=true follows once more. */
static void on_tick(bool idle, void *runtime)
{
    if (!ls_site_on_tick(runtime, idle) && idle) ls_memory_trim();
}

/* Maximum number of sockets of the port: the allowed connections, plus at least as many sockets of the site itself;
 * more if the system allows more descriptors. */
static uint32_t sockets_max(uint32_t connections_max)
{
    const uint32_t own = DESCRIPTORS_OWN + ls_file_cache_defaults.open_max;
    const uint32_t wanted = connections_max < SOCKETS_MAX / 2 ? connections_max + own : SOCKETS_MAX / 2;
    const uint32_t allowed = ls_descriptors_raise(wanted);
    if (allowed < wanted)
        ls_log(LS_LOG_DEBUG, "the system allows %" PRIu32 " descriptors: fewer than max_connections = %" PRIu32,
               allowed, connections_max);
    const uint32_t most = allowed > 2 * wanted ? allowed : 2 * wanted;
    return most < SOCKETS_MAX ? most : SOCKETS_MAX;
}

static int open_core(ls_server *server, const ls_server_options *options, char *message, size_t message_bytes)
{
    server->settings = ls_server_settle(options, ls_site_settings_get(server->site));
    const ls_site_settings *settings = &server->settings;
    if (settings->threads > settings->threads_max)
        return ls_server_explain(LS_EINVAL, message, message_bytes,
                                 "%s: threads = %u must not exceed threads_max = %u of ls.config", options->site,
                                 settings->threads, settings->threads_max);

    int err = ls_conn_limit_open(&server->conn_limit, settings->connections_max);
    if (err < 0) return ls_server_explain(err, message, message_bytes, "%s", ls_err_text(err));
    server->conn_limit_open = true;
    if ((err = ls_pools_open(settings->pool_bytes_max, &server->pools)) < 0)
        return ls_server_explain(err, message, message_bytes, "buffers: %s", ls_err_text(err));

    /* The workers keep `threads` of them running; the system must not hold back a standby while a handler computes. */
    const ls_port_options port_options = {.sockets_max = sockets_max(settings->connections_max),
                                          .concurrency = settings->threads_max,
                                          .backend = options->backend};
    if ((err = ls_port_open(&port_options, &server->port)) == LS_ENOTSUP)
        return ls_server_explain(err, message, message_bytes, "unknown back end \"%s\"; available: auto %s",
                                 options->backend, ls_port_backends());
    if (err < 0) return ls_server_explain(err, message, message_bytes, "cannot open the port: %s", ls_err_text(err));
    if ((err = ls_stream_deadlines_open(server->port, &server->deadlines)) < 0)
        return ls_server_explain(err, message, message_bytes, "deadlines: %s", ls_err_text(err));

    const ls_workers_options workers_options = {.threads = settings->threads,
                                                .threads_max = settings->threads_max,
                                                .on_user_packet = ls_packet_handler_call,
                                                .on_stall = ls_runtime_on_stall,
                                                .on_tick = on_tick,
                                                .user = server->runtime};
    err = ls_workers_open(server->port, server->pools, &workers_options, &server->workers);
    if (err == LS_OK) err = ls_grace_open(&server->grace, server->workers);
    if (err < 0)
        return ls_server_explain(err, message, message_bytes, "cannot create %u threads: %s",
                                 server->settings.threads_max, ls_err_text(err));
    if ((err = ls_site_runtime_attach(server->runtime, server->port, server->deadlines, settings->threads_max)) < 0)
        return ls_server_explain(err, message, message_bytes, "%s", ls_err_text(err));
    server->env = (ls_endpoint_env){.port = server->port,
                                    .deadlines = server->deadlines,
                                    .limit = &server->conn_limit,
                                    .grace = &server->grace,
                                    .past = &server->past,
                                    .threads_max = settings->threads_max};
    return LS_OK;
}

static char *copy_text(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = malloc(bytes);
    if (copy != NULL) memcpy(copy, text, bytes);
    return copy;
}

/* Copy what the options point to: a reload uses it again. */
static int copy_options(ls_server *server, const ls_server_options *options)
{
    ls_server_options *own = &server->options;
    *own = *options;
    own->argc = 0;
    own->control = options->control != NULL ? copy_text(options->control) : NULL;
    own->site = copy_text(options->site);
    own->argv = calloc((size_t)options->argc + 1, sizeof *own->argv);
    own->source = options->source != NULL ? malloc(options->source_bytes + 1) : NULL;
    own->listen_on = options->listen_on != NULL ? copy_text(options->listen_on) : NULL;
    if (own->site == NULL || own->argv == NULL || (options->source != NULL && own->source == NULL)) return LS_ENOMEM;
    if ((options->listen_on != NULL && own->listen_on == NULL) || (options->control != NULL && own->control == NULL))
        return LS_ENOMEM;
    if (options->source != NULL) memcpy((char *)(uintptr_t)own->source, options->source, options->source_bytes);
    for (; own->argc < options->argc; own->argc++)
        if ((own->argv[own->argc] = copy_text(options->argv[own->argc])) == NULL) return LS_ENOMEM;
    return LS_OK;
}

static void free_options(ls_server *server)
{
    ls_server_options *own = &server->options;
    for (int n = 0; own->argv != NULL && n < own->argc; n++) free(own->argv[n]);
    free(own->argv);
    free((char *)(uintptr_t)own->source);
    free((char *)(uintptr_t)own->listen_on);
    free((char *)(uintptr_t)own->site);
    free((char *)(uintptr_t)own->control);
}

/* The certificates of a listener can be read. */
static int check_listener(const ls_site_listener *listener, char *message, size_t message_bytes)
{
    char why[512];
    ls_tls *tls;
    if (listener->tls == NULL) return LS_OK;
    const int err = ls_tls_open(listener->tls, &tls, why, sizeof why);
    if (err < 0) return ls_server_explain(err, message, message_bytes, "%s: tls: %s", listener->where, why);
    if (why[0] != '\0') ls_log(LS_LOG_WARN, "%s: tls: %s", listener->where, why);
    ls_tls_drop(tls);
    return LS_OK;
}

static int open_control(ls_server *server, char *message, size_t message_bytes)
{
    const char *path = server->options.control;
    if (path == NULL || server->options.check) return LS_OK;
    const int err = ls_control_open(server->port, server->deadlines, &server->host, path, &server->control_socket);
    if (err < 0) {
        const char *why = err == LS_EEXIST   ? "it exists, and is no socket; give another path"
                          : err == LS_ELIMIT ? "the path has more than 107 bytes"
                                             : ls_err_text(err);
        return ls_server_explain(err, message, message_bytes, "the control socket %s: %s", path, why);
    }
    ls_control_serve(server->control_socket, server->site);
    return LS_OK;
}

static int open_endpoints(ls_server *server, char *message, size_t message_bytes)
{
    if (server->options.idle) return LS_OK;
    if (server->options.check) {
        int err = LS_OK;
        for (unsigned i = 0; i < ls_site_listener_count(server->site) && err == LS_OK; i++)
            err = check_listener(ls_site_listener_get(server->site, i), message, message_bytes);
        return err;
    }
    const int err = ls_endpoint_plan_make(&server->env, &server->endpoints, server->site, &server->settings,
                                          &server->plan, message, message_bytes);
    if (err == LS_OK) ls_endpoint_plan_swap(&server->plan, &server->endpoints, &server->gone, 0);
    return err;
}

static int load_site(ls_server *server, char *message, size_t message_bytes)
{
    const ls_site_options options = ls_server_site_options(server);
    int err = ls_site_open(server->runtime, &options, &server->site, message, message_bytes);
    if (err < 0 || server->options.idle || ls_site_has_work(server->site)) return err;
    err = ls_server_explain(LS_ESCRIPT, message, message_bytes,
                            "%s defines no listener, timer or job: nothing to do; add ls.listen(8080, app)",
                            server->options.site);
    ls_site_close(server->site);
    server->site = NULL;
    return err;
}

/* In dev mode a site that does not load is loaded again after a change. */
static int load_first(ls_server *server, char *message, size_t message_bytes)
{
    if (!server->options.dev || server->options.check) return load_site(server, message, message_bytes);
    int err = ls_dev_server_open(server->options.dev_editor, &server->dev, message, message_bytes);
    if (err < 0) return err;
    server->runtime->dev = ls_dev_server_shared(server->dev);
    for (bool waited = false;; waited = true) {
        ls_dev_server_load(server->dev);
        err = load_site(server, message, message_bytes);
        if (err == LS_OK) ls_dev_server_loaded(server->dev, NULL);
        if (err == LS_OK || (err == LS_ENOENT && !waited)) return err;
        ls_dev_server_await(server->dev, message);
    }
}

static int open_site(ls_server *server, char *message, size_t message_bytes)
{
    int err = ls_site_runtime_open(&server->host, &server->runtime);
    if (err < 0) return ls_server_explain(err, message, message_bytes, "%s", ls_err_text(err));
    if ((err = load_first(server, message, message_bytes)) < 0) return err;
    if ((err = open_core(server, &server->options, message, message_bytes)) < 0) return err;
    return ls_site_ready(server->site, server->settings.threads, server->settings.threads_max, message, message_bytes);
}

int ls_server_open(const ls_server_options *options, ls_server **out, char *message, size_t message_bytes)
{
    int err = LS_ENOMEM;
    ls_server *server = calloc(1, sizeof *server);
    if (server == NULL) return ls_server_explain(err, message, message_bytes, "%s", ls_err_text(err));
    (void)ls_server_explain(err, message, message_bytes, "%s", ls_err_text(err));
    server->opened_ns = ls_clock_ns();
    server->generation = 1;
    ls_node_init(&server->endpoints);
    ls_node_init(&server->gone);
    ls_node_init(&server->ending);
    if (copy_options(server, options) < 0) goto fail_options;
    if (ls_mutex_open(&server->mutex) < 0) goto fail_options;
    if (ls_mutex_open(&server->lists) < 0) goto fail_mutex;
    if (ls_cond_open(&server->changed) < 0) goto fail_lists;
    if (ls_posts_open(&server->posts, deliver_post, server) < 0) goto fail_changed;
    if (ls_interrupts_open(&server->interrupts) < 0) goto fail_posts;
    const ls_signals_options signals = {.on_stop = stop_from_signal, .on_other = other_signal, .user = server};
    if (options->signals && !options->check && (err = ls_signals_open(&signals, &server->signals)) < 0) {
        ls_server_explain(err, message, message_bytes, "signals: %s",
                          err == LS_EBUSY ? "another server of this process handles them" : ls_err_text(err));
        goto fail_cond;
    }
    server->host =
        (ls_site_host){.server = server, .stats = stats, .stop = stop_from_site, .interrupts = &server->interrupts};

    if ((err = open_site(server, message, message_bytes)) < 0) goto fail_site;
    ls_posts_set_heard(&server->posts, ls_site_hears(server->site));
    /* Before the first listener: until then no client has connected, and the signals end the process at once. */
    if (server->signals != NULL && (err = ls_signals_take_stops(server->signals)) < 0) {
        ls_server_explain(err, message, message_bytes, "signals: %s", ls_err_text(err));
        goto fail_site;
    }
    if ((err = open_endpoints(server, message, message_bytes)) < 0) goto fail_site;
    if ((err = open_control(server, message, message_bytes)) < 0) goto fail_site;
    *out = server;
    return LS_OK;

fail_site:
    ls_server_close(server);
    return err;
fail_cond:
    ls_interrupts_close(&server->interrupts);
fail_posts:
    ls_posts_close(&server->posts);
fail_changed:
    ls_cond_close(&server->changed);
fail_lists:
    ls_mutex_close(&server->lists);
fail_mutex:
    ls_mutex_close(&server->mutex);
fail_options:
    free_options(server);
    free(server);
    return err;
}

/* No worker runs. A UDP socket is closed now and freed after the site, whose objects refer to it. */
static void close_endpoint(ls_endpoint *e, void *user)
{
    ls_server *server = user;
    ls_thread_ctx ctx = {.port = server->port};
    if (!e->stopped) e->ops->stop(&ctx, e);
    e->stopped = true;
    if (e->ops == &ls_endpoint_udp) {
        e->ops->abort(e);
        return;
    }
    ls_list_remove(&e->node);
    e->ops->close(e);
}

static void free_endpoint(ls_endpoint *e, void *user)
{
    (void)user;
    ls_list_remove(&e->node);
    e->ops->close(e);
}

static void close_sites(ls_server *server)
{
    while (!ls_list_empty(&server->ending)) {
        ls_generation_end *g = LS_CONTAINER(server->ending.next, ls_generation_end, node);
        ls_site_close(g->site);
        ls_list_remove(&g->node);
        free(g);
    }
    if (server->site != NULL) ls_site_close(server->site);
    server->site = NULL;
}

void ls_server_close(ls_server *server)
{
    if (server->dev != NULL) ls_dev_server_stop(server->dev);
    if (server->signals != NULL) ls_signals_close(server->signals);
    ls_endpoint_plan_end(&server->plan); /* of a server that never ran; it refers to the endpoints */
    each_endpoint(server, close_endpoint, server);
    if (server->workers != NULL) {
        ls_thread_ctx *ctx = ls_workers_ctx(server->workers, 0);
        if (server->control_socket != NULL) ls_control_close(server->control_socket, ctx);
        for (const ls_node *node = server->ending.next; node != &server->ending; node = node->next)
            ls_site_close_sockets(LS_CONTAINER(node, ls_generation_end, node)->site, ctx);
        if (server->site != NULL) ls_site_close_sockets(server->site, ctx);
        ls_grace_close(&server->grace);
        ls_workers_close(server->workers);
        server->workers = NULL;
    }
    if (server->port != NULL) ls_port_close(server->port);
    if (server->deadlines != NULL) ls_deadlines_close(server->deadlines);
    server->port = NULL;
    close_sites(server); /* the port's queue and timers may have referred to their tasks */
    if (server->runtime != NULL) ls_site_runtime_close(server->runtime);
    if (server->dev != NULL) ls_dev_server_close(server->dev);
    each_endpoint(server, free_endpoint, NULL);
    if (server->pools != NULL) ls_pools_close(server->pools);
    if (server->conn_limit_open) ls_conn_limit_close(&server->conn_limit);
    ls_posts_close(&server->posts);
    ls_interrupts_close(&server->interrupts);
    ls_cond_close(&server->changed);
    ls_mutex_close(&server->lists);
    ls_mutex_close(&server->mutex);
    free_options(server);
    free(server);
}

/* ---- serve and drain ---------------------------------------------------------------------------------------- */

void ls_server_control_done(ls_server *server)
{
    ls_mutex_lock(&server->mutex);
    server->control_done = true;
    ls_cond_broadcast(&server->changed);
    ls_mutex_unlock(&server->mutex);
}

static void begin_serving(ls_thread_ctx *ctx, ls_op *op)
{
    ls_server *server = LS_CONTAINER(op, ls_server, control);
    ls_endpoint_plan_run(ctx, &server->plan);
    ls_endpoint_plan_end(&server->plan);
    if (server->control_socket != NULL) ls_control_start(ctx, server->control_socket);
    ls_server_control_done(server);
}

typedef struct draining {
    bool all; /* include connections that have not sent a request yet */
    uint32_t left;
} draining;

static void drain_endpoint(ls_endpoint *e, void *user)
{
    draining *d = user;
    d->left += e->ops->drain(e, d->all);
}

static void stop_endpoint(ls_endpoint *e, void *ctx)
{
    if (!e->stopped) e->ops->stop(ctx, e);
    e->stopped = true;
}

/* The supervisor waits for it, so that no other thread changes the lists; a stop may run handlers, so it holds no
 * lock. */
static void begin_draining(ls_thread_ctx *ctx, ls_op *op)
{
    ls_server *server = LS_CONTAINER(op, ls_server, control);
    draining d = {.all = false};
    each_endpoint(server, stop_endpoint, ctx);
    if (server->control_socket != NULL) ls_control_stop(ctx, server->control_socket);
    ls_mutex_lock(&server->lists);             /* a reload may be planning */
    each_endpoint(server, drain_endpoint, &d); /* before the site: its responses from now on announce the close */
    ls_mutex_unlock(&server->lists);
    ls_site_drain(server->site);
    for (const ls_node *node = server->ending.next; node != &server->ending; node = node->next)
        if (LS_CONTAINER(node, ls_generation_end, node)->stage != GENERATION_CLOSED)
            ls_site_drain(LS_CONTAINER(node, ls_generation_end, node)->site);
    ls_server_control_done(server);
}

uint32_t ls_server_drain_ms_left(const ls_server *server)
{
    const uint64_t ms = (ls_clock_ns() - server->stopped_ns) / 1000000u;
    return ms < server->settings.drain_ms_max ? server->settings.drain_ms_max - (uint32_t)ms : 0;
}

int ls_server_wait(ls_server *server, const bool *flag, bool value)
{
    while (*flag != value) {
        if (server->phase == PHASE_HARD) return LS_ECANCELED;
        if (server->phase < PHASE_DRAINING) {
            ls_cond_wait(&server->changed, &server->mutex);
        } else {
            const uint32_t ms = ls_server_drain_ms_left(server);
            if (ms == 0) return LS_ETIMEDOUT;
            if (server->loading) ls_runtime_on_load(server->runtime, true);
            (void)ls_cond_wait_ms(&server->changed, &server->mutex, ms < SUPERVISE_MS ? ms : SUPERVISE_MS);
        }
    }
    return LS_OK;
}

int ls_server_on_workers(ls_server *server, ls_op_fn *what)
{
    server->control_done = false;
    memset(&server->control, 0, sizeof server->control);
    server->control.done = what;
    (void)ls_port_post(server->port, &server->control, NULL, 0);
    return ls_server_wait(server, &server->control_done, true);
}

/* Whether every accepted request has its response. Closes connections without a pending request. */
static bool drained(ls_server *server, bool all)
{
    if (server->control_socket != NULL && !ls_control_idle(server->control_socket)) return false;
    draining d = {.all = all};
    ls_mutex_lock(&server->lists);
    each_endpoint(server, drain_endpoint, &d);
    ls_mutex_unlock(&server->lists);
    return d.left == 0 && ls_conn_limit_idle(&server->conn_limit) && ls_posts_unfinished(&server->posts) == 0 &&
           ls_server_busy(server) == 0;
}

/* true: the sites have no connections left. Old generations, which nothing serves any more, are closed. */
static bool disconnected(ls_server *server, bool first)
{
    ls_mutex_lock(&server->lists);
    uint32_t left = ls_site_connections(server->site);
    if (first && left > 0) ls_site_disconnect(server->site);
    left += ls_site_busy(server->site);
    for (const ls_node *node = server->ending.next; node != &server->ending; node = node->next)
        left += !ls_site_end(LS_CONTAINER(node, ls_generation_end, node)->site, true);
    ls_mutex_unlock(&server->lists);
    return left == 0;
}

/* All handlers have ended. Connections still open belong to the site itself, or are closing. */
static int disconnect(ls_server *server)
{
    for (unsigned n = 0; !disconnected(server, n == 0); n++) {
        if (server->phase == PHASE_HARD) return LS_ECANCELED;
        if (n * SUPERVISE_MS >= DISCONNECT_MS) return LS_ETIMEDOUT;
        (void)ls_cond_wait_ms(&server->changed, &server->mutex, SUPERVISE_MS);
    }
    return LS_OK;
}

/* The caller holds the mutex. LS_OK, LS_ETIMEDOUT, LS_ECANCELED. */
static int drain(ls_server *server)
{
    const uint64_t from_ns = ls_clock_ns();
    int err = ls_server_wait(server, &server->committing, false);
    if (err == LS_OK) err = ls_server_on_workers(server, begin_draining);
    if (err < 0) return err;
    for (;;) {
        const uint64_t ms = (ls_clock_ns() - from_ns) / 1000000u;
        if (drained(server, ms >= DRAIN_FRESH_MS)) break;
        if (server->phase == PHASE_HARD) return LS_ECANCELED;
        if (ls_server_drain_ms_left(server) == 0) return LS_ETIMEDOUT;
        (void)ls_server_tend_generations(server);
        (void)ls_cond_wait_ms(&server->changed, &server->mutex, SUPERVISE_MS);
    }
    if ((err = disconnect(server)) < 0) return err;
    if ((err = ls_server_wait(server, &server->reloading, false)) < 0) return err; /* a site that still loads */
    return server->reload_thread_running ? ls_server_wait(server, &server->reload_thread_ended, true) : LS_OK;
}

/* Stop the threads. All handlers have ended, but a finalizer may still run. Returns as drain(). */
static int join(ls_server *server)
{
    ls_workers_stop(server->workers);
    for (unsigned n = 1; !ls_workers_join(server->workers, SUPERVISE_MS); n++) {
        ls_mutex_lock(&server->mutex);
        const bool hard = server->phase == PHASE_HARD;
        ls_mutex_unlock(&server->mutex);
        if (hard) return LS_ECANCELED;
        if (ls_server_drain_ms_left(server) == 0 && n * SUPERVISE_MS >= JOIN_MS_MIN) return LS_ETIMEDOUT;
    }
    return LS_OK;
}

/* Wait for a stop; meanwhile start the reloads and end old generations. The caller holds the mutex. */
static void supervise(ls_server *server)
{
    while (server->phase == PHASE_SERVING) {
        ls_server_tend_reload(server);
        if (server->loading) ls_runtime_on_load(server->runtime, false);
        const uint32_t ms = ls_server_tend_generations(server);
        if (ms > 0 || server->reloading)
            (void)ls_cond_wait_ms(&server->changed, &server->mutex, server->reloading ? SUPERVISE_MS : ms);
        else
            ls_cond_wait(&server->changed, &server->mutex);
    }
}

static void abort_endpoint(ls_endpoint *e, void *user)
{
    (void)user;
    e->ops->abort(e);
}

int ls_server_run(ls_server *server)
{
    int err = ls_workers_start(server->workers);
    if (err < 0) return err;
    if (server->options.idle)
        ls_site_apply(server->site);
    else
        ls_site_start(server->site);
    ls_mutex_lock(&server->mutex);
    err = ls_server_on_workers(server, begin_serving);
    if (server->phase == PHASE_OPEN) server->phase = PHASE_SERVING; /* now it can be reloaded */
    if (err == LS_OK) ls_posts_start(&server->posts, server->port);
    if (err == LS_OK && server->dev != NULL && ls_dev_server_start(server->dev, server) < 0)
        ls_log(LS_LOG_ERROR, "dev: the files are not watched: the thread could not be started");
    if (err == LS_OK && server->options.serving != NULL) {
        ls_mutex_unlock(&server->mutex); /* it may call ls_server_stop */
        server->options.serving(server->options.user);
        ls_mutex_lock(&server->mutex);
    }
    supervise(server);
    if (err == LS_OK) err = drain(server);
    ls_server_tend_reload(server);
    ls_mutex_unlock(&server->mutex);

    if (err == LS_OK) err = join(server);
    if (err == LS_ETIMEDOUT) {
        ls_log(LS_LOG_WARN, "the drain took longer than %.3g s: connections are cut",
               server->settings.drain_ms_max / 1e3);
        ls_mutex_lock(&server->lists);
        each_endpoint(server, abort_endpoint, NULL);
        ls_mutex_unlock(&server->lists);
    }
    ls_workers_stop(server->workers);
    if (err == LS_OK)
        ls_log(LS_LOG_INFO, "stopped");
    else if (err == LS_ECANCELED)
        ls_log(LS_LOG_INFO, "stopped a second time: the drain is not complete");
    else
        ls_log(LS_LOG_ERROR, "ended early: %s", ls_err_text(err));
    return err;
}

void ls_server_interrupt(ls_server *server)
{
    ls_interrupts_set(&server->interrupts, 0);
}

void ls_server_stop(ls_server *server)
{
    stop(server, true);
}
