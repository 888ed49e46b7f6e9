/* script_wrk.c - scripts for wrk: the table `wrk`, its hooks, and thread objects. lua/luaserve/stress/wrk.lua has the
 * parts written in Lua, above all the functions of Lua 5.1 that scripts for LuaJIT use.
 *
 * The interface is the one in wrk's file SCRIPTING (github.com/wg/wrk). As in wrk, a hook that is called for every
 * request is looked up by name each time: scripts replace and remove their own hooks during the run. */
#include <stdlib.h>
#include <string.h>

#include "codec/http_text.h"
#include "script/core/lua/push.h"
#include "stress/load/target.h"
#include "stress/scripts/script_internal.h"

enum { PROBE_MS = 2000, BATCH_MAX = LS_STRESS_PIPELINE_MAX };

static const char addr_meta[] = "luaserve.stress.addr", thread_meta[] = "luaserve.stress.thread";

/* ---- addresses -------------------------------------------------------------------------------------------------- */

static void push_addr(lua_State *L, const ls_addr *addr)
{
    *(ls_addr *)lua_newuserdatauv(L, sizeof *addr, 0) = *addr;
    luaL_setmetatable(L, addr_meta);
}

static int addr_text(lua_State *L)
{
    char text[LS_ADDR_TEXT_BYTES];
    return ls_push_text(L, ls_addr_text(luaL_checkudata(L, 1, addr_meta), text));
}

/* lookup(host, port) -> list of addresses, or nil and the reason */
static int wrk_lookup(lua_State *L)
{
    ls_addr found[LS_LOOKUP_ADDRS_MAX];
    const int count = ls_stress_target_lookup(luaL_checkstring(L, 1), (uint16_t)luaL_checkinteger(L, 2), found);
    if (count < 0) {
        return ls_push_nil_text(L, ls_err_text(count));
    }
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        push_addr(L, &found[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int wrk_connect(lua_State *L)
{
    const ls_addr *addr = luaL_checkudata(L, 1, addr_meta);
    char host[LS_ADDR_TEXT_BYTES];
    ls_addr own;
    return ls_push_boolean(L, ls_stress_target_connect(ls_addr_host(addr, host), addr->port, PROBE_MS, &own) == LS_OK);
}

/* ---- threads ---------------------------------------------------------------------------------------------------- */

static void push_thread(lua_State *L, ls_stress_script *of)
{
    *(ls_stress_script **)lua_newuserdatauv(L, sizeof(void *), 0) = of;
    luaL_setmetatable(L, thread_meta);
}

static ls_stress_script *check_thread(lua_State *L)
{
    return *(ls_stress_script **)luaL_checkudata(L, 1, thread_meta);
}

/* In the state of a thread. Arguments: the name, a light userdata; of set_global first the value. */
static int get_global(lua_State *L)
{
    lua_getglobal(L, lua_touserdata(L, 1));
    return 1;
}

static int set_global(lua_State *L)
{
    const char *name = lua_touserdata(L, 2);
    lua_settop(L, 1);
    lua_setglobal(L, name);
    return 0;
}

/* Before and after the run the main thread has access to all states. During the run each thread has its own state,
 * without objects of another. */
static int thread_get(lua_State *L)
{
    lua_State *of = check_thread(L)->L;
    const char *name = luaL_checkstring(L, 2);
    lua_pushcfunction(of, get_global);
    lua_pushlightuserdata(of, (void *)(uintptr_t)name);
    ls_stress_script_call_in(L, of, 1, 1);
    if (of == L) return 1;
    ls_stress_script_copy(L, of, -1, L);
    lua_pop(of, 1);
    return 1;
}

static int thread_set(lua_State *L)
{
    lua_State *of = check_thread(L)->L;
    const char *name = luaL_checkstring(L, 2);
    lua_settop(L, 3);
    if (of == L)
        lua_pushvalue(L, 3);
    else
        ls_stress_script_copy(L, L, 3, of);
    lua_pushcfunction(of, set_global);
    lua_insert(of, -2);
    lua_pushlightuserdata(of, (void *)(uintptr_t)name);
    ls_stress_script_call_in(L, of, 2, 0);
    return 0;
}

static int thread_stop(lua_State *L)
{
    ls_stress_script *s = check_thread(L);
    if (s->worker != NULL) ls_stress_worker_request_stop(s->worker);
    return 0;
}

static int thread_index(lua_State *L)
{
    ls_stress_script *s = check_thread(L);
    const char *name = luaL_checkstring(L, 2);
    if (strcmp(name, "addr") == 0)
        push_addr(L, &s->addr);
    else if (luaL_getmetafield(L, 1, name) == LUA_TNIL)
        lua_pushnil(L);
    return 1;
}

static int thread_newindex(lua_State *L)
{
    ls_stress_script *s = check_thread(L);
    if (strcmp(luaL_checkstring(L, 2), "addr") != 0)
        return luaL_error(L, "a thread has only one writable field: addr");
    s->addr = *(ls_addr *)luaL_checkudata(L, 3, addr_meta);
    s->addr_set = true;
    return 0;
}

/* ---- wrk.format ------------------------------------------------------------------------------------------------- */

/* Append the argument at `index`, or else the field of the table `wrk`. False: neither is present. The value stays on
 * the stack. */
static bool put_or_default(lua_State *L, ls_stress_script *s, int index, const char *field)
{
    size_t len;
    if (lua_isnoneornil(L, index))
        lua_getfield(L, lua_upvalueindex(1), field);
    else
        lua_pushvalue(L, index);
    const char *text = lua_tolstring(L, -1, &len);
    if (text == NULL) return false;
    ls_stress_script_put(L, s, text, len);
    return true;
}

/* wrk.format([method [, path [, headers [, body]]]]) -> the text of a request. Upvalue: the table `wrk`. */
static int wrk_format(lua_State *L)
{
    ls_stress_script *s = ls_stress_script_of(L);
    bool has_host = false;
    s->out.len = 0;
    lua_settop(L, 4);
    if (!put_or_default(L, s, 1, "method")) return luaL_error(L, "wrk.format: the method is not a string");
    ls_stress_script_put_text(L, s, " ");
    if (!put_or_default(L, s, 2, "path")) return luaL_error(L, "wrk.format: the path is not a string");
    ls_stress_script_put_text(L, s, " HTTP/1.1\r\n");

    if (lua_isnil(L, 4)) lua_getfield(L, lua_upvalueindex(1), "body"), lua_replace(L, 4);
    if (lua_isnil(L, 3)) lua_getfield(L, lua_upvalueindex(1), "headers"), lua_replace(L, 3);
    luaL_checktype(L, 3, LUA_TTABLE);
    lua_pushnil(L);
    while (lua_next(L, 3) != 0) {
        ls_pair field;
        if (!ls_stress_script_field(L, &field))
            return luaL_error(L, "wrk.format: the headers contain a %s; names and values must be strings",
                              luaL_typename(L, -1));
        if (strcmp(field.name, "Host") == 0) has_host = true;
        if (strcmp(field.name, "Content-Length") != 0) /* put_body() sets the length */
            ls_stress_script_put_field(L, s, &field);
        lua_pop(L, 1);
    }
    if (!has_host) {
        lua_getfield(L, lua_upvalueindex(1), "headers");
        if (lua_istable(L, -1) && lua_getfield(L, -1, "Host") == LUA_TSTRING) {
            ls_stress_script_put_text(L, s, "Host: ");
            ls_stress_script_put_text(L, s, lua_tostring(L, -1));
            ls_stress_script_put_text(L, s, "\r\n");
        }
    }
    ls_stress_script_put_body(L, s, 4, "wrk.format");
    return ls_push_bytes(L, s->out.at, s->out.len);
}

/* ---- define, setup, init ---------------------------------------------------------------------------------------- */

int ls_stress_wrk_define(lua_State *L)
{
    static const luaL_Reg functions[] = {{"lookup", wrk_lookup}, {"connect", wrk_connect}, {NULL, NULL}};
    static const luaL_Reg thread_methods[] = {{"get", thread_get},
                                              {"set", thread_set},
                                              {"stop", thread_stop},
                                              {"__index", thread_index},
                                              {"__newindex", thread_newindex},
                                              {NULL, NULL}};
    luaL_newmetatable(L, addr_meta);
    ls_set_function(L, "__tostring", addr_text);
    luaL_newmetatable(L, thread_meta);
    luaL_setfuncs(L, thread_methods, 0);
    lua_settop(L, 1);
    luaL_setfuncs(L, functions, 0);
    lua_pushvalue(L, -1);
    lua_pushcclosure(L, wrk_format, 1);
    lua_setfield(L, -2, "format");
    lua_pushvalue(L, -1);
    lua_setglobal(L, "wrk");

    ls_push_module(L, "luaserve.stress.wrk"); /* the rest of `wrk`, and the functions of Lua 5.1 */
    lua_pushvalue(L, -2);
    lua_call(L, 1, 0);
    return 1;
}

/* Call wrk.setup(thread) for each thread, which calls the script's own setup(); wrk.addrs has the default address. */
int ls_stress_wrk_setup(lua_State *L)
{
    ls_stress_script *s = lua_touserdata(L, 1);
    lua_createtable(L, 1, 0);
    push_addr(L, &s->plan->addr);
    lua_rawseti(L, -2, 1);
    lua_setfield(L, 2, "addrs");
    for (unsigned i = 0; i < s->index; i++) {
        lua_getfield(L, 2, "setup");
        push_thread(L, s->thread_scripts[i]);
        lua_call(L, 1, 0);
    }
    return 0;
}

static bool is_global_function(lua_State *L, const char *name)
{
    const bool is = lua_getglobal(L, name) == LUA_TFUNCTION;
    lua_pop(L, 1);
    return is;
}

bool ls_stress_script_next_request(const char *bytes, size_t len, size_t *at, bool *is_head)
{
    static const char name[] = "\ncontent-length:", head[] = "HEAD ";
    const char *const begin = bytes + *at, *const end = bytes + len, *line, *rest = begin;
    unsigned long long body = 0;
    do {
        if ((line = memchr(rest, '\n', (size_t)(end - rest))) == NULL) return false;
        if ((size_t)(end - line) > sizeof name && ls_text_same(line, sizeof name - 1, name, sizeof name - 1))
            body = strtoull(line + sizeof name - 1, NULL, 10);
        rest = line + 1;
    } while (end - rest < 2 || rest[0] != '\r' || rest[1] != '\n');
    rest += 2;
    if (body > (size_t)(end - rest)) return false;
    *is_head = rest - begin > (ptrdiff_t)sizeof head && memcmp(begin, head, sizeof head - 1) == 0;
    *at = (size_t)(rest - bytes) + (size_t)body;
    return true;
}

/* The number of requests in the text. As in wrk, only the first text is counted. Raises if the text does not end with
 * a complete request. */
static uint32_t count_requests(lua_State *L, const char *bytes, size_t len)
{
    uint32_t count = 0;
    bool is_head;
    for (size_t at = 0; at < len;) {
        if (!ls_stress_script_next_request(bytes, len, &at, &is_head)) {
            luaL_error(L, "request() returned an incomplete request");
            return 0;
        }
        if (++count > BATCH_MAX) luaL_error(L, "request() returned more than %d requests", BATCH_MAX);
    }
    return count;
}

/* The request is always the same: keep plan.pipeline copies of the text on top of the stack. */
static void keep_fixed(lua_State *L, ls_stress_script *s)
{
    luaL_Buffer all;
    size_t len;
    const char *text = lua_tolstring(L, -1, &len);
    s->traits.fixed_len = len;
    luaL_buffinit(L, &all);
    for (unsigned i = 0; i < s->plan->pipeline; i++) luaL_addlstring(&all, text, len);
    luaL_pushresult(&all);
    s->traits.fixed = lua_tostring(L, -1);
    (void)luaL_ref(L, LUA_REGISTRYINDEX); /* until the state closes */
}

int ls_stress_wrk_init(lua_State *L)
{
    ls_stress_script *s = lua_touserdata(L, 1);
    const ls_stress_plan *plan = s->plan;
    size_t len;
    push_thread(L, s);
    lua_setfield(L, 2, "thread");
    lua_getfield(L, 2, "init");
    lua_getfield(L, LUA_REGISTRYINDEX, ls_stress_script_arguments);
    lua_pushstring(L, plan->target);
    lua_rawseti(L, -2, 0);
    lua_call(L, 1, 0);

    s->has_request = is_global_function(L, "request");
    s->traits.has_response = is_global_function(L, "response");
    s->traits.has_delay = is_global_function(L, "delay");
    if (s->traits.has_response) {
        lua_getglobal(L, "response");
        const int arguments = ls_stress_script_parameter_count(L);
        s->traits.wants_headers = arguments >= 2;
        s->traits.wants_body = arguments >= 3;
    }
    if (s->has_request)
        lua_getglobal(L, "request");
    else
        lua_getfield(L, 2, "request");
    lua_call(L, 0, 1);
    const char *text = lua_tolstring(L, -1, &len);
    if (text == NULL || len == 0)
        return luaL_error(L, "request() returned a %s; it must return a request as a string", luaL_typename(L, -1));
    s->traits.batch = count_requests(L, text, len);
    if (s->traits.batch > 1 && plan->pipeline > 1)
        return luaL_error(L, "request() returned %d requests at once; remove --pipeline", (int)s->traits.batch);
    if (!s->has_request) keep_fixed(L, s);
    return 0;
}

/* ---- response
 * ---------------------------------------------------------------------------------------------------- */

int ls_stress_wrk_response(lua_State *L)
{
    const ls_stress_script_response_args *a = lua_touserdata(L, 1);
    const ls_stress_script *s = ls_stress_script_of(L);
    if (lua_getglobal(L, "response") != LUA_TFUNCTION) return 0;
    lua_pushinteger(L, a->response->status);
    if (s->traits.wants_headers) {
        size_t at = 0;
        ls_pair field;
        lua_newtable(L); /* names in the server's spelling; of equal names the last one */
        while (ls_http1_response_field(a->head, a->response, &at, &field)) {
            lua_pushlstring(L, field.name, field.name_len);
            lua_pushlstring(L, field.value, field.value_len);
            lua_rawset(L, -3);
        }
    } else {
        lua_newtable(L);
    }
    if (s->traits.wants_body && a->body_len > 0)
        lua_pushlstring(L, a->body, a->body_len);
    else
        lua_pushliteral(L, "");
    lua_call(L, 3, 0);
    return 0;
}
