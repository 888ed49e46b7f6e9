/* options_table.c - the table of a native script, as options: each value is read as the text of a command-line
 * option. */
#include <lauxlib.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "stress/options_internal.h"

static const char *const hooks[] = {"request", "response", "scenario", "setup", "done"};
static const char *const tables[] = {"headers", "thresholds", "expect", "stages"};

static bool is_one_of(const char *name, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, list[i]) == 0) return true;
    return false;
}

/* The option of that command-line name, which must exist. */
static const ls_stress_option *find_by_name(const char *name)
{
    for (unsigned i = 0;; i++)
        if (ls_stress_options_known[i].name != NULL && strcmp(ls_stress_options_known[i].name, name) == 0)
            return &ls_stress_options_known[i];
}

static const ls_stress_option *find_by_key(const char *key)
{
    for (unsigned i = 0; i < ls_stress_options_known_count; i++)
        if (ls_stress_options_known[i].key != NULL && strcmp(ls_stress_options_known[i].key, key) == 0)
            return &ls_stress_options_known[i];
    return NULL;
}

/* The length of the common prefix of two names. */
static size_t common_prefix(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] != '\0' && a[n] == b[n]) n++;
    return n;
}

static const char *nearest_key(const char *given)
{
    const char *best = NULL;
    size_t best_len = 1;
    for (unsigned i = 0; i < ls_stress_options_known_count; i++) {
        const char *key = ls_stress_options_known[i].key;
        if (key != NULL && common_prefix(given, key) > best_len) best_len = common_prefix(given, best = key);
    }
    for (size_t i = 0; i < sizeof hooks / sizeof hooks[0]; i++)
        if (common_prefix(given, hooks[i]) > best_len) best_len = common_prefix(given, best = hooks[i]);
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (common_prefix(given, tables[i]) > best_len) best_len = common_prefix(given, best = tables[i]);
    return best;
}

/* The value on top of the stack as a text that lives as long as the options; NULL: not a boolean, number or string. */
static const char *text_of(ls_stress_options *o, lua_State *L)
{
    size_t len;
    const char *text;
    if (lua_isboolean(L, -1)) return lua_toboolean(L, -1) ? "true" : "false";
    if (lua_type(L, -1) != LUA_TSTRING && lua_type(L, -1) != LUA_TNUMBER) return NULL;
    lua_pushvalue(L, -1); /* lua_tolstring() would convert a numeric key in place */
    text = lua_tolstring(L, -1, &len);
    text = strlen(text) == len ? ls_stress_options_keep(o, text, len) : NULL;
    lua_pop(L, 1);
    return text;
}

static int invalid(ls_stress_why *why, const char *name, const char *right)
{
    ls_stress_why_set(why, "%s must be %s", name, right);
    return LS_EINVAL;
}

static int each_text(ls_stress_options *o, lua_State *L, const char *name, const ls_stress_option *option,
                     ls_stress_why *why)
{
    const lua_Integer count = (lua_Integer)lua_rawlen(L, -1);
    for (lua_Integer i = 1; i <= count; i++) {
        lua_rawgeti(L, -1, i);
        const char *text = text_of(o, L);
        lua_pop(L, 1);
        if (text == NULL) return invalid(why, name, "a list of strings");
        if (ls_stress_options_set(o, option, name, text, why) < 0) return LS_EINVAL;
    }
    return LS_OK;
}

static int set_headers(ls_stress_options *o, lua_State *L, ls_stress_why *why)
{
    const ls_stress_option *header = find_by_name("header");
    lua_pushnil(L);
    while (lua_next(L, -2) != 0) {
        const char *value = text_of(o, L), *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : NULL;
        char line[4096];
        if (name == NULL || value == NULL) return invalid(why, "headers", "a table of names and strings");
        const int n = snprintf(line, sizeof line, "%s: %s", name, value);
        const char *kept = n < (int)sizeof line ? ls_stress_options_keep(o, line, (size_t)n) : NULL;
        if (kept == NULL) return invalid(why, "headers", "lines of less than 4096 bytes");
        if (ls_stress_options_set(o, header, "headers", kept, why) < 0) return LS_EINVAL;
        lua_pop(L, 1);
    }
    return LS_OK;
}

/* { status = "2xx", length = 13, crc32 = "...", body = "file" } */
static int set_expect(ls_stress_options *o, lua_State *L, ls_stress_why *why)
{
    lua_pushnil(L);
    while (lua_next(L, -2) != 0) {
        char name[64];
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
        (void)snprintf(name, sizeof name, "expect_%s", key);
        const ls_stress_option *option = find_by_key(name);
        const char *value = text_of(o, L);
        if (option == NULL || value == NULL)
            return invalid(why, "expect", "a table of status, length, crc32 and body");
        if (ls_stress_options_set(o, option, name, value, why) < 0) return LS_EINVAL;
        lua_pop(L, 1);
    }
    return LS_OK;
}

/* { { "10s", rate = 1000 }, { duration = 60, connections = 100 } } */
static int set_stages(ls_stress_options *o, lua_State *L, ls_stress_why *why)
{
    static const char right[] = "a list such as { { duration = \"10s\", rate = 1000 }, ... }, or with connections";
    char all[LS_STRESS_STAGES_MAX * 64] = "";
    size_t at = 0;
    const lua_Integer count = (lua_Integer)lua_rawlen(L, -1);
    for (lua_Integer i = 1; i <= count; i++) {
        if (lua_rawgeti(L, -1, i) != LUA_TTABLE) return invalid(why, "stages", right);
        if (lua_getfield(L, -1, "duration") == LUA_TNIL) lua_pop(L, 1), lua_rawgeti(L, -1, 1);
        const char *duration = text_of(o, L);
        lua_pop(L, 1);
        const bool is_rate = lua_getfield(L, -1, "rate") != LUA_TNIL;
        if (!is_rate) lua_pop(L, 1), lua_getfield(L, -1, "connections");
        const char *value = text_of(o, L);
        lua_pop(L, 2);
        if (duration == NULL || value == NULL || at + strlen(duration) + strlen(value) + 4 > sizeof all)
            return invalid(why, "stages", right);
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s:%s%s", at > 0 ? "," : "", duration, value,
                               is_rate ? "" : "c");
    }
    const char *kept = ls_stress_options_keep(o, all, at);
    return kept == NULL ? invalid(why, "stages", right)
                        : ls_stress_options_set(o, find_by_name("stages"), "stages", kept, why);
}

static int set_table(ls_stress_options *o, lua_State *L, const char *key, ls_stress_why *why)
{
    if (strcmp(key, "headers") == 0) return set_headers(o, L, why);
    if (strcmp(key, "expect") == 0) return set_expect(o, L, why);
    if (strcmp(key, "stages") == 0) return set_stages(o, L, why);
    return each_text(o, L, key, find_by_name("threshold"), why);
}

/* The pair at -2, -1. */
static int set_pair(ls_stress_options *o, lua_State *L, const char *path, ls_stress_why *why)
{
    if (lua_type(L, -2) != LUA_TSTRING) return invalid(why, path, "a script whose table has only string keys");
    const char *key = lua_tostring(L, -2);
    const ls_stress_option *option = find_by_key(key);
    if (is_one_of(key, hooks, sizeof hooks / sizeof hooks[0])) return LS_OK;
    if (lua_istable(L, -1) && is_one_of(key, tables, sizeof tables / sizeof tables[0])) {
        /* Stages of the command line replace those of the script; its headers and thresholds are added to them. */
        if (option != NULL && (o->given & UINT64_C(1) << (option - ls_stress_options_known)) != 0) return LS_OK;
        return set_table(o, L, key, why);
    }
    if (option == NULL) {
        const char *near = nearest_key(key);
        ls_stress_why_set(why, "%s: unknown option \"%s\"%s%s%s", path, key, near != NULL ? "; did you mean \"" : "",
                          near != NULL ? near : "", near != NULL ? "\"?" : "");
        return LS_EINVAL;
    }
    if ((o->given & UINT64_C(1) << (option - ls_stress_options_known)) != 0) return LS_OK;
    if (strcmp(key, "target") == 0 && o->url != NULL) return LS_OK;
    const char *text = text_of(o, L);
    if (text == NULL) {
        ls_stress_why_set(why, "%s: %s is a %s; it must be %s", path, key, luaL_typename(L, -1), option->right);
        return LS_EINVAL;
    }
    return ls_stress_options_set(o, option, key, text, why);
}

static bool has_function(lua_State *L, int index, const char *name)
{
    const bool has = lua_getfield(L, index, name) == LUA_TFUNCTION;
    lua_pop(L, 1);
    return has;
}

int ls_stress_options_table(ls_stress_options *o, lua_State *L, int index, char *text, size_t text_bytes)
{
    ls_stress_why why = {text, text_bytes};
    const int top = lua_gettop(L);
    int err = LS_OK;
    lua_pushvalue(L, index);
    lua_pushnil(L);
    while (err == LS_OK && lua_next(L, -2) != 0) {
        err = set_pair(o, L, o->plan.script_path, &why);
        if (err == LS_OK) lua_pop(L, 1);
    }
    lua_settop(L, top);
    if (has_function(L, index, "scenario"))
        o->plan.mode = LS_STRESS_PLAN_SCENARIO;
    else if (has_function(L, index, "request") || has_function(L, index, "response"))
        o->plan.mode = LS_STRESS_PLAN_SCRIPT;
    return err;
}
