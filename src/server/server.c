/* server.c - the life of a server: load the site, open port, workers and endpoints, serve, drain, close.
 *
 * Order of closing: endpoints, worker threads, port, Lua states, pools. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "base/io/output.h"
#include "base/os/memory.h"
#include "base/os/rlimit.h"
#include "base/os/sd_notify.h"
#include "http/file_cache.h"
#include "net/refused.h"
#include "net/stream/deadline.h"
#include "net/stream/stream.h"
#include "port/notify.h"
#include "server/program.h"
#include "server/server_internal.h"

enum {
    DESCRIPTORS_OWN = 64,  /* descriptors of the server itself, besides connections and cached files */
    STOP_SPARE_MS = 10000, /* that the manager of the service waits longer than drain_delay and drain_timeout */
    SOCKETS_MAX = 1 << 25, /* upper limit of ls_port_options.sockets_max */
};

int ls_server_call(ls_server *server, const void *data, size_t bytes, ls_server_answer_fn *answered, void *user)
{
    return ls_posts_add(&server->posts, data, bytes, answered, user);
}

int ls_server_post(ls_server *server, const void *data, size_t bytes)
{
    return ls_posts_add(&server->posts, data, bytes, NULL, NULL);
}

int ls_server_publish(ls_server *server, const char *topic, const void *data, size_t bytes)
{
    const int64_t count = ls_site_publish(server->runtime, topic, data, bytes);
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

static void stop_from_signal(void *user)
{
    ls_server_stop(user);
}

static void other_signal(void *user, const char *name)
{
    ls_server *server = user;
    if (strcmp(name, "SIGHUP") == 0)
        ls_server_ask_reload(server, NULL);
    else if (strcmp(name, "SIGUSR1") == 0)
        ls_server_reopen_logs(server);
    else if (strcmp(name, "SIGUSR2") == 0 && server->options.notify)
        ls_server_ask_upgrade(server, NULL);
    else
        ls_log(LS_LOG_INFO, "%s has no effect; SIGHUP reloads the site, SIGTERM stops the server", name);
}

/* The caller holds the mutex. */
static void begin_drain(ls_server *server)
{
    server->stopped_ns = ls_clock_ns();
    server->phase = PHASE_DRAINING;
    atomic_fetch_or(&server->runtime->unready, LS_UNREADY_DRAINS);
    ls_posts_stop(&server->posts);
    ls_cond_broadcast(&server->changed);
}

/* The manager waits for TimeoutStopSec, or until the time that this gives it. */
static void tell_stop(const ls_server *server, const ls_site_settings *settings, bool delays)
{
    char state[80];
    const double delay_s = delays ? settings->drain_delay_ms / 1e3 : 0;
    const uint64_t ms = (uint64_t)(delay_s * 1e3) + settings->drain_ms_max + STOP_SPARE_MS;
    (void)snprintf(state, sizeof state, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%" PRIu64, ms * 1000);
    if (server->options.notify && !server->handed_over)
        ls_sd_tell(state, delays ? "serves for %.3g s, then drains" : "drains", delay_s);
    if (delays)
        ls_log(LS_LOG_INFO, "stops: serves for drain_delay = %.3g s, %s, then drains; a second signal ends it at once",
               delay_s, settings->drain_ready ? "ready" : "not ready");
    else
        ls_log(LS_LOG_INFO, "draining");
}

/* Begin the drain, or drain_delay before it. from_outside: by a signal or the program, not by the site; the second such
 * stop ends the server at once. */
static void stop(ls_server *server, bool from_outside, bool may_delay)
{
    ls_mutex_lock(&server->mutex);
    const bool first = server->phase < PHASE_DRAINING && server->drains_at_ns == 0;
    const ls_site_settings settings = server->settings;
    const bool delays = first && may_delay && !server->handed_over && server->initialised && server->dev == NULL &&
                        settings.drain_delay_ms > 0;
    const bool again = from_outside && server->stopped_from_outside;
    const bool drains = !delays && server->phase < PHASE_DRAINING && (first || again || !may_delay);
    if (delays) {
        server->drains_at_ns = ls_clock_ns() + settings.drain_delay_ms * UINT64_C(1000000);
        if (!settings.drain_ready) atomic_fetch_or(&server->runtime->unready, LS_UNREADY_DRAINS);
        ls_cond_broadcast(&server->changed);
    }
    if (drains) begin_drain(server);
    if (again) server->phase = PHASE_HARD;
    server->stopped_from_outside |= from_outside;
    if (again) ls_cond_broadcast(&server->changed);
    ls_mutex_unlock(&server->mutex);
    if (delays || drains) tell_stop(server, &settings, delays);
}

/* Several states of a site may call this concurrently, and again during the drain. A signal that follows may come from
 * a service manager that does not know of it: it does not end the drain early. */
static void stop_from_site(void *server)
{
    stop(server, false, true);
}

static bool file_busy(void *server, const char *path)
{
    return ls_upgrade_file_busy(&((ls_server *)server)->upgrade, path);
}

static void init_ended(void *user, const char *failure)
{
    ls_server *server = user;
    ls_mutex_lock(&server->mutex);
    (void)snprintf(server->init_message, sizeof server->init_message, "%s", failure != NULL ? failure : "");
    server->init_failed = failure != NULL;
    server->init_ended = true;
    ls_cond_broadcast(&server->changed);
    ls_mutex_unlock(&server->mutex);
}

/* ---- open ------------------------------------------------------------------------------------------------------ */

/* Return free memory to the system when the workers are idle. If Lua collects first, idle=true follows once more. */
static bool on_tick(bool idle, void *runtime)
{
    ls_server *server = ((const ls_runtime *)runtime)->host->server;
    bool more;
    ls_refused_report();
    if (ls_mutex_try_lock(&server->lists)) { /* a reload may hold it for long, and a stall is to be seen meanwhile */
        for (ls_endpoint *e = NULL; (e = ls_server_next_endpoint(server, e)) != NULL;)
            if (e->ops->report != NULL) e->ops->report(e);
        ls_mutex_unlock(&server->lists);
    }
    if (!ls_site_on_tick(runtime, idle, &more) && idle) ls_memory_trim();
    return more;
}

/* Maximum number of sockets of the port: the allowed connections, plus at least as many sockets of the site itself;
 * more if the system allows more descriptors. If it allows fewer, *connections_max becomes lower: files and sockets of
 * handlers can be opened when all connections are taken. */
static uint32_t sockets_max(uint32_t *connections_max)
{
    const uint32_t own = DESCRIPTORS_OWN + ls_file_cache_defaults.open_max;
    const uint32_t wanted = *connections_max < SOCKETS_MAX / 2 ? *connections_max + own : SOCKETS_MAX / 2;
    const uint32_t allowed = ls_descriptors_raise(wanted);
    if (allowed < wanted) {
        const uint32_t most = allowed > 2 * own ? allowed - own : allowed / 2;
        ls_log(LS_LOG_DEBUG,
               "the system allows %" PRIu32 " descriptors: %" PRIu32 " connections, not max_connections = %" PRIu32,
               allowed, most, *connections_max);
        *connections_max = most;
    }
    const uint32_t most = allowed > 2 * wanted ? allowed : 2 * wanted;
    return most < SOCKETS_MAX ? most : SOCKETS_MAX;
}

/* A system has one back end. "uring" was a second one on Linux: scripts that name it still start. */
static int check_backend(const char *name, char *message, size_t message_bytes)
{
    const char *own = ls_port_backend();
    if (name == NULL || strcmp(name, "auto") == 0 || strcmp(name, own) == 0) return LS_OK;
    if (strcmp(name, "uring") != 0 || strcmp(own, "epoll") != 0)
        return ls_server_explain(LS_ENOTSUP, message, message_bytes, "unknown back end \"%s\"; available: auto %s",
                                 name, own);
    ls_log(LS_LOG_WARN, "back end \"uring\": Linux has one back end, epoll, which is used");
    return LS_OK;
}

static int open_core(ls_server *server, const ls_server_options *options, char *message, size_t message_bytes)
{
    server->settings = ls_server_merge_settings(options, ls_site_settings_get(server->site));
    const ls_site_settings *settings = &server->settings;
    if (settings->threads > settings->threads_max)
        return ls_server_explain(LS_EINVAL, message, message_bytes,
                                 "%s: threads = %u must not exceed threads_max = %u of ls.config", options->site,
                                 settings->threads, settings->threads_max);

    int err = check_backend(options->backend, message, message_bytes);
    if (err < 0) return err;
    uint32_t connections_max = settings->connections_max;
    const uint32_t sockets = sockets_max(&connections_max);
    ls_conn_limit_open(&server->conn_limit, connections_max);
    server->conn_limit_open = true;
    if (options->signals != 0) /* the process serves only the site */
        ls_memory_share(settings->threads + 2);
    if ((err = ls_pools_open(settings->pool_bytes_max, &server->pools)) < 0)
        return ls_server_explain(err, message, message_bytes, "buffers: %s", ls_err_text(err));

    /* threads_max threads may be inside handlers; others then refuse requests. The workers keep `threads` of them
     * running; the system must not hold back a standby while a handler computes. */
    const unsigned threads_max =
        settings->threads_max > settings->threads ? settings->threads_max + settings->threads : settings->threads_max;
    const ls_port_options port_options = {.sockets_max = sockets, .concurrency = threads_max};
    if ((err = ls_port_open(&port_options, &server->port)) < 0)
        return ls_server_explain(err, message, message_bytes, "cannot open the port: %s", ls_err_text(err));
    if ((err = ls_stream_deadlines_open(server->port, &server->deadlines)) < 0)
        return ls_server_explain(err, message, message_bytes, "deadlines: %s", ls_err_text(err));

    const ls_workers_options workers_options = {.threads = settings->threads,
                                                .threads_max = threads_max,
                                                .on_user_packet = ls_packet_handler_call,
                                                .on_stall = ls_runtime_on_stall,
                                                .on_tick = on_tick,
                                                .on_thread_end = ls_runtime_on_thread_end,
                                                .user = server->runtime};
    err = ls_workers_open(server->port, server->pools, &workers_options, &server->workers);
    if (err == LS_OK) err = ls_grace_open(&server->grace, server->workers);
    if (err < 0)
        return ls_server_explain(err, message, message_bytes, "cannot create %u threads: %s", threads_max,
                                 ls_err_text(err));
    if ((err = ls_site_runtime_attach(server->runtime, server->port, server->deadlines, threads_max)) < 0)
        return ls_server_explain(err, message, message_bytes, "%s", ls_err_text(err));
    server->env = (ls_endpoint_env){.port = server->port,
                                    .deadlines = server->deadlines,
                                    .limit = &server->conn_limit,
                                    .grace = &server->grace,
                                    .past = &server->past,
                                    .threads_max = threads_max};
    return LS_OK;
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
    ls_tls_check_names(tls, listener->tls->names, listener->where);
    ls_tls_drop(tls);
    return LS_OK;
}

static int open_control(ls_server *server, char *message, size_t message_bytes)
{
    static const ls_control_calls calls = {ls_server_ask_reload, ls_server_ask_upgrade, ls_server_ask_status};
    const char *path = server->options.control;
    if (path == NULL || server->options.check) return LS_OK;
    const int err = ls_control_open(server->port, server->deadlines, server->runtime, &calls, path,
                                    ls_upgrade_replaces(&server->upgrade), &server->control_socket);
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
    if (err == LS_OK) ls_endpoint_plan_swap(&server->plan, &server->endpoints, &server->removed, 0);
    if (server->options.notify) ls_inherited_close();
    return err;
}

static int load_site(ls_server *server, char *message, size_t message_bytes)
{
    return ls_server_open_site(server, &server->site, message, message_bytes);
}

/* In dev mode a site that does not load is loaded again after a change. */
static int load_first(ls_server *server, char *message, size_t message_bytes)
{
    if (!server->options.dev || server->options.check)
        return ls_server_load(server, load_site, message, message_bytes);
    int err = ls_dev_open(server->editor, &server->dev, message, message_bytes);
    if (err < 0) return err;
    ls_dev_attach(server->runtime, server->dev);
    for (bool waited = false;; waited = true) {
        ls_dev_load_begin(server->dev);
        err = ls_server_load(server, load_site, message, message_bytes);
        if (err == LS_OK) ls_dev_load_end(server->dev, NULL);
        if (err == LS_OK || (err == LS_ENOENT && !waited)) return err;
        ls_dev_await(server->dev, message);
    }
}

static int load_states(ls_server *server, char *message, size_t message_bytes)
{
    const ls_site_settings *settings = ls_site_settings_get(server->site);
    ls_runtime_limit_load(server->runtime, settings->handler_cpu_ms_max, settings->load_ms_max);
    return ls_site_ready(server->site, server->settings.threads, server->settings.threads_max, message, message_bytes);
}

static int open_site(ls_server *server, char *message, size_t message_bytes)
{
    int err = ls_site_runtime_open(&server->host, &server->runtime);
    if (err < 0) return ls_server_explain(err, message, message_bytes, "%s", ls_err_text(err));
    if ((err = load_first(server, message, message_bytes)) < 0) return err;
    if ((err = open_core(server, &server->options, message, message_bytes)) < 0) return err;
    return ls_server_load(server, load_states, message, message_bytes);
}

/* What open_server has made before the site. */
static void free_server(ls_server *server)
{
    ls_posts_close(&server->posts);
    ls_cond_close(&server->load_ended);
    ls_cond_close(&server->changed);
    ls_mutex_close(&server->lists);
    ls_mutex_close(&server->status_mutex);
    ls_mutex_close(&server->mutex);
    ls_server_free_options(&server->options);
    ls_mutex_close(&server->errors.mutex);
    free(server);
}

/* Returns an error after it has freed the server. */
static int open_server(ls_server *server, const ls_server_options *options, char *message, size_t message_bytes)
{
    int err;
    ls_mutex_open(&server->mutex);
    ls_mutex_open(&server->lists);
    ls_mutex_open(&server->status_mutex);
    ls_cond_open(&server->changed);
    ls_cond_open(&server->load_ended);
    ls_posts_open(&server->posts, deliver_post, server);
    if (options->notify && !options->check) ls_sd_open();
    server->upgrade.other = (ls_successor){.channel = -1, .memory = -1};
    const bool manages = options->notify && !options->check,
               replaces = manages && ls_predecessor_open(&server->upgrade.other);
    if (options->notify && !replaces) ls_sd_tell("", "loads %s", options->site);
    if (manages && (err = ls_inherited_open(replaces, message, message_bytes)) < 0) goto fail;
    server->opened_ns = ls_clock_ns();
    server->generation = 1;
    ls_node_init(&server->endpoints);
    ls_node_init(&server->removed);
    ls_node_init(&server->ending);
    ls_node_init(&server->reload_waits);
    ls_node_init(&server->status_waits);
    server->status_to = (ls_log_target){.sink = ls_server_add_status, .user = server, .level = LS_LOG_DEBUG};
    if ((err = ls_server_copy_options(options, &server->options)) < 0) goto fail;
    const ls_signals_options signals = {.on_stop = stop_from_signal, .on_other = other_signal, .user = server};
    if (options->signals && !options->check && (err = ls_signals_open(&signals, &server->signals)) < 0) {
        ls_server_explain(err, message, message_bytes, "signals: %s",
                          err == LS_EBUSY ? "another server of this process handles them" : ls_err_text(err));
        goto fail;
    }
    server->host = (ls_site_host){.server = server,
                                  .check = options->check != 0,
                                  .file_busy = file_busy,
                                  .stats = ls_server_stats,
                                  .stop = stop_from_site,
                                  .init_ended = init_ended,
                                  .threads = ls_server_threads,
                                  .errors = &server->errors};

    if ((err = open_site(server, message, message_bytes)) < 0) goto fail_site;
    ls_posts_set_has_hooks(&server->posts, ls_site_has_host_hooks(server->site));
    /* Before the first listener: until then no client has connected, and the signals end the process at once. */
    if (server->signals != NULL && (err = ls_signals_take_stops(server->signals)) < 0) {
        ls_server_explain(err, message, message_bytes, "signals: %s", ls_err_text(err));
        goto fail_site;
    }
    if ((err = open_endpoints(server, message, message_bytes)) < 0) goto fail_site;
    if ((err = open_control(server, message, message_bytes)) < 0) goto fail_site;
    return LS_OK;

fail_site:
    ls_upgrade_fail(&server->upgrade, message);
    ls_server_close(server);
    return err;
fail:
    free_server(server);
    return err;
}

int ls_program_open(const ls_server_options *given, const char *editor, ls_server **out, char *message,
                    size_t message_bytes)
{
    ls_server_options full = {0};
    int err = ls_server_check_options(given, &full, message, message_bytes);
    if (err < 0) return err;
    ls_server *server = calloc(1, sizeof *server);
    (void)ls_server_explain(LS_ENOMEM, message, message_bytes, "%s", ls_err_text(LS_ENOMEM));
    if (server == NULL) return LS_ENOMEM;
    server->log = (ls_log_target){.sink = full.log, .user = full.user, .level = -1, .kept = &server->errors};
    ls_mutex_open(&server->errors.mutex);
    enum ls_log_level level;
    if (full.log_level != NULL && ls_log_level_of(full.log_level, &level) == LS_OK) server->log.level = (int)level;
    server->editor = editor;
    const ls_log_target *before = ls_log_use(&server->log);
    if ((err = open_server(server, &full, message, message_bytes)) == LS_OK) *out = server;
    (void)ls_log_use(before);
    return err;
}

int ls_server_open(const ls_server_options *options, ls_server **out, char *message, size_t message_bytes)
{
    return ls_program_open(options, NULL, out, message, message_bytes);
}

/* No worker runs. A UDP socket is closed now and freed after the site (`all`), whose objects refer to it. */
static void close_endpoints(ls_server *server, bool all)
{
    ls_thread_ctx ctx = {.port = server->port};
    for (ls_endpoint *e = ls_server_next_endpoint(server, NULL), *next; e != NULL; e = next) {
        next = ls_server_next_endpoint(server, e);
        if (!e->stopped) e->ops->stop(&ctx, e);
        e->stopped = true;
        if (e->ops == &ls_endpoint_udp && !all) {
            e->ops->abort(e);
        } else {
            ls_list_remove(&e->node);
            e->ops->close(e);
        }
    }
}

static void close_sites(ls_server *server)
{
    while (!ls_list_empty(&server->ending)) {
        ls_ending_site *g = LS_CONTAINER(server->ending.next, ls_ending_site, node);
        ls_site_close(g->site);
        ls_list_remove(&g->node);
        free(g);
    }
    if (server->site != NULL) ls_site_close(server->site);
    server->site = NULL;
}

static void close_server(ls_server *server)
{
    if (server->started) {
        stop(server, false, false); /* no second stop: that would end it at once */
        (void)ls_server_wait(server);
        ls_event_close(&server->ended);
    }
    if (server->ended_early && !ls_server_end(server)) {
        ls_posts_cancel(&server->posts);
        return;
    }
    if (server->dev != NULL) ls_dev_stop(server->dev);
    if (server->signals != NULL) ls_signals_close(server->signals);
    ls_endpoint_plan_end(&server->plan); /* of a server that never ran; it refers to the endpoints */
    close_endpoints(server, false);
    if (server->workers != NULL) {
        ls_thread_ctx *ctx = ls_workers_ctx(server->workers, 0);
        if (server->control_socket != NULL) ls_control_close(server->control_socket, ctx);
        for (const ls_node *node = server->ending.next; node != &server->ending; node = node->next)
            ls_site_close_sockets(LS_CONTAINER(node, ls_ending_site, node)->site, ctx);
        if (server->site != NULL) ls_site_close_sockets(server->site, ctx);
        ls_site_runtime_disconnect(server->runtime, ctx);
        ls_grace_close(&server->grace);
        ls_workers_close(server->workers);
        server->workers = NULL;
    }
    if (server->port != NULL) ls_port_close(server->port);
    if (server->deadlines != NULL) ls_deadlines_close(server->deadlines);
    server->port = NULL;
    server->deadlines = NULL; /* a finalizer of the site may ask for the statistics */
    close_sites(server);      /* the port's queue and timers may have referred to their tasks */
    if (server->runtime != NULL) ls_site_runtime_close(server->runtime);
    close_endpoints(server, true);
    if (server->pools != NULL) ls_pools_close(server->pools);
    if (server->conn_limit_open) ls_conn_limit_close(&server->conn_limit);
    free_server(server);
}

void ls_server_close(ls_server *server)
{
    if (server == NULL) return;
    const ls_log_target *before = ls_log_use(&server->log);
    close_server(server);
    (void)ls_log_use(before);
}

/* ---- serve and drain ---------------------------------------------------------------------------------------- */

void ls_server_set_flag(ls_server *server, bool *flag, bool value)
{
    ls_mutex_lock(&server->mutex);
    *flag = value;
    ls_cond_broadcast(&server->changed);
    ls_mutex_unlock(&server->mutex);
}

static void begin_serving(ls_thread_ctx *ctx, ls_op *op)
{
    ls_server *server = LS_CONTAINER(op, ls_server, control);
    ls_endpoint_plan_run(ctx, &server->plan);
    ls_endpoint_plan_end(&server->plan);
    if (server->control_socket != NULL) ls_control_start(ctx, server->control_socket);
    ls_server_set_flag(server, &server->control_done, true);
}

int ls_server_await(ls_server *server, const bool *flag, bool value)
{
    while (*flag != value) {
        if (server->phase == PHASE_HARD) return LS_ECANCELED;
        if (server->phase < PHASE_DRAINING) {
            ls_cond_wait(&server->changed, &server->mutex);
        } else {
            const uint32_t ms = ls_server_drain_ms_left(server);
            if (ms == 0) return LS_ETIMEDOUT;
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
    ls_port_post(server->port, &server->control, 0);
    return ls_server_await(server, &server->control_done, true);
}

/* The time until the drain in ms; 0: no stop has begun its delay. Begins the drain when it is over. */
static uint32_t poll_delay(ls_server *server)
{
    const uint64_t now = ls_clock_ns();
    if (server->drains_at_ns == 0) return 0;
    if (now < server->drains_at_ns) return (uint32_t)((server->drains_at_ns - now) / 1000000u) + 1;
    const ls_site_settings settings = server->settings;
    begin_drain(server);
    ls_mutex_unlock(&server->mutex); /* a function of the program gets the line */
    tell_stop(server, &settings, false);
    ls_mutex_lock(&server->mutex);
    return 0;
}

static void beat_taken(ls_thread_ctx *ctx, ls_op *op)
{
    ls_server *server = LS_CONTAINER(op, ls_server, beat);
    ls_server_set_flag(server, &server->beat_posted, false);
}

/* Post a packet four times in the period of the watchdog of the service manager, and feed it when any thread has taken
 * the packet within half of the period. Returns the time until the next call in ms; 0: there is no such watchdog, or
 * the packet wakes the supervisor. The caller holds the mutex. */
static uint32_t feed_watchdog(ls_server *server)
{
    const uint64_t period_ms = server->options.notify ? ls_sd_watchdog_ms() : 0, now_ns = ls_clock_ns();
    if (period_ms == 0 || server->beat_posted) return 0;
    const uint64_t ms = (now_ns - server->beat_ns) / 1000000u, quarter_ms = period_ms / 4 + 1;
    if (server->beat_ns != 0 && ms < quarter_ms) {
        if (!server->beat_fed) ls_sd_feed();
        server->beat_fed = true;
        return (uint32_t)(quarter_ms - ms);
    }
    if (server->beat_ns != 0 && !server->beat_fed && ms <= period_ms / 2) ls_sd_feed();
    server->beat_fed = false;
    server->beat_posted = true;
    server->beat_ns = now_ns;
    server->beat.done = beat_taken;
    ls_port_post(server->port, &server->beat, 0);
    return 0;
}

/* Wait for a stop, and for the end of its delay; meanwhile start the reloads and end old generations. The caller holds
 * the mutex. */
static void supervise(ls_server *server)
{
    while (server->phase == PHASE_SERVING) {
        ls_server_poll_reload(server);
        ls_server_poll_status(server);
        uint32_t ms = ls_server_poll_generations(server);
        const uint32_t delay_ms = poll_delay(server), feed_ms = feed_watchdog(server);
        if (server->phase != PHASE_SERVING) return;
        if (ms == 0 || (delay_ms > 0 && delay_ms < ms)) ms = delay_ms;
        if (ms == 0 || (feed_ms > 0 && feed_ms < ms)) ms = feed_ms;
        if (ms > 0)
            (void)ls_cond_wait_ms(&server->changed, &server->mutex, ms);
        else
            ls_cond_wait(&server->changed, &server->mutex);
    }
}

static int reload_changed(void *server)
{
    return ls_server_reload(server, NULL, 0); /* logs the result */
}

static bool is_stopped(void *user)
{
    ls_server *server = user;
    ls_mutex_lock(&server->mutex);
    const bool stopped = server->phase >= PHASE_DRAINING;
    ls_mutex_unlock(&server->mutex);
    return stopped;
}

/* Initialise the site, start it, and open the listeners for it. In dev mode a site whose ls.init fails is served: its
 * pages show the error, and a change reloads it. The caller holds the mutex. */
static int begin(ls_server *server)
{
    char message[LS_MESSAGE_BYTES];
    int err = LS_OK;
    if (server->options.idle) {
        ls_site_apply(server->site);
    } else {
        err = ls_server_init_site(server, server->site, message, sizeof message);
        if (err == LS_ESCRIPT && server->dev != NULL) {
            ls_dev_load_end(server->dev, message);
            err = LS_OK;
        }
        if (err < 0) {
            if (err == LS_ESCRIPT) ls_log(LS_LOG_ERROR, "%s: %s", server->options.site, message);
            ls_upgrade_fail(&server->upgrade, message);
            return err;
        }
        ls_mutex_unlock(&server->mutex);
        const char *why = ls_upgrade_ready(&server->upgrade, server->runtime, is_stopped, server);
        ls_mutex_lock(&server->mutex);
        if (why != NULL) {
            ls_log(LS_LOG_ERROR, "the upgrade ends: %s", why);
            return LS_ECANCELED;
        }
        ls_site_start(server->site, NULL);
    }
    if (server->options.listen_on == NULL &&
        ls_site_listener_count(server->site) + ls_site_udp_count(server->site) > 0)
        ls_output_serve(); /* not in `luaserve test` */
    if ((err = ls_server_on_workers(server, begin_serving)) < 0) return err;
    if (server->phase == PHASE_OPEN) server->phase = PHASE_SERVING; /* now it can be reloaded */
    ls_posts_start(&server->posts, server->port);
    if (server->options.notify) ls_sd_tell("READY=1", "serves %s", server->options.site);
    if (server->dev != NULL && ls_dev_start(server->dev, reload_changed, server) < 0)
        ls_log(LS_LOG_ERROR, "dev: the files are not watched: the thread could not be started");
    if (server->options.serving != NULL) {
        ls_mutex_unlock(&server->mutex); /* it may call ls_server_stop */
        server->options.serving(server->options.user);
        ls_mutex_lock(&server->mutex);
    }
    ls_upgrade_serves(&server->upgrade);
    return LS_OK;
}

static int run(ls_server *server)
{
    int err = ls_workers_start(server->workers);
    if (err < 0) return err;
    ls_mutex_lock(&server->mutex);
    const int begun = begin(server);
    if (begun == LS_ESCRIPT) {
        ls_mutex_unlock(&server->mutex);
        stop(server, false, false);
        ls_mutex_lock(&server->mutex);
    }
    err = begun == LS_ESCRIPT || begun == LS_ECANCELED ? LS_OK : begun; /* then it drains */
    supervise(server);
    if (err == LS_OK) err = ls_server_drain(server);
    ls_server_poll_reload(server);
    ls_mutex_unlock(&server->mutex);

    server->drained = err == LS_OK;
    if (err == LS_OK) err = ls_server_join(server);
    server->ended_early = err == LS_ETIMEDOUT || err == LS_ECANCELED;
    if (err == LS_ETIMEDOUT) ls_server_abort(server);
    if (server->ended_early) ls_processes_kill(server->runtime);
    if (!server->ended_early) ls_workers_stop(server->workers); /* else ls_server_close */
    if (err == LS_OK && begun == LS_ESCRIPT) return begun;      /* logged already */
    if (err == LS_OK)
        ls_log(LS_LOG_INFO, "stopped");
    else if (err == LS_ECANCELED)
        ls_log(LS_LOG_INFO, "stopped a second time: the drain is not complete");
    else if (err == LS_ETIMEDOUT)
        ls_log(LS_LOG_ERROR,
               "ended early: drain_timeout (%.3g s) is over, and the work that the lines before name was ended",
               server->settings.drain_ms_max / 1e3);
    else
        ls_log(LS_LOG_ERROR, "ended early: %s", ls_err_text(err));
    (void)fflush(ls_output_stdio());
    ls_output_flush();
    return err;
}

int ls_server_run(ls_server *server)
{
    const ls_log_target *before = ls_log_use(&server->log);
    const int result = run(server);
    if (server->options.ended != NULL) server->options.ended(server->options.user, result);
    (void)ls_log_use(before);
    return result;
}

static void run_main(void *arg)
{
    ls_server *server = arg;
    server->run_result = ls_server_run(server);
    ls_event_set(&server->ended);
}

int ls_server_start(ls_server *server)
{
    int err = ls_event_open(&server->ended);
    if (err < 0) return err;
    server->started = true; /* before the thread: options.ended may have the program close the server */
    if ((err = ls_thread_start_parent(&server->run_thread, "ls-run", run_main, server)) == LS_OK) return LS_OK;
    server->started = false;
    ls_event_close(&server->ended);
    return err;
}

int ls_server_fd(const ls_server *server)
{
    return ls_event_fd(&server->ended);
}

int ls_server_wait(ls_server *server)
{
    if (!server->waited) ls_thread_join(&server->run_thread);
    server->waited = true;
    return server->run_result;
}

bool ls_program_replaces(const ls_server *server)
{
    return ls_upgrade_replaces(&server->upgrade);
}

void ls_server_interrupt(ls_server *server)
{
    ls_interrupts_set(server->runtime, 0);
}

void ls_server_stop(ls_server *server)
{
    const ls_log_target *before = ls_log_use(&server->log);
    stop(server, true, true);
    (void)ls_log_use(before);
}
