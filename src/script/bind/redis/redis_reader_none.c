/* redis_reader_none.c - redis_reader.h without hiredis: no reader is opened, so the other functions are not called. */
#include "base/err.h"
#include "script/bind/redis/redis_reader.h"

const char *ls_redis_reader_library(void)
{
    return NULL;
}

ls_redis_reader *ls_redis_reader_open(void)
{
    return NULL;
}

void ls_redis_reader_close(ls_redis_reader *reader)
{
}

int ls_redis_reader_feed(ls_redis_reader *reader, const char *bytes, size_t len)
{
    return LS_ENOMEM;
}

int ls_redis_reader_next(lua_State *L, ls_redis_reader *reader, int partial, uint64_t bytes_max, bool *is_error)
{
    return LS_EPROTO;
}

bool ls_redis_reader_is_empty(const ls_redis_reader *reader)
{
    return true;
}

const char *ls_redis_reader_why(const ls_redis_reader *reader)
{
    return "";
}
