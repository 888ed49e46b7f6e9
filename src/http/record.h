/* record.h - what is known about a request when it has ended, and who gets that: the access log, metrics.
 *
 *     a listener's handler -> its recorder -> sinks        the access log, metrics, slow requests
 *     the transport starts an exchange   ls_record_begin: x->recorder is that of the handler, and the time is noted
 *     a response, a route, a server      fill the fields of x below, if x->recorder is set
 *     the exchange ends                  ls_exchange_end calls `ended` of each sink with an ls_record
 *
 * A listener without a sink has no recorder: then a request costs one branch at its begin and one at its end, and
 * no clock is read. The end is that of every transport but the one of app:inject:
 *
 *     HTTP/1    the system has accepted the last byte of the response, or the connection is lost. Of pipelined
 *               requests that wait for one send: the response is in the queue
 *     HTTP/2    the last frame of the response is in the queue of the connection, or the stream was reset
 *     http.sys  the system has taken the last byte, or the request was cancelled
 *     upgrade   the connection has left HTTP: the status is 101
 *     refused   bytes that are no request, which no handler gets: x of the record may be NULL
 *
 * Lifetime. A record and what it points to is valid inside `ended`. Recorders, routes and sinks stay until the server
 * is closed: a response may end after the generation of the site that has made it. Recorders and routes are made while
 * a site loads, equal ones once.
 *
 * A module that wants records calls ls_records_add (script/bind/http/site_listener.h) in the first state, and
 * `require("luaserve.records").want()` in each state, so that the routers name the routes.
 *
 * Thread: `ended` is called by the thread that ends the exchange, inside an actor or not. It must not wait, and it must
 * not call Lua. ctx->index is the number of the thread, for data that threads do not share: one thread at a time has
 * it. */
#ifndef LS_HTTP_RECORD_H
#define LS_HTTP_RECORD_H

#include "base/clock.h"
#include "base/text.h"
#include "http/exchange.h"

enum { LS_RECORD_SINKS_MAX = 4, LS_RECORD_UPSTREAMS_MAX = 4, LS_RECORD_LINE_BYTES_MAX = 512 };
enum { LS_ROUTES_MAX = 16384 }; /* patterns of all sites that a server has loaded; further ones are no route */

/* A pattern of the routers of the sites, such as "/items/:id": one for each text and host. */
typedef struct ls_route {
    uint32_t number; /* from 1 to LS_ROUTES_MAX, without gaps */
    uint32_t len;
    const char *host; /* the name in `hosts` of ls.listen, such as "*.example"; "": the listener has no hosts */
    char pattern[];
} ls_route;

enum ls_record_end {
    LS_RECORD_COMPLETE,
    LS_RECORD_LEFT,    /* the client has left, or has taken too long, before it had all */
    LS_RECORD_ABORTED, /* the handler, or the stop of the server, has ended it before */
    LS_RECORD_REFUSED  /* no handler has got it; the response, if any, is complete */
};

/* An attempt at a server of app:proxy. */
typedef struct ls_record_upstream {
    ls_addr addr;
    uint64_t began_ns, ended_ns; /* ended_ns 0: the attempt has not ended before the request */
    int status;                  /* 0: no response */
} ls_record_upstream;

/* What few requests have: in a block that the first such thing makes. */
typedef struct ls_record_more {
    uint32_t slow_ms; /* 0: the request is never slow */
    bool has_client;
    ls_addr client; /* the one that the trusted proxies tell of; its port is 0 if they do not tell it */
    unsigned upstream_count;
    ls_record_upstream upstreams[LS_RECORD_UPSTREAMS_MAX]; /* the first attempts */
    _Alignas(8) char room[256];                            /* of the handler */
} ls_record_more;

typedef struct ls_record {
    const ls_exchange *x;  /* the head, the fields of the response, x->id; NULL: refused before a head was complete */
    ls_text line;          /* if x is NULL: the first line of what was received, at most LS_RECORD_LINE_BYTES_MAX */
    const ls_addr *remote; /* the peer of the connection; NULL: not known */
    const ls_addr *client; /* the client: `remote`, or the one of which trusted proxies tell */
    const ls_route *route; /* NULL: no route has this method and path, or it was refused */
    const ls_record_more *more; /* NULL: no server, no client of a proxy */
    const char *protocol;       /* "HTTP/1.0", "HTTP/1.1", "HTTP/2.0"; of a refused one "HTTP/1.1" */
    bool secure;
    enum ls_record_end end;
    /* That of the response; without one as nginx: 499: the client has left; 444: aborted; 400: a refused HTTP/2
     * request, whose stream was reset. */
    int status;
    /* ls_clock_ns: the head was complete (a refused one has begun); the head of the response was queued (0: never); now.
     * The wall time of the end is that of the call. */
    uint64_t began_ns, first_ns, ended_ns;
    uint64_t received; /* bytes: the head, and the body as far as it was read */
    uint64_t sent;     /* bytes of the body of the response, as far as the connection took them */
} ls_record;

typedef struct ls_record_sink ls_record_sink;
struct ls_record_sink {
    void (*ended)(ls_record_sink *sink, ls_thread_ctx *ctx, const ls_record *record);
};

typedef struct ls_recorder ls_recorder;
struct ls_recorder {
    ls_recorder *next; /* of the list of the server */
    unsigned count;
    ls_record_sink *sinks[LS_RECORD_SINKS_MAX];
};

/* ---- the routes and recorders of a server ------------------------------------------------------------------------ */

typedef struct ls_records ls_records;
int ls_records_open(ls_records **out);  /* LS_OK or LS_ENOMEM */
void ls_records_close(ls_records *all); /* no request and no site is left */

/* The route with this text and host. NULL: out of memory, or there are LS_ROUTES_MAX. Any thread. */
ls_route *ls_records_route(ls_records *all, const char *text, size_t len, const char *host);
/* The number of routes, and each by its number from 1 on. Any thread. */
unsigned ls_records_route_count(const ls_records *all);
const ls_route *ls_records_route_at(const ls_records *all, unsigned number);

/* *recorder becomes the one with its sinks (NULL: none) and this one. LS_OK; LS_ELIMIT: it has LS_RECORD_SINKS_MAX;
 * LS_ENOMEM. Any thread. */
int ls_records_with(ls_records *all, const ls_recorder **recorder, ls_record_sink *sink);

/* ---- for transports --------------------------------------------------------------------------------------------- */

/* The exchange begins, for `handler`. Sets the fields of records. */
static inline void ls_record_begin(ls_exchange *x, const ls_http_handler *handler)
{
    x->recorder = handler->recorder;
    if (x->recorder == NULL) return;
    x->began_ns = ls_clock_ns();
    x->first_ns = 0;
    x->route = NULL;
    x->access_log = NULL;
    x->record_more = NULL;
    x->refused = false;
}

void ls_record_end(ls_thread_ctx *ctx, ls_exchange *x); /* x->recorder is set */

/* The exchange ends: records it, then drops its fields. The last use of x but for its memory, and that of its head. */
static inline void ls_exchange_end(ls_thread_ctx *ctx, ls_exchange *x)
{
    if (x->recorder != NULL) ls_record_end(ctx, x);
    ls_exchange_drop_fields(x);
}

/* Bytes were refused that are no request: `refused` has their text as its line, remote, secure and status, began_ns (when
 * the first of them was received) and sent, of the response that is going to be queued. */
void ls_record_refused(ls_thread_ctx *ctx, const ls_http_handler *handler, const ls_record *refused);

/* ---- for handlers ----------------------------------------------------------------------------------------------- */

/* Memory for what few requests have; NULL: x has no recorder, or out of memory. */
ls_record_more *ls_record_more_of(ls_thread_ctx *ctx, ls_exchange *x);

/* An attempt at a server begins, and ends: `status` 0: without a response. No effect without a recorder. */
void ls_record_upstream_begin(ls_thread_ctx *ctx, ls_exchange *x, const ls_addr *addr);
void ls_record_upstream_end(ls_exchange *x, int status);

#endif
