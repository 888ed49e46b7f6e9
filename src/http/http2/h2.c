/* h2.c - the HTTP/2 engine of a listener: its counters, its handler, and its connections from their opening to their
 * close. h2_conn.c runs them in between. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/crypto/random.h"
#include "base/os/memory.h"
#include "http/http2/h2.h"
#include "http/http2/h2_conn_internal.h"

/* ---- the engine --------------------------------------------------------------------------------------------- */

static ls_h2 *h2_of(const ls_http_engine *e)
{
    return LS_CONTAINER((uintptr_t)e, ls_h2, engine);
}

static int prepare(ls_http_engine *e, const ls_http_config *config)
{
    return ls_http_config_same(&h2_of(e)->config, config) ? LS_OK : LS_ENOTSUP;
}

static void replace(ls_http_engine *e, const ls_http_handler *handler)
{
    atomic_store(&h2_of(e)->handler, handler);
}

/* Each connection finds `draining` set when its receive ends; later ones, at their beginning. */
static uint32_t drain(ls_http_engine *e, bool all)
{
    ls_h2 *http = h2_of(e);
    const bool first = !atomic_exchange(&http->draining, true);
    ls_mutex_lock(&http->mutex);
    if (first)
        LS_LIST_EACH (ls_h2_conn, c, &http->conns, node) ls_stream_cancel_recv(c->s);
    ls_mutex_unlock(&http->mutex);
    return atomic_load(&http->open);
}

static void abort_all(ls_http_engine *e)
{
    ls_h2 *http = h2_of(e);
    atomic_store(&http->aborting, true);
    atomic_store(&http->draining, true);
    ls_mutex_lock(&http->mutex);
    LS_LIST_EACH (ls_h2_conn, c, &http->conns, node) ls_stream_cancel(c->s);
    ls_mutex_unlock(&http->mutex);
}

static void add_stats(const ls_http_engine *e, ls_http_stats *sum)
{
    const ls_h2 *http = h2_of(e);
    for (unsigned i = 0; i < http->thread_count; i++) {
        const ls_h2_thread *thread = &http->threads[i];
        sum->connections += ls_counter_read(&thread->connections);
        sum->requests += ls_counter_read(&thread->requests);
        sum->responses += ls_counter_read(&thread->responses);
        sum->refused += ls_counter_read(&thread->refused);
        sum->http2_connections += ls_counter_read(&thread->connections);
        sum->http2_refused += ls_counter_read(&thread->streams_refused);
        sum->http2_resets += ls_counter_read(&thread->resets);
        sum->http2_ended += ls_counter_read(&thread->ended);
    }
    sum->open += atomic_load(&http->open);
}

static void close_engine(ls_http_engine *e)
{
    ls_h2 *http = h2_of(e);
    assert(ls_list_empty(&http->conns));
    for (ls_h2_conn *c = http->unused, *next; c != NULL; c = next) {
        next = c->next_unused;
        ls_mutex_close(&c->lock);
        ls_arena_close(&c->memory);
        free(c);
    }
    nghttp2_session_callbacks_del(http->callbacks);
    nghttp2_option_del(http->options);
    ls_mutex_close(&http->mutex);
    ls_memory_aligned_free(http->threads);
    free(http);
}

static const ls_http_engine_ops engine_ops = {NULL, prepare, replace, drain, abort_all, add_stats, close_engine};

static int open_library(ls_h2 *http)
{
    nghttp2_session_callbacks *to;
    if (nghttp2_session_callbacks_new(&http->callbacks) != 0 || nghttp2_option_new(&http->options) != 0)
        return LS_ENOMEM;
    to = http->callbacks;
    nghttp2_session_callbacks_set_on_begin_headers_callback(to, ls_h2_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(to, ls_h2_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(to, ls_h2_data_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(to, ls_h2_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(to, ls_h2_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(to, ls_h2_frame_sent);
    nghttp2_session_callbacks_set_send_data_callback(to, ls_h2_send_data);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(to, ls_h2_invalid_frame);
    nghttp2_option_set_no_auto_window_update(http->options, 1);
    nghttp2_option_set_peer_max_concurrent_streams(http->options, 0); /* no pushes */
    nghttp2_option_set_no_closed_streams(http->options, 1); /* they would be kept for RFC 7540's priorities */
    ls_h2_limit_options(http->options);
    return LS_OK;
}

int ls_h2_open(const ls_http_config *config, const ls_http_handler *handler, ls_conn_limit *limit, unsigned threads,
               ls_http_engine **out)
{
    if (config->head.head_bytes_max > LS_BLOCK_LARGE || config->head.fields_max > LS_HTTP_FIELDS_MAX) return LS_EINVAL;
    ls_h2 *http = calloc(1, sizeof *http);
    if (http == NULL) return LS_ENOMEM;
    ls_mutex_open(&http->mutex);
    ls_node_init(&http->conns);
    http->threads = ls_memory_aligned(_Alignof(ls_h2_thread), threads * sizeof *http->threads);
    if (http->threads == NULL || open_library(http) < 0) {
        close_engine(&http->engine);
        return LS_ENOMEM;
    }
    memset(http->threads, 0, threads * sizeof *http->threads);
    for (unsigned i = 0; i < threads; i++) ls_random(&http->threads[i].next_id, sizeof http->threads[i].next_id);
    http->engine.ops = &engine_ops;
    http->stream_handler = ls_h2_stream_handler;
    http->stream_handler.send_rate_min = config->send_rate_min;
    http->config = *config;
    atomic_init(&http->handler, handler);
    http->transport = ls_h2_transport;
    http->transport.upgrade = ls_h2_tunnel;
    http->conn_limit = limit;
    http->thread_count = threads;
    *out = &http->engine;
    return LS_OK;
}

void ls_h2_local(ls_http_engine *engine, const ls_addr *local)
{
    h2_of(engine)->local = *local;
}

const char *ls_h2_library(void)
{
    static LS_THREAD_LOCAL char text[40];
    (void)snprintf(text, sizeof text, "nghttp2 %s", nghttp2_version(0)->version_str);
    return text;
}

/* ---- connections ---------------------------------------------------------------------------------------------- */

static ls_tls_peer *peer_of(const ls_filter *session)
{
    ls_tls_peer peer;
    ls_tls_peer_of(session, &peer);
    const size_t alpn_bytes = peer.alpn != NULL ? strlen(peer.alpn) + 1 : 0;
    const size_t name_bytes = peer.server_name != NULL ? strlen(peer.server_name) + 1 : 0;
    ls_tls_peer *copy = malloc(sizeof *copy + alpn_bytes + name_bytes);
    if (copy == NULL) return NULL;
    *copy = peer;
    char *texts = (char *)(copy + 1);
    if (alpn_bytes > 0) copy->alpn = memcpy(texts, peer.alpn, alpn_bytes);
    if (name_bytes > 0) copy->server_name = memcpy(texts + alpn_bytes, peer.server_name, name_bytes);
    return copy;
}

/* The connection cannot be served: no memory. `handler` is that of the opener. */
static void refuse(ls_thread_ctx *ctx, ls_h2 *http, ls_stream *s)
{
    *(ls_h2_conn **)ls_stream_user(s) = NULL;
    ls_stream_handover(s, &http->stream_handler);
    ls_stream_close(ctx, s);
}

void ls_h2_start(ls_thread_ctx *ctx, ls_stream *s, ls_http_engine *engine, ls_slice received)
{
    ls_h2 *http = h2_of(engine);
    ls_h2_conn *c = ls_h2_take_conn(http);
    const ls_filter *session = ls_stream_filter(s);
    ls_counter_add(&ls_h2_thread_of(http, ctx)->connections, 1);
    atomic_fetch_add(&http->open, 1);
    if (c == NULL || (session != NULL && (c->peer = peer_of(session)) == NULL)) {
        ls_slice_drop(&received);
        if (c != NULL) ls_h2_put_back(http, c);
        refuse(ctx, http, s);
        return;
    }
    c->http = http;
    c->s = s;
    c->in = received;
    c->limits.budget = http->config.http2_resets_max;
    ls_node_init(&c->exchanges);
    c->deadlines = ls_stream_deadlines(s);
    ls_stream_peer(s, &c->remote);
    if (!ls_addr_is_any(&http->local) || ls_stream_local(s, &c->local) < 0) c->local = http->local;
    *(ls_h2_conn **)ls_stream_user(s) = c;
    ls_stream_handover(s, &http->stream_handler);
    ls_stream_set_actor(s, &c->actor);
    ls_stream_unsent_max(s, LS_H2_UNSENT_MAX);
    ls_stream_send_within(s, http->config.send_stall_ms_max);
    c->listed = true;
    ls_mutex_lock(&http->mutex);
    ls_list_push(&http->conns, &c->node);
    ls_mutex_unlock(&http->mutex);
    c->begin = (ls_op){.done = ls_h2_begin, .actor = &c->actor};
    ls_actor_post(&c->actor, ctx, &c->begin); /* a thread may still be leaving the actor */
}
