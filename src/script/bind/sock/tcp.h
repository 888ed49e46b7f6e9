/* tcp.h - a connection that Lua reads and writes: the C side of a `sock` object.
 *
 * A connection belongs to one state; all its callbacks and calls run inside that state's actor. One task at a time may
 * wait to receive; any number of tasks may wait to send. Received bytes that no task has read yet are stored here as
 * slices. Bytes to send are in the queue of the stream; it is flushed when the sending task waits or ends, so that
 * several sends make one packet.
 *
 *     open --> finishing (closed by Lua; the queue is sent) --> closing (at once, or after a linger) --> freed
 *
 * The Lua object is a small userdata. Object and connection point to each other until one of them is freed. */
#ifndef LS_SCRIPT_TCP_H
#define LS_SCRIPT_TCP_H

#include "net/listener.h"
#include "net/sock/addr.h"
#include "net/stream/stream.h"
#include "net/tls/tls.h"
#include "script/bind/modules.h"
#include "script/bind/sock/tcp_server.h"
#include "script/core/task.h"

typedef struct ls_tcp ls_tcp;

enum { LS_TCP_LINGER_MS = 2000, LS_TCP_PATTERN_MAX = 1024 };

typedef struct ls_tcp_object { /* the userdata `sock` */
    const void *tag;
    ls_tcp *tcp;   /* NULL: closed */
    int8_t lost;   /* LS_E*: the error of a send, or LS_ELIMIT of a topic, that has closed it; 0: none has */
    int8_t ended;  /* LS_E*: why the last loop over lines or chunks ended; 0 */
    uint16_t late; /* see ls_task_check_late */
} ls_tcp_object;

typedef struct ls_starttls ls_starttls;

typedef struct ls_tcp_more {
    uint32_t count, room;
    ls_slice slices[];
} ls_tcp_more;

struct ls_tcp {   /* the user data of a stream */
    ls_node node; /* in the list of the state until it closes */
    ls_state *state;
    ls_tcp_object *object;        /* NULL: closed by Lua */
    ls_conn_limit *conn_limit;    /* in which it has a place; NULL: none */
    void **owner;                 /* where the task that serves the connection refers to it; NULL: no task does */
    ls_task *receiver;            /* waits for bytes */
    ls_node senders;              /* tasks that wait until the queue has been sent */
    ls_node unflushed;            /* in the list of the state while it has output of the running task */
    ls_starttls *starttls;        /* while a task, the receiver, waits in sock:starttls; else NULL */
    struct ls_tcp_topics *topics; /* sock_topic.c; NULL: it has never subscribed */

    ls_slice head;     /* received bytes: this slice, then more->slices */
    ls_tcp_more *more; /* NULL: no further slices */
    size_t received;   /* bytes in all these slices */
    size_t scanned;    /* leading bytes that the receiver has already searched */

    const ls_tcp_config *config;          /* that of the server; a client has a copy after this struct */
    uint32_t receive_ms_max, send_ms_max; /* from the config or sock:settimeouts */
    int8_t receive_end;                   /* LS_E*: why receiving has ended; 0: it has not */
    int8_t send_end;                      /* LS_E*: why sending has ended; 0: it has not */
    bool finishing, shut, large;          /* shut: sock:shutdown; large: next block is LS_BLOCK_LARGE */
    bool client;                          /* of ls.connect */
    bool served;                          /* by a task of ls.tcp, whose `owner` it is */
    uint8_t listener;                     /* served: the index */
    bool silent;                          /* the last receive has ended by receive_ms_max */
    bool probing;                         /* the pending receive has length 0: it completes when bytes are available */
    void (*arrived)(ls_thread_ctx *ctx, ls_tcp *tcp, int result); /* of ls_tcp_lead; else NULL */
};

static inline ls_stream *ls_tcp_stream(ls_tcp *tcp)
{
    return ls_stream_of(tcp);
}

static inline const ls_slice *ls_tcp_slice(const ls_tcp *tcp, uint32_t n)
{
    return n == 0 ? &tcp->head : &tcp->more->slices[n - 1];
}

/* Make a client connection of `state` from a stream of net/dial.h with this handler and this room. It copies
 * `config`. */
ls_tcp *ls_tcp_connected(ls_state *state, ls_stream *s, const ls_tcp_config *config);
extern const ls_stream_handler ls_tcp_handler;
extern const size_t ls_tcp_own_bytes;

/* The same of a connection that was taken over from HTTP (res:upgrade). It leaves `limit` (or NULL) when it is closed.
 * *owner refers to it until it closes. */
ls_tcp *ls_tcp_upgraded(ls_state *state, ls_stream *s, const ls_tcp_config *config, ls_conn_limit *limit,
                        void **owner);

/* sock:settimeouts: in ms; 0: no limit. */
void ls_tcp_set_timeouts(ls_tcp *tcp, uint32_t receive_ms, uint32_t send_ms);

/* Close the connection for Lua: wakes the receiver, sends the queue and the messages of topics that wait for it, then
 * closes the socket and frees the connection. */
void ls_tcp_finish(ls_thread_ctx *ctx, ls_tcp *tcp);

/* The same, but the queue is dropped. */
void ls_tcp_abort(ls_thread_ctx *ctx, ls_tcp *tcp);

/* The same because of the error of a send, which sock:send returns from now on. */
void ls_tcp_lose(ls_thread_ctx *ctx, ls_tcp *tcp, int err);

/* Take the connection away from Lua, whose sock is closed then: a stream without an actor, for a pool. NULL, and
 * nothing has changed: it has ended, something is pending or queued, or received bytes are unread. */
ls_stream *ls_tcp_detach(ls_tcp *tcp);

/* Take the connection from its sock, which is closed then; *owner refers to it until it closes. In place of a task,
 * `arrived` gets what is received: LS_OK, bytes are stored, receive_end is set, or memory is out; LS_ETIMEDOUT; or the
 * error of a send. It may close the connection. false, and nothing has changed: it has ended, or a task receives. */
bool ls_tcp_lead(ls_tcp *tcp, void **owner, void (*arrived)(ls_thread_ctx *ctx, ls_tcp *tcp, int result));

/* Have `arrived` called, from a packet, when something can be received. LS_OK or LS_E*. */
int ls_tcp_await(ls_thread_ctx *ctx, ls_tcp *tcp);

/* Receive once. LS_DONE: bytes were received, or receive_end is set. LS_PENDING: a receive is pending. LS_ENOMEM. */
int ls_tcp_fill(ls_thread_ctx *ctx, ls_tcp *tcp);

/* Drop the first n received bytes. */
void ls_tcp_consume(ls_tcp *tcp, size_t n);

/* Flush the queue when the running task waits or ends. */
void ls_tcp_flush_later(ls_tcp *tcp);
/* Flush the queue now. Returns LS_DONE, LS_PENDING or LS_E*. */
int ls_tcp_flush(ls_thread_ctx *ctx, ls_tcp *tcp);

/* Make `task` the receiver and start the receive timeout. */
void ls_tcp_receive_begins(ls_tcp *tcp, ls_task *task);

/* ---- tcp_starttls.c -------------------------------------------------------------------------------------------- */

/* Begin sock:starttls: the queue is sent, then follows the handshake. tcp->receiver, which the caller has set, is
 * woken at the end. No received bytes are stored, the stream has no filter. `ms_max` is the limit of the handshake;
 * server_name as for ls_tls_session. LS_OK, or the error of ls_tls_session. */
int ls_tcp_starttls(ls_thread_ctx *ctx, ls_tcp *tcp, ls_tls *tls, const char *server_name, uint32_t ms_max);

/* The result: LS_PENDING; LS_DONE: the connection uses TLS; LS_E* with the reason in `why`, which is empty if the
 * error says it all. After LS_DONE, tcp->starttls is NULL; after an error the caller closes the connection. */
int ls_tcp_starttls_result(ls_tcp *tcp, char *why, size_t why_bytes);

/* For tcp.c. The callbacks of the stream while tcp->starttls is set; they may free tcp. The end without a result. */
void ls_tcp_starttls_received(ls_thread_ctx *ctx, ls_tcp *tcp, int64_t result);
void ls_tcp_starttls_sent(ls_thread_ctx *ctx, ls_tcp *tcp, int err);
void ls_tcp_starttls_drop(ls_tcp *tcp);

/* ---- sock_topic.c ---------------------------------------------------------------------------------------------- */

/* End the subscriptions of the connection. `finish`: queue the messages that wait for it before. LS_OK, or why one of
 * them is missing: the caller drops the queue. */
int ls_tcp_topics_finish(ls_thread_ctx *ctx, ls_tcp *tcp);
void ls_tcp_topics_end(ls_tcp *tcp);
/* Whether the connection has subscribed to a topic. */
bool ls_tcp_topics_any(const ls_tcp *tcp);

/* ---- tcp.c ----------------------------------------------------------------------------------------------------- */

typedef struct ls_tcps {        /* of a state */
    ls_node open;               /* connections that are not closed for Lua */
    _Atomic unsigned count;     /* their number; any thread reads it to choose a state */
    _Atomic uint32_t live;      /* sockets and dials that still wait for packets, those that linger included */
    _Atomic uint32_t finishing; /* of those: Lua has closed them, and a stop waits for their last bytes */
    ls_node unflushed;          /* connections with output of the running task */
    ls_flush flush;             /* flushes them */
    bool returned_logged;       /* a handler returned text */
    bool silent_logged;         /* a client that sent nothing was closed */
    unsigned ended;             /* connections that have ended since the last collection for them */
} ls_tcps;

static inline ls_tcps *ls_tcps_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_tcp);
}

/* Push the sock object of a connection that has none. May raise; then the connection stays without an object. NULL: a
 * closed sock, for ls_tcp_attach. */
ls_tcp_object *ls_tcp_push(lua_State *L, ls_tcp *tcp);
void ls_tcp_attach(ls_tcp_object *object, ls_tcp *tcp);

#endif
