/* http_config.c - the default limits of an HTTP listener. */
#include "proto/http_config.h"

void ls_http_config_defaults(ls_http_config *config)
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
    };
}

bool ls_http_config_same(const ls_http_config *a, const ls_http_config *b)
{
    return a->head.head_bytes_max == b->head.head_bytes_max && a->head.target_bytes_max == b->head.target_bytes_max &&
           a->head.fields_max == b->head.fields_max && a->body_bytes_max == b->body_bytes_max &&
           a->head_ms_max == b->head_ms_max && a->body_grace_ms == b->body_grace_ms &&
           a->body_rate_min == b->body_rate_min && a->idle_ms_max == b->idle_ms_max &&
           a->send_stall_ms_max == b->send_stall_ms_max && a->send_rate_min == b->send_rate_min &&
           a->unread_bytes_max == b->unread_bytes_max && a->linger_ms_max == b->linger_ms_max &&
           a->write_bytes_high == b->write_bytes_high;
}
