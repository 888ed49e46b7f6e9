/* dict_store_sqlite.c - see dict_store.h.
 *
 * Locks, in the order in which they are taken: that of all files (SQLITE_MUTEX_STATIC_APP1), file->using, that of a
 * shard, file->lock.
 *
 * How the thread takes the changes of one moment without a lock of all shards: it begins an epoch, and then enters
 * each shard. Who enters a shard first in an epoch, the thread or a write, takes the changes that it has until
 * then. */
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/io/log.h"
#include "port/port.h"
#include "script/store/dict_internal.h"
#include "script/store/dict_store.h"

enum { BUSY_MS = 5000, MARK_TRUE = 't', MARK_FALSE = 'f', MARK_VALUE = 'v', MARK_LIST = 'l' };

typedef struct change {
    ls_dict_store *store;
    ls_dict_key key;     /* bytes: after the struct */
    ls_dict_value value; /* a reference; LS_DICT_NIL: the entry was removed */
    char *list;          /* of a list, in the form of the file */
    size_t list_len;
    uint64_t expires_ms; /* wall time; 0: never */
    struct change *next;
    char bytes[];
} change;

/* A file of dicts belongs to one process: the memory of a second one would not see what the first writes. The process
 * keeps an SQLite lock on an empty database beside the file; the system ends it with the process. */
typedef struct dict_file {
    sqlite3 *locked; /* the empty database. NULL: the file is not locked */
    ls_thread thread;
    ls_mutex using; /* for the connection and its statements, and `stores` */
    sqlite3 *handle;
    ls_dict_store *stores;
    _Atomic uint64_t epoch;
    change *first, **last; /* taken, but not yet in the file: while an epoch begins under `lock`, then the thread's */
    unsigned failures;     /* writes that have failed since the last that has not */
    ls_mutex lock;         /* for the rest */
    ls_cond wake, done;    /* for the thread; for ls_dict_store_block */
    ls_node waiters;
    bool waking;        /* the thread wakes waiters, without the lock */
    bool idle, closing; /* the thread waits for a change; it ends */
    bool incomplete;    /* without memory, changes of this epoch were left in their list */
    unsigned blocked;
    uint64_t noted, stored;  /* numbers of changes */
    uint64_t begun, decided; /* numbers of writes: the last that has begun, that has ended */
    int error;               /* of the last write */
    struct dict_file *next;
    char path[]; /* complete; empty: of this dict only */
} dict_file;

static dict_file *files; /* under SQLITE_MUTEX_STATIC_APP1 */

struct ls_dict_store {
    ls_dict *dict;
    dict_file *file;
    sqlite3_stmt *put, *remove;
    bool sync;
    ls_dict_store *next; /* of the file */
    char name[];         /* of the dict */
};

/* ---- the form of values
 * -------------------------------------------------------------------------------------------- */

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
    case LS_DICT_FLOAT: return sqlite3_bind_double(stmt, at, c->value.as.number); /* of NaN it makes NULL */
    case LS_DICT_LIST: return sqlite3_bind_blob64(stmt, at, c->list, c->list_len, SQLITE_STATIC);
    default: {
        const char *text = ls_value_text(c->value.as.value, &len);
        if (text != NULL) return sqlite3_bind_text64(stmt, at, text, len, SQLITE_STATIC, SQLITE_UTF8);
        const char *code = ls_value_code(c->value.as.value, &len); /* after one byte for the mark */
        char *marked = malloc(len + 1);
        if (marked == NULL) return SQLITE_NOMEM;
        marked[0] = MARK_VALUE;
        memcpy(marked + 1, code, len);
        return sqlite3_bind_blob64(stmt, at, marked, len + 1, free);
    }
    }
}

static int load_value(ls_dict *dict, const ls_dict_key *key, sqlite3_stmt *row, uint64_t ttl_ms)
{
    ls_dict_value value = {.type = LS_DICT_VALUE};
    const int type = sqlite3_column_type(row, 1); /* undefined after sqlite3_column_blob */
    const char *bytes = sqlite3_column_blob(row, 1);
    const size_t len = (size_t)sqlite3_column_bytes(row, 1);
    switch (type) {
    case SQLITE_NULL: value = (ls_dict_value){.type = LS_DICT_FLOAT, .as.number = NAN}; break;
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
            const int err = ls_dict_push_code(dict, key, bytes + 1, len - 1);
            if (err == LS_OK && ttl_ms > 0) (void)ls_dict_expire(dict, key, ttl_ms);
            return err;
        }
        if (bytes[0] == MARK_VALUE) {
            if ((value.as.value = ls_value_of_code(bytes + 1, len - 1)) == NULL) return LS_EIO;
        } else {
            if (len != 1 || (bytes[0] != MARK_TRUE && bytes[0] != MARK_FALSE)) return LS_EIO;
            value = (ls_dict_value){.type = LS_DICT_BOOLEAN, .as.boolean = bytes[0] == MARK_TRUE};
        }
        break;
    }
    return ls_dict_set(dict, key, value, LS_DICT_SET, ttl_ms, 0);
}

/* ---- open
 * -------------------------------------------------------------------------------------------------------- */

static char *table_sql(const char *format, const char *name)
{
    char *quoted = sqlite3_mprintf("%w", name), *sql = sqlite3_mprintf(format, quoted);
    sqlite3_free(quoted);
    return sql;
}

static int prepare(sqlite3 *handle, const char *format, const char *name, sqlite3_stmt **out)
{
    char *sql = table_sql(format, name);
    const int result = sql == NULL ? SQLITE_NOMEM : sqlite3_prepare_v2(handle, sql, -1, out, NULL);
    sqlite3_free(sql);
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

/* The code, with the reason in options->message. */
static int failed(const ls_dict_options *options, sqlite3 *handle, int result)
{
    (void)snprintf(options->message, options->message_bytes, "%s",
                   sqlite3_errcode(handle) == SQLITE_OK ? sqlite3_errstr(result) : sqlite3_errmsg(handle));
    return code_of(result);
}

static int open_database(const char *path, sqlite3 **out)
{
    int result = sqlite3_open_v2(path, out, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (result != SQLITE_OK) return result;
    (void)sqlite3_busy_timeout(*out, BUSY_MS);
    (void)sqlite3_db_config(*out, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    return sqlite3_exec(*out,
                        "pragma trusted_schema = off; pragma cell_size_check = on; pragma journal_mode = wal; "
                        "pragma synchronous = normal",
                        NULL, NULL, NULL);
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

/* Delete the rows whose entries are not in the dict: a smaller dict has removed them while it was loaded. In one
 * transaction: else a write of the file's thread after the first row that is read would make each delete fail. */
static int delete_others(ls_dict *dict, const ls_dict_options *options, sqlite3 *handle)
{
    sqlite3_stmt *row = NULL, *remove = NULL;
    uint64_t ms;
    int result = sqlite3_exec(handle, "begin immediate", NULL, NULL, NULL);
    if (result == SQLITE_OK) result = prepare(handle, "select key from \"dict %s\"", options->name, &row);
    if (result == SQLITE_OK) result = prepare(handle, "delete from \"dict %s\" where key = ?", options->name, &remove);
    while (result == SQLITE_OK && (result = sqlite3_step(row)) == SQLITE_ROW) {
        const ls_dict_key key = key_of(row);
        result = SQLITE_OK;
        if (ls_dict_ttl(dict, &key, &ms)) continue;
        (void)sqlite3_bind_value(remove, 1, sqlite3_column_value(row, 0));
        result = sqlite3_step(remove) == SQLITE_DONE ? sqlite3_reset(remove) : sqlite3_errcode(handle);
    }
    (void)sqlite3_finalize(row);
    (void)sqlite3_finalize(remove);
    return result == SQLITE_DONE ? sqlite3_exec(handle, "commit", NULL, NULL, NULL) : result;
}

/* Make the table of the dict. LS_EIO: the file has another, or a view, trigger or index, whose SQL would run. */
static int make_table(const ls_dict_options *options, sqlite3 *handle)
{
    static const char columns[] = "(key not null primary key, value, expires) without rowid";
    sqlite3_stmt *same = NULL;
    char *table = sqlite3_mprintf("\"dict %w\"%s", options->name, columns);
    char *create = sqlite3_mprintf("create table if not exists %s", table);
    char *check = sqlite3_mprintf("select count(*) = 1 and max(sql = 'create table %q' collate nocase) "
                                  "and encoding = 'UTF-8' from sqlite_schema, pragma_encoding "
                                  "where tbl_name = 'dict %q' collate nocase",
                                  table, options->name);
    int err = LS_OK, result = table != NULL && create != NULL && check != NULL ? SQLITE_OK : SQLITE_NOMEM;
    if (result == SQLITE_OK) result = sqlite3_exec(handle, create, NULL, NULL, NULL);
    if (result == SQLITE_OK) result = sqlite3_prepare_v2(handle, check, -1, &same, NULL);
    if (result == SQLITE_OK) result = sqlite3_step(same);
    if (result != SQLITE_ROW) {
        err = failed(options, handle, result);
    } else if (sqlite3_column_int(same, 0) == 0) {
        err = LS_EIO;
        (void)snprintf(options->message, options->message_bytes,
                       "the table \"dict %s\" is not as luaserve makes it, or the file is not in UTF-8",
                       options->name);
    }
    (void)sqlite3_finalize(same);
    sqlite3_free(check);
    sqlite3_free(create);
    sqlite3_free(table);
    return err;
}

/* Load the entries. LS_OK, or a code with the reason in options->message. */
static int load(ls_dict *dict, const ls_dict_options *options, sqlite3 *handle)
{
    sqlite3_stmt *row = NULL;
    const uint64_t now_ms = wall_ms();
    size_t rows = 0;
    int err = make_table(options, handle);
    if (err < 0) return err;
    int result = prepare(handle, "select key, value, expires from \"dict %s\"", options->name, &row);
    while (result == SQLITE_OK && (result = sqlite3_step(row)) == SQLITE_ROW) {
        const int types[2] = {sqlite3_column_type(row, 0), sqlite3_column_type(row, 2)}; /* before key_of */
        const ls_dict_key key = key_of(row);
        const uint64_t expires_ms = (uint64_t)sqlite3_column_int64(row, 2);
        result = SQLITE_OK;
        if ((types[0] != SQLITE_INTEGER && types[0] != SQLITE_TEXT) ||
            (types[1] == SQLITE_INTEGER ? expires_ms - 1 >= INT64_MAX : types[1] != SQLITE_NULL)) {
            err = LS_EIO;
            break;
        }
        if (expires_ms != 0 && expires_ms <= now_ms) continue; /* its row is deleted below */
        if ((err = load_value(dict, &key, row, expires_ms != 0 ? expires_ms - now_ms : 0)) < 0) break;
        rows++;
    }
    (void)sqlite3_finalize(row);
    if (result == SQLITE_DONE || err < 0) result = SQLITE_OK;
    if (result == SQLITE_OK && err == LS_OK) {
        char *expired =
            sqlite3_mprintf("delete from \"dict %w\" where expires <= %lld", options->name, (long long)now_ms);
        result = expired == NULL ? SQLITE_NOMEM : sqlite3_exec(handle, expired, NULL, NULL, NULL);
        sqlite3_free(expired);
        if (result == SQLITE_OK && rows > ls_dict_count(dict) && !options->shares)
            result = delete_others(dict, options, handle);
    }
    if (result != SQLITE_OK) return failed(options, handle, result);
    if (err == LS_EIO) (void)snprintf(options->message, options->message_bytes, "an entry of the dict is damaged");
    if (err == LS_ELIMIT || err == LS_EMSGSIZE)
        (void)snprintf(options->message, options->message_bytes,
                       "the entries in the file do not fit: give a larger size");
    if (err == LS_ENOMEM) (void)snprintf(options->message, options->message_bytes, "not enough memory");
    return err;
}

/* ---- the files of the process
 * ------------------------------------------------------------------------------------- */

static void file_main(void *arg);

/* Take the lock beside the file. */
static int lock_file(dict_file *file)
{
    char *name = sqlite3_mprintf("%s.lock", file->path);
    int result = name == NULL
                     ? SQLITE_NOMEM
                     : sqlite3_open_v2(name, &file->locked,
                                       SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    sqlite3_free(name);
    return result == SQLITE_OK ? sqlite3_exec(file->locked, "begin exclusive", NULL, NULL, NULL) : result;
}

/* Its thread does not run. */
static void file_free(dict_file *file)
{
    (void)sqlite3_close(file->handle);
    (void)sqlite3_close(file->locked);
    ls_cond_close(&file->done);
    ls_cond_close(&file->wake);
    ls_mutex_close(&file->lock);
    ls_mutex_close(&file->using);
    free(file);
}

/* Close a file without stores. The lock of all files is held. */
static void file_close(dict_file *file)
{
    dict_file **at = &files;
    while (*at != file) at = &(*at)->next;
    *at = file->next;
    ls_mutex_lock(&file->lock);
    file->closing = true;
    ls_cond_signal(&file->wake);
    ls_mutex_unlock(&file->lock);
    ls_thread_join(&file->thread);
    file_free(file);
}

/* Open the file at the path: `path` complete, `options` as the user has given it. The lock of all files is held.
 * LS_OK, or a code with the reason in options->message. */
static int file_open(const char *path, const ls_dict_options *options, dict_file **out)
{
    int err = LS_ENOMEM, result = SQLITE_OK;
    dict_file *file = calloc(1, sizeof *file + strlen(path) + 1);
    if (file == NULL) return err;
    file->last = &file->first;
    memcpy(file->path, path, strlen(path) + 1);
    ls_node_init(&file->waiters);
    ls_mutex_open(&file->using);
    ls_mutex_open(&file->lock);
    ls_cond_open(&file->wake);
    ls_cond_open(&file->done);
    if (path[0] != '\0' && !options->shares && (result = lock_file(file)) != SQLITE_OK) {
        err = failed(options, file->locked, result);
        if (result == SQLITE_BUSY)
            (void)snprintf(
                options->message, options->message_bytes,
                "the file is in use by another process: a dict file belongs to one server; several servers share "
                "a dict in Redis (redis = true)");
        goto fail;
    }
    if ((result = open_database(options->file, &file->handle)) != SQLITE_OK) {
        err = failed(options, file->handle, result);
        goto fail;
    }
    if ((err = ls_thread_start(&file->thread, "dict", file_main, file)) < 0) goto fail;
    file->next = files;
    *out = files = file;
    return LS_OK;

fail:
    file_free(file);
    return err;
}

/* The file of the database that `handle` has opened: of this process already, or new. */
static int file_of(sqlite3 *handle, const ls_dict_options *options, dict_file **out)
{
    const char *path = sqlite3_db_filename(handle, "main");
    if (path == NULL) path = ""; /* only in memory */
    for (dict_file *file = files; file != NULL && path[0] != '\0'; file = file->next) {
        if (strcmp(file->path, path) != 0) continue;
        *out = file;
        return LS_OK;
    }
    return file_open(path, options, out);
}

/* ---- a store
 * ------------------------------------------------------------------------------------------------------- */

static void free_change(change *c)
{
    if (c->value.type == LS_DICT_VALUE) ls_value_drop(c->value.as.value);
    free(c->list);
    free(c);
}

/* Remove the store from its file. The number of changes that could not be written. */
static unsigned detach(ls_dict_store *store)
{
    dict_file *file = store->file;
    unsigned lost = 0;
    ls_mutex_lock(&file->using);
    for (unsigned n = 0; n < store->dict->shard_count; n++) {
        const ls_node *list = &store->dict->shards[n].changed;
        for (const ls_node *node = list->next; node != list; node = node->next) lost++;
    }
    for (ls_dict_store **at = &file->stores; *at != NULL; at = &(*at)->next) {
        if (*at != store) continue;
        *at = store->next;
        break;
    }
    file->last = &file->first;
    for (change *c = file->first, *next; c != NULL; c = next) {
        next = c->next;
        if (c->store == store) {
            free_change(c);
            lost++;
            continue;
        }
        *file->last = c;
        file->last = &c->next;
    }
    *file->last = NULL;
    (void)sqlite3_finalize(store->put);
    (void)sqlite3_finalize(store->remove);
    const bool last = file->stores == NULL;
    ls_mutex_unlock(&file->using);
    if (last) file_close(file);
    free(store);
    return lost;
}

/* Add the store to its file. LS_OK, or a code with the reason in options->message. */
static int attach(ls_dict_store *store, const ls_dict_options *options)
{
    dict_file *file = store->file;
    ls_mutex_lock(&file->using);
    for (const ls_dict_store *other = file->stores; other != NULL; other = other->next) {
        if (sqlite3_stricmp(other->name, store->name) != 0 || strcmp(other->name, store->name) == 0) continue;
        (void)snprintf(options->message, options->message_bytes,
                       "the dict \"%s\" has its entries in this file: names must differ in more than capital letters",
                       other->name);
        ls_mutex_unlock(&file->using);
        return LS_EINVAL;
    }
    for (unsigned n = 0; n < store->dict->shard_count; n++) store->dict->shards[n].epoch = atomic_load(&file->epoch);
    store->next = file->stores;
    file->stores = store;
    int result =
        prepare(file->handle, "insert or replace into \"dict %s\" values(?, ?, ?)", options->name, &store->put);
    if (result == SQLITE_OK)
        result = prepare(file->handle, "delete from \"dict %s\" where key = ?", options->name, &store->remove);
    if (result == SQLITE_OK && store->sync)
        result = sqlite3_exec(file->handle, "pragma synchronous = full", NULL, NULL, NULL);
    const int err = result == SQLITE_OK ? LS_OK : failed(options, file->handle, result);
    ls_mutex_unlock(&file->using);
    return err;
}

int ls_dict_store_open(ls_dict *dict, const ls_dict_options *options, ls_dict_store **out)
{
    sqlite3 *handle = NULL;
    sqlite3_mutex *mutex = sqlite3_mutex_alloc(SQLITE_MUTEX_STATIC_APP1);
    const size_t name_bytes = strlen(options->name) + 1;
    ls_dict_store *store = calloc(1, sizeof *store + name_bytes);
    (void)snprintf(options->message, options->message_bytes, "not enough memory");
    if (store == NULL) return LS_ENOMEM;
    *store = (ls_dict_store){.dict = dict, .sync = options->sync};
    memcpy(store->name, options->name, name_bytes);
    sqlite3_mutex_enter(mutex);
    const int result = open_database(options->file, &handle);
    int err = result == SQLITE_OK ? file_of(handle, options, &store->file) : failed(options, handle, result);
    if (err == LS_OK) {
        if ((err = load(dict, options, handle)) == LS_OK) {
            *out = store; /* the thread finds it there, once it is attached */
            err = attach(store, options);
        }
        if (err < 0) {
            *out = NULL;
            (void)detach(store);
        }
    } else {
        free(store);
    }
    sqlite3_mutex_leave(mutex);
    (void)sqlite3_close(handle);
    return err;
}

void ls_dict_store_close(ls_dict_store *store)
{
    sqlite3_mutex *mutex = sqlite3_mutex_alloc(SQLITE_MUTEX_STATIC_APP1);
    const char *name = ((const ls_shared_object *)(const void *)store->dict)->name; /* `store` is freed */
    (void)ls_dict_store_block(store);                                               /* writes what has changed */
    sqlite3_mutex_enter(mutex);
    const unsigned lost = detach(store);
    sqlite3_mutex_leave(mutex);
    if (lost > 0)
        ls_log(LS_LOG_ERROR, "the dict \"%s\" could not be written to its file: changes of %u entries are lost", name,
               lost);
}

/* ---- changes
 * ------------------------------------------------------------------------------------------------------- */

void ls_dict_store_note(ls_dict_store *store)
{
    dict_file *file = store->file;
    ls_mutex_lock(&file->lock);
    file->noted++;
    if (file->idle && !store->sync) { /* with sync, the task that waits for it wakes the thread */
        ls_cond_signal(&file->wake);
        file->idle = false;
    }
    ls_mutex_unlock(&file->lock);
}

/* A copy of the changed entry. NULL: out of memory. The lock of the shard is held. */
static change *change_of(ls_dict_store *store, const ls_dict_entry *entry, uint64_t now_ms)
{
    change *c = malloc(sizeof *c + entry->key_len);
    if (c == NULL) return NULL;
    *c = (change){.store = store, .key = {.len = entry->key_len}, .value = {.type = LS_DICT_NIL}};
    memcpy(c->bytes, entry->key, entry->key_len);
    if (entry->key_is_integer)
        memcpy(&c->key.integer, entry->key, sizeof c->key.integer);
    else
        c->key.bytes = c->bytes;
    if (entry->removed) return c;
    c->value = entry->value;
    if (c->value.type == LS_DICT_VALUE) (void)ls_value_hold(c->value.as.value);
    if (c->value.type == LS_DICT_LIST) {
        c->list = ls_dict_list_code(c->value.as.list, 1, &c->list_len);
        if (c->list == NULL) {
            free(c);
            return NULL;
        }
        c->list[0] = MARK_LIST;
    }
    if (entry->expires_ms != 0)
        c->expires_ms = wall_ms() + (entry->expires_ms > now_ms ? entry->expires_ms - now_ms : 0);
    return c;
}

void ls_dict_store_enter(ls_dict_store *store, ls_dict_access *access)
{
    dict_file *file = store->file;
    const uint64_t epoch = atomic_load(&file->epoch);
    change *first = NULL, **last = &first;
    if (access->shard->epoch == epoch) return;
    access->shard->epoch = epoch;
    ls_node *list = &access->shard->changed;
    while (!ls_list_empty(list)) {
        ls_dict_entry *entry = LS_CONTAINER(list->next, ls_dict_entry, changed);
        change *c = change_of(store, entry, access->now_ms);
        if (c == NULL) break;
        *last = c;
        last = &c->next;
        ls_list_remove(&entry->changed);
        entry->has_row = true;
        if (!entry->removed) continue;
        entry->next = access->garbage;
        access->garbage = entry;
    }
    ls_mutex_lock(&file->lock);
    if (!ls_list_empty(list)) file->incomplete = true;
    if (first != NULL) {
        *file->last = first;
        file->last = last;
    }
    ls_mutex_unlock(&file->lock);
}

/* Take the changes of all dicts of the file. The number of the last. file->using is held. */
static uint64_t take_changes(dict_file *file)
{
    ls_mutex_lock(&file->lock);
    const uint64_t number = file->noted;
    file->incomplete = false;
    atomic_fetch_add(&file->epoch, 1);
    ls_mutex_unlock(&file->lock);
    for (ls_dict_store *store = file->stores; store != NULL; store = store->next) {
        for (unsigned n = 0; n < store->dict->shard_count; n++) {
            ls_dict_access access;
            ls_dict_enter_shard(&access, store->dict, n);
            ls_dict_leave(&access);
        }
    }
    return number;
}

static int write_change(const change *c)
{
    const ls_dict_store *store = c->store;
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
    if (result == SQLITE_OK && sqlite3_step(stmt) != SQLITE_DONE) result = sqlite3_errcode(store->file->handle);
    (void)sqlite3_reset(stmt);
    (void)sqlite3_clear_bindings(stmt);
    return result;
}

/* Write the changes that were taken, in one transaction. They stay if it fails. */
static int write_changes(dict_file *file)
{
    if (file->first == NULL) return LS_OK;
    int result = sqlite3_exec(file->handle, "begin immediate", NULL, NULL, NULL);
    for (const change *c = file->first; c != NULL && result == SQLITE_OK; c = c->next) result = write_change(c);
    if (result == SQLITE_OK) result = sqlite3_exec(file->handle, "commit", NULL, NULL, NULL);
    if (result != SQLITE_OK) {
        if (file->failures++ == 0)
            ls_log(
                LS_LOG_ERROR,
                "the dict \"%s\" cannot be written to its file, which is tried again; its changes wait in memory: %s",
                file->first->store->name, sqlite3_errmsg(file->handle));
        if (sqlite3_get_autocommit(file->handle) == 0) (void)sqlite3_exec(file->handle, "rollback", NULL, NULL, NULL);
        return code_of(result);
    }
    if (file->failures > 0)
        ls_log(LS_LOG_INFO, "the dict \"%s\" is written to its file again", file->first->store->name);
    file->failures = 0;
    for (change *c = file->first, *next; c != NULL; c = next) {
        next = c->next;
        free_change(c);
    }
    file->first = NULL;
    file->last = &file->first;
    return LS_OK;
}

/* ---- the thread
 * ------------------------------------------------------------------------------------------------------ */

/* The changes up to `number` are in the file, or the write has failed: then all waiters get the error. The lock is
 * held. */
static void decide(dict_file *file, uint64_t number, int err, ls_node *woken)
{
    file->error = err;
    file->decided = file->begun;
    if (err == LS_OK) file->stored = number;
    LS_LIST_EACH_DROP (ls_waiter, waiter, &file->waiters, node)
        if (err < 0 || waiter->number <= number) ls_waiter_decide(waiter, err, woken);
    ls_cond_broadcast(&file->done);
}

static void file_main(void *arg)
{
    dict_file *file = arg;
    ls_node woken;
    uint64_t number = 0; /* of the last change that was taken */
    ls_mutex_lock(&file->lock);
    while (!file->closing) {
        if (file->noted == file->stored || (ls_list_empty(&file->waiters) && file->blocked == 0)) {
            /* Changes wake the thread only when it is idle; a waiter and the close always do. */
            file->idle = file->noted == file->stored;
            if (file->idle)
                ls_cond_wait(&file->wake, &file->lock);
            else
                (void)ls_cond_wait_ms(&file->wake, &file->lock, LS_DICT_STORE_MS);
        }
        if (file->noted == file->stored) continue;
        file->begun++;
        ls_mutex_unlock(&file->lock);
        ls_mutex_lock(&file->using);
        if (file->first == NULL) number = take_changes(file); /* else those of the write that has failed */
        int err = write_changes(file);
        ls_mutex_unlock(&file->using);
        ls_node_init(&woken);
        ls_mutex_lock(&file->lock);
        if (err == LS_OK && file->incomplete) err = LS_ENOMEM;
        decide(file, number, err, &woken);
        file->waking = true;
        ls_mutex_unlock(&file->lock);
        ls_waiters_wake(&woken);
        ls_mutex_lock(&file->lock);
        file->waking = false;
        ls_cond_broadcast(&file->done);
        if (err < 0 && ls_list_empty(&file->waiters) && file->blocked == 0 &&
            !file->closing) /* else its signal is over */
            (void)ls_cond_wait_ms(&file->wake, &file->lock, LS_DICT_STORE_RETRY_MS);
    }
    ls_mutex_unlock(&file->lock);
}

int ls_dict_store_wait(ls_dict_store *store, ls_waiter *waiter)
{
    dict_file *file = store->file;
    int result = LS_OK;
    ls_mutex_lock(&file->lock);
    if (file->stored < file->noted) {
        waiter->number = file->noted;
        ls_list_push(&file->waiters, &waiter->node);
        ls_cond_signal(&file->wake);
        result = LS_PENDING;
    }
    ls_mutex_unlock(&file->lock);
    return result;
}

bool ls_dict_store_cancel(void *store, ls_waiter *waiter)
{
    return ls_waiter_cancel(&((ls_dict_store *)store)->file->lock, waiter);
}

int ls_dict_store_block(ls_dict_store *store)
{
    dict_file *file = store->file;
    ls_mutex_lock(&file->lock);
    const uint64_t number = file->noted, begun = file->begun;
    file->blocked++;
    ls_cond_signal(&file->wake);
    while (file->stored < number && (file->decided <= begun || file->error == LS_OK))
        ls_cond_wait(&file->done, &file->lock);
    const int err = file->stored < number ? file->error : LS_OK;
    file->blocked--;
    ls_mutex_unlock(&file->lock);
    return err;
}

static void wait_for_wakes(ls_shared_object *object, void *unused)
{
    ls_dict_store *store = ls_dict_store_of((ls_dict *)(void *)object);
    if (store == NULL) return;
    dict_file *file = store->file;
    ls_mutex_lock(&file->lock);
    while (file->waking) ls_cond_wait(&file->done, &file->lock);
    ls_mutex_unlock(&file->lock);
}

void ls_dict_stores_disconnect(ls_shared *shared)
{
    ls_shared_each(shared, &ls_dict_kind, wait_for_wakes, NULL);
}
