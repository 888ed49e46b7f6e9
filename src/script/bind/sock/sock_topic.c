/* sock_topic.c - sock:subscribe: a connection as a subscriber of topics. A message is sent as a line: its data and a
 * line feed. A connection that would miss a message is closed: it lags, its send has failed, or memory is out. */
#include <stdlib.h>
#include <string.h>

#include "base/io/log.h"
#include "script/bind/sock/sock_object.h"
#include "script/bind/store/publish_internal.h"

typedef struct ls_tcp_topics {
    ls_subscriber subscriber;
    ls_tcp *tcp;
    bool present; /* has subscribed with a name: ../lua/luaserve/presence.lua */
    bool last;    /* the messages that wait are delivered, then the subscriptions end */
    int lost;     /* meanwhile: LS_E*: why a message is missing; 0: none is */
} tcp_topics;

static int encode_line(ls_thread_ctx *ctx, const ls_publication *p, ls_slice *out)
{
    size_t bytes = 0;
    for (unsigned n = 0; n < p->count; n++) bytes += ls_publication_part(p, n)->data.len + 1;
    char *to = ls_topic_form_room(bytes, out);
    if (to == NULL) return LS_ENOMEM;
    for (unsigned n = 0; n < p->count; n++) {
        const ls_slice *data = &ls_publication_part(p, n)->data;
        if (data->len > 0) memcpy(to, data->ptr, data->len);
        to[data->len] = '\n';
        to += data->len + 1;
    }
    return LS_OK;
}

static void log_full(ls_tcp *tcp)
{
    char text[LS_ADDR_TEXT_BYTES];
    ls_log(LS_LOG_INFO, "connection from %s: closed: its queue is longer than max_queue",
           ls_stream_peer_text(ls_tcp_stream(tcp), text));
}

/* A message is missing: the connection closes, and the peer connects again. Returns `result`. */
static int lose(ls_thread_ctx *ctx, ls_tcp *tcp, int err, int result)
{
    if (tcp->topics->last)
        tcp->topics->lost = err;
    else
        ls_tcp_lose(ctx, tcp, err);
    return result;
}

static int deliver(ls_thread_ctx *ctx, ls_subscriber *subscriber, ls_publication *p)
{
    ls_tcp *tcp = LS_CONTAINER(subscriber, tcp_topics, subscriber)->tcp;
    ls_stream *s = ls_tcp_stream(tcp);
    ls_slice line;
    if (tcp->topics->lost != LS_OK) return LS_ECLOSED;
    if (tcp->send_end != LS_OK) return lose(ctx, tcp, tcp->send_end, LS_ECLOSED);
    if (tcp->starttls != NULL) return LS_EAGAIN; /* its handshake would be disturbed */
    const size_t queued = ls_stream_queued(s), max = tcp->config->queue_bytes_max;
    int err = ls_publication_form(ctx, p, LS_FORM_LINE, encode_line, &line);
    if (err == LS_OK && (queued > 0 || p->count > 1) && (queued >= max || line.len > max - queued)) {
        if (p->count > 1) return LS_EMSGSIZE;
        ls_topic_count_closed(subscriber->inbox);
        log_full(tcp);
        return lose(ctx, tcp, LS_ELIMIT, LS_ELIMIT);
    }
    if (err == LS_OK) {
        (void)ls_block_hold(line.block);
        if ((err = ls_stream_push(ctx, s, &line)) < 0) ls_slice_drop(&line);
    }
    if (err < 0) return lose(ctx, tcp, err, err);
    if (!tcp->finishing && !ls_stream_sending(s)) ls_tcp_flush_later(tcp);
    return LS_OK;
}

static const ls_subscriber_kind sock_kind = {.deliver = deliver, .joins = true};

void ls_tcp_topics_end(ls_tcp *tcp)
{
    if (tcp->topics == NULL) return;
    ls_subscriber_end(&tcp->topics->subscriber);
    free(tcp->topics);
    tcp->topics = NULL;
}

int ls_tcp_topics_finish(ls_thread_ctx *ctx, ls_tcp *tcp)
{
    if (tcp->topics == NULL) return LS_OK;
    tcp->topics->last = true;
    (void)ls_topic_deliver_waiting(ctx, tcp->state, &tcp->topics->subscriber);
    const int lost = tcp->topics->lost;
    ls_tcp_topics_end(tcp);
    return lost;
}

bool ls_tcp_topics_any(const ls_tcp *tcp)
{
    return tcp->topics != NULL && tcp->topics->subscriber.count > 0;
}

/* sock:subscribe(topic [, options: PresenceOptions]) -> true | nil, message, code
 * Sends each message of the topic to the peer: its data and a line feed. */
int ls_sock_subscribe(lua_State *L)
{
    ls_tcp *tcp = ls_tcp_check(L)->tcp;
    if (tcp != NULL && (tcp->send_end != LS_OK || tcp->shut)) tcp = NULL;
    if (tcp != NULL && tcp->topics == NULL) {
        tcp_topics *topics = malloc(sizeof *topics);
        if (topics == NULL) return ls_push_failure(L, LS_ENOMEM);
        *topics = (tcp_topics){.tcp = tcp};
        ls_subscriber_init(&topics->subscriber, ls_topic_inbox_of(tcp->state), &sock_kind);
        tcp->topics = topics;
    }
    if (!lua_isnoneornil(L, 3)) {
        if (tcp != NULL) tcp->topics->present = true;
        return ls_topic_lua_presence(L, "subscribe", "sock:subscribe");
    }
    return ls_topic_lua_subscribe(L, tcp != NULL ? &tcp->topics->subscriber : NULL, 2, 0);
}

/* sock:unsubscribe(topic) -> true | nil, message, code
 * Ends a subscription. */
int ls_sock_unsubscribe(lua_State *L)
{
    const ls_tcp *tcp = ls_tcp_check(L)->tcp;
    if (tcp != NULL && tcp->topics != NULL && tcp->topics->present)
        (void)ls_topic_lua_presence(L, "leave", "sock:unsubscribe");
    if (tcp != NULL && tcp->topics == NULL) {
        size_t len;
        (void)ls_topic_check(L, 2, &len);
        return ls_push_failure(L, LS_ENOENT);
    }
    return ls_topic_lua_unsubscribe(L, tcp != NULL ? &tcp->topics->subscriber : NULL, 2);
}
