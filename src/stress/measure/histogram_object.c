/* histogram_object.c - see histogram_object.h. */
#include "stress/measure/histogram_object.h"

#include <lauxlib.h>

#include "script/core/lua/push.h"

static const char stats_meta[] = "luaserve.stress.stats";

typedef struct stats {
    const ls_histogram *h;
    ls_histogram *own; /* the same, or NULL */
    double unit;
} stats;

static const stats *check_stats(lua_State *L)
{
    return luaL_checkudata(L, 1, stats_meta);
}

const ls_histogram *ls_histogram_check(lua_State *L, int index)
{
    return ((const stats *)luaL_checkudata(L, index, stats_meta))->h;
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
    push_value(L, s, ls_histogram_percentile(s->h, percent));
    return 1;
}

static int stats_within(lua_State *L)
{
    return ls_push_number(L, ls_histogram_within(check_stats(L)->h, luaL_checknumber(L, 2)));
}

static int stats_below(lua_State *L)
{
    const stats *s = check_stats(L);
    return ls_push_number(L, ls_histogram_below(s->h, (uint64_t)(luaL_checknumber(L, 2) * s->unit)));
}

static int stats_record(lua_State *L)
{
    const stats *s = check_stats(L);
    luaL_argcheck(L, s->own != NULL, 1, "the histogram is read-only");
    ls_histogram_record(s->own, (uint64_t)luaL_checkinteger(L, 2));
    return 0;
}

static int stats_between(lua_State *L)
{
    const stats *s = check_stats(L);
    const ls_histogram *before = ls_histogram_check(L, 2);
    ls_histogram_between(ls_histogram_push(L), s->h, before);
    return 1;
}

static int stats_index(lua_State *L)
{
    static const char *const names[] = {"min",        "max",    "mean",  "stdev",  "count",   "clipped",
                                        "percentile", "within", "below", "record", "between", NULL};
    static const lua_CFunction methods[] = {stats_percentile, stats_within, stats_below, stats_record, stats_between};
    enum { FIRST_METHOD = 6 };
    const stats *s = check_stats(L);
    const int name = luaL_checkoption(L, 2, NULL, names);
    switch (name) {
    case 0: push_value(L, s, ls_histogram_min(s->h)); break;
    case 1: push_value(L, s, ls_histogram_max(s->h)); break;
    case 2: lua_pushnumber(L, ls_histogram_mean(s->h) / s->unit); break;
    case 3: lua_pushnumber(L, ls_histogram_stdev(s->h) / s->unit); break;
    case 4: lua_pushinteger(L, (lua_Integer)ls_histogram_count(s->h)); break;
    case 5: lua_pushinteger(L, (lua_Integer)atomic_load_explicit(&s->h->clipped, memory_order_relaxed)); break;
    default: lua_pushcfunction(L, methods[name - FIRST_METHOD]); break;
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
    return ls_push_integer(L, count);
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

static int stats_gc(lua_State *L)
{
    ls_histogram_close(check_stats(L)->own);
    return 0;
}

static stats *push_stats(lua_State *L, double unit)
{
    static const luaL_Reg methods[] = {
        {"__index", stats_index}, {"__len", stats_len}, {"__call", stats_call}, {"__gc", stats_gc}, {NULL, NULL}};
    stats *s = lua_newuserdatauv(L, sizeof *s, 0);
    *s = (stats){.unit = unit};
    if (luaL_newmetatable(L, stats_meta)) luaL_setfuncs(L, methods, 0);
    lua_setmetatable(L, -2);
    return s;
}

ls_histogram *ls_histogram_push(lua_State *L)
{
    stats *s = push_stats(L, 1);
    if ((s->h = s->own = ls_histogram_open()) == NULL) luaL_error(L, "not enough memory");
    return s->own;
}

void ls_histogram_push_view(lua_State *L, const ls_histogram *h, double unit)
{
    push_stats(L, unit)->h = h;
}
