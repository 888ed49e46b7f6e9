/* http1.c - the HTTP/1.1 engine of a listener: its counters, its handler, and its connections from their opening to
 * their close. http1_conn.c runs them in between. The engine has those of HTTP/2 as well (http2/h2.c): they share its
 * limits, its handler and its counters. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/crypto/random.h"
#include "base/os/memory.h"
#include "http/http1_internal.h"
#include "net/refused.h"
#include "net/tls/tls.h"

/* ---- the engine --------------------------------------------------------------------------------------------- */

static ls_http_server *http1_of(const ls_http_engine *e)
{
    return LS_CONTAINER((uintptr_t)e, ls_http_server, engine);
}

static int prepare(ls_http_engine *e, const ls_http_config *config)
{
    return ls_http_config_same(&http1_of(e)->config, config) ? LS_OK : LS_ENOTSUP;
}

static void replace(ls_http_engine *e, const ls_http_handler *handler)
{
    atomic_store(&http1_of(e)->handler, handler);
}

/* It has begun to wait for its next request within the last LS_HTTP_PATIENT_MS. */
static bool was_active(const ls_http_server *http, ls_http1_conn *c)
{
    const uint32_t left = ls_stream_recv_ms_left(ls_http1_stream(c));
    return (uint64_t)left + LS_HTTP_PATIENT_MS > http->config.idle_ms_max;
}

static uint32_t drain(ls_http_engine *e, bool all)
{
    ls_http_server *http = http1_of(e);
    const bool patient = e->patient && !all;
    const bool first = !atomic_exchange(&http->draining, true);
    ls_mutex_lock(&http->mutex);
    /* Each finds `draining` set when its receive ends; later ones, at their beginning. */
    if (first && http->http2 != NULL) http->http2->cancel(http->http2, ls_stream_cancel_recv);
    LS_LIST_EACH (ls_http1_conn, c, &http->conns, node) {
        uint8_t phase = atomic_load(&c->phase);
        /* The phase may change meanwhile. That is harmless: only a receive is cancelled, and the owner posts it
         * again. */
        if ((phase == LS_H1_IDLE && !(patient && was_active(http, c))) || (all && phase == LS_H1_FRESH))
            ls_stream_cancel_recv(ls_http1_stream(c));
    }
    ls_mutex_unlock(&http->mutex);
    return atomic_load(&http->open);
}

static void abort_all(ls_http_engine *e)
{
    ls_http_server *http = http1_of(e);
    atomic_store(&http->aborting, true);
    atomic_store(&http->draining, true);
    ls_mutex_lock(&http->mutex);
    if (http->http2 != NULL) http->http2->cancel(http->http2, ls_stream_cancel);
    LS_LIST_EACH (ls_http1_conn, c, &http->conns, node) ls_stream_cancel(ls_http1_stream(c));
    ls_mutex_unlock(&http->mutex);
}

static void add_stats(const ls_http_engine *e, ls_http_stats *sum)
{
    const ls_http_server *http = http1_of(e);
    for (unsigned i = 0; i < http->thread_count; i++) {
        const ls_http_thread *thread = &http->threads[i];
        sum->connections += ls_counter_read(&thread->connections);
        sum->requests += ls_counter_read(&thread->requests);
        sum->responses += ls_counter_read(&thread->responses);
        sum->refused += ls_counter_read(&thread->refused);
        sum->http2_connections += ls_counter_read(&thread->http2_connections);
        sum->http2_refused += ls_counter_read(&thread->http2_refused);
        sum->http2_resets += ls_counter_read(&thread->http2_resets);
        sum->http2_ended += ls_counter_read(&thread->http2_ended);
    }
    sum->http2_open += atomic_load_explicit(&http->http2_open, memory_order_relaxed);
    sum->open += atomic_load(&http->open); /* after 0 the owner may close `http`, so the last accesses come before */
}

static void close_engine(ls_http_engine *e)
{
    ls_http_server *http = http1_of(e);
    assert(ls_list_empty(&http->conns));
    if (http->http2 != NULL) http->http2->close(http->http2);
    ls_mutex_close(&http->mutex);
    ls_memory_aligned_free(http->threads);
    free(http);
}

static const ls_http_engine_ops engine_ops = {NULL, prepare, replace, drain, abort_all, add_stats, close_engine};

int ls_http1_open(const ls_http_config *config, const ls_http_handler *handler, ls_conn_limit *limit, unsigned threads,
                  ls_http_engine **out)
{
    if (config->head.head_bytes_max > LS_BLOCK_LARGE || config->head.fields_max > LS_HTTP_FIELDS_MAX) return LS_EINVAL;
    ls_http_server *http = calloc(1, sizeof *http);
    if (http == NULL) return LS_ENOMEM;
    http->threads = ls_memory_aligned(_Alignof(ls_http_thread), threads * sizeof *http->threads);
    if (http->threads == NULL) {
        free(http);
        return LS_ENOMEM;
    }
    memset(http->threads, 0, threads * sizeof *http->threads);
    for (unsigned i = 0; i < threads; i++) ls_random(&http->threads[i].next_id, sizeof http->threads[i].next_id);
    ls_mutex_open(&http->mutex);
    http->engine.ops = &engine_ops;
    http->stream_handler = ls_http1_stream_handler;
    http->stream_handler.send_rate_min = config->send_rate_min;
    http->config = *config;
    atomic_init(&http->handler, handler);
    http->conn_limit = limit;
    http->thread_count = threads;
    ls_node_init(&http->conns);
    *out = &http->engine;
    return LS_OK;
}

void ls_http1_local(ls_http_engine *engine, const ls_addr *local)
{
    http1_of(engine)->local = *local;
}

/* ---- open and close a connection ---------------------------------------------------------------------------- */

const size_t ls_http1_user_bytes = sizeof(ls_http1_conn);

static bool has_lease(const ls_http_config *config)
{
    return config->requests_max > 0 || config->conn_ms_max > 0;
}

size_t ls_http1_room(const ls_http_config *config)
{
    return sizeof(ls_http1_conn) + (has_lease(config) ? sizeof(ls_http1_lease) : 0);
}

bool ls_http1_is_last(ls_http1_conn *c)
{
    const ls_http_config *config = &ls_http1_engine(c)->config;
    ls_http1_lease *lease = (ls_http1_lease *)(c + 1);
    if (!has_lease(config)) return false;
    lease->requests++;
    return (config->requests_max > 0 && lease->requests >= config->requests_max) ||
           (config->conn_ms_max > 0 && ls_clock_coarse_ms() >= lease->ends_ms);
}

void ls_http1_start(ls_thread_ctx *ctx, ls_stream *s, void *engine)
{
    ls_http_server *http = http1_of(engine);
    ls_http1_conn *c = ls_stream_user(s);
    ls_stream_handover(s, &http->stream_handler);
    atomic_store_explicit(&c->holders, 1, memory_order_relaxed);
    ls_stream_send_within(s, http->config.send_stall_ms_max);
    ls_counter_add(&ls_http_thread_of(http, ctx)->connections, 1);
    atomic_fetch_add(&http->open, 1);
    const ls_filter *session = ls_stream_filter(s);
    if (http->http2 != NULL && session != NULL && ls_tls_speaks(session, "h2")) {
        if (!http->http2->start(ctx, s, http->http2, ls_slice_static(NULL, 0))) ls_stream_close(ctx, s);
        return;
    }
    if (has_lease(&http->config))
        *(ls_http1_lease *)(c + 1) = (ls_http1_lease){.ends_ms = ls_clock_coarse_ms() + http->config.conn_ms_max};
    ls_mutex_lock(&http->mutex);
    ls_list_push(&http->conns, &c->node);
    ls_mutex_unlock(&http->mutex);

    ls_http1_set_phase(c, LS_H1_FRESH);
    ls_stream_recv_within(s, http->config.head_ms_max);
    ls_http1_run(ctx, c, NULL);
}

void ls_http1_conn_unlist(ls_http1_conn *c)
{
    ls_mutex_lock(&ls_http1_engine(c)->mutex);
    ls_list_remove(&c->node);
    ls_mutex_unlock(&ls_http1_engine(c)->mutex);
}

void ls_http1_conn_close(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    if (c->exchange != NULL) ls_http1_drop_exchange(ctx, c);
    ls_http1_drop_received(c);
    ls_http_server *const http = ls_http1_engine(c);
    ls_stream *const s = ls_http1_stream(c);
    /* Without memory for an error response a send may be pending: cancel it. */
    c->lingers = c->linger && !ls_stream_sending(s) && !atomic_load(&http->aborting);
    if (c->lingers) {
        ls_stream_linger(ctx, s, http->config.linger_ms_max);
        return;
    }
    ls_http1_conn_unlist(c);
    ls_stream_close(ctx, s);
}

void ls_http1_conn_lost(ls_thread_ctx *ctx, ls_http1_conn *c, int err)
{
    if (err < 0 && c->exchange != NULL) ls_http1_exchange_of(c)->x.error = err;
    ls_http1_conn_close(ctx, c);
}

/* Whether the third word of a request line is another than the version of HTTP. */
static bool has_other_version(const char *at, size_t len)
{
    static const char name[] = "HTTP/";
    const char *const end = at + len;
    for (int words = 0; words < 2; words++, at++)
        if ((at = memchr(at, ' ', (size_t)(end - at))) == NULL) return false;
    const size_t have = (size_t)(end - at) < sizeof name - 1 ? (size_t)(end - at) : sizeof name - 1;
    return memcmp(at, name, have) != 0;
}

/* The parser has refused the bytes, at the first one that a request cannot have there: so they may be the beginning of
 * the preface. A first line that is of neither protocol is an invalid preface (RFC 9113 section 3.4). */
bool ls_http1_is_http2(const ls_http1_conn *c)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    enum { ENOUGH = sizeof "PRI *" - 1 };
    const char *const at = c->in->data + c->in->from;
    const size_t have = ls_http1_unparsed(c), len = have < sizeof preface - 1 ? have : sizeof preface - 1;
    const ls_http_server *http = ls_http1_engine(c);
    return http->http2 != NULL && http->config.http2 && !c->began && len >= ENOUGH &&
           (memcmp(at, preface, len) == 0 || has_other_version(at, have));
}

void ls_http1_leave(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    ls_http_server *http = ls_http1_engine(c);
    ls_stream *const s = ls_http1_stream(c);
    const ls_slice received = {c->in, c->in->data + c->in->from, ls_http1_unparsed(c)};
    ls_http1_conn_unlist(c);
    if (!http->http2->start(ctx, s, http->http2, received)) ls_stream_close(ctx, s);
}

void ls_http1_conn_drop(ls_http1_conn *c)
{
    ls_http_server *http = ls_http1_engine(c);
    if (atomic_fetch_sub(&c->holders, 1) != 1) return;
    ls_stream_free(ls_http1_stream(c));
    atomic_fetch_sub(&http->open, 1); /* the last access: at 0 the owner may close `http` */
}

void ls_http1_closed(ls_thread_ctx *ctx, ls_stream *s)
{
    ls_http1_conn *c = ls_stream_user(s);
    ls_conn_limit *limit = ls_http1_engine(c)->conn_limit;
    if (c->lingers) ls_http1_conn_unlist(c);
    ls_http1_conn_drop(c);
    ls_conn_limit_leave(limit); /* here, because a lingering connection still has its socket */
}

void ls_http1_send_last(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    ls_http1_set_phase(c, LS_H1_LAST);
    ls_stream *const s = ls_http1_stream(c);
    ls_stream_set_actor(s, NULL);
    if (!ls_stream_sending(s)) ls_stream_cork_fin(s);
    const int err = ls_http1_send_out(ctx, c);
    if (err != LS_PENDING && !ls_http1_end_changed(ctx, c, err)) ls_http1_conn_lost(ctx, c, err);
}

bool ls_http1_end_changed(ls_thread_ctx *ctx, ls_http1_conn *c, int err)
{
    if (err != LS_ECHANGED || !ls_stream_may_send(ls_http1_stream(c)) || c->pipelined) return false;
    if (c->exchange != NULL) ls_http1_exchange_of(c)->x.status = 503;
    ls_http1_end_with_error(ctx, c, 503, "the file has changed");
    return true;
}

void ls_http1_end_with_error(ls_thread_ctx *ctx, ls_http1_conn *c, int status, const char *why)
{
    char text[LS_ADDR_TEXT_BYTES];
    ls_addr peer;
    ls_stream_peer(ls_http1_stream(c), &peer);
    ls_refused_log("%s %d: %s", ls_addr_logged(&peer, text), status, why);
    c->linger = true;
    if (ls_http1_send_error(ctx, c, status, why) < 0)
        ls_http1_conn_close(ctx, c);
    else
        ls_http1_send_last(ctx, c);
}
