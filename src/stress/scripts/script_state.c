/* script_state.c - what the scripts for wrk and the native scripts have in common: calls and their errors, the request
 * being composed, values of other states. See script_internal.h. */
#include <stdio.h>
#include <string.h>

#include "codec/http_text.h"
#include "script/core/lua/push.h"
#include "script/store/marshal.h"
#include "stress/scripts/script_internal.h"

const char ls_stress_script_arguments[] = "luaserve.stress.arguments",
           ls_stress_script_vu_ws[] = "luaserve.stress.vu_ws", ls_stress_script_data[] = "luaserve.stress.data";

ls_stress_script *ls_stress_script_of(lua_State *L)
{
    ls_stress_script *s;
    memcpy(&s, lua_getextraspace(L), sizeof(void *));
    return s;
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

void ls_stress_script_failed(ls_stress_script *s)
{
    if (s->error[0] == '\0') {
        const char *text = lua_type(s->L, -1) == LUA_TSTRING ? lua_tostring(s->L, -1) : NULL;
        (void)snprintf(s->error, sizeof s->error, "%s%s", text != NULL ? "" : s->plan->script,
                       text != NULL ? text : ": error object is not a string");
    }
    lua_pop(s->L, 1);
    if (s->worker != NULL) {
        ls_counter_add(&s->worker->count.errors[LS_STRESS_ERROR_SCRIPT], 1);
        ls_stress_worker_request_stop(s->worker);
    }
}

bool ls_stress_script_call(ls_stress_script *s, int n, int r)
{
    if (lua_pcall(s->L, n, r, 0) == LUA_OK) return true;
    ls_stress_script_failed(s);
    return false;
}

int ls_stress_script_parameter_count(lua_State *L)
{
    lua_Debug about;
    if (lua_getinfo(L, ">u", &about) == 0) return 255;
    return about.isvararg ? 255 : about.nparams;
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

void ls_stress_script_call_in(lua_State *L, lua_State *other, int n, int r)
{
    if (lua_pcall(other, n, r, 0) != LUA_OK) raise_of(L, other);
}

/* ---- virtual users ---------------------------------------------------------------------------------------------- */

void ls_stress_script_push_vu(lua_State *L, ls_stress_script *s, const ls_stress_vu *u, int vus, int meta)
{
    const lua_Integer number = u->index - s->worker->first_vu + 1;
    if (lua_rawgeti(L, vus, number) == LUA_TTABLE) return;
    lua_pop(L, 1);
    lua_createtable(L, 0, 6);
    ls_set_integer(L, "id", u->index + 1);
    ls_set_integer(L, "thread", s->index + 1);
    ls_set_integer(L, "iteration", 0);
    lua_getfield(L, LUA_REGISTRYINDEX, ls_stress_script_data);
    lua_setfield(L, -2, "data");
    lua_pushvalue(L, meta);
    lua_setmetatable(L, -2);
    lua_pushvalue(L, -1);
    lua_rawseti(L, vus, number);
}

void ls_stress_script_count_iteration(lua_State *L)
{
    lua_getfield(L, -1, "iteration");
    const lua_Integer n = lua_tointeger(L, -1) + 1;
    lua_pop(L, 1);
    ls_set_integer(L, "iteration", n);
}

/* ---- the request ------------------------------------------------------------------------------------------------ */

void ls_stress_script_put(lua_State *L, ls_stress_script *s, const char *bytes, size_t len)
{
    if (!ls_stress_bytes_add(&s->out, bytes, len, SIZE_MAX)) luaL_error(L, "not enough memory for a request");
}

void ls_stress_script_put_text(lua_State *L, ls_stress_script *s, const char *text)
{
    ls_stress_script_put(L, s, text, strlen(text));
}

bool ls_stress_script_field(lua_State *L, ls_pair *out)
{
    out->name = lua_type(L, -2) == LUA_TSTRING ? lua_tolstring(L, -2, &out->name_len) : NULL;
    out->value = lua_tolstring(L, -1, &out->value_len);
    return out->name != NULL && out->value != NULL;
}

void ls_stress_script_put_field(lua_State *L, ls_stress_script *s, const ls_pair *field)
{
    ls_stress_script_put(L, s, field->name, field->name_len);
    ls_stress_script_put_text(L, s, ": ");
    ls_stress_script_put(L, s, field->value, field->value_len);
    ls_stress_script_put_text(L, s, "\r\n");
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
    if (body != NULL &&
        !has_length(s->out.at, s->out.len)) { /* a Content-Length of the script or of the options stays */
        char line[48];
        (void)snprintf(line, sizeof line, "Content-Length: %zu\r\n", len);
        ls_stress_script_put_text(L, s, line);
    }
    ls_stress_script_put_text(L, s, "\r\n");
    if (body != NULL) ls_stress_script_put(L, s, body, len);
}

/* ---- values of other states
 * -------------------------------------------------------------------------------------- */

static int push_value(lua_State *to)
{
    ls_value_push(to, lua_touserdata(to, 1));
    return 1;
}

void ls_stress_script_copy(lua_State *L, lua_State *from, int index, lua_State *to)
{
    char why[LS_VALUE_MESSAGE_BYTES];
    ls_value *value;
    if (!lua_checkstack(to, 4)) luaL_error(L, "not enough memory");
    if (ls_value_pack(from, index, NULL, &value, why, sizeof why) < 0)
        luaL_error(L, "cannot copy to another thread: %s", why);
    lua_pushcfunction(to, push_value);
    lua_pushlightuserdata(to, value);
    const int status = lua_pcall(to, 1, 1, 0);
    ls_value_drop(value);
    if (status != LUA_OK) raise_of(L, to);
}
