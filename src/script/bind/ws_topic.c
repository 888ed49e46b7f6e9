/* ws_topic.c - a WebSocket as a subscriber of topics: a publication becomes one frame, which all connections send. */
#include <string.h>

#include "base/err.h"
#include "base/slices.h"
#include "script/bind/bind_aux.h"
#include "script/bind/topic.h"
#include "script/bind/ws.h"

/* Make a whole frame with this payload. */
static int make_frame(const ls_publication *p, bool compressed, const ls_slice *slices, unsigned count, ls_slice *out)
{
    const ls_ws_head head = {.length = ls_slices_bytes(slices, count),
                             .opcode = p->text ? LS_WS_TEXT : LS_WS_BINARY,
                             .fin = true,
                             .compressed = compressed};
    char bytes[LS_WS_HEAD_BYTES_MAX];
    const size_t head_len = ls_ws_head_write(&head, bytes);
    char *to = ls_topic_form_room(head_len + (size_t)head.length, out);
    if (to == NULL) return LS_ENOMEM;
    memcpy(to, bytes, head_len);
    to += head_len;
    for (unsigned n = 0; n < count; to += slices[n++].len)
        if (slices[n].len > 0) memcpy(to, slices[n].ptr, slices[n].len);
    return LS_OK;
}

static int encode(ls_thread_ctx *ctx, const ls_publication *p, ls_slice *out)
{
    (void)ctx;
    return make_frame(p, false, &p->data, 1, out);
}

/* A message that does not become shorter is not compressed: then this form is the other one. */
static int encode_compressed(ls_thread_ctx *ctx, const ls_publication *p, ls_slice *out)
{
    const ls_state *state = (const ls_state *)(const void *)ctx->inside;
    ls_slices packed = {0};
    int err = ls_ws_deflate_shared(ctx->pool, ls_state_runtime(state)->ws_deflates, 0, &p->data, 1, 0, &packed);
    if (err == LS_EAGAIN) return encode(ctx, p, out);
    if (err == LS_OK) err = make_frame(p, true, ls_slices_items(&packed), packed.count, out);
    ls_slices_clear(&packed);
    return err;
}

static int deliver(ls_thread_ctx *ctx, ls_subscriber *subscriber, ls_publication *p)
{
    ls_ws_object *o = LS_CONTAINER(subscriber, ls_ws_object, subscriber);
    ls_slice plain, compressed;
    if (o->ws == NULL) return LS_ECLOSED;
    const bool compress = ls_ws_takes_compressed(o->ws) && p->data.len >= o->route->deflate.bytes_min;
    int err = ls_publication_form(ctx, p, LS_FORM_WS, encode, &plain);
    if (err == LS_OK && compress)
        err = ls_publication_form(ctx, p, LS_FORM_WS_DEFLATE, encode_compressed, &compressed);
    const bool now = !ls_topic_inbox_more(subscriber->inbox); /* else several leave in one send */
    if (err == LS_OK) err = ls_ws_publish(ctx, o->ws, &plain, compress ? &compressed : NULL, now);
    if (err == LS_PENDING) ls_ws_flush_later(o);
    if (err >= 0) return LS_OK;
    if (err == LS_ECLOSED || (err == LS_ELIMIT && o->route->skip)) return err;
    if (err == LS_ELIMIT) {
        ls_topic_count_closed(subscriber->inbox);
        ls_ws_object_close(ctx, o, LS_WS_TRY_LATER, "the queue is full", 17);
    } else { /* a message is missing: the peer connects again */
        ls_ws_object_close(ctx, o, LS_WS_INTERNAL, "out of memory", 13);
    }
    return err;
}

static void prefetch(const ls_subscriber *subscriber, unsigned ahead)
{
    ls_ws *ws = LS_CONTAINER(subscriber, ls_ws_object, subscriber)->ws;
    if (ws != NULL && ahead >= 3) ls_ws_prefetch(ws, ahead == 4 ? 0 : 1);
}

const ls_subscriber_kind ls_ws_subscriber = {deliver, prefetch};

/* The subscriber of the object at index 1; NULL: it is closed. Raises for a client, whose frames differ from those of
 * others. */
static ls_subscriber *check_subscriber(lua_State *L, const char *name)
{
    ls_ws_object *o = ls_ws_check(L);
    if (o->route == NULL)
        luaL_error(L,
                   "ws:%s: a connection of ls.websocket cannot subscribe; use ls.subscribe(topic, function(data) "
                   "ws:send(data) end)",
                   name);
    return ls_ws_is_closed(o) ? NULL : &o->subscriber;
}

/* ws:subscribe(topic) -> true | nil, message, code */
int ls_ws_subscribe(lua_State *L)
{
    ls_check_arguments(L, 2, "ws:subscribe(topic)");
    return ls_topic_lua_subscribe(L, check_subscriber(L, "subscribe"), 2);
}

/* ws:unsubscribe(topic) -> true | nil, message, code */
int ls_ws_unsubscribe(lua_State *L)
{
    ls_check_arguments(L, 2, "ws:unsubscribe(topic)");
    return ls_topic_lua_unsubscribe(L, check_subscriber(L, "unsubscribe"), 2);
}
