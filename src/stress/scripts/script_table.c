/* script_table.c - native scripts: a file that returns a table with options and hooks.
 *
 *     request  = function(vu) return method, path [, headers [, body]] end
 *     response = function(vu, status, headers, body) ... end
 *     scenario = function(vu, sock) ... end
 *     setup    = function() return data end          once, before the run; vu.data is a copy of the result
 *     done     = function(summary, latency, rates) ... end
 *
 * Each connection has a vu, a table with id, thread, iteration, data, and any fields that the script adds. */
#include <string.h>

#include "codec/http_chars.h"
#include "codec/http_text.h"
#include "script/core/lua/push.h"
#include "stress/scripts/script_internal.h"

/* Upvalues of the closures at AT_REQUEST and AT_RESPONSE. */
enum { UP_FUNCTION = 1, UP_VUS, UP_META };

static int vu_check(lua_State *L)
{
    ls_stress_script *s = ls_stress_script_of(L);
    size_t len;
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_checkany(L, 2);
    const char *name = luaL_optlstring(L, 3, "check", &len);
    const bool passed = lua_toboolean(L, 2);
    if (s->request == NULL) return luaL_error(L, "vu:check can only be called during a run");
    ls_stress_worker_count_check(s->worker, s->request, name, len, passed);
    return ls_push_boolean(L, passed);
}

/* ---- request ---------------------------------------------------------------------------------------------------- */

static void put_headers(lua_State *L, ls_stress_script *s, int index)
{
    if (!lua_istable(L, index))
        luaL_error(L,
                   "%s: request() returned a %s in place of a table of headers; the body is the fourth result: "
                   "return method, path, {}, body",
                   s->plan->script, luaL_typename(L, index));
    lua_pushnil(L);
    while (lua_next(L, index) != 0) {
        ls_pair field;
        if (!ls_stress_script_field(L, &field) || !ls_is_token(field.name, field.name_len) ||
            !ls_is_field_value(field.value, field.value_len)) {
            luaL_error(L,
                       "request() returned an invalid header: a header is a token and a string without line breaks");
            return;
        }
        ls_stress_script_put_field(L, s, &field);
        lua_pop(L, 1);
    }
}

/* The vu at the top gets the number of the request. */
static void set_iteration(lua_State *L, const ls_stress_script *s)
{
    ls_set_integer(L, "iteration", (lua_Integer)s->request->number);
}

/* Argument: the virtual user, a light userdata. Composes the request in s->out. */
static int call_request(lua_State *L)
{
    ls_stress_script *s = ls_stress_script_of(L);
    const ls_stress_vu *u = lua_touserdata(L, 1);
    size_t method_len, path_len;
    lua_pushvalue(L, lua_upvalueindex(UP_FUNCTION));
    ls_stress_script_push_vu(L, s, u, lua_upvalueindex(UP_VUS), lua_upvalueindex(UP_META));
    set_iteration(L, s);
    lua_call(L, 1, 4);
    const char *method = lua_tolstring(L, 2, &method_len), *path = lua_tolstring(L, 3, &path_len);
    if (method == NULL || path == NULL)
        return luaL_error(
            L, "%s: request() must return a method and a path, such as \"GET\", \"/\"; it returned %s and %s",
            s->plan->script, luaL_typename(L, 2), luaL_typename(L, 3));
    if (!ls_is_token(method, method_len))
        return luaL_error(L, "%s: request() returned the invalid method \"%s\"", s->plan->script, method);
    for (size_t i = 0; i < method_len; i++)
        if (method[i] >= 'a' && method[i] <= 'z')
            return luaL_error(L,
                              "%s: request() returned the method \"%s\"; methods have capital letters, such as POST",
                              s->plan->script, method);
    bool good = path[0] == '/' || strcmp(path, "*") == 0;
    for (size_t i = 0; good && i < path_len; i++) good = (unsigned char)path[i] > ' ' && path[i] != 0x7f;
    if (!good)
        return luaL_error(
            L, "%s: request() returned the invalid path \"%s\"; a path begins with / and has no white space",
            s->plan->script, path);
    s->out.len = 0;
    ls_stress_script_put(L, s, method, method_len);
    ls_stress_script_put_text(L, s, " ");
    ls_stress_script_put(L, s, path, path_len);
    ls_stress_script_put_text(L, s, s->plan->base);
    if (!lua_isnil(L, 4)) put_headers(L, s, 4);
    ls_stress_script_put_body(L, s, 5, "request()");
    return 0;
}

/* ---- response --------------------------------------------------------------------------------------------------- */

/* headers["Content-Type"] finds names in any case; they are stored in lower case. */
static int headers_index(lua_State *L)
{
    size_t len;
    const char *name = luaL_checklstring(L, 2, &len);
    char lower[128];
    if (len >= sizeof lower) return 0;
    for (size_t i = 0; i < len; i++) lower[i] = ls_char_lower(name[i]);
    lua_pushlstring(L, lower, len);
    lua_rawget(L, 1);
    return 1;
}

static void push_headers(lua_State *L, const ls_http_response *head, const char *bytes)
{
    size_t at = 0;
    ls_pair field;
    lua_newtable(L);
    while (ls_http1_response_field(bytes, head, &at, &field)) {
        char lower[128];
        const size_t len = field.name_len < sizeof lower ? field.name_len : sizeof lower;
        for (size_t i = 0; i < len; i++) lower[i] = ls_char_lower(field.name[i]);
        lua_pushlstring(L, lower, len);
        lua_pushvalue(L, -1);
        if (lua_rawget(L, -3) == LUA_TSTRING) { /* fields of the same name form one list (RFC 9110 section 5.2) */
            lua_pushliteral(L, ", ");
            lua_pushlstring(L, field.value, field.value_len);
            lua_concat(L, 3);
        } else {
            lua_pop(L, 1);
            lua_pushlstring(L, field.value, field.value_len);
        }
        lua_rawset(L, -3);
    }
    if (luaL_newmetatable(L, "luaserve.stress.headers")) {
        ls_set_function(L, "__index", headers_index);
    }
    lua_setmetatable(L, -2);
}

static int call_response(lua_State *L)
{
    const ls_stress_script_response_args *a = lua_touserdata(L, 1);
    ls_stress_script *s = ls_stress_script_of(L);
    lua_pushvalue(L, lua_upvalueindex(UP_FUNCTION));
    ls_stress_script_push_vu(L, s, a->u, lua_upvalueindex(UP_VUS), lua_upvalueindex(UP_META));
    set_iteration(L, s);
    lua_pushinteger(L, a->response->status);
    if (s->traits.wants_headers)
        push_headers(L, a->response, a->head);
    else
        lua_pushnil(L);
    if (s->traits.wants_body)
        lua_pushlstring(L, a->body != NULL ? a->body : "", a->body_len);
    else
        lua_pushnil(L);
    lua_call(L, 4, 0);
    return 0;
}

/* ---- define, setup, done ---------------------------------------------------------------------------------------- */

/* Push the hook `name` of the table at 2. False: the hook is absent, and nil is pushed. */
static bool push_hook(lua_State *L, const char *name)
{
    const int type = lua_getfield(L, 2, name);
    if (type != LUA_TNIL && type != LUA_TFUNCTION)
        luaL_error(L, "%s must be a function, not a %s", name, lua_typename(L, type));
    return type == LUA_TFUNCTION;
}

/* Push the closure that calls the hook `name`, or nil. At 3 and 4: the vu tables and their metatable. */
static bool push_caller(lua_State *L, const char *name, lua_CFunction caller)
{
    if (!push_hook(L, name)) return false;
    lua_pushvalue(L, 3);
    lua_pushvalue(L, 4);
    lua_pushcclosure(L, caller, UP_META);
    return true;
}

int ls_stress_table_define(lua_State *L)
{
    static const char *const others[] = {"setup", "done"};
    ls_stress_script *s = lua_touserdata(L, 1);
    lua_newtable(L); /* 3: the vu tables */
    lua_newtable(L); /* 4: their metatable */
    lua_newtable(L);
    ls_set_function(L, "check", vu_check);
    ls_stress_script_sock_define(L); /* adds vu:sleep, and vu:ws, to the table on top */
    ls_stress_script_ws_define(L);
    lua_setfield(L, 4, "__index");

    if (push_hook(L, "response")) {
        const int arguments = ls_stress_script_parameter_count(L);
        s->traits.has_response = true;
        s->traits.wants_headers = arguments >= 3;
        s->traits.wants_body = arguments >= 4;
    } else {
        lua_pop(L, 1);
    }
    s->has_request = push_caller(L, "request", call_request);
    push_caller(L, "response", call_response);
    const bool has_scenario = push_hook(L, "scenario");
    if (has_scenario && (s->has_request || s->traits.has_response))
        return luaL_error(L, "%s: a script has either scenario, or request and response", s->plan->script);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) (void)push_hook(L, others[i]), lua_pop(L, 1);
    lua_pushvalue(L, 3);
    lua_pushvalue(L, 4);
    return AT_TOP - AT_TABLE;
}

/* In a thread's state: keep the data of `setup`. */
static int keep_data(lua_State *L)
{
    lua_setfield(L, LUA_REGISTRYINDEX, ls_stress_script_data);
    return 0;
}

int ls_stress_table_setup(lua_State *L)
{
    ls_stress_script *s = lua_touserdata(L, 1);
    const bool has_setup = push_hook(L, "setup");
    if (has_setup) lua_call(L, 0, 1);
    for (unsigned i = 0; i < s->index; i++) {
        lua_State *to = s->thread_scripts[i]->L;
        ls_stress_script_copy(L, L, -1, to);
        lua_pushcfunction(to, keep_data);
        lua_insert(to, -2);
        ls_stress_script_call_in(L, to, 1, 0);
        if (s->thread_scripts[i]->has_request) continue;
        s->thread_scripts[i]->traits.fixed = s->plan->request; /* the script has only a response hook, or a scenario */
        s->thread_scripts[i]->traits.fixed_len = s->plan->request_len;
    }
    return 0;
}
