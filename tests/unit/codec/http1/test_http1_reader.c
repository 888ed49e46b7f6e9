/* test_http1_reader.c - whole responses: interim ones, heads, bodies of each framing, ends; the result does not depend
 * on splits. */
/* sanitizers: asan; no thread starts */
#include "codec/http1/http1_reader.h"

#include "support.h"

typedef struct whole {
    int err;
    unsigned status;
    bool end;
    size_t used, len;
    char body[256];
} whole;

/* Read the bytes in pieces of `step`, as a client does that keeps what is not consumed. */
static whole read_in_steps(const char *bytes, size_t len, size_t step, enum ls_asked asked)
{
    ls_http1_reader reader;
    whole w = {0};
    bool answered = false;
    ls_http1_reader_init(&reader, asked);
    for (size_t have = step < len ? step : len; w.err == LS_OK && !w.end;
         have = have + step < len ? have + step : len) {
        const char *why = NULL;
        size_t skip = 0;
        char *copy = test_copy_exact(bytes + w.used, have - w.used);
        const size_t rest = have - w.used;
        if (!answered) {
            const int head = ls_http1_read_head(&reader, copy, rest, 200, &skip, &why);
            w.used += skip + (head > 0 ? (size_t)head : 0);
            answered = head > 0;
            w.status = reader.head.status;
            if (head < 0) w.err = head;
        }
        size_t at = answered ? w.used - (have - rest) : rest;
        while (answered && w.err == LS_OK && !w.end && (at < rest || reader.head.framing == LS_FRAMING_NONE)) {
            ls_chunk_run run;
            w.err = ls_http1_read_body(&reader, copy + at, rest - at, &run, &why);
            if (w.err < 0) break;
            assert_true(w.len + run.len <= sizeof w.body);
            memcpy(w.body + w.len, copy + at + run.from, run.len);
            w.len += run.len;
            w.used += run.used;
            at += run.used;
            w.end = run.end;
        }
        assert_true((w.err < 0) == (why != NULL));
        free(copy);
        if (have == len) break;
    }
    if (w.err == LS_OK && !w.end) w.err = answered ? ls_http1_read_end(&reader) : LS_ECLOSED;
    return w;
}

static whole read_all(const char *bytes, size_t len, enum ls_asked asked)
{
    const whole w = read_in_steps(bytes, len, len, asked);
    for (size_t step = 1; step < len; step += step < 8 ? 1 : 13) {
        const whole split = read_in_steps(bytes, len, step, asked);
        assert_int_equal(split.err, w.err);
        assert_int_equal(split.end, w.end);
        if (w.err == LS_OK) assert_int_equal(split.used, w.used);
        assert_int_equal(split.len, w.len);
        assert_memory_equal(split.body, w.body, w.len);
    }
    return w;
}

TEST(responses)
{
    static const struct {
        const char *text;
        unsigned status;
        enum ls_asked asked;
        bool end;
        const char *body;
        size_t behind; /* bytes behind the end */
        int err;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, LS_ASKED_BODY, true, "hello", 0, LS_OK},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP", 200, LS_ASKED_BODY, true, "hello", 4, LS_OK},
        {"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", 200, LS_ASKED_BODY, false, "hello", 0, LS_ETRUNCATED},
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, LS_ASKED_BODY, true, "", 0, LS_OK},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200, LS_ASKED_HEAD, true, "", 0, LS_OK},
        {"HTTP/1.1 204 No Content\r\n\r\nx", 204, LS_ASKED_BODY, true, "", 1, LS_OK},
        {"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304, LS_ASKED_BODY, true, "", 0, LS_OK},
        {"HTTP/1.0 200 OK\r\n\r\nto the end", 200, LS_ASKED_BODY, false, "to the end", 0, LS_OK},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nA: b\r\n\r\nHTTP", 200,
         LS_ASKED_BODY, true, "abcde", 4, LS_OK},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", 200, LS_ASKED_BODY, false, "ab", 0,
         LS_ETRUNCATED},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", 200, LS_ASKED_BODY, false, "abc", 0,
         LS_ETRUNCATED},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc", 200, LS_ASKED_BODY, false, "", 0,
         LS_EPROTO},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: "
         "1\r\n\r\na",
         200, LS_ASKED_BODY, true, "a", 0, LS_OK},
        {"HTTP/1.1 101 Switching Protocols\r\n\r\n", 101, LS_ASKED_BODY, false, "", 0, LS_EPROTO},
        {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nnext", 101, LS_ASKED_UPGRADE, true, "", 4, LS_OK},
        {"HTTP/1.1 103 \r\n\r\nHTTP/1.1 101 \r\n\r\n", 101, LS_ASKED_UPGRADE, true, "", 0, LS_OK},
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno", 200, LS_ASKED_UPGRADE, true, "no", 0, LS_OK},
        {"HTTP/1.1 101 Switching Protocols\r\n\r\n", 101, LS_ASKED_HEAD, false, "", 0, LS_EPROTO},
        {"HTTP/1.1 100 Continue\r\n\r\n", 0, LS_ASKED_BODY, false, "", 0, LS_ECLOSED},
        {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 0, LS_ASKED_BODY, false, "", 0,
         LS_EPROTO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t len = strlen(cases[i].text);
        const whole w = read_all(cases[i].text, len, cases[i].asked);
        if (w.err != cases[i].err || w.end != cases[i].end || w.len != strlen(cases[i].body) ||
            memcmp(w.body, cases[i].body, w.len) != 0 || (w.end && len - w.used != cases[i].behind) ||
            (cases[i].status != 0 && w.err == LS_OK && w.status != cases[i].status))
            fail_msg("case %zu: err %d, end %d, %zu bytes, %zu used of %zu", i, w.err, w.end, w.len, w.used, len);
    }
}

/* `interims` responses 103 before the final one. */
static int read_behind(unsigned interims)
{
    static const char interim[] = "HTTP/1.1 103 \r\n\r\n", final[] = "HTTP/1.1 204 \r\n\r\n";
    char text[(LS_RESPONSE_INTERIM_MAX + 2) * sizeof interim];
    size_t len = 0;
    for (unsigned n = 0; n <= interims; n++) {
        const char *from = n < interims ? interim : final;
        memcpy(text + len, from, sizeof interim - 1);
        len += sizeof interim - 1;
    }
    return read_all(text, len, LS_ASKED_BODY).err;
}

TEST(interim_responses_have_a_limit)
{
    assert_int_equal(read_behind(LS_RESPONSE_INTERIM_MAX), LS_OK);
    assert_int_equal(read_behind(LS_RESPONSE_INTERIM_MAX + 1), LS_EPROTO);
}

/* A head of `bytes` bytes; read_in_steps allows 200. */
static int read_head_of(size_t bytes)
{
    char text[256];
    const int len = snprintf(text, sizeof text, "HTTP/1.1 204 \r\nA: %0*d\r\n\r\n", (int)bytes - 22, 0);
    assert_int_equal(len, bytes);
    return read_all(text, bytes, LS_ASKED_BODY).err;
}

TEST(the_head_has_a_limit)
{
    assert_int_equal(read_head_of(200), LS_OK);
    assert_int_equal(read_head_of(201), LS_EPROTO);
}
