/* httpsys_internal_win32.h - shared by the files of http.sys: httpsys_win32.c (session, queue, URLs, receives),
 * httpsys_exchange_win32.c (a request and its body), httpsys_write_win32.c (the response).
 *
 *     receive --> HANDLING --> (ENDING) --> LAST ------> freed
 *                        \_________________ CANCELLED __/
 *
 * In HANDLING the packets of a request are pinned to its actor. A receive of its body and a send may be pending at the
 * same time. After HANDLING at most one operation is pending: ENDING waits for a cancelled body receive, LAST sends
 * the rest of the response, CANCELLED waits for the send of a cancelled request. The memory of a request is freed when
 * no operation is pending. */
#ifndef LS_HTTP_HTTPSYS_HTTPSYS_INTERNAL_WIN32_H
#define LS_HTTP_HTTPSYS_HTTPSYS_INTERNAL_WIN32_H

#include "base/counter.h"
#include "base/os/thread.h"
#include "http/exchange_in.h"
#include "http/exchange_out.h"
#include "http/exchange_run.h"
#include "http/httpsys/httpsys.h"
#include "http/httpsys/httpsys_head_win32.h"
#include "port/handle_win32.h"

enum {
    LS_HTTPSYS_SLICES_FEW = 8,      /* slices of a response without a separate allocation */
    LS_HTTPSYS_CHUNKS = 8,          /* data chunks in one call */
    LS_HTTPSYS_UNKNOWN_FEW = 6,     /* unknown headers of a response without a separate allocation */
    LS_HTTPSYS_WHOLE_MAX = 64 << 20 /* length of a response in parts on a system that sends only whole responses */
};

/* A receive on the request queue, with its buffer. */
typedef struct ls_httpsys_receive {
    ls_overlapped io;
    ls_timer retry; /* after a lack of memory, or an error of the system */
    struct ls_httpsys *http;
    ls_block *buffer;
    HTTP_REQUEST_ID id;                       /* HTTP_NULL_ID, or a request that needs a larger buffer */
    struct ls_httpsys_receive *next_deferred; /* on the list http->deferred */
} ls_httpsys_receive;

typedef struct ls_httpsys_url {
    HTTP_URL_GROUP_ID group;
    wchar_t *text;
} ls_httpsys_url;

typedef struct ls_httpsys_thread { /* counters, one struct per thread context: threads share no cache line */
    _Alignas(64) uint64_t next_id;
    _Atomic uint64_t requests, responses, refused;
} ls_httpsys_thread;

typedef struct ls_httpsys_config {
    struct ls_httpsys_config *next;
    ls_http_config config;
} ls_httpsys_config;

typedef struct ls_httpsys {
    ls_http_engine engine;
    ls_httpsys_api api;
    ls_port *port;
    _Atomic(const ls_http_handler *) handler; /* of requests from now on */
    _Atomic(const ls_http_config *) config;   /* the same; each request keeps the one it began with */
    const ls_http_config *prepared;           /* for the next handler */
    struct ls_httpsys_config *configs;        /* all that were used, freed by the close */
    HTTP_SERVER_SESSION_ID session;
    HANDLE queue;
    ls_httpsys_url urls[LS_HTTPSYS_URLS_MAX];
    unsigned url_count;
    uint32_t requests_max;
    _Atomic uint32_t open; /* requests under way */
    _Atomic uint32_t live; /* `open` plus the receives that are not retired: at 0 the owner may close */
    _Atomic bool draining, stopping, queue_shut_down, receive_error_logged;
    ls_mutex mutex;               /* guards deferred */
    ls_httpsys_receive *deferred; /* receives that wait until a request ends: the limit is reached */
    ls_httpsys_receive *receives;
    unsigned receive_count;
    ls_httpsys_thread *threads;
    unsigned thread_count;
} ls_httpsys;

enum ls_httpsys_phase { LS_HS_HANDLING, LS_HS_ENDING, LS_HS_LAST, LS_HS_CANCELLED };

/* The output queue; x.queued is the total length of its slices. Copied bytes and the framing of chunks are written
 * into `block`, one after the other. */
typedef struct ls_httpsys_out {
    ls_block *block; /* the block being filled, or NULL */
    uint32_t filled;
    ls_slice *slices; /* `few`, or from malloc */
    unsigned count, room;
    ls_slice few[LS_HTTPSYS_SLICES_FEW];
} ls_httpsys_out;

/* The exchange and its http.sys state, in one small pool block. */
typedef struct ls_httpsys_exchange {
    ls_httpsys *http;
    const ls_http_config *config;
    ls_block *self;
    HTTP_REQUEST_ID id;
    enum ls_httpsys_phase phase;
    bool awaits_sent; /* wake the handler when the queue is sent */
    bool rx_pending, tx_pending;
    bool head_sent, last_sent; /* passed to http.sys: the head; the end of the response */
    bool buffered;             /* http.sys copies what is sent */
    ls_overlapped rx, tx;

    ls_block *in; /* request body: in->data[in_from .. in_to) is unread */
    uint32_t in_from, in_to;
    uint64_t body_left; /* remaining bytes of a body with Content-Length */

    ls_httpsys_out out;
    size_t sending; /* bytes of `out` in the pending send */
    HTTP_RESPONSE response;
    HTTP_DATA_CHUNK chunks_few[LS_HTTPSYS_CHUNKS], *chunks; /* `chunks_few`, or from malloc for a whole response */
    HTTP_UNKNOWN_HEADER unknown_few[LS_HTTPSYS_UNKNOWN_FEW], *unknown;
    char length_text[20];
    ls_addr remote, local;
    ls_exchange x; /* last: it is large */
} ls_httpsys_exchange;

_Static_assert(sizeof(ls_httpsys_exchange) <= LS_BLOCK_SMALL, "an exchange fits into a small block");

static inline ls_httpsys_exchange *ls_httpsys_of(ls_exchange *x)
{
    return LS_CONTAINER(x, ls_httpsys_exchange, x);
}

/* Whether parts, or the head of an open response are not sent yet. */
static inline bool ls_httpsys_has_output(const ls_httpsys_exchange *e)
{
    return e->out.count > 0 || (e->x.response == LS_RESPONSE_OPEN && !e->head_sent);
}

/* httpsys_win32.c */
/* As ls_httpsys_open, with the functions of `api`. */
int ls_httpsys_open_with(const ls_httpsys_api *api, ls_port *port, const ls_httpsys_options *options,
                         ls_http_engine **out, char *message, size_t message_bytes);
/* ls_http_engine_ops.drain: remove the URLs, so that http.sys delivers no further requests, and close the connection
 * after each response. When all requests have ended, cancel the receives and shut the queue down. */
uint32_t ls_httpsys_drain(ls_http_engine *e, bool all);
void ls_httpsys_request_ended(ls_httpsys *http);

/* httpsys_exchange_win32.c */
/* Call the handler with the complete head in `buffer`, whose reference moves. Any thread, outside of every actor. */
void ls_httpsys_serve(ls_thread_ctx *ctx, ls_httpsys *http, ls_block *buffer);
/* Refuse request `id`, whose head does not fit into the largest buffer. */
void ls_httpsys_serve_too_large(ls_thread_ctx *ctx, ls_httpsys *http, HTTP_REQUEST_ID id);
void ls_httpsys_transmitted(ls_thread_ctx *ctx, ls_op *op); /* the completion of tx */

/* httpsys_write_win32.c */
int ls_httpsys_head(ls_thread_ctx *ctx, ls_exchange *x, int64_t length, ls_slice *slices, unsigned count);
int ls_httpsys_data(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count, unsigned how);
int ls_httpsys_flush(ls_thread_ctx *ctx, ls_exchange *x);
/* Send the queue, and the end if the response is complete. LS_DONE: all is sent. LS_PENDING: tx is pending; if it is
 * not pinned to an actor, another thread may own the exchange now. Or LS_E*. */
int ls_httpsys_send_out(ls_thread_ctx *ctx, ls_httpsys_exchange *e);
int ls_httpsys_sent(ls_httpsys_exchange *e); /* take the result of a completed send: LS_OK or LS_E* */
/* Queue a whole response without a handler: a short text. */
void ls_httpsys_send_error(ls_thread_ctx *ctx, ls_httpsys_exchange *e, int status, const char *why);
void ls_httpsys_out_drop(ls_httpsys_exchange *e); /* drop the queue; no send may be pending */

#endif
