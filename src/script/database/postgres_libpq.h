/* postgres_libpq.h - ls.postgres: the connections to a PostgreSQL database that all Lua states of a server share.
 *
 * libpq is loaded when a site first calls ls.postgres: it needs a dozen further libraries, which no other site should
 * load.
 *
 * A task takes a connection with a lease, uses it with libpq's functions that do not wait, waits for its socket with
 * ls_pg_wait(), and gives it back. The tasks that find no connection wait in order. The pool opens connections,
 * watches idle ones, and undoes what a transaction has left:
 *
 *     CLOSED --> CONNECTING --> SETUP --> IDLE <--> LEASED
 *                                   ^--- rollback -------/
 *
 * A connection with a result that was not read to its end is closed when it is given back; the server notices that
 * within half a second, and ends the statement (client_connection_check_interval of PostgreSQL 14). PQcancel() could
 * wait for ever, with a server that is stopped.
 *
 * pool->lock guards the states and the queue. A connection that is LEASED belongs to the thread of its task. In the
 * other states a packet of its socket moves it on; `driven` is set while a thread does so without the lock. Its
 * registration with the port fires once for each arming, and may fire late, for the connection that had its place
 * before: a packet is a reason to look, no more. So the memory of a connection is freed with the pool.
 *
 * Threads: any. */
#ifndef LS_SCRIPT_POSTGRES_LIBPQ_H
#define LS_SCRIPT_POSTGRES_LIBPQ_H

#include <libpq-fe.h>

#include "base/waiter.h"
#include "port/notify.h"
#include "port/work.h"
#include "script/database/postgres.h"
#include "script/store/topic.h"

enum {
    LS_PG_STATEMENTS_MAX = 64,    /* prepared, of each connection */
    LS_PG_CHANNELS_MAX = 1000,    /* of ls_pg_listen, of a pool */
    LS_PG_CHANNEL_BYTES_MAX = 63, /* of a name in PostgreSQL */
    LS_PG_RETRY_MS_MIN = 100,     /* after a connection was refused; doubled up to */
    LS_PG_RETRY_MS_MAX = 5000,
    LS_PG_MESSAGE_BYTES = 400
};

/* clang-format off */
#define LS_LIBPQ(X) \
    X(PQclear) X(PQcmdTuples) X(PQconnectPoll) X(PQconnectStartParams) X(PQconnectdbParams) X(PQconninfoFree) \
    X(PQconninfoParse) X(PQconsumeInput) X(PQerrorMessage) X(PQexec) X(PQfinish) X(PQflush) X(PQfmod) X(PQfname) \
    X(PQfreemem) X(PQftype) X(PQgetCopyData) X(PQgetResult) X(PQgetisnull) X(PQgetlength) X(PQgetvalue) \
    X(PQisBusy) X(PQlibVersion) X(PQnfields) X(PQnotifies) X(PQnparams) X(PQntuples) X(PQparamtype) \
    X(PQputCopyData) X(PQputCopyEnd) X(PQresultErrorField) X(PQresultStatus) X(PQsendDescribePrepared) \
    X(PQsendPrepare) X(PQsendQuery) X(PQsendQueryPrepared) X(PQsetErrorVerbosity) X(PQsetNoticeReceiver) \
    X(PQsetSingleRowMode) X(PQsetnonblocking) X(PQsocket) X(PQstatus) X(PQtransactionStatus)
/* clang-format on */

#define LS_LIBPQ_FIELD(name) __typeof__(name) *name;
typedef struct ls_libpq { /* the functions of libpq */
    LS_LIBPQ(LS_LIBPQ_FIELD)
} ls_libpq;

typedef struct ls_pg ls_pg;
typedef struct ls_pg_conn ls_pg_conn;

enum ls_pg_state { LS_PG_CLOSED, LS_PG_CONNECTING, LS_PG_SETUP, LS_PG_IDLE, LS_PG_LEASED, LS_PG_LISTENING };

/* What was sent last. LS_PG_STALE: it is prepared again before its next use. */
enum ls_pg_prepared { LS_PG_NONE, LS_PG_PREPARE, LS_PG_DESCRIBE, LS_PG_READY, LS_PG_STALE };

typedef struct ls_pg_statement {
    char *sql; /* NULL: a free place */
    size_t len;
    uint64_t used; /* the least recently used one makes room */
    uint64_t number;
    enum ls_pg_prepared state;
    Oid *types; /* of its `count` parameters, then of its `columns` */
    int count, columns;
} ls_pg_statement;

struct ls_pg_conn {
    ls_packet_handler handler; /* first: the key of the registration */
    ls_node node, all;         /* of the idle ones; of the pool */
    ls_pg *pool;
    const ls_libpq *pq;
    PGconn *pg; /* NULL: closed */
    enum ls_pg_state state;
    bool driven, listens;
    bool ends;         /* the server has said so, or its session was changed: the next task gets another one */
    uint64_t due_ns;   /* CONNECTING, SETUP: it fails then */
    ls_waiter *waiter; /* LEASED: of the task that waits for the socket */
    ls_work work;      /* the beginning of the connection, which may look up a name */

    /* LEASED; for the thread of the task. */
    bool running;               /* a result was not read to its end */
    uint64_t begun_ns;          /* of it */
    PGresult *result;           /* of the call that reads */
    char *copied;               /* of the call that reads a COPY */
    ls_pg_statement *statement; /* that was prepared or sent last, or NULL */
    ls_pg_statement statements[LS_PG_STATEMENTS_MAX];
    uint64_t clock, numbers; /* of the statements */
    unsigned epoch;          /* of the statements: see ls_pg_epoch */
};

typedef struct ls_pg_lease { /* zeros at first; its memory stays until it was given back */
    ls_node node;            /* in the queue */
    ls_pg *pool;
    ls_pg_conn *conn;  /* NULL: none */
    ls_waiter *waiter; /* in the queue */
} ls_pg_lease;

typedef struct ls_pg_limits {
    unsigned connections;
    uint32_t timeout_ms, connect_timeout_ms;
} ls_pg_limits;

typedef struct ls_pg_options { /* of ls_pg_kind */
    const char *url;
    ls_pg_limits limits;
    ls_topics *topics; /* of the server, for notifications */
    bool given;        /* by the site, not the defaults */
    char *message;     /* LS_PG_MESSAGE_BYTES: why the pool cannot be made */
} ls_pg_options;

/* The site has loaded: pools may use the port. NULL: it is about to be closed. Again: no effect. */
void ls_pg_use_port(ls_shared *shared, ls_port *port);

extern const ls_shared_kind ls_pg_kind;
static inline ls_pg *ls_pg_of(ls_shared_object *object)
{
    return (ls_pg *)(void *)object; /* its first field */
}
/* "db.example.org:5432/site", for messages and topics: without the user and the password. */
const char *ls_pg_where(const ls_pg *pool);
double ls_pg_timeout(ls_pg *pool); /* seconds that a task waits for a connection, and for the server */

/* Take a connection for `lease`, whose pool is set. LS_OK: it has one; LS_PENDING: the waiter is decided when it has
 * one, or when the server refuses (LS_EREFUSED); LS_EREFUSED: the server has refused, some moments ago. */
int ls_pg_take(ls_pg_lease *lease, ls_waiter *waiter, ls_port *port);
/* The same while the site loads, beyond the limit of connections: this thread waits. Without a connection the server
 * has refused. */
void ls_pg_take_blocking(ls_pg_lease *lease);
/* Give the connection back, or close it. */
void ls_pg_give(ls_pg_lease *lease);
/* The last refusal of the server: its message, and its SQLSTATE, or "". */
void ls_pg_refusal(ls_pg *pool, char message[LS_PG_MESSAGE_BYTES], char sqlstate[6]);

/* What a message of libpq says about its last attempt, in one line of UTF-8, and the SQLSTATE in it, or "":
 * `connection to server at "h", port 1 failed: FATAL:  28P01: password authentication failed`. */
void ls_pg_explain(const char *message, char out[LS_PG_MESSAGE_BYTES], char sqlstate[6]);

/* The waiter is decided, with LS_OK, when the socket may have something to read, or with `writes` takes bytes. LS_OK,
 * or a code of ls_port_notify: it is not decided. */
int ls_pg_wait(ls_pg_lease *lease, ls_waiter *waiter, bool writes);
/* No task waits any more. true: the waiter, of ls_pg_take or ls_pg_wait, is not decided. */
bool ls_pg_cancel(void *lease, ls_waiter *waiter);

/* A statement was sent, and its result was read to its end. */
void ls_pg_begin(ls_pg_conn *conn);
void ls_pg_end(ls_pg_conn *conn);

/* Notifications of a connection that does not listen are dropped: libpq would keep them. */
void ls_pg_drop_notifications(const ls_pg_conn *conn);

/* The epoch of the pool. Statements that were prepared in another one are prepared again. `begins`: a new one begins,
 * since tables have changed. */
unsigned ls_pg_epoch(ls_pg *pool, bool begins);

/* The statement of this text if it is known, else a free place, or the one that was used least recently, which has to
 * be removed first. */
ls_pg_statement *ls_pg_statement_find(ls_pg_conn *conn, const char *sql, size_t len);
void ls_pg_statement_free(ls_pg_statement *statement);

/* Publish the notifications of the channel as messages of the topic "postgres:WHERE:CHANNEL". LS_OK; LS_ENOMEM;
 * LS_ELIMIT: LS_PG_CHANNELS_MAX others were given before. */
int ls_pg_listen(ls_pg *pool, const char *channel);

#endif
