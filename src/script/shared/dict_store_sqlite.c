/* dict_store_sqlite.c - see dict_store.h.
 *
 * Locks: store->lock is taken under that of a shard (ls_dict_store_note), never the other way round. The connection
 * belongs to the thread, and before it starts and after it has ended to the caller of open and close. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "port/port.h"
#include "script/shared/dict_internal.h"
#include "script/shared/dict_store.h"

enum { BUSY_MS = 5000, MARK_TRUE = 't', MARK_FALSE = 'f', MARK_VALUE = 'v', MARK_LIST = 'l' };

typedef struct change {
    ls_dict_key key;     /* bytes: behind the struct */
    ls_dict_value value; /* a reference; LS_DICT_NIL: the entry was removed */
    char *list;          /* of a list, in the form of the file */
    size_t list_len;
    uint64_t expires_ms; /* wall time; 0: never */
    struct change *next;
    char bytes[];
} change;

/* A file of dicts belongs to one process: the memory of a second one would not see what the first writes. The process
 * keeps an SQLite lock on an empty database beside the file, which its dicts share; the system ends it with the process. */
typedef struct file_lock {
    sqlite3 *handle;
    unsigned users;
    struct file_lock *next;
    char path[]; /* of the database of the dicts, complete */
} file_lock;

static file_lock *file_locks; /* under SQLITE_MUTEX_STATIC_APP1 */

struct ls_dict_store {
    ls_dict *dict;
    sqlite3 *handle;
    file_lock *file_lock;
    sqlite3_stmt *put, *remove;
    bool sync;
    ls_thread thread;
    ls_mutex lock;
    ls_cond wake, done; /* for the thread; for ls_dict_store_block */
    ls_node waiters;    /* their number is in message, see waits_for */
    bool waking;        /* the thread wakes waiters, without the lock */
    bool idle, closing; /* the thread waits for a change; it writes the rest and ends */
    unsigned blocked;
    uint64_t noted, stored; /* numbers of changes */
    int error;              /* of the last write */
    unsigned failures;      /* writes that have failed since the last that has not */
    change *first, **last;  /* taken, but not yet in the file */
};

/* ---- the form of values -------------------------------------------------------------------------------------------- */

static uint64_t wall_ms(void)
{
    return (uint64_t)ls_clock_wall_us() / 1000;
}

static int bind_value(sqlite3_stmt *stmt, int at, const change *c)
{
    size_t len;
    switch (c->value.type) {
    case LS_DICT_BOOLEAN: return sqlite3_bind_blob(stmt, at, c->value.as.boolean ? "t" : "f", 1, SQLITE_STATIC);
    case LS_DICT_INTEGER: return sqlite3_bind_int64(stmt, at, c->value.as.integer);
    case LS_DICT_FLOAT: return sqlite3_bind_double(stmt, at, c->value.as.number);
    case LS_DICT_LIST: return sqlite3_bind_blob64(stmt, at, c->list, c->list_len, SQLITE_STATIC);
    default: {
        const char *text = ls_value_text(c->value.as.value, &len);
        if (text != NULL) return sqlite3_bind_text64(stmt, at, text, len, SQLITE_STATIC, SQLITE_UTF8);
        const char *code = ls_value_code(c->value.as.value, &len); /* behind one byte for the mark */
        char *marked = malloc(len + 1);
        if (marked == NULL) return SQLITE_NOMEM;
        marked[0] = MARK_VALUE;
        memcpy(marked + 1, code, len);
        return sqlite3_bind_blob64(stmt, at, marked, len + 1, free);
    }
    }
}

/* The values of a list: each is a type, its length and its bytes. */
static char *list_of(const ls_dict_list *list, size_t *out_len)
{
    size_t len = 1;
    for (int pass = 0;; pass++) {
        char *out = pass == 0 ? NULL : malloc(len), *to = out != NULL ? out + 1 : NULL;
        if (pass == 1 && out == NULL) return NULL;
        if (out != NULL) out[0] = MARK_LIST;
        for (size_t n = 0; n < list->count; n++) {
            const ls_dict_value *value = &list->values[(list->head + n) & (list->room - 1)];
            const char *bytes = (const char *)&value->as;
            size_t bytes_len = sizeof value->as;
            if (value->type == LS_DICT_VALUE) bytes = ls_value_code(value->as.value, &bytes_len);
            if (out == NULL) {
                len += 1 + sizeof bytes_len + bytes_len;
                continue;
            }
            *to = (char)value->type;
            memcpy(to + 1, &bytes_len, sizeof bytes_len);
            memcpy(to + 1 + sizeof bytes_len, bytes, bytes_len);
            to += 1 + sizeof bytes_len + bytes_len;
        }
        if (out == NULL) continue;
        *out_len = len;
        return out;
    }
}

/* false: damaged, or out of memory. */
static bool load_list(ls_dict *dict, const ls_dict_key *key, const char *at, size_t left)
{
    while (left > 0) {
        ls_dict_value value = {.type = LS_DICT_NIL};
        size_t len, length;
        if (left < 1 + sizeof len) return false;
        value.type = (uint8_t)*at;
        memcpy(&len, at + 1, sizeof len);
        at += 1 + sizeof len;
        left -= 1 + sizeof len;
        if (len > left || value.type == LS_DICT_NIL || value.type > LS_DICT_VALUE) return false;
        if (value.type == LS_DICT_VALUE) {
            if ((value.as.value = ls_value_of_code(at, len)) == NULL) return false;
        } else {
            if (len != sizeof value.as) return false;
            memcpy(&value.as, at, len);
        }
        if (ls_dict_push(dict, key, &value, 1, false, &length) < 0) return false;
        at += len;
        left -= len;
    }
    return true;
}

static int load_value(ls_dict *dict, const ls_dict_key *key, sqlite3_stmt *row, uint64_t ttl_ms)
{
    ls_dict_value value = {.type = LS_DICT_VALUE};
    const char *bytes = sqlite3_column_blob(row, 1);
    const size_t len = (size_t)sqlite3_column_bytes(row, 1);
    switch (sqlite3_column_type(row, 1)) {
    case SQLITE_INTEGER:
        value = (ls_dict_value){.type = LS_DICT_INTEGER, .as.integer = sqlite3_column_int64(row, 1)};
        break;
    case SQLITE_FLOAT:
        value = (ls_dict_value){.type = LS_DICT_FLOAT, .as.number = sqlite3_column_double(row, 1)};
        break;
    case SQLITE_TEXT:
        if ((value.as.value = ls_value_string(len > 0 ? bytes : "", len)) == NULL) return LS_ENOMEM;
        break;
    default:
        if (len == 0) return LS_EIO;
        if (bytes[0] == MARK_LIST) {
            if (!load_list(dict, key, bytes + 1, len - 1)) return LS_EIO;
            if (ttl_ms > 0) (void)ls_dict_expire(dict, key, ttl_ms);
            return LS_OK;
        }
        if (bytes[0] == MARK_VALUE) {
            if ((value.as.value = ls_value_of_code(bytes + 1, len - 1)) == NULL) return LS_EIO;
        } else {
            value = (ls_dict_value){.type = LS_DICT_BOOLEAN, .as.boolean = bytes[0] == MARK_TRUE};
        }
        break;
    }
    return ls_dict_set(dict, key, value, LS_DICT_SET, ttl_ms, 0);
}

/* ---- open -------------------------------------------------------------------------------------------------------- */

static char *table_sql(const char *format, const char *name)
{
    char *quoted = sqlite3_mprintf("%w", name), *sql = sqlite3_mprintf(format, quoted);
    sqlite3_free(quoted);
    return sql;
}

static int prepare(ls_dict_store *store, const char *format, const char *name, sqlite3_stmt **out)
{
    char *sql = table_sql(format, name);
    const int result = sql == NULL ? SQLITE_NOMEM : sqlite3_prepare_v2(store->handle, sql, -1, out, NULL);
    sqlite3_free(sql);
    return result;
}

static int open_lock(const char *path, file_lock **out)
{
    char *name = sqlite3_mprintf("%s.lock", path);
    file_lock *lock = calloc(1, sizeof *lock + strlen(path) + 1);
    int result = SQLITE_NOMEM;
    if (name != NULL && lock != NULL) {
        memcpy(lock->path, path, strlen(path) + 1);
        result = sqlite3_open_v2(name, &lock->handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                                 NULL);
        if (result == SQLITE_OK) result = sqlite3_exec(lock->handle, "begin exclusive", NULL, NULL, NULL);
    }
    sqlite3_free(name);
    if (result != SQLITE_OK) {
        if (lock != NULL) (void)sqlite3_close(lock->handle);
        free(lock);
        return result;
    }
    lock->next = file_locks;
    *out = file_locks = lock;
    return SQLITE_OK;
}

static void drop_lock(file_lock *lock)
{
    sqlite3_mutex *mutex = sqlite3_mutex_alloc(SQLITE_MUTEX_STATIC_APP1);
    if (lock == NULL) return;
    sqlite3_mutex_enter(mutex);
    if (--lock->users == 0) {
        file_lock **at = &file_locks;
        while (*at != lock) at = &(*at)->next;
        *at = lock->next;
        (void)sqlite3_close(lock->handle);
        free(lock);
    }
    sqlite3_mutex_leave(mutex);
}

static int lock_file(ls_dict_store *store)
{
    const char *path = sqlite3_db_filename(store->handle, "main");
    sqlite3_mutex *mutex = sqlite3_mutex_alloc(SQLITE_MUTEX_STATIC_APP1);
    if (path == NULL || path[0] == '\0') return SQLITE_OK; /* only in memory */
    sqlite3_mutex_enter(mutex);
    file_lock *lock = file_locks;
    while (lock != NULL && strcmp(lock->path, path) != 0) lock = lock->next;
    const int result = lock != NULL ? SQLITE_OK : open_lock(path, &lock);
    if (result == SQLITE_OK) lock->users++;
    store->file_lock = lock;
    sqlite3_mutex_leave(mutex);
    return result;
}

static int code_of(int result)
{
    switch (result & 0xff) {
    case SQLITE_NOMEM: return LS_ENOMEM;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return LS_EBUSY;
    case SQLITE_FULL: return LS_ENOSPC;
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN: return LS_EACCES;
    default: return LS_EIO;
    }
}

/* LS_OK, or a code with the reason in options->message. */
static int open_file(ls_dict_store *store, const ls_dict_options *options)
{
    char *create =
        table_sql("create table if not exists \"dict %s\"(key not null primary key, value, expires) without rowid",
                  options->name);
    int result = sqlite3_open_v2(options->file, &store->handle,
                                 SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (result == SQLITE_OK && !options->shares && (result = lock_file(store)) == SQLITE_BUSY) {
        (void)snprintf(
            options->message, options->message_bytes,
            "the file is in use by another process: a dict file belongs to one server; several servers share "
            "a dict in Redis (redis = true)");
        sqlite3_free(create);
        return LS_EBUSY;
    }
    if (result == SQLITE_OK) {
        (void)sqlite3_busy_timeout(store->handle, BUSY_MS);
        result = sqlite3_exec(store->handle,
                              options->sync ? "pragma journal_mode = wal; pragma synchronous = full"
                                            : "pragma journal_mode = wal; pragma synchronous = normal",
                              NULL, NULL, NULL);
    }
    if (result == SQLITE_OK)
        result = create == NULL ? SQLITE_NOMEM : sqlite3_exec(store->handle, create, NULL, NULL, NULL);
    if (result == SQLITE_OK)
        result = prepare(store, "insert or replace into \"dict %s\" values(?, ?, ?)", options->name, &store->put);
    if (result == SQLITE_OK)
        result = prepare(store, "delete from \"dict %s\" where key = ?", options->name, &store->remove);
    sqlite3_free(create);
    if (result != SQLITE_OK && store->handle != NULL)
        (void)snprintf(options->message, options->message_bytes, "%s",
                       sqlite3_errcode(store->handle) == SQLITE_OK ? sqlite3_errstr(result)
                                                                   : sqlite3_errmsg(store->handle));
    return result == SQLITE_OK ? LS_OK : code_of(result);
}

static ls_dict_key key_of(sqlite3_stmt *row)
{
    ls_dict_key key = {0};
    if (sqlite3_column_type(row, 0) == SQLITE_INTEGER) {
        key.integer = sqlite3_column_int64(row, 0);
    } else {
        key.bytes = (const char *)sqlite3_column_blob(row, 0);
        key.len = (size_t)sqlite3_column_bytes(row, 0);
        if (key.bytes == NULL) key.bytes = "";
    }
    return key;
}

static int load(ls_dict_store *store, const ls_dict_options *options)
{
    sqlite3_stmt *row = NULL;
    const uint64_t now_ms = wall_ms();
    int err = LS_OK, result = prepare(store, "select key, value, expires from \"dict %s\"", options->name, &row);
    while (result == SQLITE_OK && (result = sqlite3_step(row)) == SQLITE_ROW) {
        const ls_dict_key key = key_of(row);
        const uint64_t expires_ms = (uint64_t)sqlite3_column_int64(row, 2);
        result = SQLITE_OK;
        if (expires_ms != 0 && expires_ms <= now_ms) continue; /* its row is deleted below */
        if ((err = load_value(store->dict, &key, row, expires_ms != 0 ? expires_ms - now_ms : 0)) < 0) break;
    }
    (void)sqlite3_finalize(row);
    if (result == SQLITE_DONE || err < 0) result = SQLITE_OK;
    if (result == SQLITE_OK && err == LS_OK) {
        char *expired =
            sqlite3_mprintf("delete from \"dict %w\" where expires <= %lld", options->name, (long long)now_ms);
        result = expired == NULL ? SQLITE_NOMEM : sqlite3_exec(store->handle, expired, NULL, NULL, NULL);
        sqlite3_free(expired);
    }
    if (result != SQLITE_OK) {
        (void)snprintf(options->message, options->message_bytes, "%s", sqlite3_errmsg(store->handle));
        return code_of(result);
    }
    if (err == LS_EIO) (void)snprintf(options->message, options->message_bytes, "an entry of the dict is damaged");
    if (err == LS_ELIMIT || err == LS_EMSGSIZE)
        (void)snprintf(options->message, options->message_bytes,
                       "the entries in the file do not fit: give a larger size");
    if (err == LS_ENOMEM) (void)snprintf(options->message, options->message_bytes, "not enough memory");
    return err;
}

static void free_changes(change *c)
{
    while (c != NULL) {
        change *next = c->next;
        if (c->value.type == LS_DICT_VALUE) ls_value_drop(c->value.as.value);
        free(c->list);
        free(c);
        c = next;
    }
}

static void store_free(ls_dict_store *store)
{
    free_changes(store->first);
    (void)sqlite3_finalize(store->put);
    (void)sqlite3_finalize(store->remove);
    (void)sqlite3_close(store->handle);
    drop_lock(store->file_lock);
    ls_cond_close(&store->done);
    ls_cond_close(&store->wake);
    ls_mutex_close(&store->lock);
    free(store);
}

static void store_main(void *arg);

int ls_dict_store_open(ls_dict *dict, const ls_dict_options *options, ls_dict_store **out)
{
    int err = LS_ENOMEM;
    ls_dict_store *store = calloc(1, sizeof *store);
    (void)snprintf(options->message, options->message_bytes, "not enough memory");
    if (store == NULL) return err;
    *store = (ls_dict_store){.dict = dict, .sync = options->sync, .last = &store->first};
    ls_node_init(&store->waiters);
    if ((err = ls_mutex_open(&store->lock)) < 0) goto fail_store;
    if ((err = ls_cond_open(&store->wake)) < 0) goto fail_lock;
    if ((err = ls_cond_open(&store->done)) < 0) goto fail_wake;
    if ((err = open_file(store, options)) < 0 || (err = load(store, options)) < 0 ||
        (err = ls_thread_start(&store->thread, "dict", store_main, store)) < 0) {
        store_free(store);
        return err;
    }
    *out = store;
    return LS_OK;

fail_wake:
    ls_cond_close(&store->wake);
fail_lock:
    ls_mutex_close(&store->lock);
fail_store:
    free(store);
    return err;
}

/* ---- changes ------------------------------------------------------------------------------------------------------- */

void ls_dict_store_note(ls_dict_store *store)
{
    ls_mutex_lock(&store->lock);
    store->noted++;
    if (store->idle) ls_cond_signal(&store->wake);
    store->idle = false;
    ls_mutex_unlock(&store->lock);
}

/* A copy of the changed entry. NULL: out of memory. The lock of the shard is held. */
static change *change_of(const ls_dict_entry *entry, uint64_t now_ms)
{
    change *c = malloc(sizeof *c + entry->key_len);
    if (c == NULL) return NULL;
    *c = (change){.key = {.len = entry->key_len}, .value = {.type = LS_DICT_NIL}};
    memcpy(c->bytes, entry->key, entry->key_len);
    if (entry->key_is_integer)
        memcpy(&c->key.integer, entry->key, sizeof c->key.integer);
    else
        c->key.bytes = c->bytes;
    if (entry->removed) return c;
    c->value = entry->value;
    if (c->value.type == LS_DICT_VALUE) (void)ls_value_hold(c->value.as.value);
    if (c->value.type == LS_DICT_LIST && (c->list = list_of(c->value.as.list, &c->list_len)) == NULL) {
        free(c);
        return NULL;
    }
    if (entry->expires_ms != 0)
        c->expires_ms = wall_ms() + (entry->expires_ms > now_ms ? entry->expires_ms - now_ms : 0);
    return c;
}

/* Take the changes of a shard. Without memory the rest stays. */
static bool take_changes(ls_dict_store *store, unsigned shard)
{
    ls_dict_access access;
    bool fine = true;
    ls_dict_enter_shard(&access, store->dict, shard);
    ls_node *list = &access.shard->changed;
    while (fine && !ls_list_empty(list)) {
        ls_dict_entry *entry = LS_CONTAINER(list->next, ls_dict_entry, changed);
        change *c = change_of(entry, access.now_ms);
        fine = c != NULL;
        if (!fine) break;
        *store->last = c;
        store->last = &c->next;
        ls_list_remove(&entry->changed);
        entry->has_row = true;
        if (!entry->removed) continue;
        entry->next = access.garbage;
        access.garbage = entry;
    }
    ls_dict_leave(&access);
    return fine;
}

static int write_change(ls_dict_store *store, const change *c)
{
    sqlite3_stmt *stmt = c->value.type == LS_DICT_NIL ? store->remove : store->put;
    int result = c->key.bytes == NULL
                     ? sqlite3_bind_int64(stmt, 1, c->key.integer)
                     : sqlite3_bind_text64(stmt, 1, c->key.bytes, c->key.len, SQLITE_STATIC, SQLITE_UTF8);
    if (result == SQLITE_OK && stmt == store->put) {
        result = bind_value(stmt, 2, c);
        if (result == SQLITE_OK)
            result =
                c->expires_ms == 0 ? sqlite3_bind_null(stmt, 3) : sqlite3_bind_int64(stmt, 3, (int64_t)c->expires_ms);
    }
    if (result == SQLITE_OK && sqlite3_step(stmt) != SQLITE_DONE) result = sqlite3_errcode(store->handle);
    (void)sqlite3_reset(stmt);
    (void)sqlite3_clear_bindings(stmt);
    return result;
}

/* Write the changes that were taken, in one transaction. They stay if it fails. */
static int write_changes(ls_dict_store *store)
{
    int result = store->first == NULL ? SQLITE_OK : sqlite3_exec(store->handle, "begin immediate", NULL, NULL, NULL);
    if (store->first == NULL) return LS_OK;
    for (const change *c = store->first; c != NULL && result == SQLITE_OK; c = c->next)
        result = write_change(store, c);
    if (result == SQLITE_OK) result = sqlite3_exec(store->handle, "commit", NULL, NULL, NULL);
    if (result != SQLITE_OK) {
        const char *name = ((const ls_shared_object *)(const void *)store->dict)->name;
        if (store->failures++ == 0)
            ls_log(
                LS_LOG_ERROR,
                "the dict \"%s\" cannot be written to its file, which is tried again; its changes wait in memory: %s",
                name, sqlite3_errmsg(store->handle));
        if (sqlite3_get_autocommit(store->handle) == 0)
            (void)sqlite3_exec(store->handle, "rollback", NULL, NULL, NULL);
        return code_of(result);
    }
    store->failures = 0;
    free_changes(store->first);
    store->first = NULL;
    store->last = &store->first;
    return LS_OK;
}

/* ---- the thread ------------------------------------------------------------------------------------------------------ */

/* The changes up to `number` are in the file, or the write has failed: then all waiters get the error. The lock is held. */
static void decide(ls_dict_store *store, uint64_t number, int err, ls_node *woken)
{
    store->error = err;
    if (err == LS_OK) store->stored = number;
    for (ls_node *node = store->waiters.next, *next; node != &store->waiters; node = next) {
        ls_waiter *waiter = LS_CONTAINER(node, ls_waiter, node);
        next = node->next;
        if (err < 0 || waiter->number <= number) ls_waiter_decide(waiter, err, woken);
    }
    ls_cond_broadcast(&store->done);
}

static void store_main(void *arg)
{
    ls_dict_store *store = arg;
    ls_node woken;
    uint64_t number = 0; /* of the changes that were taken */
    bool all = true;     /* they are all up to that number */
    ls_mutex_lock(&store->lock);
    for (;;) {
        while (store->noted == store->stored && !store->closing) {
            store->idle = true;
            ls_cond_wait(&store->wake, &store->lock);
        }
        if (store->noted == store->stored) break; /* closing */
        if (!store->sync && !store->closing && ls_list_empty(&store->waiters) && store->blocked == 0) {
            store->idle = false; /* changes wake the thread only when it is idle; a waiter and the close always do */
            (void)ls_cond_wait_ms(&store->wake, &store->lock, LS_DICT_STORE_MS);
        }
        const bool takes = store->first == NULL; /* else those of the write that has failed */
        if (takes) {
            number = store->noted;
            all = true;
        }
        ls_mutex_unlock(&store->lock);
        for (unsigned n = 0; takes && n < store->dict->shard_count; n++) all = take_changes(store, n) && all;
        int err = write_changes(store);
        if (err == LS_OK && !all) err = LS_ENOMEM;
        ls_node_init(&woken);
        ls_mutex_lock(&store->lock);
        decide(store, number, err, &woken);
        store->waking = true;
        ls_mutex_unlock(&store->lock);
        ls_waiters_wake(&woken);
        ls_mutex_lock(&store->lock);
        store->waking = false;
        ls_cond_broadcast(&store->done);
        if (err < 0 && store->closing) break;
        if (err < 0 && ls_list_empty(&store->waiters)) /* else one has come meanwhile: its signal is over */
            (void)ls_cond_wait_ms(&store->wake, &store->lock, LS_DICT_STORE_RETRY_MS);
    }
    ls_mutex_unlock(&store->lock);
}

int ls_dict_store_wait(ls_dict_store *store, ls_waiter *waiter)
{
    int result = LS_OK;
    ls_mutex_lock(&store->lock);
    if (store->stored < store->noted) {
        waiter->number = store->noted;
        ls_list_push(&store->waiters, &waiter->node);
        ls_cond_signal(&store->wake);
        result = LS_PENDING;
    }
    ls_mutex_unlock(&store->lock);
    return result;
}

bool ls_dict_store_cancel(ls_dict_store *store, ls_waiter *waiter)
{
    ls_mutex_lock(&store->lock);
    const bool waits = waiter->result == LS_EAGAIN;
    if (waits) ls_list_remove(&waiter->node);
    ls_mutex_unlock(&store->lock);
    return waits;
}

int ls_dict_store_block(ls_dict_store *store)
{
    ls_mutex_lock(&store->lock);
    const uint64_t number = store->noted;
    int err = LS_OK;
    store->blocked++;
    ls_cond_signal(&store->wake);
    while (store->stored < number && err == LS_OK) {
        ls_cond_wait(&store->done, &store->lock);
        err = store->stored < number ? store->error : LS_OK;
    }
    store->blocked--;
    ls_mutex_unlock(&store->lock);
    return err;
}

static void wait_for_wakes(ls_shared_object *object, void *unused)
{
    ls_dict_store *store = ls_dict_store_of((ls_dict *)(void *)object);
    (void)unused;
    if (store == NULL) return;
    ls_mutex_lock(&store->lock);
    while (store->waking) ls_cond_wait(&store->done, &store->lock);
    ls_mutex_unlock(&store->lock);
}

void ls_dict_stores_disconnect(ls_shared *shared)
{
    ls_shared_each(shared, &ls_dict_kind, wait_for_wakes, NULL);
}

void ls_dict_store_close(ls_dict_store *store)
{
    ls_mutex_lock(&store->lock);
    store->closing = true;
    ls_cond_signal(&store->wake);
    ls_mutex_unlock(&store->lock);
    ls_thread_join(&store->thread);
    store_free(store);
}
