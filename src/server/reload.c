/* reload.c - a new generation of the site: load, plan, commit.
 *
 * Everything that can fail happens before the commit, and what it made is closed again: the old generation goes on
 * untouched. The commit is one packet, which cannot fail. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/server_internal.h"

enum { STANDBYS_DEFAULT = 6 }; /* standby threads in addition to one per running thread */

ls_site_settings ls_server_settle(const ls_server_options *options, const ls_site_settings *site)
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

ls_site_options ls_server_site_options(const ls_server *server)
{
    const ls_server_options *options = &server->options;
    return (ls_site_options){.path = options->site,
                             .control = options->control != NULL && !options->check,
                             .source = options->source,
                             .source_bytes = options->source_bytes,
                             .open = options->open,
                             .open_user = options->user,
                             .argc = options->argc,
                             .argv = options->argv,
                             .listen_on = options->listen_on};
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
    const ls_site_options options = ls_server_site_options(server);
    int err = ls_site_open(server->runtime, &options, &server->next_site, message, message_bytes);
    if (err < 0) return err;
    if (!ls_site_has_work(server->next_site)) {
        err = ls_server_explain(LS_ESCRIPT, message, message_bytes,
                                "%s defines no listener, timer or job: nothing to do; add ls.listen(8080, app)",
                                server->options.site);
        goto fail_site;
    }
    const ls_site_settings wanted = ls_server_settle(&server->options, ls_site_settings_get(server->next_site));
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

static void set_loading(ls_server *server, bool loading)
{
    ls_mutex_lock(&server->mutex);
    server->loading = loading;
    ls_cond_broadcast(&server->changed); /* the supervisor looks at it */
    ls_mutex_unlock(&server->mutex);
}

static int load(ls_server *server, char *message, size_t message_bytes)
{
    ls_runtime_load_begin(server->runtime);
    set_loading(server, true);
    const int err = load_site(server, message, message_bytes);
    set_loading(server, false);
    ls_runtime_load_end(server->runtime);
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
    ls_generation_end *g = server->next_end;
    ls_mutex_lock(&server->lists);
    ls_site_start(server->next_site); /* before its first request: the packets are posted in this order */
    ls_endpoint_plan_swap(&server->plan, &server->endpoints, &server->gone, server->generation);
    if (server->control_socket != NULL) ls_control_serve(server->control_socket, server->next_site);
    *g = (ls_generation_end){.site = server->site,
                             .number = server->generation++,
                             .retired_ns = ls_clock_ns(),
                             .ticket = ls_grace_begin(&server->grace)};
    ls_list_push(&server->ending, &g->node);
    server->site = server->next_site;
    ls_posts_set_heard(&server->posts, ls_site_hears(server->site));
    server->next_site = NULL;
    server->next_end = NULL;
    ls_site_retire(g->site);
    ls_mutex_unlock(&server->lists);

    ls_endpoint_plan_run(ctx, &server->plan);
    ls_mutex_lock(&server->lists);
    ls_endpoint_plan_end(&server->plan);
    ls_mutex_unlock(&server->lists);
    ls_server_control_done(server);
}

/* LS_ECANCELED: the server stops; the plan is undone, unless its packet is in the queue still. */
static int run_commit(ls_server *server, char *message, size_t message_bytes)
{
    ls_mutex_lock(&server->mutex);
    if (server->phase != PHASE_SERVING) {
        ls_mutex_unlock(&server->mutex);
        unload(server); /* first: its objects know the sockets of the plan */
        ls_mutex_lock(&server->lists);
        ls_endpoint_plan_undo(server->port, &server->plan);
        ls_mutex_unlock(&server->lists);
        return ls_server_explain(LS_ECANCELED, message, message_bytes, "the server stops");
    }
    server->committing = true;
    const int err = ls_server_on_workers(server, commit);
    if (err == LS_OK) {
        server->settings = server->next_settings;
        server->committing = false; /* else the packet is in the queue still: it must not be posted again */
        ls_cond_broadcast(&server->changed);
    }
    ls_mutex_unlock(&server->mutex);
    return err < 0 ? ls_server_explain(err, message, message_bytes, "the server stops; no thread was free") : LS_OK;
}

static int reload(ls_server *server, char *message, size_t message_bytes)
{
    int err = load(server, message, message_bytes);
    if (err < 0) return err;
    if ((err = plan(server, message, message_bytes)) < 0) {
        unload(server);
        return err;
    }
    return run_commit(server, message, message_bytes);
}

int ls_server_reload(ls_server *server, char *message, size_t message_bytes)
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
                      : server->reloading             ? "another reload is under way"
                                                      : NULL;
    if (why == NULL) server->reloading = true;
    ls_mutex_unlock(&server->mutex);
    if (why != NULL) return ls_server_explain(LS_EBUSY, message, message_bytes, "%s", why);

    if (server->options.reopen_logs != NULL) server->options.reopen_logs(server->options.user);
    if (server->dev != NULL) ls_dev_server_load(server->dev);
    const int err = reload(server, message, message_bytes);
    if (server->dev != NULL) ls_dev_server_loaded(server->dev, err < 0 ? message : NULL);
    if (err == LS_OK)
        ls_log(LS_LOG_INFO, "reloaded %s in %llu ms", server->options.site,
               (unsigned long long)((ls_clock_ns() - from_ns) / 1000000u));
    else
        ls_log(LS_LOG_ERROR, "reload failed: %s; the old site goes on", message);
    ls_mutex_lock(&server->mutex);
    server->reloading = false;
    ls_cond_broadcast(&server->changed); /* also wakes the supervisor, which ends the old generation */
    ls_mutex_unlock(&server->mutex);
    if (server->options.reloaded != NULL) server->options.reloaded(server->options.user, err, message);
    return err;
}

/* ---- by a signal -------------------------------------------------------------------------------------------- */

void ls_server_ask_reload(ls_server *server)
{
    ls_mutex_lock(&server->mutex);
    const bool stops = server->phase > PHASE_SERVING;
    server->reload_asked = !stops;
    ls_cond_broadcast(&server->changed);
    ls_mutex_unlock(&server->mutex);
    if (stops) ls_log(LS_LOG_WARN, "SIGHUP: no reload: the server stops");
}

static void reload_main(void *arg)
{
    ls_server *server = arg;
    char message[LS_MESSAGE_BYTES];
    if (ls_server_reload(server, message, sizeof message) == LS_EBUSY)
        ls_log(LS_LOG_WARN, "reload failed: %s", message);
    ls_mutex_lock(&server->mutex);
    server->reload_thread_ended = true;
    ls_cond_broadcast(&server->changed);
    ls_mutex_unlock(&server->mutex);
}

void ls_server_tend_reload(ls_server *server)
{
    if (server->reload_thread_running && server->reload_thread_ended) {
        ls_thread_join(&server->reload_thread);
        server->reload_thread_running = server->reload_thread_ended = false;
    }
    if (!server->reload_asked || server->phase != PHASE_SERVING || server->reloading || server->reload_thread_running)
        return;
    server->reload_asked = false;
    /* As the workers: the site may start programs while it loads. */
    const int err = ls_thread_start_parent(&server->reload_thread, "ls-reload", reload_main, server);
    if (err == LS_OK)
        server->reload_thread_running = true;
    else
        ls_log(LS_LOG_ERROR, "reload failed: cannot start a thread: %s; the old site goes on", ls_err_text(err));
}
