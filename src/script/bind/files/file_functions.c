/* file_functions.c - the core of ls.file (lua/luaserve/file.lua): each function has its calls made by a thread of the
 * port while the task waits, or by this thread while the site loads.
 *
 * The first argument is a path of the site, which messages show; the system gets it as ls_push_site_path() makes it.
 * The object of a call is on the stack of the task. It owns what the call needs, so that the end of the task, or of
 * the state, releases it. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/os/rlimit.h"
#include "base/slices.h"
#include "codec/http_path.h"
#include "http/file_cache.h"
#include "port/file/file.h"
#include "port/file/image.h"
#include "port/file/shared_file.h"
#include "script/bind/bind_aux.h"
#include "script/bind/files/file_serve.h"
#include "script/bind/value/buffer.h"
#include "script/core/lua/lua_modules.h"
#include "script/core/lua/udata.h"
#include "script/core/task.h"
#include "script/store/marshal.h"

enum {
    READ_AT_ONCE = 65536, /* bytes: a longer file is read in a second step, into memory that Lua counts */
    CHUNK = 65536,        /* of file_more */
    NAMES_MAX = 100000,   /* of file_list */
    PATH_BYTES_MAX = 4096
};

static const ls_object_type call_type, opened_type, temporary_type;

typedef struct call {
    const void *tag;
    ls_task_work w;
    const char *path, *to; /* on the stack of the task */
    unsigned flags;
    ls_file_info info;
    ls_file_names *names;
    ls_shared_file *file;
    ls_slices data;
    char *small,
        *bytes;       /* `small` is freed with the call; `bytes` is `small`, or a userdata on the stack of the task */
    size_t len, room; /* bytes that were read; that are to be read */
    uint64_t max;
    ls_file_cache *cache;
} call;

typedef struct opened { /* a file for file_more */
    const void *tag;
    ls_shared_file *file;
    uint64_t offset;
} opened;

typedef struct temporary { /* a file that is removed unless it is kept */
    const void *tag;
    ls_task_end end;
    char path[]; /* "": none */
} temporary;

static void drop_file(ls_shared_file **file)
{
    if (*file != NULL) ls_shared_file_drop(*file);
    *file = NULL;
}

/* The end of a call: the collector does not see the size of what it holds. */
static int finish(call *c, int results)
{
    ls_file_names_free(c->names);
    c->names = NULL;
    drop_file(&c->file);
    ls_slices_clear(&c->data);
    free(c->small);
    c->small = NULL;
    return results;
}

static int call_drop(lua_State *L)
{
    return finish(lua_touserdata(L, 1), 0);
}

static const char *check_path(lua_State *L, int index)
{
    size_t len;
    const char *path = luaL_checklstring(L, index, &len);
    luaL_argcheck(L, len > 0 && strlen(path) == len, index, "path must not be empty and not contain NUL");
    return path;
}

/* Push the object of a call with the paths at 1 and, if there is one, at `to`. */
static call *call_push(lua_State *L, int64_t (*run)(ls_work *work), int to)
{
    (void)check_path(L, 1);
    if (to > 0) (void)check_path(L, to);
    call *c = ls_object_push(L, sizeof *c, 0, &call_type);
    c->w.work.run = run;
    c->cache = ls_file_cache_of(ls_state_runtime(ls_state_of(L)));
    c->path = ls_push_site_path(L, 1);
    if (to > 0) c->to = ls_push_site_path(L, to);
    return c;
}

static call *call_of(ls_work *work)
{
    return LS_CONTAINER(work, call, w.work);
}

/* Before the call returns, responses stop to use what they know of files; also after a failure, which may have changed
 * a part. */
static int64_t changed(const call *c, int result)
{
    ls_file_cache_changed(c->cache);
    return result;
}

/* nil, "path: why", code */
static int fail(lua_State *L, call *c, int err, const char *why)
{
    const char *path = lua_tostring(L, 1);
    if (err == LS_EACCES && ls_image_has(c->path))
        why = "is inside the packed program, and cannot be changed";
    else if (err == LS_EACCES)
        path = ls_push_refused_path(L, path);
    const int count = ls_push_failure_text(L, err, "%s: %s", path, why != NULL ? why : ls_err_text(err));
    return finish(c, count);
}

static int await(lua_State *L, call *c, lua_KFunction k)
{
    if (strlen(c->path) >= PATH_BYTES_MAX || (c->to != NULL && strlen(c->to) >= PATH_BYTES_MAX))
        return fail(L, c, LS_ELIMIT, "the path is too long");
    return ls_task_await(L, &c->w, (lua_KContext)c, k);
}

static call *call_in(lua_KContext context)
{
    return (call *)context; /* NOLINT(performance-no-int-to-ptr) */
}

/* The end of calls that have no other result than their success. */
static int done(lua_State *L, int status, lua_KContext context)
{
    call *c = call_in(context);
    const int err = (int)ls_task_work_result(&c->w);
    if (err < 0 && c->to != NULL)
        return fail(L, c, err, lua_pushfstring(L, "to %s: %s", lua_tostring(L, 2), ls_err_text(err)));
    if (err < 0) return fail(L, c, err, NULL);
    lua_pushboolean(L, 1);
    return finish(c, 1);
}

/* ---- read ----------------------------------------------------------------------------------------------------- */

static int64_t run_open(ls_work *work)
{
    call *c = call_of(work);
    return ls_shared_file_open(c->path, &c->file);
}

/* Open the file. Read one that is short, and one that does not tell its size, such as those in /proc. */
static int64_t read_first(ls_work *work)
{
    call *c = call_of(work);
    const int64_t err = run_open(work);
    if (err < 0) return err;
    const uint64_t size = c->file->info.bytes;
    if (size > c->max) {
        c->len = SIZE_MAX;
        return 0;
    }
    c->room = size > 0 && size < READ_AT_ONCE ? (size_t)size + 1 : READ_AT_ONCE; /* 1: to see the end */
    if (c->room > c->max) c->room = (size_t)c->max + 1;
    c->bytes = c->small = malloc(c->room);
    return c->small != NULL ? ls_shared_file_read(c->file, c->small, c->room, 0) : LS_ENOMEM;
}

static int64_t read_on(ls_work *work)
{
    call *c = call_of(work);
    return ls_shared_file_read(c->file, c->bytes + c->len, c->room - c->len, c->len);
}

static int open_failed(lua_State *L, call *c, int err)
{
    return fail(L, c, err, err == LS_ENOTSUP ? "is not a regular file" : NULL);
}

/* Stack: path, max, the call, path of the system, the userdata of `bytes`. */
static int read_done(lua_State *L, int status, lua_KContext context)
{
    call *c = call_in(context);
    const int64_t n = ls_task_work_result(&c->w);
    if (n < 0) return open_failed(L, c, (int)n);
    c->len += (size_t)n;
    if (c->len > c->max)
        return fail(L, c, LS_ELIMIT,
                    lua_pushfstring(L, "has more than %I bytes, the limit `max`", (lua_Integer)c->max));
    if (c->len < c->room) { /* the end of the file */
        lua_pushlstring(L, c->bytes, c->len);
        return finish(c, 1);
    }
    const uint64_t size = c->file->info.bytes, grown = 2 * (uint64_t)c->len, room = size > grown ? size + 1 : grown;
    c->room = room > c->max ? (size_t)c->max + 1 : (size_t)room;
    char *bytes = lua_newuserdatauv(L, c->room, 0);
    memcpy(bytes, c->bytes, c->len);
    c->bytes = bytes;
    lua_replace(L, 5);
    free(c->small);
    c->small = NULL;
    c->w.work.run = read_on;
    return await(L, c, read_done);
}

/* core.file_read(path, max) -> string | nil, message, code. ELIMIT: the file has more than max bytes. */
static int core_file_read(lua_State *L)
{
    const lua_Integer max = luaL_checkinteger(L, 2);
    lua_settop(L, 2);
    call *c = call_push(L, read_first, 0);
    lua_settop(L, 5);
    c->max = (uint64_t)max;
    return await(L, c, read_done);
}

/* ---- read in parts -------------------------------------------------------------------------------------------- */

static int open_done(lua_State *L, int status, lua_KContext context)
{
    call *c = call_in(context);
    const int err = (int)ls_task_work_result(&c->w);
    if (err < 0) return open_failed(L, c, err);
    opened *o = ls_object_push(L, sizeof *o, 0, &opened_type);
    o->file = c->file;
    c->file = NULL;
    return 1;
}

/* core.file_open(path) -> object for core.file_more, which may be a to-be-closed variable | nil, message, code */
static int core_file_open(lua_State *L)
{
    return await(L, call_push(L, run_open, 0), open_done);
}

static int more_done(lua_State *L, int status, lua_KContext context)
{
    call *c = call_in(context);
    opened *o = lua_touserdata(L, 2);
    const int64_t n = ls_task_work_result(&c->w);
    if (n < 0) return fail(L, c, (int)n, NULL);
    o->offset = c->len + (uint64_t)n;
    lua_pushlstring(L, c->bytes, (size_t)n);
    return finish(c, 1);
}

static int64_t run_more(ls_work *work)
{
    const call *c = call_of(work);
    return ls_shared_file_read(c->file, c->bytes, CHUNK, c->len);
}

/* core.file_more(path, object) -> the next bytes, "" at the end | nil, message, code. `path` is for the message. */
static int core_file_more(lua_State *L)
{
    const opened *o = ls_udata_check(L, 2, &opened_type, sizeof *o, "file");
    if (o->file == NULL) return ls_push_text(L, "");
    call *c = call_push(L, run_more, 0);
    c->file = ls_shared_file_hold(o->file);
    c->len = (size_t)o->offset;
    c->bytes = lua_newuserdatauv(L, CHUNK, 0);
    return await(L, c, more_done);
}

static int opened_drop(lua_State *L) /* __gc, __close */
{
    opened *o = lua_touserdata(L, 1);
    drop_file(&o->file);
    return 0;
}

/* ---- write ---------------------------------------------------------------------------------------------------- */

static int64_t run_write(ls_work *work)
{
    call *c = call_of(work);
    return changed(c, ls_file_save(c->path, ls_slices_items(&c->data), c->data.count, c->flags));
}

/* Whether the folder of the path is inside the packed program. */
static bool folder_is_inside(lua_State *L, const char *path)
{
    const size_t bytes = ls_lua_modules_directory(path);
    return bytes > 0 && ls_image_site() != NULL && ls_image_has(lua_pushlstring(L, path, bytes));
}

static int write_done(lua_State *L, int status, lua_KContext context)
{
    call *c = call_in(context);
    const bool beside = !(c->flags & (LS_SAVE_APPEND | LS_SAVE_IN_PLACE));
    if (ls_task_work_result(&c->w) == LS_EACCES && beside)
        return fail(L, c, LS_EACCES,
                    "permission denied for a new file in its directory; atomic = false writes to the file itself");
    if (ls_task_work_result(&c->w) == LS_ENOENT && folder_is_inside(L, c->path))
        return fail(
            L, c, LS_ENOENT,
            "its folder is only inside the packed program; ls.file.mkdir with parents = true makes it outside");
    return done(L, status, context);
}

/* core.file_write(path, string or buffer, append, in_place, sync, existing, private) -> true | nil, message, code */
static int core_file_write(lua_State *L)
{
    const ls_buffer *buffer = ls_buffer_test(L, 2);
    const unsigned flags = (lua_toboolean(L, 3) ? LS_SAVE_APPEND : 0) | (lua_toboolean(L, 4) ? LS_SAVE_IN_PLACE : 0) |
                           (lua_toboolean(L, 5) ? LS_SAVE_SYNC : 0) | (lua_toboolean(L, 6) ? LS_SAVE_EXISTING : 0) |
                           (lua_toboolean(L, 7) ? LS_SAVE_PRIVATE : 0);
    ls_slice text = {NULL, NULL, 0};
    if (buffer == NULL) text.ptr = luaL_checklstring(L, 2, &text.len);
    call *c = call_push(L, run_write, 0);
    int err = buffer == NULL ? ls_slices_add(&c->data, text) : LS_OK;
    for (unsigned n = 0; buffer != NULL && n < buffer->count && err == LS_OK; n++) {
        const ls_slice *from = &buffer->slices[n]; /* a reference: the buffer may change meanwhile */
        const ls_slice slice = {ls_block_hold(from->block), from->ptr, from->len};
        if ((err = ls_slices_add(&c->data, slice)) < 0) ls_block_drop(slice.block);
    }
    if (err < 0) return luaL_error(L, "not enough memory");
    c->flags = flags;
    return await(L, c, write_done);
}

/* ---- the others ------------------------------------------------------------------------------------------------ */

static void push_info(lua_State *L, const ls_file_info *info)
{
    static const char *const types[] = {
        [LS_FILE_REGULAR] = "file", [LS_FILE_DIRECTORY] = "directory", [LS_FILE_OTHER] = "other"};
    lua_createtable(L, 0, 4);
    ls_set_text(L, "type", types[info->type]);
    ls_set_integer(L, "size", (lua_Integer)info->bytes);
    lua_pushnumber(L, (lua_Number)info->modified_s + (lua_Number)info->modified_ns / 1e9);
    lua_setfield(L, -2, "mtime");
}

static int64_t run_stat(ls_work *work)
{
    call *c = call_of(work);
    return ls_file_stat(c->path, &c->info);
}

static int stat_done(lua_State *L, int status, lua_KContext context)
{
    const call *c = call_in(context);
    if (ls_task_work_result(&c->w) < 0) return done(L, status, context);
    push_info(L, &c->info);
    return 1;
}

/* core.file_stat(path) -> { type = "file" | "directory" | "other", size =, mtime = } | nil, message, code */
static int core_file_stat(lua_State *L)
{
    return await(L, call_push(L, run_stat, 0), stat_done);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ls_file_name *)a)->name, ((const struct ls_file_name *)b)->name);
}

static int64_t run_list(ls_work *work)
{
    call *c = call_of(work);
    const int err = ls_file_list(c->path, c->to, c->max > 0 ? (unsigned)c->max : NAMES_MAX, &c->names);
    if (err < 0) return err;
    if (c->names->more && c->max == 0) return LS_ELIMIT;
    qsort(c->names->names, c->names->count, sizeof c->names->names[0], by_name);
    return LS_OK;
}

static bool can_be_served(const struct ls_file_name *name) /* by app:static */
{
    return name->info.type != LS_FILE_OTHER && ls_http_path_wrong(name->name, strlen(name->name)) == NULL;
}

static int list_done(lua_State *L, int status, lua_KContext context)
{
    call *c = call_in(context);
    const int err = (int)ls_task_work_result(&c->w);
    if (err == LS_ELIMIT && c->names != NULL)
        return fail(L, c, err, lua_pushfstring(L, "has more than %d names", NAMES_MAX));
    if (err < 0) return fail(L, c, err, NULL);
    lua_Integer count = 0;
    lua_createtable(L, (int)c->names->count, 0);
    ls_array_set_mark(L);
    for (unsigned i = 0; i < c->names->count; i++) {
        const struct ls_file_name *name = &c->names->names[i];
        if (c->to != NULL && !can_be_served(name)) continue;
        if (c->flags) push_info(L, &name->info);
        lua_pushstring(L, name->name);
        if (c->flags) lua_setfield(L, -2, "name");
        lua_rawseti(L, -2, ++count);
    }
    if (c->max == 0) return finish(c, 1);
    lua_pushboolean(L, c->names->more);
    return finish(c, 2);
}

/* core.file_list(path, details [, beneath, most]) -> sorted list of names, or of tables as those of core.file_stat
 * with `name`, whether there are more than `most` | nil, message, code. `beneath`: a directory that `path` begins
 * with; the list has only what app:static can serve from it. ELIMIT: more than NAMES_MAX, without `most`. */
static int core_file_list(lua_State *L)
{
    const bool details = lua_toboolean(L, 2);
    const lua_Integer most = luaL_optinteger(L, 4, 0);
    call *c = call_push(L, run_list, lua_isnoneornil(L, 3) ? 0 : 3);
    c->flags = details;
    c->max = (uint64_t)most;
    return await(L, c, list_done);
}

static int64_t run_remove(ls_work *work)
{
    const call *c = call_of(work);
    return ls_image_has(c->path) ? LS_EACCES : changed(c, ls_file_remove(c->path));
}

/* core.file_remove(path) -> true | nil, message, code */
static int core_file_remove(lua_State *L)
{
    return await(L, call_push(L, run_remove, 0), done);
}

static int64_t run_mkdir(ls_work *work)
{
    const call *c = call_of(work);
    return changed(c, ls_file_mkdir(c->path, c->flags));
}

/* core.file_mkdir(path, parents) -> true | nil, message, code */
static int core_file_mkdir(lua_State *L)
{
    const bool parents = lua_toboolean(L, 2);
    call *c = call_push(L, run_mkdir, 0);
    c->flags = parents;
    return await(L, c, done);
}

static int64_t run_rename(ls_work *work)
{
    const call *c = call_of(work);
    if (ls_image_has(c->path) || ls_image_has(c->to)) return LS_EACCES;
    return changed(c, c->flags != 0 ? ls_file_replace(c->path, c->to, true) : ls_file_rename(c->path, c->to));
}

/* core.file_rename(from, to [, sync]) -> true | nil, message, code. sync: of a file; it returns when the new name is
 * on the device, and an error may come after the rename. */
static int core_file_rename(lua_State *L)
{
    const bool sync = lua_toboolean(L, 3);
    call *c = call_push(L, run_rename, 2);
    c->flags = sync;
    return await(L, c, done);
}

static void temporary_remove(temporary *t)
{
    ls_task_end_remove(&t->end);
    if (t->path[0] != '\0') (void)ls_file_remove(t->path);
    t->path[0] = '\0';
}

static void temporary_task_ended(ls_task_end *end)
{
    temporary_remove(LS_CONTAINER(end, temporary, end));
}

/* core.file_temporary(path) -> an object that removes the file when it is closed or the task ends; one that is
 * cancelled closes no variables. core.file_keep ends that. */
static int core_file_temporary(lua_State *L)
{
    (void)check_path(L, 1);
    const char *path = ls_push_site_path(L, 1);
    const size_t bytes = strlen(path) + 1;
    temporary *t = ls_object_push(L, sizeof *t + bytes, 0, &temporary_type);
    t->end.run = temporary_task_ended;
    memcpy(t->path, path, bytes);
    ls_task *const task = ls_state_of(L)->current;
    if (task != NULL) ls_task_end_add(task, &t->end);
    return 1;
}

static int core_file_keep(lua_State *L)
{
    temporary *t = ls_udata_check(L, 1, &temporary_type, sizeof *t, "temporary file");
    t->path[0] = '\0';
    return 0;
}

static int temporary_drop(lua_State *L) /* __gc, __close */
{
    temporary_remove(lua_touserdata(L, 1));
    return 0;
}

/* core.site_path(path) -> the path of the system: a relative one starts at the directory of the site */
static int core_site_path(lua_State *L)
{
    (void)check_path(L, 1);
    (void)ls_push_site_path(L, 1);
    return 1;
}

/* core.is_buffer(value) -> whether it is a buffer. Raises for an expired one. */
static int core_is_buffer(lua_State *L)
{
    return ls_push_boolean(L, ls_buffer_test(L, 1) != NULL);
}

static const ls_object_type call_type = {.name = "call", .drop = call_drop};
static const ls_object_type opened_type = {.name = "file", .drop = opened_drop};
static const ls_object_type temporary_type = {.name = "temporary file", .drop = temporary_drop};

static const luaL_Reg functions[] = {{"file_read", core_file_read},     {"file_open", core_file_open},
                                     {"file_more", core_file_more},     {"file_write", core_file_write},
                                     {"file_stat", core_file_stat},     {"file_list", core_file_list},
                                     {"file_remove", core_file_remove}, {"file_mkdir", core_file_mkdir},
                                     {"file_rename", core_file_rename}, {"file_temporary", core_file_temporary},
                                     {"file_keep", core_file_keep},     {"site_path", core_site_path},
                                     {"is_buffer", core_is_buffer},     {NULL, NULL}};

/* The cache keeps at most an eighth of the descriptors that the system allows: the others are for connections. */
static int cache_open(void *own)
{
    ls_file_cache_limits limits = ls_file_cache_defaults;
    const uint32_t share = ls_descriptors_raise(8 * limits.open_max) / 8;
    if (limits.open_max > share) limits.open_max = share;
    return ls_file_cache_open(&limits, own);
}

static void cache_close(void *own)
{
    ls_file_cache_close(*(ls_file_cache **)own);
}

static const ls_module_common common = {.bytes = sizeof(ls_file_cache *), .open = cache_open, .close = cache_close};

const ls_module ls_files_module = {.name = "files", .functions = functions, .common = &common};
