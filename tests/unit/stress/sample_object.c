/* sample_object.c - see sample_object.h. */
#include "sample_object.h"

#include <lauxlib.h>
#include <string.h>

#include "stress/measure/counters_object.h"

enum { THREADS = 2 };

static const char sample_meta[] = "sample";

typedef struct sample {
    ls_stress_counters counters[THREADS];
    ls_stress_checks checks[THREADS];
} sample;

static sample *check(lua_State *L)
{
    return luaL_checkudata(L, 1, sample_meta);
}

static ls_stress_counters *check_thread(lua_State *L)
{
    const lua_Integer thread = luaL_checkinteger(L, 2);
    luaL_argcheck(L, thread >= 1 && thread <= THREADS, 2, "no such thread");
    return &check(L)->counters[thread - 1];
}

static int sample_new(lua_State *L)
{
    sample *s = lua_newuserdatauv(L, sizeof *s, 0);
    memset(s, 0, sizeof *s);
    luaL_setmetatable(L, sample_meta);
    for (int t = 0; t < THREADS; t++)
        if (ls_stress_counters_open(&s->counters[t], lua_toboolean(L, 1), lua_toboolean(L, 2), lua_toboolean(L, 3)) <
            0)
            return luaL_error(L, "not enough memory");
    return 1;
}

static int sample_close(lua_State *L)
{
    sample *s = check(L);
    for (int t = 0; t < THREADS; t++) {
        ls_stress_counters_close(&s->counters[t]);
        ls_stress_checks_close(&s->checks[t]);
    }
    return 0;
}

static int sample_response(lua_State *L)
{
    ls_stress_counters *c = check_thread(L);
    const uint64_t ns = (uint64_t)luaL_checknumber(L, 4);
    ls_counter_add(&c->requests, 1);
    ls_counter_add(&c->bytes_in, 240);
    ls_counter_add(&c->bytes_out, 60);
    ls_counter_add(&c->status[luaL_checkinteger(L, 3)], 1);
    ls_histogram_record(c->sent, ns);
    if (c->due == NULL) return 0;
    ls_histogram_record(c->due, ns + (uint64_t)luaL_optnumber(L, 5, 0));
    ls_histogram_record(c->lag, (uint64_t)luaL_optnumber(L, 6, 0));
    return 0;
}

#define COUNTER(member)                               \
    {                                                 \
#member, offsetof(ls_stress_counters, member) \
    }

static int sample_add(lua_State *L)
{
    static const struct {
        const char *name;
        size_t offset;
    } counters[] = {
        /* clang-format off */
        COUNTER(connects), COUNTER(connections), COUNTER(unsent), COUNTER(late_ns), COUNTER(longest_wait_ns),
        COUNTER(handshakes_full), COUNTER(handshakes_resumed), COUNTER(handshakes_failed), COUNTER(upgrades),
        COUNTER(upgrades_failed), COUNTER(deflated), COUNTER(published), COUNTER(expected), COUNTER(lost),
        COUNTER(reordered), COUNTER(duplicated), COUNTER(foreign), COUNTER(unreceived), COUNTER(status),
        COUNTER(codes), COUNTER(wanted_ns), COUNTER(checks_failed),
        /* clang-format on */
    };
    ls_stress_counters *c = check_thread(L);
    const char *name = luaL_checkstring(L, 3);
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
        if (strcmp(counters[i].name, name) != 0) continue;
        _Atomic uint64_t *counter = (_Atomic uint64_t *)(void *)((char *)c + counters[i].offset);
        ls_counter_add(counter + luaL_optinteger(L, 5, 0), (uint64_t)luaL_checkinteger(L, 4));
        return 0;
    }
    return luaL_argerror(L, 3, "no such counter");
}

static int sample_error(lua_State *L)
{
    ls_stress_counters *c = check_thread(L);
    const char *name = luaL_checkstring(L, 3);
    for (int kind = 0; kind < LS_STRESS_ERROR_KINDS; kind++) {
        if (strcmp(ls_stress_error_name((ls_stress_error)kind), name) != 0) continue;
        ls_counter_add(&c->errors[kind], (uint64_t)luaL_checkinteger(L, 4));
        return 0;
    }
    return luaL_argerror(L, 3, "no such error");
}

static int sample_record(lua_State *L)
{
    static const char *const names[] = {"lag", "waiting", "handshake", "upgrade", NULL};
    const ls_stress_counters *c = &check(L)->counters[0];
    ls_histogram *const histograms[] = {c->lag, c->waiting, c->handshake, c->upgrade};
    ls_histogram_record(histograms[luaL_checkoption(L, 2, NULL, names)], (uint64_t)luaL_checkinteger(L, 3));
    return 0;
}

static int sample_check(lua_State *L)
{
    size_t len;
    const char *name = luaL_checklstring(L, 2, &len);
    if (ls_stress_checks_count(&check(L)->checks[0], name, len, lua_toboolean(L, 3)) < 0)
        return luaL_error(L, "not enough memory");
    return 0;
}

static int sample_counters(lua_State *L)
{
    const ls_stress_counters *counters[THREADS];
    const ls_stress_checks *checks[THREADS];
    sample *s = check(L);
    for (int t = 0; t < THREADS; t++) {
        counters[t] = &s->counters[t];
        checks[t] = &s->checks[t];
    }
    ls_stress_counters_push(L, counters, checks, THREADS);
    return 1;
}

void ls_sample_push(lua_State *L)
{
    static const luaL_Reg methods[] = {{"response", sample_response}, {"add", sample_add},
                                       {"error", sample_error},       {"record", sample_record},
                                       {"check", sample_check},       {"counters", sample_counters},
                                       {"__gc", sample_close},        {NULL, NULL}};
    luaL_newmetatable(L, sample_meta);
    luaL_setfuncs(L, methods, 0);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    lua_pushcfunction(L, sample_new);
}
