/* database_stats.c - see database_stats.h. */
#include "script/bind/database/database_stats.h"

#include "script/database/database.h"
#include "script/database/postgres.h"

static void sqlite_stats(ls_runtime *runtime, ls_site_stat_fn *each, void *to)
{
    ls_db_stats stats;
    ls_db_stat(runtime->shared, &stats);
    each(to, "sqlite_connections", (double)stats.connections);
    each(to, "sqlite_waiting", (double)stats.waiting);
    each(to, "sqlite_statements", (double)stats.statements);
    each(to, "sqlite_moved", (double)stats.moved);
    each(to, "sqlite_commits", (double)stats.commits);
    each(to, "sqlite_busy_seconds", (double)stats.busy_ns / 1e9);
}

static void postgres_stats(ls_runtime *runtime, ls_site_stat_fn *each, void *to)
{
    ls_pg_stats stats;
    ls_pg_stat(runtime->shared, &stats);
    each(to, "postgres_connections", (double)stats.connections);
    each(to, "postgres_waiting", (double)stats.waiting);
    each(to, "postgres_statements", (double)stats.statements);
    each(to, "postgres_lost", (double)stats.lost);
    each(to, "postgres_notifications", (double)stats.notifications);
    each(to, "postgres_busy_seconds", (double)stats.busy_ns / 1e9);
}

const ls_module_common ls_sqlite_common = {.stats = sqlite_stats}, ls_postgres_common = {.stats = postgres_stats};
