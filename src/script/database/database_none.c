/* database_none.c - database.h without SQLite, for those that do not ask for a database: database_object_none.c opens
 * none. */
#include "script/database/database.h"

const char *ls_db_library(void)
{
    return NULL;
}

void ls_db_stat(ls_shared *shared, ls_db_stats *out)
{
    *out = (ls_db_stats){0};
}
