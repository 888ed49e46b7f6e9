/* http1_parse_fixture.h - checks for tests of the request head parser: each head is fed whole, from every prefix, and
 * byte by byte. */
#ifndef LS_TESTS_HTTP1_PARSE_FIXTURE_H
#define LS_TESTS_HTTP1_PARSE_FIXTURE_H

#include "codec/http1/http1_parse.h"
#include "codec/http_head_check.h"

#include "support.h"

static const ls_http_limits defaults = {16 * 1024, 8 * 1024, LS_HTTP_FIELDS_MAX};

static ls_http_terms terms; /* of the last head that was parsed */

#define HOST "Host: h\r\n"
#define GET  "GET / HTTP/1.1\r\n" HOST

/* Parse an exact copy, so that the sanitizer finds a read past its end. The spans of the head are valid for any
 * copy. */
static inline int parse_copy(const char *bytes, size_t len, size_t seen, const ls_http_limits *limits,
                             ls_http_head *head)
{
    const char *why = NULL;
    char *copy = test_copy_exact(bytes, len);
    memset(&terms, 0xa5, sizeof terms); /* each head sets them */
    int result = ls_http1_parse(copy, len, seen, limits, head, &terms, &why);
    free(copy);
    assert_true((result < 0) == (why != NULL));
    return result;
}

static inline void assert_same_head(const ls_http_head *a, const ls_http_head *b)
{
    assert_int_equal(a->method, b->method);
    assert_int_equal(a->version, b->version);
    assert_int_equal(a->has_body, b->has_body);
    assert_int_equal(a->has_length, b->has_length);
    assert_int_equal(a->upgrade, b->upgrade);
    assert_true(a->content_length == b->content_length);
    assert_memory_equal(&a->method_name, &b->method_name, sizeof(ls_span));
    assert_memory_equal(&a->target, &b->target, sizeof(ls_span));
    assert_memory_equal(&a->path, &b->path, sizeof(ls_span));
    assert_int_equal(a->path_is_root, b->path_is_root);
    assert_memory_equal(&a->query, &b->query, sizeof(ls_span));
    assert_int_equal(a->has_query, b->has_query);
    assert_memory_equal(&a->host, &b->host, sizeof(ls_span));
    assert_int_equal(a->bytes, b->bytes);
    assert_int_equal(a->field_count, b->field_count);
    assert_memory_equal(a->fields, b->fields, a->field_count * sizeof a->fields[0]);
}

static inline void assert_same_terms(ls_http_terms of)
{
    assert_int_equal(terms.keep_alive, of.keep_alive);
    assert_int_equal(terms.chunked, of.chunked);
    assert_int_equal(terms.expect_continue, of.expect_continue);
}

/* Parse the whole, and check that every way to feed the bytes gives the same result:
 *   - a proper prefix of the head returns LS_HTTP_MORE or the error of the whole;
 *   - resuming after any prefix that returned LS_HTTP_MORE gives the result of the whole;
 *   - feeding single bytes gives the result of the whole. */
static inline int parse_every_way(const char *bytes, size_t len, const ls_http_limits *limits, ls_http_head *head)
{
    ls_http_head again;
    const int whole = parse_copy(bytes, len, 0, limits, head);
    const ls_http_terms of_whole = terms;
    const size_t need = whole > 0 ? (size_t)whole : len;
    size_t seen = 0;
    for (size_t n = 0; n < need; n++) {
        int part = parse_copy(bytes, n, 0, limits, &again);
        if (whole >= 0) assert_int_equal(part, LS_HTTP_MORE);
        if (part != LS_HTTP_MORE) {
            assert_int_equal(part, whole);
            continue;
        }
        assert_int_equal(parse_copy(bytes, len, n, limits, &again), whole);
        if (whole > 0) assert_same_head(head, &again);
        if (whole > 0) assert_same_terms(of_whole);
    }
    for (size_t n = 1; n <= need; n++) {
        int part = parse_copy(bytes, n, seen, limits, &again);
        if (part != LS_HTTP_MORE) {
            assert_int_equal(part, whole);
            if (whole > 0) assert_same_head(head, &again);
            if (whole > 0) assert_same_terms(of_whole);
            return whole;
        }
        seen = n;
    }
    assert_true(whole <= 0);
    return whole;
}

/* A head of the same parts, without the text between them, is the same. */
static inline void is_completed(const char *text, const ls_http_head *head)
{
    const char *why = NULL;
    ls_http_head again;
    ls_http_terms of;
    char *copy = test_copy_exact(text, head->bytes);
    memset(&again, 0xa5, sizeof again);
    again.version = head->version;
    again.method_name = head->method_name;
    again.target = head->target;
    again.field_count = head->field_count;
    memcpy(again.fields, head->fields, head->field_count * sizeof head->fields[0]);
    memset(&of, 0xa5, sizeof of);
    assert_int_equal(ls_http_head_complete(&again, copy, &of, &why), 0);
    assert_same_terms(of);
    free(copy);
    assert_null(why);
    const ls_span last = head->field_count > 0 ? head->fields[head->field_count - 1].value : head->target;
    assert_in_range(again.bytes, last.at + last.len, head->bytes);
    again.bytes = head->bytes;
    assert_same_head(head, &again);
}

static inline void is_served_to(const char *text, ls_http_head *head)
{
    int result = parse_every_way(text, strlen(text), &defaults, head);
    if (result != (int)strlen(text)) fail_msg("%d for: %s", result, text);
    assert_int_equal(head->bytes, strlen(text));
    is_completed(text, head);
}

static inline void is_served(const char *text)
{
    ls_http_head head;
    is_served_to(text, &head);
}

static inline void is_refused_bytes(const char *bytes, size_t len, int status)
{
    ls_http_head head;
    int result = parse_every_way(bytes, len, &defaults, &head);
    if (result != -status) fail_msg("%d, wanted -%d, for: %.*s", result, status, (int)len, bytes);
}

static inline void is_refused(const char *text, int status)
{
    is_refused_bytes(text, strlen(text), status);
}

static inline void span_is(const char *bytes, ls_span span, const char *text)
{
    assert_int_equal(span.len, strlen(text));
    assert_memory_equal(bytes + span.at, text, span.len);
}

#endif
