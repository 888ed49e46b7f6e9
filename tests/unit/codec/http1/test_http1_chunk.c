/* test_http1_chunk.c - the chunked coding: payload, limits, errors; the result does not depend on splits. */
/* sanitizers: asan; no thread starts */
#include "codec/http1/http1_chunk.h"

#include "support.h"

typedef struct decoded {
    int err;
    bool end;
    size_t used, len;
    char payload[1024];
    size_t trailers_len;
    char trailers[LS_CHUNK_TRAILER_BYTES_MAX];
} decoded;

/* Feed bytes[0..len) as one buffer, and append to *d. */
static void feed(ls_chunks *chunks, const char *bytes, size_t len, decoded *d)
{
    char *copy = test_copy_exact(bytes, len);
    size_t at = 0;
    while (at < len && !d->end && d->err == LS_OK) {
        ls_chunk_run run;
        const char *why = NULL;
        d->err = ls_chunks_next(chunks, copy + at, len - at, &run, &why);
        assert_true((d->err < 0) == (why != NULL));
        if (d->err < 0) break;
        assert_true(run.used > 0 && run.used <= len - at && run.from + run.len <= run.used);
        assert_true(run.used == len - at || run.end || run.len > 0);
        assert_true(d->len + run.len <= sizeof d->payload);
        memcpy(d->payload + d->len, copy + at + run.from, run.len);
        d->len += run.len;
        assert_true(run.trailers <= run.used && d->trailers_len + run.trailers <= sizeof d->trailers);
        memcpy(d->trailers + d->trailers_len, copy + at + run.used - run.trailers, run.trailers);
        d->trailers_len += run.trailers;
        d->used += run.used;
        d->end = run.end;
        at += run.used;
    }
    free(copy);
}

static void same(const decoded *a, const decoded *b)
{
    assert_int_equal(a->err, b->err);
    assert_int_equal(a->end, b->end);
    assert_int_equal(a->len, b->len);
    assert_memory_equal(a->payload, b->payload, a->len);
    if (a->err == LS_OK) assert_int_equal(a->trailers_len, b->trailers_len);
    if (a->err == LS_OK) assert_memory_equal(a->trailers, b->trailers, a->trailers_len);
    if (a->err == LS_OK) assert_int_equal(a->used, b->used);
}

/* Decode in one call, in two pieces split at every offset, and byte by byte. */
static decoded decode(const char *bytes, size_t len)
{
    decoded whole = {0}, bytewise = {0};
    ls_chunks chunks;
    ls_chunks_init(&chunks);
    feed(&chunks, bytes, len, &whole);
    for (size_t split = 0; split <= len; split++) {
        decoded two = {0};
        ls_chunks_init(&chunks);
        feed(&chunks, bytes, split, &two);
        feed(&chunks, bytes + split, len - split, &two);
        same(&whole, &two);
    }
    ls_chunks_init(&chunks);
    for (size_t n = 0; n < len; n++) feed(&chunks, bytes + n, 1, &bytewise);
    same(&whole, &bytewise);
    return whole;
}

static void gives(const char *text, const char *payload)
{
    decoded d = decode(text, strlen(text));
    if (d.err != LS_OK || !d.end) fail_msg("%d for: %s", d.err, text);
    assert_int_equal(d.used, strlen(text));
    assert_int_equal(d.len, strlen(payload));
    assert_memory_equal(d.payload, payload, d.len);
}

static void is_refused(const char *text)
{
    decoded d = decode(text, strlen(text));
    if (d.err != LS_EPROTO) fail_msg("%d for: %s", d.err, text);
}

TEST(good_bodies)
{
    gives("0\r\n\r\n", "");
    gives("000\r\n\r\n", "");
    gives("000000000000000\r\n\r\n", "");
    gives("5\r\nhello\r\n0\r\n\r\n", "hello");
    gives("1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", "abc");
    gives("a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789");
    gives("00000000000000c\r\nhello\r\nworld\r\n0\r\n\r\n", "hello\r\nworld");
    gives("1;a=b;c=\"d e\"\r\nx\r\n0;last\r\n\r\n", "x");
    gives("1\r\nx\r\n0\r\nA: b\r\nC:\r\nContent-Length: 7\r\nTransfer-Encoding: x\r\n\r\n", "x");
}

TEST(the_trailer_section)
{
    static const char *const sections[] = {"\r\n", "A: b\r\n\r\n", "A: b\r\nC:\t d \r\nA:\r\n\r\n"};
    for (size_t n = 0; n < sizeof sections / sizeof sections[0]; n++) {
        char text[100];
        (void)snprintf(text, sizeof text, "1;a=b\r\nx\r\n0;c\r\n%s", sections[n]);
        const decoded d = decode(text, strlen(text));
        assert_int_equal(d.trailers_len, strlen(sections[n]));
        assert_memory_equal(d.trailers, sections[n], d.trailers_len);
    }
}

/* chunk-ext = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] ), RFC 9112 section 7.1.1 */
TEST(good_extensions)
{
    /* clang-format off */
    static const char *const cases[] = {
        ";a", ";a=b", ";a=\"\"", ";a=\"b c\"", ";a;b", ";a=b;c=d", ";a=\"b\";c", ";a;b=\"c\"",
        " ;a", "\t;a", " \t ;a", "; a", ";\t a", ";a =b", ";a= b", ";a \t= \tb", ";a = \"b\"", ";a ;b", ";a \t; \tb",
        ";a=b ;c", ";a=\"b\" ;c", " ; a = b ; c = \"d\" ; e",
        ";!#$%&'*+-.^_`|~09AZaz=!#$%&'*+-.^_`|~09AZaz",
        ";a=\"!#[]^~\"", ";a=\";=,\"", ";a=\"\t \"", ";a=\"\x80\xff\"",
        ";a=\"\\\"\"", ";a=\"\\\\\"", ";a=\"\\b\"", ";a=\"\\\t\\ \\\x80\"", ";a=\"b\\\"c\";d"
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[128];
        (void)snprintf(text, sizeof text, "1%s\r\nx\r\n0%s\r\n\r\n", cases[i], cases[i]);
        gives(text, "x");
    }
}

TEST(bad_extensions)
{
    /* clang-format off */
    static const char *const cases[] = {
        ";", "; ", ";;", ";;a", ";a;", ";a; ", ";a;;b", ";=b", "; =b", ";\"a\"", ";a=", ";a= ", ";a=;b", ";a= ;b", ";a==b",
        ";a=b=c", ";a=b c", ";a b", ";a=b,c", ";a,b", ";a(b", ";a=b(", ";a@", ";a ", ";a=b ", ";a=\"b\" ", " ", " a", " =b",
        ";a=\"", ";a=\"b", ";a=b\"", ";a=\"b\"c", ";a=\"b\"\"c\"", ";a=\"b\"=c", ";a=\"b\\", ";a=\"b\\\"",
        ";a\\b", ";a=\\b", ";a=b\\", ";\x80", ";a=\x80", ";a\x01", ";a=\x01", ";\x7f", ";a=\"\x01\"", ";a=\"\x7f\"",
        ";a=\"\\\x01\"", ";a=\"\\\x7f\"", ";a=\"\n\"", ";a=\"\\\n\"", ";a=\"\r\n\"", ";a=\"\\\r\n\"", ";a=\"\rb\"", ";a\rb",
        ";a\n", ";a=b\n", ";a=\"b\"\n", " \n"
    };
    /* clang-format on */
    static const char nul[] = "1;a=\"\0\"\r\n", nul_pair[] = "1;a=\"\\\0\"\r\n", nul_token[] = "1;a=b\0\r\n";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[64];
        (void)snprintf(text, sizeof text, "1%s\r\n", cases[i]); /* refused before the data of the chunk */
        is_refused(text);
        (void)snprintf(text, sizeof text, "0%s\r\n", cases[i]);
        is_refused(text);
    }
    assert_int_equal(decode(nul, sizeof nul - 1).err, LS_EPROTO);
    assert_int_equal(decode(nul_pair, sizeof nul_pair - 1).err, LS_EPROTO);
    assert_int_equal(decode(nul_token, sizeof nul_token - 1).err, LS_EPROTO);
}

TEST(bytes_after_the_body_are_not_consumed)
{
    static const char text[] = "1\r\nx\r\n0\r\n\r\nGET / HTTP/1.1\r\n";
    decoded d;
    ls_chunks chunks;
    ls_chunk_run run;
    d = decode(text, sizeof text - 1);
    assert_true(d.end);
    assert_int_equal(d.used, strstr(text, "GET") - text);
    ls_chunks_init(&chunks);
    assert_int_equal(ls_chunks_next(&chunks, "0\r\n\r\n", 5, &run, NULL), LS_OK);
    assert_true(run.end);
    assert_int_equal(ls_chunks_next(&chunks, "junk", 4, &run, NULL), LS_OK);
    assert_true(run.end && run.used == 0 && run.len == 0);
}

TEST(a_truncated_body_is_not_complete)
{
    static const char text[] = "5;x\r\nhello\r\n0\r\nA: b\r\n\r\n";
    for (size_t n = 0; n < sizeof text - 1; n++) {
        decoded d = decode(text, n);
        assert_int_equal(d.err, LS_OK);
        assert_false(d.end);
        assert_int_equal(d.used, n);
    }
}

TEST(bad_bodies)
{
    /* clang-format off */
    static const char *const cases[] = {
        "\r\n", ";\r\n", "g\r\n", "-1\r\n", "+1\r\n", "0x1\r\n", "1_0\r\n", " 1\r\n", "\t1\r\n", "1 \r\n",
        "1\t\r\n", "1,\r\n", "1.0\r\n", "\"1\"\r\n", "1\n", "1\rx", "1\r\r\n", "\n1\r\n", "1\r\nx\n",
        "1\r\nxy\r\n", "1\r\nx\rz", "1\r\nx1\r\n", "1\r\n\r\n\r\n1", "1;a\n", "1;a\nb\r\n", "1;a\rb\r\n",
        "1;a\r\r\n", "1;\x01\r\n", "1;\x7f\r\n", "1000000000000000\r\n", "ffffffffffffffff\r\n",
        "fffffffffffffffff\r\n", "0000000000000000\r\n", "10000000000000000000001\r\n", "0\r\n\n", "0\r\n\rx",
        "0\r\nA\r\n", "0\r\nA b: c\r\n", "0\r\nA : c\r\n", "0\r\n A: c\r\n", "0\r\n: c\r\n", "0\r\nA: b\n",
        "0\r\nA: b\rc", "0\r\nA: b\r\n c\r\n", "0\r\nA: \x01\r\n", "0\r\nA: b\r\r\n", "0\n\r\n",
        "0\r\n\x80: a\r\n", "1\r\na\r\n\r\n"
    };
    /* clang-format on */
    static const char nul[] = "1;\0\r\n", nul_size[] = "1\0\r\n";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) is_refused(cases[i]);
    assert_int_equal(decode(nul, sizeof nul - 1).err, LS_EPROTO);
    assert_int_equal(decode(nul_size, sizeof nul_size - 1).err, LS_EPROTO);
}

TEST(the_largest_size_does_not_overflow)
{
    ls_chunks chunks;
    ls_chunk_run run;
    ls_chunks_init(&chunks);
    assert_int_equal(ls_chunks_next(&chunks, "fffffffffffffff\r\nabc", 20, &run, NULL), LS_OK);
    assert_int_equal(run.len, 3);
    assert_true(chunks.left == UINT64_C(0xfffffffffffffff) - 3);
}

/* Return head, `count` times `c`, tail. */
static char *stretched(const char *head, char c, size_t count, const char *tail)
{
    char *text = malloc(strlen(head) + count + strlen(tail) + 1);
    assert_non_null(text);
    strcpy(text, head);
    memset(text + strlen(head), c, count);
    strcpy(text + strlen(head) + count, tail);
    return text;
}

TEST(limit_of_an_extension)
{
    char *text = stretched("1;", 'a', LS_CHUNK_EXT_BYTES_MAX - 1, "\r\nx\r\n0\r\n\r\n"); /* the ';' counts */
    gives(text, "x");
    free(text);
    text = stretched("1;", 'a', LS_CHUNK_EXT_BYTES_MAX, "\r\nx\r\n0\r\n\r\n");
    is_refused(text);
    free(text);
    text = stretched("1;", 'a', LS_CHUNK_EXT_BYTES_MAX, ""); /* refused before its end */
    is_refused(text);
    free(text);
    text = stretched("1;aaaaaaaa\r\nx\r\n1;", 'a', LS_CHUNK_EXT_BYTES_MAX - 1, "\r\ny\r\n0;a\r\n\r\n");
    gives(text, "xy"); /* the limit applies to each chunk */
    free(text);
    /* White space, quotes and backslashes count as well. */
    text = stretched("1", ' ', LS_CHUNK_EXT_BYTES_MAX - 2, ";a\r\nx\r\n0\r\n\r\n");
    gives(text, "x");
    free(text);
    text = stretched("1", ' ', LS_CHUNK_EXT_BYTES_MAX - 1, ";a\r\n");
    is_refused(text);
    free(text);
    text = stretched("1;ab=\"", '\\', LS_CHUNK_EXT_BYTES_MAX - 6, "\"\r\nx\r\n0\r\n\r\n");
    gives(text, "x");
    free(text);
    text = stretched("1;abc=\"", '\\', LS_CHUNK_EXT_BYTES_MAX - 6, "\"\r\n");
    is_refused(text);
    free(text);
}

TEST(limit_of_the_trailers)
{
    const size_t around = sizeof "A: \r\n\r\n" - 1;
    char *text = stretched("0\r\nA: ", 'v', LS_CHUNK_TRAILER_BYTES_MAX - around, "\r\n\r\n");
    decoded d = {0};
    ls_chunks chunks;
    ls_chunks_init(&chunks);
    feed(&chunks, text, strlen(text), &d);
    assert_true(d.err == LS_OK && d.end);
    free(text);

    text = stretched("0\r\nA: ", 'v', LS_CHUNK_TRAILER_BYTES_MAX - around + 1, "\r\n\r\n");
    d = (decoded){0};
    ls_chunks_init(&chunks);
    feed(&chunks, text, strlen(text), &d);
    assert_int_equal(d.err, LS_EPROTO);
    free(text);
}

TEST(limit_of_the_number_of_trailers)
{
    char text[LS_CHUNK_TRAILERS_MAX * 6 + 32] = "0\r\n";
    for (int i = 0; i < LS_CHUNK_TRAILERS_MAX; i++) strcat(text, "A: b\r\n");
    strcat(text, "\r\n");
    gives(text, "");
    strcpy(text + strlen(text) - 2, "A: b\r\n\r\n");
    is_refused(text);
}
