/* database_stats.h - the numbers of ls.sqlite and ls.postgres in ls.stats(). */
#ifndef LS_SCRIPT_DATABASE_STATS_H
#define LS_SCRIPT_DATABASE_STATS_H

#include "script/core/runtime.h"

extern const ls_module_common ls_sqlite_common, ls_postgres_common;

#endif
