/* postgres_object_libpq.c - the core of ls.postgres (lua/luaserve/postgres.lua): a connection for a task, what it
 * sends, and its results (script/database/postgres_libpq.h).
 *
 * The lease is an object on the stack of the task, which gives its connection back when it is closed or collected, and
 * when the task ends. A function that waits is a step, which runs again when the socket is ready. While the site
 * loads, libpq waits itself.
 *
 * A failure is nil, message, code, and of a connection the SQLSTATE, or "". A call that is wrong is false, message,
 * which postgres.lua raises. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "script/bind/bind_aux.h"
#include "script/bind/database/database_stats.h"
#include "script/bind/modules.h"
#include "script/bind/store/publish.h"
#include "script/bind/value/buffer.h"
#include "script/core/lua/udata.h"
#include "script/core/wait.h"
#include "script/database/postgres_libpq.h"
#include "script/store/marshal.h"

enum { READS_ALL, READS_ONE, READS_SOME }; /* the second argument of core.postgres_result */
enum {
    TARGET = 1,
    ROWS = 4,
    ROWS_BYTES_MAX = 64 * 1024 * 1024,
    BATCH_BYTES = 256 * 1024,
    CHUNK_BYTES = 65536,
    VALUE_BYTES_MAX = 1 << 30
};
enum {
    OID_BOOL = 16,
    OID_BYTEA = 17,
    OID_INT8 = 20,
    OID_INT2 = 21,
    OID_INT4 = 23,
    OID_TEXT = 25,
    OID_OID = 26,
    OID_FLOAT4 = 700,
    OID_FLOAT8 = 701,
    OID_NUMERIC = 1700,
    OID_VARCHAR = 1043
}; /* pg_type.dat of PostgreSQL */

static const ls_object_type pool_type = {.name = "pool"}, lease_type;
static const char has_ended[] = "the transaction or the loop has ended";

typedef struct pool_object {
    const void *tag;
    ls_pg *pool; /* of the server: it outlives every state */
} pool_object;

typedef struct lease_object {
    const void *tag;
    ls_pg_lease lease;
    ls_task_end end;
    bool transaction;
    bool waits;      /* a task waits for its connection */
    bool queued;     /* data of a COPY are with libpq */
    size_t bytes;    /* of rows, since the statement was sent */
    bool moved;      /* rows have come since the last wait */
    uint64_t due_ns; /* the server must have answered, or sent rows, by then */
} lease_object;

static int push_timeout(lua_State *L, const lease_object *lease)
{
    char seconds[30];
    (void)snprintf(seconds, sizeof seconds, "%.9g", ls_pg_timeout(lease->lease.pool));
    return ls_push_failure_text(L, LS_ETIMEDOUT, "%s within %s seconds",
                                lease->lease.conn == NULL ? "no connection was free" : "no answer", seconds);
}

static int push_refusal(lua_State *L, int err, const char *message, const char *sqlstate)
{
    ls_push_failure_text(L, err, "%s", message[0] != '\0' ? message : "the connection is closed");
    lua_pushstring(L, sqlstate);
    return 4;
}

/* The connection is lost. */
static int push_lost(lua_State *L, const lease_object *lease)
{
    const ls_pg_conn *conn = lease->lease.conn;
    char message[LS_PG_MESSAGE_BYTES], sqlstate[6];
    ls_pg_explain(conn->pq->PQerrorMessage(conn->pg), message, sqlstate);
    return push_refusal(L, LS_ECLOSED, message, sqlstate);
}

/* ---- leases
 * ------------------------------------------------------------------------------------------------------ */

static int lease_drop(lua_State *L)
{
    lease_object *lease = lua_touserdata(L, 1);
    ls_task_end_remove(&lease->end);
    ls_pg_give(&lease->lease);
    return 0;
}

static const ls_object_type lease_type = {.name = "lease", .drop = lease_drop};

static void task_ended(ls_task_end *end)
{
    ls_pg_give(&LS_CONTAINER(end, lease_object, end)->lease);
}

static void wait_give_back(void *lease, ls_waiter *waiter)
{
    ls_pg_give(lease);
}

static const ls_wait_kind statement = {ls_pg_cancel, wait_give_back, LS_WAIT_WRITE, NULL};

static void wait_from_now(lease_object *lease)
{
    lease->due_ns = ls_clock_ns() + (uint64_t)(ls_pg_timeout(lease->lease.pool) * 1e9);
    lease->moved = false;
}

/* Have `step` run again when the socket is ready; the caller returns the result. Notices of the server, which also make
 * it ready, do not prolong the wait. */
static int wait_for_socket(lua_State *L, lease_object *lease, bool writes, lua_KFunction step)
{
    ls_wait *wait = ls_wait_begin(L, &statement, &lease->lease);
    if (lease->moved) wait_from_now(lease);
    const uint64_t now_ns = ls_clock_ns();
    const int err = ls_pg_wait(&lease->lease, &wait->waiter, writes);
    if (err < 0) {
        ls_wait_drop(wait);
        return ls_push_failure(L, err);
    }
    lease->waits = true;
    return ls_wait_suspend(L, wait, now_ns < lease->due_ns ? (double)(lease->due_ns - now_ns) / 1e9 : 0, false, step);
}

/* The beginning of a step: 0, or the number of results, pushed, when the wait has given none. A task that is ended
 * while it waits gives the connection back. */
static int waited(lua_State *L, lease_object *lease, lua_KContext context)
{
    ls_wait *wait = (ls_wait *)context; /* NOLINT(performance-no-int-to-ptr) */
    if (wait == NULL) return 0;
    lease->waits = false;
    const int result = ls_wait_end(L, wait, NULL);
    if (ls_state_of(L)->current->cpu_exceeded) {
        ls_pg_give(&lease->lease);
        ls_state_end_run(L);
    }
    /* The lease may have ended after the decision, too. */
    if (result == LS_ECLOSED || (lease->end.run != NULL && lease->lease.conn == NULL))
        return ls_push_false_text(L, has_ended);
    if (result == LS_OK || result == LS_EREFUSED) return 0;
    return result == LS_ETIMEDOUT ? push_timeout(L, lease) : ls_push_failure(L, result);
}

static int take_step(lua_State *L, int status, lua_KContext context)
{
    lease_object *lease = lua_touserdata(L, -1);
    const ls_state *state = ls_state_of(L);
    char message[LS_PG_MESSAGE_BYTES], sqlstate[6];
    const int count = waited(L, lease, context);
    if (count > 0) return count;
    if (lease->lease.conn == NULL) {
        ls_pg_refusal(lease->lease.pool, message, sqlstate);
        return push_refusal(L, LS_EREFUSED, message, sqlstate);
    }
    lease->end.run = task_ended;
    if (state->current != NULL) ls_task_end_add(state->current, &lease->end);
    lua_pushinteger(L, ls_pg_epoch(lease->lease.pool, false));
    return 2;
}

/* Whether the running task is inside of a transaction of the pool. */
static bool in_transaction(const ls_state *state, const ls_pg *pool)
{
    for (ls_task_end *end = state->current != NULL ? state->current->ends : NULL; end != NULL; end = end->next) {
        const lease_object *lease = end->run == task_ended ? LS_CONTAINER(end, lease_object, end) : NULL;
        if (lease != NULL && lease->transaction && lease->lease.pool == pool) return true;
    }
    return false;
}

/* core.postgres_lease(pool, transaction) -> lease, to be closed, ls_pg_epoch | nil, message, code [, SQLSTATE] | false,
 * message */
static int core_postgres_lease(lua_State *L)
{
    const pool_object *pool = ls_udata_check(L, TARGET, &pool_type, sizeof *pool, "pool");
    const ls_state *state = ls_state_of(L);
    if (in_transaction(state, pool->pool))
        return ls_push_false_text(L, "this task is inside of pg:transaction: use the argument of its function, such "
                                     "as tx:exec, or { tx = tx } of queue:push");
    lease_object *lease = ls_object_push(L, sizeof *lease, 0, &lease_type);
    lease->lease.pool = pool->pool;
    lease->transaction = lua_toboolean(L, 2);
    if (state->loading) {
        ls_pg_take_blocking(&lease->lease);
        return take_step(L, LUA_OK, 0);
    }
    ls_wait *wait = ls_wait_begin(L, &statement, &lease->lease);
    if (ls_pg_take(&lease->lease, &wait->waiter, state->port) == LS_PENDING)
        return ls_wait_suspend(L, wait, ls_pg_timeout(pool->pool), false, take_step);
    ls_wait_drop(wait);
    return take_step(L, LUA_OK, 0);
}

/* The lease at TARGET with its connection; NULL: it has none, or another task uses it, and false and the message are
 * pushed. */
static lease_object *check_lease(lua_State *L)
{
    lease_object *lease = ls_udata_check(L, TARGET, &lease_type, sizeof *lease, "lease");
    if (lease->lease.conn != NULL && !lease->waits) return lease;
    ls_push_false_text(L, lease->lease.conn == NULL ? has_ended : "another task waits for a statement of it");
    return NULL;
}

/* ---- sending
 * ------------------------------------------------------------------------------------------------------ */

static int sent(lua_State *L, lease_object *lease, int ok)
{
    if (ok != 1) return push_lost(L, lease);
    ls_pg_begin(lease->lease.conn);
    lease->bytes = 0;
    wait_from_now(lease);
    return ls_push_boolean(L, true);
}

/* core.postgres_command(lease, sql) -> true | as core.postgres_lease: one statement or several, without parameters */
static int core_postgres_command(lua_State *L)
{
    lease_object *lease = check_lease(L);
    const char *sql = luaL_checkstring(L, 2);
    if (lease == NULL) return 2;
    lease->lease.conn->statement = NULL;
    return sent(L, lease, lease->lease.conn->pq->PQsendQuery(lease->lease.conn->pg, sql));
}

/* core.postgres_prepare(lease, sql) -> number of parameters | true: read the result, then call it again | as
 * core.postgres_lease */
static int core_postgres_prepare(lua_State *L)
{
    size_t len;
    lease_object *lease = check_lease(L);
    const char *sql = luaL_checklstring(L, 2, &len);
    char name[40];
    if (lease == NULL) return 2;
    ls_pg_conn *conn = lease->lease.conn;
    const unsigned epoch = ls_pg_epoch(lease->lease.pool, false);
    if (conn->epoch != epoch) {
        for (unsigned n = 0; n < LS_PG_STATEMENTS_MAX; n++) ls_pg_statement_free(&conn->statements[n]);
        conn->statement = NULL;
        conn->epoch = epoch;
        return sent(L, lease, conn->pq->PQsendQuery(conn->pg, "deallocate all"));
    }
    ls_pg_statement *statement = conn->statement = ls_pg_statement_find(conn, sql, len);
    const bool other = statement->sql != NULL && (statement->state == LS_PG_STALE || statement->len != len ||
                                                  memcmp(statement->sql, sql, len) != 0);
    if (statement->state == LS_PG_READY && !other) return ls_push_integer(L, statement->count);
    (void)snprintf(name, sizeof name, "%sluaserve_%llu", other ? "deallocate " : "",
                   (unsigned long long)(statement->sql != NULL ? statement->number : ++conn->numbers));
    if (other) {
        ls_pg_statement_free(statement);
        conn->statement = NULL;
        return sent(L, lease, conn->pq->PQsendQuery(conn->pg, name));
    }
    if (statement->sql != NULL) {
        statement->state = LS_PG_DESCRIBE;
        return sent(L, lease, conn->pq->PQsendDescribePrepared(conn->pg, name));
    }
    if ((statement->sql = malloc(len + 1)) == NULL) return ls_push_failure(L, LS_ENOMEM);
    memcpy(statement->sql, sql, len + 1);
    statement->len = len;
    statement->number = conn->numbers;
    statement->used = ++conn->clock;
    statement->state = LS_PG_PREPARE;
    return sent(L, lease, conn->pq->PQsendPrepare(conn->pg, name, sql, 0, NULL));
}

/* The statement that is prepared, with `count` parameters. Raises if a table that was encoded has run another. */
static const ls_pg_statement *check_prepared(lua_State *L, const lease_object *lease, lua_Integer count)
{
    const ls_pg_statement *statement = lease->lease.conn->statement;
    if (statement == NULL || statement->state != LS_PG_READY || statement->count < count)
        luaL_error(L, "another statement was run meanwhile");
    return statement;
}

/* core.postgres_type(lease, n) -> the type of parameter n of the prepared statement, an OID; after the parameters those
 * of the columns, then nil */
static int core_postgres_type(lua_State *L)
{
    const lease_object *lease = check_lease(L);
    const lua_Integer n = luaL_checkinteger(L, 2);
    if (lease == NULL) return 2;
    const ls_pg_statement *statement = check_prepared(L, lease, 0);
    if (n < 1 || n > statement->count + statement->columns) return ls_push_nil(L);
    return ls_push_integer(L, statement->types[n - 1]);
}

/* core.postgres_note(lease, what): the statement that was sent is "stale", and is prepared again the next time, or
 * "absent", since the server does not have it; tables have "changed", so that all statements of the pool are prepared
 * again; or the session has, and no other task gets the "spent" connection. */
static int core_postgres_note(lua_State *L)
{
    static const char *const whats[] = {"stale", "absent", "changed", "spent", NULL};
    const int what = luaL_checkoption(L, 2, NULL, whats);
    const lease_object *lease = check_lease(L);
    if (lease == NULL) return 2;
    ls_pg_statement *statement = lease->lease.conn->statement;
    if (what == 0 && statement != NULL) statement->state = LS_PG_STALE;
    if (what == 1 && statement != NULL) ls_pg_statement_free(statement);
    if (what == 2) (void)ls_pg_epoch(lease->lease.pool, true);
    if (what == 3) lease->lease.conn->ends = true;
    return 0;
}

/* Make the value at `index` a string, or nil. NULL, or what is wrong with it. */
static const char *parameter(lua_State *L, int index, Oid type)
{
    char text[LS_NUMBER_BYTES];
    const ls_buffer *buffer;
    luaL_Buffer bytes;
    switch (lua_type(L, index)) {
    case LUA_TNIL: return NULL;
    case LUA_TBOOLEAN: lua_pushstring(L, lua_toboolean(L, index) ? "true" : "false"); break;
    case LUA_TNUMBER: lua_pushlstring(L, text, ls_number_write(text, L, index, true)); break;
    case LUA_TSTRING: lua_pushvalue(L, index); break;
    case LUA_TLIGHTUSERDATA: /* ls.json.null */
        if (lua_touserdata(L, index) != NULL) return "has a value that is no data";
        lua_pushnil(L);
        lua_replace(L, index);
        return NULL;
    default:
        if ((buffer = ls_buffer_test(L, index)) == NULL)
            return lua_pushfstring(L, "must be nil, a boolean, a number, a string, a buffer or a table; got a %s",
                                   luaL_typename(L, index));
        luaL_buffinitsize(L, &bytes, buffer->len);
        for (unsigned n = 0; n < buffer->count; n++)
            luaL_addlstring(&bytes, buffer->slices[n].ptr, buffer->slices[n].len);
        luaL_pushresult(&bytes);
    }
    lua_replace(L, index);
    if (lua_rawlen(L, index) > VALUE_BYTES_MAX) return "has more than 1 GiB, the limit of PostgreSQL";
    if (type != OID_BYTEA && strlen(lua_tostring(L, index)) != lua_rawlen(L, index))
        return "has a zero byte, which PostgreSQL stores only in the type bytea";
    return NULL;
}

/* core.postgres_send(lease, ...) -> as core.postgres_command: runs the prepared statement with these values, as many
 * as it has parameters. */
static int core_postgres_send(lua_State *L)
{
    lease_object *lease = check_lease(L);
    const int count = lua_gettop(L) - 1; /* from index 2 on */
    if (lease == NULL) return 2;
    ls_pg_conn *conn = lease->lease.conn;
    const ls_pg_statement *statement = check_prepared(L, lease, count);
    char name[40];
    const char **values = lua_newuserdatauv(L, ((size_t)count + 1) * (sizeof *values + 2 * sizeof(int)), 0);
    int *lengths = (int *)(void *)(values + count), *formats = lengths + count;
    luaL_checkstack(L, 8, NULL);
    for (int n = 0; n < count; n++) {
        const char *wrong = parameter(L, 2 + n, statement->types[n]);
        if (wrong != NULL) {
            lua_pushfstring(L, "parameter $%d %s", n + 1, wrong);
            return ls_push_false_text(L, lua_tostring(L, -1));
        }
        values[n] = lua_tostring(L, 2 + n);
        lengths[n] = values[n] != NULL ? (int)lua_rawlen(L, 2 + n) : 0;
        formats[n] = statement->types[n] == OID_BYTEA; /* as bytes */
    }
    (void)snprintf(name, sizeof name, "luaserve_%llu", (unsigned long long)statement->number);
    const int ok = conn->pq->PQsendQueryPrepared(conn->pg, name, count, values, lengths, formats, 0);
    if (ok == 1) (void)conn->pq->PQsetSingleRowMode(conn->pg);
    return sent(L, lease, ok);
}

/* ---- results
 * ------------------------------------------------------------------------------------------------------ */

static int hex_digit(char c)
{
    return c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
}

enum { FLOAT_DIGITS = 15, INTEGER_DIGITS = 18 }; /* that each float, each integer of Lua keeps */

/* Push a numeric, with all its digits: as an integer, or with a point as a float; as a string if these have not so many
 * digits. The values of a column that is declared with more are always strings. `modifier`: of the column. */
static void push_numeric(lua_State *L, const char *text, size_t len, int modifier)
{
    const bool is_float = memchr(text, '.', len) != NULL, declared = modifier >= 4;
    const int most = is_float ? FLOAT_DIGITS : INTEGER_DIGITS;
    int digits = declared && (modifier - 4) >> 16 > most ? INT_MAX : 0;
    for (size_t n = 0; n < len && digits <= most; n++) digits += text[n] >= '0' && text[n] <= '9';
    if (digits == 0 || digits > most)
        lua_pushlstring(L, text, len); /* also NaN and Infinity */
    else if (is_float)
        lua_pushnumber(L, strtod(text, NULL));
    else
        lua_pushinteger(L, strtoll(text, NULL, 10));
}

/* Push a value of text, whose bytes it may change. `decoders` is the index of a table: functions by type. */
static void push_value(lua_State *L, Oid type, int modifier, char *text, size_t len, int decoders)
{
    switch (type) {
    case OID_BOOL: lua_pushboolean(L, text[0] == 't'); return;
    case OID_INT2:
    case OID_INT4:
    case OID_OID:
    case OID_INT8: lua_pushinteger(L, strtoll(text, NULL, 10)); return;
    case OID_FLOAT4:
    case OID_FLOAT8: lua_pushnumber(L, strtod(text, NULL)); return;
    case OID_NUMERIC: push_numeric(L, text, len, modifier); return;
    case OID_BYTEA: /* \x, then digits */
        len = len > 2 ? (len - 2) / 2 : 0;
        for (size_t n = 0; n < len; n++)
            text[n] = (char)(hex_digit(text[2 * n + 2]) << 4 | hex_digit(text[2 * n + 3]));
        ls_buffer_add_bytes(L, ls_buffer_push(L), text, len);
        return;
    case OID_TEXT:
    case OID_VARCHAR: break;
    default:
        if (lua_rawgeti(L, decoders, (lua_Integer)type) == LUA_TFUNCTION) {
            lua_pushlstring(L, text, len);
            lua_call(L, 1, 1);
            return;
        }
        lua_pop(L, 1);
    }
    lua_pushlstring(L, text, len);
}

/* Append the rows of the result to the table at ROWS. The names of the columns are above, or are pushed now. */
static void add_rows(lua_State *L, lease_object *lease, int how)
{
    ls_pg_conn *conn = lease->lease.conn;
    const ls_libpq *pq = conn->pq;
    const PGresult *result = conn->result;
    const int columns = pq->PQnfields(result);
    if (lua_gettop(L) < ROWS) {
        lua_newtable(L);
        ls_array_set_mark(L); /* [] in JSON, also without a row */
    }
    lua_Integer last = (lua_Integer)lua_rawlen(L, ROWS);
    if (how == READS_ONE && last > 0) return;
    if (lua_gettop(L) == ROWS) {
        luaL_checkstack(L, columns + 8, "too many columns");
        for (int n = 0; n < columns; n++) lua_pushstring(L, pq->PQfname(result, n));
    }
    for (int row = 0; row < pq->PQntuples(result); row++) {
        lua_createtable(L, 0, columns);
        for (int n = 0; n < columns; n++) {
            if (pq->PQgetisnull(result, row, n)) continue; /* an absent field */
            const size_t len = (size_t)pq->PQgetlength(result, row, n);
            lua_pushvalue(L, ROWS + 1 + n);
            push_value(L, pq->PQftype(result, n), pq->PQfmod(result, n), pq->PQgetvalue(result, row, n), len, 3);
            lua_rawset(L, -3);
            lease->bytes += len;
        }
        lease->bytes += 32 + 32 * (size_t)columns; /* of the table */
        lua_rawseti(L, ROWS, ++last);
    }
}

static int push_error(lua_State *L, const lease_object *lease)
{
    static const int fields[] = {PG_DIAG_MESSAGE_PRIMARY, PG_DIAG_SQLSTATE, PG_DIAG_STATEMENT_POSITION,
                                 PG_DIAG_MESSAGE_DETAIL};
    const ls_pg_conn *conn = lease->lease.conn;
    if (conn->pq->PQresultErrorField(conn->result, PG_DIAG_SQLSTATE) == NULL) return push_lost(L, lease);
    lua_pushliteral(L, "error");
    for (size_t n = 0; n < sizeof fields / sizeof *fields; n++)
        lua_pushstring(L, conn->pq->PQresultErrorField(conn->result, fields[n]));
    return 5;
}

/* A statement was prepared or described. */
static int prepared(lua_State *L, ls_pg_conn *conn)
{
    ls_pg_statement *statement = conn->statement;
    const int count = conn->pq->PQnparams(conn->result);
    if (statement->state == LS_PG_DESCRIBE) {
        const int columns = conn->pq->PQnfields(conn->result);
        statement->types = calloc((size_t)count + (size_t)columns + 1, sizeof *statement->types);
        if (statement->types == NULL) return ls_push_failure(L, LS_ENOMEM);
        for (int n = 0; n < count; n++) statement->types[n] = conn->pq->PQparamtype(conn->result, n);
        for (int n = 0; n < columns; n++) statement->types[count + n] = conn->pq->PQftype(conn->result, n);
        statement->count = count;
        statement->columns = columns;
        statement->state = LS_PG_READY;
    }
    return ls_push_text(L, "done");
}

/* What the result is for the caller: its values; or 0: continue. */
static int take_result(lua_State *L, lease_object *lease, int how)
{
    ls_pg_conn *conn = lease->lease.conn;
    const ls_libpq *pq = conn->pq;
    const bool preparing = conn->statement != NULL && conn->statement->state != LS_PG_READY;
    const char *tuples = pq->PQcmdTuples(conn->result);
    switch (pq->PQresultStatus(conn->result)) {
    case PGRES_SINGLE_TUPLE: add_rows(L, lease, how); return 0;
    case PGRES_TUPLES_OK:
        add_rows(L, lease, how);
        lua_pushliteral(L, "rows");
        lua_pushvalue(L, ROWS);
        lua_pushinteger(L, strtoll(tuples, NULL, 10));
        return 3;
    case PGRES_COPY_IN: lua_pushliteral(L, "in"); return 1;
    case PGRES_COPY_OUT: lua_pushliteral(L, "out"); return 1;
    case PGRES_COMMAND_OK:
    case PGRES_EMPTY_QUERY:
        if (preparing) return prepared(L, conn);
        lua_pushliteral(L, "done");
        lua_pushnil(L);
        lua_pushinteger(L, strtoll(tuples, NULL, 10));
        return 3;
    default:
        if (preparing) ls_pg_statement_free(conn->statement);
        if (preparing) conn->statement = NULL;
        return push_error(L, lease);
    }
}

/* Whether libpq has a result, or the end of the results: PQgetResult() does not wait. *writes: it has bytes to
 * send. */
static bool has_result(lua_State *L, const ls_pg_conn *conn, bool *writes)
{
    const ls_libpq *pq = conn->pq;
    *writes = pq->PQflush(conn->pg) > 0;
    if (ls_state_of(L)->loading) return true;
    if (pq->PQisBusy(conn->pg) && pq->PQconsumeInput(conn->pg) == 0) return true; /* the result is that failure */
    const bool ready = !pq->PQisBusy(conn->pg);
    ls_pg_drop_notifications(conn);
    return ready;
}

static int result_step(lua_State *L, int status, lua_KContext context)
{
    lease_object *lease = lua_touserdata(L, TARGET);
    const int how = (int)lua_tointeger(L, 2);
    const size_t before = lease->bytes;
    bool writes;
    int count = waited(L, lease, context);
    ls_pg_conn *conn = lease->lease.conn;
    while (count == 0) {
        const bool ready = has_result(L, conn, &writes), full = lease->bytes - before > BATCH_BYTES;
        if (how == READS_SOME && (!ready || full) && lua_gettop(L) >= ROWS && lua_rawlen(L, ROWS) > 0) {
            lua_pushliteral(L, "some");
            lua_pushvalue(L, ROWS);
            return 2;
        }
        if (how == READS_ALL && lease->bytes > ROWS_BYTES_MAX)
            return ls_push_failure_text(L, LS_EMSGSIZE, "the result has more than 64 MiB: read it with pg:rows");
        if (!ready || (full && !ls_state_of(L)->loading)) { /* full: another task gets its turn, at once */
            if (lua_gettop(L) > ROWS) lua_settop(L, ROWS);
            return wait_for_socket(L, lease, writes || full, result_step);
        }
        conn->pq->PQclear(conn->result); /* of a call that has raised */
        conn->result = conn->pq->PQgetResult(conn->pg);
        if (conn->result == NULL) {
            ls_pg_end(conn);
            return 0;
        }
        count = take_result(L, lease, how);
        lease->moved = lease->moved || count == 0;
        conn->pq->PQclear(conn->result);
        conn->result = NULL;
    }
    return count;
}

/* core.postgres_result(lease, how, decoders) -> "rows", rows, changes | "done", nil, changes | "some", rows | "in" |
 * "out" | "error", message, SQLSTATE, position, detail | nothing: the results have ended | nil, message, code
 * `how`: READS_*. READS_SOME also gives the rows that have arrived, of some 256 KiB. */
static int core_postgres_result(lua_State *L)
{
    const lease_object *lease = check_lease(L);
    if (lease == NULL) return 2;
    lua_settop(L, 3);
    if (!lease->moved && ls_clock_ns() > lease->due_ns && !ls_state_of(L)->loading)
        return push_timeout(L, lease); /* without an end */
    return result_step(L, LUA_OK, 0);
}

/* ---- COPY ----------------------------------------------------------------------------------------------------- */

static int put_step(lua_State *L, int status, lua_KContext context)
{
    lease_object *lease = lua_touserdata(L, TARGET);
    const int count = waited(L, lease, context);
    int result = 1;
    if (count > 0) return count;
    const ls_pg_conn *conn = lease->lease.conn;
    const ls_libpq *pq = conn->pq;
    if (context != 0 && pq->PQconsumeInput(conn->pg) == 0) return push_lost(L, lease);
    if (!lease->queued) {
        if (lua_isnil(L, 2))
            result = pq->PQputCopyEnd(conn->pg, luaL_optstring(L, 3, NULL));
        else
            result = pq->PQputCopyData(conn->pg, lua_tostring(L, 2), (int)lua_rawlen(L, 2));
        lease->queued = result == 1;
    }
    const int flush = pq->PQflush(conn->pg);
    if (result == 0 || (result == 1 && flush > 0)) return wait_for_socket(L, lease, true, put_step);
    lua_pushboolean(L, result == 1 && flush == 0); /* false: the server has ended the COPY; the result says why */
    return 1;
}

/* core.postgres_put(lease, data or nil [, reason]) -> whether more is wanted | nil, message, code
 * Sends data of COPY ... FROM STDIN. nil: its end; with a reason it fails. */
static int core_postgres_put(lua_State *L)
{
    lease_object *lease = check_lease(L);
    if (lease == NULL) return 2;
    lease->queued = false;
    wait_from_now(lease);
    lua_settop(L, 3);
    return put_step(L, LUA_OK, 0);
}

static int get_step(lua_State *L, int status, lua_KContext context)
{
    lease_object *lease = lua_touserdata(L, TARGET);
    const int count = waited(L, lease, context);
    const bool blocks = ls_state_of(L)->loading;
    int len;
    size_t total = 0;
    luaL_Buffer chunk;
    if (count > 0) return count;
    ls_pg_conn *conn = lease->lease.conn;
    if (context != 0 && conn->pq->PQconsumeInput(conn->pg) == 0) return push_lost(L, lease);
    luaL_buffinit(L, &chunk);
    do {
        conn->pq->PQfreemem(conn->copied); /* that of a call that has raised, too */
        conn->copied = NULL;
        len = total < CHUNK_BYTES ? conn->pq->PQgetCopyData(conn->pg, &conn->copied, !blocks) : 0;
        if (len > 0) luaL_addlstring(&chunk, conn->copied, (size_t)len);
        if (len > 0) total += (size_t)len;
    } while (len > 0);
    luaL_pushresult(&chunk);
    if (total > 0) return 1;
    lua_settop(L, TARGET);
    return len == 0 ? wait_for_socket(L, lease, false, get_step) : 0;
}

/* core.postgres_get(lease) -> data of COPY ... TO STDOUT, whole lines | nothing at its end | nil, message, code */
static int core_postgres_get(lua_State *L)
{
    lease_object *lease = check_lease(L);
    if (lease == NULL) return 2;
    wait_from_now(lease);
    lua_settop(L, TARGET);
    return get_step(L, LUA_OK, 0);
}

/* ---- the module
 * -------------------------------------------------------------------------------------------------------- */

/* core.postgres_listen(pool, channel) -> the topic of its notifications | nil, message, code */
static int core_postgres_listen(lua_State *L)
{
    const pool_object *pool = ls_udata_check(L, TARGET, &pool_type, sizeof *pool, "pool");
    const char *channel = luaL_checkstring(L, 2);
    const int err = ls_pg_listen(pool->pool, channel);
    if (err == LS_ELIMIT)
        return ls_push_failure_text(L, err, "more than %d channels; a payload may say what a notification is about",
                                    LS_PG_CHANNELS_MAX);
    if (err < 0) return ls_push_failure(L, err);
    lua_pushfstring(L, "postgres:%s:%s", ls_pg_where(pool->pool), channel);
    return 1;
}

/* core.postgres(url, where, connections, timeout_ms, connect_timeout_ms, given) -> pool, its name for messages | nil,
 * message, code | false, where it has other options. `given`: the options are those of the site. */
static int core_postgres(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    char message[LS_PG_MESSAGE_BYTES] = "", before[LS_SHARED_WHERE_BYTES];
    ls_shared_object *found;
    const ls_pg_options options = {.url = luaL_checkstring(L, 1),
                                   .limits = {(unsigned)luaL_checkinteger(L, 3), (uint32_t)luaL_checkinteger(L, 4),
                                              (uint32_t)luaL_checkinteger(L, 5)},
                                   .given = lua_toboolean(L, 6),
                                   .topics = ls_topics_of(ls_state_runtime(state)),
                                   .message = message};
    pool_object *pool = ls_object_push(L, sizeof *pool, 0, &pool_type);
    const int err = ls_shared_get(ls_state_runtime(state)->shared, &ls_pg_kind, options.url, luaL_checkstring(L, 2),
                                  &options, &found, before);
    if (err == LS_EEXIST) return ls_push_false_text(L, before);
    if (err < 0) return ls_push_failure_text(L, err, "%s", message[0] != '\0' ? message : "not enough memory");
    pool->pool = ls_pg_of(found);
    lua_pushstring(L, ls_pg_where(pool->pool));
    if (!state->loading) ls_pg_use_port(ls_state_runtime(state)->shared, state->port);
    return 2;
}

static void start(ls_thread_ctx *ctx, ls_state *state)
{
    ls_pg_use_port(ls_state_runtime(state)->shared, state->port);
}

/* After `wait`, which has cancelled the waiters of the state. */
static void disconnect(ls_thread_ctx *ctx, ls_state *state)
{
    ls_pg_use_port(ls_state_runtime(state)->shared, NULL);
}

static const luaL_Reg functions[] = {{"postgres", core_postgres},
                                     {"postgres_lease", core_postgres_lease},
                                     {"postgres_command", core_postgres_command},
                                     {"postgres_prepare", core_postgres_prepare},
                                     {"postgres_type", core_postgres_type},
                                     {"postgres_note", core_postgres_note},
                                     {"postgres_send", core_postgres_send},
                                     {"postgres_result", core_postgres_result},
                                     {"postgres_put", core_postgres_put},
                                     {"postgres_get", core_postgres_get},
                                     {"postgres_listen", core_postgres_listen},
                                     {NULL, NULL}};

const ls_module ls_postgres_module = {.name = "postgres",
                                      .functions = functions,
                                      .start = start,
                                      .disconnect = disconnect,
                                      .common = &ls_postgres_common};
