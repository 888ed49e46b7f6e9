/* body_save.c - the data of a part of a multipart body, written to a file: for part:save (lua/luaserve/multipart.lua).
 *
 * Received blocks are kept as slices, without a copy, until there are enough of them for one write, which a thread of
 * the port makes while the task waits. Lua runs again at the delimiter, not for each block. Nothing is received beyond
 * what is kept, so that a slow device slows the client down. */
#include "base/err.h"
#include "codec/delimiter.h"
#include "port/file/file.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http/body.h"
#include "script/bind/value/buffer.h"

enum {
    SLICES_MAX = 64,                  /* of one write */
    WRITE_BYTES = 256 * 1024,         /* of the blocks that are kept before a write */
    WRITE_BYTES_WAITING = 128 * 1024, /* the same when no more bytes have arrived: a slow client keeps little memory */
    KEPT_MAX = 16 * 1024              /* bytes in front of the delimiter that are returned rather than written */
};

enum { REQ = 1, PATH, NAME, DELIMITER, FIRST, TEXT, MAX, SAVE, SYSTEM_PATH, REST /* stack indices */ };

typedef struct body_save {
    const void *tag;
    ls_task_work w;
    const char *path; /* on the stack of the task, as the delimiter */
    ls_delimiter delimiter;
    ls_slice slices[SLICES_MAX];
    unsigned count;
    size_t kept, held; /* bytes of the slices; of their blocks */
    uint64_t bytes, bytes_max;
} body_save;

static void drop(body_save *s)
{
    ls_slices_drop(s->slices, s->count);
    s->count = 0;
    s->kept = s->held = 0;
}

static int save_drop(lua_State *L)
{
    drop(lua_touserdata(L, 1));
    return 0;
}

static const ls_object_type save_type = {.name = "body save", .drop = save_drop};

/* Keep a slice, with its reference. */
static void keep(body_save *s, ls_slice slice)
{
    ls_slice *last = s->count > 0 ? &s->slices[s->count - 1] : NULL;
    s->kept += slice.len;
    if (last != NULL && last->block == slice.block && last->ptr + last->len == slice.ptr) {
        last->len += slice.len;
        ls_slice_drop(&slice);
        return;
    }
    if (last == NULL || last->block != slice.block) s->held += slice.block != NULL ? slice.block->cap : slice.len;
    s->slices[s->count++] = slice;
}

/* Keep the data of a piece, with its reference. At the delimiter push it with the bytes after it, and return true. */
static bool take(lua_State *L, body_save *s, ls_slice piece)
{
    ls_delimiter_run run;
    const char *const from = piece.ptr;
    const size_t len = piece.len;
    const bool found = ls_delimiter_next(&s->delimiter, from, len, &run);
    if (run.before > 0) keep(s, ls_slice_static(s->delimiter.text, run.before));
    piece.len = run.data;
    keep(s, piece); /* also without data: its block stays until the bytes after it are pushed */
    s->bytes += run.before + run.data;
    if (!found) return false;
    lua_pushlstring(L, s->delimiter.text, s->delimiter.matched);
    lua_pushlstring(L, from + run.data, len - run.data);
    lua_concat(L, 2);
    return true;
}

/* The results. If `rest` was not pushed it is what may be the beginning of the delimiter. */
static int finish(lua_State *L, body_save *s, int err)
{
    if (lua_gettop(L) < REST) lua_pushlstring(L, s->delimiter.text, s->delimiter.matched);
    if (err < 0) return 1 + ls_push_failure_text(L, err, "%s: %s", lua_tostring(L, NAME), ls_err_text(err));
    lua_pushinteger(L, (lua_Integer)s->bytes);
    ls_slices_push_string(L, s->slices, s->count, s->kept);
    drop(s);
    return 3;
}

static int64_t run_write(ls_work *work)
{
    const body_save *s = LS_CONTAINER(work, body_save, w.work);
    return ls_file_save(s->path, s->slices, s->count, LS_SAVE_APPEND | LS_SAVE_IN_PLACE | LS_SAVE_EXISTING);
}

static int read_on(lua_State *L, int status, lua_KContext context);

static int written(lua_State *L, int status, lua_KContext context)
{
    body_save *s = lua_touserdata(L, SAVE);
    const int err = (int)ls_task_work_result(&s->w);
    drop(s);
    return err < 0 || lua_gettop(L) == REST ? finish(L, s, err) : read_on(L, status, context);
}

/* At the delimiter, or at the limit of bytes. */
static int end(lua_State *L, body_save *s)
{
    if (s->bytes > s->bytes_max) drop(s);
    return s->kept > KEPT_MAX ? ls_task_await(L, &s->w, 0, written) : finish(L, s, LS_OK);
}

static int read_on(lua_State *L, int status, lua_KContext context)
{
    body_save *s = lua_touserdata(L, SAVE);
    ls_request *r = ls_request_check_req(L, REQ);
    for (;;) {
        ls_slice piece;
        int err = LS_DONE;
        bool enough = s->held >= WRITE_BYTES || s->count > SLICES_MAX - 2; /* 2: a piece may need two */
        if (!enough && (err = ls_body_read(r, &piece)) == LS_PENDING) enough = s->held >= WRITE_BYTES_WAITING;
        if (enough) return ls_task_await(L, &s->w, 0, written);
        if (err == LS_PENDING) return ls_request_wait(L, r, context, read_on);
        if (err < 0 || piece.len == 0) drop(s);
        if (err < 0) return ls_body_failed(L, r, err);
        if (piece.len == 0) { /* the part does not end */
            ls_slice_drop(&piece);
            lua_pushnil(L);
            return finish(L, s, LS_OK);
        }
        if (take(L, s, piece) || s->bytes > s->bytes_max) return end(L, s);
    }
}

/* core.body_save(req, path, name, delimiter, first, text, max) -> rest, bytes, kept | rest, nil, message, code
 * Appends `first` and the data up to the delimiter to the file: that of `text`, which is in front of the unread body,
 * and that of the body. Messages show `name`. `rest`: the bytes that were read after the data, which begin with the
 * delimiter or with a part of it; nil: the body has ended. `bytes`: those of the data; more than `max` (nil: no
 * limit): there is more. `kept`: the last ones, which were not written. Waits, and raises as req:chunks. */
static int core_body_save(lua_State *L)
{
    lua_settop(L, MAX);
    body_save *s = ls_object_push(L, sizeof *s, 0, &save_type);
    s->w.work.run = run_write;
    s->path = ls_push_site_path(L, PATH);
    s->delimiter.text = luaL_checklstring(L, DELIMITER, &s->delimiter.len);
    s->bytes_max = lua_isnil(L, MAX) ? UINT64_MAX : (uint64_t)luaL_checkinteger(L, MAX);
    keep(s, ls_slice_static(luaL_checkstring(L, FIRST), lua_rawlen(L, FIRST)));
    const ls_slice text = ls_slice_static(luaL_checkstring(L, TEXT), lua_rawlen(L, TEXT));
    return take(L, s, text) || s->bytes > s->bytes_max ? end(L, s) : read_on(L, LUA_OK, 0);
}

static const luaL_Reg functions[] = {{"body_save", core_body_save}, {NULL, NULL}};

const ls_module ls_body_save_module = {.name = "body_save", .functions = functions};
