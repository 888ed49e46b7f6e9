/* http_head.c - see http_head.h. */
#include "codec/http_head.h"

#include <string.h>

#include "codec/http_text.h"

const ls_http_field *ls_http_head_next(const ls_http_head *head, const char *bytes, const char *name, size_t len,
                                       uint32_t *at)
{
    while (*at < head->field_count) {
        const ls_http_field *field = &head->fields[(*at)++];
        if (field->name.len == len && ls_text_same(bytes + field->name.at, len, name, len)) return field;
    }
    return NULL;
}

const ls_http_field *ls_http_head_find(const ls_http_head *head, const char *bytes, const char *name, size_t len)
{
    uint32_t at = 0;
    return ls_http_head_next(head, bytes, name, len, &at);
}

bool ls_http_head_lists(const ls_http_head *head, const char *bytes, const char *name, size_t name_len,
                        const char *element, size_t len)
{
    const ls_http_field *field;
    for (uint32_t at = 0; (field = ls_http_head_next(head, bytes, name, name_len, &at)) != NULL;)
        if (ls_list_has(bytes + field->value.at, field->value.len, element, len)) return true;
    return false;
}

bool ls_http_is_trailer(const char *name, size_t len)
{
    static const char *const refused[] = {
        /* the message and its way */
        "connection", "content-length", "host", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding",
        "upgrade", "via", "forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "max-forwards",
        /* the request */
        "cache-control", "expect", "if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since",
        "origin", "pragma", "range", "authorization", "cookie", "proxy-authorization",
        /* the response */
        "age", "date", "expires", "location", "proxy-authenticate", "retry-after", "set-cookie", "vary",
        "www-authenticate",
        /* the content */
        "content-encoding", "content-range", "content-type"};
    for (size_t n = 0; n < sizeof refused / sizeof refused[0]; n++)
        if (ls_text_same(name, len, refused[n], strlen(refused[n]))) return false;
    return true;
}
