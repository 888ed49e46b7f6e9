/* redis_reader_hiredis.c - see redis_reader.h. */
#include "script/bind/redis/redis_reader.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>

#include "base/err.h"
#include "port/port.h"
#include "script/store/marshal.h"

#if HIREDIS_MAJOR > 0
typedef size_t element_count; /* the type of the length of an array */
#else
typedef int element_count;
#endif

enum { ELEMENTS_PREPARED_MAX = 1024, VALUE = LS_REDIS_LEVELS_MAX + 1 }; /* VALUE: what is no array */

struct ls_redis_reader {
    redisReader *hiredis;
    uint64_t fed, begun; /* positions: received bytes, begin of the reply that is not complete */
    lua_State *L;        /* during ls_redis_reader_next, as the next two */
    int partial;
    bool is_error;
};

#define TEXT_OF(number)              #number
#define VERSION(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *ls_redis_reader_library(void)
{
    return "hiredis " VERSION(HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
}

/* ---- the callbacks of hiredis: the `obj` of an array's read task is its level
 * ------------------------------------ */

/* The value on top is the reply, or belongs to the array of the task. */
static void *add_value(const redisReadTask *task)
{
    const ls_redis_reader *reader = task->privdata;
    if (task->parent != NULL) {
        lua_rawgeti(reader->L, reader->partial, -(lua_Integer)(uintptr_t)task->parent->obj);
        lua_insert(reader->L, -2);
        lua_rawseti(reader->L, -2, task->idx + 1);
        lua_pop(reader->L, 1);
    }
    return (void *)(uintptr_t)VALUE; /* NOLINT(performance-no-int-to-ptr) */
}

static void *create_string(const redisReadTask *task, char *text, size_t len)
{
    ls_redis_reader *reader = task->privdata;
    const bool is_error = task->type == REDIS_REPLY_ERROR;
    if (task->parent != NULL && is_error) {
        lua_createtable(reader->L, 0, 1);
        lua_pushlstring(reader->L, text, len);
        lua_setfield(reader->L, -2, "err");
    } else {
        reader->is_error = is_error;
        lua_pushlstring(reader->L, text, len);
    }
    return add_value(task);
}

static void *create_array(const redisReadTask *task, element_count elements)
{
    const ls_redis_reader *reader = task->privdata;
    const uintptr_t level = task->parent != NULL ? (uintptr_t)task->parent->obj + 1 : 1;
    if (level > LS_REDIS_LEVELS_MAX) return NULL;
    lua_createtable(reader->L, (int)(elements < ELEMENTS_PREPARED_MAX ? elements : ELEMENTS_PREPARED_MAX), 0);
    ls_array_set_mark(reader->L); /* [] in JSON, also without an element */
    lua_pushvalue(reader->L, -1);
    lua_rawseti(reader->L, reader->partial, -(lua_Integer)level);
    if (task->parent != NULL)
        (void)add_value(task);
    else
        lua_pop(reader->L, 1);
    return (void *)level; /* NOLINT(performance-no-int-to-ptr) */
}

static void *create_integer(const redisReadTask *task, long long value)
{
    const ls_redis_reader *reader = task->privdata;
    lua_pushinteger(reader->L, value);
    return add_value(task);
}

static void *create_nil(const redisReadTask *task)
{
    const ls_redis_reader *reader = task->privdata;
    if (task->parent != NULL)
        lua_pushboolean(reader->L, 0); /* keeps its place */
    else
        lua_pushnil(reader->L);
    return add_value(task);
}

#if HIREDIS_MAJOR > 0 /* types of RESP3; without a function hiredis makes them pointers that are none of ours */
static void *refuse_double(const redisReadTask *task, double value, char *text, size_t len)
{
    return NULL;
}

static void *refuse_boolean(const redisReadTask *task, int value)
{
    return NULL;
}
#endif

static void free_object(void *object)
{
    /* the collector frees it */
}

static redisReplyObjectFunctions functions = {.createString = create_string,
                                              .createArray = create_array,
                                              .createInteger = create_integer,
                                              .createNil = create_nil,
#if HIREDIS_MAJOR > 0
                                              .createDouble = refuse_double,
                                              .createBool = refuse_boolean,
#endif
                                              .freeObject = free_object};

/* ---- the reader
 * -------------------------------------------------------------------------------------------------- */

ls_redis_reader *ls_redis_reader_open(void)
{
    ls_redis_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) return NULL;
    reader->hiredis = redisReaderCreateWithFunctions(&functions);
    if (reader->hiredis == NULL) {
        free(reader);
        return NULL;
    }
    reader->hiredis->privdata = reader;
    return reader;
}

void ls_redis_reader_close(ls_redis_reader *reader)
{
    if (reader == NULL) return;
    redisReaderFree(reader->hiredis);
    free(reader);
}

int ls_redis_reader_feed(ls_redis_reader *reader, const char *bytes, size_t len)
{
    reader->fed += len;
    return redisReaderFeed(reader->hiredis, bytes, len) == REDIS_OK ? LS_OK : LS_ENOMEM;
}

int ls_redis_reader_next(lua_State *L, ls_redis_reader *reader, int partial, uint64_t bytes_max, bool *is_error)
{
    void *reply = NULL;
    reader->L = L;
    reader->partial = partial;
    reader->is_error = false;
    if (redisReaderGetReply(reader->hiredis, &reply) != REDIS_OK) return LS_EPROTO;
    const uint64_t at = reader->fed - (reader->hiredis->len - reader->hiredis->pos);
    if ((reply != NULL ? at : reader->fed) - reader->begun > bytes_max) return LS_EMSGSIZE;
    if (reply == NULL) return LS_PENDING;
    if ((uintptr_t)reply != VALUE) { /* an array, which nothing but its user keeps from now on */
        lua_rawgeti(L, partial, -1);
        for (int level = 1; lua_rawgeti(L, partial, -level) == LUA_TTABLE; level++) {
            lua_pushboolean(L, 0);
            lua_rawseti(L, partial, -level);
            lua_pop(L, 1);
        }
        lua_pop(L, 1);
    }
    reader->begun = at;
    *is_error = reader->is_error;
    return LS_DONE;
}

bool ls_redis_reader_is_empty(const ls_redis_reader *reader)
{
    return reader->fed == reader->begun;
}

const char *ls_redis_reader_why(const ls_redis_reader *reader)
{
    return reader->hiredis->err != 0 ? reader->hiredis->errstr : "";
}
