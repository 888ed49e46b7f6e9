/* database_sqlite.c - see database.h: who has a connection, the queues, the commits.
 *
 * db->lock guards the queues, the free connections, and `waiter` of the jobs. No function of SQLite runs under it, and
 * no waiter is woken under it. A posted connection serves its queue until that is empty; its packet makes it free. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/os/thread.h"
#include "script/database/connection_sqlite.h"

enum { WAL_PAGES_MAX = 1000 };

typedef struct queue {
    ls_node jobs;
    ls_node free;     /* connections */
    unsigned blocked; /* threads that wait for one */
} queue;

struct ls_db {
    ls_shared_object base; /* first */
    ls_db_options options; /* without what `error` and `message` point to */
    bool memory;
    ls_port *port; /* NULL: no job was queued so far */
    ls_mutex lock;
    ls_cond more;              /* a connection is free; for ls_db_block */
    queue reads, writes;       /* in memory there is only the writer, and everything is in `writes` */
    ls_node all;               /* connections */
    unsigned readers, results; /* open readers without results; results with rows left */
    ls_db_stats stats;
};

static bool takes_place(const ls_db *db) /* its commits do not wait for the device */
{
    return db->memory || !db->options.sync;
}

/* ---- jobs ------------------------------------------------------------------------------------------------------ */

ls_db_job *ls_db_job_new(ls_db *db)
{
    ls_db_job *job = calloc(1, sizeof *job);
    if (job == NULL) return NULL;
    job->db = db;
    atomic_init(&job->refs, 1);
    ls_node_init(&job->node);
    return job;
}

void ls_db_job_drop(ls_db_job *job)
{
    if (job == NULL || atomic_fetch_sub_explicit(&job->refs, 1, memory_order_acq_rel) != 1) return;
    ls_db_job_release(job);
    free(job->sql.data);
    free(job->values.data);
    free(job->rows.data);
    free(job->names.data);
    free(job);
}

/* ---- connections ------------------------------------------------------------------------------------------------ */

static void count(ls_db *db, uint64_t *figure, uint64_t by)
{
    ls_mutex_lock(&db->lock);
    *figure += by;
    ls_mutex_unlock(&db->lock);
}

static int conn_open(ls_db *db, bool writer, ls_db_conn **out, char *message, size_t message_bytes)
{
    const int err =
        ls_db_conn_open(db, db->options.path, writer, db->memory, db->options.sync, out, message, message_bytes);
    if (err == LS_OK) count(db, &db->stats.connections, 1);
    return err;
}

static void conn_close(ls_db_conn *conn)
{
    count(conn->db, &conn->db->stats.connections, (uint64_t)-1);
    ls_db_conn_close(conn);
}

static ls_db_conn *pop_conn(queue *q)
{
    if (ls_list_empty(&q->free)) return NULL;
    ls_db_conn *conn = LS_CONTAINER(q->free.next, ls_db_conn, node);
    ls_list_remove(&conn->node);
    return conn;
}

/* Have the pool run conn->next_job, or the jobs that wait. The lock is held. Without a thread the jobs wait for the
 * next call. */
static bool post(ls_db_conn *conn)
{
    if (conn->posted) return true; /* its packet is on the way, and posts it again */
    conn->posted = conn->db->port != NULL && ls_port_work(conn->db->port, &conn->work) == LS_PENDING;
    return conn->posted;
}

static queue *queue_of(ls_db_conn *conn)
{
    return conn->writer ? &conn->db->writes : &conn->db->reads;
}

/* The connection is not used any more. The lock is held. Returns one to close, or NULL. */
static ls_db_conn *give(ls_db_conn *conn)
{
    ls_db *db = conn->db;
    queue *q = queue_of(conn);
    if (conn->posted || conn->leased) return NULL;
    assert(conn->running == NULL);
    if (!conn->writer && db->readers > db->options.readers) {
        db->readers--;
        ls_list_remove(&conn->all);
        return conn;
    }
    const bool more = !ls_list_empty(&q->jobs) || (conn->writer && conn->wal_pages >= WAL_PAGES_MAX);
    if (more && q->blocked == 0 && post(conn)) return NULL;
    ls_list_push(&q->free, &conn->node);
    if (q->blocked > 0) ls_cond_broadcast(&db->more);
    return NULL;
}

static void give_unlocked(ls_db_conn *conn)
{
    ls_db *db = conn->db;
    ls_mutex_lock(&db->lock);
    ls_db_conn *closes = give(conn);
    ls_mutex_unlock(&db->lock);
    if (closes != NULL) conn_close(closes);
}

/* A result has rows left: its connection does not count as a reader. false: too many. */
static bool keep_result(ls_db_conn *conn, ls_db_job *job)
{
    ls_db *db = conn->db;
    ls_mutex_lock(&db->lock);
    const bool fits = job->conn != NULL || db->results < LS_DB_RESULTS_MAX;
    if (fits && job->conn == NULL) {
        db->results++;
        db->readers--;
        job->conn = conn;
        conn->leased = true;
    }
    ls_mutex_unlock(&db->lock);
    if (fits) return true;
    ls_db_conn_reset(conn);
    ls_db_job_fail(job, LS_ELIMIT, "too many results at a time, of which rows are left: the limit is 64");
    return false;
}

/* job->conn is free. */
static ls_db_conn *detach_result(ls_db_job *job)
{
    ls_db_conn *conn = job->conn;
    ls_db_conn_reset(conn);
    ls_mutex_lock(&conn->db->lock);
    conn->db->results--;
    conn->db->readers++;
    conn->leased = false;
    job->conn = NULL;
    job->more = false;
    ls_mutex_unlock(&conn->db->lock);
    return conn;
}

void ls_db_job_release(ls_db_job *job)
{
    ls_db *db = job->db;
    ls_mutex_lock(&db->lock);
    ls_db_conn *conn = job->busy ? NULL : job->conn; /* a job that runs, and was cancelled, releases it at its end */
    const bool transaction = conn != NULL && job->what == LS_DB_BEGIN;
    bool posted = false;
    if (transaction) { /* undone on the pool, or here while the site loads */
        job->conn = NULL;
        conn->lost = true;
        conn->leased = false;
        posted = post(conn);
    }
    ls_mutex_unlock(&db->lock);
    if (conn == NULL || posted) return;
    if (transaction) {
        (void)ls_db_conn_script(conn, NULL, "rollback", 8);
        conn->lost = false;
    } else {
        (void)detach_result(job);
    }
    give_unlocked(conn);
}

/* Queue the job. The lock is held. */
static void wait_for_conn(ls_db_job *job, queue *q)
{
    ls_list_push(&q->jobs, &job->node);
    job->db->stats.waiting++;
    ls_db_conn *conn = pop_conn(q); /* one that could not be posted */
    if (conn != NULL && !post(conn)) ls_list_push(&q->free, &conn->node);
}

/* ---- the end of jobs
 * ----------------------------------------------------------------------------------------------- */

/* The job, which was queued, has its result. */
static void finish(ls_db_job *job)
{
    ls_db *db = job->db;
    ls_node woken = LS_LIST_INIT(woken);
    ls_mutex_lock(&db->lock);
    if (job->waiter != NULL) ls_waiter_decide(job->waiter, LS_OK, &woken);
    ls_db_job *lease = job->queued_lease;
    const bool dropped = job->waiter == NULL;
    job->queued_lease = NULL;
    job->waiter = NULL;
    job->busy = false;
    db->stats.statements++;
    ls_mutex_unlock(&db->lock);
    if (dropped) ls_db_job_release(job);
    ls_waiters_wake(&woken);
    ls_db_job_drop(lease);
    ls_db_job_drop(job);
}

bool ls_db_cancel(void *of, ls_waiter *waiter)
{
    ls_db_job *job = of;
    ls_db *db = job->db;
    bool queued = false;
    ls_mutex_lock(&db->lock);
    const bool waits = job->waiter == waiter;
    if (waits) {
        job->waiter = NULL;
        atomic_store_explicit(&job->canceled, true, memory_order_relaxed);
        queued = !ls_list_empty(&job->node);
        if (queued) {
            ls_list_remove(&job->node);
            job->busy = false;
            db->stats.waiting--;
        }
    }
    ls_mutex_unlock(&db->lock);
    if (queued) ls_db_job_drop(job);
    return waits;
}

/* ---- run ------------------------------------------------------------------------------------------------------- */

static void run_backup(ls_db_conn *conn, ls_db_job *job)
{
    static const char off[] = "pragma query_only = off", on[] = "pragma query_only = on";
    sqlite3_stmt *stmt = NULL;
    (void)ls_db_conn_script(conn, NULL, off, sizeof off - 1);
    conn->job = job;
    const bool done =
        sqlite3_prepare_v2(conn->handle, "vacuum into ?", -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_bind_text64(stmt, 1, job->sql.data, job->sql.len, SQLITE_STATIC, SQLITE_UTF8) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_DONE;
    job->error = LS_OK;
    if (!done) ls_db_conn_fail(conn, job);
    (void)sqlite3_finalize(stmt);
    conn->job = NULL;
    if (!conn->writer) (void)ls_db_conn_script(conn, NULL, on, sizeof on - 1);
}

/* BEGIN and COMMIT on the writer. */
static void run_transaction(ls_db_conn *conn, ls_db_job *job)
{
    const bool begins = job->what == LS_DB_BEGIN;
    job->error = LS_OK;
    if (begins && ls_db_conn_script(conn, job, "begin immediate", 15) == LS_OK) {
        ls_mutex_lock(&job->db->lock);
        conn->leased = true;
        job->conn = conn;
        ls_mutex_unlock(&job->db->lock);
    } else if (!begins) {
        if (sqlite3_get_autocommit(conn->handle) != 0)
            ls_db_job_fail(job, LS_ECANCELED, "the transaction was undone by a statement in it that failed");
        else if (ls_db_conn_script(conn, job, "commit", 6) == LS_OK)
            count(job->db, &job->db->stats.commits, 1);
        if (sqlite3_get_autocommit(conn->handle) == 0) (void)ls_db_conn_script(conn, NULL, "rollback", 8);
        ls_mutex_lock(&job->db->lock);
        job->lease->conn = NULL;
        conn->leased = false;
        ls_mutex_unlock(&job->db->lock);
    }
}

/* A statement of a transaction that has ended does not run outside of it. */
static bool has_ended(ls_db_conn *conn, ls_db_job *job)
{
    if (job->lease == NULL || (conn != NULL && sqlite3_get_autocommit(conn->handle) == 0)) return false;
    if (conn != NULL && job->what == LS_DB_COMMIT) return false; /* it gives the writer back */
    ls_db_job_fail(job, LS_ECANCELED, "the transaction has ended: it was undone");
    return true;
}

/* Run a job to its end, or its next rows; on the pool, or while the site loads. false: a reader cannot, so that the
 * job is for the writer. */
static bool run_job(ls_db_conn *conn, ls_db_job *job)
{
    const bool cursor = !conn->writer;
    const uint64_t begun_ns = ls_clock_ns();
    ls_db_statement *statement = NULL;
    if (has_ended(conn, job)) return true;
    switch (job->what) {
    case LS_DB_BEGIN:
    case LS_DB_COMMIT: run_transaction(conn, job); return true;
    case LS_DB_BACKUP: run_backup(conn, job); return true;
    case LS_DB_SCRIPT:
        job->error = LS_OK;
        (void)ls_db_conn_script(conn, job, job->sql.data, job->sql.len);
        return true;
    case LS_DB_RUN: break;
    }
    if (conn->running == NULL && atomic_load_explicit(&job->canceled, memory_order_relaxed)) {
        ls_db_job_fail(job, LS_ECANCELED, "no task waits for the statement");
        return true;
    }
    if (conn->running == NULL && (statement = ls_db_conn_prepare(conn, job)) == NULL) return true;
    if (statement != NULL && statement->writes && !conn->writer) {
        job->writes = true;
        return false;
    }
    conn->until_ns = 0;
    (void)ls_db_conn_run(conn, job, statement, cursor ? LS_DB_BATCH_BYTES : 0);
    if (statement != NULL && ls_clock_ns() - begun_ns < LS_DB_PLACE_NS / 2) statement->slow = false;
    if (job->more && !keep_result(conn, job)) return true;
    if (!job->more && job->conn == conn && !conn->writer) (void)detach_result(job);
    return true;
}

static bool to_writer(const ls_db_job *job)
{
    return job->writes || job->what == LS_DB_BEGIN;
}

/* A statement that writes, with a transaction of its own. */
static bool is_single(const ls_db_job *job)
{
    return job->what == LS_DB_RUN && job->lease == NULL && job->writes;
}

/* Run the statements and commit them together; each alone when that fails. They have not been seen before: a statement
 * that is wrong, or must run alone, is run by itself. */
static void run_group(ls_db_conn *conn, ls_db_job **jobs, unsigned count_jobs)
{
    bool together = count_jobs > 1;
    if (together && ls_db_conn_script(conn, jobs[0], "begin immediate", 15) < 0) {
        for (unsigned n = 1; n < count_jobs; n++) ls_db_job_fail(jobs[n], jobs[0]->error, jobs[0]->rows.data);
        return;
    }
    for (unsigned n = 0; n < count_jobs && together; n++) {
        (void)run_job(conn, jobs[n]);
        together = sqlite3_get_autocommit(conn->handle) == 0;
    }
    if (together) {
        together = ls_db_conn_script(conn, NULL, "commit", 6) == LS_OK;
        if (!together && sqlite3_get_autocommit(conn->handle) == 0) (void)ls_db_conn_script(conn, NULL, "rollback", 8);
    }
    if (!together)
        for (unsigned n = 0; n < count_jobs; n++) (void)run_job(conn, jobs[n]);
    count(conn->db, &conn->db->stats.commits, together ? 1 : count_jobs);
}

/* Whether the writer can run the job only by itself. */
static bool runs_alone(ls_db_conn *conn, ls_db_job *job)
{
    if (!is_single(job)) return true;
    const ls_db_statement *statement = ls_db_conn_prepare(conn, job);
    return statement == NULL || statement->alone;
}

/* The next jobs of the queue. The lock is held. */
static unsigned take_jobs(ls_db_conn *conn, ls_db_job **jobs)
{
    ls_db *db = conn->db;
    queue *q = queue_of(conn);
    unsigned taken = 0;
    while (!ls_list_empty(&q->jobs) && taken < LS_DB_GROUP_MAX) {
        ls_db_job *job = LS_CONTAINER(q->jobs.next, ls_db_job, node);
        if (taken > 0 && (!conn->writer || !is_single(job))) break;
        ls_list_remove(&job->node);
        db->stats.waiting--;
        jobs[taken++] = job;
        if (!conn->writer || !is_single(job)) break;
    }
    return taken;
}

static void run_jobs(ls_db_conn *conn, ls_db_job **jobs, unsigned taken)
{
    unsigned from = 0;
    if (!conn->writer || taken == 1) {
        if (!run_job(conn, jobs[0])) {
            ls_mutex_lock(&conn->db->lock);
            const bool waits = jobs[0]->waiter != NULL;
            if (waits) wait_for_conn(jobs[0], &conn->db->writes);
            ls_mutex_unlock(&conn->db->lock);
            if (!waits) finish(jobs[0]);
            return;
        }
        if (conn->writer && is_single(jobs[0])) count(conn->db, &conn->db->stats.commits, 1);
    } else {
        for (unsigned n = 0; n <= taken; n++) {
            if (n < taken && !runs_alone(conn, jobs[n])) continue;
            if (n > from) run_group(conn, jobs + from, n - from);
            if (n < taken) (void)run_job(conn, jobs[n]);
            from = n + 1;
        }
    }
    for (unsigned n = 0; n < taken; n++) finish(jobs[n]);
}

/* What to do next: a transaction to undo, jobs to run. Nothing: the work ends; *checkpoint: with one. */
static unsigned next_jobs(ls_db_conn *conn, ls_db_job **jobs, bool *lost, bool *checkpoint)
{
    ls_db *db = conn->db;
    unsigned taken = 0;
    ls_mutex_lock(&db->lock);
    *lost = conn->lost;
    conn->lost = false;
    if (conn->next_job != NULL) {
        jobs[taken++] = conn->next_job;
        conn->next_job = NULL;
    } else if (!*lost && !conn->leased && queue_of(conn)->blocked == 0) {
        taken = take_jobs(conn, jobs);
    }
    *checkpoint = taken == 0 && !*lost && conn->writer && !conn->leased && conn->wal_pages >= WAL_PAGES_MAX;
    ls_mutex_unlock(&db->lock);
    return taken;
}

static int64_t conn_work(ls_work *work) /* on the pool */
{
    ls_db_conn *conn = LS_CONTAINER(work, ls_db_conn, work);
    ls_db_job *jobs[LS_DB_GROUP_MAX];
    bool lost, checkpoint;
    for (;;) {
        const unsigned taken = next_jobs(conn, jobs, &lost, &checkpoint);
        if (lost) {
            (void)ls_db_conn_script(conn, NULL, "rollback", 8);
            for (unsigned n = 0; n < taken; n++) {
                ls_db_job_fail(jobs[n], LS_ECANCELED, "the transaction has ended");
                finish(jobs[n]);
            }
        } else if (taken > 0) {
            const uint64_t begun_ns = ls_clock_ns();
            run_jobs(conn, jobs, taken);
            count(conn->db, &conn->db->stats.busy_ns, ls_clock_ns() - begun_ns);
        } else {
            break;
        }
    }
    if (checkpoint) {
        conn->wal_pages = 0;
        (void)sqlite3_wal_checkpoint_v2(conn->handle, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    }
    return LS_OK;
}

static void conn_done(ls_thread_ctx *ctx, ls_op *op) /* the packet of the work */
{
    ls_db_conn *conn = LS_CONTAINER(op, ls_db_conn, work.op);
    ls_db *db = conn->db;
    ls_db_conn *closes = NULL;
    ls_mutex_lock(&db->lock);
    conn->posted = false;
    if (conn->next_job != NULL || conn->lost)
        (void)post(conn);
    else
        closes = give(conn);
    ls_mutex_unlock(&db->lock);
    if (closes != NULL) conn_close(closes);
}

/* ---- connections for jobs --------------------------------------------------------------------------------------- */

/* A free connection, or a new reader, which the caller opens: *opens. NULL without *opens: none. The lock is held. */
static ls_db_conn *take_conn(ls_db *db, bool writes, bool *opens)
{
    queue *q = writes || db->memory ? &db->writes : &db->reads;
    *opens = false;
    if (!ls_list_empty(&q->jobs)) return NULL; /* first come, first served */
    ls_db_conn *conn = pop_conn(q);
    *opens = conn == NULL && q == &db->reads && db->readers < db->options.readers;
    if (*opens) db->readers++;
    return conn;
}

/* Open the reader that take_conn() has counted. NULL: job->error. */
static ls_db_conn *open_reader(ls_db *db, ls_db_job *job)
{
    ls_db_conn *conn = NULL;
    char message[300];
    const int err = conn_open(db, false, &conn, message, sizeof message);
    ls_mutex_lock(&db->lock);
    if (err == LS_OK) {
        conn->work = (ls_work){.run = conn_work};
        conn->work.op.done = conn_done;
        ls_list_push(&db->all, &conn->all);
    } else {
        db->readers--;
    }
    ls_mutex_unlock(&db->lock);
    if (err < 0) ls_db_job_fail(job, err, message);
    return conn;
}

/* ---- the three ways
 * ---------------------------------------------------------------------------------------------- */

/* Run a statement in place. false: queue it. */
static bool run_in_place(ls_db_conn *conn, ls_db_job *job, bool writes)
{
    ls_db_statement *statement = ls_db_conn_prepare(conn, job);
    if (statement == NULL) return true;
    job->writes = statement->writes;
    if (statement->slow || (statement->writes && (!writes || statement->alone))) return false;
    conn->until_ns = ls_clock_ns() + LS_DB_PLACE_NS;
    if (!ls_db_conn_run(conn, job, statement, conn->writer ? 0 : LS_DB_BATCH_BYTES)) return false;
    if (job->more) (void)keep_result(conn, job);
    return true;
}

static bool try_once(ls_db_job *job, bool *again)
{
    ls_db *db = job->db;
    const bool wrote = job->writes;
    bool opens;
    if (wrote && !takes_place(db)) return false;
    ls_mutex_lock(&db->lock);
    ls_db_conn *conn = take_conn(db, job->writes, &opens);
    ls_mutex_unlock(&db->lock);
    if (opens && (conn = open_reader(db, job)) == NULL) return true;
    if (conn == NULL) return false;
    const bool done = run_in_place(conn, job, conn->writer && takes_place(db));
    *again = !done && job->writes && !wrote && !conn->writer && takes_place(db); /* now with the writer */
    if (!job->more) give_unlocked(conn);
    return done;
}

/* Whether the statement goes to the writer by its first word, without a reader that prepares it. The reader finds the
 * others, such as those that begin with WITH or a comment. */
static bool begins_as_write(const char *sql)
{
    static const char *const reads[] = {"select", "with", "values", "pragma", "explain"};
    while (*sql == ' ' || *sql == '\t' || *sql == '\n' || *sql == '\r') sql++;
    for (unsigned n = 0; n < sizeof reads / sizeof *reads; n++)
        if (sqlite3_strnicmp(sql, reads[n], (int)strlen(reads[n])) == 0) return false;
    return (*sql >= 'a' && *sql <= 'z') || (*sql >= 'A' && *sql <= 'Z');
}

bool ls_db_try(ls_db_job *job)
{
    ls_db *db = job->db;
    bool again = false, done = false;
    job->error = LS_OK;
    if (job->more) return false;
    if (job->what != LS_DB_RUN) return false;
    if (begins_as_write(job->sql.data)) job->writes = true;
    if (job->lease != NULL) {
        ls_db_conn *conn = job->lease->conn;
        done = has_ended(conn, job) || run_in_place(conn, job, false);
    } else {
        done = try_once(job, &again) || (again && try_once(job, &again));
    }
    if (done) count(db, &db->stats.statements, 1);
    return done;
}

/* The job belongs to the database from now on. The lock is held. */
static void queued(ls_db_job *job, ls_waiter *waiter)
{
    atomic_fetch_add_explicit(&job->refs, 1, memory_order_relaxed);
    if (job->lease != NULL) atomic_fetch_add_explicit(&job->lease->refs, 1, memory_order_relaxed);
    job->queued_lease = job->lease;
    job->busy = true;
    job->waiter = waiter;
}

int ls_db_queue(ls_db_job *job, ls_waiter *waiter, ls_port *port)
{
    ls_db *db = job->db;
    ls_db_conn *conn = job->lease != NULL ? job->lease->conn : job->more ? job->conn : NULL;
    bool opens = false;
    if (job->lease != NULL && has_ended(conn, job)) return LS_OK;
    ls_mutex_lock(&db->lock);
    db->port = port;
    db->stats.moved++;
    if (conn == NULL) conn = take_conn(db, to_writer(job), &opens);
    if (conn == NULL && !opens) {
        queued(job, waiter);
        wait_for_conn(job, to_writer(job) || db->memory ? &db->writes : &db->reads);
        ls_mutex_unlock(&db->lock);
        return LS_PENDING;
    }
    ls_mutex_unlock(&db->lock);
    if (opens && (conn = open_reader(db, job)) == NULL) return LS_OK;
    ls_mutex_lock(&db->lock);
    queued(job, waiter);
    conn->next_job = job;
    const bool posted = post(conn);
    if (!posted) conn->next_job = NULL;
    ls_mutex_unlock(&db->lock);
    if (posted) return LS_PENDING;
    if (job->lease == NULL && !job->more) give_unlocked(conn);
    ls_db_job_fail(job, LS_ENOMEM, "not enough memory for a thread");
    ls_db_job_drop(job->queued_lease);
    job->queued_lease = NULL;
    job->waiter = NULL;
    job->busy = false;
    ls_db_job_drop(job);
    return LS_ENOMEM;
}

void ls_db_block(ls_db_job *job)
{
    ls_db *db = job->db;
    ls_db_conn *conn = job->lease != NULL ? job->lease->conn : job->more ? job->conn : NULL;
    bool opens = false;
    if (job->lease != NULL && conn == NULL) {
        (void)has_ended(NULL, job);
        return;
    }
    queue *q = to_writer(job) || db->memory ? &db->writes : &db->reads;
    ls_mutex_lock(&db->lock);
    q->blocked++;
    while (conn == NULL && !opens) {
        if ((conn = pop_conn(q)) != NULL) break;
        opens = q == &db->reads && db->readers < db->options.readers;
        if (opens)
            db->readers++;
        else
            ls_cond_wait(&db->more, &db->lock);
    }
    q->blocked--;
    ls_mutex_unlock(&db->lock);
    if (opens && (conn = open_reader(db, job)) == NULL) return;
    const bool done = run_job(conn, job);
    give_unlocked(conn); /* unless a transaction, or rows that are left, keep it */
    if (!done) ls_db_block(job);
}

/* ---- the kind
 * ------------------------------------------------------------------------------------------------------ */

static void database_free(ls_db *db)
{
    LS_LIST_TAKE (ls_db_conn, conn, &db->all, all) {
        if (conn->next_job != NULL) ls_db_job_drop(conn->next_job);
        conn_close(conn);
    }
    ls_cond_close(&db->more);
    ls_mutex_close(&db->lock);
    free((char *)(uintptr_t)db->options.path); /* NOLINT(performance-no-int-to-ptr) */
    free(db);
}

static int database_open(const void *given, ls_shared_object **out)
{
    const ls_db_options *options = given;
    ls_db_conn *writer = NULL;
    const size_t path_bytes = strlen(options->path) + 1;
    char *path = malloc(path_bytes);
    ls_db *db = calloc(1, sizeof *db);
    if (db == NULL || path == NULL) goto fail;
    memcpy(path, options->path, path_bytes);
    db->options = *options;
    db->options.path = path;
    db->memory = strcmp(path, ":memory:") == 0;
    ls_node_init(&db->all);
    ls_node_init(&db->reads.jobs);
    ls_node_init(&db->reads.free);
    ls_node_init(&db->writes.jobs);
    ls_node_init(&db->writes.free);
    ls_mutex_open(&db->lock);
    ls_cond_open(&db->more);
    const int err = conn_open(db, true, &writer, options->message, options->message_bytes);
    if (err < 0) {
        *options->error = err;
        database_free(db);
        return err;
    }
    writer->work = (ls_work){.run = conn_work};
    writer->work.op.done = conn_done;
    ls_list_push(&db->all, &writer->all);
    ls_list_push(&db->writes.free, &writer->node);
    *out = &db->base;
    return LS_OK;

fail:
    free(path);
    free(db);
    *options->error = LS_ENOMEM;
    (void)snprintf(options->message, options->message_bytes, "not enough memory");
    return LS_ENOMEM;
}

static void database_close(ls_shared_object *object)
{
    ls_db *db = ls_db_of(object);
    assert(ls_list_empty(&db->reads.jobs) && ls_list_empty(&db->writes.jobs)); /* their waiters are cancelled */
    database_free(db);
}

static bool database_redefine(ls_shared_object *object, const void *given, bool reloaded)
{
    ls_db *db = ls_db_of(object);
    const ls_db_options *options = given;
    if (!options->given) return true;
    if (!reloaded) return db->options.readers == options->readers && db->options.sync == options->sync;
    ls_mutex_lock(&db->lock);
    db->options.readers = options->readers; /* `sync` is that of the open connections */
    ls_mutex_unlock(&db->lock);
    return db->options.sync == options->sync;
}

static void database_look(ls_shared_object *object, uint64_t figures[LS_FIGURES_MAX])
{
    ls_db *db = ls_db_of(object);
    figures[0] = 0;
    ls_mutex_lock(&db->lock);
    LS_LIST_EACH (const ls_db_conn, conn, &db->all, all) figures[0] += conn->posted;
    ls_mutex_unlock(&db->lock);
}

const ls_shared_kind ls_db_kind = {.name = "database",
                                   .open = database_open,
                                   .close = database_close,
                                   .redefine = database_redefine,
                                   .look = database_look,
                                   .figures = {"running"}};

const char *ls_db_library(void)
{
    return sqlite3_libversion();
}

static void add_stats(ls_shared_object *object, void *to)
{
    ls_db *db = ls_db_of(object);
    uint64_t *sum = to;
    const uint64_t *figures = &db->stats.connections;
    ls_mutex_lock(&db->lock);
    for (unsigned n = 0; n < sizeof db->stats / sizeof *sum; n++) sum[n] += figures[n];
    ls_mutex_unlock(&db->lock);
}

void ls_db_stat(ls_shared *shared, ls_db_stats *out)
{
    *out = (ls_db_stats){0};
    ls_shared_each(shared, &ls_db_kind, add_stats, out);
}

static void drop_port(ls_shared_object *object, void *unused)
{
    ls_db *db = ls_db_of(object);
    ls_mutex_lock(&db->lock);
    db->port = NULL;
    ls_mutex_unlock(&db->lock);
}

void ls_db_disconnect(ls_shared *shared)
{
    ls_shared_each(shared, &ls_db_kind, drop_port, NULL);
}
