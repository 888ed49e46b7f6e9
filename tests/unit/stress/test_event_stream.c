/* test_sse.c - the parser of event streams (WHATWG HTML, section 9.2.6): whole, and cut at every byte. */
/* sanitizers: asan; no thread starts */
#include "stress/protocols/event_stream.h"

#include "support.h"

typedef struct stream {
    const char *text;
    const char *events; /* their data, each followed by '|' */
} stream;

#define HALF "\xEF\xBB"
#define MARK HALF "\xBF" /* a byte order mark */

static const stream streams[] = {
    /* clang-format off */
    {"data: a\n\n", "a|"}, {"data:a\n\n", "a|"}, {"data:  a\n\n", " a|"}, {"data\n\n", "|"},
    {"data:\n\n", "|"}, {"data: \n\n", "|"}, {"data: a\ndata: b\n\n", "a\nb|"}, {"data\ndata\n\n", "\n|"},
    {"data: a\r\n\r\ndata: b\r\rdata: c\n\n", "a|b|c|"}, {"data: a\r\ndata: b\r\n\r\n", "a\nb|"},
    {": comment\nevent: x\nid: 1\nretry: 5\n\ndata: a\n\n", "a|"}, {"event: x\n\n", ""}, {"\n\n\n", ""},
    {"data: unfinished\n", ""}, {"data: unfinished", ""}, {"datax: a\n\n", ""}, {"dat: a\n\n", ""},
    {"data: a: b\n\n", "a: b|"}, {MARK "data: a\n\n", "a|"}, {MARK "\n\ndata: a\n\n", "a|"},
    {MARK MARK "data: a\n\n", ""}, /* only one is ignored */
    {"data: a\n\n" MARK "data: b\n\n", "a|"}, /* and only at the beginning of the stream */
    {"data: " MARK "\n\n", MARK "|"},
    {HALF "data: a\n\ndata: b\n\n", "b|"}, /* its first bytes alone belong to the line */
    {"\xEF", ""}, {HALF, ""}, {MARK, ""}, {"id\ndata: a\nevent\n\ndata: b\n\n", "a|b|"},
    /* clang-format on */
};

/* Feed the text in parts of `step` bytes; exact copies, so that the sanitizer sees a read past the end. */
static void check(const stream *s, size_t step)
{
    char got[256] = "";
    ls_sse sse = {.bytes_max = 1000};
    const size_t len = strlen(s->text);
    for (size_t from = 0; from < len; from += step) {
        const size_t n = len - from < step ? len - from : step;
        char *part = test_copy_exact(s->text + from, n);
        const char *data;
        size_t at = 0, data_len;
        int err;
        while (ls_sse_next(&sse, part, n, &at, &data, &data_len, &err)) {
            strncat(got, data, data_len);
            strcat(got, "|");
        }
        assert_int_equal(err, LS_OK);
        assert_int_equal(at, n);
        free(part);
    }
    if (strcmp(got, s->events) != 0) fail_msg("\"%s\" in parts of %zu: \"%s\"", s->text, step, got);
    ls_sse_close(&sse);
}

TEST(streams_become_events)
{
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++)
        for (size_t step = 1; step <= strlen(streams[i].text); step++) check(&streams[i], step);
}

TEST(a_new_stream_forgets_the_old_one)
{
    static const char text[] = "data: a\ndata: b", end[] = "\n\n", marked[] = MARK "data: c\n\n";
    const char *data;
    size_t at = 0, data_len;
    int err;
    ls_sse sse = {.bytes_max = 1000};
    assert_false(ls_sse_next(&sse, text, sizeof text - 1, &at, &data, &data_len, &err));
    ls_sse_reset(&sse);
    at = 0;
    assert_false(ls_sse_next(&sse, end, sizeof end - 1, &at, &data, &data_len, &err));
    ls_sse_reset(&sse);
    at = 0;
    assert_true(ls_sse_next(&sse, marked, sizeof marked - 1, &at, &data, &data_len, &err));
    assert_int_equal(data_len, 1);
    ls_sse_close(&sse);
}

/* A line, and the data of several lines with their line feeds: exactly the limit, and one byte past it. */
TEST(the_limit_of_an_event)
{
    static const struct {
        const char *text;
        int err;
    } rows[] = {
        /* clang-format off */
        {"data: 6789", LS_OK}, {"data: 6789", LS_OK}, {"data: 67890", LS_EMSGSIZE},
        {"data: a\ndata: 34567\ndata: 9", LS_OK}, {"data: a\ndata: 34567\ndata\n\n", LS_OK},
        {"data: a\ndata: 34567\ndata: 9\n", LS_OK}, {"data: a\ndata: 34567\ndata: 90\n", LS_EMSGSIZE},
        /* clang-format on */
    };
    const char *data;
    size_t data_len;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_sse sse = {.bytes_max = 10};
        size_t at = 0;
        int err;
        while (ls_sse_next(&sse, rows[i].text, strlen(rows[i].text), &at, &data, &data_len, &err)) continue;
        assert_int_equal(err, rows[i].err);
        ls_sse_close(&sse);
    }
}
