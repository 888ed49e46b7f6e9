/* script.c - the Lua states of a run: loading files, calling hooks, keeping errors. See script.h. */
#include "stress/script_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/http_text.h"
#include "script/bind/json.h"
#include "script/core/lua_modules.h"

enum { COPY_DEPTH_MAX = 32 };

ls_stress_script *ls_stress_script_of(lua_State *L)
{
    ls_stress_script *s;
    memcpy(&s, lua_getextraspace(L), sizeof(void *));
    return s;
}

lua_State *ls_stress_script_state(ls_stress_script *s)
{
    return s->L;
}

const char *ls_stress_script_error(const ls_stress_script *s)
{
    return s->error;
}

/* ---- open and close --------------------------------------------------------------------------------------------- */

/* `require` finds the built-in modules, then those beside the script. */
static void define_modules(lua_State *L, const char *path)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushcfunction(L, ls_cjson_open);
    lua_setfield(L, -2, "cjson");
    lua_pushcfunction(L, ls_cjson_safe_open);
    lua_setfield(L, -2, "cjson.safe");
    lua_pop(L, 1);
    ls_lua_modules_preload(L, "luaserve.stress", NULL);
    ls_lua_modules_path(L, path, NULL);
}

static int load(lua_State *L)
{
    ls_stress_script *s = lua_touserdata(L, 1);
    const ls_stress_plan *plan = s->plan;
    lua_settop(L, 0);
    luaL_openlibs(L);
    define_modules(L, plan->script_path);
    lua_createtable(L, plan->script_argc, 1);
    for (int i = 0; i < plan->script_argc; i++) {
        lua_pushstring(L, plan->script_argv[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_pushstring(L, plan->script_path);
    lua_rawseti(L, -2, 0);
    lua_setglobal(L, "arg");
    if (plan->dialect == LS_STRESS_DIALECT_WRK) {
        lua_pushcfunction(L, ls_stress_wrk_define);
        lua_pushlightuserdata(L, s);
        lua_call(L, 1, 1);
    }
    if (luaL_loadfile(L, plan->script_path) != LUA_OK) return lua_error(L);
    lua_call(L, 0, 1);
    if (plan->dialect == LS_STRESS_DIALECT_WRK) {
        lua_pop(L, 1);
        return 1;
    }
    if (!lua_istable(L, -1))
        return luaL_error(L, "%s: the script did not return a table (for a wrk script use -s and a URL)",
                          plan->script_path);
    return 1;
}

/* Generational collection suits hooks: they create short-lived strings beside a long-lived script. */
int ls_stress_script_open(const ls_stress_plan *plan, ls_stress_script **out, char *why, size_t why_bytes)
{
    ls_stress_script *s = calloc(1, sizeof *s);
    if (s == NULL || (s->L = luaL_newstate()) == NULL) {
        free(s);
        (void)snprintf(why, why_bytes, "not enough memory for a Lua state");
        return LS_ENOMEM;
    }
    s->plan = plan;
    s->batch = 1;
    memcpy(lua_getextraspace(s->L), &s, sizeof(void *));
    (void)lua_gc(s->L, LUA_GCGEN, 0, 0);
    lua_pushcfunction(s->L, load);
    lua_pushlightuserdata(s->L, s);
    bool good = ls_stress_script_call(s, 1, 1);
    if (good && plan->dialect == LS_STRESS_DIALECT_TABLE) {
        lua_pushcfunction(s->L, ls_stress_table_define);
        lua_pushlightuserdata(s->L, s);
        lua_pushvalue(s->L, AT_TABLE);
        good = ls_stress_script_call(s, 2, AT_TOP - AT_TABLE);
    } else if (good) {
        lua_pushnil(s->L);
        lua_pushcfunction(s->L, ls_stress_wrk_response);
        lua_settop(s->L, AT_TOP);
    }
    if (!good) {
        (void)snprintf(why, why_bytes, "%s", s->error);
        ls_stress_script_close(s);
        return LS_ESCRIPT;
    }
    *out = s;
    return LS_OK;
}

void ls_stress_script_close(ls_stress_script *s)
{
    if (s == NULL) return;
    lua_close(s->L);
    free(s->fixed);
    free(s->out);
    free(s->base);
    free(s);
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

bool ls_stress_script_call(ls_stress_script *s, int n, int r)
{
    if (lua_pcall(s->L, n, r, 0) == LUA_OK) return true;
    if (s->error[0] == '\0') {
        const char *text = lua_type(s->L, -1) == LUA_TSTRING ? lua_tostring(s->L, -1) : NULL;
        (void)snprintf(s->error, sizeof s->error, "%s%s", text != NULL ? "" : s->plan->script_path,
                       text != NULL ? text : ": error object is not a string");
    }
    lua_pop(s->L, 1);
    if (s->worker != NULL) {
        ls_counter_add(&s->worker->count.errors[LS_STRESS_ERROR_SCRIPT], 1);
        ls_stress_worker_request_stop(s->worker);
    }
    return false;
}

void ls_stress_script_put(lua_State *L, ls_stress_script *s, const char *bytes, size_t len)
{
    if (len > s->out_room - s->out_len) {
        size_t room = s->out_room > 0 ? s->out_room : 1024;
        while (room - s->out_len < len) room *= 2;
        char *out = realloc(s->out, room);
        if (out == NULL) {
            luaL_error(L, "not enough memory for a request of %d bytes", (int)(s->out_len + len));
            return;
        }
        s->out = out;
        s->out_room = room;
    }
    memcpy(s->out + s->out_len, bytes, len);
    s->out_len += len;
}

void ls_stress_script_put_text(lua_State *L, ls_stress_script *s, const char *text)
{
    ls_stress_script_put(L, s, text, strlen(text));
}

/* True if these header lines have a Content-Length. */
static bool has_length(const char *head, size_t len)
{
    static const char name[] = "\ncontent-length:";
    const char *line = head, *const end = head + len;
    while ((line = memchr(line, '\n', (size_t)(end - line))) != NULL) {
        if ((size_t)(end - line) >= sizeof name - 1 && ls_text_same(line, sizeof name - 1, name, sizeof name - 1))
            return true;
        line++;
    }
    return false;
}

void ls_stress_script_put_body(lua_State *L, ls_stress_script *s, int index, const char *caller)
{
    size_t len = 0;
    const char *body = lua_tolstring(L, index, &len);
    if (body == NULL && lua_toboolean(L, index))
        luaL_error(L, "%s: the body is a %s; it must be a string", caller, luaL_typename(L, index));
    if (body != NULL && !has_length(s->out, s->out_len)) { /* a Content-Length of the script or of the options stays */
        char line[48];
        (void)snprintf(line, sizeof line, "Content-Length: %zu\r\n", len);
        ls_stress_script_put_text(L, s, line);
    }
    ls_stress_script_put_text(L, s, "\r\n");
    if (body != NULL) ls_stress_script_put(L, s, body, len);
}

/* Errors are raised in `to`, which runs protected. */
static void copy(lua_State *from, int index, lua_State *to, int depth)
{
    size_t len;
    const char *text;
    if (depth > COPY_DEPTH_MAX) luaL_error(to, "cannot copy a table nested more than 32 deep to another thread");
    if (!lua_checkstack(to, 4) || !lua_checkstack(from, 4)) luaL_error(to, "not enough memory");
    switch (lua_type(from, index)) {
    case LUA_TNIL: lua_pushnil(to); break;
    case LUA_TBOOLEAN: lua_pushboolean(to, lua_toboolean(from, index)); break;
    case LUA_TNUMBER:
        if (lua_isinteger(from, index))
            lua_pushinteger(to, lua_tointeger(from, index));
        else
            lua_pushnumber(to, lua_tonumber(from, index));
        break;
    case LUA_TSTRING:
        text = lua_tolstring(from, index, &len);
        lua_pushlstring(to, text, len);
        break;
    case LUA_TTABLE:
        index = lua_absindex(from, index);
        lua_newtable(to);
        lua_pushnil(from);
        while (lua_next(from, index) != 0) {
            copy(from, -2, to, depth + 1);
            copy(from, -1, to, depth + 1);
            lua_rawset(to, -3);
            lua_pop(from, 1);
        }
        break;
    default: luaL_error(to, "cannot copy a %s to another thread", luaL_typename(from, index));
    }
}

typedef struct source {
    lua_State *from;
    int index;
} source;

static int copy_source(lua_State *to)
{
    const source *s = lua_touserdata(to, 1);
    copy(s->from, s->index, to, 0);
    return 1;
}

/* Raise in L the error that is on top of the stack of `other`. */
static void raise_of(lua_State *L, lua_State *other)
{
    if (other == L) lua_error(L);
    const char *text = lua_type(other, -1) == LUA_TSTRING ? lua_tostring(other, -1) : "error object is not a string";
    lua_pushstring(L, text);
    lua_pop(other, 1);
    lua_error(L);
}

void ls_stress_script_copy(lua_State *L, lua_State *from, int index, lua_State *to)
{
    source s = {from, lua_absindex(from, index)};
    const int top = lua_gettop(from);
    if (!lua_checkstack(to, 4)) luaL_error(L, "not enough memory");
    lua_pushcfunction(to, copy_source);
    lua_pushlightuserdata(to, &s);
    if (lua_pcall(to, 1, 1, 0) == LUA_OK) return;
    if (from != to) lua_settop(from, top);
    raise_of(L, to);
}

void ls_stress_script_call_in(lua_State *L, lua_State *other, int n, int r)
{
    if (lua_pcall(other, n, r, 0) != LUA_OK) raise_of(L, other);
}

static bool run_protected(ls_stress_script *s, lua_CFunction fn, char *why, size_t why_bytes)
{
    lua_pushcfunction(s->L, fn);
    lua_pushlightuserdata(s->L, s);
    lua_pushvalue(s->L, AT_TABLE);
    if (ls_stress_script_call(s, 2, 0)) return true;
    (void)snprintf(why, why_bytes, "%s", s->error);
    return false;
}

int ls_stress_script_prepare(ls_stress_script *main, ls_stress_script *const *scripts, unsigned count, char *why,
                             size_t why_bytes)
{
    const bool is_wrk = main->plan->dialect == LS_STRESS_DIALECT_WRK;
    main->thread_scripts = scripts;
    main->index = count;
    for (unsigned i = 0; i < count; i++) {
        scripts[i]->index = i;
        scripts[i]->addr = main->plan->addr;
    }
    if (!run_protected(main, is_wrk ? ls_stress_wrk_setup : ls_stress_table_setup, why, why_bytes)) return LS_ESCRIPT;
    for (unsigned i = 0; is_wrk && i < count; i++)
        if (!run_protected(scripts[i], ls_stress_wrk_init, why, why_bytes)) return LS_ESCRIPT;
    return LS_OK;
}

int ls_stress_script_done(ls_stress_script *main, const ls_stress_result *result, char *why, size_t why_bytes)
{
    main->result = result;
    main->error[0] = '\0';
    const bool good =
        run_protected(main, main->plan->dialect == LS_STRESS_DIALECT_WRK ? ls_stress_wrk_done : ls_stress_table_done,
                      why, why_bytes);
    (void)fflush(stdout);
    return good ? LS_OK : LS_ESCRIPT;
}

/* ---- in the worker's thread ------------------------------------------------------------------------------------- */

void ls_stress_script_attach(ls_stress_script *s, ls_stress_worker *worker)
{
    s->worker = worker;
    if (s->addr_set) worker->addr = s->addr;
}

bool ls_stress_script_has_response(const ls_stress_script *s)
{
    return s->has_response;
}

bool ls_stress_script_wants_headers(const ls_stress_script *s)
{
    return s->wants_headers;
}

bool ls_stress_script_wants_body(const ls_stress_script *s)
{
    return s->wants_body;
}

bool ls_stress_script_has_delay(const ls_stress_script *s)
{
    return s->has_delay;
}

uint32_t ls_stress_script_batch(const ls_stress_script *s)
{
    return s->batch;
}

bool ls_stress_script_fixed(const ls_stress_script *s, const char **bytes, size_t *len)
{
    *bytes = s->fixed;
    *len = s->fixed_len;
    return s->fixed != NULL;
}

bool ls_stress_script_request(ls_stress_script *s, ls_stress_vu *u, ls_stress_request *request, const char **bytes,
                              size_t *len)
{
    lua_State *L = s->L;
    s->request = request;
    if (s->plan->dialect == LS_STRESS_DIALECT_TABLE) {
        lua_pushvalue(L, AT_REQUEST);
        lua_pushlightuserdata(L, u);
        if (!ls_stress_script_call(s, 1, 0)) return false;
        *bytes = s->out;
        *len = s->out_len;
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
    lua_pushfstring(L, "%s: request() returned a %s; it must return a request as a string", s->plan->script_path,
                    luaL_typename(L, -1));
    (void)snprintf(s->error, sizeof s->error, "%s", lua_tostring(L, -1));
    lua_pop(L, 2);
    ls_counter_add(&s->worker->count.errors[LS_STRESS_ERROR_SCRIPT], 1);
    ls_stress_worker_request_stop(s->worker);
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

int ls_stress_script_parameter_count(lua_State *L)
{
    lua_Debug about;
    if (lua_getinfo(L, ">u", &about) == 0) return 255;
    return about.isvararg ? 255 : about.nparams;
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
