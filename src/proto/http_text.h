/* http_text.h - the small grammars around a request: percent-encoding, query and form pairs, cookies, tokens, dates,
 * status phrases (RFC 3986, WHATWG URL form encoding, RFC 6265, RFC 9110). Pure. */
#ifndef LS_PROTO_HTTP_TEXT_H
#define LS_PROTO_HTTP_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decode %XX (and '+' to space when plus) into out, which has room for len bytes; may be in place. Returns the bytes
 * written, or -1 for a bad escape or a decoded NUL. */
long ls_percent_decode(const char *bytes, size_t len, bool plus, char *out);

/* The next name=value of "a=1&b=2"; spans are still encoded. *at moves on; false at the end. Empty pairs are skipped. */
typedef struct ls_pair {
    const char *name, *value;
    size_t name_len, value_len;
} ls_pair;
bool ls_query_next(const char *bytes, size_t len, size_t *at, ls_pair *out);

/* The next cookie of a Cookie field value (RFC 6265 5.4); values keep their quotes off. */
bool ls_cookie_next(const char *bytes, size_t len, size_t *at, ls_pair *out);

/* The next element of a comma-separated list (RFC 9110 5.6.1), without white space around it and perhaps empty. *at moves
 * on; false: there are no more. A list that is empty has one empty element. */
bool ls_list_next(const char **at, const char *end, const char **from, const char **to);

/* The value of a Content-Length (RFC 9110 8.6): 1 to 19 digits, 2^63 - 1 at most; leading zeros are digits. false, and *out
 * is as it was, for anything else. */
bool ls_length_parse(const char *bytes, size_t len, uint64_t *out);

bool ls_is_token(const char *bytes, size_t len);        /* RFC 9110 5.6.2, at least one character */
bool ls_is_field_value(const char *bytes, size_t len);  /* no CR, LF, NUL or other control but HTAB (RFC 9110 5.5) */
bool ls_is_cookie_value(const char *bytes, size_t len); /* RFC 6265 4.1.1 cookie-octets */
bool ls_text_same(const char *a, size_t a_len, const char *b, size_t b_len); /* ASCII, case-insensitive */

/* The reason phrase of a status, "" when unknown. */
const char *ls_status_text(int status);

/* Whether a message with this status goes on behind its head, and may say how (Content-Length, Transfer-Encoding): not with
 * 1xx, 204 and 304 (RFC 9112 6.3). Whether anything may stand there: not with 205 either, whose length is 0 (RFC 9110 15.3.6). */
bool ls_status_is_framed(int status);
bool ls_status_has_content(int status);

/* IMF-fixdate, 29 characters, no terminator: "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110 5.6.7). */
enum { LS_HTTP_DATE_BYTES = 29 };
void ls_http_date(int64_t wall_s, char out[LS_HTTP_DATE_BYTES]);

#endif
