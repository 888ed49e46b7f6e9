/* connection_sqlite.c - see connection_sqlite.h.
 *
 * The handler of SQLite's progress runs every PROGRESS_OPS steps of its virtual machine. It interrupts a statement
 * whose time in place is over, and one whose task has ended. An authorizer refuses what would make the connections of
 * a database differ: transactions begin and end with db:transaction, no file is attached to one of them. */
#include "script/database/connection_sqlite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/io/log.h"
#include "base/text.h"

enum {
    PROGRESS_OPS = 100,
    CLOCK_ROWS = 8 /* between two looks at the clock */,
    WAYS = 4,
    BUSY_STEP_MS = 2,
    CACHE_KIB = 4096
};

/* ---- errors
 * ------------------------------------------------------------------------------------------------------ */

static int code_of(sqlite3 *handle)
{
    static const struct {
        int sqlite, code;
    } codes[] = {{SQLITE_NOMEM, LS_ENOMEM},    {SQLITE_BUSY, LS_EBUSY},         {SQLITE_LOCKED, LS_EBUSY},
                 {SQLITE_READONLY, LS_EACCES}, {SQLITE_PERM, LS_EACCES},        {SQLITE_FULL, LS_ENOSPC},
                 {SQLITE_TOOBIG, LS_EMSGSIZE}, {SQLITE_CORRUPT, LS_EIO},        {SQLITE_NOTADB, LS_EIO},
                 {SQLITE_IOERR, LS_EIO},       {SQLITE_INTERRUPT, LS_ECANCELED}};
    const int extended = sqlite3_extended_errcode(handle), error = extended & 0xff;
    if (extended == SQLITE_CONSTRAINT_UNIQUE || extended == SQLITE_CONSTRAINT_PRIMARYKEY ||
        extended == SQLITE_CONSTRAINT_ROWID)
        return LS_EEXIST;
    if (extended == SQLITE_IOERR_NOMEM) return LS_ENOMEM;
    if (error == SQLITE_CANTOPEN) { /* without a number of the system: a directory on Windows */
        const int code = ls_err_from_system(sqlite3_system_errno(handle));
        return code < 0 ? code : LS_EACCES;
    }
    for (unsigned n = 0; n < sizeof codes / sizeof *codes; n++)
        if (codes[n].sqlite == error) return codes[n].code;
    return LS_EINVAL;
}

void ls_db_job_fail(ls_db_job *job, int error, const char *message)
{
    job->error = error;
    job->more = false;
    job->row_count = 0;
    job->rows.len = 0;
    const size_t len = strlen(message);
    char *to = ls_db_bytes_add(&job->rows, len + 1);
    if (to != NULL) memcpy(to, message, len + 1);
}

/* With the position in the statement if SQLite knows it. */
void ls_db_conn_fail(ls_db_conn *conn, ls_db_job *job)
{
    char text[400];
    const int offset = sqlite3_error_offset(conn->handle);
    if (offset >= 0) (void)snprintf(text, sizeof text, "%.360s at byte %d", sqlite3_errmsg(conn->handle), offset + 1);
    ls_db_job_fail(job, code_of(conn->handle), offset >= 0 ? text : sqlite3_errmsg(conn->handle));
}

/* ---- callbacks
 * --------------------------------------------------------------------------------------------------- */

/* SQLite asks also after the last step: what is done and committed is not interrupted, or a write would run again. */
static int on_progress(void *user)
{
    const ls_db_conn *conn = user;
    if (conn->running != NULL && !sqlite3_stmt_busy(conn->running->stmt)) return 0;
    if (conn->job != NULL && atomic_load_explicit(&conn->job->canceled, memory_order_relaxed)) return 1;
    return conn->until_ns != 0 && ls_clock_ns() > conn->until_ns;
}

/* Another program has locked the file. */
static int on_busy(void *user, int count)
{
    ls_db_conn *conn = user;
    if (conn->until_ns != 0) return 0; /* in place: again, on the pool */
    if (count == 0) conn->busy_since_ns = ls_clock_ns();
    if (conn->job != NULL && atomic_load_explicit(&conn->job->canceled, memory_order_relaxed)) return 0;
    if (ls_clock_ns() - conn->busy_since_ns > (uint64_t)LS_DB_BUSY_MS_MAX * 1000000) return 0;
    ls_clock_sleep_ms(BUSY_STEP_MS);
    return 1;
}

static int on_commit(void *user, sqlite3 *handle, const char *name, int pages)
{
    ls_db_conn *conn = user;
    conn->wal_pages = pages;
    return SQLITE_OK;
}

/* A pragma with an argument that only reads. */
static bool reads_with_argument(const char *pragma)
{
    static const char *const names[] = {"table_info",  "table_xinfo",    "table_list",       "index_info",
                                        "index_xinfo", "index_list",     "foreign_key_list", "foreign_key_check",
                                        "quick_check", "integrity_check"};
    for (unsigned n = 0; n < sizeof names / sizeof *names; n++)
        if (sqlite3_stricmp(pragma, names[n]) == 0) return true;
    return false;
}

static int authorize(void *user, int action, const char *a, const char *b, const char *c, const char *d)
{
    ls_db_conn *conn = user;
    if (!conn->preparing) return SQLITE_OK;
    if (action == SQLITE_TRANSACTION || action == SQLITE_SAVEPOINT)
        conn->refused = "transactions are made by db:transaction(fn), not by BEGIN, COMMIT or SAVEPOINT";
    else if (action == SQLITE_FUNCTION && b != NULL && d == NULL && sqlite3_get_autocommit(conn->handle) != 0 &&
             (sqlite3_stricmp(b, "last_insert_rowid") == 0 || sqlite3_stricmp(b, "changes") == 0))
        conn->refused =
            "this function would tell of another connection: use last_id and changes of the result of db:exec, or "
            "returning id";
    else if (action == SQLITE_ATTACH || action == SQLITE_DETACH)
        conn->refused = "ATTACH would concern one of several connections: open the file with ls.sqlite";
    else if (action == SQLITE_PRAGMA && b != NULL &&
             (sqlite3_stricmp(a, "journal_mode") == 0 || sqlite3_stricmp(a, "locking_mode") == 0 ||
              sqlite3_stricmp(a, "synchronous") == 0 || sqlite3_stricmp(a, "query_only") == 0))
        conn->refused = "this setting is that of ls.sqlite: see its options";
    else if (action == SQLITE_PRAGMA && b != NULL && !reads_with_argument(a))
        conn->setting = true;
    return conn->refused != NULL ? SQLITE_DENY : SQLITE_OK;
}

/* ---- open
 * -------------------------------------------------------------------------------------------------------- */

void ls_db_conn_close(ls_db_conn *conn)
{
    for (unsigned n = 0; n < LS_DB_STATEMENTS_MAX; n++) {
        (void)sqlite3_finalize(conn->statements[n].stmt);
        free(conn->statements[n].sql);
    }
    (void)sqlite3_close(conn->handle);
    free(conn);
}

/* The clock of SQLite, its `now`, is that of the site, which `luaserve test` moves: milliseconds of the Julian day
 * count. */
static int current_time(sqlite3_vfs *vfs, sqlite3_int64 *out)
{
    *out = INT64_C(210866760000000) + ls_clock_wall_us() / 1000 + (int64_t)(ls_clock_moved_ns() / 1000000);
    return SQLITE_OK;
}

/* The name of the default VFS with this clock. */
static const char *vfs_name(void)
{
    static sqlite3_vfs vfs;
    sqlite3_mutex *mutex = sqlite3_mutex_alloc(SQLITE_MUTEX_STATIC_APP1);
    sqlite3_mutex_enter(mutex);
    if (vfs.zName == NULL) {
        vfs = *sqlite3_vfs_find(NULL);
        vfs.zName = "luaserve";
        vfs.xCurrentTimeInt64 = current_time;
        (void)sqlite3_vfs_register(&vfs, 0);
    }
    sqlite3_mutex_leave(mutex);
    return vfs.zName;
}

/* A row was written. An update by `on conflict` leaves sqlite3_last_insert_rowid that of an earlier row. */
static void on_change(void *user, int operation, const char *schema, const char *table, sqlite3_int64 id)
{
    ((ls_db_conn *)user)->inserted |= operation == SQLITE_INSERT;
}

int ls_db_conn_open(ls_db *db, const char *path, bool writer, bool memory, bool sync, ls_db_conn **out, char *message,
                    size_t message_bytes)
{
    char settings[300];
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | (writer ? SQLITE_OPEN_CREATE : 0);
    ls_db_conn *conn = calloc(1, sizeof *conn);
    if (conn == NULL) {
        (void)snprintf(message, message_bytes, "not enough memory");
        return LS_ENOMEM;
    }
    *conn = (ls_db_conn){.db = db, .writer = writer};
    ls_node_init(&conn->node);
    ls_node_init(&conn->all);
    (void)snprintf(
        settings, sizeof settings,
        "pragma cache_size = -%d; pragma foreign_keys = on; pragma trusted_schema = off; %s pragma synchronous "
        "= %s; pragma query_only = %s",
        CACHE_KIB, writer && !memory ? "pragma journal_mode = wal;" : "",
        memory ? "off"
        : sync ? "full"
               : "normal",
        writer ? "off" : "on");
    int result = sqlite3_initialize();
    if (result == SQLITE_OK) result = sqlite3_open_v2(path, &conn->handle, flags, vfs_name());
    if (result == SQLITE_OK) {
        (void)sqlite3_extended_result_codes(conn->handle, 1);
        (void)sqlite3_limit(conn->handle, SQLITE_LIMIT_LENGTH, LS_DB_VALUE_BYTES_MAX);
        (void)sqlite3_db_config(conn->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
        (void)sqlite3_busy_handler(conn->handle, on_busy, conn);
        /* SQLite does not ask on_busy while another process changes the mode of a new file to WAL. */
        const uint64_t until_ns = ls_clock_ns() + (uint64_t)LS_DB_BUSY_MS_MAX * 1000000;
        while (((result = sqlite3_exec(conn->handle, settings, NULL, NULL, NULL)) & 0xff) == SQLITE_BUSY &&
               ls_clock_ns() < until_ns)
            ls_clock_sleep_ms(BUSY_STEP_MS);
        /* A file in another mode, such as one of a read-only folder, cannot have readers beside the writer. */
        (void)sqlite3_wal_autocheckpoint(conn->handle, 0);
        (void)sqlite3_wal_hook(conn->handle, on_commit, conn);
        sqlite3_progress_handler(conn->handle, PROGRESS_OPS, on_progress, conn);
        if (writer) (void)sqlite3_update_hook(conn->handle, on_change, conn);
        (void)sqlite3_set_authorizer(conn->handle, authorize, conn);
    }
    if (result == SQLITE_OK) /* reads the file: it may be none of SQLite */
        result = sqlite3_exec(conn->handle, "select 1 from sqlite_schema limit 1", NULL, NULL, NULL);
    if (result == SQLITE_OK) {
        *out = conn;
        return LS_OK;
    }
    const int error = conn->handle != NULL ? code_of(conn->handle) : LS_ENOMEM;
    (void)snprintf(message, message_bytes, "%s",
                   conn->handle != NULL ? sqlite3_errmsg(conn->handle) : "not enough memory");
    ls_db_conn_close(conn);
    return error;
}

/* ---- prepared statements
 * ------------------------------------------------------------------------------------------ */

static bool begins_with_vacuum(const char *sql)
{
    while (*sql == ' ' || *sql == '\t' || *sql == '\n' || *sql == '\r') sql++;
    return sqlite3_strnicmp(sql, "vacuum", 6) == 0;
}

/* Whether only white space, comments and semicolons are left. */
static bool is_empty(ls_db_conn *conn, const char *sql, const char *end)
{
    sqlite3_stmt *stmt = NULL;
    while (sql < end && (*sql == ' ' || *sql == '\t' || *sql == '\n' || *sql == '\r' || *sql == ';')) sql++;
    if (sql == end) return true;
    const int result = sqlite3_prepare_v2(conn->handle, sql, (int)(end - sql), &stmt, NULL);
    (void)sqlite3_finalize(stmt);
    return result == SQLITE_OK && stmt == NULL;
}

static int prepare(ls_db_conn *conn, const char *sql, size_t len, unsigned flags, sqlite3_stmt **stmt,
                   const char **rest)
{
    conn->preparing = true;
    conn->setting = false;
    conn->refused = NULL;
    const int result = sqlite3_prepare_v3(conn->handle, sql, (int)len, flags, stmt, rest);
    conn->preparing = false;
    return result;
}

static void prepare_failed(ls_db_conn *conn, ls_db_job *job)
{
    if (conn->refused != NULL)
        ls_db_job_fail(job, LS_EINVAL, conn->refused);
    else
        ls_db_conn_fail(conn, job);
}

ls_db_statement *ls_db_conn_prepare(ls_db_conn *conn, ls_db_job *job)
{
    const uint64_t hash = ls_text_hash(job->sql.data, job->sql.len);
    ls_db_statement *set = &conn->statements[hash % (LS_DB_STATEMENTS_MAX / WAYS) * WAYS], *oldest = set;
    const char *rest = NULL;
    ls_db_statement made = {.hash = hash, .len = job->sql.len, .used = ++conn->uses};
    for (unsigned n = 0; n < WAYS; n++) {
        if (set[n].stmt != NULL && set[n].hash == hash && set[n].len == job->sql.len &&
            memcmp(set[n].sql, job->sql.data, job->sql.len) == 0) {
            set[n].used = made.used;
            return &set[n];
        }
        if (set[n].used < oldest->used) oldest = &set[n];
    }
    const int result = prepare(conn, job->sql.data, job->sql.len, SQLITE_PREPARE_PERSISTENT, &made.stmt, &rest);
    if (result != SQLITE_OK) {
        prepare_failed(conn, job);
        return NULL;
    }
    made.writes = conn->setting || (made.stmt != NULL && !sqlite3_stmt_readonly(made.stmt));
    made.alone = conn->setting || begins_with_vacuum(job->sql.data);
    const char *wrong = NULL;
    if (made.stmt == NULL)
        wrong = "no statement";
    else if (!is_empty(conn, rest, job->sql.data + job->sql.len))
        wrong = "several statements: call a method for each, or db:migrate";
    else if ((made.sql = malloc(made.len)) == NULL)
        wrong = "not enough memory";
    if (wrong != NULL) {
        (void)sqlite3_finalize(made.stmt);
        ls_db_job_fail(job, LS_EINVAL, wrong);
        return NULL;
    }
    memcpy(made.sql, job->sql.data, made.len);
    (void)sqlite3_finalize(oldest->stmt);
    free(oldest->sql);
    *oldest = made;
    return oldest;
}

/* ---- parameters
 * ---------------------------------------------------------------------------------------------------- */

static int bind_value(sqlite3_stmt *stmt, int index, enum ls_db_type type, const char *data, size_t len)
{
    int64_t integer = 0;
    double number = 0;
    switch (type) {
    case LS_DB_INTEGER: memcpy(&integer, data, sizeof integer); return sqlite3_bind_int64(stmt, index, integer);
    case LS_DB_FLOAT: memcpy(&number, data, sizeof number); return sqlite3_bind_double(stmt, index, number);
    case LS_DB_TEXT: return sqlite3_bind_text64(stmt, index, data, len, SQLITE_STATIC, SQLITE_UTF8);
    case LS_DB_BLOB: return sqlite3_bind_blob64(stmt, index, len > 0 ? data : "", len, SQLITE_STATIC);
    default: return SQLITE_OK; /* unbound: NULL */
    }
}

static bool misused(ls_db_job *job, const char *message)
{
    ls_db_job_fail(job, LS_EINVAL, message);
    return false;
}

/* The value of the field `name`; LS_DB_NULL if it is absent. */
static enum ls_db_type field_of(const ls_db_job *job, const char *name, const char **data, size_t *len, bool *found)
{
    const char *at = job->values.data, *key;
    size_t key_len;
    for (unsigned n = 0; n < job->value_count; n++) {
        (void)ls_db_bytes_take(&at, &key, &key_len);
        const enum ls_db_type type = ls_db_bytes_take(&at, data, len);
        *found = strlen(name) == key_len && memcmp(name, key, key_len) == 0;
        if (*found) return type;
    }
    return LS_DB_NULL;
}

static bool has_parameter(sqlite3_stmt *stmt, int count, const char *key, size_t key_len)
{
    for (int n = 1; n <= count; n++) {
        const char *name = sqlite3_bind_parameter_name(stmt, n) + 1;
        if (strlen(name) == key_len && memcmp(name, key, key_len) == 0) return true;
    }
    return false;
}

/* `absent`, a parameter without a field, is NULL, unless a field has no parameter: then one of both is misspelt. */
static bool check_absent(ls_db_job *job, sqlite3_stmt *stmt, int count, const char *absent)
{
    const char *at = job->values.data, *key, *data;
    size_t key_len, len;
    char text[300];
    for (unsigned n = 0; n < job->value_count; n++) {
        (void)ls_db_bytes_take(&at, &key, &key_len);
        (void)ls_db_bytes_take(&at, &data, &len);
        if (has_parameter(stmt, count, key, key_len)) continue;
        (void)snprintf(
            text, sizeof text,
            "the parameter %.60s has no field, and no parameter uses the field %.*s: one name is misspelt; for NULL "
            "write %.60s = ls.json.null",
            absent, (int)(key_len < 60 ? key_len : 60), key, absent + 1);
        return misused(job, text);
    }
    return true;
}

/* false: job->error. */
static bool bind(ls_db_conn *conn, ls_db_job *job, sqlite3_stmt *stmt)
{
    const int count = sqlite3_bind_parameter_count(stmt);
    const char *at = job->values.data, *data = NULL, *absent = NULL;
    size_t len = 0;
    char text[200];
    if (!job->named && (unsigned)count != job->value_count) {
        (void)snprintf(text, sizeof text, "the statement has %d parameter%s; got %u value%s", count,
                       count == 1 ? "" : "s", job->value_count, job->value_count == 1 ? "" : "s");
        return misused(job, text);
    }
    for (int n = 1; n <= count; n++) {
        const char *name = job->named ? sqlite3_bind_parameter_name(stmt, n) : NULL;
        bool found = !job->named;
        if (job->named && name == NULL)
            return misused(job, "a table gives values to parameters with names, such as :id, not to ?");
        const enum ls_db_type type =
            job->named ? field_of(job, name + 1, &data, &len, &found) : ls_db_bytes_take(&at, &data, &len);
        if (!found) absent = name;
        if (type == LS_DB_OTHER) {
            (void)snprintf(text, sizeof text,
                           "%.60s%sa value must be nil, a boolean, a number, a string or a buffer; got a %.*s",
                           name != NULL ? name : "", name != NULL ? ": " : "", (int)len, data);
            return misused(job, text);
        }
        if (bind_value(stmt, n, type, data, len) != SQLITE_OK) {
            ls_db_conn_fail(conn, job);
            return false;
        }
    }
    return absent == NULL || check_absent(job, stmt, count, absent);
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

static bool is_boolean(sqlite3_stmt *stmt, int column)
{
    const char *type = sqlite3_column_decltype(stmt, column);
    return type != NULL && (sqlite3_stricmp(type, "boolean") == 0 || sqlite3_stricmp(type, "bool") == 0);
}

/* The names of the columns, and which of them are BOOLEAN. */
static bool add_names(ls_db_job *job, ls_db_statement *statement)
{
    sqlite3_stmt *stmt = statement->stmt;
    const int columns = sqlite3_column_count(stmt);
    const int prepared = sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_REPREPARE, 0) + 1;
    if (prepared != statement->prepared) {
        statement->booleans = 0;
        for (int n = 0; n < columns; n++) statement->booleans |= (uint64_t)is_boolean(stmt, n) << n % 64;
        statement->prepared = prepared;
    }
    job->columns = (unsigned)columns;
    job->names.len = 0;
    for (int n = 0; n < columns; n++) {
        const char *name = sqlite3_column_name(stmt, n);
        if (name == NULL || !ls_db_bytes_put(&job->names, LS_DB_TEXT, name, strlen(name))) return false;
    }
    return true;
}

/* 1 or 0 for a text that PostgreSQL reads as a boolean, and 0 for an empty one, of a form; -1: it is another text. */
static int boolean_of(const char *text, size_t len)
{
    static const char *const words[] = {"", "false", "f", "no", "n", "off", "0", "true", "t", "yes", "y", "on", "1"};
    for (int n = 0; n < (int)(sizeof words / sizeof words[0]); n++)
        if (strlen(words[n]) == len && sqlite3_strnicmp(text, words[n], (int)len) == 0) return n >= 7;
    return -1;
}

/* The text, or blob, of a column that is declared BOOLEAN: as a string it would be true in Lua. */
static int add_boolean(ls_db_job *job, ls_db_statement *statement, int column, const char *bytes, size_t len)
{
    sqlite3_stmt *stmt = statement->stmt;
    const bool text = sqlite3_column_type(stmt, column) == SQLITE_TEXT;
    const int64_t value = text ? boolean_of(bytes, len) : -1;
    char why[400];
    if (value >= 0 && !statement->told) {
        statement->told = true;
        ls_log(LS_LOG_WARN,
               "ls.sqlite: the column %.100s is declared boolean and holds the text \"%s\": it reads as %s, and in "
               "SQL no "
               "text is true; store true or false, as db:insert and db:update do, in: %.*s",
               sqlite3_column_name(stmt, column), bytes, value != 0 ? "true" : "false",
               (int)(statement->len < 200 ? statement->len : 200), statement->sql);
    }
    if (value >= 0) return ls_db_bytes_put(&job->rows, LS_DB_BOOLEAN, &value, sizeof value) ? SQLITE_OK : SQLITE_NOMEM;
    (void)snprintf(why, sizeof why, "the column %.100s is declared boolean and holds the %s %.*s: store true or false",
                   sqlite3_column_name(stmt, column), text ? "text" : "blob", text ? (int)(len < 60 ? len : 60) : 0,
                   bytes);
    ls_db_job_fail(job, LS_EINVAL, why);
    return SQLITE_MISMATCH;
}

/* SQLITE_OK, SQLITE_NOMEM, or SQLITE_MISMATCH, with the error of the job. */
static int add_row(ls_db_job *job, ls_db_statement *statement)
{
    sqlite3_stmt *stmt = statement->stmt;
    bool fine = true;
    for (int n = 0; n < (int)job->columns && fine; n++) {
        const bool declared = (statement->booleans >> n % 64 & 1) != 0 && (job->columns <= 64 || is_boolean(stmt, n));
        switch (sqlite3_column_type(stmt, n)) {
        case SQLITE_INTEGER: {
            const int64_t integer = sqlite3_column_int64(stmt, n);
            const bool boolean = declared && (integer == 0 || integer == 1);
            fine = ls_db_bytes_put(&job->rows, boolean ? LS_DB_BOOLEAN : LS_DB_INTEGER, &integer, sizeof integer);
            break;
        }
        case SQLITE_FLOAT: {
            const double number = sqlite3_column_double(stmt, n);
            fine = ls_db_bytes_put(&job->rows, LS_DB_FLOAT, &number, sizeof number);
            break;
        }
        case SQLITE_TEXT:
        case SQLITE_BLOB: {
            const bool text = sqlite3_column_type(stmt, n) == SQLITE_TEXT;
            const void *bytes = text ? (const void *)sqlite3_column_text(stmt, n) : sqlite3_column_blob(stmt, n);
            const size_t len = (size_t)sqlite3_column_bytes(stmt, n);
            fine = bytes != NULL || (!text && len == 0);
            if (fine && declared) {
                const int result = add_boolean(job, statement, n, bytes, len);
                if (result != SQLITE_OK) return result;
                break;
            }
            fine = fine && ls_db_bytes_put(&job->rows, text ? LS_DB_TEXT : LS_DB_BLOB, bytes, len);
            break;
        }
        default: fine = ls_db_bytes_put(&job->rows, LS_DB_NULL, NULL, 0); break;
        }
    }
    job->row_count++;
    return fine ? SQLITE_OK : SQLITE_NOMEM;
}

void ls_db_conn_reset(ls_db_conn *conn)
{
    if (conn->running != NULL) {
        (void)sqlite3_reset(conn->running->stmt);
        (void)sqlite3_clear_bindings(conn->running->stmt);
    }
    conn->running = NULL;
    conn->job = NULL;
    conn->until_ns = 0;
}

/* Step through the rows. SQLITE_DONE, SQLITE_ROW: there are more, or an error, which *wrong may name. `begins`: the
 * first step prepares a statement again when the tables were altered, and then has other columns. */
static int step(ls_db_conn *conn, ls_db_job *job, size_t batch, bool begins, const char **wrong)
{
    ls_db_statement *statement = conn->running;
    for (;; begins = false) {
        int result = sqlite3_step(statement->stmt);
        if (begins && (result == SQLITE_ROW || result == SQLITE_DONE) && !add_names(job, statement))
            return SQLITE_NOMEM;
        if (result != SQLITE_ROW) return result;
        if ((result = add_row(job, statement)) != SQLITE_OK) return result;
        if (job->one && !statement->writes) return SQLITE_DONE;
        if (batch == 0 && job->rows.len > LS_DB_ROWS_BYTES_MAX) {
            *wrong = "the rows have more than 64 MiB";
            return SQLITE_TOOBIG;
        }
        if (batch == 0) continue;
        const bool looks = conn->until_ns != 0 && job->row_count % CLOCK_ROWS == 0;
        if (job->rows.len >= batch || (looks && ls_clock_ns() > conn->until_ns)) return SQLITE_ROW;
    }
}

bool ls_db_conn_run(ls_db_conn *conn, ls_db_job *job, ls_db_statement *statement, size_t batch)
{
    const bool begins = conn->running == NULL;
    const char *wrong = NULL;
    job->rows.len = 0;
    job->row_count = 0;
    job->error = LS_OK;
    job->more = false;
    conn->job = job;
    if (begins) {
        conn->running = statement;
        conn->inserted = false;
        if (!bind(conn, job, statement->stmt)) {
            ls_db_conn_reset(conn);
            return true;
        }
    }
    const int64_t total = sqlite3_total_changes64(conn->handle);
    const int result = step(conn, job, batch, begins, &wrong);
    if (result == SQLITE_ROW) {
        job->more = true;
        conn->until_ns = 0;
        return true;
    }
    const bool moved = conn->until_ns != 0 && (result == SQLITE_INTERRUPT || (result & 0xff) == SQLITE_BUSY) &&
                       !atomic_load_explicit(&job->canceled, memory_order_relaxed);
    if (moved) {
        conn->running->slow = result == SQLITE_INTERRUPT;
    } else if (result == SQLITE_DONE) {
        job->changes = sqlite3_total_changes64(conn->handle) != total ? sqlite3_changes64(conn->handle) : 0;
        job->last_id = conn->inserted ? sqlite3_last_insert_rowid(conn->handle) : 0;
    } else if (wrong != NULL) {
        ls_db_job_fail(job, LS_EMSGSIZE, wrong);
    } else if (result == SQLITE_NOMEM) {
        ls_db_job_fail(job, LS_ENOMEM, "not enough memory");
    } else if (job->error == LS_OK) { /* else that of add_row */
        ls_db_conn_fail(conn, job);
    }
    ls_db_conn_reset(conn);
    return !moved;
}

int ls_db_conn_script(ls_db_conn *conn, ls_db_job *job, const char *sql, size_t len)
{
    const char *end = sql + len;
    const bool of_site = job != NULL && job->what == LS_DB_SCRIPT; /* else our own: BEGIN, COMMIT */
    int result = SQLITE_OK;
    conn->job = job;
    while (sql < end && result == SQLITE_OK) {
        sqlite3_stmt *stmt = NULL;
        conn->refused = NULL;
        result = of_site ? prepare(conn, sql, (size_t)(end - sql), 0, &stmt, &sql)
                         : sqlite3_prepare_v2(conn->handle, sql, (int)(end - sql), &stmt, &sql);
        if (result != SQLITE_OK) {
            if (job != NULL) prepare_failed(conn, job);
            break;
        }
        if (stmt == NULL) break; /* white space, a comment */
        do result = sqlite3_step(stmt);
        while (result == SQLITE_ROW);
        if (result == SQLITE_DONE)
            result = SQLITE_OK;
        else if (job != NULL)
            ls_db_conn_fail(conn, job);
        (void)sqlite3_finalize(stmt);
    }
    conn->job = NULL;
    return result == SQLITE_OK ? LS_OK : job != NULL ? job->error : code_of(conn->handle);
}
