/* database_stats.c - see database_stats.h. */
#include "script/bind/database/database_stats.h"

#include "script/database/database.h"
#include "script/database/postgres.h"

enum { FIGURES = sizeof(ls_db_stats) / sizeof(uint64_t) };
_Static_assert(sizeof(ls_db_stats) == sizeof(ls_pg_stats), "the same number of figures");

/* The last figure is a time. */
static void report(const void *stats, const char *const names[FIGURES], ls_site_stat_fn *each, void *to)
{
    const uint64_t *figures = stats;
    for (unsigned n = 0; n < FIGURES; n++) each(to, names[n], (double)figures[n] / (n == FIGURES - 1 ? 1e9 : 1));
}

static void sqlite_stats(ls_runtime *runtime, ls_site_stat_fn *each, void *to)
{
    static const char *const names[FIGURES] = {"sqlite_connections", "sqlite_waiting", "sqlite_statements",
                                               "sqlite_moved",       "sqlite_commits", "sqlite_busy_seconds"};
    ls_db_stats stats;
    ls_db_stat(runtime->shared, &stats);
    report(&stats, names, each, to);
}

static void postgres_stats(ls_runtime *runtime, ls_site_stat_fn *each, void *to)
{
    static const char *const names[FIGURES] = {"postgres_connections", "postgres_waiting",       "postgres_statements",
                                               "postgres_lost",        "postgres_notifications", "postgres_busy_seconds"};
    ls_pg_stats stats;
    ls_pg_stat(runtime->shared, &stats);
    report(&stats, names, each, to);
}

const ls_module_common ls_sqlite_common = {.stats = sqlite_stats}, ls_postgres_common = {.stats = postgres_stats};
