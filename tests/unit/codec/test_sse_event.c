/* test_sse_event.c - the text of server-sent events and comments, in memory of the exact size. */
/* sanitizers: asan; no thread starts */
#include "codec/sse_event.h"

#include "support.h"

static void event_is(const ls_sse_event *event, const char *text)
{
    const size_t bytes = ls_sse_event_bytes(event);
    char *to = malloc(bytes);
    assert_non_null(to);
    assert_ptr_equal(ls_sse_event_write(event, to), to + bytes);
    assert_int_equal(bytes, strlen(text));
    assert_memory_equal(to, text, bytes);
    free(to);
}

static void data_is(const char *data, const char *text)
{
    const ls_sse_event event = {.data = data, .data_len = strlen(data), .retry_ms = -1};
    event_is(&event, text);
}

TEST(every_line_of_the_data_has_its_label)
{
    data_is("hello", "data: hello\n\n");
    data_is("", "data: \n\n");
    data_is("a\nb", "data: a\ndata: b\n\n");
    data_is("a\r\nb\rc", "data: a\ndata: b\ndata: c\n\n");
    data_is("\n", "data: \ndata: \n\n");
    data_is("\r\n", "data: \ndata: \n\n");
    data_is("\r", "data: \ndata: \n\n");
    data_is("\n\r", "data: \ndata: \ndata: \n\n"); /* two ends */
    data_is("\r\r\n\n", "data: \ndata: \ndata: \ndata: \n\n");
    data_is("a\n\nid: 7\r\rdata", "data: a\ndata: \ndata: id: 7\ndata: \ndata: data\n\n");
    data_is(" x", "data:  x\n\n"); /* a client removes one space */
}

TEST(bytes_behind_the_data_are_not_read)
{
    for (size_t len = 0; len <= 6; len++) { /* exact copies: the sanitizer sees a read past the end */
        char *copy = test_copy_exact("a\r\nb\r\n", len);
        const ls_sse_event event = {.data = copy, .data_len = len, .retry_ms = -1};
        const size_t lines = len < 2 ? 1 : len < 5 ? 2 : 3;
        size_t found = 0;
        char text[64], *const end = ls_sse_event_write(&event, text);
        for (const char *at = text; at < end; at++) found += *at == '\n';
        assert_int_equal(found, lines + 1);
        free(copy);
    }
}

/* The lines of a text, taken out one character after the other. */
static void put_model(const char *text, char *to)
{
    to += sprintf(to, "data: ");
    for (; *text != '\0'; text++) {
        if (*text != '\r' && *text != '\n')
            *to++ = *text;
        else
            to += sprintf(to, "\ndata: ");
        if (text[0] == '\r' && text[1] == '\n') text++;
    }
    strcpy(to, "\n\n");
}

TEST(all_short_texts)
{
    static const char chars[] = "x\r\n";
    char text[8] = "", wanted[sizeof text * 8];
    for (unsigned len = 0, texts = 1; len < sizeof text; len++, texts *= 3) {
        for (unsigned n = 0; n < texts; n++) {
            for (unsigned i = 0, left = n; i < len; i++, left /= 3) text[i] = chars[left % 3];
            text[len] = '\0';
            put_model(text, wanted);
            data_is(text, wanted);
        }
    }
}

/* A text of a client that is all line ends. If each line were searched to the end of the text, this would take
 * hours. */
TEST(millions_of_short_lines)
{
    enum { BYTES = 16 << 20 };
    for (const char *end = "\r\n"; *end != '\0'; end++) {
        char *text = malloc(BYTES);
        assert_non_null(text);
        memset(text, *end, BYTES);
        const ls_sse_event event = {.data = text, .data_len = BYTES, .retry_ms = -1};
        assert_int_equal(ls_sse_event_bytes(&event), (BYTES + 1) * sizeof "data: " + 1);
        free(text);
    }
}

TEST(all_fields)
{
    ls_sse_event event = {
        .name = "tick", .name_len = 4, .id = "7", .id_len = 1, .data = "x", .data_len = 1, .retry_ms = 2500};
    event_is(&event, "retry: 2500\nevent: tick\nid: 7\ndata: x\n\n");
    event.data = NULL;
    event.name = NULL;
    event_is(&event, "retry: 2500\nid: 7\n\n");
    event.retry_ms = 0;
    event.id_len = 0;
    event_is(&event, "retry: 0\nid: \n\n");
    event.retry_ms = INT64_MAX;
    event.id = NULL;
    event_is(&event, "retry: 9223372036854775807\n\n");
}

TEST(fields_of_one_line)
{
    assert_true(ls_sse_is_field("", 0));
    assert_true(ls_sse_is_field("a b: \xc3\xa4", 7));
    assert_false(ls_sse_is_field("a\n", 2));
    assert_true(ls_sse_is_field("a\n", 1));
    assert_false(ls_sse_is_field("\rb", 2));
    assert_false(ls_sse_is_field("a\0b", 3));
}

static void comment_is(const char *comment, const char *text)
{
    char to[64];
    const size_t len = strlen(comment), bytes = ls_sse_comment_bytes(comment, len);
    assert_int_equal(bytes, strlen(text));
    assert_ptr_equal(ls_sse_comment_write(comment, len, to), to + bytes);
    assert_memory_equal(to, text, bytes);
}

TEST(comments)
{
    comment_is("", ": \n\n");
    comment_is("hello", ": hello\n\n");
    comment_is("a\ndata: b\r\nc", ": a\n: data: b\n: c\n\n");
}
