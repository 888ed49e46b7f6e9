/* reload.c - a new generation of the site: load, plan, commit.
 *
 * Everything that can fail happens before the commit, and what it made is closed again: the old generation continues
 * untouched. The commit is one packet, which cannot fail. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "base/os/sd_notify.h"
#include "server/server_internal.h"

enum {
    LOAD_MS_MAX = 60000,  /* of an upgrade, if the site does not set load_timeout */
    INIT_WARN_MS = 10000, /* after this time a running ls.init is logged */
};

int ls_server_open_site(ls_server *server, ls_site **out, char *message, size_t message_bytes)
{
    const ls_server_options *options = &server->options;
    const ls_site_options site = {.path = options->site,
                                  .control = options->control != NULL && !options->check,
                                  .source = options->source,
                                  .source_bytes = options->source_bytes,
                                  .open = options->open,
                                  .open_user = options->user,
                                  .argc = options->argc,
                                  .argv = options->argv,
                                  .listen_on = options->listen_on};
    const int err = ls_site_open(server->runtime, &site, out, message, message_bytes);
    if (err < 0 || options->idle || ls_site_has_work(*out)) return err;
    ls_site_close(*out);
    *out = NULL;
    return ls_server_explain(LS_ESCRIPT, message, message_bytes,
                             "%s defines no listener, timer or job: nothing to do; add ls.listen(8080, app)",
                             options->site);
}

/* ---- the new generation ------------------------------------------------------------------------------------- */

/* The threads, the limits and the buffers of a running server stay. */
static ls_site_settings keep_fixed(const ls_site_settings *now, const ls_site_settings *wanted)
{
    ls_site_settings s = *wanted;
    char names[128] = "";
    const struct {
        const char *name;
        bool differs;
    } fixed[] = {
        {"threads", now->threads != wanted->threads},
        {"threads_max", now->threads_max != wanted->threads_max},
        {"max_connections", now->connections_max != wanted->connections_max},
        {"max_buffers", now->pool_bytes_max != wanted->pool_bytes_max},
    };
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        if (fixed[i].differs)
            (void)snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", names[0] != '\0' ? ", " : "",
                           fixed[i].name);
    if (names[0] != '\0') ls_log(LS_LOG_WARN, "reload: %s of ls.config: the change needs a restart", names);
    s.threads = now->threads;
    s.threads_max = now->threads_max;
    s.connections_max = now->connections_max;
    s.pool_bytes_max = now->pool_bytes_max;
    return s;
}

static int load_site(ls_server *server, char *message, size_t message_bytes)
{
    int err = ls_server_open_site(server, &server->next_site, message, message_bytes);
    if (err < 0) return err;
    const ls_site_settings wanted =
        ls_server_merge_settings(&server->options, ls_site_settings_get(server->next_site));
    server->next_settings = keep_fixed(&server->settings, &wanted);
    err = ls_site_ready(server->next_site, server->settings.threads, server->settings.threads_max, message,
                        message_bytes);
    if (err < 0) goto fail_site;
    if ((server->next_end = calloc(1, sizeof *server->next_end)) == NULL) {
        err = ls_server_explain(LS_ENOMEM, message, message_bytes, "%s", ls_err_text(LS_ENOMEM));
        goto fail_site;
    }
    return LS_OK;

fail_site:
    ls_site_close(server->next_site);
    server->next_site = NULL;
    return err;
}

/* The thread that ends a load past its limits, and one that the drain waits for. */
static void watch_load(void *arg)
{
    ls_server *server = arg;
    ls_mutex_lock(&server->mutex);
    while (server->loading) {
        (void)ls_cond_wait_ms(&server->load_ended, &server->mutex, SUPERVISE_MS);
        if (server->loading) ls_runtime_on_load(server->runtime, server->phase >= PHASE_DRAINING);
    }
    ls_mutex_unlock(&server->mutex);
}

int ls_server_load(ls_server *server, ls_server_load_fn *what, char *message, size_t message_bytes)
{
    int err = ls_runtime_load_begin(server->runtime);
    if (err < 0) return ls_server_explain(err, message, message_bytes, "%s", ls_err_text(err));
    server->loading = true;
    if ((err = ls_thread_start(&server->load_thread, "ls-load", watch_load, server)) < 0) {
        ls_runtime_load_end(server->runtime);
        return ls_server_explain(err, message, message_bytes, "cannot start a thread: %s", ls_err_text(err));
    }
    err = what(server, message, message_bytes);
    ls_mutex_lock(&server->mutex);
    server->loading = false;
    ls_cond_broadcast(&server->load_ended);
    ls_mutex_unlock(&server->mutex);
    ls_thread_join(&server->load_thread);
    ls_runtime_load_end(server->runtime);
    return err;
}

int ls_server_init_site(ls_server *server, ls_site *site, char *message, size_t message_bytes)
{
    const uint64_t from_ns = ls_clock_ns();
    const bool follows = ls_site_follows_init(site); /* before it runs: it may make timers */
    bool warned = false;
    if (!ls_site_has_init(site)) {
        server->initialised = true;
        return LS_OK;
    }
    server->init_ended = false;
    ls_site_init(site, server->initialised);
    while (!server->init_ended) {
        if (server->phase >= PHASE_DRAINING)
            return ls_server_explain(LS_ECANCELED, message, message_bytes, "the server stops");
        (void)ls_cond_wait_ms(&server->changed, &server->mutex, INIT_WARN_MS);
        if (warned || server->init_ended || !follows || ls_clock_ns() - from_ns < INIT_WARN_MS * UINT64_C(1000000))
            continue;
        warned = true;
        ls_log(LS_LOG_WARN,
               "%s: ls.init has run for %d s; requests, timers and \"start\" hooks wait for its end: work that goes "
               "on belongs into "
               "ls.spawn",
               server->options.site, INIT_WARN_MS / 1000);
    }
    server->initialised |= !server->init_failed;
    return server->init_failed
               ? ls_server_explain(LS_ESCRIPT, message, message_bytes, "ls.init failed: %s", server->init_message)
               : LS_OK;
}

static int load(ls_server *server, char *message, size_t message_bytes)
{
    const int err = ls_server_load(server, load_site, message, message_bytes);
    ls_mutex_lock(&server->mutex);
    const bool stops = server->phase != PHASE_SERVING;
    ls_mutex_unlock(&server->mutex);
    return err < 0 && stops ? ls_server_explain(LS_ECANCELED, message, message_bytes, "the server stops") : err;
}

static void unload(ls_server *server)
{
    ls_site_close(server->next_site);
    server->next_site = NULL;
    free(server->next_end);
    server->next_end = NULL;
}

static int plan(ls_server *server, char *message, size_t message_bytes)
{
    ls_mutex_lock(&server->lists);
    const int err = ls_endpoint_plan_make(&server->env, &server->endpoints, server->next_site, &server->next_settings,
                                          &server->plan, message, message_bytes);
    ls_mutex_unlock(&server->lists);
    return err;
}

static void commit(ls_thread_ctx *ctx, ls_op *op)
{
    ls_server *server = LS_CONTAINER(op, ls_server, control);
    ls_ending_site *g = server->next_end;
    ls_mutex_lock(&server->lists);
    ls_site_start(server->next_site, server->site); /* before its first request: the packets are posted in this
                                                     * order */
    ls_endpoint_plan_swap(&server->plan, &server->endpoints, &server->removed, server->generation);
    if (server->control_socket != NULL) ls_control_serve(server->control_socket, server->next_site);
    *g = (ls_ending_site){.site = server->site,
                          .number = server->generation++,
                          .retired_ns = ls_clock_ns(),
                          .ticket = ls_grace_begin(&server->grace)};
    ls_list_push(&server->ending, &g->node);
    server->site = server->next_site;
    ls_posts_set_has_hooks(&server->posts, ls_site_has_host_hooks(server->site));
    server->next_site = NULL;
    server->next_end = NULL;
    ls_site_end_work(g->site, LS_END_REPLACED);
    ls_server_begin_jobs(server);
    if (server->dev != NULL) ls_server_leave(server, g, "dev mode shows the new one");
    ls_mutex_unlock(&server->lists);

    ls_endpoint_plan_run(ctx, &server->plan);
    ls_mutex_lock(&server->lists);
    ls_endpoint_plan_end(&server->plan);
    ls_mutex_unlock(&server->lists);
    ls_server_set_flag(server, &server->control_done, true);
}

/* The functions of ls.init of the new site have run or run: it ends as a previous site does. No endpoint knows it. */
static void retire_next(ls_server *server)
{
    ls_ending_site *g = server->next_end;
    ls_mutex_lock(&server->lists);
    *g = (ls_ending_site){
        .site = server->next_site, .retired_ns = ls_clock_ns(), .ticket = ls_grace_begin(&server->grace)};
    ls_list_push(&server->ending, &g->node);
    ls_site_end_work(g->site, LS_END_REPLACED);
    ls_mutex_unlock(&server->lists);
    server->next_site = NULL;
    server->next_end = NULL;
}

/* Open the listeners of the site and commit it. Returns with the mutex, which the caller holds. */
static int serve_next(ls_server *server, char *message, size_t message_bytes)
{
    if (server->phase != PHASE_SERVING)
        return ls_server_explain(LS_ECANCELED, message, message_bytes, "the server stops");
    server->committing = true;
    ls_mutex_unlock(&server->mutex);
    int err = plan(server, message, message_bytes);
    ls_mutex_lock(&server->mutex);
    const bool planned = err == LS_OK;
    if (planned && (err = ls_server_on_workers(server, commit)) == LS_OK) server->settings = server->next_settings;
    if (planned && err < 0) /* `committing`: the packet is in the queue still: it must not be posted again */
        return ls_server_explain(err, message, message_bytes, "the server stops; no thread was free");
    server->committing = false;
    ls_cond_broadcast(&server->changed);
    return err;
}

static int reload(ls_server *server, char *message, size_t message_bytes)
{
    int err = load(server, message, message_bytes);
    if (err < 0) return err;
    const bool has_init = ls_site_has_init(server->next_site);
    ls_site_hold_jobs(server->next_site);
    ls_mutex_lock(&server->mutex);
    err = ls_server_init_site(server, server->next_site, message, message_bytes);
    if (err == LS_OK) err = serve_next(server, message, message_bytes);
    const bool committing = server->committing;
    ls_mutex_unlock(&server->mutex);
    if (err == LS_OK || committing) return err;
    if (has_init)
        retire_next(server);
    else
        unload(server);
    return err;
}

typedef struct source_text {
    const char *text; /* from malloc */
    size_t bytes;
} source_text;

static void swap_source(ls_server *server, source_text *with)
{
    const source_text old = {server->options.source, server->options.source_bytes};
    server->options.source = with->text;
    server->options.source_bytes = with->bytes;
    *with = old;
}

void ls_server_reopen_logs(ls_server *server)
{
    if (server->options.reopen_logs != NULL) server->options.reopen_logs(server->options.user);
    ls_access_reopen(server->runtime);
}

/* source: NULL, or the text from which the site is loaded now and, with LS_OK, from now on; it receives the text that
 * is not used any more. */
static int reload_now(ls_server *server, source_text *source, char *message, size_t message_bytes)
{
    const uint64_t from_ns = ls_clock_ns();
    char own[LS_MESSAGE_BYTES];
    if (message_bytes == 0) {
        message = own;
        message_bytes = sizeof own;
    }
    message[0] = '\0';
    if (server->options.idle) /* it would open the listeners */
        return ls_server_explain(LS_ENOTSUP, message, message_bytes, "an idle server cannot be reloaded");
    ls_mutex_lock(&server->mutex);
    const char *why = server->phase == PHASE_OPEN     ? "the server does not serve yet"
                      : server->phase > PHASE_SERVING ? "the server stops"
                      : server->upgrading             ? "an upgrade is under way"
                      : server->reloading             ? "another reload is under way"
                                                      : NULL;
    if (why == NULL) server->reloading = true;
    ls_mutex_unlock(&server->mutex);
    if (why != NULL) return ls_server_explain(LS_EBUSY, message, message_bytes, "%s", why);

    ls_server_reopen_logs(server);
    if (server->options.notify) ls_sd_tell_reloading();
    if (server->dev != NULL) ls_dev_load_begin(server->dev);
    if (source != NULL) swap_source(server, source);
    const int err = reload(server, message, message_bytes);
    if (source != NULL && err < 0) swap_source(server, source);
    if (server->dev != NULL) ls_dev_load_end(server->dev, err < 0 ? message : NULL);
    if (err == LS_OK)
        ls_log(LS_LOG_INFO, "reloaded %s in %llu ms", server->options.site,
               (unsigned long long)((ls_clock_ns() - from_ns) / 1000000u));
    else
        ls_log(LS_LOG_ERROR, "reload failed: %s; the previous site continues", message);
    if (server->options.notify && err == LS_OK)
        ls_sd_tell("READY=1", "serves %s", server->options.site);
    else if (server->options.notify && err != LS_ECANCELED) /* else it stops */
        ls_sd_tell("READY=1", "serves the previous site: reload failed: %s", message);
    ls_server_set_flag(server, &server->reloading, false); /* wakes the supervisor, too: it ends the old generation */
    if (server->options.reloaded != NULL) server->options.reloaded(server->options.user, err, message);
    return err;
}

static int reload_from(ls_server *server, source_text *source, char *message, size_t message_bytes)
{
    const ls_log_target *before = ls_log_use(&server->log);
    const int err = reload_now(server, source, message, message_bytes);
    (void)ls_log_use(before);
    return err;
}

int ls_server_reload(ls_server *server, char *message, size_t message_bytes)
{
    return reload_from(server, NULL, message, message_bytes);
}

int ls_server_reload_source(ls_server *server, const char *text, size_t bytes, char *message, size_t message_bytes)
{
    source_text source = {.bytes = bytes > 0 ? bytes : strlen(text)};
    char *copy;
    if (server->dev != NULL)
        return ls_server_explain(LS_ENOTSUP, message, message_bytes, "dev mode reloads the file of the site");
    if ((copy = malloc(source.bytes + 1)) == NULL)
        return ls_server_explain(LS_ENOMEM, message, message_bytes, "%s", ls_err_text(LS_ENOMEM));
    memcpy(copy, text, source.bytes);
    source.text = copy;
    const int err = reload_from(server, &source, message, message_bytes);
    free((char *)(uintptr_t)source.text);
    return err;
}

/* ---- by a signal -------------------------------------------------------------------------------------------- */

void ls_server_end_reload_waits(ls_node *waits, int result, const char *message)
{
    while (!ls_list_empty(waits)) {
        ls_reload_wait *wait = LS_CONTAINER(waits->next, ls_reload_wait, node);
        ls_list_remove(&wait->node);
        wait->ended(wait, result, message);
    }
}

void ls_server_ask_reload(void *user, ls_reload_wait *wait)
{
    ls_server *server = user;
    ls_mutex_lock(&server->mutex);
    const bool stops = server->phase > PHASE_SERVING;
    server->reload_asked = !stops;
    if (wait != NULL && !stops) ls_list_push(&server->reload_waits, &wait->node);
    ls_cond_broadcast(&server->changed);
    ls_mutex_unlock(&server->mutex);
    if (stops && wait == NULL) ls_log(LS_LOG_WARN, "SIGHUP: no reload: the server stops");
    if (stops && wait != NULL) wait->ended(wait, LS_ECANCELED, "the server stops");
}

/* Another reload is under way, of the program or of dev mode. Returns whether the server still serves after it. */
static bool await_other(ls_server *server)
{
    ls_mutex_lock(&server->mutex);
    (void)ls_server_await(server, &server->reloading, false);
    const bool serves = server->phase == PHASE_SERVING;
    ls_mutex_unlock(&server->mutex);
    return serves;
}

/* ---- upgrades: on the same thread ---------------------------------------------------------------------------- */

static bool upgrade_ends(void *user)
{
    ls_server *server = user;
    ls_mutex_lock(&server->mutex);
    const bool ends = server->phase != PHASE_SERVING || server->drains_at_ns != 0;
    ls_mutex_unlock(&server->mutex);
    return ends;
}

/* With LS_OK the drain begins. */
static void upgrade(ls_server *server)
{
    char message[LS_SUCCESSOR_TEXT_BYTES] = "";
    ls_upgrade_sockets sockets;
    const ls_log_target *before = ls_log_use(&server->log);
    const uint32_t set_ms = server->settings.load_ms_max, ms_max = set_ms > 0 ? set_ms : LOAD_MS_MAX;
    ls_mutex_lock(&server->lists);
    int err = ls_upgrade_sockets_of(&server->endpoints, &sockets);
    ls_mutex_unlock(&server->lists);
    if (err == LS_OK)
        err = ls_upgrade_run(&sockets, server->runtime, ms_max, upgrade_ends, server, message, sizeof message);
    else
        (void)ls_server_explain(err, message, sizeof message, "%s", ls_err_text(err));
    free(sockets.at);
    free(sockets.names);
    if (err < 0) ls_log(LS_LOG_ERROR, "upgrade failed: %s; this process continues", message);
    ls_mutex_lock(&server->mutex);
    server->handed_over = err == LS_OK;
    server->serves_elsewhere = err == LS_OK && message[0] == '\0';
    server->reloading = server->upgrading = false;
    ls_reload_wait *wait = server->upgrade_wait;
    server->upgrade_wait = NULL;
    ls_cond_broadcast(&server->changed);
    ls_mutex_unlock(&server->mutex);
    if (err == LS_OK) server->host.stop(server);
    if (wait != NULL) wait->ended(wait, err, message);
    (void)ls_log_use(before);
}

void ls_server_ask_status(void *user, ls_reload_wait *wait)
{
    ls_server *server = user;
    ls_mutex_lock(&server->mutex);
    const bool serves = server->phase == PHASE_SERVING;
    if (serves) ls_list_push(&server->status_waits, &wait->node);
    ls_cond_broadcast(&server->changed);
    ls_mutex_unlock(&server->mutex);
    if (!serves) wait->ended(wait, LS_ECANCELED, "the server starts or stops");
}

void ls_server_ask_upgrade(void *user, ls_reload_wait *wait)
{
    ls_server *server = user;
    ls_mutex_lock(&server->mutex);
    const bool stops = server->phase > PHASE_SERVING || server->drains_at_ns != 0;
    const char *why = stops               ? "the server stops"
                      : server->upgrading ? "another upgrade is under way"
                      : server->reloading ? "a reload is under way"
                                          : NULL;
    if (why == NULL) { /* one that still starts is replaced when it serves */
        server->upgrading = server->upgrade_asked = true;
        server->upgrade_wait = wait;
    }
    ls_cond_broadcast(&server->changed);
    ls_mutex_unlock(&server->mutex);
    if (why == NULL) return;
    ls_log(LS_LOG_WARN, "no upgrade: %s", why);
    if (wait != NULL) wait->ended(wait, LS_EBUSY, why);
}

static void reload_main(void *arg)
{
    ls_server *server = arg;
    char message[LS_MESSAGE_BYTES];
    ls_node waits;
    if (server->upgrading) {
        upgrade(server);
        ls_server_set_flag(server, &server->reload_thread_ended, true);
        return;
    }
    ls_mutex_lock(&server->mutex);
    ls_list_move(&waits, &server->reload_waits);
    ls_mutex_unlock(&server->mutex);
    int err;
    do err = ls_server_reload(server, message, sizeof message);
    while (err == LS_EBUSY && await_other(server));
    if (err == LS_EBUSY) ls_log(LS_LOG_WARN, "reload failed: %s", message);
    ls_server_end_reload_waits(&waits, err, message);
    ls_server_set_flag(server, &server->reload_thread_ended, true);
}

void ls_server_poll_reload(ls_server *server)
{
    if (server->reload_thread_running && server->reload_thread_ended) {
        ls_thread_join(&server->reload_thread);
        server->reload_thread_running = server->reload_thread_ended = false;
    }
    if (!(server->reload_asked || server->upgrade_asked) || server->phase != PHASE_SERVING || server->reloading ||
        server->reload_thread_running)
        return;
    if (server->upgrade_asked)
        server->reloading = true, server->upgrade_asked = false;
    else
        server->reload_asked = false;
    /* As the workers: the site may start programs while it loads. */
    const int err = ls_thread_start_parent(&server->reload_thread, "ls-reload", reload_main, server);
    if (err == LS_OK)
        server->reload_thread_running = true;
    else
        ls_log(LS_LOG_ERROR, "reload failed: cannot start a thread: %s; the previous site continues",
               ls_err_text(err));
    if (err < 0) ls_server_end_reload_waits(&server->reload_waits, err, "cannot start a thread");
}
