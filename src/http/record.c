/* record.c - see record.h. */
#include "http/record.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/os/thread.h"
#include "http/exchange_out.h"

static void tell(ls_thread_ctx *ctx, const ls_recorder *recorder, const ls_record *record)
{
    for (unsigned n = 0; n < recorder->count; n++) recorder->sinks[n]->ended(recorder->sinks[n], ctx, record);
}

/* Whether the error is one of the connection, and not of the handler or of the stop of the server. */
static bool is_loss(int err)
{
    return err == LS_ERESET || err == LS_EPIPE || err == LS_ECLOSED || err == LS_ETIMEDOUT;
}

static enum ls_record_end end_of(const ls_exchange *x)
{
    if (x->refused) return LS_RECORD_REFUSED;
    if (ls_exchange_is_complete(x) || ls_exchange_upgraded(x)) return LS_RECORD_COMPLETE;
    return is_loss(x->error) ? LS_RECORD_LEFT : LS_RECORD_ABORTED;
}

static int status_of(const ls_exchange *x, enum ls_record_end end)
{
    if (x->response != LS_RESPONSE_NONE) return x->status;
    return end == LS_RECORD_REFUSED ? 400 : end == LS_RECORD_LEFT ? 499 : 444;
}

void ls_record_end(ls_thread_ctx *ctx, ls_exchange *x)
{
    static const char *const protocols[] = {"HTTP/1.0", "HTTP/1.1", "HTTP/2.0"};
    const enum ls_record_end end = end_of(x);
    const uint64_t now_ns = ls_clock_ns();
    const ls_record_more *more = x->record_more != NULL ? (void *)x->record_more->data : NULL;
    const ls_record record = {.x = x,
                              .remote = x->remote,
                              .client = more != NULL && more->has_client ? &more->client : x->remote,
                              .route = x->route,
                              .more = more,
                              .protocol = protocols[x->head.version == 10   ? 0
                                                    : x->head.version == 20 ? 2
                                                                            : 1],
                              .secure = x->secure,
                              .end = end,
                              .status = status_of(x, end),
                              .began_ns = x->began_ns,
                              .first_ns = x->first_ns == 1 ? now_ns : x->first_ns,
                              .ended_ns = now_ns,
                              .received = x->head.bytes + x->body_bytes,
                              .sent = ls_exchange_body_sent(x)};
    tell(ctx, x->recorder, &record);
    if (x->record_more != NULL) ls_block_drop(x->record_more);
    x->recorder = NULL;
}

void ls_record_refused(ls_thread_ctx *ctx, const ls_http_handler *handler, const ls_record *refused)
{
    ls_record record = *refused;
    const ls_text received = record.line;
    const size_t most = received.len < LS_RECORD_LINE_BYTES_MAX ? received.len : LS_RECORD_LINE_BYTES_MAX;
    size_t len = 0;
    while (len < most && received.ptr[len] != '\r' && received.ptr[len] != '\n') len++;
    record.line.len = len;
    record.client = record.remote;
    record.protocol = "HTTP/1.1";
    record.end = LS_RECORD_REFUSED;
    record.first_ns = record.ended_ns = ls_clock_ns();
    record.received = received.len;
    tell(ctx, handler->recorder, &record);
}

ls_record_more *ls_record_more_of(ls_thread_ctx *ctx, ls_exchange *x)
{
    _Static_assert(sizeof(ls_record_more) <= LS_BLOCK_SMALL, "a block has room for it");
    if (x->recorder == NULL) return NULL;
    if (x->record_more == NULL && (x->record_more = ls_block_get(ctx->pool, LS_BLOCK_SMALL)) != NULL)
        memset(x->record_more->data, 0, sizeof(ls_record_more));
    return x->record_more != NULL ? (void *)x->record_more->data : NULL;
}

void ls_record_upstream_begin(ls_thread_ctx *ctx, ls_exchange *x, const ls_addr *addr)
{
    ls_record_more *more = ls_record_more_of(ctx, x);
    if (more == NULL || more->upstream_count++ >= LS_RECORD_UPSTREAMS_MAX) return;
    more->upstreams[more->upstream_count - 1] = (ls_record_upstream){.addr = *addr, .began_ns = ls_clock_ns()};
}

void ls_record_upstream_end(ls_exchange *x, int status)
{
    if (x->recorder == NULL || x->record_more == NULL) return;
    ls_record_more *more = (void *)x->record_more->data;
    if (more->upstream_count == 0 || more->upstream_count > LS_RECORD_UPSTREAMS_MAX) return;
    ls_record_upstream *last = &more->upstreams[more->upstream_count - 1];
    if (last->ended_ns != 0) return;
    last->ended_ns = ls_clock_ns();
    last->status = status;
}

/* ---- the routes and recorders of a server ------------------------------------------------------------------------ */

enum { SLOTS = 2 * LS_ROUTES_MAX };

struct ls_records {
    ls_mutex lock; /* guards what follows, but readers of routes */
    ls_recorder *recorders;
    ls_route *by_text[SLOTS]; /* a hash table */
    _Atomic(ls_route *) routes[LS_ROUTES_MAX];
    _Atomic unsigned count;
};

int ls_records_open(ls_records **out)
{
    ls_records *all = calloc(1, sizeof *all); /* few of its pages are used */
    if (all == NULL) return LS_ENOMEM;
    ls_mutex_open(&all->lock);
    *out = all;
    return LS_OK;
}

void ls_records_close(ls_records *all)
{
    for (ls_recorder *r = all->recorders, *next; r != NULL; r = next) {
        next = r->next;
        free(r);
    }
    for (unsigned n = 0; n < all->count; n++) free(all->routes[n]);
    ls_mutex_close(&all->lock);
    free(all);
}

static bool is_route(const ls_route *route, const char *text, size_t len, const char *host)
{
    return route->len == len && memcmp(route->pattern, text, len) == 0 && strcmp(route->host, host) == 0;
}

static ls_route *find_or_make(ls_records *all, const char *text, size_t len, const char *host)
{
    const size_t host_bytes = strlen(host) + 1;
    size_t at = ls_text_hash(text, len) % SLOTS;
    for (; all->by_text[at] != NULL; at = (at + 1) % SLOTS)
        if (is_route(all->by_text[at], text, len, host)) return all->by_text[at];
    ls_route *route = all->count < LS_ROUTES_MAX ? malloc(sizeof *route + len + 1 + host_bytes) : NULL;
    if (route == NULL) return NULL;
    *route = (ls_route){.number = all->count + 1, .len = (uint32_t)len, .host = route->pattern + len + 1};
    memcpy(route->pattern + len + 1, host, host_bytes);
    memcpy(route->pattern, text, len);
    route->pattern[len] = '\0';
    all->by_text[at] = route;
    all->routes[all->count] = route;
    atomic_store_explicit(&all->count, route->number, memory_order_release);
    return route;
}

ls_route *ls_records_route(ls_records *all, const char *text, size_t len, const char *host)
{
    ls_mutex_lock(&all->lock);
    ls_route *route = find_or_make(all, text, len, host);
    ls_mutex_unlock(&all->lock);
    return route;
}

unsigned ls_records_route_count(const ls_records *all)
{
    return atomic_load_explicit(&all->count, memory_order_acquire);
}

const ls_route *ls_records_route_at(const ls_records *all, unsigned number)
{
    return atomic_load_explicit(&all->routes[number - 1], memory_order_relaxed);
}

static int add_sink(ls_records *all, const ls_recorder **recorder, ls_record_sink *sink)
{
    ls_recorder wanted = {.count = 0}, *r = all->recorders;
    if (*recorder != NULL) wanted = **recorder;
    for (unsigned n = 0; n < wanted.count; n++)
        if (wanted.sinks[n] == sink) return LS_OK;
    if (wanted.count == LS_RECORD_SINKS_MAX) return LS_ELIMIT;
    wanted.sinks[wanted.count++] = sink;
    while (r != NULL && memcmp(r->sinks, wanted.sinks, sizeof r->sinks) != 0) r = r->next;
    if (r == NULL) {
        if ((r = malloc(sizeof *r)) == NULL) return LS_ENOMEM;
        *r = wanted;
        r->next = all->recorders;
        all->recorders = r;
    }
    *recorder = r;
    return LS_OK;
}

int ls_records_with(ls_records *all, const ls_recorder **recorder, ls_record_sink *sink)
{
    ls_mutex_lock(&all->lock);
    const int err = add_sink(all, recorder, sink);
    ls_mutex_unlock(&all->lock);
    return err;
}
