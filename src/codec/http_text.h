/* http_text.h - small grammars of HTTP: percent-encoding, query and form pairs, cookies, tokens, dates, reason phrases
 * (RFC 3986, WHATWG URL form encoding, RFC 6265, RFC 9110). Pure. */
#ifndef LS_CODEC_HTTP_TEXT_H
#define LS_CODEC_HTTP_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Decode %XX (with `plus` also '+' to a space) into `out`, which has room for len bytes and may be `bytes`. Returns
 * the number of bytes written, or -1 for an invalid escape or a decoded NUL. */
long ls_percent_decode(const char *bytes, size_t len, bool plus, char *out);

/* Get the next name=value pair of "a=1&b=2", still encoded. The call advances *at; false at the end. Empty pairs are
 * skipped. */
typedef struct ls_pair {
    const char *name, *value;
    size_t name_len, value_len;
} ls_pair;
bool ls_query_next(const char *bytes, size_t len, size_t *at, ls_pair *out);

/* Get the next cookie of a Cookie field value (RFC 6265 5.4), the value without its quotes. *at as for
 * ls_query_next. */
bool ls_cookie_next(const char *bytes, size_t len, size_t *at, ls_pair *out);

/* Get the next field of lines "Name: value\r\n"... that luaserve has composed. *at as for ls_query_next. In the
 * header, because responses with files or from the cache read all of their lines. */
static inline bool ls_lines_next(const char *lines, size_t len, size_t *at, ls_pair *out)
{
    if (*at >= len) return false;
    out->name = lines + *at;
    out->name_len = (size_t)((const char *)memchr(out->name, ':', len - *at) - out->name);
    out->value = out->name + out->name_len + sizeof ": " - 1;
    out->value_len = (size_t)((const char *)memchr(out->value, '\r', (size_t)(lines + len - out->value)) - out->value);
    *at = (size_t)(out->value + out->value_len + sizeof "\r\n" - 1 - lines);
    return true;
}
/* The same of valid lines that were received: they end at an empty one, and white space around a value is not part of
 * it. */
bool ls_lines_next_received(const char *lines, size_t len, size_t *at, ls_pair *out);

/* Get the next element of a comma-separated list (RFC 9110 5.6.1), without surrounding white space; it may be empty.
 * The call advances *at; false: no more elements. An empty list has one empty element. */
bool ls_list_next(const char **at, const char *end, const char **from, const char **to);

/* Whether an element of the list equals this one, which is not empty; ASCII case is ignored. */
bool ls_list_has(const char *list, size_t len, const char *element, size_t element_len);

/* Parse the value of a Content-Length (RFC 9110 8.6): 1 to 19 digits, including leading zeros, and at most 2^63 - 1.
 * For any other text it returns false and does not change *out. */
bool ls_length_parse(const char *bytes, size_t len, uint64_t *out);

bool ls_is_token(const char *bytes, size_t len);       /* RFC 9110 5.6.2, at least one character */
bool ls_is_field_value(const char *bytes, size_t len); /* RFC 9110 5.5: no control character except HTAB */
bool ls_text_same(const char *a, size_t a_len, const char *b, size_t b_len); /* equal; ASCII case is ignored */

/* The reason phrase of a status, "" for an unknown status. */
const char *ls_status_text(int status);

/* Whether a response with this status has a framed body (Content-Length or Transfer-Encoding): all but 1xx, 204 and
 * 304 (RFC 9112 6.3). */
static inline bool ls_status_is_framed(int status)
{
    return status >= 200 && status != 204 && status != 304;
}
/* Whether that body may have bytes: not for 205, whose length is 0 (RFC 9110 15.3.6). */
static inline bool ls_status_has_content(int status)
{
    return ls_status_is_framed(status) && status != 205;
}

/* Write an IMF-fixdate, 29 characters without a NUL: "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110 5.6.7). */
enum { LS_HTTP_DATE_BYTES = 29 };
void ls_http_date(int64_t wall_s, char out[LS_HTTP_DATE_BYTES]);

/* Parse a date in one of the three formats of RFC 9110 5.6.7: "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94
 * 08:49:37 GMT", "Sun Nov  6 08:49:37 1994". The name of the day is not compared with the date; a second 60 is the
 * next minute. A year of two digits is the last such year that is at most 50 years after now_s. For any other text it
 * returns false and does not change *out. */
bool ls_http_date_parse(const char *bytes, size_t len, int64_t now_s, int64_t *out);

/* Write n in decimal, at most 20 bytes, without a terminator. Returns the address after it. In the header, because
 * each response writes its length. */
static inline char *ls_put_number(char *to, uint64_t n)
{
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    memcpy(to, digits + at, sizeof digits - at);
    return to + (sizeof digits - at);
}

#endif
