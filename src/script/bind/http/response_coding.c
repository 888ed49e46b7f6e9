/* response_coding.c - the core of luaserve.compress (lua/luaserve/compress.lua): the rules of a site, and the wait for
 * a long response that other threads encode. http/coding/coding_filter.h has the rest. */
#include "script/bind/http/respond.h"

#include <string.h>

#include "base/err.h"
#include "http/coding/coding_filter.h"
#include "script/bind/bind_aux.h"
#include "script/core/lua/udata.h"

static const ls_object_type rules_type;

typedef struct rules_object {
    const void *tag;
    ls_coding_rules *rules;
} rules_object;

/* core.coding_rules(bytes_min, types, cache_bytes_max, codings, levels) -> object. types: as of ls_coding_rules;
 * codings: a list of names of core.codings, the best first; levels: those of each. */
static int core_coding_rules(lua_State *L)
{
    size_t types_len;
    const lua_Integer bytes_min = luaL_checkinteger(L, 1), cache_bytes_max = luaL_checkinteger(L, 3);
    const char *types = luaL_checklstring(L, 2, &types_len);
    const lua_Integer count = luaL_len(L, 4);
    luaL_argcheck(L, count <= LS_CODINGS, 4, "too many codings");
    rules_object *object = ls_object_push(L, sizeof *object, 0, &rules_type);
    ls_coding_rules *rules = ls_coding_rules_open(types_len + 1, (size_t)cache_bytes_max);
    if (rules == NULL) return luaL_error(L, "not enough memory");
    object->rules = rules;
    rules->bytes_min = (uint64_t)bytes_min;
    memcpy(rules->types, types, types_len + 1);
    for (lua_Integer n = 1; n <= count; n++) {
        size_t len;
        lua_rawgeti(L, 4, n);
        lua_rawgeti(L, 5, n);
        const char *name = luaL_checklstring(L, -2, &len);
        const int coding = ls_coding_find(name, len);
        if (coding < 0) return luaL_error(L, "unknown coding '%s'", name);
        rules->codings[rules->count++] = (enum ls_coding)coding;
        rules->levels[coding] = (int)luaL_checkinteger(L, -1);
        lua_pop(L, 2);
    }
    return 1;
}

static int rules_drop(lua_State *L) /* __gc */
{
    rules_object *object = lua_touserdata(L, 1);
    if (object->rules != NULL) ls_coding_rules_drop(object->rules);
    object->rules = NULL;
    return 0;
}

static const ls_object_type rules_type = {.name = "rules", .drop = rules_drop};

/* core.encode_response(req, rules): they apply to the response unless it has begun, or others apply. */
static int core_encode_response(lua_State *L)
{
    const ls_request *r = ls_request_check_req(L, 1);
    const rules_object *object = ls_udata_check(L, 2, &rules_type, sizeof *object, "rules");
    if (ls_coding_filter_add(r->x, object->rules) < 0) return luaL_error(L, "not enough memory");
    return 0;
}

/* ---- a long response
 * ---------------------------------------------------------------------------------------------- */

typedef struct long_response { /* on the stack of the task */
    ls_task_work w;
    ls_coding_filter *filter;
    ls_request *request;
    int (*done)(lua_State *L, ls_request *request);
    bool working;
} long_response;

static int64_t run(ls_work *work)
{
    return ls_coding_filter_work(LS_CONTAINER(work, long_response, w.work)->filter);
}

static int finish_continue(lua_State *L, int status, lua_KContext context)
{
    long_response *l = (long_response *)context; /* NOLINT(performance-no-int-to-ptr) */
    ls_request *r = l->request;
    ls_thread_ctx *ctx = r->state->ctx;
    if (l->working) {
        const int err = (int)ls_task_work_result(&l->w);
        l->working = false;
        if (err < 0 && r->x->error == 0)
            (void)ls_exchange_fail(r->x, err);
        else if (err == LS_OK)
            (void)ls_coding_filter_put(ctx, r->x);
    }
    if (!ls_coding_filter_waits(r->x)) return l->done(L, r);
    const int sent = ls_exchange_flush(ctx, r->x);
    if (sent < 0) return l->done(L, r);
    if (sent == LS_PENDING) return ls_request_wait(L, r, context, finish_continue);
    l->working = true;
    return ls_task_await(L, &l->w, context, finish_continue);
}

int ls_response_coding_finish(lua_State *L, ls_request *r, int (*done)(lua_State *L, ls_request *request))
{
    lua_settop(L, 0);
    long_response *l = lua_newuserdatauv(L, sizeof *l, 0);
    *l = (long_response){.filter = ls_coding_filter_of(r->x), .request = r, .done = done};
    l->w.work.run = run;
    ls_task_limit(r->task, 0); /* as for other whole responses, the deadlines of the connection apply */
    return finish_continue(L, LUA_OK, (lua_KContext)l);
}

static const luaL_Reg functions[] = {
    {"coding_rules", core_coding_rules}, {"encode_response", core_encode_response}, {NULL, NULL}};

const ls_module ls_response_coding_module = {.name = "response_coding", .functions = functions};
