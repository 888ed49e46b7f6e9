/* postgres_object_none.c - the core of ls.postgres, and postgres.h, without libpq: there are no pools. */
#include <stdio.h>

#include "script/bind/bind_aux.h"
#include "script/bind/database/database_stats.h"
#include "script/bind/modules.h"
#include "script/database/postgres.h"

void ls_pg_stat(ls_shared *shared, ls_pg_stats *out)
{
    *out = (ls_pg_stats){0};
}

const char *ls_pg_library(char *out, size_t out_bytes)
{
    (void)snprintf(out, out_bytes, "not built in");
    return out;
}

static int core_postgres(lua_State *L)
{
    return ls_push_failure_text(L, LS_ENOTSUP, "this luaserve was built without libpq");
}

static const luaL_Reg functions[] = {{"postgres", core_postgres}, {NULL, NULL}};

const ls_module ls_postgres_module = {.name = "postgres", .functions = functions, .common = &ls_postgres_common};
