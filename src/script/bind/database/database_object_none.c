/* database_object_none.c - the core of ls.sqlite without SQLite. */
#include "script/bind/bind_aux.h"
#include "script/bind/database/database_stats.h"
#include "script/bind/modules.h"

static int core_sqlite(lua_State *L)
{
    return ls_push_failure_text(L, LS_ENOTSUP, "%s: this luaserve was built without SQLite", luaL_checkstring(L, 1));
}

static const luaL_Reg functions[] = {{"sqlite", core_sqlite}, {NULL, NULL}};

const ls_module ls_sqlite_module = {.name = "sqlite", .functions = functions, .common = &ls_sqlite_common};
