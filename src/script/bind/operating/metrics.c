/* metrics.c - the numbers of lua/luaserve/metrics.lua: cells to which each thread adds without a lock, and the figures of the
 * objects that all states share.
 *
 * A cell is a number (double) at the same place in the cells of each thread, which only this thread writes; the value
 * is the sum. The cells of slot 0 are shared: those of gauges, which are set, and additions while a site loads. A block
 * of cells is given out once and never returned, so no reader needs a lock either. What they mean is known in Lua. */
#include <stdlib.h>
#include <string.h>

#include "base/shared.h"
#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/core/lua/push.h"
#include "script/core/state.h"

enum {
    CHUNK = 1024, /* cells; a block does not exceed one */
    CHUNKS_MAX = 1024,
    SLOTS = 2 * 1024 + 1 /* of threads, at most 1024 and as many that refuse requests, and the shared one */
};

typedef _Atomic uint64_t cell; /* the bits of a double */
typedef struct chunks {
    void *_Atomic at[CHUNKS_MAX]; /* cell * */
} chunks;

typedef struct metrics {        /* of a server, from the first call on */
    _Atomic uint32_t used;      /* cells; the first one is not given out */
    void *_Atomic slots[SLOTS]; /* chunks *: the shared ones, then by the number of the thread */
    _Atomic unsigned slots_used;
} metrics;

/* ---- cells ------------------------------------------------------------------------------------------------------ */

/* *at, made of zeros at first. NULL: out of memory. */
static void *made(void *_Atomic *at, size_t bytes)
{
    void *found = atomic_load_explicit(at, memory_order_acquire);
    if (found != NULL) return found;
    void *fresh = calloc(1, bytes);
    if (fresh == NULL || atomic_compare_exchange_strong(at, &found, fresh)) return fresh;
    free(fresh); /* another thread was first */
    return found;
}

static cell *cell_at(metrics *m, unsigned slot, uint32_t index)
{
    unsigned used = atomic_load_explicit(&m->slots_used, memory_order_relaxed);
    while (slot >= used && !atomic_compare_exchange_weak(&m->slots_used, &used, slot + 1)) {}
    chunks *of = made(&m->slots[slot], sizeof *of);
    cell *chunk = of != NULL ? made(&of->at[index / CHUNK], CHUNK * sizeof *chunk) : NULL;
    return chunk != NULL ? &chunk[index % CHUNK] : NULL;
}

/* The first of `count` new cells; 0: there are too many. */
static uint32_t give_cells(metrics *m, uint32_t count)
{
    uint32_t used = atomic_load(&m->used), first;
    do {
        first = used / CHUNK == (used + count - 1) / CHUNK ? used : (used / CHUNK + 1) * CHUNK;
        if (first + count > CHUNK * CHUNKS_MAX) return 0;
    } while (!atomic_compare_exchange_weak(&m->used, &used, first + count));
    return first;
}

static double value_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Of the thread that writes the cell. */
static void add(cell *to, double n)
{
    const double value = value_of(atomic_load_explicit(to, memory_order_relaxed)) + n;
    atomic_store_explicit(to, bits_of(value), memory_order_relaxed);
}

/* Of any thread. */
static void add_shared(cell *to, double n)
{
    uint64_t bits = atomic_load(to);
    while (!atomic_compare_exchange_weak(to, &bits, bits_of(value_of(bits) + n))) {}
}

static double sum(const metrics *m, uint32_t index)
{
    double total = 0;
    const unsigned slots = atomic_load(&m->slots_used);
    for (unsigned slot = 0; slot < slots; slot++) {
        chunks *of = atomic_load_explicit(&m->slots[slot], memory_order_acquire);
        cell *chunk = of != NULL ? atomic_load_explicit(&of->at[index / CHUNK], memory_order_acquire) : NULL;
        if (chunk != NULL) total += value_of(atomic_load_explicit(&chunk[index % CHUNK], memory_order_relaxed));
    }
    return total;
}

/* ---- Lua -------------------------------------------------------------------------------------------------------- */

static metrics *metrics_of(lua_State *L)
{
    _Atomic(metrics *) *own = ls_runtime_own(ls_state_runtime(ls_state_of(L)), LS_SLOT_metrics);
    metrics *m = atomic_load_explicit(own, memory_order_acquire);
    if (m != NULL) return m;
    metrics *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) luaL_error(L, "not enough memory");
    atomic_init(&fresh->used, 1);
    if (atomic_compare_exchange_strong(own, &m, fresh)) return fresh;
    free(fresh); /* another state was first */
    return m;
}

static uint32_t check_cell(lua_State *L, int index, const metrics *m)
{
    const lua_Integer at = luaL_checkinteger(L, index);
    luaL_argcheck(L, at > 0 && at < (lua_Integer)atomic_load(&m->used), index, "no such cell");
    return (uint32_t)at;
}

/* core.metric_cells(count) -> the first of so many new cells; nil: there are too many */
static int core_metric_cells(lua_State *L)
{
    const lua_Integer count = luaL_checkinteger(L, 1);
    luaL_argcheck(L, count > 0 && count <= CHUNK, 1, "1 to 1024 expected");
    const uint32_t first = give_cells(metrics_of(L), (uint32_t)count);
    return first != 0 ? ls_push_integer(L, first) : 0;
}

/* core.metric_add(cell, n, ...): further pairs may follow */
static int core_metric_add(lua_State *L)
{
    const ls_state *state = ls_state_of(L);
    metrics *m = metrics_of(L);
    const bool own = !state->loading && state->ctx != NULL;
    for (int i = 1; i < lua_gettop(L); i += 2) {
        cell *to = cell_at(m, own ? state->ctx->index + 1 : 0, check_cell(L, i, m));
        if (to == NULL) return luaL_error(L, "not enough memory");
        (own ? add : add_shared)(to, luaL_checknumber(L, i + 1));
    }
    return 0;
}

static cell *check_gauge(lua_State *L)
{
    metrics *m = metrics_of(L);
    cell *to = cell_at(m, 0, check_cell(L, 1, m));
    if (to == NULL) luaL_error(L, "not enough memory");
    return to;
}

/* core.metric_set(cell, value), core.metric_change(cell, n): of a gauge */
static int core_metric_set(lua_State *L)
{
    atomic_store(check_gauge(L), bits_of(luaL_checknumber(L, 2)));
    return 0;
}

static int core_metric_change(lua_State *L)
{
    add_shared(check_gauge(L), luaL_checknumber(L, 2));
    return 0;
}

/* core.metric_read(cell) -> value */
static int core_metric_read(lua_State *L)
{
    const metrics *m = metrics_of(L);
    return ls_push_number(L, sum(m, check_cell(L, 1, m)));
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

static void metrics_close(void *own)
{
    metrics *m = atomic_load((_Atomic(metrics *) *)own);
    for (unsigned slot = 0; m != NULL && slot < SLOTS; slot++) {
        chunks *of = atomic_load(&m->slots[slot]);
        for (unsigned n = 0; of != NULL && n < CHUNKS_MAX; n++) free(atomic_load(&of->at[n]));
        free(of);
    }
    free(m);
}

static const luaL_Reg functions[] = {{"metric_cells", core_metric_cells},
                                     {"metric_add", core_metric_add},
                                     {"metric_set", core_metric_set},
                                     {"metric_change", core_metric_change},
                                     {"metric_read", core_metric_read},
                                     {"shared", core_shared},
                                     {NULL, NULL}};
static const ls_module_common common = {sizeof(_Atomic(metrics *)), NULL, metrics_close, NULL};

const ls_module ls_metrics_module = {.name = "metrics", .functions = functions, .common = &common};
