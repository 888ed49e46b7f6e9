/* server.c - the life of a server: load the site, open port, workers and listeners, serve, drain, close.
 *
 * The thread that calls ls_server_run only waits and supervises; the workers do everything that touches a socket, in
 * packets posted to the port. Order of closing: listeners, connections, worker threads, HTTP, workers, port, Lua
 * states, pools. */
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/rlimit.h"
#include "base/signals.h"
#include "base/thread.h"
#include "luaserve.h"
#include "net/acceptor.h"
#include "net/deadline.h"
#include "net/stream.h"
#include "port/notify.h"
#include "proto/http1.h"
#include "proto/httpsys.h"
#include "sched/workers.h"
#include "script/bind/interrupt.h"
#include "script/bind/tcp.h"
#include "script/site/site.h"
#include "server/addresses.h"
#include "server/control.h"
#include "server/udp_sockets.h"

enum {
    DRAIN_POLL_MS = 20,    /* interval at which a drain checks whether it is done */
    DRAIN_FRESH_MS = 1000, /* time given to a connection that has sent nothing yet */
    JOIN_MS_MIN = 1000,    /* time given at least to the threads to end after the drain */
    DISCONNECT_MS = 3000,  /* time given to closing connections once all handlers have ended */
    STANDBYS_DEFAULT = 6,  /* standby threads in addition to one per running thread */
    DESCRIPTORS_OWN = 64,  /* descriptors of the server itself, besides the connections */
    SOCKETS_MAX = 1 << 25, /* upper limit of ls_port_options.sockets_max */
};

/* An open address; a site's listener may have two (both loopback addresses). */
typedef struct endpoint {
    ls_acceptor *acceptor; /* NULL with http.sys */
    ls_http1 *http;        /* NULL for ls.tcp and with http.sys */
    ls_tls *tls;           /* NULL: plain */
    ls_httpsys *httpsys;
    const char *urls; /* of the site's listener, with http.sys */
    ls_addr at;       /* the address that it is bound to, also after it was stopped; not with http.sys */
    uint8_t kind;     /* enum ls_site_kind */
    bool stopped;     /* accepts no more */
    bool self_signed; /* the certificate */
} endpoint;

enum phase { PHASE_OPEN, PHASE_SERVING, PHASE_DRAINING, PHASE_HARD };

struct ls_server {
    ls_site_host host;   /* functions that the site may call */
    ls_runtime *runtime; /* of the script layer */
    ls_site *site;
    ls_pools *pools;
    ls_port *port;
    ls_deadlines *deadlines; /* of all streams */
    ls_workers *workers;
    ls_signals *signals;
    ls_conn_limit conn_limit;
    bool conn_limit_open;
    ls_site_settings settings; /* the values in force: from the options, the site and the defaults */
    uint64_t opened_ns;
    endpoint *endpoints;
    unsigned endpoint_count;
    ls_udp_sockets udp;
    ls_interrupts interrupts;
    ls_control *control_socket;  /* NULL: none */
    bool idle;                   /* from the options */
    void (*serving)(void *user); /* from the options */
    void *serving_user;
    ls_op control;  /* runs begin_serving, then begin_draining, on the workers */
    ls_mutex mutex; /* guards phase */
    ls_cond changed;
    enum phase phase;
    uint64_t stopped_ns;       /* time of the first stop: the drain timeout begins */
    bool stopped_from_outside; /* by a signal or ls_server_stop */
    bool control_done;
};

LS_PRINTF(4, 5) static int explain(int err, char *message, size_t bytes, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(message, bytes, format, args);
    va_end(args);
    return err;
}

/* ---- statistics ----------------------------------------------------------------------------------------------- */

/* A site may call this while it loads, and a finalizer after everything is closed: a missing part counts as 0. */
static void stats(void *user, ls_site_stat_fn *each, void *to)
{
    ls_server *server = user;
    ls_pools_stats pools = {0};
    ls_workers_stats workers = {0};
    ls_http1_stats sum = {0};
    if (server->pools != NULL) ls_pools_stat(server->pools, &pools);
    if (server->workers != NULL) ls_workers_stat(server->workers, &workers);
    for (unsigned i = 0; i < server->endpoint_count; i++) {
        const endpoint *e = &server->endpoints[i];
        ls_http1_stats one;
        if (e->http != NULL)
            ls_http1_stat(e->http, &one);
        else if (e->httpsys != NULL)
            ls_httpsys_stat(e->httpsys, &one);
        else
            continue;
        sum.connections += one.connections;
        sum.requests += one.requests;
        sum.responses += one.responses;
        sum.refused += one.refused;
        sum.open += one.open;
    }
    each(to, "uptime", (double)(ls_clock_ns() - server->opened_ns) / 1e9);
    each(to, "connections", (double)sum.connections);
    each(to, "connections_open", (double)sum.open);
    each(to, "requests", (double)sum.requests);
    each(to, "responses", (double)sum.responses);
    each(to, "refused", (double)sum.refused);
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
    ls_udp_sockets_stat(&server->udp, each, to);
}

static void stop_from_signal(void *user)
{
    ls_server_stop(user);
}

static void signal_without_effect(void *user, const char *name)
{
    (void)user;
    ls_log(LS_LOG_WARN, "%s: this version has no reload; send SIGTERM to stop", name);
}

/* Begin the drain. from_outside: by a signal or the program, not by the site; the second such stop ends the server at
 * once. */
static void stop(ls_server *server, bool from_outside)
{
    ls_mutex_lock(&server->mutex);
    const bool first = server->phase < PHASE_DRAINING;
    if (first) server->stopped_ns = ls_clock_ns();
    if (first)
        server->phase = PHASE_DRAINING;
    else if (from_outside && server->stopped_from_outside)
        server->phase = PHASE_HARD;
    server->stopped_from_outside |= from_outside;
    ls_cond_broadcast(&server->changed);
    ls_mutex_unlock(&server->mutex);
    if (first) ls_log(LS_LOG_INFO, "draining");
}

/* Several states of a site may call this concurrently, and again during the drain. A signal that follows may come from a
 * service manager that does not know of it: it does not cut the drain. */
static void stop_from_site(void *server)
{
    stop(server, false);
}

/* ---- open ------------------------------------------------------------------------------------------------------ */

/* Merge the settings: the options override the site, the site overrides the defaults. threads_max is a promise to the
 * site about the number of its states, so nothing increases it. threads > threads_max in the result: they contradict. */
static ls_site_settings settle(const ls_server_options *options, const ls_site_settings *site)
{
    ls_site_settings s = *site;
    if (options->threads > 0) s.threads = options->threads;
    if (s.threads == 0) {
        s.threads = ls_cpu_count();
        if (s.threads_max > 0 && s.threads > s.threads_max) s.threads = s.threads_max;
    }
    if (s.threads_max == 0) s.threads_max = 2 * s.threads + STANDBYS_DEFAULT;
    if (s.connections_max == 0) s.connections_max = 65536;
    if (s.pool_bytes_max == 0) s.pool_bytes_max = UINT64_C(256) << 20;
    if (s.drain_ms_max == 0) s.drain_ms_max = 15000;
    if (s.accepts_posted == 0) s.accepts_posted = 4;
    if (s.backlog == 0) s.backlog = 1024;
    return s;
}

/* A listener of the site, for ls_addresses_open. */
typedef struct opening {
    ls_server *server;
    unsigned index;
    ls_tls *tls; /* NULL: plain */
} opening;

static int open_endpoint(void *user, const ls_addr *at, uint16_t *port)
{
    const opening *what = user;
    ls_server *server = what->server;
    const unsigned index = what->index;
    const ls_site_settings *settings = &server->settings;
    const ls_site_listener *wanted = ls_site_listener_get(server->site, index);
    const uint32_t backlog = wanted->backlog != 0 ? wanted->backlog : settings->backlog;
    endpoint opened = {.kind = wanted->kind, .self_signed = wanted->tls != NULL && wanted->tls->self_signed};
    ls_acceptor_protocol protocol = {NULL, ls_tcp_start, NULL, ls_tcp_user_bytes};
    int err;
    if (wanted->kind == LS_SITE_TCP) {
        protocol.user = ls_site_tcp_server(server->site, index, &server->conn_limit);
    } else {
        err = ls_http1_open(&wanted->http, ls_site_http_handler(server->site, index), &server->conn_limit,
                            settings->threads_max, &opened.http);
        if (err < 0) return err;
        protocol = (ls_acceptor_protocol){NULL, ls_http1_start, opened.http, ls_http1_user_bytes};
    }
    const ls_acceptor_options options = {
        .deadlines = server->deadlines,
        .limit = &server->conn_limit,
        .listener = {.backlog = backlog, .accepts = settings->accepts_posted, .access = &wanted->access},
        .protocols = &protocol,
        .protocol_count = 1,
        .proxy_protocol = wanted->proxy_protocol,
        .trusted = wanted->trusted,
        .trusted_count = wanted->trusted_count,
        .tls = what->tls,
        .handshake_ms_max = wanted->handshake_ms_max,
        .handshakes_max = wanted->handshakes_max,
        .refuse_plain_http = ls_http1_refuse_plain};
    err = ls_acceptor_open(server->port, at, &options, &opened.acceptor);
    if (err < 0) {
        if (opened.http != NULL) ls_http1_close(opened.http);
        return err;
    }
    opened.at = *ls_acceptor_addr(opened.acceptor);
    if (opened.http != NULL) ls_http1_local(opened.http, &opened.at);
    if (what->tls != NULL) opened.tls = ls_tls_hold(what->tls);
    server->endpoints[server->endpoint_count++] = opened;
    *port = opened.at.port;
    return LS_OK;
}

static void close_last_endpoint(ls_server *server)
{
    assert(server->endpoints != NULL && server->endpoint_count > 0);
    endpoint *e = &server->endpoints[--server->endpoint_count];
    if (e->acceptor != NULL) {
        if (!e->stopped) ls_acceptor_stop(ls_workers_ctx(server->workers, 0), e->acceptor);
        ls_acceptor_close(e->acceptor);
    }
    if (e->http != NULL) ls_http1_close(e->http);
    if (e->httpsys != NULL) ls_httpsys_close(e->httpsys);
    if (e->tls != NULL) ls_tls_drop(e->tls);
    *e = (endpoint){0};
}

static void close_opened(void *user)
{
    const opening *what = user;
    close_last_endpoint(what->server);
}

static int open_httpsys(ls_server *server, unsigned index, char *message, size_t message_bytes)
{
    const ls_site_settings *settings = &server->settings;
    const ls_site_listener *wanted = ls_site_listener_get(server->site, index);
    endpoint *e = &server->endpoints[server->endpoint_count];
    char why[512];
    const ls_httpsys_options options = {.urls = wanted->urls,
                                        .config = &wanted->http,
                                        .handler = ls_site_http_handler(server->site, index),
                                        .threads = settings->threads_max,
                                        .receives = settings->accepts_posted * settings->threads_max,
                                        .requests_max = settings->connections_max};
    const int err = ls_httpsys_open(server->port, &options, &e->httpsys, why, sizeof why);
    if (err < 0) return explain(err, message, message_bytes, "%s: %s", wanted->where, why);
    e->kind = LS_SITE_HTTPSYS;
    e->urls = wanted->urls;
    server->endpoint_count++;
    return LS_OK;
}

/* Read the certificates of a listener. *out is NULL without TLS. */
static int open_tls(const ls_site_listener *wanted, ls_tls **out, char *message, size_t message_bytes)
{
    char why[512];
    *out = NULL;
    if (wanted->tls == NULL) return LS_OK;
    const int err = ls_tls_open(wanted->tls, out, why, sizeof why);
    if (err < 0) return explain(err, message, message_bytes, "%s: tls: %s", wanted->where, why);
    if (why[0] != '\0') ls_log(LS_LOG_WARN, "%s: tls: %s", wanted->where, why);
    return LS_OK;
}

static int check_listener(const ls_server *server, unsigned index, char *message, size_t message_bytes)
{
    ls_tls *tls;
    const int err = open_tls(ls_site_listener_get(server->site, index), &tls, message, message_bytes);
    if (err == LS_OK && tls != NULL) ls_tls_drop(tls);
    return err;
}

static int open_listener(ls_server *server, unsigned index, char *message, size_t message_bytes)
{
    const ls_site_listener *wanted = ls_site_listener_get(server->site, index);
    if (wanted->kind == LS_SITE_HTTPSYS) return open_httpsys(server, index, message, message_bytes);
    char text[LS_ADDR_TEXT_BYTES];
    ls_addr at;
    int err = wanted->host[0] != '\0' ? ls_addr_parse(wanted->host, wanted->port, &at) : LS_OK;
    if (err < 0)
        return explain(err, message, message_bytes,
                       "%s: cannot listen on \"%s\": give an address such as \"127.0.0.1\" or \"::1\", or \"*\"",
                       wanted->where, wanted->host);
    opening what = {server, index, NULL};
    if ((err = open_tls(wanted, &what.tls, message, message_bytes)) < 0) return err;
    const ls_address_opener opener = {&what, open_endpoint, close_opened};
    err = ls_addresses_open(&opener, wanted->host, wanted->port, &at);
    if (what.tls != NULL) ls_tls_drop(what.tls); /* the endpoints hold it */
    if (err < 0) {
        const bool owner = err == LS_EACCES && (wanted->access.has_user || wanted->access.has_group);
        return explain(err, message, message_bytes, "%s: cannot listen on %s: %s%s", wanted->where,
                       ls_addr_text(&at, text), ls_err_text(err),
                       owner ? "; only root may set another user as owner, or a group of which it is no member" : "");
    }
    return LS_OK;
}

static int open_control(ls_server *server, const char *path, char *message, size_t message_bytes)
{
    const int err = ls_control_open(server->port, server->deadlines, &server->host, path, &server->control_socket);
    if (err < 0) return explain(err, message, message_bytes, "the control socket %s: %s", path, ls_err_text(err));
    ls_control_serve(server->control_socket, server->site);
    return LS_OK;
}

/* Return free memory to the system when the workers are idle. If Lua collects first, idle=true follows once more. */
static void on_tick(bool idle, void *runtime)
{
    if (!ls_site_on_tick(runtime, idle) && idle) ls_memory_trim();
}

/* Maximum number of sockets of the port: the allowed connections, plus at least as many sockets of the site itself;
 * more if the system allows more descriptors. */
static uint32_t sockets_max(uint32_t connections_max)
{
    const uint32_t wanted = connections_max < SOCKETS_MAX / 2 ? connections_max + DESCRIPTORS_OWN : SOCKETS_MAX / 2;
    const uint32_t allowed = ls_descriptors_raise(wanted);
    if (allowed < wanted)
        ls_log(LS_LOG_DEBUG, "the system allows %" PRIu32 " descriptors: fewer than max_connections = %" PRIu32,
               allowed, connections_max);
    const uint32_t most = allowed > 2 * wanted ? allowed : 2 * wanted;
    return most < SOCKETS_MAX ? most : SOCKETS_MAX;
}

static int open_core(ls_server *server, const ls_server_options *options, char *message, size_t message_bytes)
{
    server->settings = settle(options, ls_site_settings_get(server->site));
    const ls_site_settings *settings = &server->settings;
    if (settings->threads > settings->threads_max)
        return explain(LS_EINVAL, message, message_bytes,
                       "%s: threads = %u must not exceed threads_max = %u of ls.config", options->site,
                       settings->threads, settings->threads_max);

    int err = ls_conn_limit_open(&server->conn_limit, settings->connections_max);
    if (err < 0) return explain(err, message, message_bytes, "%s", ls_err_text(err));
    server->conn_limit_open = true;
    if ((err = ls_pools_open(settings->pool_bytes_max, &server->pools)) < 0)
        return explain(err, message, message_bytes, "buffers: %s", ls_err_text(err));

    /* The workers keep `threads` of them running; the system must not hold back a standby while a handler computes. */
    const ls_port_options port_options = {.sockets_max = sockets_max(settings->connections_max),
                                          .concurrency = settings->threads_max,
                                          .backend = options->backend};
    if ((err = ls_port_open(&port_options, &server->port)) == LS_ENOTSUP)
        return explain(err, message, message_bytes, "unknown back end \"%s\"; available: auto %s", options->backend,
                       ls_port_backends());
    if (err < 0) return explain(err, message, message_bytes, "cannot open the port: %s", ls_err_text(err));
    if ((err = ls_stream_deadlines_open(server->port, &server->deadlines)) < 0)
        return explain(err, message, message_bytes, "deadlines: %s", ls_err_text(err));

    const ls_workers_options workers_options = {.threads = settings->threads,
                                                .threads_max = settings->threads_max,
                                                .on_user_packet = ls_packet_handler_call,
                                                .on_stall = ls_runtime_on_stall,
                                                .on_tick = on_tick,
                                                .user = server->runtime};
    if ((err = ls_workers_open(server->port, server->pools, &workers_options, &server->workers)) < 0)
        return explain(err, message, message_bytes, "cannot create %u threads: %s", server->settings.threads_max,
                       ls_err_text(err));
    if ((err = ls_site_runtime_attach(server->runtime, server->port, server->deadlines, settings->threads_max)) < 0)
        return explain(err, message, message_bytes, "%s", ls_err_text(err));
    return LS_OK;
}

int ls_server_open(const ls_server_options *options, ls_server **out, char *message, size_t message_bytes)
{
    int err = LS_ENOMEM;
    ls_server *server = calloc(1, sizeof *server);
    if (server == NULL) return explain(err, message, message_bytes, "%s", ls_err_text(err));
    server->opened_ns = ls_clock_ns();
    server->serving = options->serving;
    server->serving_user = options->user;
    server->idle = options->idle != 0;
    if (ls_mutex_open(&server->mutex) < 0) goto fail_alloc;
    if (ls_cond_open(&server->changed) < 0) goto fail_mutex;
    if (ls_interrupts_open(&server->interrupts) < 0) goto fail_changed;
    const ls_signals_options signals = {
        .on_stop = stop_from_signal, .on_other = signal_without_effect, .user = server};
    if (options->signals && !options->check && (err = ls_signals_open(&signals, &server->signals)) < 0) {
        explain(err, message, message_bytes, "signals: %s",
                err == LS_EBUSY ? "another server of this process handles them" : ls_err_text(err));
        goto fail_cond;
    }

    server->host =
        (ls_site_host){.server = server, .stats = stats, .stop = stop_from_site, .interrupts = &server->interrupts};
    const ls_site_options site_options = {.path = options->site,
                                          .source = options->source,
                                          .source_bytes = options->source_bytes,
                                          .open = options->open,
                                          .open_user = options->user,
                                          .control = options->control != NULL && !options->check,
                                          .argc = options->argc,
                                          .argv = options->argv};
    if ((err = ls_site_runtime_open(&server->host, &server->runtime)) < 0) {
        explain(err, message, message_bytes, "%s", ls_err_text(err));
        goto fail_signals;
    }
    if ((err = ls_site_open(server->runtime, &site_options, &server->site, message, message_bytes)) < 0)
        goto fail_runtime;

    if (!options->idle && !ls_site_has_work(server->site)) {
        err = explain(LS_ESCRIPT, message, message_bytes,
                      "%s defines no listener, timer or job: nothing to do; add ls.listen(8080, app)", options->site);
        goto fail_site;
    }

    const unsigned listeners = ls_site_listener_count(server->site);
    if ((err = open_core(server, options, message, message_bytes)) < 0) goto fail_site;
    if ((err = ls_site_ready(server->site, server->settings.threads, server->settings.threads_max, message,
                             message_bytes)) < 0)
        goto fail_site;
    server->endpoints = calloc(2 * (size_t)listeners + 1, sizeof *server->endpoints);
    if (server->endpoints == NULL) {
        err = explain(LS_ENOMEM, message, message_bytes, "%s", ls_err_text(LS_ENOMEM));
        goto fail_site;
    }
    /* Before the first listener: until then no client has connected, and the signals end the process at once. */
    if (server->signals != NULL && (err = ls_signals_take_stops(server->signals)) < 0) {
        explain(err, message, message_bytes, "signals: %s", ls_err_text(err));
        goto fail_site;
    }
    for (unsigned i = 0; i < listeners && !options->idle; i++) {
        err = options->check ? check_listener(server, i, message, message_bytes)
                             : open_listener(server, i, message, message_bytes);
        if (err < 0) goto fail_site;
    }
    if (!options->check && !options->idle &&
        (err = ls_udp_sockets_open(&server->udp, server->site, server->port, message, message_bytes)) < 0)
        goto fail_site;
    if (!options->check && options->control != NULL &&
        (err = open_control(server, options->control, message, message_bytes)) < 0)
        goto fail_site;

    *out = server;
    return LS_OK;

fail_site:
    ls_server_close(server);
    return err;
fail_runtime:
    ls_site_runtime_close(server->runtime);
fail_signals:
    if (server->signals != NULL) ls_signals_close(server->signals);
fail_cond:
    ls_interrupts_close(&server->interrupts);
fail_changed:
    ls_cond_close(&server->changed);
fail_mutex:
    ls_mutex_close(&server->mutex);
fail_alloc:
    free(server);
    return err;
}

void ls_server_close(ls_server *server)
{
    if (server->signals != NULL) ls_signals_close(server->signals);
    while (server->endpoint_count > 0) close_last_endpoint(server);
    if (server->workers != NULL) {
        ls_thread_ctx *ctx = ls_workers_ctx(server->workers, 0);
        if (server->control_socket != NULL) ls_control_close(server->control_socket, ctx);
        ls_udp_sockets_close(&server->udp, ctx);
        if (server->site != NULL) ls_site_close_sockets(server->site, ctx);
        ls_workers_close(server->workers);
        server->workers = NULL;
    }
    if (server->port != NULL) ls_port_close(server->port);
    if (server->deadlines != NULL) ls_deadlines_close(server->deadlines);
    server->port = NULL;
    if (server->site != NULL)
        ls_site_close(server->site); /* the port's queue and timers may have referred to its tasks */
    ls_site_runtime_close(server->runtime);
    ls_udp_sockets_free(&server->udp); /* Lua objects referred to them until now */
    if (server->pools != NULL) ls_pools_close(server->pools);
    if (server->conn_limit_open) ls_conn_limit_close(&server->conn_limit);
    free(server->endpoints);
    ls_interrupts_close(&server->interrupts);
    ls_cond_close(&server->changed);
    ls_mutex_close(&server->mutex);
    free(server);
}

/* ---- serve and drain
 * ------------------------------------------------------------------------------------------------ */

static void control_finished(ls_server *server)
{
    ls_mutex_lock(&server->mutex);
    server->control_done = true;
    ls_cond_broadcast(&server->changed);
    ls_mutex_unlock(&server->mutex);
}

/* The beginning of the address in the log; the path of a Unix socket says enough. */
static const char *scheme_of(const endpoint *e)
{
    const bool path = e->at.family == LS_ADDR_UNIX;
    if (e->kind == LS_SITE_TCP) return e->tls != NULL ? "tls://" : path ? "" : "tcp://";
    return e->tls != NULL ? "https://" : path ? "" : "http://";
}

static void begin_serving(ls_thread_ctx *ctx, ls_op *op)
{
    ls_server *server = LS_CONTAINER(op, ls_server, control);
    for (unsigned i = 0; i < server->endpoint_count; i++) {
        endpoint *e = &server->endpoints[i];
        char text[LS_ADDR_TEXT_BYTES];
        if (e->kind == LS_SITE_HTTPSYS) {
            ls_httpsys_start(ctx, e->httpsys);
            for (const char *url = e->urls; *url != '\0'; url += strlen(url) + 1)
                ls_log(LS_LOG_INFO, "listening on %s with http.sys", url);
            continue;
        }
        ls_acceptor_start(ctx, e->acceptor);
        ls_log(LS_LOG_INFO, "listening on %s%s", scheme_of(e), ls_addr_text(&e->at, text));
        if (e->self_signed) {
            char fingerprint[96];
            ls_tls_fingerprint(e->tls, fingerprint);
            ls_log(LS_LOG_INFO, "its certificate is self-signed; SHA-256 fingerprint %s", fingerprint);
        }
    }
    ls_udp_sockets_start(&server->udp, ctx);
    if (server->control_socket != NULL) ls_control_start(ctx, server->control_socket);
    control_finished(server);
}

/* all: include connections that have not sent a request yet. Returns the number of connections still open. */
static unsigned drain_http(ls_server *server, bool all)
{
    unsigned open = 0;
    for (unsigned i = 0; i < server->endpoint_count; i++) {
        if (server->endpoints[i].acceptor != NULL) open += ls_acceptor_drain(server->endpoints[i].acceptor, all);
        if (server->endpoints[i].http != NULL) open += ls_http1_drain(server->endpoints[i].http, all);
        if (server->endpoints[i].httpsys != NULL) open += ls_httpsys_drain(server->endpoints[i].httpsys);
    }
    return open;
}

static void begin_draining(ls_thread_ctx *ctx, ls_op *op)
{
    ls_server *server = LS_CONTAINER(op, ls_server, control);
    for (unsigned i = 0; i < server->endpoint_count; i++) {
        if (server->endpoints[i].acceptor != NULL) ls_acceptor_stop(ctx, server->endpoints[i].acceptor);
        server->endpoints[i].stopped = true;
    }
    ls_udp_sockets_stop(&server->udp, ctx);
    if (server->control_socket != NULL) ls_control_stop(ctx, server->control_socket);
    (void)drain_http(server,
                     false); /* before the site: its responses from now on announce the close of the connection */
    ls_site_drain(server->site);
    control_finished(server);
}

/* What is left of the drain timeout, which begins with the first stop; 0: nothing. */
static uint32_t drain_ms_left(const ls_server *server)
{
    const uint64_t ms = (ls_clock_ns() - server->stopped_ns) / 1000000u;
    return ms < server->settings.drain_ms_max ? server->settings.drain_ms_max - (uint32_t)ms : 0;
}

/* Run `what` on the workers and wait for it. The caller holds the mutex. All threads may be occupied for ever, so the
 * result is LS_OK, LS_ETIMEDOUT (the drain timeout) or LS_ECANCELED (stopped a second time). */
static int on_workers(ls_server *server, ls_op_fn *what)
{
    server->control_done = false;
    memset(&server->control, 0, sizeof server->control);
    server->control.done = what;
    (void)ls_port_post(server->port, &server->control, NULL, 0);
    while (!server->control_done) {
        if (server->phase == PHASE_HARD) return LS_ECANCELED;
        if (server->phase < PHASE_DRAINING) {
            ls_cond_wait(&server->changed, &server->mutex);
        } else {
            const uint32_t ms = drain_ms_left(server);
            if (ms == 0) return LS_ETIMEDOUT;
            (void)ls_cond_wait_ms(&server->changed, &server->mutex, ms);
        }
    }
    return LS_OK;
}

/* Whether every accepted request has its response. Closes connections without a pending request. */
static bool drained(ls_server *server, bool all)
{
    if (drain_http(server, all) > 0) return false;
    if (server->control_socket != NULL && !ls_control_idle(server->control_socket)) return false;
    return ls_udp_sockets_idle(&server->udp) && ls_conn_limit_idle(&server->conn_limit) &&
           ls_site_busy(server->site) == 0;
}

/* All handlers have ended. Close the states: connections that are still open belong to the site itself, or are
 * closing. */
static int disconnect(ls_server *server)
{
    for (unsigned n = 0; !ls_site_end(server->site, true); n++) {
        if (server->phase == PHASE_HARD) return LS_ECANCELED;
        if (n * DRAIN_POLL_MS >= DISCONNECT_MS) return LS_ETIMEDOUT;
        (void)ls_cond_wait_ms(&server->changed, &server->mutex, DRAIN_POLL_MS);
    }
    return LS_OK;
}

/* The caller holds the mutex. LS_OK, LS_ETIMEDOUT, LS_ECANCELED. */
static int drain(ls_server *server)
{
    const uint64_t from_ns = ls_clock_ns();
    const int err = on_workers(server, begin_draining);
    if (err < 0) return err;
    for (;;) {
        const uint64_t ms = (ls_clock_ns() - from_ns) / 1000000u;
        if (drained(server, ms >= DRAIN_FRESH_MS)) return disconnect(server);
        if (server->phase == PHASE_HARD) return LS_ECANCELED;
        if (drain_ms_left(server) == 0) return LS_ETIMEDOUT;
        (void)ls_cond_wait_ms(&server->changed, &server->mutex, DRAIN_POLL_MS);
    }
}

/* Stop the threads. All handlers have ended, but a finalizer may still run. Returns as drain(). */
static int join(ls_server *server)
{
    ls_workers_stop(server->workers);
    for (unsigned n = 1; !ls_workers_join(server->workers, DRAIN_POLL_MS); n++) {
        ls_mutex_lock(&server->mutex);
        const bool hard = server->phase == PHASE_HARD;
        ls_mutex_unlock(&server->mutex);
        if (hard) return LS_ECANCELED;
        if (drain_ms_left(server) == 0 && n * DRAIN_POLL_MS >= JOIN_MS_MIN) return LS_ETIMEDOUT;
    }
    return LS_OK;
}

int ls_server_run(ls_server *server)
{
    ls_mutex_lock(&server->mutex);
    const bool stopped_before = server->phase != PHASE_OPEN;
    if (!stopped_before) server->phase = PHASE_SERVING;
    ls_mutex_unlock(&server->mutex);

    int err = ls_workers_start(server->workers);
    if (err < 0) return err;
    if (server->idle)
        ls_site_apply(server->site);
    else
        ls_site_start(server->site);
    ls_mutex_lock(&server->mutex);
    err = on_workers(server, begin_serving);
    if (err == LS_OK && server->serving != NULL) {
        ls_mutex_unlock(&server->mutex); /* it may call ls_server_stop */
        server->serving(server->serving_user);
        ls_mutex_lock(&server->mutex);
    }
    while (server->phase == PHASE_SERVING) ls_cond_wait(&server->changed, &server->mutex);
    if (err == LS_OK) err = drain(server);
    ls_mutex_unlock(&server->mutex);

    if (err == LS_OK) err = join(server);
    if (err == LS_ETIMEDOUT) {
        ls_log(LS_LOG_WARN, "the drain took longer than %.3g s: connections are cut",
               server->settings.drain_ms_max / 1e3);
        for (unsigned i = 0; i < server->endpoint_count; i++) {
            if (server->endpoints[i].acceptor != NULL) ls_acceptor_abort(server->endpoints[i].acceptor);
            if (server->endpoints[i].http != NULL) ls_http1_abort(server->endpoints[i].http);
            if (server->endpoints[i].httpsys != NULL) ls_httpsys_abort(server->endpoints[i].httpsys);
        }
    }
    ls_workers_stop(server->workers);
    if (err == LS_OK)
        ls_log(LS_LOG_INFO, "stopped");
    else
        ls_log(LS_LOG_ERROR, "ended early: %s", ls_err_text(err));
    return err;
}

void ls_server_stop(ls_server *server)
{
    stop(server, true);
}

void ls_server_interrupt(ls_server *server)
{
    ls_interrupts_set(&server->interrupts, 0);
}

/* ---- about --------------------------------------------------------------------------------------------------------- */

void ls_server_describe(const ls_server *server)
{
    printf("threads: %u, with standby threads at most %u\nback end: %s\n", server->settings.threads,
           server->settings.threads_max, ls_port_backend(server->port));
    for (unsigned i = 0; i < ls_site_listener_count(server->site); i++) {
        const ls_site_listener *listener = ls_site_listener_get(server->site, i);
        const char *host = listener->host[0] == '\0' ? "loopback" : listener->host;
        if (listener->kind == LS_SITE_HTTPSYS) {
            for (const char *url = listener->urls; *url != '\0'; url += strlen(url) + 1)
                printf("listener: http.sys %s (%s)\n", url, listener->where);
        } else {
            const char *kind = listener->kind == LS_SITE_TCP ? "tcp " : "";
            if (listener->tls != NULL) kind = listener->kind == LS_SITE_TCP ? "tls " : "https ";
            printf("listener: %s%s", kind, host);
            if (strncmp(host, "unix:", 5) != 0) printf(" port %u", listener->port);
            printf(" (%s)\n", listener->where);
        }
        fputs(ls_site_routes(server->site, i), stdout);
    }
    ls_udp_sockets_describe(server->site);
}

/* The text of address `index`; NULL: past the last one. Without http.sys it is written into `text`. */
static const char *address_text(const ls_server *server, unsigned index, char text[LS_ADDR_TEXT_BYTES])
{
    for (unsigned i = 0; i < server->endpoint_count; i++) {
        const endpoint *e = &server->endpoints[i];
        if (e->kind != LS_SITE_HTTPSYS) {
            if (index-- == 0) return ls_addr_text(&e->at, text);
            continue;
        }
        for (const char *url = e->urls; *url != '\0'; url += strlen(url) + 1)
            if (index-- == 0) return url;
    }
    return index < server->udp.count ? ls_addr_text(ls_udp_addr(server->udp.at[index]), text) : NULL;
}

int ls_server_address(const ls_server *server, unsigned index, char *text, size_t bytes)
{
    char own[LS_ADDR_TEXT_BYTES];
    const char *found = address_text(server, index, own);
    if (found == NULL) return LS_ENOENT;
    if (strlen(found) >= bytes) return LS_EMSGSIZE;
    strcpy(text, found);
    return LS_OK;
}

const char *ls_error_text(int code)
{
    return ls_err_text(code);
}

int ls_server_log_level(const char *name)
{
    enum ls_log_level level;
    int err = ls_log_level_of(name, &level);
    if (err == LS_OK) ls_log_set_level(level);
    return err;
}

void ls_server_log_to(ls_server_log_fn *log, void *user)
{
    ls_log_set_sink(log, user);
}
