/* test_http_client.c - responses whose bytes arrive in slices: the result does not depend on them, also when a head
 * fills several blocks; and what the end of the connection means. */
/* sanitizers: asan; no thread starts */
#include "http/http_client.h"

#include "support.h"

enum { HEAD_BYTES_MAX = LS_BLOCK_LARGE, TEXT_BYTES_MAX = 2 * LS_BLOCK_LARGE };

typedef struct place {
    ls_pools *pools;
    ls_thread_ctx ctx;
    ls_http_client c;
    bool unfolds;
} place;

static void place_open(place *p)
{
    *p = (place){0};
    assert_int_equal(ls_pools_open(16 << 20, &p->pools), LS_OK);
    assert_int_equal(ls_pool_open(p->pools, &p->ctx.pool), LS_OK);
    ls_pool_enter(p->ctx.pool);
}

static void place_close(place *p)
{
    ls_pools_stats stats;
    ls_http_client_drop(&p->c);
    ls_pools_stat(p->pools, &stats);
    assert_int_equal(stats.blocks_live, 0);
    ls_pool_close(p->ctx.pool);
    ls_pools_close(p->pools);
}

/* Read the text in slices of `step` bytes, each in a block of its own size. Returns the length of the body, or
 * LS_E*. */
static int read_in_slices(place *p, const char *text, size_t len, size_t step)
{
    ls_http_client *c = &p->c;
    ls_slice part;
    ls_text trailers;
    size_t skip, body = 0;
    int err = LS_OK;
    ls_http_client_drop(c);
    ls_http_client_init(c, LS_ASKED_BODY, HEAD_BYTES_MAX);
    c->unfolds = p->unfolds;
    for (size_t at = 0; at < len && err >= 0;) {
        ls_block *block = ls_block_get(p->ctx.pool, step <= LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
        const size_t n = step < len - at ? step : len - at;
        char *const end = block->data + block->cap;
        ls_slice slice = {block, end - n, n}; /* no room behind it */
        memcpy(end - n, text + at, n);
        const int64_t added = ls_http_client_add(&p->ctx, c, &slice);
        ls_slice_drop(&slice);
        assert_true(added > 0);
        at += (size_t)added;
        if (c->phase == LS_CLIENT_HEAD) {
            err = ls_http_client_head(c, &skip);
            ls_http_client_consume(c, skip + (err > 0 ? (size_t)err : 0));
        }
        while (c->phase == LS_CLIENT_BODY && (err = ls_http_client_next(c, &part, &trailers)) == LS_DONE) {
            body += part.len;
            ls_slice_drop(&part);
        }
        if (err == LS_EAGAIN) err = LS_OK;
    }
    return err < 0 ? err : (int)body;
}

static size_t response_of(char *out, size_t head_bytes)
{
    static const char first[] = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: ";
    static const char last[] = "\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\nA: b\r\n\r\n";
    const size_t fill = head_bytes - (sizeof first - 1 - 25) - 4;
    memcpy(out, first, sizeof first - 1);
    memset(out + sizeof first - 1, 'x', fill);
    memcpy(out + sizeof first - 1 + fill, last, sizeof last - 1);
    return sizeof first - 1 + fill + sizeof last - 1;
}

TEST_IN(place, p, slices_do_not_change_a_response)
{
    static const size_t heads[] = {80, 4000, 5000, 60000, HEAD_BYTES_MAX};
    char *text = malloc(TEXT_BYTES_MAX);
    assert_non_null(text);
    for (size_t n = 0; n < sizeof heads / sizeof heads[0]; n++) {
        const size_t len = response_of(text, heads[n]);
        for (size_t step = heads[n] > 100 ? 997 : 1; step < len && step <= LS_BLOCK_LARGE;
             step += step < 100 ? 1 : 1999) {
            assert_int_equal(read_in_slices(p, text, len, step), 6);
            assert_int_equal(p->c.reader.head.bytes, heads[n]);
            assert_true(ls_http_client_may_keep(&p->c));
        }
    }
    const size_t len = response_of(text, HEAD_BYTES_MAX + 1);
    assert_int_equal(read_in_slices(p, text, len, 4000), LS_EPROTO);
    free(text);
}

/* RFC 9112 section 5.2, for a user agent. */
TEST_IN(place, p, a_field_of_several_lines)
{
    static const struct {
        const char *text;
        int body;
    } rows[] = {{"HTTP/1.1 103 x\r\nL: a\r\n b\r\n\r\nHTTP/1.1 200 x\r\nContent-Length:\r\n\t 2\r\nX: a\r\n b\r\n  "
                 "c\r\n\r\na\n",
                 2},
                {"HTTP/1.1 200 x\r\nTransfer-Encoding: \r\n \r\n chunked\r\n\r\n3\r\n\r\n \r\n0\r\n\r\n", 3},
                {"HTTP/1.1 200 x\r\nX: a\r\n \r\n\r\n b", 2},
                {"HTTP/1.1 200 x\r\n A: b\r\nContent-Length: 0\r\n\r\n", LS_EPROTO},
                {"HTTP/1.1 200 x\r\nContent-Length: 1\r\n 0\r\n\r\n", LS_EPROTO},
                {"HTTP/1.1 200 x\r\nA: b\n c\r\nContent-Length: 0\r\n\r\n", LS_EPROTO}};
    for (size_t n = 0; n < sizeof rows / sizeof rows[0]; n++)
        for (size_t step = 1, len = strlen(rows[n].text); step <= len; step++) {
            p->unfolds = true;
            assert_int_equal(read_in_slices(p, rows[n].text, len, step), rows[n].body);
            p->unfolds = false;
            assert_int_equal(read_in_slices(p, rows[n].text, len, step), LS_EPROTO);
        }
}

TEST_IN(place, p, the_end_of_the_connection)
{
    static const char to_end[] = "HTTP/1.1 200 OK\r\n\r\nbody",
                      length[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbody";
    static const char more[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nbody";
    (void)read_in_slices(p, "", 0, 1);
    assert_int_equal(ls_http_client_ended(&p->c), LS_ECLOSED);
    (void)read_in_slices(p, to_end, 5, 1);
    assert_int_equal(ls_http_client_ended(&p->c), LS_ETRUNCATED);
    assert_int_equal(read_in_slices(p, to_end, sizeof to_end - 1, 7), 4);
    assert_int_equal(ls_http_client_ended(&p->c), LS_OK);
    assert_int_equal(p->c.phase, LS_CLIENT_WHOLE);
    assert_false(ls_http_client_may_keep(&p->c)); /* its end was that of the connection */
    assert_int_equal(read_in_slices(p, length, sizeof length - 1, 7), 4);
    assert_int_equal(ls_http_client_ended(&p->c), LS_ETRUNCATED);
    (void)read_in_slices(p, more, sizeof more - 1, sizeof more - 1);
    assert_false(ls_http_client_may_keep(&p->c)); /* bytes follow that no request has asked for */
}
