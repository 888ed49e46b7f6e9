/* respond.c - see respond.h. */
#include "script/bind/http/respond.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/http_text.h"
#include "script/bind/value/buffer.h"
#include "script/bind/value/json.h"
#include "script/core/lua/number.h"

const char ls_type_html[] = "text/html; charset=utf-8", ls_type_json[] = "application/json";
static const char type_text[] = "text/plain; charset=utf-8";

/* ---- the description ---------------------------------------------------------------------------------------- */

void ls_request_describe(lua_State *L, ls_request *r, enum ls_answer answer, int res)
{
    ls_request_drop_answer(r);
    r->answer = (uint8_t)answer;
    if (answer < LS_ANSWER_BODY) return;
    lua_setiuservalue(L, res, LS_RES_ANSWER);
    r->has_body = true;
}

const char *ls_request_answer_type(lua_State *L, const ls_request *r)
{
    switch (r->answer) {
    case LS_ANSWER_STATUS: return ls_status_has_content(r->x->status) ? type_text : NULL;
    case LS_ANSWER_HTML: return ls_type_html;
    case LS_ANSWER_JSON: return ls_type_json;
    case LS_ANSWER_BODY: break;
    default: return NULL;
    }
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->res_ref);
    const bool is_table = lua_getiuservalue(L, -1, LS_RES_ANSWER) == LUA_TTABLE;
    lua_pop(L, 2);
    return is_table ? ls_type_json : type_text;
}

void ls_request_describe_later(ls_request *r, ls_answer_later *later)
{
    ls_request_drop_answer(r);
    r->answer = LS_ANSWER_LATER;
    r->later = later;
}

void ls_request_note_call(lua_State *L, ls_request *r, const char *call)
{
    lua_Debug ar = {.short_src = "?"};
    (void)ls_task_find_line(L, &ar);
    r->described = call;
    r->described_line = ar.currentline;
    memcpy(r->described_file, ar.short_src, sizeof r->described_file);
}

int ls_request_refuse_second(lua_State *L, const ls_request *r)
{
    return luaL_error(L, "%s at %s:%d has described the response: write return %s(...)", r->described,
                      r->described_file, r->described_line, r->described);
}

/* ---- the response ------------------------------------------------------------------------------------------- */

int ls_body_of(lua_State *L, int index, ls_body *out)
{
    const int type = lua_type(L, index);
    out->slices = out->few;
    if (type == LUA_TSTRING || type == LUA_TNUMBER) {
        out->few[0].block = NULL;
        out->few[0].ptr = type == LUA_TSTRING ? lua_tolstring(L, index, &out->few[0].len)
                                              : ls_number_tolstring(L, index, &out->few[0].len);
        out->count = out->few[0].len > 0;
        if (out->few[0].len >= LS_STRING_SHARED_MIN) {
            (void)ls_strings_reserve(L, 1);
            out->few[0] = ls_string_slice(L, index);
        }
        return LS_OK;
    }
    const ls_buffer *buffer = ls_buffer_test(L, index);
    if (buffer == NULL) return LS_EINVAL;
    if (buffer->count > sizeof out->few / sizeof out->few[0]) {
        out->slices = malloc(buffer->count * sizeof *out->slices);
        if (out->slices == NULL) return LS_ENOMEM;
    }
    out->count = buffer->count;
    for (unsigned n = 0; n < buffer->count; n++) {
        out->slices[n] = buffer->slices[n];
        (void)ls_block_hold(out->slices[n].block);
    }
    return LS_OK;
}

void ls_body_free(ls_body *body)
{
    if (body->slices != body->few) free(body->slices);
}

static int raise_sent(lua_State *L)
{
    return luaL_error(L, "the response was already sent");
}

/* Takes the references of the slices. */
static inline int respond_slices(ls_request *r, ls_slice *slices, unsigned count, const char *type)
{
    ls_exchange *x = r->x;
    if (!ls_status_has_content(x->status)) {
        ls_slices_drop(slices, count);
        count = 0;
        type = NULL;
    }
    x->type = type;
    x->length = -1;
    return ls_exchange_respond(r->state->ctx, x, slices, count);
}

/* Dev mode: the page at `index` may be changed. Not one with a validator, such as a file: the browser could keep it.
 * Text without a media type is shown to the function, too: it may be HTML. */
static void change_page(lua_State *L, const ls_request *r, int index, const char *type)
{
    const ls_exchange *x = r->x;
    size_t len = strlen(type), policy_len = 0;
    const bool plain = !x->has_type && type == type_text;
    if (x->has_type) type = ls_exchange_find(x, "Content-Type", 12, &len);
    if (type == NULL || len < 9 || (!plain && !ls_text_same(type, 9, "text/html", 9)) || ls_is_injected(x) ||
        ls_exchange_has_field(x, "Content-Encoding", 16) || ls_exchange_has_field(x, "ETag", 4) ||
        ls_exchange_has_field(x, "Last-Modified", 13))
        return;
    if (lua_type(L, index) != LUA_TSTRING && ls_buffer_test(L, index) == NULL) return;
    luaL_checkstack(L, 5, NULL);
    lua_rawgeti(L, LUA_REGISTRYINDEX, ls_requests_of(r->state)->page_ref);
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->req_ref);
    (void)luaL_tolstring(L, index, NULL);
    const char *policy = ls_exchange_find(x, "Content-Security-Policy", 23, &policy_len);
    if (plain)
        lua_pushboolean(L, 0);
    else if (policy != NULL)
        lua_pushlstring(L, policy, policy_len);
    else
        lua_pushnil(L);
    lua_pushstring(L, r->chain.place);
    lua_call(L, 4, 1);
    if (lua_type(L, -1) == LUA_TSTRING)
        lua_replace(L, index);
    else
        lua_pop(L, 1);
}

int ls_request_respond_as(lua_State *L, ls_request *r, int index, const char *type)
{
    ls_body body;
    if (ls_requests_of(r->state)->page_ref != 0) change_page(L, r, index, type);
    const int err = ls_body_of(L, index, &body);
    if (err == LS_ENOMEM) return luaL_error(L, "not enough memory");
    if (err < 0)
        return luaL_error(L, "invalid response body: string, number, table or buffer expected, got %s",
                          luaL_typename(L, index));
    if (ls_request_has_begun(r)) { /* a finalizer has responded */
        ls_slices_drop(body.slices, body.count);
        ls_body_free(&body);
        return raise_sent(L);
    }
    const int result = respond_slices(r, body.slices, body.count, type);
    ls_body_free(&body);
    return result;
}

int ls_request_respond_json(lua_State *L, ls_request *r, int index)
{
    ls_slice text;
    if (!ls_json_encode(L, index, &text)) return ls_request_respond_as(L, r, index, ls_type_json);
    return ls_request_has_begun(r) ? raise_sent(L) : respond_slices(r, &text, 1, ls_type_json);
}

int ls_request_respond_body(lua_State *L, ls_request *r, int index)
{
    return lua_type(L, index) == LUA_TTABLE ? ls_request_respond_json(L, r, index)
                                            : ls_request_respond_as(L, r, index, type_text);
}

int ls_request_respond_text(ls_request *r, int status)
{
    ls_exchange *x = r->x;
    const char *phrase = ls_status_text(status);
    char text[64];
    x->status = status;
    x->length = -1;
    x->type = NULL;
    if (!ls_status_has_content(status)) return ls_exchange_respond(r->state->ctx, x, NULL, 0);
    const int len =
        phrase[0] != '\0' ? snprintf(text, sizeof text, "%s\n", phrase) : snprintf(text, sizeof text, "%d\n", status);
    ls_slice slice = ls_slice_static(text, (size_t)len); /* short, so respond copies it */
    x->type = type_text;
    return ls_exchange_respond(r->state->ctx, x, &slice, 1);
}
