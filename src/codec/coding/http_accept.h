/* http_accept.h - content negotiation (RFC 9110 12.5): Accept-Encoding for content that exists in several codings, and
 * the media types of Accept. Pure. */
#ifndef LS_CODEC_HTTP_ACCEPT_H
#define LS_CODEC_HTTP_ACCEPT_H

#include <stdbool.h>
#include <stddef.h>

#include "codec/coding/http_coding.h"
#include "codec/http_head.h"

/* Those of the `count` offered codings that the request accepts, the most wanted first, and in the order of the offer
 * at the same weight. Only those that it wants at least as much as the content as it is (identity). Returns their
 * number; 0 without Accept-Encoding. An element with invalid syntax is ignored. */
unsigned ls_accept_codings(const ls_http_head *head, const char *bytes, const enum ls_coding *offered, unsigned count,
                           enum ls_coding out[LS_CODINGS]);

/* The weight of a media type such as "text/html" in Accept, from 0, not acceptable, to 1000. The most specific range
 * that has the type decides: the type, "text" with all subtypes, all types; parameters of a range but "q" are ignored.
 * 1000 without the field. *named receives whether a range is the type itself, with a weight above 0. */
int ls_accept_weight(const ls_http_head *head, const char *bytes, const char *type, size_t len, bool *named);

enum ls_accept_page {
    LS_PAGE_NAMED,    /* Accept names text/html: a browser opens a page */
    LS_PAGE_POSSIBLE, /* it is missing, or accepts text/html by a wildcard */
    LS_PAGE_REFUSED,
};
enum ls_accept_page ls_accept_page(const ls_http_head *head, const char *bytes);

#endif
