/* test_database.c - databases without Lua: the three ways of a job, results with rows left, the writer, cancelled
 * jobs, lack of memory. */
#define _GNU_SOURCE

#include "port/port_fixture.h"
#include "sched/actor.h"
#include "script/database/database.h"
#include "script/memory_fixture.h"

typedef struct place {
    char dir[sizeof TEST_SCRATCH_PATH], path[64];
    ls_shared *shared;
    ls_db *db;
} place;

static int open_path(place *p, const char *path, unsigned readers, bool sync)
{
    char message[300], before[LS_SHARED_WHERE_BYTES];
    int error = LS_OK;
    ls_shared_object *object = NULL;
    const ls_db_options options = {.path = path,
                                   .readers = readers,
                                   .sync = sync,
                                   .given = true,
                                   .error = &error,
                                   .message = message,
                                   .message_bytes = sizeof message};
    const int err = ls_shared_get(p->shared, &ls_db_kind, path, "site.lua:1", &options, &object, before);
    if (err == LS_OK) p->db = ls_db_of(object);
    return err;
}

static void place_open(place *p, unsigned readers, bool sync)
{
    *p = (place){.dir = TEST_SCRATCH_PATH};
    assert_non_null(mkdtemp(p->dir));
    (void)snprintf(p->path, sizeof p->path, "%s/test.db", p->dir);
    assert_int_equal(ls_shared_open(&p->shared), LS_OK);
    assert_int_equal(open_path(p, p->path, readers, sync), LS_OK);
}

static void place_close(place *p)
{
    static const char *const ends[] = {"", "-wal", "-shm"};
    ls_shared_close(p->shared);
    for (unsigned n = 0; n < 3; n++) {
        char path[80];
        (void)snprintf(path, sizeof path, "%s%s", p->path, ends[n]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(p->dir), 0);
}

static void set_sql(ls_db_job *job, const char *sql)
{
    job->what = LS_DB_RUN;
    job->writes = false;
    job->sql.len = 0;
    char *to = ls_db_bytes_add(&job->sql, strlen(sql) + 1);
    assert_non_null(to);
    memcpy(to, sql, strlen(sql) + 1);
    job->sql.len = strlen(sql);
}

static ls_db_job *job_new(place *p, const char *sql)
{
    ls_db_job *job = ls_db_job_new(p->db);
    assert_non_null(job);
    set_sql(job, sql);
    return job;
}

static void run(ls_db_job *job)
{
    if (!ls_db_try(job)) ls_db_block(job);
}

static void run_sql(place *p, const char *sql)
{
    ls_db_job *job = job_new(p, sql);
    run(job);
    if (job->error < 0) fail_msg("%s", job->rows.data);
    ls_db_job_drop(job);
}

static int64_t integer_of(place *p, const char *sql)
{
    ls_db_job *job = job_new(p, sql);
    int64_t value = -1;
    const char *data;
    size_t len;
    run(job);
    if (job->error < 0) fail_msg("%s", job->rows.data);
    const char *at = job->rows.data;
    assert_int_equal(job->row_count, 1);
    assert_int_equal(ls_db_bytes_take(&at, &data, &len), LS_DB_INTEGER);
    memcpy(&value, data, sizeof value);
    ls_db_job_drop(job);
    return value;
}

#define NUMBERS(n) "with recursive c(n) as (select 1 union all select n + 1 from c where n < " n ") "

TEST_IN(place, p, a_long_statement_does_not_end_in_place, 1, true)
{
    ls_db_job *job = job_new(p, "select 7 as a");
    assert_true(ls_db_try(job));
    assert_int_equal(job->row_count, 1);
    set_sql(job, NUMBERS("300000") "select count(*) from c");
    for (int n = 0; n < 2; n++) { /* the second time it is known to be slow */
        assert_false(ls_db_try(job));
        ls_db_block(job);
        assert_int_equal(job->error, LS_OK);
        assert_int_equal(job->row_count, 1);
    }
    ls_db_job_drop(job);
}

TEST_IN(place, p, a_write_of_a_file_waits_for_the_device_and_one_in_memory_does_not, 1, true)
{
    ls_db_job *job = job_new(p, "create table t(a)");
    assert_false(ls_db_try(job));
    assert_true(job->writes);
    ls_db_block(job);
    ls_db_job_drop(job);
    job = job_new(p, "with x(a) as (select 1) insert into t select a from x"); /* a reader finds that it writes */
    assert_false(ls_db_try(job));
    assert_true(job->writes);
    ls_db_block(job);
    assert_int_equal(job->changes, 1);
    ls_db_job_drop(job);
    assert_int_equal(open_path(p, ":memory:", 1, true), LS_OK);
    run_sql(p, "create table t(a)");
    job = job_new(p, "insert into t values(1)");
    assert_true(ls_db_try(job));
    assert_int_equal(job->changes, 1);
    set_sql(job, "insert into t " NUMBERS("300000") "select n from c"); /* interrupted, undone and run again */
    assert_false(ls_db_try(job));
    ls_db_block(job);
    assert_int_equal(job->changes, 300000);
    ls_db_job_drop(job);
}

/* SQLite calls its progress handler every so many steps of a statement, counted over all of its runs, and also behind
 * the last one, when it has committed. A step of 2 MB of random bytes takes longer than LS_DB_PLACE_NS. */
TEST_IN(place, p, a_write_that_ends_late_does_not_run_again, 1, true)
{
    assert_int_equal(open_path(p, ":memory:", 1, true), LS_OK);
    run_sql(p, "create table t(a)");
    for (int n = 0; n < 24; n++) run_sql(p, "insert into t values(randomblob(2000000))");
    assert_int_equal(integer_of(p, "select count(*) from t"), 24);
}

TEST_IN(place, p, of_one_row_the_rest_is_not_read, 1, true)
{
    ls_db_job *job = job_new(p, NUMBERS("1000000000000") "select n from c");
    job->one = true;
    assert_true(ls_db_try(job));
    assert_int_equal(job->row_count, 1);
    assert_false(job->more);
    ls_db_job_drop(job);
}

TEST_IN(place, p, a_long_result_comes_in_batches, 1, true)
{
    size_t rows = 0;
    unsigned batches = 0;
    ls_db_job *job = job_new(p, NUMBERS("2000") "select n, zeroblob(1000) as b from c");
    run(job);
    for (;; batches++) {
        assert_int_equal(job->error, LS_OK);
        assert_true(job->rows.len < LS_DB_BATCH_BYTES + 2000);
        rows += job->row_count;
        if (!job->more) break;
        assert_false(ls_db_try(job));
        assert_int_equal(integer_of(p, "select 1"), 1); /* the only reader is not occupied by the result */
        ls_db_block(job);
    }
    assert_int_equal(rows, 2000);
    assert_true(batches >= 7);
    ls_db_job_drop(job);
}

TEST_IN(place, p, results_with_rows_left_have_a_limit, 1, true)
{
    ls_db_job *jobs[LS_DB_RESULTS_MAX + 1];
    for (unsigned n = 0; n <= LS_DB_RESULTS_MAX; n++) {
        jobs[n] = job_new(p, NUMBERS("1000") "select n, zeroblob(1000) as b from c");
        run(jobs[n]);
        assert_int_equal(jobs[n]->error, n < LS_DB_RESULTS_MAX ? LS_OK : LS_ELIMIT);
        assert_int_equal(jobs[n]->more, n < LS_DB_RESULTS_MAX);
    }
    ls_db_job_release(jobs[5]);
    run(jobs[LS_DB_RESULTS_MAX]);
    assert_true(jobs[LS_DB_RESULTS_MAX]->more);
    for (unsigned n = 0; n <= LS_DB_RESULTS_MAX; n++) ls_db_job_drop(jobs[n]);
    ls_db_stats stats;
    ls_db_stat(p->shared, &stats);
    assert_int_equal(stats.connections, 2); /* the writer, and the reader */
}

TEST_IN(place, p, a_transaction_is_undone_unless_it_is_committed, 1, true)
{
    run_sql(p, "create table t(a)");
    for (int commits = 0; commits < 2; commits++) {
        ls_db_job *lease = ls_db_job_new(p->db), *job = ls_db_job_new(p->db);
        lease->what = LS_DB_BEGIN;
        ls_db_block(lease);
        assert_int_equal(lease->error, LS_OK);
        job->lease = lease;
        set_sql(job, "insert into t values(1)");
        run(job);
        assert_int_equal(job->changes, 1);
        set_sql(job, "select count(*) from t");
        assert_true(ls_db_try(job)); /* reads of the transaction run in place */
        assert_int_equal(integer_of(p, "select count(*) from t"), 0);
        job->what = LS_DB_COMMIT;
        if (commits)
            ls_db_block(job);
        else
            ls_db_job_release(lease);
        set_sql(job, "insert into t values(2)"); /* behind the end */
        run(job);
        assert_int_equal(job->error, LS_ECANCELED);
        ls_db_job_drop(job);
        ls_db_job_drop(lease);
        assert_int_equal(integer_of(p, "select count(*) from t"), commits);
    }
}

/* ---- on the pool
 * ------------------------------------------------------------------------------------------------- */

typedef struct waiting { /* waiter, job */
    ls_waiter waiter;
    _Atomic bool woken;
} waiting;

static void woken(ls_waiter *waiter)
{
    atomic_store(&LS_CONTAINER(waiter, waiting, waiter)->woken, true);
}

static void queue(net_place *net, ls_db_job *job, waiting *w)
{
    atomic_init(&w->woken, false);
    ls_waiter_init(&w->waiter, woken);
    assert_int_equal(ls_db_queue(job, &w->waiter, net->port), LS_PENDING);
}

static void dispatch_until(net_place *net, const waiting *w)
{
    ls_packet packet;
    while (!atomic_load(&w->woken))
        if (ls_port_wait(net->port, &net->ctx, &packet, 1, 10) == 1) ls_packet_dispatch(&net->ctx, &packet);
}

static void run_anywhere(net_place *net, ls_db_job *job)
{
    waiting w;
    if (ls_db_try(job)) return;
    queue(net, job, &w);
    dispatch_until(net, &w);
}

/* The port is closed first, as in a server: its threads have ended then. */
static void pool_close(net_place *net, place *p)
{
    ls_db_disconnect(p->shared);
    net_place_release(net);
}

TEST_IN(place, p, a_job_that_is_cancelled_gives_its_connection_back, 1, true)
{
    net_place net;
    waiting first, second, third;
    net_place_open(&net);
    ls_db_job *forever = job_new(p, NUMBERS("1000000000000") "select count(*) from c"),
              *waits = job_new(p, "select 1"), *last = job_new(p, "select 2");
    assert_false(ls_db_try(forever));
    queue(&net, forever, &first);
    queue(&net, waits, &second);
    queue(&net, last, &third);
    assert_true(ls_db_cancel(waits, &second.waiter)); /* in the queue */
    assert_false(ls_db_try(waits));                   /* the only reader is busy */
    assert_true(ls_db_cancel(forever, &first.waiter));
    dispatch_until(&net, &third);
    assert_int_equal(last->row_count, 1);
    assert_int_equal(third.waiter.result, LS_OK);
    assert_false(ls_db_cancel(last, &third.waiter));
    assert_false(atomic_load(&first.woken) || atomic_load(&second.woken));
    ls_db_job_drop(forever);
    ls_db_job_drop(waits);
    ls_db_job_drop(last);
    pool_close(&net, p);
}

/* A task that ends while its rows are read cancels the job and releases it: the pool does so behind it. */
TEST_IN(place, p, a_result_that_is_read_is_released_behind_its_reader, 1, true)
{
    net_place net;
    waiting first;
    net_place_open(&net);
    for (int round = 0; round < 20; round++) {
        ls_db_job *rows =
                      job_new(p, NUMBERS("1000000000000") "select n, zeroblob(100000) as b from c where n % 1000 = 1"),
                  *last = job_new(p, "select 2");
        run_anywhere(&net, rows);
        assert_true(rows->more);
        queue(&net, rows, &first);
        (void)ls_db_cancel(rows, &first.waiter); /* or it has its next rows already */
        ls_db_job_release(rows);
        ls_db_job_drop(rows);
        run_anywhere(&net, last);
        assert_int_equal(last->row_count, 1);
        ls_db_job_drop(last);
    }
    ls_db_stats stats;
    ls_packet packet;
    for (ls_db_stat(p->shared, &stats); stats.connections != 2; ls_db_stat(p->shared, &stats))
        if (ls_port_wait(net.port, &net.ctx, &packet, 1, 10) == 1) ls_packet_dispatch(&net.ctx, &packet);
    pool_close(&net, p);
}

TEST_IN(place, p, a_transaction_whose_begin_is_cancelled_has_not_the_writer, 1, true)
{
    net_place net;
    waiting first, second, third;
    net_place_open(&net);
    run_sql(p, "create table t(a)");
    ls_db_job *holder = ls_db_job_new(p->db), *begin = ls_db_job_new(p->db),
              *insert = job_new(p, "insert into t values(1)");
    holder->what = begin->what = LS_DB_BEGIN;
    queue(&net, holder, &first);
    dispatch_until(&net, &first);
    queue(&net, begin, &second);
    assert_false(ls_db_try(insert));
    queue(&net, insert, &third);
    assert_true(ls_db_cancel(begin, &second.waiter));
    ls_db_job_release(holder); /* the writer goes to the insert */
    dispatch_until(&net, &third);
    assert_int_equal(insert->changes, 1);
    ls_db_job_drop(holder);
    ls_db_job_drop(begin);
    ls_db_job_drop(insert);
    assert_int_equal(integer_of(p, "select count(*) from t"), 1);
    pool_close(&net, p);
}

/* ---- values, memory
 * ------------------------------------------------------------------------------------------------ */

TEST(values_are_read_as_they_were_put)
{
    ls_db_bytes bytes = {0};
    const int64_t integer = INT64_MIN;
    const char *data;
    size_t len;
    for (int n = 0; n < 100; n++) {
        assert_true(ls_db_bytes_put(&bytes, LS_DB_NULL, NULL, 0));
        assert_true(ls_db_bytes_put(&bytes, LS_DB_INTEGER, &integer, sizeof integer));
        assert_true(ls_db_bytes_put(&bytes, LS_DB_TEXT, "a\0b", 3));
        assert_true(ls_db_bytes_put(&bytes, LS_DB_BLOB, NULL, 0));
    }
    const char *at = bytes.data;
    for (int n = 0; n < 100; n++) {
        assert_int_equal(ls_db_bytes_take(&at, &data, &len), LS_DB_NULL);
        assert_int_equal(ls_db_bytes_take(&at, &data, &len), LS_DB_INTEGER);
        assert_memory_equal(data, &integer, sizeof integer);
        assert_int_equal(ls_db_bytes_take(&at, &data, &len), LS_DB_TEXT);
        assert_int_equal(len, 3);
        assert_memory_equal(data, "a\0b", 3);
        assert_int_equal(ls_db_bytes_take(&at, &data, &len), LS_DB_BLOB);
        assert_int_equal(len, 0);
    }
    assert_ptr_equal(at, bytes.data + bytes.len);
    free(bytes.data);
}

TEST_IN(place, p, without_memory_a_job_fails_and_nothing_is_lost, 1, true)
{
    unsigned failures = 0;
    for (int allowed = 0;; allowed++) {
        test_allocations_left = allowed;
        ls_db_job *job = ls_db_job_new(p->db);
        test_allocations_left = -1;
        if (job == NULL) {
            failures++;
            continue;
        }
        set_sql(job, NUMBERS("100") "select n, 'some text that is longer than the first memory' as t from c");
        size_t rows = 0;
        test_allocations_left = allowed;
        do { /* a slow machine gives some of the rows at a time: the memory is missing in any of these */
            run(job);
            rows += job->row_count;
        } while (job->error == LS_OK && job->more);
        test_allocations_left = -1;
        const int error = job->error;
        ls_db_job_drop(job);
        if (error == LS_OK) {
            assert_int_equal(rows, 100);
            break;
        }
        failures++;
    }
    assert_true(failures > 3);
    assert_int_equal(integer_of(p, "select 5"), 5);
}
