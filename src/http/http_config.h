/* http_config.h - the limits of one HTTP listener. ls.listen{...} and ls.config{...} can set each of them;
 * lua/luaserve/options.lua has the defaults. */
#ifndef LS_HTTP_HTTP_CONFIG_H
#define LS_HTTP_HTTP_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/http_head.h"

typedef struct ls_http_config {
    ls_http_limits head;
    uint64_t body_bytes_max;
    uint32_t head_ms_max;       /* from the first byte (or the accept) to the end of the head */
    uint32_t body_grace_ms;     /* of body receive without a minimum rate */
    uint32_t body_rate_min;     /* in bytes per second afterwards; 0: body_grace_ms limits the whole body */
    uint32_t idle_ms_max;       /* between requests */
    uint32_t send_stall_ms_max; /* without progress of a send */
    uint32_t send_rate_min;     /* in bytes per second while a send waits, measured over send_stall_ms_max; 0: none */
    uint32_t unread_bytes_max;  /* of an unread body are skipped to find the next request; more: close */
    uint32_t linger_ms_max;     /* of reading and discarding before the close (RFC 9112 9.6) */
    uint32_t write_bytes_high;  /* the queue length at which a write returns LS_PENDING */
    uint32_t requests_max, conn_ms_max; /* of a connection, which then closes after a response; 0: no limit */
    uint32_t streams_per_ip_max;        /* of HTTP/2, at a time; 0: no limit */
    bool http2;                 /* on plain connections: with the preface of the client */
    uint32_t http2_streams_max; /* of a connection: requests whose handlers run */
    uint32_t http2_resets_max;  /* that a client may cause, and one more for each completed stream */
    uint32_t http2_window_bytes_max; /* of bodies that no handler has read, of a connection and of each stream */
} ls_http_config;

bool ls_http_config_same(const ls_http_config *a, const ls_http_config *b);

#endif
