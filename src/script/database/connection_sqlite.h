/* connection_sqlite.h - a connection to an SQLite file: its prepared statements, one statement at a time, errors.
 *
 * Thread: one at a time; database_sqlite.c decides which. */
#ifndef LS_SCRIPT_CONNECTION_SQLITE_H
#define LS_SCRIPT_CONNECTION_SQLITE_H

#include <sqlite3.h>

#include "script/database/database.h"

typedef struct ls_db_statement {
    sqlite3_stmt *stmt; /* NULL: not used */
    char *sql;
    size_t len;
    uint64_t hash, used;
    bool writes;       /* it does not only read: for the writer */
    bool alone;        /* and not inside a transaction: VACUUM, settings */
    bool slow;         /* it has exceeded LS_DB_PLACE_NS: the next time it goes to the pool at once */
    int prepared;      /* how often, plus one: again when tables were altered */
    bool told;         /* of a text in such a column, in the log */
    uint64_t booleans; /* columns n that are declared BOOLEAN: the bits n % 64 */
} ls_db_statement;

typedef struct ls_db_conn {
    ls_node node, all; /* of the free connections; of all */
    ls_db *db;
    sqlite3 *handle;
    bool writer;
    ls_db_statement statements[LS_DB_STATEMENTS_MAX];
    uint64_t uses;
    bool preparing, setting; /* for the authorizer: it runs for a statement of the site; that is a setting */
    const char *refused;     /* what the authorizer says about it */

    /* The statement that runs. */
    ls_db_statement *running; /* or has rows left; NULL: none */
    const ls_db_job *job;
    bool inserted;     /* it has inserted a row */
    uint64_t until_ns; /* 0: no limit */
    uint64_t busy_since_ns;
    int wal_pages; /* since the last checkpoint */

    /* Of database_sqlite.c. */
    ls_work work;
    bool posted, leased, lost;
    ls_db_job *next_job;
} ls_db_conn;

/* LS_OK, or a code with the reason in `message`. */
int ls_db_conn_open(ls_db *db, const char *path, bool writer, bool memory, bool sync, ls_db_conn **out, char *message,
                    size_t message_bytes);
void ls_db_conn_close(ls_db_conn *conn);

/* Find or prepare the statement of the job. NULL: job->error. */
ls_db_statement *ls_db_conn_prepare(ls_db_conn *conn, ls_db_job *job);
/* Run it, or continue with it, until it ends, has `batch` bytes of rows and more, or until_ns is over. false:
 * interrupted at until_ns with nothing done; else the job has its result, or `more`. batch 0: all rows in one
 * piece. */
bool ls_db_conn_run(ls_db_conn *conn, ls_db_job *job, ls_db_statement *statement, size_t batch);
void ls_db_conn_reset(ls_db_conn *conn); /* end the statement that has rows left */
/* Run statements without parameters. `job`: the reason goes into it; NULL: it is dropped. LS_OK or a code. */
int ls_db_conn_script(ls_db_conn *conn, ls_db_job *job, const char *sql, size_t len);
/* Put an error into the job: that of the last call, or this one. */
void ls_db_conn_fail(ls_db_conn *conn, ls_db_job *job);
void ls_db_job_fail(ls_db_job *job, int error, const char *message);

#endif
