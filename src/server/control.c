/* control.c - see control.h. A connection floats: its packets run on any thread, outside of every Lua state, until
 * "repl" gives it to one. */
#include "server/control.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io/log.h"
#include "base/io/owner.h"
#include "net/acceptor.h"
#include "net/stream/stream.h"

enum {
    FIRST_LINE_MS_MAX = 5000, /* from the accept to the first line */
    REPLY_MS_MAX = 5000,      /* for the client to read a reply */
    FIRST_LINE_BYTES_MAX = 64,
    STAT_BYTES_MAX = 96, /* of one line of "stats" */
    RELOADS_MAX = 1024,  /* that have not ended, also of clients that have left */
};

struct ls_control {
    ls_port *port;
    const ls_control_calls *calls;
    ls_addr at;         /* the path; of a process that replaces another one it is taken over at the start: */
    ls_path_id path_id; /* of the socket then */
    bool replaces;
    ls_runtime *runtime;
    ls_acceptor *acceptor;
    ls_acceptor_service *service;
    ls_conn_limit limit;               /* its own: the control socket answers also at the limit of the server */
    ls_conn_limit session_limit;       /* instead of it, from "repl" on */
    _Atomic(ls_tcp_server *) sessions; /* of the current generation */
    ls_mutex reloading;                /* held for a moment: a reload ends while its client leaves */
    unsigned reloads;
    bool stopped;
};

typedef struct connection { /* the user data of a stream until "repl" */
    ls_control *control;
} connection;

static void run(ls_thread_ctx *ctx, ls_stream *s, int64_t result);

static void sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    ls_stream_close(ctx, s);
}

static void closed(ls_thread_ctx *ctx, ls_stream *s)
{
    const connection *c = ls_stream_user(s);
    ls_conn_limit_leave(&c->control->limit);
    ls_stream_free(s);
}

static const ls_stream_handler handler = {.received = run, .sent = sent, .closed = closed};

typedef struct reply {
    ls_thread_ctx *ctx;
    ls_stream *stream;
} reply;

/* Without memory for a line, it is left out. */
static void add_stat(void *to, const char *name, double value)
{
    const reply *r = to;
    char *room = ls_stream_room(r->ctx, r->stream, STAT_BYTES_MAX);
    if (room == NULL) return;
    const int bytes = snprintf(room, STAT_BYTES_MAX, "%s %.15g\n", name, value);
    ls_stream_commit(r->stream, bytes < STAT_BYTES_MAX ? (size_t)bytes : 0);
}

static void send_stats(ls_thread_ctx *ctx, ls_stream *s, const ls_site_host *host)
{
    reply to = {ctx, s};
    host->stats(host->server, add_stat, &to);
    ls_stream_send_within(s, REPLY_MS_MAX);
    if (ls_stream_flush(ctx, s) != LS_PENDING) ls_stream_close(ctx, s);
}

/* ---- reload --------------------------------------------------------------------------------------------------- */

/* The stream has no pending operation but the watch, which ends when the client leaves: it must not hold a place of
 * the limit until the reload ends. Whichever of `reload_ended` and `client_left` is the second frees the struct. */
typedef struct reloading {
    ls_reload_wait wait;
    ls_op op;
    ls_stream_watch watch;
    ls_control *control;
    ls_stream *stream; /* NULL: the client has left */
    bool watched, ended;
    char *reply; /* NULL: out of memory */
} reloading;

static void reply_at_last(ls_thread_ctx *ctx, ls_stream *s, const char *text)
{
    (void)ls_stream_put(ctx, s, text, strlen(text)); /* without memory the connection closes */
    ls_stream_send_within(s, REPLY_MS_MAX);
    if (ls_stream_flush(ctx, s) != LS_PENDING) ls_stream_close(ctx, s);
}

static void free_reloading(reloading *r)
{
    free(r->reply);
    free(r);
}

static void reply_reloaded(ls_thread_ctx *ctx, ls_op *op)
{
    reloading *r = LS_CONTAINER(op, reloading, op);
    reply_at_last(ctx, r->stream, r->reply != NULL ? r->reply : "failed out of memory");
    free_reloading(r);
}

static void client_left(ls_thread_ctx *ctx, ls_stream_watch *watch)
{
    reloading *r = LS_CONTAINER(watch, reloading, watch);
    ls_stream *s = r->stream;
    ls_mutex_lock(&r->control->reloading);
    const bool ended = r->ended;
    r->stream = NULL;
    ls_mutex_unlock(&r->control->reloading);
    if (ended) free_reloading(r);
    ls_stream_close(ctx, s);
}

static void reload_ended(ls_reload_wait *wait, int result, const char *message)
{
    reloading *r = LS_CONTAINER(wait, reloading, wait);
    ls_control *control = r->control;
    const size_t bytes = strlen(message) + sizeof "failed ";
    if ((r->reply = malloc(bytes)) != NULL)
        (void)snprintf(r->reply, bytes, "%s%s%s", result == LS_OK ? "ok" : "failed", message[0] != '\0' ? " " : "",
                       message);
    r->op = (ls_op){.done = reply_reloaded};
    ls_mutex_lock(&control->reloading);
    const bool left = r->stream == NULL;
    const bool leaves = !left && r->watched && !ls_stream_unwatch(r->stream, &r->watch);
    r->ended = true;
    control->reloads--;
    ls_mutex_unlock(&control->reloading);
    if (left)
        free_reloading(r);
    else if (!leaves)
        ls_port_post(control->port, &r->op, 0);
}

static void begin_reload(ls_thread_ctx *ctx, ls_stream *s, ls_control *control,
                         void (*what)(void *server, ls_reload_wait *wait))
{
    ls_mutex_lock(&control->reloading);
    reloading *r = control->reloads < RELOADS_MAX ? calloc(1, sizeof *r) : NULL;
    if (r == NULL) {
        ls_mutex_unlock(&control->reloading);
        reply_at_last(ctx, s, "failed too many reloads wait");
        return;
    }
    *r = (reloading){.wait.ended = reload_ended, .watch.lost = client_left, .control = control, .stream = s};
    control->reloads++;
    const int err = ls_stream_watch_begin(ctx, s, &r->watch);
    r->watched = err == LS_PENDING;
    if (err == LS_ERESET) r->stream = NULL;
    ls_mutex_unlock(&control->reloading);
    what(control->runtime->host->server, &r->wait);
    if (err == LS_ERESET) ls_stream_close(ctx, s);
}

/* What app:health says from now on. A drain is stronger. */
static void set_ready(ls_thread_ctx *ctx, ls_stream *s, ls_runtime *runtime, bool ready)
{
    if (ready)
        atomic_fetch_and(&runtime->unready, ~(unsigned)LS_UNREADY_ASKED);
    else
        atomic_fetch_or(&runtime->unready, LS_UNREADY_ASKED);
    const bool drains = atomic_load(&runtime->unready) & LS_UNREADY_DRAINS;
    ls_log(LS_LOG_INFO, ready ? "ready, by the control socket%s" : "not ready, by the control socket%s",
           drains ? "; the server drains" : "");
    reply_at_last(ctx, s, drains ? "draining" : "ok");
}

/* Give the stream to a Lua state, as a new one. `received` goes back: the session reads its first line again. */
static void begin_session(ls_thread_ctx *ctx, ls_stream *s, ls_control *control, ls_slice received)
{
    if (!ls_conn_limit_enter(&control->session_limit)) {
        ls_slice_drop(&received);
        reply_at_last(ctx, s, "error 35 0\n64 sessions are open; close another");
        return;
    }
    ls_conn_limit_leave(&control->limit);
    ls_stream_recv_within(s, 0);
    ls_stream_unread(s, received);
    memset(ls_stream_user(s), 0, ls_tcp_user_bytes);
    ls_tcp_start(ctx, s, atomic_load(&control->sessions));
}

/* The first line without its end in `line`. false: it is incomplete or too long. */
static bool first_line(const ls_slice *received, char line[FIRST_LINE_BYTES_MAX])
{
    const char *end = memchr(received->ptr, '\n', received->len);
    const size_t bytes = end != NULL ? (size_t)(end - received->ptr) : 0;
    if (end == NULL || bytes >= FIRST_LINE_BYTES_MAX || memchr(received->ptr, '\0', bytes) != NULL) return false;
    memcpy(line, received->ptr, bytes);
    line[bytes] = '\0';
    return true;
}

/* The receive of the first bytes has ended. A client sends its first line in one call. */
static void run(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    static const char interrupt[] = "interrupt ";
    ls_control *control = ((connection *)ls_stream_user(s))->control;
    char line[FIRST_LINE_BYTES_MAX] = "";
    if (result <= 0) {
        ls_stream_close(ctx, s);
        return;
    }
    ls_slice received = ls_stream_take(s);
    if (first_line(&received, line) && strcmp(line, "repl") == 0) {
        begin_session(ctx, s, control, received);
        return;
    }
    ls_slice_drop(&received);
    if (strcmp(line, "stats") == 0) {
        send_stats(ctx, s, control->runtime->host);
        return;
    }
    const ls_control_calls *calls = control->calls;
    const bool reloads = strcmp(line, "reload") == 0, upgrades = strcmp(line, "upgrade") == 0;
    if (reloads || upgrades || strcmp(line, "status") == 0) {
        begin_reload(ctx, s, control, reloads ? calls->reload : upgrades ? calls->upgrade : calls->status);
        return;
    }
    const bool ready = strcmp(line, "ready") == 0;
    if (ready || strcmp(line, "unready") == 0) {
        set_ready(ctx, s, control->runtime, ready);
        return;
    }
    if (strncmp(line, interrupt, sizeof interrupt - 1) == 0) {
        const char *digits = line + sizeof interrupt - 1;
        const uint64_t number = strtoull(digits, NULL, 10);
        if (digits[strspn(digits, "0123456789")] == '\0' && number > 0) ls_interrupts_set(control->runtime, number);
    }
    ls_stream_close(ctx, s);
}

static bool is_owner(ls_thread_ctx *ctx, ls_stream *s)
{
    char reply[32];
    uint32_t user = 0;
    const int err = ls_stream_peer_user(s, &user);
    if (err == LS_ENOTSUP) return true; /* Windows: the permissions of the path decide */
    if (err == LS_OK && (user == 0 || ls_user_is_self(user))) return true;
    ls_log(LS_LOG_WARN, "the control socket: refused a connection of user %" PRIu32, user);
    (void)snprintf(reply, sizeof reply, "refused %" PRIu32, user);
    reply_at_last(ctx, s, reply);
    return false;
}

static void accepted(ls_thread_ctx *ctx, ls_stream *s, void *user)
{
    int64_t result;
    ls_stream_handover(s, &handler);
    ((connection *)ls_stream_user(s))->control = user;
    if (!is_owner(ctx, s)) return;
    ls_stream_recv_within(s, FIRST_LINE_MS_MAX);
    const int err = ls_stream_recv(ctx, s, NULL, LS_BLOCK_SMALL, &result);
    if (err == LS_PENDING) return;
    run(ctx, s, err == LS_DONE ? result : err);
}

int ls_control_open(ls_port *port, ls_deadlines *deadlines, ls_runtime *runtime, const ls_control_calls *calls,
                    const char *path, bool replaces, ls_control **out)
{
    static const ls_path_access owner_only = {.has_mode = true, .mode = 0600};
    ls_control *control = calloc(1, sizeof *control);
    ls_addr at = {.family = LS_ADDR_UNIX};
    int err = LS_ENOMEM;
    assert(sizeof(connection) <= ls_tcp_user_bytes); /* the room of the stream */
    if (control == NULL) return err;
    control->port = port;
    control->calls = calls;
    control->runtime = runtime;
    ls_conn_limit_open(&control->limit, LS_CONTROL_CONNECTIONS_MAX);
    ls_conn_limit_open(&control->session_limit, LS_CONTROL_CONNECTIONS_MAX);
    ls_mutex_open(&control->reloading);
    const size_t bytes = strlen(path);
    err = bytes == 0 ? LS_EINVAL : LS_ELIMIT;
    if (bytes == 0 || bytes + replaces >= sizeof at.bytes) goto fail_limit;
    memcpy(at.bytes, path, bytes);
    at.bytes_len = (uint8_t)bytes;
    control->at = at;
    control->replaces = replaces;
    if (replaces) at.bytes[at.bytes_len++] = '~'; /* until ls_control_start */

    const ls_acceptor_service_options service = {.protocol = {accepted, control, ls_tcp_user_bytes}};
    const ls_acceptor_options options = {
        .deadlines = deadlines,
        .limit = &control->limit,
        .listener = {.backlog = LS_CONTROL_CONNECTIONS_MAX, .accepts = 1, .access = &owner_only}};
    if ((err = ls_acceptor_service_open(&service, &control->service)) < 0) goto fail_limit;
    if ((err = ls_acceptor_open(port, &at, &options, control->service, &control->acceptor)) < 0) goto fail_service;
    *out = control;
    return LS_OK;

fail_service:
    ls_acceptor_service_drop(control->service);
fail_limit:
    ls_mutex_close(&control->reloading);
    ls_conn_limit_close(&control->session_limit);
    ls_conn_limit_close(&control->limit);
    free(control);
    return err;
}

void ls_control_serve(ls_control *control, ls_site *site)
{
    atomic_store(&control->sessions, ls_site_control(site, &control->session_limit));
}

void ls_control_start(ls_thread_ctx *ctx, ls_control *control)
{
    ls_acceptor_start(ctx, control->acceptor);
    if (!control->replaces) return;
    char from[sizeof control->at.bytes + 2];
    const char *path = (const char *)control->at.bytes;
    (void)snprintf(from, sizeof from, "%s~", path);
    ls_sock_path_id(ls_acceptor_addr(control->acceptor), &control->path_id);
    if (rename(from, path) != 0) ls_log(LS_LOG_ERROR, "the control socket %s cannot be taken over", path);
}

void ls_control_stop(ls_thread_ctx *ctx, ls_control *control)
{
    control->stopped = true;
    if (control->replaces) ls_sock_unlink(&control->at, &control->path_id);
    ls_acceptor_stop(ctx, control->acceptor);
}

bool ls_control_idle(const ls_control *control)
{
    return ls_conn_limit_idle(&control->limit) && ls_conn_limit_idle(&control->session_limit);
}

void ls_control_close(ls_control *control, ls_thread_ctx *ctx)
{
    if (!control->stopped) ls_control_stop(ctx, control);
    ls_acceptor_close(control->acceptor);
    ls_acceptor_service_drop(control->service);
    ls_mutex_close(&control->reloading);
    ls_conn_limit_close(&control->session_limit);
    ls_conn_limit_close(&control->limit);
    free(control);
}
