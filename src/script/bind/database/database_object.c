/* database_object.c - the core of ls.sqlite (lua/luaserve/sqlite.lua): the statements of a database, its transactions,
 * results row by row (script/database/database.h).
 *
 * A call runs its job in place, or waits until the pool has run it. The job is in an object on the stack of the task,
 * which the collector releases after an error; the last object that was used is kept for the next call. A transaction
 * also ends with its task.
 *
 * A failure is nil, message, code; a call that is wrong is false, message. sqlite.lua raises both. */
#include <string.h>

#include "script/bind/bind_aux.h"
#include "script/bind/database/database_stats.h"
#include "script/bind/modules.h"
#include "script/bind/value/buffer.h"
#include "script/core/lua/udata.h"
#include "script/core/wait.h"
#include "script/database/database.h"
#include "script/store/dict_store.h"
#include "script/store/marshal.h"

static const ls_object_type database_type, call_type;

typedef struct database_object {
    const void *tag;
    ls_db *db; /* of the server: it outlives every state */
} database_object;

typedef struct call_object { /* of a statement, a result or a transaction */
    const void *tag;
    ls_db_job *job;
    ls_task_end end; /* of a transaction */
} call_object;

typedef struct database_data {
    int spare_ref; /* a call that is not used */
    bool has_spare;
} database_data;

enum { HOW_EXEC, HOW_QUERY, HOW_ONE }; /* the second argument of core.sqlite_run */
enum { TARGET = 1, CALL, RESULT };     /* the stack of a call */
enum { ROWS_HINT_MAX = 4096, SLOTS = 12 };

static database_data *data_of(lua_State *L)
{
    return ls_state_data(ls_state_of(L), LS_SLOT_sqlite);
}

/* ---- calls
 * ------------------------------------------------------------------------------------------------------- */

static int call_drop(lua_State *L) /* __gc, __close */
{
    call_object *call = lua_touserdata(L, 1);
    ls_db_job *job = call->job;
    call->job = NULL;
    ls_task_end_remove(&call->end);
    if (job == NULL) return 0;
    ls_db_job_release(job);
    ls_db_job_drop(job);
    return 0;
}

/* The transaction at `index`, or NULL. */
static ls_db_job *lease_at(lua_State *L, int index)
{
    const call_object *call = ls_udata_test(L, index, &call_type, sizeof *call);
    return call != NULL && call->job != NULL && call->job->what == LS_DB_BEGIN ? call->job : NULL;
}

/* Push a call of the database or the transaction at TARGET. NULL: the transaction has ended; false and the message are
 * pushed. */
static ls_db_job *call_push(lua_State *L, enum ls_db_what what)
{
    database_data *data = data_of(L);
    const database_object *database = ls_udata_test(L, TARGET, &database_type, sizeof *database);
    ls_db_job *lease = database == NULL ? lease_at(L, TARGET) : NULL;
    call_object *call;
    if (database == NULL && lease == NULL) {
        lua_pushboolean(L, 0);
        lua_pushliteral(L, "the transaction has ended");
        return NULL;
    }
    ls_db *db = database != NULL ? database->db : lease->db;
    if (data->has_spare) {
        data->has_spare = false;
        lua_rawgeti(L, LUA_REGISTRYINDEX, data->spare_ref);
        call = lua_touserdata(L, -1);
        call->job->db = db;
    } else {
        call = ls_object_push(L, sizeof *call, 0, &call_type);
        call->job = ls_db_job_new(db);
        if (call->job == NULL) {
            luaL_error(L, "not enough memory");
            return NULL;
        }
    }
    call->job->what = what;
    call->job->lease = lease;
    call->job->writes = what == LS_DB_BEGIN;
    call->job->one = false;
    return call->job;
}

/* The call at CALL has given its result: keep it for the next one. */
static void call_keep(lua_State *L)
{
    database_data *data = data_of(L);
    const call_object *call = lua_touserdata(L, CALL);
    enum { KEPT_BYTES_MAX = 65536 };
    if (data->has_spare || call->job->conn != NULL || call->job->rows.room > KEPT_BYTES_MAX ||
        call->job->values.room > KEPT_BYTES_MAX)
        return;
    lua_pushvalue(L, CALL);
    lua_rawseti(L, LUA_REGISTRYINDEX, data->spare_ref);
    data->has_spare = true;
}

static void wait_give_back(void *job, ls_waiter *waiter)
{
    if (waiter->result == LS_OK) ls_db_job_release(job);
}

static const ls_wait_kind statement = {ls_db_cancel, wait_give_back, LS_WAIT_WRITE, NULL};

static bool holds_transaction(const ls_state *state, const ls_db *db);

/* Run the job, and continue with `k`, whose context is 0 or the wait; the caller returns the result. */
static int run(lua_State *L, ls_db_job *job, lua_KFunction k)
{
    const ls_state *state = ls_state_of(L);
    ls_db_job *owner = job->lease != NULL ? job->lease : job; /* of the connection, once it has one */
    if (owner->used)
        return ls_push_false_text(L, "another task waits for a statement of this transaction, or for these rows");
    if (job->lease == NULL && !job->more && holds_transaction(state, job->db)) { /* a read would get the old rows */
        lua_pushboolean(L, 0);
        lua_pushliteral(L, "this task is inside of db:transaction: use the argument of its function, such as tx:exec, "
                           "or { tx = tx } of queue:push");
        return 2;
    }
    if (ls_db_try(job)) return k(L, LUA_OK, 0);
    if (state->loading) {
        ls_db_block(job);
        return k(L, LUA_OK, 0);
    }
    ls_wait *wait = ls_wait_begin(L, &statement, job);
    owner->used = true;
    if (ls_db_queue(job, &wait->waiter, state->port) == LS_PENDING) return ls_wait_suspend(L, wait, -1, false, k);
    owner->used = false;
    ls_wait_drop(wait);
    return k(L, LUA_OK, 0);
}

/* The beginning of `k`: the job has its result. A task that is ended while it waits does not get it. */
static ls_db_job *finished(lua_State *L, lua_KContext context)
{
    ls_wait *wait = (ls_wait *)context; /* NOLINT(performance-no-int-to-ptr) */
    const call_object *call = lua_touserdata(L, CALL);
    if (wait != NULL) {
        ls_db_job *lease = lease_at(L, TARGET); /* job->lease may be freed by now */
        (lease != NULL ? lease : call->job)->used = false;
    }
    const int result = wait != NULL ? ls_wait_end(L, wait, NULL) : LS_OK;
    if (wait != NULL && (result != LS_OK || ls_state_of(L)->current->cpu_exceeded)) {
        ls_db_job_release(call->job);
        ls_state_end_run(L);
    }
    return call->job;
}

static int push_failure(lua_State *L, ls_db_job *job)
{
    const char *message = job->rows.len > 0 ? job->rows.data : "not enough memory";
    return ls_push_failure_text(L, job->error, "%s", message);
}

static int done(lua_State *L, int status, lua_KContext context) /* without a result */
{
    ls_db_job *job = finished(L, context);
    if (job->error < 0) return push_failure(L, job);
    call_keep(L);
    return ls_push_boolean(L, true);
}

/* ---- parameters
 * ---------------------------------------------------------------------------------------------------- */

/* Add the value at `index`. false: out of memory. */
static bool add_value(lua_State *L, int index, ls_db_bytes *values)
{
    size_t len;
    const int type = lua_type(L, index);
    const ls_buffer *buffer = NULL;
    if (type == LUA_TNIL || (type == LUA_TLIGHTUSERDATA && lua_touserdata(L, index) == NULL))
        return ls_db_bytes_put(values, LS_DB_NULL, NULL, 0);
    if (type == LUA_TBOOLEAN || lua_isinteger(L, index)) {
        const int64_t integer = type == LUA_TBOOLEAN ? lua_toboolean(L, index) : lua_tointeger(L, index);
        return ls_db_bytes_put(values, LS_DB_INTEGER, &integer, sizeof integer);
    }
    if (type == LUA_TNUMBER) {
        const double number = lua_tonumber(L, index);
        return ls_db_bytes_put(values, LS_DB_FLOAT, &number, sizeof number);
    }
    if (type == LUA_TSTRING) {
        const char *text = lua_tolstring(L, index, &len);
        return ls_db_bytes_put(values, LS_DB_TEXT, text, len);
    }
    if ((buffer = ls_buffer_test(L, index)) == NULL) {
        const char *name = luaL_typename(L, index);
        return ls_db_bytes_put(values, LS_DB_OTHER, name, strlen(name));
    }
    if (!ls_db_bytes_put(values, LS_DB_BLOB, NULL, buffer->len)) return false;
    char *to = values->data + values->len - buffer->len;
    for (unsigned n = 0; n < buffer->count; n++) {
        memcpy(to, buffer->slices[n].ptr, buffer->slices[n].len);
        to += buffer->slices[n].len;
    }
    return true;
}

/* The fields of the table at `index`, whose names are strings. */
static bool add_fields(lua_State *L, int index, ls_db_job *job)
{
    bool fine = true;
    job->named = true;
    for (lua_pushnil(L); fine && lua_next(L, index) != 0; lua_settop(L, index + 2)) {
        size_t len;
        if (lua_type(L, index + 2) != LUA_TSTRING) continue;
        const char *name = lua_tolstring(L, index + 2, &len);
        fine = ls_db_bytes_put(&job->values, LS_DB_TEXT, name, len) && add_value(L, index + 3, &job->values);
        job->value_count++;
    }
    return fine;
}

/* Take the statement at `sql` and the values after it, and leave TARGET and the call on the stack. */
static void take_arguments(lua_State *L, int sql, ls_db_job *job)
{
    size_t len;
    const char *text = lua_tolstring(L, sql, &len);
    const int call = lua_gettop(L);
    job->sql.len = job->values.len = 0;
    job->value_count = 0;
    job->named = false;
    char *to = ls_db_bytes_add(&job->sql, len + 1);
    bool fine = to != NULL;
    if (fine) memcpy(to, text, len + 1);
    job->sql.len = len;
    if (fine && call - sql == 2 && lua_istable(L, call - 1)) {
        fine = add_fields(L, call - 1, job);
    } else {
        for (int n = sql + 1; n < call && fine; n++) fine = add_value(L, n, &job->values);
        job->value_count = (unsigned)(call - sql - 1);
    }
    if (!fine) luaL_error(L, "not enough memory");
    lua_replace(L, CALL);
    lua_settop(L, CALL);
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

static void push_value(lua_State *L, enum ls_db_type type, const char *bytes, size_t len)
{
    int64_t integer;
    double number;
    switch (type) {
    case LS_DB_INTEGER:
    case LS_DB_BOOLEAN:
        memcpy(&integer, bytes, sizeof integer);
        if (type == LS_DB_BOOLEAN)
            lua_pushboolean(L, integer != 0);
        else
            lua_pushinteger(L, integer);
        break;
    case LS_DB_FLOAT:
        memcpy(&number, bytes, sizeof number);
        lua_pushnumber(L, number);
        break;
    case LS_DB_TEXT: lua_pushlstring(L, bytes, len); break;
    case LS_DB_BLOB: ls_buffer_add_bytes(L, ls_buffer_push(L), bytes, len); break;
    default: lua_pushnil(L); break;
    }
}

/* Push the names of the columns. Returns the index of the first. */
static int push_names(lua_State *L, const ls_db_job *job)
{
    const char *at = job->names.data, *name;
    size_t len;
    luaL_checkstack(L, (int)job->columns + SLOTS, "too many columns");
    for (unsigned n = 0; n < job->columns; n++) {
        (void)ls_db_bytes_take(&at, &name, &len);
        lua_pushlstring(L, name, len);
    }
    return lua_gettop(L) - (int)job->columns + 1;
}

/* Push the row at *at. */
static void push_row(lua_State *L, const ls_db_job *job, int names, const char **at)
{
    const char *bytes;
    size_t len;
    lua_createtable(L, 0, (int)job->columns);
    for (unsigned n = 0; n < job->columns; n++) {
        const enum ls_db_type type = ls_db_bytes_take(at, &bytes, &len);
        if (type == LS_DB_NULL) continue; /* an absent field; it also removes one of the same name */
        lua_pushvalue(L, names + (int)n);
        push_value(L, type, bytes, len);
        lua_rawset(L, -3);
    }
}

/* Append the rows to the table at RESULT. */
static void add_rows(lua_State *L, const ls_db_job *job)
{
    const char *at = job->rows.data;
    const int names = push_names(L, job);
    lua_Integer last = (lua_Integer)lua_rawlen(L, RESULT);
    for (size_t n = 0; n < job->row_count; n++) {
        push_row(L, job, names, &at);
        lua_rawseti(L, RESULT, ++last);
    }
    lua_settop(L, RESULT);
}

static void new_rows(lua_State *L, const ls_db_job *job)
{
    lua_settop(L, CALL);
    lua_createtable(L, job->row_count > ROWS_HINT_MAX ? ROWS_HINT_MAX : (int)job->row_count, 0);
    ls_array_set_mark(L); /* [] in JSON, also without a row */
}

/* ---- statements
 * ------------------------------------------------------------------------------------------------------ */

static int exec_done(lua_State *L, int status, lua_KContext context)
{
    ls_db_job *job = finished(L, context);
    ls_db_job_release(job);
    if (job->error < 0) return push_failure(L, job);
    lua_createtable(L, 0, 2);
    ls_set_integer(L, "changes", job->changes);
    if (job->last_id != 0) ls_set_integer(L, "last_id", job->last_id);
    call_keep(L);
    return 1;
}

static int one_done(lua_State *L, int status, lua_KContext context)
{
    ls_db_job *job = finished(L, context);
    const char *at = job->rows.data;
    ls_db_job_release(job);
    if (job->error < 0) return push_failure(L, job);
    if (job->row_count == 0)
        lua_pushnil(L);
    else
        push_row(L, job, push_names(L, job), &at);
    call_keep(L);
    return 1;
}

/* The rows of one batch are in the table; the state serves others while the pool reads the next. */
static int query_done(lua_State *L, int status, lua_KContext context)
{
    ls_db_job *job = finished(L, context);
    if (job->error < 0) return push_failure(L, job);
    if (lua_gettop(L) < RESULT) new_rows(L, job);
    add_rows(L, job);
    if (job->more) return run(L, job, query_done);
    call_keep(L);
    return 1;
}

/* core.sqlite_run(database or transaction, how, sql, ...) -> result | nil, message, code | false, message
 * how 0: { changes =, last_id = }; 1: a list of rows; 2: the first row, or nil. */
static int core_sqlite_run(lua_State *L)
{
    static const lua_KFunction ends[] = {exec_done, query_done, one_done};
    const lua_Integer how = luaL_checkinteger(L, 2);
    ls_db_job *job = call_push(L, LS_DB_RUN);
    if (job == NULL) return 2;
    take_arguments(L, 3, job);
    job->one = how == HOW_ONE;
    return run(L, job, ends[how]);
}

static void result_ended(ls_task_end *end)
{
    const call_object *call = LS_CONTAINER(end, call_object, end);
    if (call->job != NULL) ls_db_job_release(call->job);
}

static int rows_done(lua_State *L, int status, lua_KContext context)
{
    ls_db_job *job = finished(L, context);
    call_object *call = lua_touserdata(L, CALL);
    const ls_state *state = ls_state_of(L);
    ls_task_end_remove(&call->end);
    if (job->error < 0) return push_failure(L, job);
    call->end.run = result_ended;
    if (job->more && state->current != NULL) ls_task_end_add(state->current, &call->end);
    new_rows(L, job);
    add_rows(L, job);
    lua_pushboolean(L, job->more);
    lua_pushvalue(L, CALL);
    return 3;
}

/* core.sqlite_rows(database or transaction, sql, ...) -> the first rows, whether there are more, the call for
 * core.sqlite_more, to be closed | as core.sqlite_run */
static int core_sqlite_rows(lua_State *L)
{
    ls_db_job *job = call_push(L, LS_DB_RUN);
    if (job == NULL) return 2;
    take_arguments(L, 2, job);
    return run(L, job, rows_done);
}

/* core.sqlite_more(call) -> as core.sqlite_rows */
static int core_sqlite_more(lua_State *L)
{
    const call_object *call = ls_udata_check(L, 1, &call_type, sizeof *call, "result");
    lua_settop(L, 1);
    lua_pushvalue(L, 1); /* TARGET is not read any more */
    if (call->job == NULL) return luaL_error(L, "the result is closed");
    return run(L, call->job, rows_done);
}

/* ---- transactions
 * ------------------------------------------------------------------------------------------------------ */

static void transaction_ended(ls_task_end *end) /* tells a transaction from other results, in holds_transaction */
{
    result_ended(end);
}

static bool holds_transaction(const ls_state *state, const ls_db *db)
{
    for (ls_task_end *end = state->current != NULL ? state->current->ends : NULL; end != NULL; end = end->next)
        if (end->run == transaction_ended && LS_CONTAINER(end, call_object, end)->job->db == db) return true;
    return false;
}

static int begin_done(lua_State *L, int status, lua_KContext context)
{
    ls_db_job *job = finished(L, context);
    call_object *call = lua_touserdata(L, CALL);
    const ls_state *state = ls_state_of(L);
    if (job->error < 0) return push_failure(L, job);
    call->end.run = transaction_ended;
    if (state->current != NULL) ls_task_end_add(state->current, &call->end);
    lua_pushvalue(L, CALL);
    return 1;
}

/* core.sqlite_begin(database) -> transaction, to be closed: that undoes it unless it was committed | nil, message,
 * code */
static int core_sqlite_begin(lua_State *L)
{
    lua_settop(L, TARGET);
    return run(L, call_push(L, LS_DB_BEGIN), begin_done);
}

static int commit_done(lua_State *L, int status, lua_KContext context)
{
    call_object *transaction = lua_touserdata(L, TARGET);
    ls_task_end_remove(&transaction->end);
    return done(L, status, context);
}

/* core.sqlite_commit(transaction) -> true | nil, message, code */
static int core_sqlite_commit(lua_State *L)
{
    lua_settop(L, TARGET);
    ls_db_job *job = call_push(L, LS_DB_COMMIT);
    return job != NULL ? run(L, job, commit_done) : 2;
}

static int text_job(lua_State *L, enum ls_db_what what)
{
    luaL_checkstring(L, 2);
    lua_settop(L, 2);
    ls_db_job *job = call_push(L, what);
    if (job == NULL) return 2;
    take_arguments(L, 2, job);
    return run(L, job, done);
}

/* core.sqlite_script(transaction, sql) -> true | as core.sqlite_run: several statements */
static int core_sqlite_script(lua_State *L)
{
    return text_job(L, LS_DB_SCRIPT);
}

/* core.sqlite_backup(database, path) -> true | nil, message, code. The file must not exist. */
static int core_sqlite_backup(lua_State *L)
{
    luaL_checkstring(L, 2);
    lua_settop(L, 2);
    (void)ls_push_site_path(L, 2);
    lua_replace(L, 2);
    return text_job(L, LS_DB_BACKUP);
}

/* core.sqlite(path, where, readers, sync, given) -> database | nil, message, code | false, where it has other options
 * `given`: the options are those of the site. */
static int core_sqlite(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    const char *path = luaL_checkstring(L, 1), *where = luaL_checkstring(L, 2);
    char message[300] = "", before[LS_SHARED_WHERE_BYTES];
    int error = LS_OK;
    ls_shared_object *found;
    lua_settop(L, 5);
    const bool memory = strcmp(path, ":memory:") == 0;
    const ls_db_options options = {.path = memory ? path : ls_push_site_path(L, 1),
                                   .readers = (unsigned)luaL_checkinteger(L, 3),
                                   .sync = lua_toboolean(L, 4),
                                   .given = lua_toboolean(L, 5),
                                   .error = &error,
                                   .message = message,
                                   .message_bytes = sizeof message};
    database_object *database = ls_object_push(L, sizeof *database, 0, &database_type);
    const int err =
        ls_shared_get(ls_state_runtime(state)->shared, &ls_db_kind, options.path, where, &options, &found, before);
    if (err == LS_EEXIST) return ls_push_false_text(L, before);
    if (err < 0)
        return ls_push_failure_text(L, err, "%s: %s", memory ? path : ls_push_refused_path(L, path),
                                    error < 0 ? message : "not enough memory");
    database->db = ls_db_of(found);
    return 1;
}

/* ---- the module
 * -------------------------------------------------------------------------------------------------------- */

static const ls_object_type database_type = {.name = "database"};
static const ls_object_type call_type = {.name = "call", .drop = call_drop};

static void define(lua_State *L, ls_state *state)
{
    database_data *data = ls_state_data(state, LS_SLOT_sqlite);
    lua_pushboolean(L, 0);
    data->spare_ref = luaL_ref(L, LUA_REGISTRYINDEX);
}

/* After `wait`, which has cancelled the waiters of the state. */
static void disconnect(ls_thread_ctx *ctx, ls_state *state)
{
    ls_shared *shared = ls_state_runtime(state)->shared;
    ls_db_disconnect(shared);
    ls_dict_stores_disconnect(shared);
}

static const luaL_Reg functions[] = {{"sqlite", core_sqlite},
                                     {"sqlite_run", core_sqlite_run},
                                     {"sqlite_rows", core_sqlite_rows},
                                     {"sqlite_more", core_sqlite_more},
                                     {"sqlite_begin", core_sqlite_begin},
                                     {"sqlite_commit", core_sqlite_commit},
                                     {"sqlite_script", core_sqlite_script},
                                     {"sqlite_backup", core_sqlite_backup},
                                     {NULL, NULL}};

const ls_module ls_sqlite_module = {.name = "sqlite",
                                    .bytes = sizeof(database_data),
                                    .functions = functions,
                                    .define = define,
                                    .disconnect = disconnect,
                                    .common = &ls_sqlite_common};
