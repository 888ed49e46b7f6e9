/* tcp.h - a connection that Lua reads and writes: what is behind a `sock` object.
 *
 * It belongs to one state, and everything that happens to it happens inside that state's actor. One task at a time may
 * wait to receive, any number to send. What was received and not yet asked for lies here as slices; what is to be sent
 * lies in the stream's queue and leaves when the task that sent it waits or ends, so that several sends make one packet.
 *
 *     open --> finishing (let go by Lua; the queue leaves) --> closing (lingers, or at once) --> freed
 *
 * The Lua object is a small userdata that points here, and is pointed to from here, until one of them goes. */
#ifndef LS_SCRIPT_TCP_H
#define LS_SCRIPT_TCP_H

#include "net/addr.h"
#include "net/listener.h"
#include "net/stream.h"
#include "script/task.h"

typedef struct ls_tcp ls_tcp;

enum { LS_TCP_LINGER_MS = 2000, LS_TCP_PATTERN_MAX = 1024 };

/* One ls.tcp call, for all states. */
struct ls_tcp_server {
    ls_site *site;
    unsigned index; /* of the listener: which function of a state serves */
    ls_tcp_config config;
    ls_conn_limit *conn_limit;
};

typedef struct ls_tcp_object { /* the userdata `sock` */
    const void *tag;
    ls_tcp *tcp; /* NULL: closed */
} ls_tcp_object;

typedef struct ls_tcp_more {
    uint32_t count, room;
    ls_slice slices[];
} ls_tcp_more;

struct ls_tcp {
    ls_stream stream; /* first */
    ls_node node;     /* state->tcps until it closes */
    ls_state *state;
    ls_tcp_object *object; /* NULL: Lua let it go */
    ls_tcp_server *server; /* NULL: a client */
    ls_task *task;         /* serves it, or NULL */
    ls_task *receiver;     /* waits for bytes, or for the connection */
    ls_node senders;       /* tasks that wait until what is queued has left */
    ls_tcp *unflushed_next;

    ls_slice head;     /* received: this, then more->slices */
    ls_tcp_more *more; /* NULL: none */
    size_t received;   /* bytes of all of them */
    size_t scanned;    /* of these, what the receiver has looked at */

    uint64_t receive_at_ms, send_at_ms;   /* deadlines; 0: none */
    const ls_tcp_config *config;          /* the server's; a client has its own behind this struct */
    uint32_t receive_ms_max, send_ms_max; /* as settimeouts left them */
    uint32_t peer_scope;                  /* the peer's address, as in ls_addr */
    uint16_t peer_port;
    uint8_t peer_family;
    unsigned char peer[16];
    int8_t receive_end; /* LS_E*: no more will be received; 0 */
    int8_t send_end;    /* LS_E*: nothing more can be sent; 0 */
    int8_t ended;       /* why the last loop over lines or chunks ended; 0 */
    bool unflushed;     /* on state->unflushed */
    bool finishing, aborted, shut, large, connecting;
    bool asked; /* the pending receive only asks whether something is there */
};

static inline const ls_slice *ls_tcp_slice(const ls_tcp *tcp, uint32_t n)
{
    return n == 0 ? &tcp->head : &tcp->more->slices[n - 1];
}

/* A connection of `state` for `fd` (closed on failure). `server` NULL: a client. LS_OK or an error. */
int ls_tcp_open(ls_state *state, ls_fd fd, ls_tcp_server *server, const ls_tcp_config *config, ls_tcp **out);
void ls_tcp_set_peer(ls_tcp *tcp, const ls_addr *peer);
void ls_tcp_get_peer(const ls_tcp *tcp, ls_addr *out);

/* Lua lets it go: what is queued leaves, then it closes. Who waits to receive is woken. */
void ls_tcp_finish(ls_thread_ctx *ctx, ls_tcp *tcp);

/* The same, and what is queued is dropped. */
void ls_tcp_abort(ls_thread_ctx *ctx, ls_tcp *tcp);

/* Receive once, unless something is pending. LS_DONE: bytes came, or receive_end is set. LS_PENDING; LS_ENOMEM. */
int ls_tcp_fill(ls_thread_ctx *ctx, ls_tcp *tcp);

/* Drop the first n received bytes. */
void ls_tcp_consume(ls_tcp *tcp, size_t n);

/* Send what is queued when the task that runs waits or ends; or now. */
void ls_tcp_flush_later(ls_tcp *tcp);
int ls_tcp_flush(ls_thread_ctx *ctx, ls_tcp *tcp); /* LS_DONE, LS_PENDING, LS_E* */
void ls_tcps_flush(ls_thread_ctx *ctx, ls_state *state);

/* This task waits to receive from now on. */
void ls_tcp_receive_begins(ls_tcp *tcp, ls_task *task);

/* bind_sock.c */
extern const char ls_tcp_tag;
void ls_tcp_define(lua_State *L, ls_state *state);
ls_tcp_object *ls_tcp_push(lua_State *L, ls_tcp *tcp); /* may raise; then the tcp is still the caller's */

/* The site drains: receivers that wait with nothing received are woken. */
void ls_tcps_drain(ls_thread_ctx *ctx, ls_state *state);
/* Everything ends now. */
void ls_tcps_disconnect(ls_thread_ctx *ctx, ls_state *state);
/* No thread runs and the port is closed. */
void ls_tcps_free(ls_state *state);

#endif
