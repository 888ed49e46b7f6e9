/* counters_object.c - see counters_object.h. */
#include "stress/measure/counters_object.h"

#include <lauxlib.h>
#include <string.h>

#include "script/core/lua/push.h"
#include "stress/measure/histogram_object.h"

static const char counters_meta[] = "luaserve.stress.counters";

typedef struct thread {
    const ls_stress_counters *counters;
    const ls_stress_checks *checks;
} thread;

typedef struct all {
    size_t count;
    thread threads[];
} all;

static const all *check_all(lua_State *L)
{
    return luaL_checkudata(L, 1, counters_meta);
}

#define MEMBER(member)                                \
    {                                                 \
#member, offsetof(ls_stress_counters, member) \
    }

typedef struct member {
    const char *name;
    size_t offset;
} member;

static const member sums[] = {MEMBER(requests),
                              MEMBER(bytes_in),
                              MEMBER(bytes_out),
                              MEMBER(connections),
                              MEMBER(connects),
                              MEMBER(unsent),
                              MEMBER(checks_failed),
                              MEMBER(unreceived),
                              MEMBER(handshakes_full),
                              MEMBER(handshakes_resumed),
                              MEMBER(handshakes_failed),
                              MEMBER(upgrades),
                              MEMBER(upgrades_failed),
                              MEMBER(deflated),
                              MEMBER(published),
                              MEMBER(expected),
                              MEMBER(lost),
                              MEMBER(reordered),
                              MEMBER(duplicated),
                              MEMBER(foreign),
                              {NULL, 0}};
static const member maxima[] = {MEMBER(late_ns), MEMBER(wanted_ns), MEMBER(longest_wait_ns), {NULL, 0}};
static const member histograms[] = {MEMBER(sent),      MEMBER(due),     MEMBER(lag), MEMBER(waiting),
                                    MEMBER(handshake), MEMBER(upgrade), {NULL, 0}};

static const void *member_of(const thread *t, size_t offset)
{
    return (const char *)t->counters + offset;
}

/* The sum of counter `index` of an array. */
static uint64_t sum(const all *a, size_t offset, size_t index)
{
    uint64_t n = 0;
    for (size_t t = 0; t < a->count; t++)
        n += ls_counter_read((const _Atomic uint64_t *)member_of(&a->threads[t], offset) + index);
    return n;
}

/* Set the field `name`: the counts of an array that are not 0, by their codes, the first of which is `least`. */
static void set_counts(lua_State *L, const all *a, const char *name, size_t offset, size_t count, size_t least)
{
    lua_newtable(L);
    for (size_t i = 0; i < count; i++) {
        const uint64_t n = sum(a, offset, i);
        if (n == 0) continue;
        lua_pushinteger(L, (lua_Integer)n);
        lua_rawseti(L, -2, (lua_Integer)(least + i));
    }
    lua_setfield(L, -2, name);
}

static int counters_read(lua_State *L)
{
    const all *a = check_all(L);
    uint64_t failed = 0;
    const bool whole = lua_toboolean(L, 2);
    lua_newtable(L);
    for (const member *m = sums; m->name != NULL; m++) ls_set_integer(L, m->name, sum(a, m->offset, 0));
    for (const member *m = maxima; m->name != NULL; m++) {
        uint64_t most = 0;
        for (size_t t = 0; t < a->count; t++) {
            const uint64_t n = ls_counter_read(member_of(&a->threads[t], m->offset));
            if (n > most) most = n;
        }
        ls_set_integer(L, m->name, most);
    }
    for (size_t status = 400; status <= LS_STRESS_STATUS_MAX; status++)
        failed += sum(a, offsetof(ls_stress_counters, status), status);
    ls_set_integer(L, "failed", failed);
    lua_createtable(L, (int)a->count, 0);
    for (size_t t = 0; t < a->count; t++) {
        lua_pushinteger(L, (lua_Integer)ls_counter_read(&a->threads[t].counters->requests));
        lua_rawseti(L, -2, (lua_Integer)t + 1);
    }
    lua_setfield(L, -2, "requests_of");
    lua_newtable(L);
    for (int kind = 0; kind < LS_STRESS_ERROR_KINDS; kind++)
        ls_set_integer(L, ls_stress_error_name((ls_stress_error)kind),
                       sum(a, offsetof(ls_stress_counters, errors), (size_t)kind));
    lua_setfield(L, -2, "errors");
    if (!whole) return 1;
    set_counts(L, a, "status", offsetof(ls_stress_counters, status), LS_STRESS_STATUS_MAX + 1, 0);
    set_counts(L, a, "codes", offsetof(ls_stress_counters, codes), LS_STRESS_CODE_COUNT, LS_STRESS_CODE_MIN);
    return 1;
}

static int counters_merge(lua_State *L)
{
    const all *a = check_all(L);
    const char *name = luaL_checkstring(L, 2);
    ls_histogram *into = NULL;
    const member *m = histograms;
    while (m->name != NULL && strcmp(m->name, name) != 0) m++;
    luaL_argcheck(L, m->name != NULL, 2, "no such histogram");
    for (size_t t = 0; t < a->count; t++) {
        const ls_histogram *h = *(ls_histogram *const *)member_of(&a->threads[t], m->offset);
        if (h == NULL) continue;
        if (into == NULL) into = ls_histogram_push(L);
        ls_histogram_add(into, h);
    }
    return into != NULL;
}

static int counters_histogram(lua_State *L)
{
    (void)ls_histogram_push(L);
    return 1;
}

static int counters_checks(lua_State *L)
{
    const all *a = check_all(L);
    lua_createtable(L, (int)a->count, 0);
    for (size_t t = 0; t < a->count; t++) {
        const ls_stress_checks *checks = a->threads[t].checks;
        lua_createtable(L, (int)checks->count, 0);
        for (size_t i = 0; i < checks->count; i++) {
            lua_createtable(L, 0, 3);
            lua_pushlstring(L, checks->list[i].name, checks->list[i].len);
            lua_setfield(L, -2, "name");
            ls_set_integer(L, "passed", checks->list[i].passed);
            ls_set_integer(L, "failed", checks->list[i].failed);
            lua_rawseti(L, -2, (lua_Integer)i + 1);
        }
        lua_rawseti(L, -2, (lua_Integer)t + 1);
    }
    return 1;
}

static void define(lua_State *L)
{
    static const luaL_Reg methods[] = {{"read", counters_read},
                                       {"merge", counters_merge},
                                       {"histogram", counters_histogram},
                                       {"checks", counters_checks},
                                       {NULL, NULL}};
    luaL_newlib(L, methods);
    lua_newtable(L);
    lua_newtable(L);
    for (int kind = 0; kind < LS_STRESS_ERROR_KINDS; kind++) {
        const char *name = ls_stress_error_name((ls_stress_error)kind);
        lua_pushstring(L, name);
        lua_rawseti(L, -3, kind + 1);
        ls_set_text(L, name, ls_stress_error_text((ls_stress_error)kind));
    }
    lua_setfield(L, -3, "error_texts");
    lua_setfield(L, -2, "error_kinds");
    lua_setfield(L, -2, "__index");
}

void ls_stress_counters_push(lua_State *L, const ls_stress_counters *const *counters,
                             const ls_stress_checks *const *checks, size_t threads)
{
    all *a = lua_newuserdatauv(L, sizeof *a + threads * sizeof *a->threads, 0);
    a->count = threads;
    for (size_t t = 0; t < threads; t++) a->threads[t] = (thread){counters[t], checks[t]};
    if (luaL_newmetatable(L, counters_meta)) define(L);
    lua_setmetatable(L, -2);
}
