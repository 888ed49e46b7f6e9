/* lua_files.c - see lua_files.h. An entry is a file, by its path, or a module, by its name after MODULE. */
#include "script/core/lua/lua_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lauxlib.h>

#include "base/err.h"
#include "base/io/fopen.h"
#include "port/file/image.h"
#include "port/file/shared_file.h"
#include "script/core/lua/push.h"
#include "script/core/state.h"

#define MODULE "\1"

struct ls_lua_file {
    ls_lua_file *next;
    char *text; /* of a module: the path of its file */
    size_t bytes;
    char key[];
};

void ls_lua_files_free(ls_lua_files *files)
{
    for (ls_lua_file *file = files->first, *next; file != NULL; file = next) {
        next = file->next;
        free(file->text);
        free(file);
    }
    files->first = NULL;
}

/* ---- text -------------------------------------------------------------------------------------------------- */

/* As ls_lua_text_read, of a file inside the program. */
static int read_inside(const ls_image_file *inside, char **text, size_t *bytes)
{
    ls_shared_file *file;
    char *to = malloc((size_t)inside->bytes + 1);
    if (to == NULL || ls_shared_file_inside(inside, &file) < 0) {
        free(to);
        return LS_ENOMEM;
    }
    const int64_t n = ls_shared_file_read(file, to, (size_t)inside->bytes, 0);
    ls_shared_file_drop(file);
    if (n < 0) {
        free(to);
        errno = EIO;
        return LS_ENOENT;
    }
    *text = to;
    *bytes = (size_t)n;
    return LS_OK;
}

int ls_lua_text_read(const char *path, char **text, size_t *bytes, const char **what)
{
    size_t room = 16384, len = 0, got;
    ls_image_found found;
    ls_image_find(path, &found);
    *what = "read";
    if (found.place == LS_IMAGE_FILE) return read_inside(found.file, text, bytes);
    FILE *file = ls_fopen(found.path, "rb");
    *what = "open";
    if (file == NULL) return LS_ENOENT;
    char *to = malloc(room);
    while (to != NULL && (got = fread(to + len, 1, room - len, file)) > 0) {
        len += got;
        if (len < room) continue;
        char *grown = realloc(to, room *= 2);
        if (grown == NULL) free(to);
        to = grown;
    }
    *what = "read";
    int err = to == NULL ? LS_ENOMEM : ferror(file) != 0 ? LS_ENOENT : LS_OK;
    const int reason = errno;
    (void)fclose(file);
    if (err < 0) free(to);
    errno = reason;
    if (err < 0) return err;
    *text = to;
    *bytes = len;
    return LS_OK;
}

int ls_lua_text_load(lua_State *L, const char *text, size_t bytes, const char *chunk_name, const char *mode)
{
    static const char mark[] = "\xef\xbb\xbf";
    if (bytes >= sizeof mark - 1 && memcmp(text, mark, sizeof mark - 1) == 0) {
        text += sizeof mark - 1;
        bytes -= sizeof mark - 1;
    }
    if (bytes > 0 && text[0] == '#') {
        const char *end = memchr(text, '\n', bytes); /* kept, so that the lines keep their numbers */
        const size_t skipped = end != NULL ? (size_t)(end - text) : bytes;
        text += skipped;
        bytes -= skipped;
    }
    return luaL_loadbufferx(L, text, bytes, chunk_name, mode);
}

/* ---- kept files -------------------------------------------------------------------------------------------- */

static bool keeps(const ls_state *state)
{
    return state->loading && state->index == 0;
}

/* The entry, or NULL; not in the first state while it loads. */
static const ls_lua_file *find_kept(const ls_state *state, const char *key)
{
    const ls_lua_file *file = keeps(state) ? NULL : state->generation->lua_files.first;
    while (file != NULL && strcmp(file->key, key) != 0) file = file->next;
    return file;
}

/* In an additional state that loads: the entry, or NULL. */
static const ls_lua_file *find(const ls_state *state, const char *key)
{
    return state->loading && state->index > 0 ? find_kept(state, key) : NULL;
}

bool ls_lua_files_cached(lua_State *L, const char *path)
{
    return find(ls_state_of(L), path) != NULL;
}

/* Add an entry, which takes the text. Without memory the additional states read the file. */
static void keep(ls_state *state, const char *key, char *text, size_t bytes)
{
    const size_t key_bytes = strlen(key) + 1;
    ls_lua_file *file = text != NULL ? malloc(sizeof *file + key_bytes) : NULL;
    if (file == NULL) {
        free(text);
        return;
    }
    *file = (ls_lua_file){.next = state->generation->lua_files.first, .text = text, .bytes = bytes};
    memcpy(file->key, key, key_bytes);
    state->generation->lua_files.first = file;
}

static void keep_copy(ls_state *state, const char *key, const char *text, size_t bytes)
{
    if (!keeps(state)) return;
    char *copy = malloc(bytes + 1);
    if (copy != NULL) memcpy(copy, text, bytes + 1);
    keep(state, key, copy, bytes);
}

int ls_lua_files_kept_text(lua_State *L)
{
    const ls_lua_file *kept = find_kept(ls_state_of(L), luaL_checkstring(L, 1));
    if (kept == NULL) return 0;
    return ls_push_bytes(L, kept->text, kept->bytes);
}

int ls_lua_files_kept(lua_State *L)
{
    lua_newtable(L);
    for (const ls_lua_file *file = ls_state_of(L)->generation->lua_files.first; file != NULL; file = file->next) {
        const bool module = strncmp(file->key, MODULE, sizeof MODULE - 1) == 0;
        lua_pushstring(L, module ? file->key + sizeof MODULE - 1 : file->key);
        if (module)
            lua_pushlstring(L, file->text, file->bytes);
        else
            lua_pushboolean(L, 1);
        lua_rawset(L, -3);
    }
    return 1;
}

int ls_lua_files_keep_text(lua_State *L)
{
    size_t bytes;
    ls_state *state = ls_state_of(L);
    const char *key = luaL_checkstring(L, 1), *text = luaL_checklstring(L, 2, &bytes);
    keep_copy(state, key, text, bytes);
    return 0;
}

/* Push the function of the file, or a message. Returns a status of Lua. */
static int load(lua_State *L, const char *path, const char *mode)
{
    ls_state *state = ls_state_of(L);
    const ls_lua_file *kept = find(state, path);
    const char *name = lua_pushfstring(L, "@%s", path), *what;
    char *text;
    size_t bytes;
    int status;
    if (kept != NULL) {
        status = ls_lua_text_load(L, kept->text, kept->bytes, name, mode);
    } else if (ls_lua_text_read(path, &text, &bytes, &what) < 0) {
        lua_pushfstring(L, "cannot %s %s: %s", what, path, strerror(errno));
        status = LUA_ERRFILE;
    } else {
        status = ls_lua_text_load(L, text, bytes, name, mode);
        if (keeps(state))
            keep(state, path, text, bytes);
        else
            free(text);
    }
    lua_remove(L, -2); /* the name */
    return status;
}

/* ---- functions of Lua ---------------------------------------------------------------------------------------- */

/* Whether the function of the library does it: after the load, unless the program is packed, and for standard input. */
static bool is_ordinary(lua_State *L)
{
    return (!ls_state_of(L)->loading && ls_image_site() == NULL) || lua_type(L, 1) != LUA_TSTRING;
}

static int call_finished(lua_State *L, int status, lua_KContext before)
{
    return lua_gettop(L) - (int)before;
}

/* Call the function of the library, upvalue 1, with all arguments. */
static int call_ordinary(lua_State *L)
{
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_callk(L, lua_gettop(L) - 1, LUA_MULTRET, 0, call_finished); /* the file may wait */
    return call_finished(L, LUA_OK, 0);
}

static int lua_loadfile(lua_State *L)
{
    if (is_ordinary(L)) return call_ordinary(L);
    const char *mode = luaL_optstring(L, 2, NULL);
    const bool has_environment = !lua_isnone(L, 3);
    if (load(L, lua_tostring(L, 1), mode) != LUA_OK) {
        lua_pushnil(L);
        lua_insert(L, -2);
        return 2;
    }
    if (has_environment) {
        lua_pushvalue(L, 3);
        if (lua_setupvalue(L, -2, 1) == NULL) lua_pop(L, 1);
    }
    return 1;
}

static int lua_dofile(lua_State *L)
{
    if (is_ordinary(L)) return call_ordinary(L);
    lua_settop(L, 1);
    if (load(L, lua_tostring(L, 1), NULL) != LUA_OK) return lua_error(L);
    lua_callk(L, 0, LUA_MULTRET, 1, call_finished);
    return call_finished(L, LUA_OK, 1);
}

/* Set index 3, package.path, to the first path of the module in it that is inside the program or in the overlay. */
static bool push_path_inside(lua_State *L, const char *name)
{
    const char *at = lua_tostring(L, 3), *end;
    for (; at != NULL && *at != '\0'; at = *end != '\0' ? end + 1 : end) {
        end = at + strcspn(at, ";");
        lua_pushlstring(L, at, (size_t)(end - at));
        if (ls_image_has_file(luaL_gsub(L, lua_tostring(L, -1), "?", name))) {
            lua_replace(L, 3);
            return true;
        }
        lua_pop(L, 2);
    }
    return false;
}

/* Set index 3 to the path of the module; false: it is not found. The stack has 2 values. Upvalue 2: package; upvalue 3:
 * package.searchpath. */
static bool find_path(lua_State *L, const char *key)
{
    const ls_lua_file *kept = find(ls_state_of(L), key);
    if (kept != NULL) {
        lua_pushlstring(L, kept->text, kept->bytes);
        return true;
    }
    lua_getfield(L, lua_upvalueindex(2), "path");
    if (ls_image_site() != NULL && push_path_inside(L, luaL_gsub(L, luaL_tolstring(L, 1, NULL), ".", "/")))
        return true;
    lua_settop(L, 3);
    lua_pushvalue(L, lua_upvalueindex(3));
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 3);
    lua_call(L, 2, 1);
    lua_replace(L, 3);
    return lua_type(L, 3) == LUA_TSTRING;
}

/* package.searchers[2]. */
static int search(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    if (is_ordinary(L)) return call_ordinary(L);
    lua_settop(L, 1);
    const char *key = lua_pushfstring(L, MODULE "%s", lua_tostring(L, 1)); /* 2 */
    if (!find_path(L, key)) {
        lua_settop(L, 1);
        return call_ordinary(L); /* its message names the places */
    }
    size_t bytes;
    const char *path = lua_tolstring(L, 3, &bytes);
    keep_copy(state, key, path, bytes);
    if (load(L, path, NULL) != LUA_OK)
        return luaL_error(L, "error loading module '%s' from file '%s':\n\t%s", lua_tostring(L, 1), path,
                          lua_tostring(L, -1));
    lua_pushvalue(L, 3);
    return 2;
}

void ls_lua_files_define(lua_State *L)
{
    lua_getglobal(L, "loadfile");
    lua_pushcclosure(L, lua_loadfile, 1);
    lua_setglobal(L, "loadfile");
    lua_getglobal(L, "dofile");
    lua_pushcclosure(L, lua_dofile, 1);
    lua_setglobal(L, "dofile");
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "searchers");
    lua_rawgeti(L, -1, 2);
    lua_pushvalue(L, -3);
    lua_getfield(L, -4, "searchpath");
    lua_pushcclosure(L, search, 3);
    lua_rawseti(L, -2, 2);
    lua_pop(L, 2);
}
