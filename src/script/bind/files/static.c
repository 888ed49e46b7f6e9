/* static.c - the core of app:static (lua/luaserve/static.lua): from the path of a request to a file below a folder.
 *
 *     path --> the file --> a sibling in an accepted coding, or the file itself
 *         \--> a folder --> a redirect to the path with a slash, its index, or a listing
 *         \--> none ------> the fallback page, or 404
 *
 * A path is refused as if nothing existed there: "..", encoded slashes, hidden names, what ls_http_path_wrong()
 * refuses. Links that lead out of the folder are refused by the port when it opens the file. */
#include <string.h>

#include "base/err.h"
#include "codec/http_path.h"
#include "codec/http_text.h"
#include "port/file/image.h"
#include "script/bind/bind_aux.h"
#include "script/bind/files/file_serve.h"
#include "script/bind/http/respond.h"
#include "script/bind/option.h"
#include "script/core/lua/udata.h"

enum { CONFIG = 1, RES, SKIP };                /* stack indices of core.static_get */
enum { STEP_FILE, STEP_FALLBACK, STEP_CODED }; /* ls_serve.step; STEP_CODED + n: the nth coding */
enum { NAME_ROOM = 256, LINES_ROOM = LS_FILE_LINES_MAX / 2 };

static const ls_object_type static_type = {.name = "static"};
enum { SIBLINGS = 2 };
static const enum ls_coding siblings[SIBLINGS] = {LS_CODING_BR,
                                                  LS_CODING_GZIP}; /* the first of two equals is served */
static const char *const coding_suffixes[LS_CODINGS] = {[LS_CODING_BR] = ".br", [LS_CODING_GZIP] = ".gz"};
static const char *const coding_lines[LS_CODINGS] = {
    [LS_CODING_BR] = "Content-Encoding: br\r\n", [LS_CODING_GZIP] = "Content-Encoding: gzip\r\n"};

typedef struct static_config { /* user value 1: the function `headers`, or nil */
    const void *tag;
    bool dotfiles, list, precompressed, has_headers;
    bool packed; /* precompressed by default, as the folder is inside the program, where it is known which files are */
    char index[NAME_ROOM], fallback[NAME_ROOM]; /* "": none */
    char immutable[NAME_ROOM];                  /* prefix of request paths */
    char lines[LINES_ROOM];                     /* Cache-Control */
    size_t folder_len;
    char folder[]; /* without a slash at the end */
} static_config;

#define OPTION(field) LS_OPTION(static_config, field)
static const ls_option options[] = {OPTION(index), OPTION(fallback),      OPTION(immutable), OPTION(dotfiles),
                                    OPTION(list),  OPTION(precompressed), OPTION(lines),     LS_OPTIONS_END};

/* core.static(folder, options) -> object for core.static_get. Options: index, fallback, immutable, lines (of the
 * response), dotfiles, list, precompressed, headers (function). ENOENT: there is no such folder: nil, message,
 * code; a second result, false: the folder has no file `fallback`. */
static int core_static(lua_State *L)
{
    ls_shared_file *file;
    size_t len;
    (void)luaL_checkstring(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    const char *folder = ls_push_site_path(L, 1);
    len = strlen(folder);
    const int err = ls_shared_file_open(folder, &file);
    if (err == LS_OK) ls_shared_file_drop(file);
    if (err != LS_EISDIR) return ls_push_failure(L, err == LS_OK || err == LS_ENOTSUP ? LS_ENOENT : err);
    static_config *config = ls_object_push(L, sizeof *config + len + 1, 1, &static_type);
    while (len > 1 && folder[len - 1] == '/') len--;
    memcpy(config->folder, folder, len);
    config->folder_len = len;
    ls_options_read(L, 2, options, config);
    config->packed = lua_getfield(L, 2, "precompressed") == LUA_TNIL && ls_image_has(folder);
    config->precompressed |= config->packed;
    lua_pop(L, 1);
    config->has_headers = lua_getfield(L, 2, "headers") == LUA_TFUNCTION;
    lua_setiuservalue(L, -2, 1);
    if (config->fallback[0] == '\0') return 1;
    const int none = ls_shared_file_open(lua_pushfstring(L, "%s/%s", folder, config->fallback), &file);
    lua_pop(L, 1);
    if (none == LS_OK) ls_shared_file_drop(file);
    lua_pushboolean(L, none == LS_OK);
    return 2;
}

static const static_config *config_at(lua_State *L, int index)
{
    return ls_udata_check(L, index, &static_type, sizeof(static_config), "static");
}

/* ---- the path --------------------------------------------------------------------------------------------------- */

/* The part of the request's path after the first `skip` segments; NULL: the path ends with them. */
static const char *path_after(const ls_exchange *x, lua_Integer skip, const char **end)
{
    const char *at = x->bytes + x->head.path.at;
    *end = at + x->head.path.len;
    for (; skip > 0 && at < *end; skip--) {
        const char *slash = memchr(at + 1, '/', (size_t)(*end - at - 1));
        at = slash != NULL ? slash : *end;
    }
    if (at == *end) return x->head.path_is_root ? at : NULL;
    return at + 1; /* after the slash */
}

static bool has_hidden_name(const char *path, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (path[i] == '.' && (i == 0 || path[i - 1] == '/')) return true;
    return false;
}

static size_t count_of(const char *bytes, size_t len, char c)
{
    size_t count = 0;
    for (size_t i = 0; i < len; i++) count += bytes[i] == c;
    return count;
}

/* Append the decoded path to the folder in s->path. A path that ends in a slash, or is empty, gets `index`. false: it
 * is refused. */
static bool set_path(ls_serve *s, const static_config *config, const char *from, const char *end, const char *index)
{
    const size_t raw = (size_t)(end - from), index_len = strlen(index);
    if (config->folder_len + 1 + raw + index_len >= sizeof s->path) return false;
    memcpy(s->path, config->folder, config->folder_len);
    char *to = s->path + config->folder_len;
    *to++ = '/';
    const long len = ls_percent_decode(from, raw, false, to);
    if (len < 0) return false;
    const size_t decoded = (size_t)len, is_folder = decoded > 0 && to[decoded - 1] == '/';
    if (decoded != raw && count_of(to, decoded, '/') != count_of(from, raw, '/')) return false;
    if (decoded > 0 && ls_http_path_wrong(to, decoded - is_folder) != NULL) return false;
    if (!config->dotfiles && has_hidden_name(to, decoded)) return false;
    to += decoded;
    if (decoded == 0 || is_folder) {
        memcpy(to, index, index_len);
        to += index_len;
    }
    *to = '\0';
    s->path_len = (size_t)(to - s->path);
    return true;
}

/* ---- the response ----------------------------------------------------------------------------------------------- */

typedef struct headers_call {
    ls_request *request;
    const char *path;
} headers_call;

/* (config, light userdata headers_call): set the lines that the function `headers` returns. */
static int call_headers(lua_State *L)
{
    const headers_call *call = lua_touserdata(L, 2);
    lua_getiuservalue(L, 1, 1);
    lua_pushstring(L, call->path);
    lua_call(L, 1, 1);
    if (lua_isnil(L, 3)) return 0;
    if (lua_type(L, 3) != LUA_TTABLE)
        return luaL_error(L, "app:static: the function headers must return a table of header lines, or nil; got a %s",
                          luaL_typename(L, 3));
    ls_request_set_headers(L, call->request, 3);
    return 0;
}

static char *put(char *to, const char *text)
{
    const size_t len = strlen(text);
    memcpy(to, text, len);
    return to + len;
}

/* Whether the file is one that never changes. A fallback is not: a deployment may yet bring the file that is
 * missing. */
static bool is_immutable(const static_config *config, const ls_serve *s, const ls_exchange *x)
{
    const size_t prefix = strlen(config->immutable);
    return prefix > 0 && !s->fallback && x->head.path.len >= prefix &&
           memcmp(x->bytes + x->head.path.at, config->immutable, prefix) == 0;
}

/* Whether the file may have forms in content codings. */
static bool is_coded(const static_config *config, const ls_cached_file *file)
{
    return config->precompressed && (!config->packed || file->info.coded || !file->fixed);
}

static size_t put_lines(const static_config *config, const ls_serve *s, const ls_exchange *x, int coding, char *to)
{
    static const char immutable[] = "Cache-Control: public, max-age=31536000, immutable\r\n";
    char *const from = to;
    to = put(to, is_immutable(config, s, x) ? immutable : config->lines);
    if (is_coded(config, s->file)) to = put(to, "Vary: Accept-Encoding\r\n");
    if (s->fallback) to = put(to, "Vary: Accept\r\n"); /* wants_page */
    if (coding >= 0) to = put(to, coding_lines[coding]);
    return (size_t)(to - from);
}

/* Respond with s->file, in the coding of `encoded` unless that is NULL. Takes the reference to `encoded`. */
static int respond(lua_State *L, ls_serve *s, const static_config *config, ls_cached_file *encoded, int coding)
{
    ls_request *r = ls_request_of_res(L, RES);
    const ls_cached_file *file = s->file;
    char lines[LS_FILE_LINES_MAX];
    int status = LUA_OK, err = LS_OK;
    if (r != NULL && config->has_headers && r->x->response == LS_RESPONSE_NONE) {
        headers_call call = {r, file->path + config->folder_len + 1};
        lua_pushcfunction(L, call_headers);
        lua_pushvalue(L, CONFIG);
        lua_pushlightuserdata(L, &call);
        status = lua_pcall(L, 2, 0, 0);
    }
    if (status == LUA_OK && r != NULL && !ls_request_has_begun(r)) {
        const ls_file_answer answer = {.entry = encoded != NULL ? encoded : s->file,
                                       .type = file->type,
                                       .encoded = coding >= 0,
                                       .lines = lines,
                                       .lines_len = put_lines(config, s, r->x, coding, lines)};
        err = r->chain.runs ? ls_file_describe(r, &answer) : ls_file_respond(r, &answer);
    }
    if (encoded != NULL) ls_cached_file_drop(encoded);
    if (s->file != NULL) ls_cached_file_drop(s->file);
    s->file = NULL;
    if (status != LUA_OK) return lua_error(L);
    if (r == NULL) (void)ls_request_check_res(L, RES); /* raises */
    if (err == LS_ELIMIT || err == LS_ENOMEM) return luaL_error(L, "app:static: %s", ls_err_text(err));
    return 0;
}

/* The path is a folder: the client asks again with a slash, so that relative links in its pages are right. Browsers
 * take a backslash for a slash (WHATWG URL), and so "/\host/" for another host. */
static int redirect(lua_State *L, const ls_request *r)
{
    const ls_exchange *x = r->x;
    const char *const path = x->bytes + x->head.path.at;
    luaL_Buffer text;
    luaL_buffinit(L, &text);
    for (size_t i = 0; i < x->head.path.len; i++) {
        if (path[i] == '\\')
            luaL_addstring(&text, "%5C");
        else
            luaL_addchar(&text, path[i]);
    }
    luaL_addchar(&text, '/');
    if (x->head.has_query) {
        luaL_addchar(&text, '?');
        luaL_addlstring(&text, x->bytes + x->head.query.at, x->head.query.len);
    }
    luaL_pushresult(&text);
    lua_pushinteger(L, 308);
    lua_insert(L, -2);
    return 2;
}

static bool ends_in_slash(const ls_exchange *x)
{
    const ls_span *path = &x->head.path;
    return path->len == 0 || x->bytes[path->at + path->len - 1] == '/';
}

/* Whether a missing path may be a page of an application in the browser: the client asks for a page by name, or for
 * anything and the last name has no extension. */
static bool wants_page(const ls_exchange *x)
{
    const char *at = x->bytes + x->head.path.at, *end = at + x->head.path.len, *name = end;
    switch (ls_accept_page(&x->head, x->bytes)) {
    case LS_PAGE_NAMED: return true;
    case LS_PAGE_REFUSED: return false;
    default: break;
    }
    while (name > at && name[-1] != '/') name--;
    return memchr(name, '.', (size_t)(end - name)) == NULL;
}

/* There is no file. Results for static.lua: "list" and the path below the folder, or 404. */
static int missing(lua_State *L, ls_serve *s, const static_config *config)
{
    const ls_request *r = ls_request_check_res(L, RES);
    const size_t fallback_len = strlen(config->fallback);
    if (s->step == STEP_FILE && config->list && ends_in_slash(r->x)) {
        lua_pushliteral(L, "list");
        lua_pushlstring(L, s->path + config->folder_len, s->path_len - config->folder_len - strlen(config->index));
        return 2;
    }
    if (s->step == STEP_FILE && fallback_len > 0 && wants_page(r->x) &&
        config->folder_len + 1 + fallback_len < sizeof s->path) {
        char *to = s->path + config->folder_len;
        *to++ = '/';
        memcpy(to, config->fallback, fallback_len + 1);
        s->path_len = config->folder_len + 1 + fallback_len;
        s->fallback = true;
        s->step = STEP_FALLBACK;
        return LS_SERVE_NEXT;
    }
    return ls_push_integer(L, 404);
}

/* Look for the next accepted sibling of s->file, or respond with the file itself. */
static int next_coding(lua_State *L, ls_serve *s, const static_config *config)
{
    if (config->packed && s->step < STEP_CODED && is_coded(config, s->file)) {
        const ls_request *r = ls_request_of_res(L, RES);
        if (r != NULL) s->coding_count = ls_accept_codings(&r->x->head, r->x->bytes, siblings, SIBLINGS, s->codings);
    }
    if (s->coding < s->coding_count && s->file->path_len + 3 < sizeof s->path) {
        memcpy(s->path, s->file->path, s->file->path_len);
        memcpy(s->path + s->file->path_len, coding_suffixes[s->codings[s->coding]], 4);
        s->path_len = s->file->path_len + 3;
        s->step = STEP_CODED + s->coding++;
        s->keep_missing = true;
        return LS_SERVE_NEXT;
    }
    return respond(L, s, config, NULL, -1);
}

static int found(lua_State *L, ls_serve *s, ls_cached_file *entry, int err)
{
    const static_config *config = lua_touserdata(L, CONFIG);
    if (entry != NULL && entry->missing) {
        ls_cached_file_drop(entry);
        entry = NULL;
        err = LS_ENOENT;
    }
    if (s->step >= STEP_CODED) {
        if (entry == NULL) return next_coding(L, s, config);
        return respond(L, s, config, entry, (int)s->codings[s->step - STEP_CODED]);
    }
    if (entry != NULL) {
        s->file = entry;
        return next_coding(L, s, config);
    }
    const ls_request *r = ls_request_check_res(L, RES);
    switch (err) {
    case LS_EISDIR:
        if (s->step == STEP_FILE && !ends_in_slash(r->x)) return redirect(L, r);
        return missing(L, s, config);
    case LS_ENOENT:
    case LS_EACCES:  /* also a link that leads out of the folder */
    case LS_EINVAL:  /* a name that the system refuses */
    case LS_ENOTSUP: /* a device, a pipe or a socket */
    case LS_ELIMIT: return missing(L, s, config);
    default: return luaL_error(L, "app:static: cannot open '%s': %s", s->path, ls_err_text(err));
    }
}

/* core.static_get(object, res, skip) -> nothing: the response is sent; or 404; or 308, location; or "list", path below
 * the folder. `skip`: the number of segments of the request's path that are the prefix. The task may wait. */
static int core_static_get(lua_State *L)
{
    const static_config *config = config_at(L, CONFIG);
    const ls_request *r = ls_request_check_res(L, RES);
    const lua_Integer skip = luaL_checkinteger(L, SKIP);
    const char *end, *from = path_after(r->x, skip, &end);
    ls_serve s;
    lua_settop(L, SKIP);
    if (from == NULL) return redirect(L, r);
    ls_serve_init(&s, found, config->folder, config->folder_len);
    if (!set_path(&s, config, from, end, config->index)) return ls_push_integer(L, 404);
    if (config->precompressed && !config->packed) /* else next_coding knows whether the file has other forms */
        s.coding_count = ls_accept_codings(&r->x->head, r->x->bytes, siblings, SIBLINGS, s.codings);
    if (s.path[s.path_len - 1] == '/') { /* a folder without an index */
        const int count = missing(L, &s, config);
        if (count != LS_SERVE_NEXT) return count;
    }
    return ls_serve_begin(L, &s);
}

static const luaL_Reg functions[] = {{"static", core_static}, {"static_get", core_static_get}, {NULL, NULL}};

const ls_module ls_static_module = {.name = "static", .functions = functions};
