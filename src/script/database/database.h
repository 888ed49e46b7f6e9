/* database.h - ls.sqlite: an SQLite database that all Lua states of a server share.
 *
 * One connection writes, up to `readers` read, in WAL mode: a reader sees what was committed before it began, and
 * blocks no writer. A job is one statement, or one step of a transaction or of a backup:
 *
 *     ls_db_try    on the calling thread, for at most LS_DB_PLACE_NS. A statement that reads is interrupted then, and
 *                  runs again, or continues after the rows that it has given, by
 *     ls_db_queue  on a thread of the port's pool. The waiter of the job is decided when it has ended
 *     ls_db_block  on the calling thread, without a limit, which also waits for a connection: while the site loads
 *
 * A job that writes waits for the writer. The thread that has it takes all jobs that wait, commits them together and
 * decides their waiters after the commit, which waits for the device (synchronous = FULL). When the commit fails, or
 * one of them has undone the others, they run one by one. So these writes change the thread anyway; those of a
 * database in memory, or with sync = false, do not wait for the device and are tried in place: what is interrupted is
 * undone.
 *
 * Between LS_DB_BEGIN and LS_DB_END the writer belongs to the job of LS_DB_BEGIN, the lease. A result of which rows
 * are left (`more`) keeps its connection, and does not count as a reader. ls_db_job_release() gives either back.
 *
 *     a connection is free, or posted to the pool, or runs a job in place, or is leased
 *
 * Threads: any; one at a time uses a job, and between ls_db_queue and the decision of its waiter it belongs to the
 * database. */
#ifndef LS_SCRIPT_DATABASE_H
#define LS_SCRIPT_DATABASE_H

#include <stdatomic.h>

#include "base/shared.h"
#include "base/waiter.h"
#include "port/work.h"

typedef struct ls_db ls_db;
typedef struct ls_db_job ls_db_job;

enum {
    LS_DB_READERS_MAX = 16,
    LS_DB_RESULTS_MAX = 64,                   /* with rows left, at a time */
    LS_DB_PLACE_NS = 2000000,                 /* of a statement on the thread of a Lua state */
    LS_DB_BATCH_BYTES = 256 * 1024,           /* of rows, after which a result has more */
    LS_DB_ROWS_BYTES_MAX = 64 * 1024 * 1024,  /* of rows that come in one piece: of a write, or from memory */
    LS_DB_VALUE_BYTES_MAX = 64 * 1024 * 1024, /* of a string, a blob, a row */
    LS_DB_BUSY_MS_MAX = 5000,                 /* another program holds the lock of the file */
    LS_DB_GROUP_MAX = 256,                    /* writes that are committed together */
    LS_DB_STATEMENTS_MAX = 64                 /* prepared, of each connection */
};

typedef struct ls_db_options { /* of ls_db_kind */
    const char *path;          /* of the system; ":memory:" */
    unsigned readers;          /* 1 to LS_DB_READERS_MAX */
    bool sync;                 /* a commit waits for the device */
    bool given;                /* by the site, not the defaults */
    int *error;                /* receives the code when it cannot be opened, */
    char *message;             /* and the reason */
    size_t message_bytes;
} ls_db_options;

/* The kind for ls_shared_get(). The writer is opened at once, so that a wrong file is noticed. */
extern const ls_shared_kind ls_db_kind;
static inline ls_db *ls_db_of(ls_shared_object *object)
{
    return (ls_db *)(void *)object; /* its first field */
}
/* The version of SQLite; NULL: not built in. */
const char *ls_db_library(void);

/* ---- values: a type, then its bytes in the order of the machine ---------------------------------------------- */

enum ls_db_type {
    LS_DB_NULL,
    LS_DB_INTEGER, /* int64_t */
    LS_DB_BOOLEAN, /* the same, of a column that is declared BOOLEAN */
    LS_DB_FLOAT,   /* double */
    LS_DB_TEXT,    /* size_t, bytes */
    LS_DB_BLOB,    /* the same */
    LS_DB_OTHER    /* the same: the name of a type that no parameter takes. A field of it may be for another use */
};

typedef struct ls_db_bytes { /* starts as {0} */
    char *data;
    size_t len, room;
} ls_db_bytes;

/* Room for `len` bytes at the end; NULL: out of memory. */
char *ls_db_bytes_add(ls_db_bytes *bytes, size_t len);
/* Append a value; data NULL: its bytes are left to the caller. false: out of memory. */
bool ls_db_bytes_put(ls_db_bytes *bytes, enum ls_db_type type, const void *data, size_t len);
/* The value at *at, which moves after it. */
enum ls_db_type ls_db_bytes_take(const char **at, const char **data, size_t *len);

/* ---- jobs ------------------------------------------------------------------------------------------------------ */

enum ls_db_what { LS_DB_RUN, LS_DB_BEGIN, LS_DB_COMMIT, LS_DB_SCRIPT, LS_DB_BACKUP };

struct ls_db_job {
    ls_node node; /* in a queue */
    ls_db *db;
    ls_waiter *waiter; /* NULL: no task waits */
    _Atomic unsigned refs;
    _Atomic bool canceled;

    /* Set by the caller. LS_DB_SCRIPT: several statements without parameters, as a migration has; LS_DB_BACKUP: `sql`
     * is the path of the new file. */
    enum ls_db_what what;
    ls_db_bytes sql;
    ls_db_bytes values; /* the parameters. `named`: each after its name, an LS_DB_TEXT without the mark */
    unsigned value_count;
    bool named;
    bool one;         /* of the rows only the first one; a statement that writes still ends */
    ls_db_job *lease; /* of the transaction; NULL: none */

    /* The result. */
    int error;         /* LS_OK or an LS_E* code */
    bool more;         /* rows are left: run the job again. Meanwhile it has a connection */
    bool writes;       /* it goes to the writer */
    ls_db_bytes rows;  /* `row_count` times `columns` values; the message of an error */
    ls_db_bytes names; /* of the columns: LS_DB_TEXT */
    unsigned columns;
    size_t row_count;
    int64_t changes, last_id; /* last_id 0: no row was inserted */

    struct ls_db_conn *conn; /* leased, or with the rest of the rows */
    bool busy;               /* from ls_db_queue until it has ended, also without a waiter */
    ls_db_job *queued_lease; /* a reference */
    bool used; /* of a transaction, or of rows that are left: a task waits for it. For the caller's state */
};

/* A job with one reference; NULL: out of memory. `sql`, `values`, `rows` keep their memory when the job is used again
 * for another statement. */
ls_db_job *ls_db_job_new(ls_db *db);
void ls_db_job_drop(ls_db_job *job); /* the last one releases it and frees the memory */

/* See the top. Whether the job has ended. false: queue it. */
bool ls_db_try(ls_db_job *job);
/* LS_PENDING: the waiter will be decided, with LS_OK. LS_ENOMEM: no thread could be started. */
int ls_db_queue(ls_db_job *job, ls_waiter *waiter, ls_port *port);
void ls_db_block(ls_db_job *job);

/* No task waits for the job any more. true: the waiter is not decided; the job is interrupted, and releases what it
 * has. */
bool ls_db_cancel(void *job, ls_waiter *waiter);
/* Give back the connection with the rest of the rows, or the writer: a transaction that has not ended is undone. */
void ls_db_job_release(ls_db_job *job);

/* ---- figures --------------------------------------------------------------------------------------------------- */

typedef struct ls_db_stats {
    uint64_t connections, waiting, statements, moved, commits, busy_ns;
} ls_db_stats;

/* The sum over all databases: open connections, jobs that wait for one; statements, those that were moved to the pool,
 * commits of groups and transactions, time of statements on the pool. */
void ls_db_stat(ls_shared *shared, ls_db_stats *out);
/* The port is about to be closed: nothing is posted any more. */
void ls_db_disconnect(ls_shared *shared);

#endif
