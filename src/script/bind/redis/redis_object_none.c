/* redis_object_none.c - the core of ls.redis, and redis_reader.h, without hiredis: there are no connections. */
#include "script/bind/redis/redis_reader.h"
#include "script/bind/redis/redis_stats.h"

const char *ls_redis_reader_library(void)
{
    return NULL;
}

static int core_connection(lua_State *L)
{
    return 0;
}

static const luaL_Reg functions[] = {{"redis_connection", core_connection}, {NULL, NULL}};

const ls_module ls_redis_module = {.name = "redis", .functions = functions, .common = &ls_redis_common};
