/* latency_function.c - the requests of each route, for the status page and metrics (http/latency.h). lua/luaserve/latency.lua
 * begins the count. */
#include "http/latency.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http/site_listener.h"

typedef struct latency_common {
    ls_latency *latency; /* NULL: nothing was counted so far; set while a first state loads */
} latency_common;

static latency_common *common_of(lua_State *L)
{
    return ls_runtime_own(ls_state_runtime(ls_state_of(L)), LS_SLOT_latency);
}

/* core.count_latency(): count the requests of all listeners of the site. While it loads, once in each state. */
static int core_count_latency(lua_State *L)
{
    ls_state *state = ls_check_loading(L, "");
    latency_common *common = common_of(L);
    if (state->index > 0) return 0;
    if (common->latency == NULL && ls_latency_open(&common->latency) < 0) return luaL_error(L, "not enough memory");
    if (ls_records_add(state, LS_RECORDS_ALL, ls_latency_sink(common->latency)) < 0)
        return luaL_error(L, "too many sinks of records, or not enough memory");
    return 0;
}

/* core.latency_limits() -> the upper limits of all buckets but the last one, in seconds */
static int core_latency_limits(lua_State *L)
{
    lua_createtable(L, LS_LATENCY_BUCKETS, 0);
    for (unsigned n = 0; n < LS_LATENCY_BUCKETS; n++) {
        lua_pushnumber(L, (lua_Number)ls_latency_limit_ns(n) / 1e9);
        lua_rawseti(L, -2, n + 1);
    }
    return 1;
}

static void push_counts(lua_State *L, const ls_counter *counts, unsigned count)
{
    lua_createtable(L, (int)count, 0);
    for (unsigned n = 0; n < count; n++) {
        lua_pushinteger(L, (lua_Integer)ls_counter_read(&counts[n]));
        lua_rawseti(L, -2, n + 1);
    }
}

/* core.latencies() -> { { route = pattern, host =, sum_s =, buckets = counts, received = bytes, sent = bytes,
 *                         left =, aborted =, statuses = { [method] = counts of 1xx to 5xx } }, ... }
 * The requests since the start that have ended, by route; "" has those of no route. `host`: that of `hosts`, or none. `method`:
 * from 1 on, of ls_http_method. `left`, `aborted`: those of them whose response has no end, as of ls_record_end. */
static int core_latencies(lua_State *L)
{
    const ls_runtime *runtime = ls_state_runtime(ls_state_of(L));
    const latency_common *common = common_of(L);
    const ls_records *records = ls_records_of(runtime);
    const unsigned routes = common->latency != NULL ? ls_records_route_count(records) : 0;
    lua_Integer row = 0;
    lua_settop(L, 0);
    lua_newtable(L);
    for (unsigned route = 0; common->latency != NULL && route <= routes; route++) {
        ls_latency_cell sum = {0};
        if (!ls_latency_add(common->latency, route, &sum)) continue;
        const ls_route *of = route > 0 ? ls_records_route_at(records, route) : NULL;
        lua_createtable(L, 0, 9);
        ls_set_text(L, "route", of != NULL ? of->pattern : "");
        if (of != NULL && of->host[0] != '\0') ls_set_text(L, "host", of->host);
        lua_pushinteger(L, (lua_Integer)ls_counter_read(&sum.received));
        lua_setfield(L, -2, "received");
        lua_pushinteger(L, (lua_Integer)ls_counter_read(&sum.sent));
        lua_setfield(L, -2, "sent");
        lua_pushinteger(L, (lua_Integer)ls_counter_read(&sum.ends[LS_RECORD_LEFT]));
        lua_setfield(L, -2, "left");
        lua_pushinteger(L, (lua_Integer)ls_counter_read(&sum.ends[LS_RECORD_ABORTED]));
        lua_setfield(L, -2, "aborted");
        lua_pushnumber(L, (lua_Number)ls_counter_read(&sum.sum_ns) / 1e9);
        lua_setfield(L, -2, "sum_s");
        push_counts(L, sum.buckets, LS_LATENCY_BUCKETS + 1);
        lua_setfield(L, -2, "buckets");
        lua_createtable(L, LS_HTTP_METHODS, 0);
        for (unsigned method = 0; method < LS_HTTP_METHODS; method++) {
            push_counts(L, sum.statuses[method], LS_LATENCY_CLASSES);
            lua_rawseti(L, -2, method + 1);
        }
        lua_setfield(L, -2, "statuses");
        lua_rawseti(L, 1, ++row);
    }
    return 1;
}

static void common_close(void *own)
{
    latency_common *common = own;
    if (common->latency != NULL) ls_latency_close(common->latency);
}

static const luaL_Reg functions[] = {{"count_latency", core_count_latency},
                                     {"latency_limits", core_latency_limits},
                                     {"latencies", core_latencies},
                                     {NULL, NULL}};
static const ls_module_common latency_shared = {.bytes = sizeof(latency_common), .close = common_close};
const ls_module ls_latency_module = {.name = "latency", .functions = functions, .common = &latency_shared};
