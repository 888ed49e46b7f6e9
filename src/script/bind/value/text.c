/* text.c - ls.html.escape, ls.url.encode and the values of templates, in C because pages call them for every value. */
#include <string.h>

#include <lauxlib.h>

#include "codec/http_chars.h"
#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/core/lua/push.h"

/* The reference for a character that has a meaning in HTML, in text or in a quoted attribute; NULL for another. */
static const char *html_reference(char c)
{
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

/* ls.html.escape(text: string|number) -> text
 * Replaces `&`, `<`, `>`, `"` and `'` by references. */
static int core_html_escape(lua_State *L)
{
    luaL_Buffer out;
    const ls_text given = ls_check_text(L, 1);
    const char *text = given.ptr, *const end = text + given.len;
    ls_check_arguments(L, 1, "ls.html.escape(text)");
    lua_settop(L, 1);
    if (strcspn(text, "&<>\"'") == given.len) return 1;
    luaL_buffinit(L, &out);
    while (text < end) {
        const char *from = text;
        const char *reference = NULL;
        while (text < end && (reference = html_reference(*text)) == NULL) text++;
        luaL_addlstring(&out, from, (size_t)(text - from));
        if (reference != NULL) {
            luaL_addstring(&out, reference);
            text++;
        }
    }
    luaL_pushresult(&out);
    return 1;
}

/* The value at index 1 as text of a page. A function is called until its result is another value; an error of one in C
 * has no line. */
static int template_value(lua_State *L, int status, lua_KContext escape)
{
    for (;;) {
        if (status > LUA_YIELD && lua_type(L, -1) != LUA_TSTRING) return lua_error(L);
        if (status > LUA_YIELD)
            return luaL_error(L, "the value is a function, which is called without arguments: %s", lua_tostring(L, -1));
        lua_settop(L, 1);
        switch (lua_type(L, 1)) {
        case LUA_TFUNCTION:
            if (lua_iscfunction(L, 1))
                status = lua_pcallk(L, 0, 1, 0, escape, template_value);
            else
                lua_callk(L, 0, 1, escape, template_value);
            continue;
        case LUA_TNIL: lua_pushliteral(L, ""); return 1;
        case LUA_TSTRING: return escape != 0 ? core_html_escape(L) : 1;
        case LUA_TNUMBER: (void)ls_number_tolstring(L, 1, NULL); return 1;
        default: break;
        }
        if (lua_touserdata(L, 1) == NULL && lua_islightuserdata(L, 1)) { /* ls.json.null */
            lua_pushliteral(L, "");
            return 1;
        }
        if (lua_type(L, 1) != LUA_TBOOLEAN && luaL_getmetafield(L, 1, "__tostring") == LUA_TNIL)
            return luaL_error(L, "the value is a %s, which has no text: write one of its fields, as in {{user.name}}, or "
                                 "its items in a loop",
                              luaL_typename(L, 1));
        (void)luaL_tolstring(L, 1, NULL);
        lua_replace(L, 1);
    }
}

/* core.template_escape(value) -> its text for HTML */
static int core_template_escape(lua_State *L)
{
    return template_value(L, LUA_OK, 1);
}

/* core.template_output(value) -> its text */
static int core_template_output(lua_State *L)
{
    return template_value(L, LUA_OK, 0);
}

/* core.number_text(number) -> its text, as ls_number_write() with `whole` */
static int core_number_text(lua_State *L)
{
    char text[LS_NUMBER_BYTES];
    (void)luaL_checknumber(L, 1);
    return ls_push_bytes(L, text, ls_number_write(text, L, 1, true));
}

static bool is_unreserved(char c)
{
    return (unsigned char)(ls_char_lower(c) - 'a') < 26 || ls_char_digit(c) || c == '-' || c == '.' || c == '_' ||
           c == '~';
}

/* ls.url.encode(text: string|number) -> text
 * Percent-encodes all bytes but the unreserved characters of RFC 3986: letters, digits and `-`, `.`, `_`, `~`. */
static int core_url_encode(lua_State *L)
{
    static const char digits[] = "0123456789ABCDEF";
    luaL_Buffer out;
    size_t plain = 0;
    const ls_text given = ls_check_text(L, 1);
    const char *text = given.ptr;
    const size_t len = given.len;
    ls_check_arguments(L, 1, "ls.url.encode(text)");
    lua_settop(L, 1);
    while (plain < len && is_unreserved(text[plain])) plain++;
    if (plain == len) return 1;
    luaL_buffinit(L, &out);
    for (size_t n = 0; n < len; n++) {
        if (is_unreserved(text[n])) {
            luaL_addchar(&out, text[n]);
        } else {
            luaL_addchar(&out, '%');
            luaL_addchar(&out, digits[(unsigned char)text[n] >> 4]);
            luaL_addchar(&out, digits[(unsigned char)text[n] & 15]);
        }
    }
    luaL_pushresult(&out);
    return 1;
}

static const luaL_Reg functions[] = {{"html_escape", core_html_escape},
                                     {"url_encode", core_url_encode},
                                     {"template_escape", core_template_escape},
                                     {"template_output", core_template_output},
                                     {"number_text", core_number_text},
                                     {NULL, NULL}};

const ls_module ls_text_module = {.name = "text", .functions = functions};
