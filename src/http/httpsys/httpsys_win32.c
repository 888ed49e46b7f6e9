/* httpsys_win32.c - the HTTP Server API: session, request queue, URLs, and the receives on the queue.
 *
 * A receive returns the head of one request. It is posted again as soon as the handler has responded or suspended,
 * without a wait for the send. Receives that complete at once are served in the same loop: at most RUN_MAX, or as many
 * as the port allows (port.h); then other packets run. A head that does not fit is received a second time, by its
 * request ID, into a large block.
 *
 *     live = receives that are pending, being served, deferred, or waiting for their timer + open requests
 *
 * This sum is one atomic number. Two numbers, read one after the other, could miss a request whose receive ended in
 * between. A receive or request that subtracts itself from `live` does not access the ls_httpsys afterwards.
 *
 * The code follows the reference of the HTTP Server API 2.0 in the Windows documentation. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/crypto/random.h"
#include "base/io/log.h"
#include "base/os/memory.h"
#include "http/httpsys/httpsys_internal_win32.h"

enum {
    RETRY_MS = 100,
    TIMEOUT_S_MAX = 65535,
    RUN_MAX = 64 /* requests that one packet serves, when receives complete at once */
};

/* ---- open and close ----------------------------------------------------------------------------------------- */

static const HTTPAPI_VERSION version = HTTPAPI_VERSION_2;

static int refused(const char *what, ULONG error, char *message, size_t message_bytes)
{
    const int err = ls_err_from_win32(error);
    (void)snprintf(message, message_bytes, "the HTTP Server API cannot %s: %s (error %lu)", what, ls_err_text(err),
                   error);
    return err;
}

static USHORT seconds_of(uint32_t ms)
{
    const uint32_t s = (ms + 999) / 1000;
    return (USHORT)(s == 0 ? 1 : s > TIMEOUT_S_MAX ? TIMEOUT_S_MAX : s);
}

static const ls_http_config *find_config(const ls_httpsys *http, const ls_http_config *config)
{
    for (const ls_httpsys_config *at = http->configs; at != NULL; at = at->next)
        if (ls_http_config_same(&at->config, config)) return &at->config;
    return NULL;
}

static const ls_http_engine_ops engine_ops;

static ls_httpsys *httpsys_of(const ls_http_engine *e)
{
    return LS_CONTAINER((uintptr_t)e, ls_httpsys, engine);
}

static int prepare(ls_http_engine *e, const ls_http_config *config)
{
    ls_httpsys *http = httpsys_of(e);
    if ((http->prepared = find_config(http, config)) != NULL) return LS_OK;
    ls_httpsys_config *own = malloc(sizeof *own);
    if (own == NULL) return LS_ENOMEM;
    *own = (ls_httpsys_config){http->configs, *config};
    http->configs = own;
    http->prepared = &own->config;
    return LS_OK;
}

/* Pass the timeouts that http.sys applies itself. If it refuses them, its defaults apply. */
static void set_timeouts(ls_httpsys *http)
{
    const ls_http_config *const config = atomic_load(&http->config);
    HTTP_TIMEOUT_LIMIT_INFO limits = {.Flags = {.Present = 1},
                                      .EntityBody = seconds_of(config->body_grace_ms),
                                      .IdleConnection = seconds_of(config->idle_ms_max),
                                      .HeaderWait = seconds_of(config->head_ms_max),
                                      .MinSendRate = config->send_rate_min > 0 ? config->send_rate_min : ULONG_MAX};
    const ULONG error =
        http->api.SetServerSessionProperty(http->session, HttpServerTimeoutsProperty, &limits, sizeof limits);
    if (error != NO_ERROR) ls_log(LS_LOG_DEBUG, "http.sys keeps its own timeouts (error %lu)", error);
}

static void replace(ls_http_engine *e, const ls_http_handler *handler)
{
    ls_httpsys *http = httpsys_of(e);
    if (atomic_exchange(&http->config, http->prepared) != http->prepared) set_timeouts(http);
    atomic_store(&http->handler, handler);
}

static ULONG open_group(ls_httpsys *http, HTTP_URL_GROUP_ID *out)
{
    HTTP_BINDING_INFO binding = {.Flags = {.Present = 1}, .RequestQueueHandle = http->queue};
    HTTP_URL_GROUP_ID group;
    ULONG error = http->api.CreateUrlGroup(http->session, &group, 0);
    if (error != NO_ERROR) return error;
    error = http->api.SetUrlGroupProperty(group, HttpServerBindingProperty, &binding, sizeof binding);
    if (error == NO_ERROR)
        *out = group;
    else
        http->api.CloseUrlGroup(group);
    return error;
}

/* Add the URL to the group of the previous URLs if possible: Wine 8.0 has only one URL per group. */
static ULONG add_url(ls_httpsys *http, wchar_t *text)
{
    HTTP_URL_GROUP_ID group;
    ULONG error = ERROR_CALL_NOT_IMPLEMENTED;
    if (http->url_count > 0) {
        group = http->urls[http->url_count - 1].group;
        error = http->api.AddUrlToUrlGroup(group, text, 0, 0);
    }
    if (error == ERROR_CALL_NOT_IMPLEMENTED) {
        if ((error = open_group(http, &group)) != NO_ERROR) return error;
        error = http->api.AddUrlToUrlGroup(group, text, 0, 0);
        if (error != NO_ERROR) http->api.CloseUrlGroup(group);
    }
    if (error == NO_ERROR) http->urls[http->url_count++] = (ls_httpsys_url){group, text};
    return error;
}

static int add_urls(ls_httpsys *http, const char *urls, char *message, size_t message_bytes)
{
    for (const char *url = urls; *url != '\0'; url += strlen(url) + 1) {
        if (http->url_count == LS_HTTPSYS_URLS_MAX) {
            (void)snprintf(message, message_bytes, "more than %d URLs", LS_HTTPSYS_URLS_MAX);
            return LS_ELIMIT;
        }
        const int units = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, url, -1, NULL, 0);
        wchar_t *text = units > 0 ? malloc((size_t)units * sizeof *text) : NULL;
        if (text == NULL) {
            (void)snprintf(message, message_bytes, units > 0 ? "out of memory" : "the URL %s is not valid UTF-8", url);
            return units > 0 ? LS_ENOMEM : LS_EINVAL;
        }
        (void)MultiByteToWideChar(CP_UTF8, 0, url, -1, text, units);
        const ULONG error = add_url(http, text);
        if (error != NO_ERROR) {
            free(text);
            ls_httpsys_explain(url, error, message, message_bytes);
            return ls_err_from_win32(error);
        }
    }
    return LS_OK;
}

static void remove_urls(ls_httpsys *http)
{
    HTTP_URL_GROUP_ID last = 0;
    for (unsigned i = 0; i < http->url_count; i++) {
        (void)http->api.RemoveUrlFromUrlGroup(http->urls[i].group, http->urls[i].text, 0);
        free(http->urls[i].text);
        http->urls[i].text = NULL;
    }
    for (unsigned i = 0; i < http->url_count; i++) {
        if (http->urls[i].group != last) (void)http->api.CloseUrlGroup(http->urls[i].group);
        last = http->urls[i].group;
    }
    http->url_count = 0;
}

static void receive_ended(ls_thread_ctx *ctx, ls_op *op);
static void receive_retry(ls_thread_ctx *ctx, ls_op *op);

static int make_memory(ls_httpsys *http, const ls_httpsys_options *options)
{
    http->receives = calloc(options->receives, sizeof *http->receives);
    http->threads = ls_memory_aligned(_Alignof(ls_httpsys_thread), options->threads * sizeof *http->threads);
    if (http->receives == NULL || http->threads == NULL) return LS_ENOMEM;
    http->receive_count = options->receives;
    http->thread_count = options->threads;
    memset(http->threads, 0, options->threads * sizeof *http->threads);
    for (unsigned i = 0; i < options->threads; i++)
        ls_random(&http->threads[i].next_id, sizeof http->threads[i].next_id);
    for (unsigned i = 0; i < options->receives; i++) {
        ls_httpsys_receive *r = &http->receives[i];
        r->http = http;
        r->id = HTTP_NULL_ID;
        r->io.op.done = receive_ended;
        r->retry.op.done = receive_retry;
    }
    return LS_OK;
}

static void free_memory(ls_httpsys *http)
{
    while (http->configs != NULL) {
        ls_httpsys_config *const first = http->configs;
        http->configs = first->next;
        free(first);
    }
    free(http->receives);
    ls_memory_aligned_free(http->threads);
    free(http);
}

int ls_httpsys_open_with(const ls_httpsys_api *api, ls_port *port, const ls_httpsys_options *options,
                         ls_http_engine **out, char *message, size_t message_bytes)
{
    int err = LS_ENOMEM;
    ULONG error;
    (void)snprintf(message, message_bytes, "%s", ls_err_text(err));
    ls_httpsys *http = calloc(1, sizeof *http);
    if (http == NULL) return err;
    http->engine.ops = &engine_ops;
    http->api = *api;
    http->port = port;
    atomic_init(&http->handler, options->handler);
    http->requests_max = options->requests_max;
    if ((err = make_memory(http, options)) < 0 || (err = prepare(&http->engine, options->config)) < 0)
        goto fail_memory;
    ls_mutex_open(&http->mutex);

    atomic_init(&http->config, http->prepared);
    if ((error = api->Initialize(version, HTTP_INITIALIZE_SERVER, NULL)) != NO_ERROR) {
        err = refused("initialize", error, message, message_bytes);
        goto fail_mutex;
    }
    if ((error = api->CreateServerSession(version, &http->session, 0)) != NO_ERROR) {
        err = refused("open a session", error, message, message_bytes);
        goto fail_initialized;
    }
    set_timeouts(http);
    if ((error = api->CreateRequestQueue(version, NULL, NULL, 0, &http->queue)) != NO_ERROR) {
        err = refused("create a request queue", error, message, message_bytes);
        goto fail_session;
    }
    if ((err = ls_port_bind(port, http->queue)) < 0) {
        (void)snprintf(message, message_bytes, "cannot bind the request queue of http.sys to the completion port: %s",
                       ls_err_text(err));
        goto fail_queue;
    }
    if ((err = add_urls(http, options->urls, message, message_bytes)) < 0) goto fail_urls;
    *out = &http->engine;
    return LS_OK;

fail_urls:
    remove_urls(http);
fail_queue:
    (void)api->CloseRequestQueue(http->queue);
fail_session:
    (void)api->CloseServerSession(http->session);
fail_initialized:
    (void)api->Terminate(HTTP_INITIALIZE_SERVER, NULL);
fail_mutex:
    ls_mutex_close(&http->mutex);
fail_memory:
    free_memory(http);
    return err;
}

bool ls_httpsys_supported(void)
{
    return true;
}

int ls_httpsys_open(ls_port *port, const ls_httpsys_options *options, ls_http_engine **out, char *message,
                    size_t message_bytes)
{
    ls_httpsys_api api;
    const int err = ls_httpsys_api_load(&api);
    if (err == LS_OK) return ls_httpsys_open_with(&api, port, options, out, message, message_bytes);
    (void)snprintf(message, message_bytes,
                   "the engine \"http.sys\" needs the HTTP Server API 2.0 (httpapi.dll), which this system does not "
                   "have; use the engine \"luaserve\"");
    return err;
}

static void close_engine(ls_http_engine *e)
{
    ls_httpsys *http = httpsys_of(e);
    assert(atomic_load(&http->live) == 0);
    remove_urls(http);
    (void)http->api.CloseRequestQueue(http->queue);
    (void)http->api.CloseServerSession(http->session);
    (void)http->api.Terminate(HTTP_INITIALIZE_SERVER, NULL);
    ls_mutex_close(&http->mutex);
    free_memory(http);
}

/* ---- the receives ------------------------------------------------------------------------------------------- */

static void retire(ls_httpsys_receive *r)
{
    if (r->buffer != NULL) ls_block_drop(r->buffer);
    r->buffer = NULL;
    atomic_fetch_sub(&r->http->live, 1); /* the last access */
}

/* Put the receive on the list `deferred` if the limit of requests is reached. True: it waits there until a request
 * ends. */
static bool defer(ls_httpsys_receive *r)
{
    ls_httpsys *http = r->http;
    if (atomic_load(&http->open) < http->requests_max || r->id != HTTP_NULL_ID) return false;
    ls_mutex_lock(&http->mutex);
    const bool defers = atomic_load(&http->open) >= http->requests_max && !atomic_load(&http->stopping);
    if (defers) {
        r->next_deferred = http->deferred;
        http->deferred = r;
    }
    ls_mutex_unlock(&http->mutex);
    return defers;
}

static ls_httpsys_receive *take_deferred(ls_httpsys *http)
{
    ls_mutex_lock(&http->mutex);
    ls_httpsys_receive *r = http->deferred;
    if (r != NULL) http->deferred = r->next_deferred;
    ls_mutex_unlock(&http->mutex);
    return r;
}

static void retry_later(ls_httpsys_receive *r)
{
    if (ls_timer_set(r->http->port, &r->retry, ls_clock_ns() + RETRY_MS * UINT64_C(1000000)) == LS_OK) return;
    ls_log(LS_LOG_ERROR, "out of memory: the request queue of http.sys has one receive less");
    retire(r);
}

static ULONG room_of(const ls_block *buffer)
{
    return buffer->cap - LS_HTTPSYS_NAMES_BYTES;
}

/* The head is larger than its buffer: use a large block, or refuse the request. */
static void more_data(ls_thread_ctx *ctx, ls_httpsys_receive *r)
{
    const HTTP_REQUEST_ID id = ((const HTTP_REQUEST *)(const void *)r->buffer->data)->RequestId;
    if (r->buffer->cap == LS_BLOCK_LARGE) {
        r->id = HTTP_NULL_ID;
        ls_httpsys_serve_too_large(ctx, r->http, id);
        return;
    }
    ls_block_drop(r->buffer);
    r->buffer = NULL;
    r->id = id;
}

/* A receive has completed: handle its result. False: do not post it again now. */
static bool received(ls_thread_ctx *ctx, ls_httpsys_receive *r)
{
    ls_httpsys *http = r->http;
    ls_block *buffer = r->buffer;
    switch (r->io.error) {
    case NO_ERROR:
        r->buffer = NULL;
        r->id = HTTP_NULL_ID;
        ls_httpsys_serve(ctx, http, buffer);
        return true;
    case ERROR_MORE_DATA: more_data(ctx, r); return true;
    default: break;
    }
    if (r->id != HTTP_NULL_ID) { /* that connection is closed: ERROR_CONNECTION_INVALID, or another error */
        r->id = HTTP_NULL_ID;
        return true;
    }
    if (atomic_load(&http->stopping)) {
        retire(r);
        return false;
    }
    if (!atomic_exchange(&http->receive_error_logged, true))
        ls_log(LS_LOG_ERROR, "http.sys refuses a receive (error %lu); retrying", (ULONG)r->io.error);
    retry_later(r);
    return false;
}

static void post(ls_thread_ctx *ctx, ls_httpsys_receive *r)
{
    ls_httpsys *http = r->http;
    unsigned run = 0;
    do {
        if (atomic_load(&http->stopping)) {
            retire(r);
            return;
        }
        if (run++ == RUN_MAX) {
            ls_port_post(http->port, &r->retry.op, 0);
            return;
        }
        if (defer(r)) return;
        if (r->buffer == NULL)
            r->buffer = ls_block_get(ctx->pool, r->id == HTTP_NULL_ID ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
        if (r->buffer == NULL) {
            retry_later(r);
            return;
        }
        ls_overlapped_prepare(&r->io);
        const ULONG error =
            http->api.ReceiveHttpRequest(http->queue, r->id, 0, (HTTP_REQUEST *)(void *)r->buffer->data,
                                         room_of(r->buffer), NULL, &r->io.overlapped);
        if (ls_overlapped_posted(ctx, &r->io, error, false) == LS_PENDING) return;
    } while (received(ctx, r));
}

static void receive_ended(ls_thread_ctx *ctx, ls_op *op)
{
    ls_httpsys_receive *r = LS_CONTAINER(op, ls_httpsys_receive, io.op);
    if (received(ctx, r)) post(ctx, r);
}

static void receive_retry(ls_thread_ctx *ctx, ls_op *op)
{
    post(ctx, LS_CONTAINER(op, ls_httpsys_receive, retry.op));
}

void ls_httpsys_request_ended(ls_httpsys *http)
{
    atomic_fetch_sub(&http->open, 1); /* before take_deferred: see defer */
    /* The receive is not posted here: this is deep in the stack of the ended request, and may be inside an actor. */
    ls_httpsys_receive *r = take_deferred(http);
    if (r != NULL) ls_port_post(http->port, &r->retry.op, 0);
    atomic_fetch_sub(&http->live, 1); /* the last access */
}

static void start(ls_thread_ctx *ctx, ls_http_engine *e)
{
    ls_httpsys *http = httpsys_of(e);
    atomic_store(&http->live, http->receive_count);
    for (unsigned i = 0; i < http->receive_count; i++) post(ctx, &http->receives[i]);
}

/* ---- drain -------------------------------------------------------------------------------------------------- */

static void stop_receives(ls_httpsys *http)
{
    ls_httpsys_receive *r;
    ls_mutex_lock(&http->mutex);
    atomic_store(&http->stopping, true);
    ls_mutex_unlock(&http->mutex);
    while ((r = take_deferred(http)) != NULL) retire(r);
    for (unsigned i = 0; i < http->receive_count; i++)
        (void)http->api.CancelIoEx(http->queue, &http->receives[i].io.overlapped); /* no effect unless pending */
    for (unsigned i = 0; i < http->receive_count; i++)
        if (ls_timer_cancel(http->port, &http->receives[i].retry)) retire(&http->receives[i]);
}

static void shut_down(ls_httpsys *http)
{
    if (!atomic_exchange(&http->queue_shut_down, true) && http->api.ShutdownRequestQueue != NULL)
        (void)http->api.ShutdownRequestQueue(http->queue);
}

/* HttpShutdownRequestQueue also cancels received requests: so it is called last. */
uint32_t ls_httpsys_drain(ls_http_engine *e, bool all)
{
    ls_httpsys *http = httpsys_of(e);
    if (!atomic_exchange(&http->draining, true)) remove_urls(http);
    if (atomic_load(&http->open) > 0 && !atomic_load(&http->stopping)) return atomic_load(&http->live);
    if (atomic_load(&http->live) > 0) stop_receives(http);
    const uint32_t left = atomic_load(&http->live);
    if (left == 0) shut_down(http);
    return left;
}

/* http.sys cancels the current requests and closes their connections. */
static void abort_all(ls_http_engine *e)
{
    ls_httpsys *http = httpsys_of(e);
    atomic_store(&http->draining, true);
    stop_receives(http);
    shut_down(http);
}

static void add_stats(const ls_http_engine *e, ls_http_stats *sum)
{
    const ls_httpsys *http = httpsys_of(e);
    for (unsigned i = 0; i < http->thread_count; i++) {
        const ls_httpsys_thread *thread = &http->threads[i];
        sum->requests += atomic_load_explicit(&thread->requests, memory_order_relaxed);
        sum->responses += atomic_load_explicit(&thread->responses, memory_order_relaxed);
        sum->refused += atomic_load_explicit(&thread->refused, memory_order_relaxed);
    }
    sum->open += atomic_load_explicit(&http->open, memory_order_relaxed);
}

static const ls_http_engine_ops engine_ops = {start,     prepare,   replace,     ls_httpsys_drain,
                                              abort_all, add_stats, close_engine};
