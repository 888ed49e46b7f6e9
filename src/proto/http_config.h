/* http_config.h - the limits of one HTTP listener; every one can be set in ls.listen{...} or ls.config{...}. */
#ifndef LS_PROTO_HTTP_CONFIG_H
#define LS_PROTO_HTTP_CONFIG_H

#include <stdint.h>

#include "proto/http1_parse.h"

typedef struct ls_http_config {
    ls_http_limits head;        /* 16 KiB, 8 KiB, 100 */
    uint64_t body_bytes_max;    /* 8 MiB */
    uint32_t head_ms_max;       /* 10 s from the first byte (or the accept) to the end of the head */
    uint32_t body_grace_ms;     /* 10 s without a minimum rate */
    uint32_t body_rate_min;     /* 256 bytes per second afterwards */
    uint32_t idle_ms_max;       /* 75 s between requests */
    uint32_t send_stall_ms_max; /* 30 s */
    uint32_t unread_bytes_max;  /* 64 KiB of a body that the handler left, skipped so that the next request is found */
    uint32_t linger_ms_max;     /* 2 s of reading on after an error answer (RFC 9112 9.6) */
    uint32_t write_bytes_high;  /* 64 KiB queued: ls_http_transport.write says LS_PENDING */
} ls_http_config;

void ls_http_config_defaults(ls_http_config *config);

#endif
