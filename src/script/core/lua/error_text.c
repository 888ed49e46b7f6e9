/* error_text.c - see error_text.h.
 *
 * `error{ code = 7 }` is usual in Lua, and "table: 0x55d0" would not say what failed. The fields are read without
 * metamethods, strings are quoted and truncated, and a table in a table is {...}, so the text is short and ends. */
#include "script/core/lua/error_text.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include <lauxlib.h>

#include "base/io/log.h"

/* Add the string at `index` in quotes: at most LS_ERROR_FIELD_BYTES_MAX bytes of it, control characters as '?'. */
static void add_quoted(lua_State *L, luaL_Buffer *text, int index)
{
    size_t len;
    const char *bytes = lua_tolstring(L, index, &len);
    const size_t shown = len <= LS_ERROR_FIELD_BYTES_MAX ? len : LS_ERROR_FIELD_BYTES_MAX;
    luaL_addchar(text, '"');
    for (size_t n = 0; n < shown; n++) {
        const unsigned char c = (unsigned char)bytes[n];
        if (c == '"' || c == '\\') luaL_addchar(text, '\\');
        luaL_addchar(text, c < 0x20 || c == 0x7F ? '?' : (char)c);
    }
    luaL_addstring(text, shown < len ? "...\"" : "\"");
}

static void add_value(lua_State *L, luaL_Buffer *text, int index)
{
    switch (lua_type(L, index)) {
    case LUA_TSTRING: add_quoted(L, text, index); break;
    case LUA_TTABLE: luaL_addstring(text, "{...}"); break;
    case LUA_TNUMBER:
    case LUA_TBOOLEAN:
        luaL_tolstring(L, index, NULL);
        luaL_addvalue(text);
        break;
    default: luaL_addstring(text, luaL_typename(L, index)); break;
    }
}

static bool is_name(const char *key)
{
    if (*key == '\0' || isdigit((unsigned char)*key)) return false;
    while (isalnum((unsigned char)*key) || *key == '_') key++;
    return *key == '\0';
}

/* Copy up to LS_ERROR_FIELDS_MAX names of fields of the table at 1 into the list at 2, in alphabetical order: the same
 * error gives the same text. Returns their number; *more: the table has others. */
static int sorted_names(lua_State *L, bool *more)
{
    int count = 0;
    lua_pushnil(L);
    while (lua_next(L, 1) != 0) {
        lua_pop(L, 1);
        if (lua_type(L, -1) != LUA_TSTRING) continue;
        int at = count;
        for (; at > 0; at--) { /* insertion sort */
            lua_rawgeti(L, 2, at);
            const bool after = strcmp(lua_tostring(L, -1), lua_tostring(L, -2)) <= 0;
            if (!after && at < LS_ERROR_FIELDS_MAX)
                lua_rawseti(L, 2, at + 1);
            else
                lua_pop(L, 1);
            if (after) break;
        }
        if (at < LS_ERROR_FIELDS_MAX) {
            lua_pushvalue(L, -1);
            lua_rawseti(L, 2, at + 1);
        }
        if (count < LS_ERROR_FIELDS_MAX)
            count++;
        else
            *more = true;
    }
    return count;
}

/* The table is at 1. The text is made of its list, then of its fields. */
static int table_text(lua_State *L)
{
    luaL_Buffer text;
    bool more = false;
    const char *separator = "{ ";
    lua_settop(L, 1);
    lua_createtable(L, LS_ERROR_FIELDS_MAX, 0);
    const int names = sorted_names(L, &more);
    const lua_Integer listed = (lua_Integer)lua_rawlen(L, 1);
    lua_pushnil(L); /* 3: the value that is being added; below the buffer */
    luaL_buffinit(L, &text);
    for (lua_Integer n = 1; n <= listed && n <= LS_ERROR_FIELDS_MAX; n++, separator = ", ") {
        lua_rawgeti(L, 1, n);
        lua_replace(L, 3);
        luaL_addstring(&text, separator);
        add_value(L, &text, 3);
    }
    for (int n = 1; n <= names; n++, separator = ", ") {
        lua_rawgeti(L, 2, n);
        lua_replace(L, 3);
        luaL_addstring(&text, separator);
        const char *name = lua_tostring(L, 3);
        if (is_name(name)) {
            luaL_addstring(&text, name);
        } else {
            luaL_addchar(&text, '[');
            add_quoted(L, &text, 3);
            luaL_addchar(&text, ']');
        }
        luaL_addstring(&text, " = ");
        lua_pushvalue(L, 3);
        lua_rawget(L, 1);
        lua_replace(L, 3);
        add_value(L, &text, 3);
    }
    if (listed > LS_ERROR_FIELDS_MAX || more) luaL_addstring(&text, ", ...");
    luaL_addstring(&text, *separator == ',' ? " }" : "{}");
    luaL_pushresult(&text);
    return 1;
}

static int error_text(lua_State *L)
{
    if (lua_type(L, 1) == LUA_TTABLE && luaL_getmetafield(L, 1, "__tostring") == LUA_TNIL) return table_text(L);
    (void)luaL_tolstring(L, 1, NULL);
    return 1;
}

/* Whether the line of a traceback is of a function of the site, or of a C function that such a one has called. */
static bool is_of_site(const char *line)
{
    while (line != NULL && (strncmp(line, "\n\t[C]", 5) == 0 || strncmp(line, "\n\t(...tail", 10) == 0))
        line = strchr(line + 1, '\n');
    return line != NULL && strncmp(line, "\n\tluaserve/", 11) != 0;
}

void ls_error_traceback(lua_State *L, lua_State *co, const char *message, int level)
{
    luaL_Buffer out;
    bool any = false;
    luaL_traceback(L, co, NULL, level);
    const char *text = lua_tostring(L, -1), *line = text, *next;
    while ((line = strchr(line + 1, '\n')) != NULL) any = any || is_of_site(line);
    const bool own = message == NULL || strncmp(message, "luaserve/", 9) == 0; /* an error of luaserve */
    luaL_buffinit(L, &out);
    if (message != NULL) luaL_addstring(&out, message);
    if (message != NULL && (any || own)) luaL_addchar(&out, '\n');
    for (line = text; line != NULL; line = next) {
        next = strchr(line + 1, '\n');
        if (any ? line == text || is_of_site(line) : own)
            luaL_addlstring(&out, line, next != NULL ? (size_t)(next - line) : strlen(line));
    }
    luaL_pushresult(&out);
    lua_remove(L, -2);
}

const char *ls_error_describe(lua_State *L, int index)
{
    lua_pushcfunction(L, error_text);
    lua_pushvalue(L, index);
    if (lua_pcall(L, 1, 1, 0) != LUA_OK) {
        lua_pop(L, 1);
        lua_pushfstring(L, "(error object is a %s value that cannot be converted to a string)",
                        luaL_typename(L, index));
    }
    return lua_tostring(L, -1);
}

bool ls_error_is_failure(lua_State *L, int index, bool *unreached)
{
    *unreached = false;
    if (lua_type(L, index) != LUA_TTABLE || luaL_getmetafield(L, index, "__name") == LUA_TNIL) return false;
    const char *name = lua_tostring(L, -1);
    const bool found = name != NULL && strcmp(name, "luaserve.failure") == 0;
    lua_pop(L, 1);
    if (!found) return false;
    lua_pushliteral(L, "unreached");
    (void)lua_rawget(L, index);
    *unreached = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return true;
}

void ls_error_log(lua_State *L, int index, const char *name, const char *traced)
{
    const int top = lua_gettop(L);
    bool unreached;
    if (!ls_error_is_failure(L, index, &unreached)) {
        ls_log(LS_LOG_ERROR, "%s: %s", name, traced);
        return;
    }
    const char *const text = ls_error_describe(L, index);
    lua_pushliteral(L, "where");
    (void)lua_rawget(L, index);
    lua_pushliteral(L, "kind");
    (void)lua_rawget(L, index);
    const char *const place = lua_tostring(L, -2), *const kind = lua_tostring(L, -1);
    lua_pushfstring(L, "%s %s", place != NULL ? place : text, kind != NULL ? kind : "");
    if (ls_log_is_due(lua_tostring(L, -1))) ls_log(LS_LOG_ERROR, "%s: %s", name, text);
    lua_settop(L, top);
}
