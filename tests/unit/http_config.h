/* http_config.h - limits of an HTTP listener for tests. */
#ifndef TEST_HTTP_CONFIG_H
#define TEST_HTTP_CONFIG_H

#include "http/http_config.h"

enum { TEST_HTTP2_STREAMS = 128, TEST_HTTP2_RESETS = 128, TEST_HTTP2_WINDOW = 1 << 20 };

static inline void test_http_config(ls_http_config *config)
{
    *config = (ls_http_config){
        .head = {.head_bytes_max = 16 * 1024, .target_bytes_max = 8 * 1024, .fields_max = LS_HTTP_FIELDS_MAX},
        .body_bytes_max = 8 * 1024 * 1024,
        .head_ms_max = 10 * 1000,
        .body_grace_ms = 10 * 1000,
        .body_rate_min = 256,
        .idle_ms_max = 75 * 1000,
        .send_stall_ms_max = 30 * 1000,
        .send_rate_min = 256,
        .unread_bytes_max = 64 * 1024,
        .linger_ms_max = 2 * 1000,
        .write_bytes_high = 64 * 1024,
        .http2_streams_max = TEST_HTTP2_STREAMS,
        .http2_resets_max = TEST_HTTP2_RESETS,
        .http2_window_bytes_max = TEST_HTTP2_WINDOW,
    };
}

#endif
