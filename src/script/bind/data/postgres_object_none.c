/* postgres_object_none.c - the core of ls.postgres without libpq. */
#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"

static int core_postgres(lua_State *L)
{
    return ls_push_failure_text(L, LS_ENOTSUP, "this luaserve was built without libpq");
}

static const luaL_Reg functions[] = {{"postgres", core_postgres}, {NULL, NULL}};

const ls_module ls_postgres_module = {.name = "postgres", .functions = functions};
