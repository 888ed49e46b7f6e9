/* postgres_libpq.c - see postgres_libpq.h: the states of the connections, the queue, notifications. */
#include "script/database/postgres_libpq.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "base/os/library.h"
#include "base/os/thread.h"
#include "base/utf8.h"

#define NS_PER_MS UINT64_C(1000000)

enum { TICK_MS = 100, WHERE_BYTES = 200, LISTEN_BYTES = 2048 };

typedef struct channel { /* of notifications */
    struct channel *next;
    bool sent; /* LISTEN was, on this connection */
    char name[LS_PG_CHANNEL_BYTES_MAX + 1];
} channel;

struct ls_pg {
    ls_shared_object base; /* first */
    ls_libpq pq;
    char where[WHERE_BYTES];
    ls_topics *topics;
    ls_mutex lock;
    ls_port *port; /* NULL: the site has not loaded yet, or the server ends */
    ls_pg_limits limits;
    ls_node all, idle, queue;  /* connections; those that are idle, the one used last in front; leases */
    unsigned open, connecting; /* not CLOSED; CONNECTING or SETUP; without the listener */
    unsigned waiting;
    ls_pg_conn *listener;
    channel *channels;
    char refusal[LS_PG_MESSAGE_BYTES], sqlstate[6];
    uint64_t retry_ns; /* no connection is opened before */
    unsigned retry_ms; /* 0: the last one succeeded */
    ls_timer timer;
    bool ticking;
    ls_pg_stats stats; /* connections and waiting: when they are asked for */
    _Atomic unsigned epoch;
    char url[];
};

static void drive(ls_pg_conn *conn);
static void feed(ls_pg *pool, ls_node *woken);

/* ---- statements ------------------------------------------------------------------------------------------------ */

void ls_pg_statement_free(ls_pg_statement *statement)
{
    free(statement->sql);
    free(statement->types);
    *statement = (ls_pg_statement){0};
}

ls_pg_statement *ls_pg_statement_find(ls_pg_conn *conn, const char *sql, size_t len)
{
    ls_pg_statement *oldest = conn->statements;
    for (ls_pg_statement *one = conn->statements; one < conn->statements + LS_PG_STATEMENTS_MAX; one++) {
        if (one->sql != NULL && one->len == len && memcmp(one->sql, sql, len) == 0) {
            one->used = ++conn->clock;
            return one;
        }
        if (one->used < oldest->used) oldest = one;
    }
    return oldest;
}

void ls_pg_begin(ls_pg_conn *conn)
{
    conn->running = true;
    conn->begun_ns = ls_clock_ns();
}

void ls_pg_end(ls_pg_conn *conn)
{
    ls_pg *pool = conn->pool;
    if (!conn->running) return;
    conn->running = false;
    ls_mutex_lock(&pool->lock);
    pool->stats.statements++;
    pool->stats.busy_ns += ls_clock_ns() - conn->begun_ns;
    ls_mutex_unlock(&pool->lock);
}

unsigned ls_pg_epoch(ls_pg *pool, bool begins)
{
    return atomic_fetch_add_explicit(&pool->epoch, begins, memory_order_relaxed);
}

/* ---- messages -------------------------------------------------------------------------------------------------- */

void ls_pg_explain(const char *message, char out[LS_PG_MESSAGE_BYTES], char sqlstate[6])
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const char *line = message;
    for (const char *at = message; (at = strstr(at, "\nconnection to server")) != NULL; line = ++at) continue;
    (void)snprintf(out, LS_PG_MESSAGE_BYTES, "%.*s", (int)strcspn(line, "\n"), line);
    char *state = strstr(out, ":  ");
    sqlstate[0] = '\0';
    if (state != NULL && strspn(state + 3, letters) == 5 && strncmp(state + 8, ": ", 2) == 0) {
        (void)snprintf(sqlstate, 6, "%.5s", state + 3);
        memmove(state + 2, state + 10, strlen(state + 10) + 1);
    }
    for (size_t n, at = 0, len = strlen(out); at < len; at += n) { /* the server may send anything */
        n = ls_utf8_len((const unsigned char *)out + at, len - at);
        if (n == 0 || (unsigned char)out[at] < ' ') out[at] = '?';
        if (n == 0) n = 1;
    }
}

/* ---- one connection; the lock is held --------------------------------------------------------------------------- */

static void tick_later(ls_pg *pool)
{
    if (pool->ticking || pool->port == NULL) return;
    pool->ticking = ls_timer_set(pool->port, &pool->timer, ls_clock_ns() + TICK_MS * NS_PER_MS) == LS_OK;
}

/* Have a packet follow. LS_OK, or why not. */
static int arm(ls_pg_conn *conn, uint16_t events)
{
    ls_port *port = conn->pool->port;
    ls_registration registration = {.fd = conn->pq->PQsocket(conn->pg),
                                    .key = conn,
                                    .events = events,
                                    .trigger = LS_TRIGGER_ONESHOT | LS_TRIGGER_LEVEL,
                                    .operation = LS_NOTIFY_ENABLE};
    if (port == NULL) return LS_OK;
    (void)ls_port_notify(port, NULL, &registration, 1, NULL, 0, 0);
    if (registration.result != LS_ENOENT) return registration.result;
    registration.operation = LS_NOTIFY_REGISTER; /* the first time, or libpq has opened another socket */
    registration.result = LS_OK;
    (void)ls_port_notify(port, NULL, &registration, 1, NULL, 0, 0);
    return registration.result;
}

static bool is_new(const ls_pg_conn *conn)
{
    return conn->state == LS_PG_CONNECTING || conn->state == LS_PG_SETUP;
}

static void set_state(ls_pg_conn *conn, enum ls_pg_state state)
{
    ls_pg *pool = conn->pool;
    const bool was_open = conn->state != LS_PG_CLOSED, was_new = is_new(conn);
    conn->state = state;
    if (conn->listens) return;
    pool->open = pool->open - was_open + (state != LS_PG_CLOSED);
    pool->connecting = pool->connecting - was_new + is_new(conn);
}

static void close_conn(ls_pg_conn *conn)
{
    ls_pg *pool = conn->pool;
    if (conn->pg != NULL) {
        const int fd = conn->pq->PQsocket(conn->pg);
        if (fd >= 0 && pool->port != NULL) ls_port_unregister(pool->port, fd);
        conn->pq->PQfinish(conn->pg);
    }
    conn->pg = NULL;
    conn->running = conn->ends = false;
    conn->statement = NULL;
    ls_list_remove(&conn->node);
    for (unsigned n = 0; n < LS_PG_STATEMENTS_MAX; n++) ls_pg_statement_free(&conn->statements[n]);
    if (conn->listens)
        for (channel *one = pool->channels; one != NULL; one = one->next) one->sent = false;
    set_state(conn, LS_PG_CLOSED);
}

static void keep_refusal(ls_pg *pool, const char *message)
{
    ls_pg_explain(message, pool->refusal, pool->sqlstate);
}

/* The server has refused the connection, or that for notifications is lost. */
static void refused(ls_pg_conn *conn, const char *message, ls_node *woken)
{
    ls_pg *pool = conn->pool;
    const bool listened = conn->state == LS_PG_LISTENING;
    keep_refusal(pool, message);
    close_conn(conn);
    if (listened || pool->retry_ms == 0) ls_log(LS_LOG_WARN, "ls.postgres: %s: %s", pool->where, pool->refusal);
    pool->stats.lost++;
    tick_later(pool); /* it opens the listener */
    if (listened) return;
    pool->retry_ms = pool->retry_ms == 0 ? LS_PG_RETRY_MS_MIN : pool->retry_ms * 2;
    if (pool->retry_ms > LS_PG_RETRY_MS_MAX) pool->retry_ms = LS_PG_RETRY_MS_MAX;
    pool->retry_ns = ls_clock_ns() + pool->retry_ms * NS_PER_MS;
    feed(pool, woken);
}

static void put_idle(ls_pg_conn *conn)
{
    ls_pg *pool = conn->pool;
    set_state(conn, LS_PG_IDLE);
    ls_list_push(pool->idle.next, &conn->node); /* the front */
    if (pool->open > pool->limits.connections || conn->pq->PQsetnonblocking(conn->pg, 1) != 0 ||
        arm(conn, LS_EVENT_IN) < 0)
        close_conn(conn);
}

/* Send a statement whose result is dropped: afterwards the connection is idle, or listens. */
static bool prepare(ls_pg_conn *conn, const char *sql)
{
    set_state(conn, LS_PG_SETUP);
    conn->due_ns = ls_clock_ns() + conn->pool->limits.connect_timeout_ms * NS_PER_MS;
    tick_later(conn->pool);
    return conn->pq->PQsetnonblocking(conn->pg, 1) == 0 && conn->pq->PQsendQuery(conn->pg, sql) == 1 &&
           conn->pq->PQflush(conn->pg) >= 0 && arm(conn, LS_EVENT_IN | LS_EVENT_OUT) == LS_OK;
}

/* What a connection begins with, whatever the role has set: how values are read. The last setting is of PostgreSQL
 * 14. */
static const char settings[] = "set bytea_output = hex; set datestyle = iso; set extra_float_digits = 3; select "
                               "set_config('client_connection_check_interval', '500', false) "
                               "where current_setting('server_version_num')::int >= 140000";

/* Of an idle connection: neither closed nor about to be. */
static bool is_usable(ls_pg_conn *conn)
{
    const bool usable = conn->pq->PQconsumeInput(conn->pg) == 1 && conn->pq->PQisBusy(conn->pg) == 0 && !conn->ends &&
                        conn->pq->PQstatus(conn->pg) == CONNECTION_OK;
    ls_pg_drop_notifications(conn);
    return usable;
}

static void connect_on(ls_pg_conn *conn, ls_node *woken)
{
    if (conn->pool->port == NULL) return; /* a stop, which closes it */
    conn->driven = ls_port_work(conn->pool->port, &conn->work) == LS_PENDING;
    if (!conn->driven) refused(conn, "not enough memory for a thread", woken);
}

static void packet_taken(ls_thread_ctx *ctx, const ls_packet *packet)
{
    ls_pg_conn *conn = packet->key;
    ls_pg *pool = conn->pool;
    ls_node woken = LS_LIST_INIT(woken);
    ls_mutex_lock(&pool->lock);
    const bool drives = !conn->driven && (conn->state == LS_PG_SETUP || conn->state == LS_PG_LISTENING);
    if (drives) {
        conn->driven = true;
    } else if (conn->state == LS_PG_CONNECTING && !conn->driven) {
        connect_on(conn, &woken);
    } else if (conn->state == LS_PG_LEASED && conn->waiter != NULL) {
        ls_waiter_decide(conn->waiter, LS_OK, &woken);
        conn->waiter = NULL;
    } else if (conn->state == LS_PG_IDLE) { /* a notice, or the end */
        if (is_usable(conn) && arm(conn, LS_EVENT_IN) == LS_OK) goto unlock;
        pool->stats.lost++;
        close_conn(conn);
    }
unlock:
    ls_mutex_unlock(&pool->lock);
    ls_waiters_wake(&woken);
    if (drives) drive(conn);
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

/* `seconds`: the call waits so long; NULL: it begins to connect. */
static PGconn *begin(const ls_pg *pool, const char *seconds)
{
    static const char *const names[] = {"dbname", "client_encoding", "fallback_application_name", "connect_timeout",
                                        NULL};
    const char *const values[] = {pool->url, "UTF8", "luaserve", seconds != NULL ? seconds : "0", NULL};
    return (seconds != NULL ? pool->pq.PQconnectdbParams : pool->pq.PQconnectStartParams)(names, values, 1);
}

/* Without a receiver libpq prints notices. */
static void notice_received(void *conn, const PGresult *notice)
{
    const char *severity = ((ls_pg_conn *)conn)->pq->PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
    if (severity != NULL && strcmp(severity, "FATAL") == 0) ((ls_pg_conn *)conn)->ends = true;
}

static void set_up(ls_pg_conn *conn)
{
    (void)conn->pq->PQsetErrorVerbosity(conn->pg, PQERRORS_VERBOSE);
    (void)conn->pq->PQsetNoticeReceiver(conn->pg, notice_received, conn);
}

/* A step of the connection, on a thread of its own: each one may look up the name of a further host. */
static int64_t run_step(ls_work *work)
{
    ls_pg_conn *conn = LS_CONTAINER(work, ls_pg_conn, work);
    if (conn->pg != NULL) return conn->pq->PQconnectPoll(conn->pg);
    if ((conn->pg = begin(conn->pool, NULL)) == NULL) return PGRES_POLLING_FAILED;
    set_up(conn);
    return conn->pq->PQstatus(conn->pg) == CONNECTION_BAD ? PGRES_POLLING_FAILED : PGRES_POLLING_WRITING;
}

static void step_done(ls_thread_ctx *ctx, ls_op *op)
{
    ls_pg_conn *conn = LS_CONTAINER(LS_CONTAINER(op, ls_work, op), ls_pg_conn, work);
    ls_pg *pool = conn->pool;
    const int64_t next = atomic_load_explicit(&op->result, memory_order_relaxed);
    ls_node woken = LS_LIST_INIT(woken);
    ls_mutex_lock(&pool->lock);
    conn->driven = false;
    if (next == PGRES_POLLING_OK ? !prepare(conn, settings)
                                 : next == PGRES_POLLING_FAILED ||
                                       arm(conn, next == PGRES_POLLING_WRITING ? LS_EVENT_OUT : LS_EVENT_IN) < 0)
        refused(conn, conn->pg != NULL ? conn->pq->PQerrorMessage(conn->pg) : "not enough memory", &woken);
    ls_mutex_unlock(&pool->lock);
    ls_waiters_wake(&woken);
}

/* A connection that is closed; NULL: out of memory. */
static ls_pg_conn *conn_new(ls_pg *pool)
{
    LS_LIST_EACH (ls_pg_conn, closed, &pool->all, all)
        if (closed->state == LS_PG_CLOSED && !closed->listens) return closed;
    ls_pg_conn *conn = calloc(1, sizeof *conn);
    if (conn == NULL) return NULL;
    conn->handler.handle = packet_taken;
    conn->pool = pool;
    conn->pq = &pool->pq;
    conn->work.run = run_step;
    conn->work.op.done = step_done;
    ls_node_init(&conn->node);
    ls_list_push(&pool->all, &conn->all);
    return conn;
}

/* Begin to open a connection. */
static void open_conn(ls_pg *pool, ls_pg_conn *conn, ls_node *woken)
{
    if (conn == NULL) return;
    set_state(conn, LS_PG_CONNECTING);
    conn->due_ns = ls_clock_ns() + pool->limits.connect_timeout_ms * NS_PER_MS;
    tick_later(pool);
    connect_on(conn, woken);
}

static void open_listener(ls_pg *pool, ls_node *woken)
{
    if (pool->channels == NULL || pool->port == NULL) return;
    tick_later(pool); /* it tries again */
    if (pool->listener == NULL) {
        if ((pool->listener = conn_new(pool)) == NULL) return;
        pool->listener->listens = true;
    }
    if (pool->listener->state == LS_PG_CLOSED && ls_clock_ns() >= pool->retry_ns)
        open_conn(pool, pool->listener, woken);
}

static ls_pg_conn *pop_idle(ls_pg *pool)
{
    LS_LIST_TAKE (ls_pg_conn, conn, &pool->idle, node) {
        if (is_usable(conn)) {
            set_state(conn, LS_PG_LEASED);
            return conn;
        }
        pool->stats.lost++;
        close_conn(conn);
    }
    return NULL;
}

/* Decide for the tasks that wait: each gets an idle connection, or one is opened for it, or the server has refused. */
static void feed(ls_pg *pool, ls_node *woken)
{
    const bool down = ls_clock_ns() < pool->retry_ns;
    ls_pg_conn *conn = NULL;
    while (!ls_list_empty(&pool->queue) && ((conn = pop_idle(pool)) != NULL || (down && pool->open == 0))) {
        ls_pg_lease *lease = LS_CONTAINER(pool->queue.next, ls_pg_lease, node);
        ls_list_remove(&lease->node);
        pool->waiting--;
        lease->conn = conn;
        ls_waiter_decide(lease->waiter, conn != NULL ? LS_OK : LS_EREFUSED, woken);
        lease->waiter = NULL;
    }
    while (!down && pool->port != NULL && pool->connecting < pool->waiting && pool->open < pool->limits.connections) {
        const unsigned connecting = pool->connecting;
        open_conn(pool, conn_new(pool), woken);
        if (pool->connecting == connecting) break;
    }
    if (pool->waiting > 0) tick_later(pool);
}

/* ---- what packets and ticks do
 * ----------------------------------------------------------------------------------- */

static void publish(ls_pg *pool, const PGnotify *notify)
{
    char topic[WHERE_BYTES + LS_PG_CHANNEL_BYTES_MAX + 12];
    const int len = snprintf(topic, sizeof topic, "postgres:%s:%s", pool->where, notify->relname);
    if (len < 0 || (size_t)len >= sizeof topic) return; /* no name that this server can have listened to */
    const ls_publish_order order = {.topic = topic,
                                    .topic_len = (size_t)len,
                                    .data = {.ptr = notify->extra, .len = strlen(notify->extra)},
                                    .text = true};
    (void)ls_topics_publish(pool->topics, &order);
}

/* LISTEN for channels that were not sent; false: none. */
static bool next_listen(ls_pg *pool, char sql[LISTEN_BYTES])
{
    size_t at = 0;
    for (channel *one = pool->channels; one != NULL; one = one->next) {
        if (one->sent || at + 2 * sizeof one->name + 12 > LISTEN_BYTES) continue;
        at += (size_t)snprintf(sql + at, LISTEN_BYTES - at, "listen \"");
        for (const char *from = one->name; *from != '\0'; from++) {
            if (*from == '"') sql[at++] = '"';
            sql[at++] = *from;
        }
        at += (size_t)snprintf(sql + at, LISTEN_BYTES - at, "\";");
        one->sent = true;
    }
    return at > 0;
}

/* The connection is open and its server waits for a statement. The lock is held. */
static void ready(ls_pg_conn *conn, ls_node *woken)
{
    ls_pg *pool = conn->pool;
    char sql[LISTEN_BYTES];
    pool->retry_ms = 0;
    if (!conn->listens) {
        if (conn->pq->PQtransactionStatus(conn->pg) == PQTRANS_IDLE)
            put_idle(conn);
        else
            close_conn(conn);
        feed(pool, woken);
        return;
    }
    set_state(conn, LS_PG_LISTENING);
    if (next_listen(pool, sql) ? !prepare(conn, sql) : arm(conn, LS_EVENT_IN) < 0) close_conn(conn);
}

void ls_pg_drop_notifications(const ls_pg_conn *conn)
{
    for (PGnotify *notify; (notify = conn->pq->PQnotifies(conn->pg)) != NULL;) conn->pq->PQfreemem(notify);
}

/* Move the connection on. It is `driven` by this thread, which does not hold the lock. */
static void drive(ls_pg_conn *conn)
{
    const ls_libpq *pq = conn->pq;
    ls_pg *pool = conn->pool;
    uint16_t events = LS_EVENT_IN;
    bool idle = false, copies = false;
    PGresult *result;
    PGnotify *notify;
    ls_node woken = LS_LIST_INIT(woken);
    const int flush = pq->PQflush(conn->pg);
    if (flush > 0) events |= LS_EVENT_OUT;
    bool failed = pq->PQconsumeInput(conn->pg) == 0 || flush < 0;
    while (!failed && !idle && pq->PQisBusy(conn->pg) == 0) {
        result = pq->PQgetResult(conn->pg);
        idle = result == NULL;
        const ExecStatusType status = pq->PQresultStatus(result); /* libpq would give that of a COPY again and again */
        failed = copies = status == PGRES_COPY_IN || status == PGRES_COPY_OUT || status == PGRES_COPY_BOTH;
        pq->PQclear(result);
    }
    failed = failed || pq->PQstatus(conn->pg) != CONNECTION_OK;
    if (!conn->listens) ls_pg_drop_notifications(conn);
    while (conn->listens && (notify = pq->PQnotifies(conn->pg)) != NULL) {
        publish(pool, notify);
        pq->PQfreemem(notify);
        ls_mutex_lock(&pool->lock);
        pool->stats.notifications++;
        ls_mutex_unlock(&pool->lock);
    }
    ls_mutex_lock(&pool->lock);
    conn->driven = false;
    if (failed)
        refused(conn, copies ? "the server begins a COPY that was not asked for" : pq->PQerrorMessage(conn->pg),
                &woken);
    else if (idle)
        ready(conn, &woken);
    else if (arm(conn, events) < 0)
        refused(conn, "the socket cannot be watched", &woken);
    ls_mutex_unlock(&pool->lock);
    ls_waiters_wake(&woken);
}

static void tick(ls_thread_ctx *ctx, ls_op *op)
{
    ls_pg *pool = LS_CONTAINER(LS_CONTAINER(op, ls_timer, op), ls_pg, timer);
    const uint64_t now = ls_clock_ns();
    ls_node woken = LS_LIST_INIT(woken);
    ls_mutex_lock(&pool->lock);
    pool->ticking = false;
    LS_LIST_EACH (ls_pg_conn, conn, &pool->all, all) {
        if (!is_new(conn)) continue;
        if (!conn->driven && now >= conn->due_ns)
            refused(conn, "the server does not answer", &woken);
        else
            tick_later(pool);
    }
    if (pool->listener == NULL || pool->listener->state != LS_PG_LISTENING) open_listener(pool, &woken);
    feed(pool, &woken);
    ls_mutex_unlock(&pool->lock);
    ls_waiters_wake(&woken);
}

/* The port, from now on; NULL: none. Idle connections of the site as it was loaded are watched. */
static void use_port(ls_pg *pool, ls_port *port, ls_node *woken)
{
    const bool first = pool->port == NULL && port != NULL;
    pool->port = port;
    if (!first) return;
    LS_LIST_EACH (ls_pg_conn, conn, &pool->all, all)
        if (conn->state == LS_PG_IDLE && arm(conn, LS_EVENT_IN) < 0) close_conn(conn);
    open_listener(pool, woken);
}

/* ---- leases
 * ------------------------------------------------------------------------------------------------------ */

int ls_pg_take(ls_pg_lease *lease, ls_waiter *waiter, ls_port *port)
{
    ls_pg *pool = lease->pool;
    int result = LS_OK;
    ls_node woken = LS_LIST_INIT(woken);
    ls_node_init(&lease->node);
    ls_mutex_lock(&pool->lock);
    use_port(pool, port, &woken);
    if ((lease->conn = pop_idle(pool)) == NULL) {
        result = pool->open == 0 && ls_clock_ns() < pool->retry_ns ? LS_EREFUSED : LS_PENDING;
        if (result == LS_PENDING) {
            lease->waiter = waiter;
            ls_list_push(&pool->queue, &lease->node);
            pool->waiting++;
            feed(pool, &woken);
        }
    }
    ls_mutex_unlock(&pool->lock);
    ls_waiters_wake(&woken);
    return result;
}

void ls_pg_take_blocking(ls_pg_lease *lease)
{
    ls_pg *pool = lease->pool;
    char seconds[20];
    ls_mutex_lock(&pool->lock);
    (void)snprintf(seconds, sizeof seconds, "%d", (int)(pool->limits.connect_timeout_ms / 1000) + 1);
    ls_pg_conn *conn = pop_idle(pool);
    const bool opens = conn == NULL && (conn = conn_new(pool)) != NULL;
    if (opens) set_state(conn, LS_PG_LEASED);
    ls_mutex_unlock(&pool->lock);
    if (opens) {
        conn->pg = begin(pool, seconds);
        if (conn->pg == NULL || conn->pq->PQstatus(conn->pg) != CONNECTION_OK) {
            ls_mutex_lock(&pool->lock);
            keep_refusal(pool, conn->pg != NULL ? conn->pq->PQerrorMessage(conn->pg) : "not enough memory");
            close_conn(conn);
            ls_mutex_unlock(&pool->lock);
            return;
        }
        set_up(conn);
        conn->pq->PQclear(conn->pq->PQexec(conn->pg, settings));
    }
    if (conn != NULL) (void)conn->pq->PQsetnonblocking(conn->pg, 0);
    lease->conn = conn;
}

void ls_pg_give(ls_pg_lease *lease)
{
    ls_pg *pool = lease->pool;
    ls_pg_conn *conn = lease->conn;
    ls_node woken;
    if (conn == NULL) return;
    ls_node_init(&woken);
    ls_mutex_lock(&pool->lock);
    lease->conn = NULL;
    if (conn->waiter != NULL) ls_waiter_decide(conn->waiter, LS_ECLOSED, &woken); /* another task uses the lease */
    conn->waiter = NULL;
    conn->pq->PQclear(conn->result);
    conn->pq->PQfreemem(conn->copied);
    conn->result = NULL;
    conn->copied = NULL;
    const bool lost = conn->pq->PQstatus(conn->pg) != CONNECTION_OK;
    const PGTransactionStatusType in = conn->pq->PQtransactionStatus(conn->pg);
    pool->stats.lost += lost;
    if (!lost && !conn->running && !conn->ends && in == PQTRANS_IDLE)
        put_idle(conn);
    else if (lost || conn->running || conn->ends || pool->port == NULL || !prepare(conn, "rollback"))
        close_conn(conn); /* which also undoes a transaction */
    feed(pool, &woken);
    ls_mutex_unlock(&pool->lock);
    ls_waiters_wake(&woken);
}

int ls_pg_wait(ls_pg_lease *lease, ls_waiter *waiter, bool writes)
{
    ls_pg_conn *conn = lease->conn;
    ls_mutex_lock(&conn->pool->lock);
    conn->waiter = waiter;
    const int result = arm(conn, writes ? LS_EVENT_IN | LS_EVENT_OUT : LS_EVENT_IN);
    if (result < 0) conn->waiter = NULL;
    ls_mutex_unlock(&conn->pool->lock);
    return result;
}

bool ls_pg_cancel(void *of, ls_waiter *waiter)
{
    ls_pg_lease *lease = of;
    ls_pg *pool = lease->pool;
    ls_mutex_lock(&pool->lock);
    const bool queued = lease->waiter == waiter, waits = lease->conn != NULL && lease->conn->waiter == waiter;
    if (queued) {
        ls_list_remove(&lease->node);
        lease->waiter = NULL;
        pool->waiting--;
    }
    if (waits) lease->conn->waiter = NULL;
    ls_mutex_unlock(&pool->lock);
    return queued || waits;
}

void ls_pg_refusal(ls_pg *pool, char message[LS_PG_MESSAGE_BYTES], char sqlstate[6])
{
    ls_mutex_lock(&pool->lock);
    memcpy(message, pool->refusal, sizeof pool->refusal);
    memcpy(sqlstate, pool->sqlstate, sizeof pool->sqlstate);
    ls_mutex_unlock(&pool->lock);
}

/* ---- notifications
 * ------------------------------------------------------------------------------------------------ */

int ls_pg_listen(ls_pg *pool, const char *name)
{
    int result = LS_OK;
    unsigned count = 0;
    ls_node woken = LS_LIST_INIT(woken);
    ls_mutex_lock(&pool->lock);
    channel *one = pool->channels;
    for (; one != NULL && strcmp(one->name, name) != 0; one = one->next) count++;
    if (one == NULL && count == LS_PG_CHANNELS_MAX) {
        result = LS_ELIMIT;
    } else if (one == NULL && (one = calloc(1, sizeof *one)) == NULL) {
        result = LS_ENOMEM;
    } else if (one->name[0] == '\0') {
        (void)snprintf(one->name, sizeof one->name, "%s", name);
        one->next = pool->channels;
        pool->channels = one;
        open_listener(pool, &woken);
        ls_pg_conn *listener = pool->listener; /* a packet of a socket that can be written, which it can */
        if (listener != NULL && listener->state == LS_PG_LISTENING && !listener->driven)
            (void)arm(listener, LS_EVENT_IN | LS_EVENT_OUT);
    }
    ls_mutex_unlock(&pool->lock);
    ls_waiters_wake(&woken);
    return result;
}

/* ---- the kind
 * ------------------------------------------------------------------------------------------------------ */

static const char *load(ls_libpq *pq)
{
#define NAME(name) #name,
    static const char *const names[] = {LS_LIBPQ(NAME)};
    return ls_library_load("libpq.so.5", names, (void **)pq, sizeof names / sizeof *names);
}

/* Of the URL. NULL, or what is wrong with it: without the URL, which may have a password. */
static const char *parse(ls_pg *pool, char message[LS_PG_MESSAGE_BYTES])
{
    const char *host = "local", *port = NULL, *database = "";
    char *wrong = NULL, *shown;
    PQconninfoOption *options = pool->pq.PQconninfoParse(pool->url, &wrong);
    if (options == NULL) {
        if (wrong != NULL && (shown = strstr(wrong, pool->url)) != NULL) *shown = '\0';
        if (wrong != NULL) (void)snprintf(message, LS_PG_MESSAGE_BYTES, "%.*s", (int)strcspn(wrong, "\n"), wrong);
        size_t len = strlen(message);
        while (len > 0 && strchr(": \"", message[len - 1]) != NULL) message[--len] = '\0';
        pool->pq.PQfreemem(wrong);
        return len > 0 ? message : "not enough memory";
    }
    for (const PQconninfoOption *one = options; one->keyword != NULL; one++) {
        if (one->val == NULL) continue;
        if (strcmp(one->keyword, "host") == 0) host = one->val;
        if (strcmp(one->keyword, "port") == 0) port = one->val;
        if (strcmp(one->keyword, "dbname") == 0) database = one->val;
    }
    (void)snprintf(pool->where, sizeof pool->where, "%s%s%s/%s", host, port != NULL ? ":" : "",
                   port != NULL ? port : "", database);
    pool->pq.PQconninfoFree(options);
    return NULL;
}

static int pool_open(const void *given, ls_shared_object **out)
{
    const ls_pg_options *options = given;
    const size_t url_bytes = strlen(options->url) + 1;
    const char *wrong = "not enough memory";
    ls_pg *pool = calloc(1, sizeof *pool + url_bytes);
    if (pool == NULL) goto fail;
    ls_mutex_open(&pool->lock);
    memcpy(pool->url, options->url, url_bytes);
    pool->topics = options->topics;
    pool->limits = options->limits;
    ls_node_init(&pool->all);
    ls_node_init(&pool->idle);
    ls_node_init(&pool->queue);
    pool->timer.op.done = tick;
    if ((wrong = load(&pool->pq)) == NULL && (wrong = parse(pool, options->message)) == NULL) {
        *out = &pool->base;
        return LS_OK;
    }
    ls_mutex_close(&pool->lock);
fail:
    if (wrong != options->message) (void)snprintf(options->message, LS_PG_MESSAGE_BYTES, "%s", wrong);
    free(pool);
    return LS_EINVAL;
}

static void pool_close(ls_shared_object *object)
{
    ls_pg *pool = ls_pg_of(object);
    assert(ls_list_empty(&pool->queue)); /* their waiters are cancelled */
    pool->port = NULL;                   /* it is closed */
    LS_LIST_EACH_DROP (ls_pg_conn, conn, &pool->all, all) {
        close_conn(conn);
        free(conn);
    }
    for (channel *one = pool->channels, *next; one != NULL; one = next) {
        next = one->next;
        free(one);
    }
    ls_mutex_close(&pool->lock);
    free(pool);
}

static bool pool_redefine(ls_shared_object *object, const void *given, bool reloaded)
{
    ls_pg *pool = ls_pg_of(object);
    const ls_pg_options *options = given;
    if (!options->given) return true;
    ls_mutex_lock(&pool->lock);
    if (reloaded) pool->limits = options->limits;
    const bool same = memcmp(&pool->limits, &options->limits, sizeof pool->limits) == 0; /* no padding */
    ls_mutex_unlock(&pool->lock);
    return same;
}

const ls_shared_kind ls_pg_kind = {
    .name = "postgres", .open = pool_open, .close = pool_close, .redefine = pool_redefine};

const char *ls_pg_where(const ls_pg *pool)
{
    return pool->where;
}

double ls_pg_timeout(ls_pg *pool)
{
    ls_mutex_lock(&pool->lock);
    const double timeout = pool->limits.timeout_ms / 1e3;
    ls_mutex_unlock(&pool->lock);
    return timeout;
}

const char *ls_pg_library(char *out, size_t out_bytes)
{
    ls_libpq pq;
    const char *wrong = load(&pq);
    if (wrong != NULL)
        (void)snprintf(out, out_bytes, "%s", wrong);
    else
        (void)snprintf(out, out_bytes, "libpq %d.%d", pq.PQlibVersion() / 10000, pq.PQlibVersion() % 10000);
    return out;
}

static void add_stats(ls_shared_object *object, void *to)
{
    ls_pg *pool = ls_pg_of(object);
    uint64_t *sum = to;
    const uint64_t *figures = &pool->stats.connections;
    ls_mutex_lock(&pool->lock);
    pool->stats.connections = pool->open + (pool->listener != NULL && pool->listener->state != LS_PG_CLOSED);
    pool->stats.waiting = pool->waiting;
    for (unsigned n = 0; n < sizeof pool->stats / sizeof *sum; n++) sum[n] += figures[n];
    ls_mutex_unlock(&pool->lock);
}

void ls_pg_stat(ls_shared *shared, ls_pg_stats *out)
{
    *out = (ls_pg_stats){0};
    ls_shared_each(shared, &ls_pg_kind, add_stats, out);
}

static void set_port(ls_shared_object *object, void *port)
{
    ls_pg *pool = ls_pg_of(object);
    ls_node woken = LS_LIST_INIT(woken);
    ls_mutex_lock(&pool->lock);
    use_port(pool, port, &woken);
    ls_mutex_unlock(&pool->lock);
    ls_waiters_wake(&woken);
}

void ls_pg_use_port(ls_shared *shared, ls_port *port)
{
    ls_shared_each(shared, &ls_pg_kind, set_port, port);
}
