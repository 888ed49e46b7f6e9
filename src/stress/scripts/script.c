/* script.c - scripts: loading files, calling hooks. See script.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "script/core/lua/lua_modules.h"
#include "script/core/lua/push.h"
#include "script/site/preload.h"
#include "stress/measure/histogram_object.h"
#include "stress/scripts/script_internal.h"

/* ---- open and close --------------------------------------------------------------------------------------------- */

/* `require` finds the built-in modules, then those beside the script. */
static void define_modules(lua_State *L, const ls_stress_plan *plan)
{
    static const char *const prefixes[] = {"luaserve.json",      "luaserve.names", "luaserve.stress",
                                           "luaserve.text_code", "luaserve.url",   "luaserve.usage"};
    ls_site_preload(L);
    for (size_t n = 0; n < sizeof prefixes / sizeof prefixes[0]; n++) ls_lua_modules_preload(L, prefixes[n]);
    ls_lua_modules_path(L, plan->script, NULL);
    ls_push_module(L, "luaserve.stress.script");
    lua_pushboolean(L, plan->native);
    lua_call(L, 1, 0);
}

/* Runs protected. Arguments: the arguments after "--" twice, and the table `wrk` of the plan. Returns the value for
 * AT_TABLE. */
static int load(lua_State *L)
{
    const ls_stress_plan *plan = ls_stress_script_of(L)->plan;
    luaL_openlibs(L);
    define_modules(L, plan);
    lua_insert(L, 1); /* wrk, arguments, arguments */
    lua_setfield(L, LUA_REGISTRYINDEX, ls_stress_script_arguments);
    lua_pushstring(L, plan->script);
    lua_rawseti(L, -2, 0);
    lua_setglobal(L, "arg");
    if (plan->native) {
        ls_push_module(L, "luaserve.stress.vu_ws");
        lua_setfield(L, LUA_REGISTRYINDEX, ls_stress_script_vu_ws);
    } else {
        lua_pushcfunction(L, ls_stress_wrk_define);
        lua_insert(L, 1);
        lua_call(L, 1, 1);
    }
    if (luaL_loadfile(L, plan->script) != LUA_OK) return lua_error(L);
    lua_call(L, 0, 1);
    if (!plan->native)
        lua_pop(L, 1);
    else if (!lua_istable(L, -1))
        return luaL_error(L, "%s: the script did not return a table (for a wrk script use -s and a URL)",
                          plan->script);
    return 1;
}

/* Raise the error of a script in L unless the call was good. */
static void check(lua_State *L, const ls_stress_script *s, bool good)
{
    if (good) return;
    lua_pushstring(L, s->error);
    lua_error(L);
}

static void copy_field(lua_State *L, int index, const char *name, lua_State *to)
{
    lua_getfield(L, index, name);
    ls_stress_script_copy(L, L, -1, to);
    lua_pop(L, 1);
}

void ls_stress_script_open(lua_State *L, int index, const ls_stress_plan *plan, ls_stress_script **out)
{
    ls_stress_script *s = *out = calloc(1, sizeof *s);
    if (s == NULL || (s->L = luaL_newstate()) == NULL) {
        luaL_error(L, "not enough memory for a Lua state");
        return;
    }
    s->plan = plan;
    s->traits.batch = 1;
    memcpy(lua_getextraspace(s->L), &s, sizeof(void *));
    (void)lua_gc(s->L, LUA_GCGEN, 0, 0); /* hooks create short-lived strings beside a long-lived script */
    lua_pushcfunction(s->L, load);
    copy_field(L, index, "arguments", s->L);
    copy_field(L, index, "arguments", s->L);
    copy_field(L, index, "wrk", s->L);
    check(L, s, ls_stress_script_call(s, 3, 1));
    if (plan->native) {
        lua_pushcfunction(s->L, ls_stress_table_define);
        lua_pushlightuserdata(s->L, s);
        lua_pushvalue(s->L, AT_TABLE);
        check(L, s, ls_stress_script_call(s, 2, AT_TOP - AT_TABLE));
    } else {
        lua_pushnil(s->L);
        lua_pushcfunction(s->L, ls_stress_wrk_response);
        lua_settop(s->L, AT_TOP);
    }
}

void ls_stress_script_close(ls_stress_script *s)
{
    if (s == NULL) return;
    if (s->L != NULL) lua_close(s->L);
    free(s->out.at);
    free(s);
}

static int no_function(lua_State *L)
{
    return 0;
}

void ls_stress_script_push_table(ls_stress_script *s, lua_State *L)
{
    lua_State *from = s->L;
    if (!lua_checkstack(from, 4)) luaL_error(L, "not enough memory");
    lua_newtable(L);
    for (lua_pushnil(from); lua_next(from, AT_TABLE) != 0; lua_pop(from, 1)) {
        ls_stress_script_copy(L, from, -2, L);
        if (lua_isfunction(from, -1))
            lua_pushcfunction(L, no_function); /* main.lua only looks at the type */
        else
            ls_stress_script_copy(L, from, -1, L);
        lua_rawset(L, -3);
    }
}

/* ---- before and after the run ----------------------------------------------------------------------------------- */

static void call_prepare(lua_State *L, ls_stress_script *s, lua_CFunction fn)
{
    lua_pushcfunction(s->L, fn);
    lua_pushlightuserdata(s->L, s);
    lua_pushvalue(s->L, AT_TABLE);
    check(L, s, ls_stress_script_call(s, 2, 0));
}

void ls_stress_script_prepare(lua_State *L, ls_stress_script *main, ls_stress_script *const *scripts, unsigned count)
{
    const bool is_wrk = !main->plan->native;
    main->thread_scripts = scripts;
    main->index = count;
    for (unsigned i = 0; i < count; i++) {
        scripts[i]->index = i;
        scripts[i]->addr = main->plan->addr;
    }
    call_prepare(L, main, is_wrk ? ls_stress_wrk_setup : ls_stress_table_setup);
    for (unsigned i = 0; is_wrk && i < count; i++) call_prepare(L, scripts[i], ls_stress_wrk_init);
}

/* Runs protected. Arguments: the hook, the summary, and the two histograms as light userdata. */
static int call_done(lua_State *L)
{
    const ls_histogram *latency = lua_touserdata(L, 3), *rates = lua_touserdata(L, 4);
    lua_settop(L, 2);
    ls_histogram_push_view(L, latency, 1000);
    ls_histogram_push_view(L, rates, 1);
    lua_call(L, 3, 0);
    return 0;
}

/* Each thread counts in variables of its own: add what they have counted to those of `done`, which is on top. */
static void add_counts(ls_stress_script *main)
{
    for (int n = 1; lua_getupvalue(main->L, -1, n) != NULL; n++) {
        lua_Number sum = lua_tonumber(main->L, -1);
        const lua_Number before = sum;
        for (unsigned i = 0; lua_type(main->L, -1) == LUA_TNUMBER && i < main->index; i++) {
            lua_State *L = main->thread_scripts[i]->L;
            const int top = lua_gettop(L);
            if (lua_getfield(L, AT_TABLE, "done") == LUA_TFUNCTION && lua_getupvalue(L, -1, n) != NULL)
                sum += lua_tonumber(L, -1) - before;
            lua_settop(L, top);
        }
        if (sum != before && lua_isinteger(main->L, -1))
            lua_pushinteger(main->L, (lua_Integer)sum);
        else if (sum != before)
            lua_pushnumber(main->L, sum);
        if (sum != before) (void)lua_setupvalue(main->L, -3, n);
        lua_pop(main->L, 1);
    }
}

void ls_stress_script_done(lua_State *L, ls_stress_script *main)
{
    const ls_histogram *latency = ls_histogram_check(L, -2), *rates = ls_histogram_check(L, -1);
    lua_State *own = main->L;
    main->error[0] = '\0';
    lua_pushcfunction(own, call_done);
    if (main->plan->native)
        lua_getfield(own, AT_TABLE, "done");
    else
        lua_getglobal(own, "done");
    if (!lua_isfunction(own, -1)) {
        lua_pop(own, 2);
        return;
    }
    if (main->plan->native) add_counts(main);
    ls_stress_script_copy(L, L, -3, own);
    lua_pushlightuserdata(own, (void *)(uintptr_t)latency);
    lua_pushlightuserdata(own, (void *)(uintptr_t)rates);
    const bool good = ls_stress_script_call(main, 4, 0);
    (void)fflush(stdout);
    check(L, main, good);
}

const char *ls_stress_script_error(const ls_stress_script *s)
{
    return s->error;
}

/* ---- in the worker's thread ------------------------------------------------------------------------------------- */

const ls_stress_script_traits *ls_stress_script_traits_of(const ls_stress_script *s)
{
    return &s->traits;
}

void ls_stress_script_attach(ls_stress_script *s, ls_stress_worker *worker)
{
    s->worker = worker;
    if (s->addr_set) worker->addr = s->addr;
}

bool ls_stress_script_request(ls_stress_script *s, ls_stress_vu *u, ls_stress_request *request, const char **bytes,
                              size_t *len)
{
    lua_State *L = s->L;
    s->request = request;
    if (s->plan->native) {
        lua_pushvalue(L, AT_REQUEST);
        lua_pushlightuserdata(L, u);
        if (!ls_stress_script_call(s, 1, 0)) return false;
        *bytes = s->out.at;
        *len = s->out.len;
        lua_pushnil(L); /* ls_stress_script_request_sent() pops it */
        return true;
    }
    if (lua_getglobal(L, "request") != LUA_TFUNCTION) { /* a script may replace and remove its hooks */
        lua_pop(L, 1);
        lua_getfield(L, AT_TABLE, "request");
    }
    if (!ls_stress_script_call(s, 0, 1)) return false;
    if (lua_type(L, -1) == LUA_TSTRING && lua_rawlen(L, -1) > 0) {
        *bytes = lua_tolstring(L, -1, len);
        return true;
    }
    lua_pushfstring(L, "%s: request() returned a %s; it must return a request as a string", s->plan->script,
                    luaL_typename(L, -1));
    lua_remove(L, -2);
    ls_stress_script_failed(s);
    return false;
}

void ls_stress_script_request_sent(ls_stress_script *s)
{
    lua_pop(s->L, 1);
}

bool ls_stress_script_response(ls_stress_script *s, ls_stress_vu *u, const ls_http_response *response,
                               const char *head, const char *body, size_t body_len)
{
    ls_stress_script_response_args args = {u, response, head, body, body_len};
    s->request = &u->requests[u->first];
    lua_pushvalue(s->L, AT_RESPONSE);
    lua_pushlightuserdata(s->L, &args);
    return ls_stress_script_call(s, 1, 0);
}

uint64_t ls_stress_script_delay_ns(ls_stress_script *s)
{
    lua_State *L = s->L;
    if (lua_getglobal(L, "delay") != LUA_TFUNCTION) {
        lua_pop(L, 1);
        return 0;
    }
    if (!ls_stress_script_call(s, 0, 1)) return 0;
    const lua_Number ms = lua_tonumber(L, -1);
    lua_pop(L, 1);
    return ms > 0 && ms < 1e9 ? (uint64_t)(ms * 1e6) : 0;
}
