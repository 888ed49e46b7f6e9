/* test_exchange.c - the extra header lines of a response, and copies of a request. */
/* sanitizers: asan; no thread starts */
#include "http/exchange_run.h"
#include "net/sock/addr.h"
#include "support.h"

typedef struct fixture {
    ls_pools *pools;
    ls_thread_ctx ctx;
    ls_exchange x;
} fixture;

static void set_up_limited(fixture *f, size_t bytes_max)
{
    memset(f, 0, sizeof *f);
    assert_int_equal(ls_pools_open(bytes_max, &f->pools), LS_OK);
    assert_int_equal(ls_pool_open(f->pools, &f->ctx.pool), LS_OK);
    ls_pool_enter(f->ctx.pool);
}

static void fixture_open(fixture *f)
{
    set_up_limited(f, 1 << 20);
}

static void fixture_close(fixture *f)
{
    ls_pools_stats stats;
    ls_exchange_drop_fields(&f->x);
    ls_pools_stat(f->pools, &stats);
    assert_true(stats.blocks_live == 0);
    ls_pool_close(f->ctx.pool);
    ls_pools_close(f->pools);
}

static int add(fixture *f, const char *name, const char *value, bool replace)
{
    return ls_exchange_header(&f->ctx, &f->x, name, strlen(name), value, strlen(value), replace);
}

static void lines_are(const fixture *f, const char *text)
{
    assert_int_equal(f->x.fields_len, strlen(text));
    if (f->x.fields != NULL) assert_memory_equal(f->x.fields->data, text, f->x.fields_len);
}

TEST_IN(fixture, f, lines_are_added_in_order)
{
    assert_int_equal(add(f, "X-A", "1", false), LS_OK);
    assert_int_equal(add(f, "x-a", "", false), LS_OK);
    assert_int_equal(add(f, "B", "\xff\t c", true), LS_OK);
    lines_are(f, "X-A: 1\r\nx-a: \r\nB: \xff\t c\r\n");
    assert_false(f->x.has_type || f->x.close);
}

TEST_IN(fixture, f, replacing_removes_all_lines_of_the_name)
{
    assert_int_equal(add(f, "A", "1", false), LS_OK);
    assert_int_equal(add(f, "AB", "2", false), LS_OK);
    assert_int_equal(add(f, "a", "3", false), LS_OK);
    assert_int_equal(add(f, "B", "A: 4", false), LS_OK);
    assert_int_equal(add(f, "a", "5", true), LS_OK);
    lines_are(f, "AB: 2\r\nB: A: 4\r\na: 5\r\n");
    assert_int_equal(add(f, "b", "6", true), LS_OK);
    assert_int_equal(add(f, "ab", "7", true), LS_OK);
    assert_int_equal(add(f, "A", "8", true), LS_OK);
    lines_are(f, "b: 6\r\nab: 7\r\nA: 8\r\n");
}

TEST_IN(fixture, f, one_content_type)
{
    assert_int_equal(add(f, "content-type", "text/html", false), LS_OK);
    assert_true(f->x.has_type);
    assert_int_equal(add(f, "Content-Type", "text/csv", false), LS_OK);
    lines_are(f, "Content-Type: text/csv\r\n");
}

TEST_IN(fixture, f, content_of_a_replaced_response_is_dropped)
{
    static const char *const content[] = {
        "Cache-Control",    "content-disposition", "CONTENT-ENCODING", "Content-Language",
        "Content-Location", "Content-Range",       "Content-Type",     "ETag",
        "Expires",          "Last-Modified",       "location"};
    ls_exchange_drop_content(&f->x); /* no lines */
    assert_int_equal(add(f, "A", "1", false), LS_OK);
    for (size_t i = 0; i < sizeof content / sizeof content[0]; i++)
        assert_int_equal(add(f, content[i], "x", false), LS_OK);
    assert_int_equal(add(f, "Set-Cookie", "a=1", false), LS_OK);
    assert_int_equal(add(f, "ETag", "y", false), LS_OK);
    assert_int_equal(add(f, "Set-Cookie", "b=2", false), LS_OK);
    assert_int_equal(add(f, "Content-Security-Policy", "x", false), LS_OK);
    f->x.length = 5;
    f->x.status = 201;
    ls_exchange_drop_content(&f->x);
    lines_are(f, "A: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Security-Policy: x\r\n");
    assert_false(f->x.has_type);
    assert_int_equal(f->x.length, -1);
    assert_int_equal(f->x.status, 200);
}

TEST_IN(fixture, f, bad_names_and_values)
{
    static const char *const names[] = {"", " ", "a b", "a:", "a\r\nb", "\xc3\xa9", "a\t"};
    static const char *const values[] = {"\r", "\n", "a\r\nSet-Cookie: x", "a\n b", "\x01", "\x7f", "\x1b[0m"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_int_equal(add(f, names[i], "v", false), LS_EINVAL);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        assert_int_equal(add(f, "A", values[i], false), LS_EINVAL);
    assert_int_equal(ls_exchange_header(&f->ctx, &f->x, "A\0", 2, "v", 1, false), LS_EINVAL);
    assert_int_equal(ls_exchange_header(&f->ctx, &f->x, "A", 1, "v\0", 2, false), LS_EINVAL);
    assert_int_equal(add(f, "Date", "a\nb", false), LS_EINVAL);
    assert_null(f->x.fields);
}

TEST_IN(fixture, f, framing_belongs_to_the_transport)
{
    static const char *const names[] = {"Content-Length", "transfer-encoding", "CONNECTION",
                                        "Date",           "Keep-Alive",        "Trailer"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(add(f, names[i], "1", true), LS_EACCES);
        assert_int_equal(add(f, names[i], "keep-alive", false), LS_EACCES);
    }
    assert_false(f->x.close);
    assert_int_equal(add(f, "Connection", "Close", false), LS_OK);
    assert_true(f->x.close);
    lines_are(f, "");
    assert_int_equal(add(f, "Dates", "1", false), LS_OK);
}

/* RFC 9110 section 7.8: a sender of Upgrade also sends the option "upgrade" of Connection. */
TEST_IN(fixture, f, upgrade_comes_with_connection)
{
    assert_int_equal(add(f, "upgrade", "a/1", true), LS_OK);
    lines_are(f, "Connection: upgrade\r\nupgrade: a/1\r\n");
    assert_int_equal(add(f, "Upgrade", "b", false), LS_OK);
    lines_are(f, "Connection: upgrade\r\nupgrade: a/1\r\nUpgrade: b\r\n");
    assert_int_equal(add(f, "A", "1", true), LS_OK);
    assert_int_equal(add(f, "Upgrade", "c", true), LS_OK);
    lines_are(f, "Connection: upgrade\r\nA: 1\r\nUpgrade: c\r\n");
    assert_int_equal(add(f, "Connection", "close", true), LS_OK);
    assert_true(f->x.close);
    assert_int_equal(add(f, "Upgrade", "a\nb", true), LS_EINVAL);
    ls_exchange_drop_upgrade(&f->x);
    lines_are(f, "A: 1\r\n");
    ls_exchange_drop_upgrade(&f->x);
    lines_are(f, "A: 1\r\n");
}

/* The line and the one of Connection fill the block exactly; one byte more changes nothing. */
TEST_IN(fixture, f, upgrade_at_the_limit)
{
    enum { OTHERS = sizeof "Connection: upgrade\r\nUpgrade: \r\n" - 1 };
    static char value[LS_BLOCK_LARGE];
    memset(value, 'x', sizeof value);
    assert_int_equal(ls_exchange_header(&f->ctx, &f->x, "Upgrade", 7, value, LS_BLOCK_LARGE - OTHERS + 1, true),
                     LS_ELIMIT);
    lines_are(f, "");
    assert_int_equal(ls_exchange_header(&f->ctx, &f->x, "Upgrade", 7, value, LS_BLOCK_LARGE - OTHERS, true), LS_OK);
    assert_int_equal(f->x.fields_len, LS_BLOCK_LARGE);
}

TEST_IN(fixture, f, no_lines_after_the_head)
{
    f->x.response = LS_RESPONSE_OPEN;
    assert_int_equal(add(f, "A", "1", false), LS_EBUSY);
    f->x.response = LS_RESPONSE_DONE;
    assert_int_equal(add(f, "Connection", "close", false), LS_EBUSY);
    assert_false(f->x.close);
}

/* Add a line with a total length of `bytes`. */
static int add_line(fixture *f, char name, size_t bytes, bool replace)
{
    const size_t len = bytes - (sizeof "N: \r\n" - 1);
    char *value = malloc(len + 1);
    int err;
    assert_non_null(value);
    memset(value, 'v', len);
    err = ls_exchange_header(&f->ctx, &f->x, &name, 1, value, len, replace);
    free(value);
    return err;
}

TEST_IN(fixture, f, from_a_small_block_to_a_large_one)
{
    assert_int_equal(add_line(f, 'A', LS_BLOCK_SMALL, false), LS_OK);
    assert_int_equal(f->x.fields->cap, LS_BLOCK_SMALL);
    assert_int_equal(add_line(f, 'B', 100, false), LS_OK);
    assert_int_equal(f->x.fields->cap, LS_BLOCK_LARGE);
    assert_int_equal(f->x.fields_len, LS_BLOCK_SMALL + 100);
    assert_memory_equal(f->x.fields->data, "A: vvv", 6);
    assert_memory_equal(f->x.fields->data + LS_BLOCK_SMALL - 3, "v\r\nB: v", 7);
}

TEST_IN(fixture, f, limit_of_the_lines)
{
    assert_int_equal(add_line(f, 'A', LS_BLOCK_LARGE + 1, false), LS_ELIMIT);
    assert_int_equal(add_line(f, 'A', 2 * LS_BLOCK_LARGE, false), LS_ELIMIT);
    assert_null(f->x.fields);
    assert_int_equal(add_line(f, 'A', LS_BLOCK_LARGE - 10, false), LS_OK);
    assert_int_equal(add_line(f, 'B', 11, false), LS_ELIMIT);
    assert_int_equal(add_line(f, 'B', 10, false), LS_OK);
    assert_int_equal(f->x.fields_len, LS_BLOCK_LARGE);
    assert_int_equal(add_line(f, 'B', 11, true), LS_ELIMIT); /* the old line remains */
    assert_int_equal(f->x.fields_len, LS_BLOCK_LARGE);
    assert_int_equal(add_line(f, 'A', LS_BLOCK_LARGE - 10, true), LS_OK);
    assert_int_equal(f->x.fields_len, LS_BLOCK_LARGE);
    assert_memory_equal(f->x.fields->data, "B: vvvvv\r\nA: v", 14);
}

TEST(no_memory)
{
    fixture f;
    set_up_limited(&f, 0);
    assert_int_equal(add(&f, "A", "1", false), LS_ENOMEM);
    assert_null(f.x.fields);
    fixture_close(&f);

    set_up_limited(&f, LS_BLOCK_SMALL);
    assert_int_equal(add(&f, "A", "1", false), LS_OK);
    assert_int_equal(add_line(&f, 'A', LS_BLOCK_SMALL + 1, true), LS_ENOMEM);
    lines_are(&f, "A: 1\r\n");
    fixture_close(&f);
}

TEST_IN(fixture, f, ready_lines_are_added_behind)
{
    size_t len = 99;
    assert_null(ls_exchange_find(&f->x, "a", 1, &len));
    assert_int_equal(ls_exchange_lines(&f->ctx, &f->x, "A: 1\r\n", 6), LS_OK);
    assert_int_equal(add(f, "B", "", false), LS_OK);
    assert_int_equal(ls_exchange_lines(&f->ctx, &f->x, "Cache-Control: x, y\r\nA: 2\r\n", 27), LS_OK);
    lines_are(f, "A: 1\r\nB: \r\nCache-Control: x, y\r\nA: 2\r\n");
    const char *value = ls_exchange_find(&f->x, "cache-control", 13, &len);
    assert_int_equal(len, 4);
    assert_memory_equal(value, "x, y", 4);
    assert_memory_equal(ls_exchange_find(&f->x, "a", 1, &len), "1", 1);
    assert_non_null(ls_exchange_find(&f->x, "b", 1, &len));
    assert_int_equal(len, 0);
    assert_null(ls_exchange_find(&f->x, "cache", 5, &len));
}

TEST_IN(fixture, f, ready_lines_are_limited)
{
    char *line = malloc(LS_BLOCK_LARGE);
    assert_non_null(line);
    memset(line, 'x', LS_BLOCK_LARGE);
    memcpy(line, "A: ", 3);
    memcpy(line + LS_BLOCK_LARGE - 2, "\r\n", 2);
    assert_int_equal(ls_exchange_lines(&f->ctx, &f->x, line, LS_BLOCK_LARGE), LS_OK);
    assert_int_equal(ls_exchange_lines(&f->ctx, &f->x, "B: 1\r\n", 6), LS_ELIMIT);
    assert_int_equal(f->x.fields_len, LS_BLOCK_LARGE);
    f->x.response = LS_RESPONSE_OPEN;
    assert_int_equal(ls_exchange_lines(&f->ctx, &f->x, "B: 1\r\n", 6), LS_EBUSY);
    free(line);
}

/* ---- a copy that stays
 * -------------------------------------------------------------------------------------------- */

static const ls_addr *local_of(const ls_exchange *x)
{
    return x->conn;
}

static void addr_is(const ls_addr *addr, const char *text)
{
    char found[LS_ADDR_TEXT_BYTES];
    assert_string_equal(ls_addr_text(addr, found), text);
}

/* The longest path of a Unix socket, without its scheme. */
static void longest_path(char *out)
{
    const size_t len = sizeof((ls_addr *)NULL)->bytes - 1;
    memset(out, 'p', len);
    out[0] = '/';
    out[len] = '\0';
}

TEST_IN(fixture, f, a_copy_keeps_the_addresses)
{
    static const ls_transport transport = {.local = local_of};
    char text[sizeof "unix:" + sizeof((ls_addr *)NULL)->bytes] = "unix:";
    longest_path(text + 5);
    const char *const hosts[] = {"127.0.0.1", "::1", text};
    const char *const texts[] = {"127.0.0.1:80", "[::1]:80", text};
    for (size_t n = 0; n < sizeof hosts / sizeof hosts[0]; n++) {
        ls_addr remote, local;
        const size_t other = (n + 1) % 3;
        assert_int_equal(ls_addr_parse(hosts[n], 80, &remote), LS_OK);
        assert_int_equal(ls_addr_parse(hosts[other], 80, &local), LS_OK);
        f->x.bytes = "";
        f->x.transport = &transport;
        f->x.remote = &remote;
        f->x.conn = &local;
        ls_exchange *copy = ls_exchange_keep(&f->x);
        assert_non_null(copy);
        memset(&remote, 0, sizeof remote);
        memset(&local, 0, sizeof local);
        addr_is(copy->remote, texts[n]);
        addr_is(copy->transport->local(copy), texts[other]);
        ls_exchange_release(&f->ctx, copy);
    }
}

TEST_IN(fixture, f, a_copy_may_have_no_addresses)
{
    static const ls_transport transport = {.local = local_of};
    f->x.bytes = "";
    f->x.transport = &transport;
    ls_exchange *copy = ls_exchange_keep(&f->x);
    assert_non_null(copy);
    assert_null(copy->remote);
    assert_null(copy->transport->local(copy));
    ls_exchange_release(&f->ctx, copy);
}

static int add_trailer(fixture *f, const char *name, const char *value)
{
    return ls_exchange_trailer(&f->ctx, &f->x, name, strlen(name), value, strlen(value));
}

static void trailers_are(const fixture *f, const char *text)
{
    assert_non_null(f->x.end_fields);
    assert_int_equal(f->x.end_fields->to, strlen(text));
    assert_memory_equal(f->x.end_fields->data, text, strlen(text));
}

TEST_IN(fixture, f, trailers_are_announced)
{
    ls_pair field;
    size_t at = 0;
    assert_false(ls_exchange_next_end_field(&f->x, &at, &field));
    assert_int_equal(add(f, "A", "1", false), LS_OK);
    assert_int_equal(add_trailer(f, "X-B", "2"), LS_OK);
    assert_int_equal(add_trailer(f, "c", ""), LS_OK);
    trailers_are(f, "X-B: 2\r\nc: \r\n");
    ls_exchange_announce_trailers(&f->ctx, &f->x);
    lines_are(f, "A: 1\r\nTrailer: X-B, c\r\n");
    assert_true(ls_exchange_next_end_field(&f->x, &at, &field) && ls_exchange_next_end_field(&f->x, &at, &field));
    assert_memory_equal(field.name, "c", field.name_len);
    assert_false(ls_exchange_next_end_field(&f->x, &at, &field));
    ls_exchange_drop_content(&f->x);
    assert_null(f->x.end_fields);
}

TEST_IN(fixture, f, bad_trailers)
{
    assert_int_equal(add_trailer(f, "a b", "1"), LS_EINVAL);
    assert_int_equal(add_trailer(f, "A", "1\r\nB: 2"), LS_EINVAL);
    assert_int_equal(add_trailer(f, "Content-Length", "1\n"), LS_EINVAL);
    assert_int_equal(add_trailer(f, "Content-Length", "1"), LS_EACCES);
    assert_int_equal(add_trailer(f, "set-cookie", "a=1"), LS_EACCES);
    assert_int_equal(add_trailer(f, "Date", "1"), LS_EACCES);
    assert_null(f->x.end_fields);
    f->x.response = LS_RESPONSE_DONE;
    assert_int_equal(add_trailer(f, "A", "1"), LS_EBUSY);
    f->x.error = LS_ERESET;
    assert_int_equal(add_trailer(f, "A", "1"), LS_ERESET);
}

/* The names fit into the field Trailer at the limit as well. */
TEST_IN(fixture, f, limit_of_the_trailers)
{
    static char name[LS_TRAILER_BYTES_MAX];
    memset(name, 'n', sizeof name);
    assert_int_equal(ls_exchange_trailer(&f->ctx, &f->x, name, sizeof name - 3, "", 0), LS_ELIMIT);
    assert_int_equal(ls_exchange_trailer(&f->ctx, &f->x, name, sizeof name - 4 - 5, "", 0), LS_OK);
    assert_int_equal(add_trailer(f, "A", "1"), LS_ELIMIT);
    assert_int_equal(add_trailer(f, "A", ""), LS_OK);
    assert_int_equal(add_trailer(f, "A", ""), LS_ELIMIT);
    assert_int_equal(f->x.end_fields->to, LS_TRAILER_BYTES_MAX);
    ls_exchange_announce_trailers(&f->ctx, &f->x);
    assert_int_equal(f->x.fields_len, sizeof "Trailer: , A\r\n" - 1 + sizeof name - 9);
}

TEST(limit_of_early_hints)
{
    static char value[LS_HINTS_BYTES_MAX];
    ls_hints hints = {.len = 0};
    memset(value, 'v', sizeof value);
    assert_int_equal(ls_hints_add(&hints, "Link", 4, "a\n", 2), LS_EINVAL);
    assert_int_equal(ls_hints_add(&hints, "Content-Length", 14, "1", 1), LS_EACCES);
    assert_int_equal(ls_hints_add(&hints, "Link", 4, "</a>", 4), LS_OK);
    assert_int_equal(ls_hints_add(&hints, "B", 1, value, sizeof value - 12 - 5 + 1), LS_ELIMIT);
    assert_int_equal(hints.len, 12);
    assert_int_equal(ls_hints_add(&hints, "B", 1, value, sizeof value - 12 - 5), LS_OK);
    assert_int_equal(hints.len, LS_HINTS_BYTES_MAX);
    assert_memory_equal(hints.lines, "Link: </a>\r\nB: vvv", 18);
    assert_int_equal(ls_hints_add(&hints, "C", 1, "", 0), LS_ELIMIT);
}

TEST(no_memory_for_trailers)
{
    fixture f;
    set_up_limited(&f, 0);
    assert_int_equal(add_trailer(&f, "A", "1"), LS_ENOMEM);
    fixture_close(&f);

    set_up_limited(&f, LS_BLOCK_SMALL);
    assert_int_equal(add_trailer(&f, "A", "1"), LS_OK);
    ls_exchange_announce_trailers(&f.ctx, &f.x); /* no more than a help */
    lines_are(&f, "");
    fixture_close(&f);
}
