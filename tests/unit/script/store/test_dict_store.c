/* test_dict_store.c - a dict whose file cannot be written: what waits for it; what a file of two dicts has at any
 * moment. tests/e2e/test_dict_file.py has the rest. */
#define _GNU_SOURCE
#include <sqlite3.h>
#include <unistd.h>

#include "support.h"

#include "script/database/database.h"
#include "script/store/dict_internal.h"
#include "script/store/dict_store.h"

typedef struct place {
    char dir[sizeof TEST_SCRATCH_PATH], path[64];
    ls_shared *shared;
    ls_dict *dict;
} place;

static ls_dict *open_dict(place *p, const char *name)
{
    char message[300] = "", before[LS_SHARED_WHERE_BYTES];
    int error = LS_OK;
    ls_shared_object *object = NULL;
    const ls_dict_options options = {.bytes_max = LS_DICT_BYTES_DEFAULT,
                                     .file = p->path,
                                     .name = name,
                                     .error = &error,
                                     .message = message,
                                     .message_bytes = sizeof message};
    assert_int_equal(ls_shared_get(p->shared, &ls_dict_kind, name, "site.lua:1", &options, &object, before), LS_OK);
    return (ls_dict *)(void *)object;
}

static void place_open(place *p)
{
    assert_int_equal(ls_shared_open(&p->shared), LS_OK);
    p->dict = open_dict(p, "d");
}

static void place_make(place *p)
{
    assert_non_null(mkdtemp(p->dir));
    (void)snprintf(p->path, sizeof p->path, "%s/test.db", p->dir);
}

static void place_remove(place *p)
{
    assert_int_equal(unlink(p->path), 0);
    (void)snprintf(p->path, sizeof p->path, "%s/test.db.lock", p->dir);
    assert_int_equal(unlink(p->path), 0);
    assert_int_equal(rmdir(p->dir), 0);
}

/* A transaction of another connection, which has the lock of the file until it is dropped. */
static ls_db_job *hold_lock(place *p)
{
    char message[300] = "", before[LS_SHARED_WHERE_BYTES];
    int error = LS_OK;
    ls_shared_object *object = NULL;
    const ls_db_options options = {
        .path = p->path, .readers = 1, .error = &error, .message = message, .message_bytes = sizeof message};
    assert_int_equal(ls_shared_get(p->shared, &ls_db_kind, p->path, "site.lua:2", &options, &object, before), LS_OK);
    ls_db_job *job = ls_db_job_new(ls_db_of(object));
    assert_non_null(job);
    job->what = LS_DB_BEGIN;
    ls_db_block(job);
    assert_int_equal(job->error, LS_OK);
    return job;
}

static void set(place *p, int64_t key, uint8_t type)
{
    const ls_dict_key at = {.integer = key};
    const ls_dict_value value = {.type = type, .as.integer = key};
    assert_int_equal(ls_dict_set(p->dict, &at, value, LS_DICT_SET, 0, 0), LS_OK);
}

static unsigned waiting(place *p) /* for the store */
{
    unsigned count = 0;
    for (unsigned n = 0; n < p->dict->shard_count; n++) {
        ls_dict_access access;
        ls_dict_enter_shard(&access, p->dict, n);
        for (const ls_node *node = access.shard->changed.next; node != &access.shard->changed; node = node->next)
            count++;
        ls_dict_leave(&access);
    }
    return count;
}

/* The rows of 10 keys wait to be deleted; of 10,000 further ones, which come and go while the store waits for the lock
 * of the file, at most one was taken before. Afterwards the file has what the dict has. */
TEST(removed_entries_without_a_row_do_not_wait)
{
    place p = {.dir = TEST_SCRATCH_PATH};
    ls_dict_value value;
    place_make(&p);
    place_open(&p);
    for (int64_t key = 0; key < 10; key++) set(&p, key, LS_DICT_INTEGER);
    ls_shared_close(p.shared); /* writes them */

    place_open(&p);
    ls_db_job *lock = hold_lock(&p);
    for (int64_t key = 0; key < 10; key++) set(&p, key, LS_DICT_NIL);
    for (int64_t key = 10; key < 10000; key++) {
        set(&p, key, LS_DICT_INTEGER);
        set(&p, key, LS_DICT_NIL);
    }
    set(&p, 5, LS_DICT_INTEGER);
    assert_in_range(waiting(&p), 0, 12);
    assert_int_equal(ls_dict_count(p.dict), 1);
    ls_db_job_drop(lock);
    ls_shared_close(p.shared);

    place_open(&p);
    assert_int_equal(ls_dict_count(p.dict), 1);
    assert_true(ls_dict_get(p.dict, &(ls_dict_key){.integer = 5}, &value, NULL));
    ls_shared_close(p.shared);
    place_remove(&p);
}

enum { ROUNDS = 20000, COUNTERS = 50 };

/* A number is stored in the second dict, then in the first, then in the second under another key. */
static void store_numbers(void *arg)
{
    const place *p = arg;
    ls_dict *second = open_dict(arg, "second");
    for (int64_t n = 1; n <= ROUNDS; n++) {
        const ls_dict_key counter = {.integer = n % COUNTERS}, item = {.integer = COUNTERS + n};
        const ls_dict_value value = {.type = LS_DICT_INTEGER, .as.integer = n};
        (void)ls_dict_set(second, &counter, value, LS_DICT_SET, 0, 0);
        (void)ls_dict_set(p->dict, &item, value, LS_DICT_SET, 0, 0);
        (void)ls_dict_set(second, &item, value, LS_DICT_SET, 0, 0);
        if (n % 100 == 0) (void)ls_dict_store_block(ls_dict_store_of(second));
    }
}

/* What a crash leaves is what another connection reads: at each moment no number without those stored before. */
TEST(a_file_has_all_dicts_of_one_moment)
{
    static const char sql[] = "select (select coalesce(max(value), 0) from \"dict second\" where key < 50), "
                              "(select coalesce(max(value), 0) from \"dict d\"), (select count(*) from \"dict d\"), "
                              "(select coalesce(max(value), 0) from \"dict second\" where key >= 50)";
    place p = {.dir = TEST_SCRATCH_PATH};
    ls_thread thread;
    sqlite3 *reader = NULL;
    sqlite3_stmt *moment = NULL;
    int64_t stored = 0, moments = 0;
    place_make(&p);
    place_open(&p);
    (void)open_dict(&p, "second"); /* its table */
    assert_int_equal(sqlite3_open(p.path, &reader), SQLITE_OK);
    (void)sqlite3_busy_timeout(reader, 10000);
    assert_int_equal(sqlite3_prepare_v2(reader, sql, -1, &moment, NULL), SQLITE_OK);
    assert_int_equal(ls_thread_start(&thread, "writer", store_numbers, &p), LS_OK);
    while (stored < ROUNDS) {
        assert_int_equal(sqlite3_step(moment), SQLITE_ROW);
        const int64_t before = stored;
        stored = sqlite3_column_int64(moment, 3);
        assert_in_range(stored, before, sqlite3_column_int64(moment, 1));
        assert_in_range(sqlite3_column_int64(moment, 1), stored, sqlite3_column_int64(moment, 0));
        assert_int_equal(sqlite3_column_int64(moment, 2), sqlite3_column_int64(moment, 1));
        moments += stored != before;
        (void)sqlite3_reset(moment);
    }
    ls_thread_join(&thread);
    assert_in_range(moments, 2, ROUNDS);
    (void)sqlite3_finalize(moment);
    assert_int_equal(sqlite3_close(reader), SQLITE_OK);
    ls_shared_close(p.shared);
    place_remove(&p);
}
