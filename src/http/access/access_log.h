/* access_log.h - a line for each request that has ended, in a format, for a line log (base/io/line_log.h).
 *
 * lua/luaserve/access_log.lua reads the options of a site and compiles a format to parts: literal text, and variables
 * with the names that nginx gives them. The line is made by the thread that ends the request, of what the record has
 * (http/record.h).
 *
 * No client can forge a line. In text, the bytes outside of printable ASCII, quotation marks and backslashes of a value
 * become \xNN, as in nginx. In JSON, a value is a string of valid UTF-8: an invalid byte becomes U+FFFD. */
#ifndef LS_HTTP_ACCESS_LOG_H
#define LS_HTTP_ACCESS_LOG_H

#include "base/io/line_log.h"
#include "http/record.h"

enum { LS_ACCESS_VALUE_BYTES_MAX = 4096 }; /* of a value as it is written; the rest of a longer one is left out */

/* The variables, each without its $. Those of `http_` and `sent_http_` continue with the name of a field. Those after
 * `request` have no value in the line of a request that was refused before its head was complete. */
#define LS_ACCESS_VARIABLES(X)                                                                                     \
    X(remote_addr)                                                                                                 \
    X(remote_port)                                                                                                 \
    X(realip_remote_addr) X(server_protocol) X(scheme) X(time_local) X(time_iso8601) X(msec) X(status) X(outcome)  \
        X(body_bytes_sent) X(request_length) X(request_time) X(first_byte_time) X(request) X(request_id)           \
            X(request_method) X(request_uri) X(uri) X(args) X(host) X(route) X(remote_user) X(http_) X(sent_http_) \
                X(server_addr) X(server_port) X(upstream_addr) X(upstream_status) X(upstream_response_time)

#define LS_ACCESS_ENUM(name) LS_ACCESS_##name,
enum ls_access_what { LS_ACCESS_LITERAL, LS_ACCESS_VARIABLES(LS_ACCESS_ENUM) LS_ACCESS_WHATS };
extern const char *const ls_access_names[LS_ACCESS_WHATS]; /* "" for LS_ACCESS_LITERAL */

typedef struct ls_access_part {
    uint8_t what;
    ls_text text; /* a literal, or the name of the field */
} ls_access_part;

typedef struct ls_access_log {
    ls_record_sink sink; /* for ls_records_add */
    ls_line_log *lines;  /* NULL: no lines at all, of access_log = false */
    bool json;
    bool masks_addresses;  /* the last byte of IPv4, the last 80 bits of IPv6 */
    uint32_t sample;       /* of 2^32; 0: all. Those with a 5xx, slow, aborted and refused ones always */
    uint64_t slow_ns;      /* 0: none is slow */
    const ls_text *masked; /* names in queries whose values are not written */
    unsigned masked_count, part_count;
    const ls_access_part *parts;
} ls_access_log; /* the owner has the arrays, and their texts */

void ls_access_ended(ls_record_sink *sink, ls_thread_ctx *ctx, const ls_record *record); /* sink->ended of a log */

/* Write the line without a line break; for tests. At most LS_LINE_LOG_LINE_MAX - 1 bytes. Returns their number. */
size_t ls_access_line(const ls_access_log *log, const ls_record *record, int64_t wall_us, char *out);

#endif
