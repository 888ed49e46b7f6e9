/* h2.c - HTTP/2 in the engine of a listener (http1.c): its connections, which h2_conn.c runs, and nghttp2's options. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "http/http2/h2.h"
#include "http/http2/h2_conn_internal.h"

static ls_h2 *h2_of(ls_http2_part *part)
{
    return LS_CONTAINER(part, ls_h2, part);
}

static void cancel(ls_http2_part *part, void (*how)(ls_stream *s))
{
    LS_LIST_EACH (ls_h2_conn, c, &h2_of(part)->conns, node) how(c->s);
}

static void close_part(ls_http2_part *part)
{
    ls_h2 *h2 = h2_of(part);
    assert(ls_list_empty(&h2->conns));
    for (ls_h2_conn *c = h2->unused, *next; c != NULL; c = next) {
        next = c->next_unused;
        ls_mutex_close(&c->lock);
        ls_arena_close(&c->memory);
        free(c);
    }
    nghttp2_session_callbacks_del(h2->callbacks);
    nghttp2_option_del(h2->options);
    free(h2);
}

/* ---- connections ---------------------------------------------------------------------------------------------- */

static ls_tls_peer *peer_of(const ls_filter *session)
{
    ls_tls_peer peer;
    ls_tls_peer_of(session, &peer);
    const size_t name_bytes = peer.server_name != NULL ? strlen(peer.server_name) + 1 : 0;
    ls_tls_peer *copy = malloc(sizeof *copy + name_bytes);
    if (copy == NULL) return NULL;
    *copy = peer;
    copy->alpn = "h2";
    if (name_bytes > 0) copy->server_name = memcpy(copy + 1, peer.server_name, name_bytes);
    return copy;
}

static bool start(ls_thread_ctx *ctx, ls_stream *s, ls_http2_part *part, ls_slice received)
{
    ls_h2 *h2 = h2_of(part);
    ls_http_server *http = h2->server;
    ls_h2_conn *c = ls_h2_take_conn(h2);
    const ls_filter *session = ls_stream_filter(s);
    if (c == NULL || (session != NULL && (c->peer = peer_of(session)) == NULL)) {
        ls_slice_drop(&received);
        if (c != NULL) ls_h2_put_back(h2, c);
        return false;
    }
    ls_counter_add(&ls_http_thread_of(http, ctx)->http2_connections, 1);
    atomic_fetch_add_explicit(&http->http2_open, 1, memory_order_relaxed);
    c->h2 = h2;
    c->http = http;
    c->s = s;
    c->in = received;
    c->limits.budget = http->config.http2_resets_max;
    ls_node_init(&c->exchanges);
    c->deadlines = ls_stream_deadlines(s);
    ls_stream_peer(s, &c->remote);
    if (!ls_addr_is_any(&http->local) || ls_stream_local(s, &c->local) < 0) c->local = http->local;
    *(ls_h2_conn **)ls_stream_user(s) = c;
    ls_stream_handover(s, &h2->stream_handler);
    ls_stream_set_actor(s, &c->actor);
    ls_stream_unsent_max(s, LS_H2_UNSENT_MAX);
    ls_stream_send_within(s, http->config.send_stall_ms_max);
    c->listed = true;
    ls_mutex_lock(&http->mutex);
    ls_list_push(&h2->conns, &c->node);
    ls_mutex_unlock(&http->mutex);
    c->begin = (ls_op){.done = ls_h2_begin, .actor = &c->actor};
    ls_actor_post(&c->actor, ctx, &c->begin); /* a thread may still be leaving the actor */
    return true;
}

/* ---- open ------------------------------------------------------------------------------------------------------ */

static int open_library(ls_h2 *h2)
{
    nghttp2_session_callbacks *to;
    if (nghttp2_session_callbacks_new(&h2->callbacks) != 0 || nghttp2_option_new(&h2->options) != 0) return LS_ENOMEM;
    to = h2->callbacks;
    nghttp2_session_callbacks_set_on_begin_headers_callback(to, ls_h2_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(to, ls_h2_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(to, ls_h2_data_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(to, ls_h2_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(to, ls_h2_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(to, ls_h2_frame_sent);
    nghttp2_session_callbacks_set_send_data_callback(to, ls_h2_send_data);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(to, ls_h2_invalid_frame);
    nghttp2_option_set_no_auto_window_update(h2->options, 1);
    nghttp2_option_set_peer_max_concurrent_streams(h2->options, 0); /* no pushes */
    nghttp2_option_set_no_closed_streams(h2->options, 1);           /* they would be kept for RFC 7540's priorities */
    ls_h2_limit_options(h2->options);
    return LS_OK;
}

int ls_h2_open(const ls_http_config *config, const ls_http_handler *handler, ls_conn_limit *limit, unsigned threads,
               ls_http_engine **out)
{
    ls_http_engine *engine;
    const int err = ls_http1_open(config, handler, limit, threads, &engine);
    if (err < 0) return err;
    ls_h2 *h2 = calloc(1, sizeof *h2);
    if (h2 != NULL) {
        h2->part = (ls_http2_part){start, cancel, close_part};
        h2->server = LS_CONTAINER(engine, ls_http_server, engine);
        h2->server->http2 = &h2->part;
        h2->stream_handler = ls_h2_stream_handler;
        h2->stream_handler.send_rate_min = config->send_rate_min;
        h2->transport = ls_h2_transport;
        h2->transport.upgrade = ls_h2_tunnel;
        ls_node_init(&h2->conns);
    }
    if (h2 == NULL || open_library(h2) < 0) {
        engine->ops->close(engine);
        return LS_ENOMEM;
    }
    *out = engine;
    return LS_OK;
}

const char *ls_h2_library(void)
{
    static LS_THREAD_LOCAL char text[40];
    (void)snprintf(text, sizeof text, "nghttp2 %s", nghttp2_version(0)->version_str);
    return text;
}
