/* res_file.c - res:file: a file, or a part of it, as the response. file_serve.c finds the file, file_response.c answers
 * the request with it. */
#include <string.h>

#include "base/err.h"
#include "codec/http_disposition.h"
#include "codec/http_text.h"
#include "codec/http_type.h"
#include "script/bind/bind.h"
#include "script/bind/bind_aux.h"
#include "script/bind/files/file_serve.h"
#include "script/bind/http/res.h"
#include "script/shared/copy.h"

enum { RES = 1, PATH, OPTIONS }; /* stack indices */

#define FILE_NAME_EXPECTED "the name of a file in UTF-8, at most %d bytes without / and \\, such as \"report.pdf\""

#define MAX_AGE_MOST INT64_C(2147483648) /* RFC 9111 1.2.2: greater values mean this one */

static void check_unsent(lua_State *L, const ls_request *r) /* another task may respond while this one waits */
{
    if (r->x->response != LS_RESPONSE_NONE || r->out != NULL)
        luaL_error(L, "the head of the response was sent already");
}

/* ---- the options ------------------------------------------------------------------------------------------------ */

static const char *const options[] = {"type", "offset", "length", "download", "max_age", "etag", NULL};

static lua_Integer number_option(lua_State *L, const char *name, lua_Integer most)
{
    int whole;
    const lua_Integer n = lua_tointegerx(L, -1, &whole);
    if (lua_type(L, -1) != LUA_TNUMBER || !whole || n < 0 || n > most)
        luaL_error(L, "res:file: %s must be a whole number of %s, 0 or more; got %s", name,
                   strcmp(name, "max_age") == 0 ? "seconds" : "bytes", luaL_tolstring(L, -1, NULL));
    return n;
}

static void check_option(lua_State *L, const char *name)
{
    char line[LS_DISPOSITION_BYTES];
    size_t len;
    if (strcmp(name, "type") == 0) {
        if (lua_type(L, -1) != LUA_TSTRING || !ls_is_field_value(lua_tostring(L, -1), lua_rawlen(L, -1)))
            luaL_error(L, "res:file: type must be a media type, such as \"text/plain\"");
    } else if (strcmp(name, "download") == 0) {
        const bool text = lua_type(L, -1) == LUA_TSTRING;
        const char *file = text ? lua_tolstring(L, -1, &len) : NULL;
        if (!text || ls_disposition(file, len, line) == 0)
            luaL_error(L, "res:file: download must be " FILE_NAME_EXPECTED, LS_DISPOSITION_NAME_MAX);
    } else if (strcmp(name, "etag") == 0) {
        if (lua_type(L, -1) != LUA_TBOOLEAN) luaL_error(L, "res:file: etag must be true or false");
    } else if (strcmp(name, "max_age") == 0) {
        (void)number_option(L, name, MAX_AGE_MOST);
    } else {
        (void)number_option(L, name, LUA_MAXINTEGER);
    }
}

/* Raise "unknown option"; usage.lua finds the nearest name and the line of the caller. */
static void unknown_option(lua_State *L, int key)
{
    lua_newtable(L);
    for (const char *const *name = options; *name != NULL; name++) {
        lua_pushboolean(L, 1);
        lua_setfield(L, -2, *name);
    }
    const int known = lua_gettop(L);
    ls_push_function(L, "luaserve.usage", "suggest");
    lua_pushvalue(L, key);
    lua_pushvalue(L, known);
    lua_call(L, 2, 1);
    const char *near = lua_tostring(L, -1);
    luaL_error(L, "res:file: unknown option '%s'%s", luaL_tolstring(L, key, NULL), near);
}

static void check_options(lua_State *L)
{
    if (lua_isnil(L, OPTIONS)) return;
    luaL_checktype(L, OPTIONS, LUA_TTABLE);
    ls_copy_open(L, OPTIONS);
    lua_pushnil(L);
    while (lua_next(L, OPTIONS) != 0) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        const char *const *name = options;
        while (*name != NULL && strcmp(*name, key) != 0) name++;
        if (*name == NULL) unknown_option(L, lua_gettop(L) - 1);
        check_option(L, key);
        lua_pop(L, 1);
    }
}

/* Push the option; false: it is not set, and nothing is pushed. */
static bool option(lua_State *L, const char *name)
{
    if (lua_type(L, OPTIONS) != LUA_TTABLE) return false;
    lua_pushstring(L, name);
    if (lua_rawget(L, OPTIONS) != LUA_TNIL) return true;
    lua_pop(L, 1);
    return false;
}

static int set_header(ls_request *r, const char *name, const char *value, size_t len)
{
    return ls_exchange_header(r->state->ctx, r->x, name, strlen(name), value, len, true);
}

typedef struct file_options {
    bool part, without_tag;
    uint64_t offset, length;
    char lines[64];
    size_t lines_len;
} file_options;

/* Read the checked options, and set the header lines that they name. */
static int apply_options(lua_State *L, ls_request *r, file_options *out)
{
    int err = LS_OK;
    *out = (file_options){.length = UINT64_MAX};
    if (option(L, "type")) {
        size_t len;
        const char *type = lua_tolstring(L, -1, &len);
        err = set_header(r, "Content-Type", type, len);
        lua_pop(L, 1);
    }
    if (err == LS_OK && option(L, "download")) {
        char value[LS_DISPOSITION_BYTES];
        size_t len;
        const char *name = lua_tolstring(L, -1, &len);
        err = set_header(r, "Content-Disposition", value, ls_disposition(name, len, value));
        lua_pop(L, 1);
    }
    if (option(L, "max_age")) {
        const lua_Integer age = lua_tointeger(L, -1);
        out->lines_len = age == 0 ? (size_t)snprintf(out->lines, sizeof out->lines, "Cache-Control: no-cache\r\n")
                                  : (size_t)snprintf(out->lines, sizeof out->lines, "Cache-Control: max-age=%lld\r\n",
                                                     (long long)age);
        lua_pop(L, 1);
    }
    if (option(L, "etag")) {
        out->without_tag = !lua_toboolean(L, -1);
        lua_pop(L, 1);
    }
    if (option(L, "offset")) {
        out->part = true;
        out->offset = (uint64_t)lua_tointeger(L, -1);
        lua_pop(L, 1);
    }
    if (option(L, "length")) {
        out->part = true;
        out->length = (uint64_t)lua_tointeger(L, -1);
        lua_pop(L, 1);
    }
    return err;
}

/* ---- the response ----------------------------------------------------------------------------------------------- */

/* Takes the reference to the entry. */
static int respond(lua_State *L, ls_request *r, ls_cached_file *entry)
{
    file_options o;
    int err = apply_options(L, r, &o);
    const uint64_t bytes = entry->info.bytes;
    ls_file_answer answer = {.entry = entry,
                             .type = entry->type,
                             .without_tag = o.without_tag,
                             .part = o.part,
                             .lines = o.lines,
                             .lines_len = o.lines_len};
    if (o.part) { /* what exceeds the file is cut off */
        answer.from = o.offset < bytes ? o.offset : bytes;
        answer.bytes = o.length < bytes - answer.from ? o.length : bytes - answer.from;
    }
    if (err == LS_OK) err = ls_file_describe(r, &answer);
    ls_cached_file_drop(entry);
    if (err == LS_ELIMIT || err == LS_ENOMEM) return luaL_error(L, "res:file: %s", ls_err_text(err));
    if (err < 0) return ls_push_failure(L, err);
    lua_pushboolean(L, 1);
    return 1;
}

static int found(lua_State *L, ls_serve *s, ls_cached_file *entry, int err)
{
    ls_request *r = ls_request_of_res(L, RES);
    (void)s;
    if (entry != NULL && (err < 0 || entry->missing)) {
        ls_cached_file_drop(entry);
        entry = NULL;
    }
    if (entry == NULL) {
        if (r != NULL) r->no_file = err == LS_ENOENT ? 404 : 500;
        return ls_push_failure(L, err);
    }
    if (r == NULL || r->x->error != 0 || r->x->response != LS_RESPONSE_NONE || r->out != NULL) {
        ls_cached_file_drop(entry);
        r = ls_request_check_res(L, RES); /* raises if the request has ended */
        check_unsent(L, r);
        return ls_push_failure(L, r->x->error);
    }
    return respond(L, r, entry);
}

/* res:file(path [, options: FileOptions]) -> true | nil, message, code
 * Makes a file the response. Conditional requests and ranges are answered.
 * options is a FileOptions: options of res:file.
 * options.type: string - media type; default: by the extension
 * options.offset: integer - first byte to send; default 0
 * options.length: integer - number of bytes; default: to the end
 * options.download: string - name of the file for a browser, which then saves it
 * options.max_age: integer - seconds for which a cache may use the response
 * options.etag: boolean - false: no ETag */
static int res_file(lua_State *L)
{
    ls_serve s;
    size_t len;
    ls_request *r = ls_request_check_res(L, RES);
    const char *path = luaL_checklstring(L, PATH, &len);
    luaL_argcheck(L, strlen(path) == len, PATH, "path contains NUL");
    ls_check_arguments(L, OPTIONS, "res:file(path, options)");
    check_unsent(L, r);
    lua_settop(L, OPTIONS);
    lua_tostring(L, PATH); /* converts a number to a string in place */
    path = ls_push_site_path(L, PATH);
    lua_replace(L, PATH);
    check_options(L);
    len = strlen(path);
    if (len >= sizeof s.path) {
        r->no_file = 404;
        return ls_push_failure(L, LS_ELIMIT);
    }
    ls_serve_init(&s, found, NULL, 0);
    memcpy(s.path, path, len + 1);
    s.path_len = len;
    return ls_serve_begin(L, &s);
}

/* res:attachment(name: string) -> res
 * Has browsers save the body as a file of this name. The extension gives the Content-Type unless another one was set. */
static int res_attachment(lua_State *L)
{
    char value[LS_DISPOSITION_BYTES];
    size_t len;
    ls_request *r = ls_res_check_open(L);
    const char *name = luaL_checklstring(L, 2, &len), *dot = strrchr(name, '.');
    ls_check_arguments(L, 2, "res:attachment(name)");
    const size_t value_len = ls_disposition(name, len, value);
    if (value_len == 0)
        return luaL_error(L, "res:attachment: name must be " FILE_NAME_EXPECTED, LS_DISPOSITION_NAME_MAX);
    const char *type = dot != NULL ? ls_http_type_of_extension(dot + 1) : NULL;
    int err = set_header(r, "Content-Disposition", value, value_len);
    if (err == LS_OK && type != NULL && !ls_exchange_has_field(r->x, "content-type", 12))
        err = set_header(r, "Content-Type", type, strlen(type));
    if (err < 0) return luaL_error(L, "res:attachment: %s", ls_err_text(err));
    lua_settop(L, 1);
    return 1;
}

static void file_define(lua_State *L, ls_state *state)
{
    ls_response_method(L, state, "file", res_file);
    ls_response_method(L, state, "attachment", res_attachment);
}

const ls_module ls_file_module = {.name = "file", .define = file_define};
