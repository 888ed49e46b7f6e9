/* res_file.c - res:file: a file, or a part of it, as the response. file_serve.c finds the file, file_response.c
 * answers the request with it. */
#include <string.h>

#include "base/err.h"
#include "codec/http_text.h"
#include "codec/http_type.h"
#include "script/bind/bind_aux.h"
#include "script/bind/files/file_serve.h"
#include "script/bind/http/respond.h"
#include "script/bind/option.h"

enum { RES = 1, PATH, OPTIONS }; /* stack indices */
enum { LINES_BYTES = 64 };

#define NOT_GIVEN UINT64_MAX

#define MAX_AGE_MOST INT64_C(2147483648) /* RFC 9111 1.2.2: greater values mean this one */

/* Replace the name of a file on top of the stack by the value of Content-Disposition for it. `what` is for the message
 * about a wrong name. */
static const char *push_disposition(lua_State *L, const char *what)
{
    ls_push_function(L, "luaserve.disposition", "value");
    lua_pushstring(L, what);
    lua_pushvalue(L, -3);
    lua_call(L, 2, 1);
    lua_replace(L, -2);
    return lua_tostring(L, -1);
}

/* ---- the options ------------------------------------------------------------------------------------------------ */

typedef struct file_options {
    const char *root;            /* until the path is joined */
    const char *type, *download; /* download: the field; NULL: not given; else in the user values */
    uint64_t offset, length;     /* NOT_GIVEN: the whole file, from its beginning, to its end */
    int64_t max_age;             /* in seconds; negative: not given */
    bool etag;
} file_options;

static const file_options no_options = {.offset = NOT_GIVEN, .length = NOT_GIVEN, .max_age = -1, .etag = true};

/* Whether the path has a segment "..". */
static bool goes_up(const char *path)
{
    for (const char *at = path; (at = strstr(at, "..")) != NULL; at += 2)
        if ((at == path || strchr("/\\", at[-1]) != NULL) && strchr("/\\", at[2]) != NULL)
            return true; /* or the end */
    return false;
}

/* Replace the table at OPTIONS by what it says: it may change while the task waits. -> the root, or NULL. */
static const char *take_options(lua_State *L)
{
    static const ls_option names[] = {LS_OPTION(file_options, root),
                                      LS_OPTION(file_options, type),
                                      LS_OPTION_MAX(file_options, offset, INT64_MAX),
                                      LS_OPTION_MAX(file_options, length, INT64_MAX),
                                      LS_OPTION(file_options, download),
                                      LS_OPTION_MAX(file_options, max_age, MAX_AGE_MOST),
                                      LS_OPTION(file_options, etag),
                                      LS_OPTIONS_END};
    if (lua_isnil(L, OPTIONS)) return NULL;
    file_options *o = lua_newuserdatauv(L, sizeof *o, 3);
    *o = no_options;
    ls_options_take(L, OPTIONS, "res:file", names, o);
    if (o->type != NULL && !ls_is_field_value(o->type, strlen(o->type)))
        luaL_error(L, "res:file: type must be a media type, such as \"text/plain\"");
    o->type = lua_pushstring(L, o->type);
    lua_setiuservalue(L, -2, 1);
    if (lua_pushstring(L, o->download) != NULL) o->download = push_disposition(L, "res:file: download");
    lua_setiuservalue(L, -2, 2);
    if (lua_pushstring(L, o->root) != NULL) o->root = lua_tostring(L, -1);
    lua_setiuservalue(L, -2, 3);
    lua_replace(L, OPTIONS);
    return o->root;
}

/* Replace the path by one below the root, which may be NULL. 0: it is; else the number of results, a failure. */
static int join_root(lua_State *L, const char *root)
{
    if (root == NULL && goes_up(lua_tostring(L, PATH)))
        luaL_error(
            L,
            "res:file: the path has a segment \"..\": write res:file(path, { root = \"files\" }), for a path that a "
            "client sent, and for a file in a directory above that of the site, which is then the root");
    if (root == NULL) return 0;
    ls_push_function(L, "luaserve.core", "safe_join");
    lua_pushstring(L, root);
    lua_pushvalue(L, PATH);
    lua_call(L, 2, 3);
    if (lua_isnil(L, -3)) return 3;
    lua_pop(L, 2);
    lua_replace(L, PATH);
    return 0;
}

static int set_header(ls_request *r, const char *name, const char *value, size_t len)
{
    return ls_exchange_header(r->state->ctx, r->x, name, strlen(name), value, len, true);
}

/* Set the fields that the options name, and write the lines of the others to `lines`. */
static int apply_options(ls_request *r, const file_options *o, char lines[LINES_BYTES])
{
    int err = o->type != NULL ? set_header(r, "Content-Type", o->type, strlen(o->type)) : LS_OK;
    if (err == LS_OK && o->download != NULL)
        err = set_header(r, "Content-Disposition", o->download, strlen(o->download));
    lines[0] = '\0';
    if (o->max_age == 0)
        (void)snprintf(lines, LINES_BYTES, "Cache-Control: no-cache\r\n");
    else if (o->max_age > 0)
        (void)snprintf(lines, LINES_BYTES, "Cache-Control: max-age=%lld\r\n", (long long)o->max_age);
    return err;
}

/* ---- the response ----------------------------------------------------------------------------------------------- */

/* Takes the reference to the entry. */
static int respond(lua_State *L, ls_request *r, ls_cached_file *entry)
{
    const file_options *o = lua_isnil(L, OPTIONS) ? &no_options : lua_touserdata(L, OPTIONS);
    char lines[LINES_BYTES];
    int err = apply_options(r, o, lines);
    const uint64_t bytes = entry->info.bytes;
    ls_file_answer answer = {.entry = entry,
                             .type = entry->type,
                             .without_tag = !o->etag,
                             .part = o->offset != NOT_GIVEN || o->length != NOT_GIVEN,
                             .lines = lines,
                             .lines_len = strlen(lines)};
    answer.from = o->offset == NOT_GIVEN ? 0
                  : o->offset < bytes    ? o->offset
                                         : bytes; /* what exceeds the file is cut off */
    answer.bytes = o->length < bytes - answer.from ? o->length : bytes - answer.from;
    if (err == LS_OK) err = ls_file_describe(r, &answer);
    ls_cached_file_drop(entry);
    if (err == LS_ELIMIT || err == LS_ENOMEM) return luaL_error(L, "res:file: %s", ls_err_text(err));
    if (err < 0) return ls_push_failure(L, err);
    ls_request_note_call(L, r, "res:file");
    return ls_push_boolean(L, true);
}

static int found(lua_State *L, ls_serve *s, ls_cached_file *entry, int err)
{
    ls_request *r = ls_request_of_res(L, RES);
    if (entry != NULL && (err < 0 || entry->missing)) {
        ls_cached_file_drop(entry);
        entry = NULL;
    }
    if (entry == NULL) {
        if (r != NULL) r->no_file = err == LS_ENOENT ? 404 : 500;
        return ls_push_failure(L, err);
    }
    if (r == NULL || r->x->error != 0 || ls_request_has_begun(r)) {
        ls_cached_file_drop(entry);
        r = ls_res_check_open(L); /* raises if the request has ended, or another task has responded meanwhile */
        return ls_push_failure(L, r->x->error);
    }
    return respond(L, r, entry);
}

/* res:file(path [, options: FileOptions]) -> true | nil, message, code
 * Makes a file the response. Conditional requests and ranges are answered.
 * options is a FileOptions: options of res:file.
 * options.root: string - directory in which the file is, as for a path that a client sent
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
    ls_request *r = ls_res_check_open(L);
    const char *path = luaL_checklstring(L, PATH, &len);
    luaL_argcheck(L, strlen(path) == len, PATH, "path contains NUL");
    ls_request_check_undescribed(L, r);
    lua_settop(L, OPTIONS);
    lua_tostring(L, PATH); /* converts a number to a string in place */
    const int failed = join_root(L, take_options(L));
    if (failed != 0) {
        r->no_file = 404;
        return failed;
    }
    path = ls_push_site_path(L, PATH);
    lua_replace(L, PATH);
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
 * Has browsers save the body as a file of this name. The extension gives the Content-Type unless another one was
 * set. */
static int res_attachment(lua_State *L)
{
    ls_request *r = ls_res_check_open(L);
    const char *name = luaL_checkstring(L, 2), *dot = strrchr(name, '.');
    lua_pushvalue(L, 2);
    const char *value = push_disposition(L, "res:attachment: name");
    const char *type = dot != NULL ? ls_http_type_of_extension(dot + 1) : NULL;
    int err = set_header(r, "Content-Disposition", value, strlen(value));
    if (err == LS_OK && type != NULL && !ls_exchange_has_field(r->x, "content-type", 12))
        err = set_header(r, "Content-Type", type, strlen(type));
    if (err < 0) return luaL_error(L, "res:attachment: %s", ls_err_text(err));
    lua_settop(L, 1);
    return 1;
}

static void file_define(lua_State *L, ls_state *state)
{
    static const luaL_Reg methods[] = {
        {"res:file(path, options)", res_file}, {"res:attachment(name)", res_attachment}, {NULL, NULL}};
    ls_request_methods(L, ls_requests_of(state)->res_meta_ref, methods);
}

const ls_module ls_file_module = {.name = "file", .define = file_define};
