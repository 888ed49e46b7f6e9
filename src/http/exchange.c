/* exchange.c - the extra header lines and the trailers of a response, stored as the text that is sent.
 *
 * The lines are contiguous in x->fields, a block that belongs to the exchange. The block is small at first; a large
 * block replaces it when the lines need more room. A call that fails does not change the lines. */
#include "http/exchange.h"

#include <string.h>

#define NAME_IS(name, len, literal) ls_text_same(name, len, literal, sizeof(literal) - 1)

/* Fields that determine the message framing, or that the transport writes. */
static bool is_framing(const char *name, size_t len)
{
    switch (len) {
    case 4: return NAME_IS(name, len, "date");
    case 7: return NAME_IS(name, len, "trailer");
    case 10: return NAME_IS(name, len, "connection") || NAME_IS(name, len, "keep-alive");
    case 14: return NAME_IS(name, len, "content-length");
    case 17: return NAME_IS(name, len, "transfer-encoding");
    default: return false;
    }
}

bool ls_exchange_next_field(const ls_exchange *x, size_t *at, ls_pair *out)
{
    return x->fields_len > 0 && ls_lines_next(x->fields->data, x->fields_len, at, out);
}

bool ls_exchange_next_end_field(const ls_exchange *x, size_t *at, ls_pair *out)
{
    return x->end_fields != NULL && ls_lines_next(x->end_fields->data, x->end_fields->to, at, out);
}

/* Find the next line of that name at or after offset *at, which it gets. Returns the length of the line, 0: no
 * line. */
static uint32_t next_line(const ls_exchange *x, const char *name, size_t name_len, uint32_t *at)
{
    while (*at < x->fields_len) {
        const char *const line = x->fields->data + *at;
        const size_t bytes = (size_t)((const char *)memchr(line, '\n', x->fields_len - *at) + 1 - line);
        if (bytes > name_len && line[name_len] == ':' && ls_text_same(line, name_len, name, name_len))
            return (uint32_t)bytes;
        *at += (uint32_t)bytes;
    }
    return 0;
}

static uint32_t bytes_with_name(const ls_exchange *x, const char *name, size_t name_len)
{
    uint32_t sum = 0, bytes;
    for (uint32_t at = 0; (bytes = next_line(x, name, name_len, &at)) > 0; at += bytes) sum += bytes;
    return sum;
}

const char *ls_exchange_find(const ls_exchange *x, const char *name, size_t name_len, size_t *value_len)
{
    uint32_t at = 0;
    const uint32_t bytes = next_line(x, name, name_len, &at);
    if (bytes == 0) return NULL;
    *value_len = bytes - name_len - (sizeof ": \r\n" - 1);
    return x->fields->data + at + name_len + (sizeof ": " - 1);
}

bool ls_exchange_has_field(const ls_exchange *x, const char *name, size_t name_len)
{
    uint32_t at = 0;
    return next_line(x, name, name_len, &at) > 0;
}

static void remove_name(ls_exchange *x, const char *name, size_t name_len)
{
    uint32_t at = 0, bytes;
    while ((bytes = next_line(x, name, name_len, &at)) > 0) {
        char *const line = x->fields->data + at;
        x->fields_len -= bytes;
        memmove(line, line + bytes, x->fields_len - at);
    }
}

void ls_exchange_remove(ls_exchange *x, const char *name, size_t name_len)
{
    if (NAME_IS(name, name_len, "content-type")) x->has_type = false;
    if (NAME_IS(name, name_len, "content-length")) x->length = -1;
    if (x->fields_len > 0) remove_name(x, name, name_len);
}

void ls_exchange_drop_upgrade(ls_exchange *x)
{
    if (bytes_with_name(x, "upgrade", 7) == 0) return;
    remove_name(x, "upgrade", 7);
    remove_name(x, "connection", 10);
}

void ls_exchange_drop_content(ls_exchange *x)
{
    static const char *const names[] = {
        "cache-control",    "content-disposition", "content-encoding", "content-language",
        "content-location", "content-range",       "content-type",     "etag",
        "expires",          "last-modified",       "location"};
    x->status = 200;
    x->has_type = false;
    x->length = -1;
    for (size_t n = 0; x->fields_len > 0 && n < sizeof names / sizeof names[0]; n++)
        remove_name(x, names[n], strlen(names[n]));
    ls_exchange_drop_trailers(x);
}

/* Make room for a total of `need` bytes of lines. */
static int reserve(ls_thread_ctx *ctx, ls_exchange *x, size_t need)
{
    ls_block *larger;
    if (need > LS_BLOCK_LARGE) return LS_ELIMIT;
    if (x->fields != NULL && need <= x->fields->cap) return LS_OK;
    larger = ls_block_get(ctx->pool, need <= LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
    if (larger == NULL) return LS_ENOMEM;
    if (x->fields != NULL) {
        memcpy(larger->data, x->fields->data, x->fields_len);
        ls_pool_copied(ctx->pool, x->fields_len);
        ls_block_drop(x->fields);
    }
    x->fields = larger;
    return LS_OK;
}

/* Write a line, for which there is room. Returns the address after it. */
static char *put_line(char *to, const char *name, size_t name_len, const char *value, size_t value_len)
{
    memcpy(to, name, name_len);
    to += name_len;
    *to++ = ':';
    *to++ = ' ';
    if (value_len > 0) memcpy(to, value, value_len);
    to += value_len;
    *to++ = '\r';
    *to++ = '\n';
    return to;
}

static void append(ls_exchange *x, const char *name, size_t name_len, const char *value, size_t value_len)
{
    char *const end = put_line(x->fields->data + x->fields_len, name, name_len, value, value_len);
    x->fields_len = (uint32_t)(end - x->fields->data);
}

static int check_field(const char *name, size_t name_len, const char *value, size_t value_len)
{
    if (!ls_is_token(name, name_len) || !ls_is_field_value(value, value_len)) return LS_EINVAL;
    return is_framing(name, name_len) ? LS_EACCES : LS_OK;
}

int ls_hints_add(ls_hints *hints, const char *name, size_t name_len, const char *value, size_t value_len)
{
    const size_t left = sizeof hints->lines - hints->len;
    const int err = check_field(name, name_len, value, value_len);
    if (err < 0) return err;
    if (name_len > left || value_len > left || name_len + value_len + sizeof ": \r\n" - 1 > left) return LS_ELIMIT;
    hints->len = (size_t)(put_line(hints->lines + hints->len, name, name_len, value, value_len) - hints->lines);
    return LS_OK;
}

int ls_exchange_header(ls_thread_ctx *ctx, ls_exchange *x, const char *name, size_t name_len, const char *value,
                       size_t value_len, bool replace)
{
    const bool is_type = NAME_IS(name, name_len, "content-type"); /* a response has at most one */
    const bool is_upgrade = NAME_IS(name, name_len, "upgrade");   /* needs an option of Connection */
    uint32_t removed, beside = 0;
    int err;
    if (x->response != LS_RESPONSE_NONE) return LS_EBUSY;
    if ((err = check_field(name, name_len, value, value_len)) == LS_EINVAL) return err;
    if (err == LS_EACCES) {
        if (!NAME_IS(name, name_len, "connection") || !NAME_IS(value, value_len, "close")) return LS_EACCES;
        x->close = true;
        return LS_OK;
    }
    if (name_len > LS_BLOCK_LARGE || value_len > LS_BLOCK_LARGE)
        return LS_ELIMIT; /* so that the sum below cannot overflow */
    removed = replace || is_type ? bytes_with_name(x, name, name_len) : 0;
    if (is_upgrade && bytes_with_name(x, "connection", 10) == 0) beside = sizeof "Connection: upgrade\r\n" - 1;
    err = reserve(ctx, x, x->fields_len - removed + beside + name_len + value_len + sizeof ": \r\n" - 1);
    if (err < 0) return err;

    if (removed > 0) remove_name(x, name, name_len);
    if (beside > 0) append(x, "Connection", 10, "upgrade", 7);
    append(x, name, name_len, value, value_len);
    if (is_type) x->has_type = true;
    if (NAME_IS(name, name_len, "server")) x->may_have_server = true;
    return LS_OK;
}

int ls_exchange_lines(ls_thread_ctx *ctx, ls_exchange *x, const char *lines, size_t len)
{
    if (x->response != LS_RESPONSE_NONE) return LS_EBUSY;
    if (len > LS_BLOCK_LARGE) return LS_ELIMIT;
    const int err = reserve(ctx, x, x->fields_len + len);
    if (err < 0) return err;
    memcpy(x->fields->data + x->fields_len, lines, len);
    x->fields_len += (uint32_t)len;
    return LS_OK;
}

int ls_exchange_trailer(ls_thread_ctx *ctx, ls_exchange *x, const char *name, size_t name_len, const char *value,
                        size_t value_len)
{
    if (x->error != 0) return x->error;
    if (x->response == LS_RESPONSE_DONE) return LS_EBUSY;
    if (check_field(name, name_len, value, value_len) == LS_EINVAL) return LS_EINVAL;
    if (!ls_http_is_trailer(name, name_len)) return LS_EACCES;
    const size_t have = x->end_fields != NULL ? x->end_fields->to : 0, left = LS_TRAILER_BYTES_MAX - have;
    if (name_len > left || value_len > left || name_len + value_len + sizeof ": \r\n" - 1 > left) return LS_ELIMIT;
    if (x->response == LS_RESPONSE_OPEN && (x->framing != LS_FRAMED_BY_PARTS || x->no_body)) return LS_OK;
    if (x->end_fields == NULL && (x->end_fields = ls_block_get(ctx->pool, LS_BLOCK_SMALL)) == NULL) return LS_ENOMEM;
    char *const data = x->end_fields->data;
    x->end_fields->to = (uint32_t)(put_line(data + have, name, name_len, value, value_len) - data);
    return LS_OK;
}

void ls_exchange_announce_trailers(ls_thread_ctx *ctx, ls_exchange *x)
{
    static const char trailer[] = "Trailer";
    char names[LS_TRAILER_BYTES_MAX], *to = names; /* each line has ": \r\n", and each name here ", " */
    ls_pair field;
    for (size_t at = 0; ls_exchange_next_end_field(x, &at, &field);) {
        if (to > names) to = (char *)memcpy(to, ", ", 2) + 2;
        to = (char *)memcpy(to, field.name, field.name_len) + field.name_len;
    }
    const size_t len = (size_t)(to - names);
    if (reserve(ctx, x, x->fields_len + sizeof trailer + len + sizeof ": \r\n") == LS_OK)
        append(x, trailer, sizeof trailer - 1, names, len);
}

void ls_exchange_add_filter(ls_exchange *x, ls_response_filter *filter)
{
    filter->ops = *x->transport;
    filter->next = x->transport;
    filter->below = x->filter;
    x->filter = filter;
    x->transport = &filter->ops;
}

void ls_exchange_drop_filters(ls_exchange *x)
{
    while (x->filter != NULL) {
        ls_response_filter *filter = x->filter;
        x->filter = filter->below;
        filter->drop(filter);
    }
}
