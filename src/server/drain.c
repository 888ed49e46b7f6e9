/* drain.c - the stop of a server: it accepts no more, ends what is under way within drain_ms_max, and stops the
 * threads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "server/server_internal.h"

enum {
    JOIN_MS_MIN = 1000,   /* time given at least to the threads to end after the drain */
    DISCONNECT_MS = 3000, /* time given to closing connections once all handlers have ended */
    END_REPORT_MS = 200,  /* time given to the states to report what is ended */
    END_MS = 500, /* time given to requests, and then to Lua states, to end after a drain that has ended by time */
    STATUS_BYTES_MAX = 1 << 18, /* of what ls_server_poll_status writes */
    DRAIN_REPORT_MS = 2000      /* after this time, or half of drain_timeout, a drain logs what it waits for */
};

/* One step of the drain of the endpoints; `all`: also connections that have not sent a request yet. Returns what is
 * left. */
static uint32_t drain_endpoints(ls_server *server, bool all)
{
    uint32_t left = 0;
    ls_mutex_lock(&server->lists); /* a reload may be planning */
    for (ls_endpoint *e = NULL; (e = ls_server_next_endpoint(server, e)) != NULL;) left += e->ops->drain(e, all);
    ls_mutex_unlock(&server->lists);
    return left;
}

/* The supervisor waits for it, so that no other thread changes the lists; a stop may run handlers, so it holds no
 * lock. */
static void end_work(ls_server *server, enum ls_end_why why)
{
    ls_site_end_work(server->site, why);
    for (const ls_node *node = server->ending.next; node != &server->ending; node = node->next)
        if (LS_CONTAINER(node, ls_ending_site, node)->stage != ENDING_CLOSED)
            ls_site_end_work(LS_CONTAINER(node, ls_ending_site, node)->site, why);
}

static void begin_draining(ls_thread_ctx *ctx, ls_op *op)
{
    ls_server *server = LS_CONTAINER(op, ls_server, control);
    bool kept = false;
    for (ls_endpoint *e = NULL; (e = ls_server_next_endpoint(server, e)) != NULL;) {
        if (server->handed_over && !e->stopped) (void)ls_endpoint_keep(e, true);
        kept |= e->kept;
        if (!e->stopped) e->ops->stop(ctx, e);
        e->stopped = true;
    }
    if (server->control_socket != NULL) ls_control_stop(ctx, server->control_socket);
    (void)drain_endpoints(server, false);        /* before the site: its responses from now on announce the close */
    if (kept) end_work(server, LS_END_OUTDATED); /* first: it gives WebSockets the code of a restart */
    end_work(server, LS_END_STOP);
    ls_server_set_flag(server, &server->control_done, true);
}

uint32_t ls_server_drain_ms_left(const ls_server *server)
{
    const uint64_t ms = (ls_clock_ns() - server->stopped_ns) / 1000000u;
    return ms < server->settings.drain_ms_max ? server->settings.drain_ms_max - (uint32_t)ms : 0;
}

/* Whether every accepted request has its response. Closes connections without a pending request. */
static bool drained(ls_server *server, bool all)
{
    if (server->control_socket != NULL && !ls_control_idle(server->control_socket)) return false;
    return drain_endpoints(server, all) == 0 && ls_conn_limit_idle(&server->conn_limit) &&
           ls_posts_unfinished(&server->posts) == 0 && ls_server_busy(server) == 0;
}

/* true: the sites have no connections left. Old generations, which nothing serves any more, are closed. */
static bool disconnected(ls_server *server, bool first)
{
    ls_mutex_lock(&server->lists);
    uint32_t left = ls_site_connections(server->site);
    if (first && left > 0) ls_site_disconnect(server->site);
    left += ls_site_busy(server->site);
    for (const ls_node *node = server->ending.next; node != &server->ending; node = node->next)
        left += !ls_site_end(LS_CONTAINER(node, ls_ending_site, node)->site, true);
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

/* What runs yet, by scope, of all sites. */
static void describe_running(ls_server *server, char out[LS_SCOPE_TEXT_BYTES])
{
    unsigned counts[LS_SCOPES] = {0};
    ls_mutex_lock(&server->lists);
    ls_site_add_running(server->site, counts);
    for (const ls_node *node = server->ending.next; node != &server->ending; node = node->next)
        ls_site_add_running(LS_CONTAINER(node, ls_ending_site, node)->site, counts);
    ls_mutex_unlock(&server->lists);
    ls_scope_describe(counts, out, LS_SCOPE_TEXT_BYTES);
}

/* Log what the drain waits for. */
static void report_tasks(ls_server *server)
{
    char running[LS_SCOPE_TEXT_BYTES];
    describe_running(server, running);
    ls_log(LS_LOG_INFO,
           "draining takes until the last handler ends, at most %.3g s; a second signal ends it at once; "
           "still running: %s",
           server->settings.drain_ms_max / 1e3, running);
    ls_mutex_lock(&server->lists);
    ls_site_report(server->site, false);
    ls_mutex_unlock(&server->lists);
}

void ls_server_add_status(int level, const char *line, size_t len, void *user)
{
    ls_server *server = user;
    ls_mutex_lock(&server->status_mutex); /* a state may answer when the text is made already */
    if (server->status_text != NULL && server->status_bytes + len + 2 < STATUS_BYTES_MAX) {
        memcpy(server->status_text + server->status_bytes, line, len);
        server->status_bytes += len;
        server->status_text[server->status_bytes++] = '\n';
    }
    ls_mutex_unlock(&server->status_mutex);
}

static unsigned ask_status(ls_server *server, const ls_log_target *to)
{
    ls_mutex_lock(&server->lists);
    unsigned left = ls_site_ask_status(server->site, to);
    for (const ls_node *node = server->ending.next; node != &server->ending; node = node->next)
        left += ls_site_ask_status(LS_CONTAINER(node, ls_ending_site, node)->site, to);
    ls_mutex_unlock(&server->lists);
    return left;
}

void ls_server_poll_status(ls_server *server)
{
    ls_node waits;
    if (ls_list_empty(&server->status_waits)) return;
    ls_list_move(&waits, &server->status_waits);
    ls_mutex_lock(&server->status_mutex);
    server->status_text = malloc(STATUS_BYTES_MAX);
    server->status_bytes = 0;
    ls_mutex_unlock(&server->status_mutex);
    unsigned left = ask_status(server, &server->status_to);
    for (unsigned ms = 0; ms < END_REPORT_MS && left > 0; ms += SUPERVISE_MS) {
        (void)ls_cond_wait_ms(&server->changed, &server->mutex, SUPERVISE_MS);
        left = ask_status(server, NULL);
    }
    char last[80];
    (void)snprintf(last, sizeof last,
                   left == 1 ? "a Lua state computes, or blocks in a C function"
                             : "%u Lua states compute, or block in C functions",
                   left);
    if (left > 0) ls_server_add_status(0, last, strlen(last), server);
    ls_mutex_lock(&server->status_mutex);
    char *const text = server->status_text;
    server->status_text = NULL;
    if (text != NULL) text[server->status_bytes] = '\0';
    ls_mutex_unlock(&server->status_mutex);
    ls_server_end_reload_waits(&waits, text != NULL ? LS_OK : LS_ENOMEM, text != NULL ? text : ls_err_text(LS_ENOMEM));
    free(text);
}

/* Log what the end of the drain ends. A state whose handler computes or blocks does not report, and is waited for for
 * a moment. */
static void report_ended(ls_server *server)
{
    bool reported = false;
    for (unsigned ms = 0; ms < END_REPORT_MS && !reported; ms += SUPERVISE_MS) {
        if (ms > 0) (void)ls_cond_wait_ms(&server->changed, &server->mutex, SUPERVISE_MS);
        ls_mutex_lock(&server->lists);
        if (ms == 0) ls_site_report(server->site, true);
        reported = ls_site_reported(server->site);
        for (const ls_node *node = server->ending.next; node != &server->ending; node = node->next) {
            ls_site *site = LS_CONTAINER(node, ls_ending_site, node)->site;
            if (ms == 0) ls_site_report(site, true);
            reported &= ls_site_reported(site);
        }
        ls_mutex_unlock(&server->lists);
    }
}

int ls_server_drain(ls_server *server)
{
    const uint64_t from_ns = ls_clock_ns();
    const uint32_t half_ms = server->settings.drain_ms_max / 2,
                   report_ms = half_ms < DRAIN_REPORT_MS ? half_ms : DRAIN_REPORT_MS;
    const uint32_t fresh_ms = server->serves_elsewhere ? LS_HTTP_PATIENT_MS : LS_ENDPOINT_FRESH_MS;
    bool reported = false;
    ls_server_end_reload_waits(&server->reload_waits, LS_ECANCELED, "the server stops");
    ls_server_end_reload_waits(&server->status_waits, LS_ECANCELED, "the server stops");
    int err = ls_server_await(server, &server->committing, false);
    if (err == LS_OK) err = ls_server_on_workers(server, begin_draining);
    if (err < 0) return err;
    for (;;) {
        const uint64_t ms = (ls_clock_ns() - from_ns) / 1000000u;
        if (drained(server, ms >= fresh_ms)) break;
        if (server->phase == PHASE_HARD) return LS_ECANCELED;
        if (ls_server_drain_ms_left(server) == 0) {
            report_ended(server);
            return LS_ETIMEDOUT;
        }
        if (!reported && ms >= report_ms) {
            reported = true;
            report_tasks(server);
        }
        (void)ls_server_poll_generations(server);
        (void)ls_cond_wait_ms(&server->changed, &server->mutex, SUPERVISE_MS);
    }
    if ((err = disconnect(server)) < 0) return err;
    if ((err = ls_server_await(server, &server->reloading, false)) < 0) return err; /* a site that still loads */
    return server->reload_thread_running ? ls_server_await(server, &server->reload_thread_ended, true) : LS_OK;
}

int ls_server_join(ls_server *server)
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

static void abort_connections(ls_server *server)
{
    ls_mutex_lock(&server->lists);
    for (ls_endpoint *e = NULL; (e = ls_server_next_endpoint(server, e)) != NULL;) e->ops->abort(e);
    ls_mutex_unlock(&server->lists);
}

/* Requests that are ended now get 503: another server may do what this one has not done. */
static void end_requests(ls_server *server)
{
    ls_mutex_lock(&server->lists);
    ls_site_end_work(server->site, LS_END_REQUESTS);
    for (const ls_node *node = server->ending.next; node != &server->ending; node = node->next)
        ls_site_end_work(LS_CONTAINER(node, ls_ending_site, node)->site, LS_END_REQUESTS);
    ls_mutex_unlock(&server->lists);
    ls_mutex_lock(&server->mutex);
    for (unsigned ms = 0; ms < END_MS && server->phase != PHASE_HARD && !ls_conn_limit_idle(&server->conn_limit);
         ms += SUPERVISE_MS)
        (void)ls_cond_wait_ms(&server->changed, &server->mutex, SUPERVISE_MS);
    ls_mutex_unlock(&server->mutex);
}

void ls_server_abort(ls_server *server)
{
    ls_http_stats http = {0};
    ls_udp_stats udp = {0};
    char running[LS_SCOPE_TEXT_BYTES];
    describe_running(server, running);
    ls_mutex_lock(&server->lists);
    uint32_t all = ls_site_connections(server->site), websockets = ls_site_websockets(server->site);
    for (const ls_node *node = server->ending.next; node != &server->ending; node = node->next) {
        all += ls_site_connections(LS_CONTAINER(node, ls_ending_site, node)->site);
        websockets += ls_site_websockets(LS_CONTAINER(node, ls_ending_site, node)->site);
    }
    const uint32_t others = all > websockets ? all - websockets : 0; /* both change while they are read */
    for (ls_endpoint *e = NULL; (e = ls_server_next_endpoint(server, e)) != NULL;) e->ops->stat(e, &http, &udp);
    ls_mutex_unlock(&server->lists);
    ls_log(LS_LOG_WARN,
           "the drain took longer than %.3g s; ended connections: HTTP %llu, TCP %u, WebSocket %u; tasks: %s",
           server->settings.drain_ms_max / 1e3, (unsigned long long)http.open, others, websockets, running);
    if (http.open > 0) end_requests(server);
    abort_connections(server);
}

/* End the requests, and after END_MS all that is left. true: nothing is left. */
static bool end_tasks(ls_server *server, uint64_t ms)
{
    bool ended = ls_conn_limit_idle(&server->conn_limit);
    abort_connections(server); /* a stop that was waiting for a thread may have accepted connections */
    ls_mutex_lock(&server->lists);
    if (!ended && ms < END_MS) {
        ls_site_end_work(server->site, LS_END_REQUESTS);
    } else {
        ended &= ls_site_end(server->site, true);
        for (const ls_node *node = server->ending.next; node != &server->ending; node = node->next)
            ended &= ls_site_end(LS_CONTAINER(node, ls_ending_site, node)->site, true);
    }
    ls_mutex_unlock(&server->lists);
    ls_mutex_lock(&server->mutex);
    ls_server_poll_reload(server);
    ended &= !server->reloading && !server->committing && !server->reload_thread_running;
    ls_mutex_unlock(&server->mutex);
    return ended && ls_posts_unfinished(&server->posts) == 0 &&
           (server->control_socket == NULL || ls_control_idle(server->control_socket));
}

bool ls_server_end(ls_server *server)
{
    const uint64_t from_ns = ls_clock_ns();
    uint64_t ms = 0;
    bool ended = server->drained; /* the threads take no packets any more: nothing but they can be waited for */
    if (server->signals != NULL) ls_signals_close(server->signals);
    server->signals = NULL;
    while (!ended && !(ended = end_tasks(server, ms)) && (ms = (ls_clock_ns() - from_ns) / 1000000u) < 2u * END_MS)
        ls_clock_sleep_ms(SUPERVISE_MS);
    ls_workers_stop(server->workers);
    if (ls_workers_join(server->workers, ended ? JOIN_MS_MIN : SUPERVISE_MS) && ended) return true;
    const unsigned threads = ls_workers_leave(server->workers);
    ls_log(LS_LOG_WARN, "closed before its end: its memory is left, and %u threads that have not ended", threads);
    return false;
}
