/* postgres.h - ls.postgres for the parts of the server that know no libpq: figures, the version, the port.
 * postgres_libpq.h has the pool. Without libpq bind/data/postgres_object_none.c. Any thread. */
#ifndef LS_SCRIPT_POSTGRES_H
#define LS_SCRIPT_POSTGRES_H

#include "base/shared.h"
#include "port/port.h"

typedef struct ls_pg_stats { /* of all pools */
    uint64_t connections, waiting, statements, lost, notifications, busy_ns;
} ls_pg_stats;

/* connections: open, or being opened; waiting: tasks that wait for one; statements: sent so far; lost: connections
 * that failed or were refused; notifications: of pg:listen; busy_ns: between a statement and the end of its result. */
void ls_pg_stat(ls_shared *shared, ls_pg_stats *out);

/* The version of libpq as text in `out`; without libpq "not built in", or why it cannot be loaded. */
const char *ls_pg_library(char *out, size_t out_bytes);

#endif
