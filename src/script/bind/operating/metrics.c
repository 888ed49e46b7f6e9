/* metrics.c - the numbers of lua/luaserve/metrics.lua and lua/luaserve/latency.lua: cells to which each thread adds without a
 * lock (http/access/cells.h), the requests of each route (http/access/latency.h), and the figures of the objects that all states share.
 * What the cells mean is known in Lua. */
#include "base/shared.h"
#include "http/access/cells.h"
#include "http/access/latency.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http/site_listener.h"
#include "script/bind/modules.h"

typedef struct metrics_common { /* of a server */
    ls_cells *cells;
    ls_latency latency;
} metrics_common;

static metrics_common *common_of(lua_State *L)
{
    return ls_runtime_own(ls_state_runtime(ls_state_of(L)), LS_SLOT_metrics);
}

/* ---- cells ------------------------------------------------------------------------------------------------------ */

/* The cell whose number is the argument, in a slot. */
static ls_cell *check_cell(lua_State *L, int index, unsigned slot)
{
    ls_cells *cells = common_of(L)->cells;
    const lua_Integer at = luaL_checkinteger(L, index);
    luaL_argcheck(L, at > 0 && at < (lua_Integer)ls_cells_given(cells), index, "no such cell");
    ls_cell *cell = ls_cells_of(cells, slot, (uint32_t)at);
    if (cell == NULL) luaL_error(L, "not enough memory");
    return cell;
}

/* core.metric_cells(count) -> the first of so many new cells; nil: there are too many */
static int core_metric_cells(lua_State *L)
{
    const lua_Integer count = luaL_checkinteger(L, 1);
    luaL_argcheck(L, count > 0 && count <= LS_CELLS_BLOCK_MAX, 1, "1 to 1024 expected");
    const uint32_t first = ls_cells_give(common_of(L)->cells, (uint32_t)count);
    return first != 0 ? ls_push_integer(L, first) : 0;
}

/* core.metric_add(cell, n, ...): further pairs may follow */
static int core_metric_add(lua_State *L)
{
    const ls_state *state = ls_state_of(L);
    const bool own = !state->loading && state->ctx != NULL;
    for (int i = 1; i < lua_gettop(L); i += 2)
        (own ? ls_cell_add : ls_cell_add_shared)(check_cell(L, i, own ? state->ctx->index + 1 : 0),
                                                 luaL_checknumber(L, i + 1));
    return 0;
}

/* core.metric_set(cell, value), core.metric_change(cell, n): of a gauge */
static int core_metric_set(lua_State *L)
{
    ls_cell_set(check_cell(L, 1, 0), luaL_checknumber(L, 2));
    return 0;
}

static int core_metric_change(lua_State *L)
{
    ls_cell_add_shared(check_cell(L, 1, 0), luaL_checknumber(L, 2));
    return 0;
}

/* As an integer if it is one: the shorter text in JSON. */
static int push_whole(lua_State *L, double value)
{
    const lua_Integer whole = value > -9e15 && value < 9e15 ? (lua_Integer)value : 0;
    return (double)whole == value ? ls_push_integer(L, whole) : ls_push_number(L, value);
}

/* core.metric_read(first, count [, trim]) -> the list of their values, with `trim` without the zeros at its end; and their sum */
static int core_metric_read(lua_State *L)
{
    double values[LS_CELLS_BLOCK_MAX], sum = 0;
    const ls_cells *cells = common_of(L)->cells;
    const lua_Integer first = luaL_checkinteger(L, 1), count = luaL_checkinteger(L, 2);
    luaL_argcheck(L, count > 0 && count <= LS_CELLS_BLOCK_MAX, 2, "1 to 1024 expected");
    luaL_argcheck(L, first > 0 && first + count <= (lua_Integer)ls_cells_given(cells), 1, "no such cells");
    ls_cells_read(cells, (uint32_t)first, (unsigned)count, values);
    unsigned used = (unsigned)count;
    while (lua_toboolean(L, 3) && used > 0 && values[used - 1] == 0) used--;
    lua_createtable(L, (int)used, 0);
    for (unsigned n = 0; n < used; n++) {
        push_whole(L, values[n]);
        lua_rawseti(L, -2, (lua_Integer)n + 1);
        sum += values[n];
    }
    return 1 + push_whole(L, sum);
}

/* ---- requests by route -------------------------------------------------------------------------------------------- */

/* core.count_latency(): count the requests of all listeners of the site. While it loads, once in each state. */
static int core_count_latency(lua_State *L)
{
    ls_state *state = ls_check_loading(L, "");
    if (state->index == 0 && ls_records_add(state, LS_RECORDS_ALL, &common_of(L)->latency.sink) < 0)
        return luaL_error(L, "too many sinks of records, or not enough memory");
    return 0;
}

_Static_assert(LS_LATENCY_BUCKETS == 43 && LS_LATENCY_STATUSES == 50 && LS_HTTP_METHODS == 10, "as in latency.lua");

/* core.latencies() -> { { route = pattern, host =, cells = the first one }, ... }
 * The routes that had a request since the start, in the order of enum ls_latency_cell; "" has those of no route. `host`:
 * that of `hosts`, or none. */
static int core_latencies(lua_State *L)
{
    const ls_records *records = ls_records_of(ls_state_runtime(ls_state_of(L)));
    const ls_latency *latency = &common_of(L)->latency;
    const unsigned routes = ls_records_route_count(records);
    lua_Integer row = 0;
    lua_settop(L, 0);
    lua_newtable(L);
    for (unsigned route = 0; route <= routes; route++) {
        const uint32_t first = atomic_load_explicit(&latency->routes[route], memory_order_acquire);
        const ls_route *of = route > 0 ? ls_records_route_at(records, route) : NULL;
        if (first == 0) continue;
        lua_createtable(L, 0, 3);
        ls_set_text(L, "route", of != NULL ? of->pattern : "");
        ls_set_text(L, "host", of != NULL && of->host[0] != '\0' ? of->host : NULL);
        ls_set_integer(L, "cells", first);
        lua_rawseti(L, 1, ++row);
    }
    return 1;
}

/* ---- shared objects --------------------------------------------------------------------------------------------- */

enum { LISTED_MAX = 1000 };
typedef struct shared_list { /* filled under the lock of the registry, where nothing may raise */
    unsigned count;
    struct {
        const ls_shared_object *object; /* which outlives every state */
        uint64_t figures[LS_FIGURES_MAX];
    } at[LISTED_MAX];
} shared_list;

static void list_object(ls_shared_object *object, void *to)
{
    shared_list *list = to;
    if (object->kind->look == NULL || list->count == LISTED_MAX) return;
    list->at[list->count].object = object;
    object->kind->look(object, list->at[list->count++].figures);
}

/* core.shared() -> { { kind = "dict", name =, entries =, bytes = }, ... }, at most 1,000 of them: the dicts, channels, caches and
 * upstream servers with their figures */
static int core_shared(lua_State *L)
{
    shared_list *list = lua_newuserdatauv(L, sizeof *list, 0);
    list->count = 0;
    ls_shared_each(ls_state_runtime(ls_state_of(L))->shared, NULL, list_object, list);
    lua_createtable(L, (int)list->count, 0);
    for (unsigned n = 0; n < list->count; n++) {
        const ls_shared_object *object = list->at[n].object;
        lua_createtable(L, 0, 2 + LS_FIGURES_MAX);
        ls_set_text(L, "kind", object->kind->name);
        ls_set_text(L, "name", object->name);
        for (unsigned i = 0; i < LS_FIGURES_MAX && object->kind->figures[i] != NULL; i++) {
            lua_pushinteger(L, (lua_Integer)list->at[n].figures[i]);
            lua_setfield(L, -2, object->kind->figures[i]);
        }
        lua_rawseti(L, -2, n + 1);
    }
    return 1;
}

static int metrics_open(void *own)
{
    metrics_common *common = own;
    common->latency.sink.ended = ls_latency_ended;
    const int err = ls_cells_open(&common->cells);
    common->latency.cells = common->cells;
    return err;
}

static void metrics_close(void *own)
{
    ls_cells_close(((metrics_common *)own)->cells);
}

static const luaL_Reg functions[] = {
    {"metric_cells", core_metric_cells},   {"metric_add", core_metric_add},   {"metric_set", core_metric_set},
    {"metric_change", core_metric_change}, {"metric_read", core_metric_read}, {"count_latency", core_count_latency},
    {"latencies", core_latencies},         {"shared", core_shared},           {NULL, NULL}};
static const ls_module_common common = {.bytes = sizeof(metrics_common), .open = metrics_open, .close = metrics_close};
const ls_module ls_metrics_module = {.name = "metrics", .functions = functions, .common = &common};
