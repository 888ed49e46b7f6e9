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
} ls_http_config;

bool ls_http_config_same(const ls_http_config *a, const ls_http_config *b);

#endif
