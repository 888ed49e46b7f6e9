/* script_stats.c - the arguments of done(): the summary, and histograms as wrk's objects: .min .max .mean .stdev,
 * :percentile(p), #latency, and latency(i), which returns a value and its count. */
#include "stress/script_internal.h"

static const char stats_meta[] = "luaserve.stress.stats";

typedef struct stats {
    const ls_histogram *h;
    double unit;
} stats;

static const stats *check_stats(lua_State *L)
{
    return luaL_checkudata(L, 1, stats_meta);
}

static void push_value(lua_State *L, const stats *s, uint64_t value)
{
    lua_pushinteger(L, (lua_Integer)((double)value / s->unit + 0.5));
}

static int stats_percentile(lua_State *L)
{
    const stats *s = check_stats(L);
    const lua_Number percent = luaL_checknumber(L, 2);
    luaL_argcheck(L, percent >= 0 && percent <= 100, 2, "percentile out of range (0 to 100)");
    push_value(L, s, ls_histogram_at(s->h, percent));
    return 1;
}

static int stats_index(lua_State *L)
{
    const stats *s = check_stats(L);
    static const char *const names[] = {"min", "max", "mean", "stdev", "percentile", NULL};
    switch (luaL_checkoption(L, 2, NULL, names)) {
    case 0: push_value(L, s, ls_histogram_min(s->h)); break;
    case 1: push_value(L, s, ls_histogram_max(s->h)); break;
    case 2: lua_pushnumber(L, ls_histogram_mean(s->h) / s->unit); break;
    case 3: lua_pushnumber(L, ls_histogram_stdev(s->h) / s->unit); break;
    default: lua_pushcfunction(L, stats_percentile); break;
    }
    return 1;
}

static int stats_len(lua_State *L)
{
    const stats *s = check_stats(L);
    size_t slot = 0;
    uint64_t value;
    lua_Integer count = 0;
    while (ls_histogram_next(s->h, &slot, &value) > 0) count++;
    lua_pushinteger(L, count);
    return 1;
}

static int stats_call(lua_State *L)
{
    const stats *s = check_stats(L);
    lua_Integer wanted = luaL_checkinteger(L, 2);
    size_t slot = 0;
    uint64_t value, count;
    luaL_argcheck(L, wanted >= 1, 2, "index must be 1 or more");
    while ((count = ls_histogram_next(s->h, &slot, &value)) > 0) {
        if (--wanted > 0) continue;
        push_value(L, s, value);
        lua_pushinteger(L, (lua_Integer)count);
        return 2;
    }
    return luaL_argerror(L, 2, "index exceeds the number of values");
}

void ls_stress_script_push_stats(lua_State *L, const ls_histogram *h, double unit)
{
    static const luaL_Reg methods[] = {
        {"__index", stats_index}, {"__len", stats_len}, {"__call", stats_call}, {NULL, NULL}};
    *(stats *)lua_newuserdatauv(L, sizeof(stats), 0) = (stats){h, unit};
    if (luaL_newmetatable(L, stats_meta)) luaL_setfuncs(L, methods, 0);
    lua_setmetatable(L, -2);
}

static void set_count(lua_State *L, const char *name, uint64_t n)
{
    lua_pushinteger(L, (lua_Integer)n);
    lua_setfield(L, -2, name);
}

void ls_stress_script_push_summary(lua_State *L, const ls_stress_result *r)
{
    lua_newtable(L);
    set_count(L, "duration", r->duration_ns / 1000);
    set_count(L, "requests", r->requests);
    set_count(L, "bytes", r->bytes_in);
    lua_newtable(L);
    for (int kind = 0; kind < LS_STRESS_ERROR_KINDS; kind++)
        set_count(L, ls_stress_error_name((ls_stress_error)kind), r->errors[kind]);
    set_count(L, "status", ls_stress_result_statuses(r, 400, LS_STRESS_STATUS_MAX));
    lua_setfield(L, -2, "errors");
}
