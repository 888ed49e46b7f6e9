/* http_condition.h - conditional requests (RFC 9110 13): If-Match, If-None-Match, If-Modified-Since,
 * If-Unmodified-Since, If-Range, and the entity tags of files (RFC 9110 8.8.3). Pure. */
#ifndef LS_CODEC_HTTP_CONDITION_H
#define LS_CODEC_HTTP_CONDITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/http_head.h"

/* The validators of a representation that exists. */
typedef struct ls_validators {
    const char *etag; /* a whole entity tag, "\"abc\"" or "W/\"abc\"" */
    size_t etag_len;  /* 0: it has none */
    bool dated;
    int64_t modified_s; /* Last-Modified, if dated */
} ls_validators;

/* The fields of a request that make it conditional or ask for a part. */
typedef struct ls_conditions {
    const ls_http_head *head;
    const char *bytes;
    bool any; /* false: none of the fields is there */
    bool match, none_match;
    const ls_http_field *modified_since, *unmodified_since, *range, *if_range; /* NULL: not there, or more than once */
    bool if_range_invalid;                                                     /* more than once */
} ls_conditions;

/* Find them. `bytes` is the head as it was parsed; both stay valid while *out is used. */
void ls_conditions_of(const ls_http_head *head, const char *bytes, ls_conditions *out);

enum ls_condition {
    LS_CONDITION_HOLDS,        /* respond as without conditions */
    LS_CONDITION_NOT_MODIFIED, /* 304 */
    LS_CONDITION_FAILED,       /* 412 */
};

/* Evaluate the preconditions in the order of RFC 9110 13.2.2. A field with an invalid date is ignored. now_s: the wall
 * time, for dates with two digits of the year. */
enum ls_condition ls_condition_evaluate(const ls_conditions *conditions, const ls_validators *validators,
                                        int64_t now_s);

/* Whether the Range field applies: there is no If-Range, or it names this representation (RFC 9110 13.1.5): an equal
 * strong entity tag, or exactly the date of Last-Modified if that is at least a second old. */
bool ls_condition_range_applies(const ls_conditions *conditions, const ls_validators *validators, int64_t now_s);

/* Write the strong entity tag of a file: its size and its time of change in hexadecimal digits, with the suffix, such
 * as the name of a content coding. The number of the file is not a part: two servers with copies of one directory give
 * the same tags. Returns the length; no NUL. suffix_len <= LS_ETAG_SUFFIX_BYTES. */
enum { LS_ETAG_SUFFIX_BYTES = 48, LS_ETAG_BYTES = 2 + 16 + 1 + 16 + 8 + LS_ETAG_SUFFIX_BYTES };
size_t ls_etag_of_file(uint64_t bytes, int64_t modified_s, uint32_t modified_ns, const char *suffix, size_t suffix_len,
                       char out[LS_ETAG_BYTES]);

#endif
