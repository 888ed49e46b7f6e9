/* bind_file.c - res:file: a file as the body of an answer.
 *
 * Opening, looking and reading are operations of the port (port/file.h), for which the task waits: no thread does. What is
 * read goes into blocks of the pool, one at a time, and these are sent as parts of a body whose length is known; a transport that
 * has the system send files (http.sys) gets the file instead.
 *
 * The object on the task's stack owns the descriptor and the operation. While that is pending the task is suspended, and
 * keeps the object; what is pending when the port is closed is over when that has returned. */
#include <string.h>

#include "base/err.h"
#include "port/file.h"
#include "proto/http_text.h"
#include "proto/http_type.h"
#include "script/bind.h"
#include "script/request.h"

enum { RES = 1, PATH, OPTIONS, READING }; /* on the stack */

typedef struct reading {
    ls_file_op op;
    ls_task *task; /* waits for op */
    ls_fd fd;
    ls_block *block; /* being read into */
    uint64_t at, bytes;
} reading;

static void reading_drop_block(reading *f)
{
    if (f->block != NULL) ls_block_drop(f->block);
    f->block = NULL;
}

static int reading_drop(lua_State *L)
{
    reading *f = lua_touserdata(L, 1);
    reading_drop_block(f);
    const ls_fd fd = f->fd != LS_FD_NONE ? f->fd : f->op.fd; /* it may have been opened for nobody */
    if (fd != LS_FD_NONE) ls_file_drop(fd);
    f->fd = f->op.fd = LS_FD_NONE;
    return 0;
}

static void reading_done(ls_thread_ctx *ctx, ls_op *op)
{
    reading *f = LS_CONTAINER(op, reading, op.op);
    ls_task_wake(ctx, f->task, LS_OK);
}

/* Give back what is held now, rather than when the collector comes by. */
static void reading_end(lua_State *L)
{
    lua_pushcfunction(L, reading_drop);
    lua_pushvalue(L, READING);
    lua_call(L, 1, 0);
}

static int fail(lua_State *L, int err)
{
    reading_end(L);
    return ls_push_failure(L, err);
}

/* Wait for the operation that was posted. */
static int await(lua_State *L, int posted, lua_KFunction k)
{
    if (posted < 0) return fail(L, posted);
    return ls_task_suspend(L, 0, k);
}

static int64_t result_of(const reading *f)
{
    return atomic_load_explicit(&f->op.op.result, memory_order_relaxed);
}

/* ---- the body ------------------------------------------------------------------------------------------------------ */

static int read_next(lua_State *L, reading *f);

/* The connection ends: the length that was announced cannot be kept. */
static int cut(lua_State *L, ls_request *r, int err)
{
    r->x->error = LS_ECANCELED;
    return fail(L, err);
}

static int go_on(lua_State *L, reading *f, ls_request *r)
{
    ls_exchange *x = r->x;
    if (x->error != 0) return fail(L, x->error);
    if (f->at < f->bytes) return read_next(L, f);
    const int err = x->transport->finish(r->state->ctx, x);
    if (err < 0) return fail(L, err);
    reading_end(L);
    lua_pushboolean(L, 1);
    return 1;
}

/* Whatever happens to the exchange wakes those that wait for it: look whether it was the queue that left. */
static int part_sent(lua_State *L, int status, lua_KContext context)
{
    ls_request *r = ls_request_check_res(L, RES);
    ls_exchange *x = r->x;
    (void)status;
    if (x->error == 0 && x->transport->flush(r->state->ctx, x) == LS_PENDING)
        return ls_request_wait(L, r, context, part_sent);
    return go_on(L, lua_touserdata(L, READING), r);
}

static int part_read(lua_State *L, int status, lua_KContext context)
{
    reading *f = lua_touserdata(L, READING);
    ls_request *r = ls_request_check_res(L, RES);
    ls_exchange *x = r->x;
    const int64_t n = result_of(f);
    (void)status;
    if (n < 0) return cut(L, r, (int)n);
    if (n == 0) return cut(L, r, LS_EIO); /* it has become shorter */
    if (x->error != 0) return fail(L, x->error);
    ls_slice slice = ls_slice_of(f->block, 0, (size_t)n);
    reading_drop_block(f);
    f->at += (uint64_t)n;
    const int written = x->transport->write(r->state->ctx, x, &slice, 1);
    if (written < 0) return fail(L, written);
    if (written == LS_PENDING) return ls_request_wait(L, r, context, part_sent);
    return go_on(L, f, r);
}

static int read_next(lua_State *L, reading *f)
{
    const uint64_t left = f->bytes - f->at;
    f->block = ls_state_block(L, left <= LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
    const uint32_t len = left < f->block->cap ? (uint32_t)left : f->block->cap;
    f->task = ls_state_of(L)->current;
    return await(L, ls_file_read(ls_state_of(L)->ctx, &f->op, f->fd, f->block->data, len, f->at), part_read);
}

/* ---- the head ------------------------------------------------------------------------------------------------------ */

static bool head_has_left(const ls_request *r)
{
    return r->x->response != LS_RESPONSE_NONE || r->out != NULL;
}

static int set_header(ls_request *r, const char *name, const char *value, size_t len)
{
    return ls_exchange_header(r->state->ctx, r->x, name, strlen(name), value, len, true);
}

static int set_headers(lua_State *L, ls_request *r, const ls_file_info *info)
{
    char date[LS_HTTP_DATE_BYTES];
    int err = LS_OK;
    size_t len;
    if (lua_type(L, OPTIONS) == LUA_TTABLE && lua_getfield(L, OPTIONS, "type") == LUA_TSTRING) {
        const char *type = lua_tolstring(L, -1, &len);
        err = set_header(r, "Content-Type", type, len);
    } else if (!r->x->has_type) {
        r->x->type = ls_http_type_of(lua_tostring(L, PATH));
    }
    lua_settop(L, READING);
    if (err == LS_OK && info->modified_s >= 0) {
        ls_http_date(info->modified_s, date);
        err = set_header(r, "Last-Modified", date, sizeof date);
    }
    return err;
}

static int looked(lua_State *L, int status, lua_KContext context)
{
    reading *f = lua_touserdata(L, READING);
    ls_request *r = ls_request_check_res(L, RES);
    ls_exchange *x = r->x;
    int err = (int)result_of(f);
    (void)status;
    (void)context;
    if (err == LS_OK && f->op.info.type == LS_FILE_DIRECTORY) err = LS_EISDIR;
    if (err == LS_OK && f->op.info.type == LS_FILE_OTHER) err = LS_ENOTSUP; /* it may have no end */
    if (err == LS_OK) err = x->error;
    if (err < 0) return fail(L, err);
    if (head_has_left(r)) return luaL_error(L, "the head of the response was sent already"); /* meanwhile */
    if ((err = set_headers(L, r, &f->op.info)) < 0)
        return luaL_error(L, "res:file: the headers cannot be set: %s", ls_err_text(err));
    x->length = (int64_t)f->op.info.bytes;
    const int written = x->transport->write(r->state->ctx, x, NULL, 0); /* the head */
    if (written < 0) return fail(L, written);
    f->bytes = x->head.method == LS_HTTP_HEAD ? 0 : f->op.info.bytes;
    if (f->bytes == 0 || x->transport->write_file == NULL) return go_on(L, f, r);
    const int sent = x->transport->write_file(r->state->ctx, x, f->fd);
    if (sent == LS_ENOTSUP) return go_on(L, f, r);
    if (sent < 0) return fail(L, sent);
    f->at = f->bytes;
    return sent == LS_PENDING ? ls_request_wait(L, r, 0, part_sent) : go_on(L, f, r);
}

static int opened(lua_State *L, int status, lua_KContext context)
{
    reading *f = lua_touserdata(L, READING);
    (void)status;
    (void)context;
    if (result_of(f) < 0) return fail(L, (int)result_of(f));
    f->fd = f->op.fd;
    return await(L, ls_file_stat_open(ls_state_of(L)->ctx, &f->op, f->fd), looked);
}

static void check_options(lua_State *L)
{
    if (lua_isnil(L, OPTIONS)) return;
    luaL_checktype(L, OPTIONS, LUA_TTABLE);
    lua_pushnil(L);
    while (lua_next(L, OPTIONS) != 0) {
        const bool text = lua_type(L, -1) == LUA_TSTRING && ls_is_field_value(lua_tostring(L, -1), lua_rawlen(L, -1));
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        if (strcmp(key, "type") != 0)
            luaL_error(L, "res:file has no option '%s'; it has type", luaL_tolstring(L, -2, NULL));
        if (!text) luaL_error(L, "res:file: type must be a media type, as in \"text/plain\"");
        lua_pop(L, 1);
    }
}

/* res:file(path [, { type = }]) -> true | nil, message, code */
int ls_res_file(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    const ls_request *r = ls_request_check_res(L, RES);
    size_t len;
    const char *path = luaL_checklstring(L, PATH, &len);
    luaL_argcheck(L, strlen(path) == len, PATH, "a path holds no NUL");
    if (head_has_left(r)) return luaL_error(L, "the head of the response was sent already");
    lua_settop(L, OPTIONS);
    lua_tostring(L, PATH); /* a number becomes its text, which stays where it is */
    check_options(L);
    ls_task_may_wait(L);
    reading *f = lua_newuserdatauv(L, sizeof *f, 0);
    *f = (reading){.op = {.op = {.done = reading_done, .actor = &state->actor}, .fd = LS_FD_NONE},
                   .task = state->current,
                   .fd = LS_FD_NONE};
    lua_rawgeti(L, LUA_REGISTRYINDEX, state->reading_meta_ref);
    lua_setmetatable(L, -2);
    return await(L, ls_file_open(state->ctx, &f->op, lua_tostring(L, PATH), LS_FILE_READ), opened);
}

void ls_file_define(lua_State *L, ls_state *state)
{
    static const luaL_Reg meta[] = {{"__gc", reading_drop}, {NULL, NULL}};
    luaL_newlib(L, meta);
    state->reading_meta_ref = luaL_ref(L, LUA_REGISTRYINDEX);
}
