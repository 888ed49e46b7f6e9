/* ws_topic.c - a WebSocket as a subscriber of topics: a publication becomes one frame, which all connections send. */
#include <string.h>

#include "base/err.h"
#include "script/bind/bind_aux.h"
#include "script/bind/ws.h"
#include "script/core/udata.h"

/* The whole frame, uncompressed. */
static int encode(ls_thread_ctx *ctx, const ls_publication *p, ls_slice *out)
{
    const ls_ws_head head = {
        .length = p->data.len, .opcode = p->text ? LS_WS_TEXT : LS_WS_BINARY, .fin = true};
    char bytes[LS_WS_HEAD_BYTES_MAX];
    const size_t head_len = ls_ws_head_write(&head, bytes);
    char *to = ls_topic_form_room(head_len + p->data.len, out);
    (void)ctx;
    if (to == NULL) return LS_ENOMEM;
    memcpy(to, bytes, head_len);
    if (p->data.len > 0) memcpy(to + head_len, p->data.ptr, p->data.len);
    return LS_OK;
}

bool ls_ws_deliver(ls_thread_ctx *ctx, ls_subscriber *subscriber, ls_publication *p)
{
    ls_ws_object *o = LS_CONTAINER(subscriber, ls_ws_object, subscriber);
    ls_slice plain;
    if (o->ws == NULL) return false;
    int err = ls_publication_form(ctx, p, LS_FORM_WS, encode, &plain);
    if (err == LS_OK) err = ls_ws_publish(ctx, o->ws, &plain, NULL);
    if (err >= 0) {
        ls_ws_flush_later(o);
        return true;
    }
    if (err == LS_ECLOSED) return false;
    if (err == LS_ELIMIT && o->route != NULL && o->route->skip) return false;
    ls_ws_object_close(ctx, o, LS_WS_TRY_LATER, "queue full", 10);
    return false;
}

static const char *check_topic(lua_State *L, size_t *len)
{
    luaL_checktype(L, 2, LUA_TSTRING);
    return lua_tolstring(L, 2, len);
}

/* ws:subscribe(topic) -> true | nil, message, code */
int ls_ws_subscribe(lua_State *L)
{
    ls_ws_object *o = ls_ws_check(L);
    size_t len;
    const char *name = check_topic(L, &len);
    ls_publication *retained = NULL;
    if (ls_ws_is_closed(o)) return ls_push_failure(L, LS_ECLOSED);
    const int err = ls_topic_subscribe(&o->subscriber, name, len, &retained);
    if (err < 0 && err != LS_EEXIST) return ls_topic_refused(L, "ws:subscribe", err);
    if (retained != NULL) {
        (void)ls_ws_deliver(o->state->ctx, &o->subscriber, retained);
        ls_publication_drop(retained);
    }
    lua_pushboolean(L, 1);
    return 1;
}

/* ws:unsubscribe(topic) -> whether it had subscribed */
int ls_ws_unsubscribe(lua_State *L)
{
    ls_ws_object *o = ls_ws_check(L);
    size_t len;
    const char *name = check_topic(L, &len);
    lua_pushboolean(L, ls_topic_unsubscribe(&o->subscriber, name, len) == LS_OK);
    return 1;
}
