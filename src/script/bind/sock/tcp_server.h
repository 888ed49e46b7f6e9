/* tcp_server.h - what a listener of ls.tcp gives to its connections (tcp.h). */
#ifndef LS_SCRIPT_TCP_SERVER_H
#define LS_SCRIPT_TCP_SERVER_H

#include "net/listener.h"
#include "net/stream/stream.h"
#include "script/core/generation.h"

typedef struct ls_tcp_config {            /* limits of one `sock` connection */
    uint32_t receive_ms_max, send_ms_max; /* 0: no limit */
    uint32_t write_bytes_high;            /* high-water mark: send waits while more bytes are queued */
    uint32_t queue_bytes_max;             /* a message of a topic that would exceed it closes the connection */
    uint32_t line_bytes_max;              /* of receive("*l") and receiveuntil */
    uint64_t message_bytes_max;           /* of receive(n) and receive("*a") */
    uint32_t keepalive_s;                 /* TCP keepalive: idle seconds until the first probe; 0: off */
} ls_tcp_config;

/* One ls.tcp call; shared by all states. */
typedef struct ls_tcp_server {
    ls_generation *generation;
    unsigned index; /* of the listener; selects the `serve` function in a state */
    ls_tcp_config config;
    ls_conn_limit *conn_limit;
} ls_tcp_server;

/* The start of a protocol (net/acceptor.h) with an ls_tcp_server as user data: runs `serve` for the connection in a
 * task of an idle state. The thread must not hold an actor. The stream has ls_tcp_user_bytes of room. */
void ls_tcp_start(ls_thread_ctx *ctx, ls_stream *s, void *tcp_server);
extern const size_t ls_tcp_user_bytes;

#endif
