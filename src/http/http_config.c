/* http_config.c - see http_config.h. */
#include "http/http_config.h"

bool ls_http_config_same(const ls_http_config *a, const ls_http_config *b)
{
    return a->head.head_bytes_max == b->head.head_bytes_max && a->head.target_bytes_max == b->head.target_bytes_max &&
           a->head.fields_max == b->head.fields_max && a->body_bytes_max == b->body_bytes_max &&
           a->head_ms_max == b->head_ms_max && a->body_grace_ms == b->body_grace_ms &&
           a->body_rate_min == b->body_rate_min && a->idle_ms_max == b->idle_ms_max &&
           a->send_stall_ms_max == b->send_stall_ms_max && a->send_rate_min == b->send_rate_min &&
           a->unread_bytes_max == b->unread_bytes_max && a->linger_ms_max == b->linger_ms_max &&
           a->write_bytes_high == b->write_bytes_high && a->http2 == b->http2 &&
           a->requests_max == b->requests_max && a->conn_ms_max == b->conn_ms_max &&
           a->streams_per_ip_max == b->streams_per_ip_max &&
           a->http2_streams_max == b->http2_streams_max && a->http2_resets_max == b->http2_resets_max &&
           a->http2_window_bytes_max == b->http2_window_bytes_max;
}
