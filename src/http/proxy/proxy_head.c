/* proxy_head.c - see proxy_head.h. */
#include "http/proxy/proxy_head.h"

#include <stdlib.h>

#include "base/err.h"
#include "codec/http_chars.h"
#include "codec/http_text.h"

enum { OWN_BYTES = 512 }; /* of the fields that are written here, without those of the client and of the change */

/* The literal begins with a lower-case letter. */
#define SAME(name, len, literal)                                         \
    ((len) == sizeof(literal) - 1 && ((name)[0] | 0x20) == *(literal) && \
     ls_proxy_same_name(name, len, literal, sizeof(literal) - 1))
#define PUT(to, literal) put(to, literal, sizeof(literal) - 1)

static char *put(char *to, const void *bytes, size_t len)
{
    if (len > 0) memcpy(to, bytes, len);
    return to + len;
}

static char *put_text(char *to, ls_text text)
{
    return put(to, text.ptr, text.len);
}

static char folded(char c)
{
    return c == '_' ? '-' : ls_char_lower(c);
}

bool ls_proxy_same_name(const char *a, size_t a_len, const char *b, size_t b_len)
{
    if (a_len != b_len) return false;
    for (size_t i = 0; i < a_len; i++)
        if (a[i] != b[i] && folded(a[i]) != folded(b[i])) return false;
    return true;
}

bool ls_proxy_name_begins(const char *name, size_t len, const char *with, size_t with_len)
{
    return len >= with_len && ls_proxy_same_name(name, with_len, with, with_len);
}

bool ls_proxy_is_hop(const char *name, size_t len)
{
    switch (len) {
    case 2: return SAME(name, len, "te");
    case 7: return SAME(name, len, "upgrade") || SAME(name, len, "trailer");
    case 10: return SAME(name, len, "connection") || SAME(name, len, "keep-alive");
    case 14: return SAME(name, len, "content-length"); /* each side has a framing of its own */
    case 16: return SAME(name, len, "proxy-connection");
    case 17: return SAME(name, len, "transfer-encoding");
    case 18: return SAME(name, len, "proxy-authenticate");
    case 19: return SAME(name, len, "proxy-authorization");
    default: return false;
    }
}

/* ---- the target ------------------------------------------------------------------------------------------------ */

/* The length of a separator of segments at `at`, as some servers see it, also encoded; else 0. */
static size_t separator_at(const char *at, const char *end)
{
    if (*at == '/' || *at == '\\') return 1;
    if (end - at < 3 || *at != '%') return 0;
    const char digit = ls_char_lower(at[2]);
    return (at[1] == '2' && digit == 'f') || (at[1] == '5' && digit == 'c') ? 3 : 0;
}

/* Whether path[0..len) has a segment "." or "..", also with %2e, between %2f, and in front of parameters ("..;a"),
 * which servers of Java remove first. */
static bool has_dots(const char *path, size_t len)
{
    const char *const end = path + len;
    for (const char *at = path; at < end;) {
        unsigned dots = 0;
        bool others = false, parameters = false;
        at += separator_at(at, end);
        for (; at < end && separator_at(at, end) == 0; at++) {
            const bool encoded = end - at >= 3 && at[0] == '%' && at[1] == '2' && ls_char_lower(at[2]) == 'e';
            parameters = parameters || *at == ';';
            if (*at == '.' || encoded)
                dots += !parameters;
            else
                others = others || !parameters;
            if (encoded) at += 2;
        }
        if (!others && (dots == 1 || dots == 2)) return true;
    }
    return false;
}

/* The path after the first `strip` segments: "" or from a slash on. */
static ls_text rest_of(const char *path, size_t len, unsigned strip)
{
    const char *const end = path + len;
    for (; strip > 0 && path < end; strip--) do
            path++;
        while (path < end && *path != '/');
    return (ls_text){path, (size_t)(end - path)};
}

static char *put_target(char *to, const ls_exchange *x, const ls_proxy_change *change)
{
    const ls_http_head *head = &x->head;
    if (change->target.ptr != NULL) return put_text(to, change->target);
    const ls_text path = rest_of(x->bytes + head->path.at, head->path.len, change->strip);
    to = put_text(to, change->prefix);
    to = path.len > 0 ? put_text(to, path) : change->prefix.len == 0 ? PUT(to, "/") : to;
    if (!head->has_query) return to;
    *to++ = '?';
    return put(to, x->bytes + head->query.at, head->query.len);
}

/* ---- the fields of the request --------------------------------------------------------------------------------- */

static bool drops(const ls_proxy_filter *filter, const char *name, size_t len)
{
    if (filter->drops.len == 0) return false;
    const char *at = filter->drops.ptr, *const end = at + filter->drops.len, *from, *to;
    while (ls_list_next(&at, end, &from, &to))
        if (ls_proxy_same_name(from, (size_t)(to - from), name, len)) return true;
    return false;
}

bool ls_proxy_passes(const ls_exchange *x, const ls_proxy_filter *filter, const char *name, size_t len)
{
    if (ls_proxy_is_hop(name, len) || drops(filter, name, len)) return false;
    if (x->head.lists && ls_http_head_lists(&x->head, x->bytes, "connection", 10, name, len)) return false;
    const bool may_say = filter->trusted && memchr(name, '_', len) == NULL;
    if (ls_proxy_name_begins(name, len, "x-forwarded-", 12))
        return may_say && !SAME(name, len, "x-forwarded-for") &&
               !(filter->told.any && (SAME(name, len, "x-forwarded-proto") || SAME(name, len, "x-forwarded-host")));
    switch (len) {
    case 4: return !SAME(name, len, "host");
    case 6: return !SAME(name, len, "expect");
    case 9: return !SAME(name, len, "forwarded") && (may_say || !SAME(name, len, "x-real-ip"));
    case 14: return !SAME(name, len, "http2-settings");
    case 16: return !filter->decoded || !SAME(name, len, "content-encoding");
    default: return true;
    }
}

/* Whether the proxy has no field of that name to write: the site has dropped or replaced it, or that of the client
 * passes. */
static bool is_given(const ls_exchange *x, const ls_proxy_filter *filter, const char *name, size_t len)
{
    return drops(filter, name, len) || (filter->trusted && ls_http_head_find(&x->head, x->bytes, name, len) != NULL &&
                                        ls_proxy_passes(x, filter, name, len));
}

/* The values of all fields of that name, each with ", " after it. */
static char *put_list(char *to, const ls_exchange *x, const char *name, size_t len)
{
    const ls_http_field *field;
    for (uint32_t n = 0; (field = ls_http_head_next(&x->head, x->bytes, name, len, &n)) != NULL;) {
        if (field->value.len == 0) continue;
        to = put(to, x->bytes + field->value.at, field->value.len);
        to = PUT(to, ", ");
    }
    return to;
}

static char *put_forwarding(char *to, const ls_exchange *x, const ls_proxy_filter *filter)
{
    const ls_proxy_told *told = &filter->told;
    const ls_text host = told->host.ptr != NULL ? told->host : (ls_text){x->bytes + x->head.host.at, x->head.host.len};
    const ls_text proto = told->scheme.ptr != NULL ? told->scheme : (ls_text){"https", x->secure ? 5 : 4};
    char text[LS_ADDR_TEXT_BYTES];
    const bool known = x->remote != NULL && (x->remote->family == LS_ADDR_IP4 || x->remote->family == LS_ADDR_IP6);
    if (known) (void)ls_addr_host(x->remote, text);
    const size_t text_len = known ? strlen(text) : 0;
    char *const line = to;
    to = PUT(to, "X-Forwarded-For: ");
    char *const value = to;
    if (told->ip.ptr != NULL)
        to = PUT(put_text(to, told->ip), ", ");
    else if (filter->trusted)
        to = put_list(to, x, "x-forwarded-for", 15);
    to = put(to, text, text_len);
    if (text_len == 0 && to > value) to -= 2; /* ", " */
    to = to > value && !drops(filter, "x-forwarded-for", 15) ? PUT(to, "\r\n") : line;
    if (!is_given(x, filter, "x-forwarded-proto", 17))
        to = PUT(put_text(PUT(to, "X-Forwarded-Proto: "), proto), "\r\n");
    if (host.len > 0 && !is_given(x, filter, "x-forwarded-host", 16))
        to = PUT(put_text(PUT(to, "X-Forwarded-Host: "), host), "\r\n");
    return to;
}

bool ls_proxy_path_stays(const ls_exchange *x, const ls_proxy_change *change)
{
    const ls_span path = x->head.path;
    const ls_text rest = rest_of(x->bytes + path.at, path.len, change->strip);
    return change->target.ptr != NULL || !has_dots(rest.ptr, rest.len);
}

const ls_http_field *ls_proxy_upgrade(const ls_exchange *x)
{
    const ls_http_field *field =
        x->head.upgrade && x->body_done ? ls_http_head_find(&x->head, x->bytes, "upgrade", 7) : NULL;
    if (field == NULL) return NULL;
    const char *at = x->bytes + field->value.at, *const end = at + field->value.len, *from, *to;
    while (ls_list_next(&at, end, &from, &to)) {
        const size_t len = (size_t)(to - from);
        if (SAME(from, len, "h2c") || ls_proxy_name_begins(from, len, "http/", 5) ||
            ls_proxy_name_begins(from, len, "tls/", 4))
            return NULL;
    }
    return field;
}

int ls_proxy_put_request(ls_thread_ctx *ctx, const ls_exchange *x, ls_stream *up, const ls_proxy_filter *filter,
                         const ls_proxy_change *change, bool *chunked)
{
    const ls_http_head *head = &x->head;
    /* A field may have no text around its parts, or be one of a list; Host and the target may stand twice. */
    const size_t room = head->bytes + 4 * head->field_count + head->host.len + change->host.len + change->prefix.len +
                        change->target.len + change->lines.len + OWN_BYTES;
    char *const from = room <= LS_BLOCK_LARGE ? ls_stream_room(ctx, up, room) : NULL;
    if (from == NULL) return room > LS_BLOCK_LARGE ? LS_ELIMIT : LS_ENOMEM;
    char *to = put(from, x->bytes + head->method_name.at, head->method_name.len);
    *to++ = ' ';
    to = PUT(put_target(to, x, change), " HTTP/1.1\r\nHost: ");
    to = change->host.ptr != NULL ? put_text(to, change->host) : put(to, x->bytes + head->host.at, head->host.len);
    to = PUT(to, "\r\n");
    for (uint32_t n = 0; n < head->field_count; n++) {
        const ls_http_field *field = &head->fields[n];
        const char *const name = x->bytes + field->name.at;
        if (!ls_proxy_passes(x, filter, name, field->name.len)) continue;
        to = PUT(put(to, name, field->name.len), ": ");
        to = PUT(put(to, x->bytes + field->value.at, field->value.len), "\r\n");
    }
    to = put_forwarding(to, x, filter);
    to = PUT(to, "Via: ");
    to = head->version == 20 ? PUT(to, "2.0") : head->version == 10 ? PUT(to, "1.0") : PUT(to, "1.1");
    to = PUT(to, " luaserve\r\n");
    to = put_text(to, change->lines);
    const bool has_length = change->has_length || head->has_length;
    *chunked = head->has_body && !has_length;
    if (*chunked)
        to = PUT(to, "Transfer-Encoding: chunked\r\n");
    else if (has_length)
        to =
            PUT(ls_put_number(PUT(to, "Content-Length: "), change->has_length ? change->length : head->content_length),
                "\r\n");
    if (x->continue_due) to = PUT(to, "Expect: 100-continue\r\n");
    const ls_http_field *upgrade = ls_proxy_upgrade(x);
    if (upgrade != NULL)
        to = PUT(put(PUT(to, "Connection: Upgrade\r\nUpgrade: "), x->bytes + upgrade->value.at, upgrade->value.len),
                 "\r\n");
    to = PUT(to, "\r\n");
    ls_stream_commit(up, (size_t)(to - from));
    return LS_OK;
}

/* ---- the response ---------------------------------------------------------------------------------------------- */

bool ls_proxy_response_field(const char *bytes, const ls_http_response *head, const char *name, ls_text *value)
{
    ls_pair field;
    for (size_t at = 0; ls_http1_response_field(bytes, head, &at, &field);) {
        if (!ls_text_same(field.name, field.name_len, name, strlen(name))) continue;
        *value = (ls_text){field.value, field.value_len};
        return true;
    }
    return false;
}

static int add_field(ls_thread_ctx *ctx, ls_exchange *x, const ls_pair *field)
{
    int err = ls_exchange_lines(ctx, x, field->name, field->name_len);
    if (err == LS_OK) err = ls_exchange_lines(ctx, x, ": ", 2);
    if (err == LS_OK) err = ls_exchange_lines(ctx, x, field->value, field->value_len);
    return err == LS_OK ? ls_exchange_lines(ctx, x, "\r\n", 2) : err;
}

/* Lines that are passed on as they were received, next to one another. */
static int add_lines(ls_thread_ctx *ctx, ls_exchange *x, ls_text *lines)
{
    const int err = lines->len > 0 ? ls_exchange_lines(ctx, x, lines->ptr, lines->len) : LS_OK;
    lines->len = 0;
    return err;
}

/* Add the field of a line: to `lines`, if it is as it would be written. */
static int add_line(ls_thread_ctx *ctx, ls_exchange *x, ls_text *lines, const ls_pair *field, const char *line_end)
{
    const char *const value = field->name + field->name_len + 2;
    const bool usual = field->value == value && value[-1] == ' ' && value + field->value_len + 2 == line_end;
    const bool next = usual && lines->len > 0 && lines->ptr + lines->len == field->name;
    const int err = next ? LS_OK : add_lines(ctx, x, lines);
    if (err < 0) return err;
    if (!usual) return add_field(ctx, x, field);
    if (!next) lines->ptr = field->name;
    lines->len += (size_t)(line_end - field->name);
    return LS_OK;
}

/* Add the field Location. One that the browser would take for another host, "//host", stays below the URL. */
static int add_location(ls_thread_ctx *ctx, ls_exchange *x, ls_text *lines, ls_pair field, const char *line_end,
                        const ls_proxy_place *place)
{
    const ls_text url = place->url;
    const ls_span path = x->head.path;
    const char *const rest = field.value + url.len, *const end = field.value + field.value_len;
    if (field.value_len < url.len || !ls_text_same(field.value, url.len, url.ptr, url.len) ||
        (rest < end && strchr("/?#", *rest) == NULL))
        return add_line(ctx, x, lines, &field, line_end);
    const char *const from = x->bytes + path.at;
    const size_t kept = (size_t)(rest_of(from, path.len, place->strip).ptr - from); /* what the server does not see */
    if (kept == 0 && end - rest > 1 && (rest[1] == '/' || rest[1] == '\\'))
        return add_line(ctx, x, lines, &field, line_end);
    char *const value = malloc(kept + (size_t)(end - rest) + 1);
    if (value == NULL) return LS_ENOMEM;
    char *to = put(value, from, kept);
    if (kept == 0 && (rest == end || *rest != '/')) *to++ = '/';
    to = put(to, rest, (size_t)(end - rest));
    field.value = value;
    field.value_len = (size_t)(to - value);
    int err = add_lines(ctx, x, lines);
    if (err == LS_OK) err = add_field(ctx, x, &field);
    free(value);
    return err;
}

bool ls_proxy_is_own(const ls_exchange *x, uint32_t own, const char *name, size_t len)
{
    size_t value_len;
    if (SAME(name, len, "set-cookie") || SAME(name, len, "vary")) return false;
    const char *value = ls_exchange_find(x, name, len, &value_len);
    return value != NULL && value < x->fields->data + own;
}

/* Whether one of the fields Connection lists the name. */
static bool response_lists(const char *bytes, const ls_http_response *head, const char *name, size_t len)
{
    ls_pair field;
    for (size_t at = 0; ls_http1_response_field(bytes, head, &at, &field);)
        if (SAME(field.name, field.name_len, "connection") && ls_list_has(field.value, field.value_len, name, len))
            return true;
    return false;
}

int ls_proxy_take_response(ls_thread_ctx *ctx, ls_exchange *x, const char *bytes, const ls_http_response *head,
                           const ls_proxy_place *place, bool *events)
{
    const uint32_t own = x->fields_len;
    ls_text lines = {NULL, 0};
    ls_pair field;
    int err = LS_OK;
    x->status = head->status;
    x->type = NULL;
    for (size_t at = 0; err == LS_OK && ls_http1_response_field(bytes, head, &at, &field);) {
        const char *const name = field.name, *const line_end = bytes + at;
        const size_t len = field.name_len;
        const bool is_type = SAME(name, len, "content-type");
        if (is_type && field.value_len >= 17) *events = ls_text_same(field.value, 17, "text/event-stream", 17);
        if (ls_proxy_is_hop(name, len) || (head->lists && response_lists(bytes, head, name, len))) continue;
        if (own > 0 && ls_proxy_is_own(x, own, name, len)) continue;
        if (SAME(name, len, "date")) x->has_date = true;
        if (is_type) x->has_type = true;
        if (SAME(name, len, "server")) x->may_have_server = true;
        err = SAME(name, len, "location") ? add_location(ctx, x, &lines, field, line_end, place)
                                          : add_line(ctx, x, &lines, &field, line_end);
    }
    if (err == LS_OK) err = add_lines(ctx, x, &lines);
    static const char via[] = "Via: 1.1 luaserve\r\n";
    if (err == LS_OK) err = ls_exchange_lines(ctx, x, via, sizeof via - 1);
    x->length = head->has_length && ls_status_is_framed(x->status) ? (int64_t)head->length : -1;
    return err;
}
