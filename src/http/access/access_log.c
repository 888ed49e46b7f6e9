/* access_log.c - see access_log.h. */
#include "http/access/access_log.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/escape.h"
#include "codec/base64.h"
#include "codec/http_text.h"

enum { NUMBER_BYTES = 24, VALUE_BYTES_LEAST = 160 /* room for each variable that follows: addresses fit */ };

#define NAME(name) #name,
const char *const ls_access_names[LS_ACCESS_WHATS] = {"", LS_ACCESS_VARIABLES(NAME)};

typedef struct out {
    char *to, *end; /* `end`: of this value */
    const ls_access_log *log;
    bool some; /* of the value */
} out;

/* ---- values ----------------------------------------------------------------------------------------------------- */

static void put(out *o, const char *text, size_t len)
{
    if (len > (size_t)(o->end - o->to)) len = (size_t)(o->end - o->to);
    memcpy(o->to, text, len);
    o->to += len;
}

#define PUT(o, text) put(o, text, sizeof(text) - 1)

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

/* The same of 8 bytes. A high bit of each term says that a byte is below 0x20, or is the one that it was compared with. */
static bool are_plain(const char *at)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), high = 0x80 * ones;
    uint64_t v;
    memcpy(&v, at, sizeof v);
    const uint64_t quote = v ^ '"' * ones, slash = v ^ '\\' * ones, del = v ^ 0x7f * ones;
    return ((v | (v - 0x20 * ones) | (quote - ones) | (slash - ones) | (del - ones)) & high) == 0;
}

/* Write what is not plain of the first character. Returns the number of bytes that were read. */
static size_t put_odd(out *o, const char *at, size_t len)
{
    static const char digits[] = "0123456789ABCDEF";
    char code[LS_ESCAPE_BYTES_MAX + 1] = {'\\', 'x', digits[(unsigned char)*at >> 4], digits[*at & 15]};
    size_t taken = 1, n = 4;
    if (o->log->json) n = ls_escape_json(code, at, len, &taken);
    if ((size_t)(o->end - o->to) >= n) put(o, code, n);
    return taken;
}

/* A part of the value, which is a string. */
static void put_text(out *o, const char *text, size_t len)
{
    if (!o->some && o->log->json) PUT(o, "\"");
    o->some = true;
    for (size_t at = 0, from; at < len && o->to < o->end;) {
        for (from = at; len - at >= 8 && are_plain(text + at);) at += 8;
        while (at < len && is_plain((unsigned char)text[at])) at++;
        put(o, text + from, at - from);
        if (at < len) at += put_odd(o, text + at, len - at);
    }
}

static void put_string(out *o, const char *text)
{
    put_text(o, text, strlen(text));
}

static void put_number(out *o, uint64_t n)
{
    char text[NUMBER_BYTES];
    put(o, text, (size_t)(ls_put_number(text, n) - text));
    o->some = true;
}

/* Thousandths: 1.234. */
static void put_thousandths(out *o, uint64_t n)
{
    char text[NUMBER_BYTES], *to = ls_put_number(text, n / 1000);
    *to++ = '.';
    for (uint64_t unit = 100; unit > 0; unit /= 10) *to++ = (char)('0' + n / unit % 10);
    put(o, text, (size_t)(to - text));
    o->some = true;
}

static void put_addr(out *o, const ls_addr *addr)
{
    char text[LS_ADDR_TEXT_BYTES];
    ls_addr masked;
    if (addr == NULL) return;
    if (o->log->masks_addresses) {
        masked = *addr;
        ls_addr_mask(&masked);
        addr = &masked;
    }
    put_string(o, ls_addr_host(addr, text));
}

/* ---- queries ---------------------------------------------------------------------------------------------------- */

/* Whether the name of a query is this one; it may be percent-encoded. */
static bool is_name(const char *name, size_t len, const ls_text *wanted)
{
    size_t at = 0, n = 0;
    for (unsigned char c; at < len && n < wanted->len; at++, n++) {
        c = (unsigned char)name[at];
        if (c == '%' && len - at > 2 && ls_hex_read(name + at + 1, 2, &c)) at += 2;
        if (c != (unsigned char)wanted->ptr[n]) return false;
    }
    return at == len && n == wanted->len;
}

static bool is_masked(const ls_access_log *log, const char *name, size_t len)
{
    for (unsigned n = 0; n < log->masked_count; n++)
        if (is_name(name, len, &log->masked[n])) return true;
    return false;
}

/* A query; the masked values are written as "***". */
static void put_query(out *o, const char *text, size_t len)
{
    for (size_t at = 0, end; at < len; at = end) {
        for (end = at; end < len && text[end] != '&' && text[end] != ' ' && text[end] != '#';) end++;
        const char *equals = memchr(text + at, '=', end - at);
        const bool masked = equals != NULL && is_masked(o->log, text + at, (size_t)(equals - text) - at);
        put_text(o, text + at, masked ? (size_t)(equals - text) + 1 - at : end - at);
        if (masked) put_string(o, "***");
        if (end < len) put_text(o, text + end++, 1);
    }
}

static void put_url(out *o, const char *text, size_t len)
{
    const char *query = o->log->masked_count > 0 ? memchr(text, '?', len) : NULL;
    const size_t before = query != NULL ? (size_t)(query - text) + 1 : len;
    put_text(o, text, before);
    if (query != NULL) put_query(o, text + before, len - before);
}

/* ---- variables -------------------------------------------------------------------------------------------------- */

static void put_field(out *o, const ls_exchange *x, ls_text name)
{
    const ls_http_field *field = ls_http_head_find(&x->head, x->bytes, name.ptr, name.len);
    if (field == NULL) return;
    if (ls_text_same(name.ptr, name.len, "referer", 7))
        put_url(o, x->bytes + field->value.at, field->value.len);
    else
        put_text(o, x->bytes + field->value.at, field->value.len);
}

static void put_sent_field(out *o, const ls_exchange *x, ls_text name)
{
    size_t len;
    const char *value = ls_exchange_find(x, name.ptr, name.len, &len);
    if (value != NULL)
        put_text(o, value, len);
    else if (x->type != NULL && ls_text_same(name.ptr, name.len, "content-type", 12))
        put_string(o, x->type);
}

/* The user of "Authorization: Basic". */
static void put_user(out *o, const ls_exchange *x)
{
    char text[256];
    const ls_http_field *field = ls_http_head_find(&x->head, x->bytes, "authorization", 13);
    if (field == NULL || field->value.len <= 6 || field->value.len > sizeof text) return;
    const char *value = x->bytes + field->value.at;
    if (!ls_text_same(value, 6, "basic ", 6)) return;
    const ptrdiff_t len = ls_base64_read(value + 6, field->value.len - 6, false, text);
    const char *colon = len > 0 ? memchr(text, ':', (size_t)len) : NULL;
    if (colon != NULL && colon > text) put_text(o, text, (size_t)(colon - text));
}

static void put_id(out *o, const ls_exchange *x)
{
    char text[17];
    const ls_span named = x->id_field > 0 ? x->head.fields[x->id_field - 1].value : (ls_span){0};
    for (unsigned n = 0; n < 16; n++) text[n] = "0123456789abcdef"[x->id >> (60 - 4 * n) & 15];
    put_text(o, named.len > 0 ? x->bytes + named.at : text, named.len > 0 ? named.len : 16);
}

/* 29/Nov/2026:15:28:39 +0000, or 2026-11-29T15:28:39.123Z */
static void put_time(out *o, int64_t wall_us, bool iso)
{
    static LS_THREAD_LOCAL int64_t second;
    static LS_THREAD_LOCAL char local[32], utc[32];
    if (wall_us / 1000000 != second) {
        const ls_date d = ls_clock_date(second = wall_us / 1000000);
        (void)snprintf(local, sizeof local, "%02u/%.3s/%04u:%02u:%02u:%02u +0000", d.day,
                       ls_month_names + (size_t)3 * (d.month - 1), d.year, d.hour, d.minute, d.second);
        (void)snprintf(utc, sizeof utc, "%04u-%02u-%02uT%02u:%02u:%02u", d.year, d.month, d.day, d.hour, d.minute,
                       d.second);
    }
    put_string(o, iso ? utc : local);
    if (!iso) return;
    const char ms[] = {'.', (char)('0' + wall_us / 100000 % 10), (char)('0' + wall_us / 10000 % 10),
                       (char)('0' + wall_us / 1000 % 10), 'Z'};
    put_text(o, ms, sizeof ms);
}

/* One of the attempts of a proxy: they are separated by commas. */
static void put_upstream(out *o, const ls_record *r, unsigned n, enum ls_access_what what)
{
    const ls_record_upstream *at = &r->more->upstreams[n];
    char text[LS_ADDR_TEXT_BYTES + NUMBER_BYTES] = "-";
    if (what == LS_ACCESS_upstream_addr) (void)ls_addr_text(&at->addr, text);
    if (what == LS_ACCESS_upstream_status && at->status > 0) *ls_put_number(text, (uint64_t)at->status) = '\0';
    if (n > 0) put_string(o, ", ");
    if (what != LS_ACCESS_upstream_response_time) {
        put_string(o, text);
        return;
    }
    if (!o->some) put_string(o, ""); /* in JSON a string, too: there may be several */
    put_thousandths(o, ((at->ended_ns > 0 ? at->ended_ns : r->ended_ns) - at->began_ns) / 1000000u);
}

static void put_request(out *o, const ls_record *r)
{
    const ls_http_head *head = &r->x->head;
    put_text(o, r->x->bytes + head->method_name.at, head->method_name.len);
    put_string(o, " ");
    put_url(o, r->x->bytes + head->target.at, head->target.len);
    put_string(o, " ");
    put_string(o, r->protocol);
}

static void put_variable(out *o, const ls_record *r, const ls_access_part *part, int64_t wall_us)
{
    static const char *const outcomes[] = {"complete", "left", "aborted", "refused"};
    const ls_exchange *x = r->x;
    const ls_http_head *head = x != NULL ? &x->head : NULL;
    const ls_addr *local;
    if (x == NULL && part->what > LS_ACCESS_request) return;
    switch ((enum ls_access_what)part->what) {
    case LS_ACCESS_remote_addr: put_addr(o, r->client); break;
    case LS_ACCESS_realip_remote_addr: put_addr(o, r->remote); break;
    case LS_ACCESS_remote_port:
        if (r->remote != NULL) put_number(o, r->client->port);
        break;
    case LS_ACCESS_server_protocol: put_string(o, r->protocol); break;
    case LS_ACCESS_scheme: put_string(o, r->secure ? "https" : "http"); break;
    case LS_ACCESS_time_local: put_time(o, wall_us, false); break;
    case LS_ACCESS_time_iso8601: put_time(o, wall_us, true); break;
    case LS_ACCESS_msec: put_thousandths(o, (uint64_t)wall_us / 1000); break;
    case LS_ACCESS_status: put_number(o, (uint64_t)r->status); break;
    case LS_ACCESS_outcome: put_string(o, outcomes[r->end]); break;
    case LS_ACCESS_body_bytes_sent: put_number(o, r->sent); break;
    case LS_ACCESS_request_length: put_number(o, r->received); break;
    case LS_ACCESS_request_time: put_thousandths(o, (r->ended_ns - r->began_ns) / 1000000u); break;
    case LS_ACCESS_first_byte_time:
        if (r->first_ns > 0) put_thousandths(o, (r->first_ns - r->began_ns) / 1000000u);
        break;
    case LS_ACCESS_request:
        if (x != NULL)
            put_request(o, r);
        else if (r->line.len > 0)
            put_url(o, r->line.ptr, r->line.len);
        break;
    case LS_ACCESS_request_id: put_id(o, x); break;
    case LS_ACCESS_request_method: put_text(o, x->bytes + head->method_name.at, head->method_name.len); break;
    case LS_ACCESS_request_uri: put_url(o, x->bytes + head->target.at, head->target.len); break;
    case LS_ACCESS_uri:
        put_text(o, head->path_is_root ? "/" : x->bytes + head->path.at, head->path_is_root ? 1 : head->path.len);
        break;
    case LS_ACCESS_args:
        if (head->has_query) put_query(o, x->bytes + head->query.at, head->query.len);
        break;
    case LS_ACCESS_host:
        if (head->host.len > 0) put_text(o, x->bytes + head->host.at, head->host.len);
        break;
    case LS_ACCESS_route:
        if (r->route != NULL) put_text(o, r->route->pattern, r->route->len);
        break;
    case LS_ACCESS_remote_user: put_user(o, x); break;
    case LS_ACCESS_http_: put_field(o, x, part->text); break;
    case LS_ACCESS_sent_http_: put_sent_field(o, x, part->text); break;
    case LS_ACCESS_server_addr: put_addr(o, x->transport->local(x)); break;
    case LS_ACCESS_server_port:
        if ((local = x->transport->local(x)) != NULL) put_number(o, local->port);
        break;
    case LS_ACCESS_upstream_addr:
    case LS_ACCESS_upstream_status:
    case LS_ACCESS_upstream_response_time:
        for (unsigned n = 0; r->more != NULL && n < r->more->upstream_count && n < LS_RECORD_UPSTREAMS_MAX; n++)
            put_upstream(o, r, n, part->what);
        break;
    case LS_ACCESS_LITERAL:
    case LS_ACCESS_WHATS: break;
    }
}

size_t ls_access_line(const ls_access_log *log, const ls_record *record, int64_t wall_us, char *to)
{
    char *const all = to + LS_LINE_LOG_LINE_MAX - 1;
    out o = {.to = to, .log = log};
    size_t after = 0; /* bytes that the other parts need */
    for (unsigned n = 0; n < log->part_count; n++)
        after += log->parts[n].what == LS_ACCESS_LITERAL ? log->parts[n].text.len : VALUE_BYTES_LEAST;
    for (unsigned n = 0; n < log->part_count; n++) {
        const ls_access_part *part = &log->parts[n];
        o.end = all;
        if (part->what == LS_ACCESS_LITERAL) {
            put(&o, part->text.ptr, part->text.len);
            after -= part->text.len;
            continue;
        }
        after -= VALUE_BYTES_LEAST;
        const size_t room = (size_t)(all - o.to) - after;
        o.end = o.to + (room < LS_ACCESS_VALUE_BYTES_MAX ? room : LS_ACCESS_VALUE_BYTES_MAX) - 1;
        const char *const from = o.to;
        o.some = false;
        put_variable(&o, record, part, wall_us);
        o.end = all;
        if (log->json && !o.some) PUT(&o, "null");
        if (log->json && *from == '"' && o.some) PUT(&o, "\"");
        if (!log->json && o.to == from) PUT(&o, "-");
    }
    return (size_t)(o.to - to);
}

/* ---- the sink --------------------------------------------------------------------------------------------------- */

static bool is_sampled(const ls_access_log *log, const ls_record *r)
{
    if (log->sample == 0 || r->status >= 500 || r->end == LS_RECORD_ABORTED || r->end == LS_RECORD_REFUSED)
        return true;
    if (log->slow_ns > 0 && r->ended_ns - r->began_ns >= log->slow_ns) return true;
    return (uint32_t)((r->x->id * UINT64_C(0x9e3779b97f4a7c15)) >> 32) < log->sample;
}

/* The wall time of ls_clock_ns: the clock is read once in 100 ms. */
static int64_t wall_us(uint64_t now_ns)
{
    static LS_THREAD_LOCAL uint64_t read_ns;
    static LS_THREAD_LOCAL int64_t read_us;
    if (read_ns == 0 || now_ns - read_ns >= UINT64_C(100000000)) {
        read_us = ls_clock_wall_us();
        read_ns = now_ns;
    }
    return read_us + (int64_t)(now_ns - read_ns) / 1000;
}

void ls_access_ended(ls_record_sink *sink, ls_thread_ctx *ctx, const ls_record *record)
{
    const ls_access_log *log = LS_CONTAINER(sink, ls_access_log, sink);
    char line[LS_LINE_LOG_LINE_MAX];
    if (record->x != NULL && record->x->access_log != NULL && record->x->access_log != sink)
        return; /* the app has its own */
    if (log->lines == NULL || !is_sampled(log, record)) return;
    const size_t len = ls_access_line(log, record, wall_us(record->ended_ns), line);
    line[len] = '\n';
    ls_line_log_put(log->lines, ctx->index, line, len + 1);
}
