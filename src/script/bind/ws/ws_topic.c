/* ws_topic.c - a WebSocket as a subscriber of topics: a publication becomes one frame, which all connections send. */
#include <string.h>

#include "base/io/log.h"
#include "base/slices.h"
#include "script/bind/store/publish.h"
#include "script/bind/ws/ws.h"

/* Write a whole frame with this payload. Returns its end. */
static char *put_frame(const ls_publication *p, bool compressed, const ls_slice *slices, unsigned count, char *to)
{
    const ls_ws_head head = {.length = ls_slices_bytes(slices, count),
                             .opcode = p->text ? LS_WS_TEXT : LS_WS_BINARY,
                             .fin = true,
                             .compressed = compressed};
    to += ls_ws_head_write(&head, to);
    for (unsigned n = 0; n < count; to += slices[n++].len)
        if (slices[n].len > 0) memcpy(to, slices[n].ptr, slices[n].len);
    return to;
}

static int encode(ls_thread_ctx *ctx, const ls_publication *p, ls_slice *out)
{
    size_t bytes = 0;
    for (unsigned n = 0; n < p->count; n++) bytes += LS_WS_HEAD_BYTES_MAX + ls_publication_part(p, n)->data.len;
    char *const from = ls_topic_form_room(bytes, out), *to = from;
    if (from == NULL) return LS_ENOMEM;
    for (unsigned n = 0; n < p->count; n++) {
        const ls_publication *part = ls_publication_part(p, n);
        to = put_frame(part, false, &part->data, 1, to);
    }
    out->len = (size_t)(to - from);
    return LS_OK;
}

/* A message that does not become shorter is not compressed: then this form is the other one. */
static int encode_compressed(ls_thread_ctx *ctx, const ls_publication *p, ls_slice *out)
{
    const ls_state *state = ls_state_of_actor(ctx->inside);
    ls_slices packed = {0};
    int err = ls_ws_deflate_shared(ctx->pool, ls_ws_deflates_of(state), 0, &p->data, 1, 0, &packed);
    if (err == LS_EAGAIN) return encode(ctx, p, out);
    if (err == LS_OK) {
        char *const to = ls_topic_form_room(LS_WS_HEAD_BYTES_MAX + packed.bytes, out);
        if (to != NULL)
            out->len = (size_t)(put_frame(p, true, ls_slices_items(&packed), packed.count, to) - to);
        else
            err = LS_ENOMEM;
    }
    ls_slices_clear(&packed);
    return err;
}

static void log_full(const ls_ws_object *o)
{
    char text[LS_ADDR_TEXT_BYTES];
    ls_log(LS_LOG_INFO, "WebSocket %.150s from %s: closed with 1013: its queue is longer than max_queue",
           o->route->name, ls_stream_peer_text(ls_ws_stream(o->ws), text));
}

static int deliver(ls_thread_ctx *ctx, ls_subscriber *subscriber, ls_publication *p)
{
    ls_ws_object *o = LS_CONTAINER(subscriber, ls_ws_object, subscriber);
    ls_slice plain, compressed;
    if (o->ws == NULL) return LS_ECLOSED;
    const bool compresses = ls_ws_takes_compressed(o->ws);
    if (compresses && p->count > 1) return LS_EMSGSIZE;
    const bool compress = compresses && p->data.len >= o->route->deflate.bytes_min;
    int err = ls_publication_form(ctx, p, LS_FORM_WS, encode, &plain);
    if (err == LS_OK && p->count > 1 && ls_ws_queued(o->ws) + plain.len > o->config->queue_bytes_max)
        return LS_EMSGSIZE;
    if (err == LS_OK && compress)
        err = ls_publication_form(ctx, p, LS_FORM_WS_DEFLATE, encode_compressed, &compressed);
    const bool now = !ls_topic_inbox_more(subscriber->inbox); /* else several leave in one send */
    if (err == LS_OK) err = ls_ws_publish(ctx, o->ws, &plain, compress ? &compressed : NULL, now);
    if (err == LS_PENDING) ls_ws_flush_later(o);
    if (err >= 0) return LS_OK;
    if (err == LS_ECLOSED || (err == LS_ELIMIT && o->route->skip)) return err;
    if (err == LS_ELIMIT) {
        ls_topic_count_closed(subscriber->inbox);
        log_full(o);
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

const ls_subscriber_kind ls_ws_subscriber = {deliver, prefetch, true};

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

/* ws:subscribe(topic [, options: PresenceOptions]) -> true | nil, message, code
 * Receives the messages of the topic from now on. */
int ls_ws_subscribe(lua_State *L)
{
    const ls_ws_object *o = ls_ws_check(L);
    if (o->refused && o->task == o->state->current)
        return luaL_error(L,
                          "ws:subscribe: this function has closed the connection; end it there: return ws:close(...)");
    if (!lua_isnoneornil(L, 3)) {
        check_subscriber(L, "subscribe");
        ((ls_ws_object *)lua_touserdata(L, 1))->present = true;
        return ls_topic_lua_presence(L, "subscribe", "ws:subscribe");
    }
    return ls_topic_lua_subscribe(L, check_subscriber(L, "subscribe"), 2, 0);
}

/* ws:unsubscribe(topic) -> true | nil, message, code
 * Ends a subscription. */
int ls_ws_unsubscribe(lua_State *L)
{
    ls_subscriber *subscriber = check_subscriber(L, "unsubscribe");
    if (((ls_ws_object *)lua_touserdata(L, 1))->present) {
        (void)ls_topic_lua_presence(L, "leave", "ws:unsubscribe");
        subscriber = check_subscriber(L, "unsubscribe");
    }
    return ls_topic_lua_unsubscribe(L, subscriber, 2);
}
