/* bind_file.c - res:file: a file as the body of a response.
 *
 * Open, stat and read are operations of the port (port/file.h): the task waits for them, no thread does. Each read
 * fills one block of the pool, which is sent as a part of a body whose length is known. A transport that lets the
 * system send files (http.sys) receives the descriptor instead.
 *
 * The `reading` object on the task's stack owns the descriptor and the operation. While the operation is pending the
 * task is suspended and keeps the object alive; closing the port ends pending operations before it returns. */
#include <string.h>

#include "base/err.h"
#include "port/file.h"
#include "proto/http_text.h"
#include "proto/http_type.h"
#include "script/bind.h"
#include "script/bind_aux.h"
#include "script/request.h"

enum { RES = 1, PATH, OPTIONS, READING }; /* stack indices */

typedef struct reading {
    ls_file_op op;
    ls_task *task; /* waits for op */
    ls_fd fd;
    ls_block *block; /* destination of the pending read, or NULL */
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
    const ls_fd fd = f->fd != LS_FD_NONE ? f->fd : f->op.fd; /* the task may have ended before it took op.fd */
    if (fd != LS_FD_NONE) ls_file_drop(fd);
    f->fd = f->op.fd = LS_FD_NONE;
    return 0;
}

static void reading_done(ls_thread_ctx *ctx, ls_op *op)
{
    reading *f = LS_CONTAINER(op, reading, op.op);
    ls_task_wake(ctx, f->task, LS_OK);
}

/* Release the descriptor and the block now, without waiting for the garbage collector. */
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

/* Wait for the posted operation; `posted` is the result of the post. */
static int wait_for_op(lua_State *L, int posted, lua_KFunction k)
{
    if (posted < 0) return fail(L, posted);
    return ls_task_suspend(L, 0, k);
}

static int64_t result_of(const reading *f)
{
    return atomic_load_explicit(&f->op.op.result, memory_order_relaxed);
}

/* ---- the body --------------------------------------------------------------------------------------------------- */

static int read_next(lua_State *L, reading *f);

/* Abort the connection: the body would be shorter than its Content-Length. */
static int abort_response(lua_State *L, ls_request *r, int err)
{
    r->x->transport->abort(r->state->ctx, r->x);
    return fail(L, err);
}

static int continue_or_finish(lua_State *L, reading *f, ls_request *r)
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

/* Every event of the exchange wakes its waiters: check whether the queue was sent. */
static int part_sent(lua_State *L, int status, lua_KContext context)
{
    ls_request *r = ls_request_check_res(L, RES);
    ls_exchange *x = r->x;
    (void)status;
    if (x->error == 0 && x->transport->flush(r->state->ctx, x) == LS_PENDING)
        return ls_request_wait(L, r, context, part_sent);
    return continue_or_finish(L, lua_touserdata(L, READING), r);
}

static int read_done(lua_State *L, int status, lua_KContext context)
{
    reading *f = lua_touserdata(L, READING);
    ls_request *r = ls_request_check_res(L, RES);
    ls_exchange *x = r->x;
    const int64_t n = result_of(f);
    (void)status;
    if (n < 0) return abort_response(L, r, (int)n);
    if (n == 0) return abort_response(L, r, LS_EIO); /* the file was truncated meanwhile */
    if (x->error != 0) return fail(L, x->error);
    ls_slice slice = ls_slice_of(f->block, 0, (size_t)n);
    reading_drop_block(f);
    f->at += (uint64_t)n;
    const int written = x->transport->write(r->state->ctx, x, &slice, 1);
    if (written < 0) return fail(L, written);
    if (written == LS_PENDING) return ls_request_wait(L, r, context, part_sent);
    return continue_or_finish(L, f, r);
}

static int read_next(lua_State *L, reading *f)
{
    const uint64_t left = f->bytes - f->at;
    f->block = ls_state_block(L, left <= LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
    const uint32_t len = left < f->block->cap ? (uint32_t)left : f->block->cap;
    f->task = ls_state_of(L)->current;
    return wait_for_op(L, ls_file_read(ls_state_of(L)->ctx, &f->op, f->fd, f->block->data, len, f->at), read_done);
}

/* ---- the head --------------------------------------------------------------------------------------------------- */

static bool head_was_sent(const ls_request *r)
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

static int stat_done(lua_State *L, int status, lua_KContext context)
{
    reading *f = lua_touserdata(L, READING);
    ls_request *r = ls_request_check_res(L, RES);
    ls_exchange *x = r->x;
    int err = (int)result_of(f);
    (void)status;
    (void)context;
    if (err == LS_OK && f->op.info.type == LS_FILE_DIRECTORY) err = LS_EISDIR;
    if (err == LS_OK && f->op.info.type == LS_FILE_OTHER) err = LS_ENOTSUP; /* a device may have no end */
    if (err == LS_OK) err = x->error;
    if (err < 0) return fail(L, err);
    if (head_was_sent(r)) return luaL_error(L, "the head of the response was sent already"); /* by another task */
    if ((err = set_headers(L, r, &f->op.info)) < 0)
        return luaL_error(L, "res:file: cannot set the headers: %s", ls_err_text(err));
    x->length = (int64_t)f->op.info.bytes;
    const int written = x->transport->write(r->state->ctx, x, NULL, 0); /* the head */
    if (written < 0) return fail(L, written);
    f->bytes = x->head.method == LS_HTTP_HEAD ? 0 : f->op.info.bytes;
    if (f->bytes == 0 || x->transport->write_file == NULL) return continue_or_finish(L, f, r);
    const int sent = x->transport->write_file(r->state->ctx, x, f->fd);
    if (sent == LS_ENOTSUP) return continue_or_finish(L, f, r);
    if (sent < 0) return fail(L, sent);
    f->at = f->bytes;
    return sent == LS_PENDING ? ls_request_wait(L, r, 0, part_sent) : continue_or_finish(L, f, r);
}

static int open_done(lua_State *L, int status, lua_KContext context)
{
    reading *f = lua_touserdata(L, READING);
    (void)status;
    (void)context;
    if (result_of(f) < 0) return fail(L, (int)result_of(f));
    f->fd = f->op.fd;
    return wait_for_op(L, ls_file_stat_open(ls_state_of(L)->ctx, &f->op, f->fd), stat_done);
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
            luaL_error(L, "res:file: unknown option '%s'; the only option is type", luaL_tolstring(L, -2, NULL));
        if (!text) luaL_error(L, "res:file: type must be a media type, such as \"text/plain\"");
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
    luaL_argcheck(L, strlen(path) == len, PATH, "path contains NUL");
    ls_check_arguments(L, OPTIONS, "res:file(path, options)");
    if (head_was_sent(r)) return luaL_error(L, "the head of the response was sent already");
    lua_settop(L, OPTIONS);
    lua_tostring(L, PATH); /* converts a number to a string in place */
    (void)ls_push_site_path(L, PATH);
    lua_replace(L, PATH);
    check_options(L);
    ls_task_may_wait(L);
    reading *f = lua_newuserdatauv(L, sizeof *f, 0);
    *f = (reading){.op = {.op = {.done = reading_done, .actor = &state->actor}, .fd = LS_FD_NONE},
                   .task = state->current,
                   .fd = LS_FD_NONE};
    lua_rawgeti(L, LUA_REGISTRYINDEX, state->reading_meta_ref);
    lua_setmetatable(L, -2);
    return wait_for_op(L, ls_file_open(state->ctx, &f->op, lua_tostring(L, PATH), LS_FILE_READ), open_done);
}

void ls_file_define(lua_State *L, ls_state *state)
{
    static const luaL_Reg meta[] = {{"__gc", reading_drop}, {NULL, NULL}};
    luaL_newlib(L, meta);
    state->reading_meta_ref = luaL_ref(L, LUA_REGISTRYINDEX);
}
