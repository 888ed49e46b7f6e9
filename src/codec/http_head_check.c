/* http_head_check.c - see http_head_check.h. */
#include "codec/http_head_check.h"

/* ---- targets and authorities -------------------------------------------------------------------------------- */

static bool valid_ip4(const char *at, const char *end)
{
    for (int part = 0; part < 4; part++) {
        unsigned value = 0, digits = 0;
        if (part > 0 && (at == end || *at++ != '.')) return false;
        while (at < end && ls_char_digit(*at) && digits < 3) value = value * 10 + (unsigned)(*at++ - '0'), digits++;
        if (digits == 0 || value > 255) return false;
    }
    return at == end;
}

/* IPv6address (RFC 3986 3.2.2): eight groups. One run of groups may be "::", the last two may be an IPv4 address. */
static bool valid_ip6(const char *at, const char *end)
{
    unsigned groups = 0;
    bool gap = false;
    if (end - at >= 2 && at[0] == ':' && at[1] == ':') {
        gap = true;
        at += 2;
    }
    while (at < end) {
        const char *group = at;
        while (at < end && at - group < 4 && ls_char_is(*at, LS_CHAR_HEX)) at++;
        if (at == group) return false;
        if (at < end && *at == '.') return valid_ip4(group, end) && (gap ? groups + 2 <= 7 : groups + 2 == 8);
        groups++;
        if (at == end) break;
        if (*at++ != ':' || at == end) return false;
        if (*at == ':') {
            if (gap) return false;
            gap = true;
            at++;
        }
    }
    return gap ? groups <= 7 : groups == 8;
}

static bool valid_port(const char *at, const char *end)
{
    unsigned value = 0;
    for (; at < end; at++) {
        if (!ls_char_digit(*at)) return false;
        value = value * 10 + (unsigned)(*at - '0');
        if (value > 65535) return false;
    }
    return true;
}

/* uri-host [":" port] with a non-empty host (RFC 9110 7.2), of those that reg-name allows (RFC 3986 3.2.2) only what names
 * and addresses have: a host "evil.example,x.b.example" ends as the names of a site do, and others read a list of it. No
 * label is empty, but the root at the end. *port receives the address of the digits, or NULL without a colon. */
static bool valid_authority(const char *at, const char *end, const char **port)
{
    const char *host = at;
    *port = NULL;
    if (at < end && *at == '[') {
        const char *close = memchr(at, ']', (size_t)(end - at));
        if (close == NULL || !valid_ip6(at + 1, close)) return false;
        at = close + 1;
    } else {
        for (; at < end && ls_char_is(*at, LS_CHAR_HOST); at++)
            if (*at == '.' && (at == host || at[-1] == '.')) return false;
        if (at == host) return false;
    }
    if (at == end) return true;
    if (*at != ':') return false; /* this includes the '@' of a userinfo */
    *port = at + 1;
    return valid_port(at + 1, end);
}

static int absolute_form(ls_head_check *c, const char *from, const char *to)
{
    ls_http_head *head = c->head;
    const char *at, *port;
    size_t len = (size_t)(to - from);
    if (len > 7 && ls_text_same(from, 7, "http://", 7))
        from += 7;
    else if (len > 8 && ls_text_same(from, 8, "https://", 8))
        from += 8;
    else
        return ls_head_fail(c, 400, "bad request target");
    for (at = from; at < to && *at != '/' && *at != '?'; at++) {}
    if (!valid_authority(from, at, &port)) return ls_head_fail(c, 400, "bad authority in the request target");
    head->host = ls_head_span(c, from, at);
    c->has_authority = true;
    from = at;
    while (at < to && *at != '?') at++;
    head->path = ls_head_span(c, from, at);
    head->path_is_root = at == from;
    head->has_query = at < to;
    head->query = head->has_query ? ls_head_span(c, at + 1, to) : (ls_span){0, 0};
    return LS_HEAD_STEP_DONE;
}

int ls_head_other_form(ls_head_check *c, const char *from, const char *to)
{
    ls_http_head *head = c->head;
    const char *port;
    if (head->method == LS_HTTP_CONNECT) {
        if (!valid_authority(from, to, &port) || port == NULL || port == to)
            return ls_head_fail(c, 400, "CONNECT needs a host and a port");
        head->host = head->path = ls_head_span(c, from, to);
        c->has_authority = true;
        return LS_HEAD_STEP_DONE;
    }
    if (to - from == 1 && *from == '*') {
        if (head->method != LS_HTTP_OPTIONS) return ls_head_fail(c, 400, "the target * is only valid for OPTIONS");
        head->path = head->target;
        return LS_HEAD_STEP_DONE;
    }
    return absolute_form(c, from, to);
}

int ls_head_bad_target(ls_head_check *c, char bad)
{
    return ls_head_fail(c, 400, bad == '#' ? "fragment in the request target" : "bad character in the request target");
}

/* ---- fields ------------------------------------------------------------------------------------------------- */

void ls_head_connection_field(ls_head_check *c, const char *at, const char *end)
{
    const char *from, *to;
    while (ls_list_next(&at, end, &from, &to)) {
        const size_t len = (size_t)(to - from);
        if (len == 5 && ls_head_spells(from, "close", 5))
            c->saw |= LS_SAW_CLOSE;
        else if (len == 7 && ls_head_spells(from, "upgrade", 7))
            c->saw |= LS_SAW_CONNECTION_UPGRADE;
        else if (len == 10 && ls_head_spells(from, "keep-alive", 10))
            c->saw |= LS_SAW_KEEP_ALIVE;
        else if (len > 0)
            c->saw |= LS_SAW_LISTED;
    }
}

int ls_head_transfer_field(ls_head_check *c, const char *at, const char *end)
{
    const char *from, *to;
    c->saw |= LS_SAW_TRANSFER;
    while (ls_list_next(&at, end, &from, &to)) {
        const char *name = from;
        if (c->saw & LS_SAW_CHUNKED) return ls_head_fail(c, 400, "a transfer coding after chunked");
        while (from < to && ls_char_is(*from, LS_CHAR_TOKEN)) from++;
        if (from == name) return ls_head_fail(c, 400, "bad Transfer-Encoding");
        if (from - name == 7 && ls_head_spells(name, "chunked", 7)) {
            if (from != to) return ls_head_fail(c, 400, "bad Transfer-Encoding");
            c->saw |= LS_SAW_CHUNKED;
            continue;
        }
        while (from < to && (*from == ' ' || *from == '\t')) from++;
        if (from < to && *from != ';') return ls_head_fail(c, 400, "bad Transfer-Encoding");
        c->saw |= LS_SAW_OTHER_CODING;
    }
    return LS_HEAD_STEP_DONE;
}

int ls_head_host_field(ls_head_check *c, const char *at, const char *end)
{
    const char *port;
    if (c->saw & LS_SAW_HOST) return ls_head_fail(c, 400, "several Host fields");
    c->saw |= LS_SAW_HOST;
    if (at == end ? c->needs_host : !valid_authority(at, end, &port)) return ls_head_fail(c, 400, "bad Host");
    if (!c->has_authority) c->head->host = ls_head_span(c, at, end);
    return LS_HEAD_STEP_DONE;
}

/* ---- a head that is not text -------------------------------------------------------------------------------- */

int ls_head_line(ls_head_check *c)
{
    ls_http_head *head = c->head;
    const char *const name = c->base + head->method_name.at, *const from = c->base + head->target.at;
    const char *at = from, *const to = from + head->target.len;
    if (!ls_is_token(name, head->method_name.len)) return ls_head_fail(c, 400, "bad method");
    if (head->method_name.len > LS_METHOD_BYTES_MAX) return ls_head_fail(c, 501, "method too long");
    if (at == to) return ls_head_fail(c, 400, "no request target");
    while (at < to && ls_char_is(*at, LS_CHAR_TARGET)) at++;
    if (at < to) return ls_head_bad_target(c, *at);
    head->method = ls_http_method_of(name, head->method_name.len);
    return ls_head_target(c, from, memchr(from, '?', head->target.len), to);
}

/* head->bytes becomes the end of the head as far as its parts are known. */
static void reach(ls_http_head *head, ls_span part)
{
    if (part.at + part.len > head->bytes) head->bytes = part.at + part.len;
}

static int check_field(ls_head_check *c, const ls_http_field *field)
{
    const char *const name = c->base + field->name.at, *const value = c->base + field->value.at;
    if (!ls_is_token(name, field->name.len)) return ls_head_fail(c, 400, "bad field name");
    if (!ls_is_field_value(value, field->value.len)) return ls_head_fail(c, 400, "control character in a field");
    reach(c->head, field->name);
    reach(c->head, field->value);
    return ls_head_field(c, name, field->name.len, value, value + field->value.len);
}

int ls_http_head_complete(ls_http_head *head, const char *bytes, ls_http_terms *terms, const char **why)
{
    ls_head_check c = {.base = bytes, .head = head, .terms = terms};
    ls_head_begin(&c);
    head->bytes = 0;
    reach(head, head->method_name);
    reach(head, head->target);
    int step = ls_head_line(&c);
    for (uint32_t n = 0; step > 0 && n < head->field_count; n++) step = check_field(&c, &head->fields[n]);
    if (step > 0) step = ls_head_end(&c);
    if (step < 0) *why = c.why;
    return step < 0 ? step : 0;
}
