/* redis_none.c - without hiredis luaserve.core has no function redis_connection: ls.redis raises. */
#include "script/bind/bind.h"
#include "script/bind/modules.h"

const char *ls_redis_library(void)
{
    return NULL;
}

const ls_module ls_redis_module = {.name = "redis"};
