/* httpsys_internal_win32.h - what the files of the http.sys engine share: httpsys_win32.c (session, queue, URLs, the receives),
 * httpsys_exchange_win32.c (a request's life and its body), httpsys_write_win32.c (what goes out).
 *
 *     receive --> HANDLING --> (ENDING) --> LAST --> gone
 *                        \_________________ CUT ___/
 *
 * In HANDLING the packets of a request are pinned to its actor; a receive of its body and a send may be pending at once. Behind
 * it one operation at a time is: ENDING waits for a body receive that was cancelled, LAST sends what is left of the answer, CUT
 * waits for the send of a request that was cancelled. A request's memory goes when none is pending. */
#ifndef LS_PROTO_HTTPSYS_INTERNAL_WIN32_H
#define LS_PROTO_HTTPSYS_INTERNAL_WIN32_H

#include "base/counter.h"
#include "base/thread.h"
#include "port/handle_win32.h"
#include "proto/httpsys.h"
#include "proto/httpsys_head_win32.h"

enum {
    LS_HTTPSYS_SLICES_FEW = 8, /* of an answer: more are kept in memory of their own */
    LS_HTTPSYS_CHUNKS = 8,     /* data chunks in one call */
    LS_HTTPSYS_UNKNOWN_FEW = 6,
    LS_HTTPSYS_COPY_BYTES = 16384,  /* borrowed bytes below this are copied, others sent from where they lie */
    LS_HTTPSYS_WHOLE_MAX = 64 << 20 /* of an answer in parts that can only be sent as a whole */
};

/* One of the receives that are posted on the queue, with what it is received into. */
typedef struct ls_httpsys_receive {
    ls_overlapped io;
    ls_timer again; /* there was no memory, or the system refused */
    ls_httpsys *http;
    ls_block *buffer;
    HTTP_REQUEST_ID id;                /* HTTP_NULL_ID, or that of a request that needs a larger buffer */
    struct ls_httpsys_receive *parked; /* while on http->parked: the next one */
} ls_httpsys_receive;

typedef struct ls_httpsys_url {
    HTTP_URL_GROUP_ID group;
    wchar_t *text;
} ls_httpsys_url;

typedef struct ls_httpsys_thread { /* counters, one of these per thread context, so that no line is shared */
    _Alignas(64) uint64_t next_id;
    _Atomic uint64_t requests, responses, refused;
} ls_httpsys_thread;

struct ls_httpsys {
    ls_httpsys_api api;
    ls_port *port;
    const ls_http_handler *handler;
    ls_http_config config;
    HTTP_SERVER_SESSION_ID session;
    HANDLE queue;
    ls_httpsys_url urls[LS_HTTPSYS_URLS_MAX];
    unsigned url_count;
    uint32_t requests_max;
    _Atomic uint32_t open; /* requests under way */
    _Atomic uint32_t live; /* those, and the receives that will be posted again: at 0 the owner may close */
    _Atomic bool draining, stopping, conn_close, complained;
    ls_mutex mutex;             /* guards parked */
    ls_httpsys_receive *parked; /* too many requests are under way */
    ls_httpsys_receive *receives;
    unsigned receive_count;
    ls_httpsys_thread *threads;
    unsigned thread_count;
};

enum ls_httpsys_phase { LS_HS_HANDLING, LS_HS_ENDING, LS_HS_LAST, LS_HS_CUT };

/* What goes out and has not left. Small bytes are written into `block`, one behind the other. */
typedef struct ls_httpsys_out {
    ls_block *block; /* NULL: none is begun */
    uint32_t filled;
    ls_slice *slices; /* few, or malloced */
    unsigned count, room;
    size_t bytes; /* in all of them */
    ls_slice few[LS_HTTPSYS_SLICES_FEW];
} ls_httpsys_out;

/* The exchange and what http.sys adds to it; lives in one small pool block. */
typedef struct ls_httpsys_exchange {
    ls_httpsys *http;
    ls_block *self;
    HTTP_REQUEST_ID id;
    enum ls_httpsys_phase phase;
    bool looping;     /* the handler is on the stack: an end from inside is dealt with when it has returned */
    bool ended;       /* ls_http_transport.end was called meanwhile */
    bool awaits_sent; /* the handler is woken when the queue has left */
    bool rx_pending, tx_pending;
    bool head_sent, last_sent; /* handed to http.sys: the head; the end of the answer */
    bool no_body;              /* to HEAD, or none by its status: parts are dropped */
    bool chunked_out;
    bool newer;  /* HTTP/2 or later: http.sys frames what goes out */
    bool closes; /* the connection, after the answer */
    ls_overlapped rx, tx;

    ls_block *in; /* of the body: in->data[in_from .. in_to) is not handed out yet */
    uint32_t in_from, in_to;
    uint64_t body_left; /* of a Content-Length */

    ls_httpsys_out out;
    ls_fd file; /* behind `out`: the whole body, file_bytes from its begin, a handle of our own; or LS_FD_NONE */
    uint64_t file_bytes;
    size_t sending;      /* bytes of `out` that the pending send has */
    bool sending_file;   /* it has the file, too */
    uint64_t part_bytes; /* written as parts so far */
    HTTP_RESPONSE response;
    HTTP_DATA_CHUNK chunks_few[LS_HTTPSYS_CHUNKS], *chunks; /* or malloced, where an answer goes as a whole */
    HTTP_UNKNOWN_HEADER unknown_few[LS_HTTPSYS_UNKNOWN_FEW], *unknown;
    char length_text[20];
    ls_addr remote, local;
    ls_exchange x; /* last: it is large */
} ls_httpsys_exchange;

_Static_assert(sizeof(ls_httpsys_exchange) <= LS_BLOCK_SMALL, "an exchange fits a small block");

static inline ls_httpsys_exchange *ls_httpsys_of(ls_exchange *x)
{
    return LS_CONTAINER(x, ls_httpsys_exchange, x);
}

/* Of an answer that is not complete: there are parts, or its head, that have not left. */
static inline bool ls_httpsys_has_output(const ls_httpsys_exchange *e)
{
    return e->out.count > 0 || e->file != LS_FD_NONE || (e->x.response == LS_RESPONSE_OPEN && !e->head_sent);
}

/* httpsys_win32.c. As ls_httpsys_open, with the functions given. */
int ls_httpsys_open_with(const ls_httpsys_api *api, ls_port *port, const ls_httpsys_options *options, ls_httpsys **out,
                         char *message, size_t message_bytes);
void ls_httpsys_left(ls_httpsys *http); /* a request has ended */

/* httpsys_exchange_win32.c */
/* A whole head is in `buffer`, whose reference moves: hand it to the handler. Any thread, inside no actor. */
void ls_httpsys_serve(ls_thread_ctx *ctx, ls_httpsys *http, ls_block *buffer);
/* The head of request `id` fits no buffer. */
void ls_httpsys_serve_too_large(ls_thread_ctx *ctx, ls_httpsys *http, HTTP_REQUEST_ID id);
void ls_httpsys_transmitted(ls_thread_ctx *ctx, ls_op *op); /* packets of tx */

/* httpsys_write_win32.c */
int ls_httpsys_respond(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count);
int ls_httpsys_write(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count);
int ls_httpsys_write_file(ls_thread_ctx *ctx, ls_exchange *x, ls_fd file);
int ls_httpsys_flush(ls_thread_ctx *ctx, ls_exchange *x);
int ls_httpsys_finish(ls_thread_ctx *ctx, ls_exchange *x);
int ls_httpsys_wait_sent(ls_thread_ctx *ctx, ls_exchange *x);
/* Send what is queued, and the end if the answer is complete. LS_DONE: all has left; LS_PENDING: the packet of tx comes; the
 * exchange is no more ours then when tx is pinned to no actor; or LS_E*. */
int ls_httpsys_send_out(ls_thread_ctx *ctx, ls_httpsys_exchange *e);
int ls_httpsys_sent(ls_httpsys_exchange *e); /* the send is complete: LS_OK, or why it failed */
/* A whole answer without a handler: a short text. */
void ls_httpsys_send_error(ls_thread_ctx *ctx, ls_httpsys_exchange *e, int status, const char *why);
void ls_httpsys_out_drop(ls_httpsys_exchange *e); /* whatever is queued; nothing is pending */

#endif
