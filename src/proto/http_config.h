/* http_config.h - the limits of one HTTP listener. ls.listen{...} and ls.config{...} can set each of them; the
 * comments give the defaults. */
#ifndef LS_PROTO_HTTP_CONFIG_H
#define LS_PROTO_HTTP_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/http1_parse.h"

typedef struct ls_http_config {
    ls_http_limits head;        /* 16 KiB, 8 KiB, 100 */
    uint64_t body_bytes_max;    /* 8 MiB */
    uint32_t head_ms_max;       /* 10 s from the first byte (or the accept) to the end of the head */
    uint32_t body_grace_ms;     /* 10 s of body receive without a minimum rate */
    uint32_t body_rate_min;     /* 256 bytes per second afterwards; 0: body_grace_ms limits the whole body */
    uint32_t idle_ms_max;       /* 75 s between requests */
    uint32_t send_stall_ms_max; /* 30 s without progress of a send */
    uint32_t send_rate_min;     /* 256 bytes per second while a send waits, measured over send_stall_ms_max; 0: none */
    uint32_t unread_bytes_max;  /* 64 KiB of an unread body are skipped to find the next request; more: close */
    uint32_t linger_ms_max;     /* 2 s of reading and discarding before the close (RFC 9112 9.6) */
    uint32_t write_bytes_high;  /* 64 KiB: the queue length at which ls_http_transport.write returns LS_PENDING */
} ls_http_config;

void ls_http_config_defaults(ls_http_config *config);
bool ls_http_config_same(const ls_http_config *a, const ls_http_config *b);

#endif
