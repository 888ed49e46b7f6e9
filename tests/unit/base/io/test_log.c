/* test_log.c - lines as a sink and stderr receive them. */
#define _GNU_SOURCE
#include "support.h"

#include <unistd.h>

#include "base/io/log.h"
#include "base/io/output.h"
#include "base/os/thread.h"

enum { LINE_BYTES_MAX = 16 * 1024 };
static const char truncated_mark[] = " [truncated]";

typedef struct seen {
    int count;
    enum ls_log_level level;
    size_t len;
    char line[LINE_BYTES_MAX + 1];
} seen;

static void keep(int level, const char *line, size_t len, void *user)
{
    seen *s = user;
    assert_true(len <= LINE_BYTES_MAX);
    s->count++;
    s->level = level;
    s->len = len;
    memcpy(s->line, line, len);
    s->line[len] = '\0';
}

static void seen_open(seen *s)
{
    memset(s, 0, sizeof *s);
    ls_log_set_sink(keep, s);
    ls_log_set_level(LS_LOG_INFO);
}

static void seen_close(seen *s)
{
    ls_log_set_sink(NULL, NULL);
    ls_log_set_level(LS_LOG_INFO);
}

TEST_IN(seen, s, a_line_reaches_the_sink)
{
    ls_log(LS_LOG_WARN, "%s %d", "answer", 42);
    assert_int_equal(s->count, 1);
    assert_int_equal(s->level, LS_LOG_WARN);
    assert_string_equal(s->line, "answer 42");
}

TEST_IN(seen, s, lower_levels_are_dropped)
{
    ls_log(LS_LOG_DEBUG, "no");
    ls_log_text(LS_LOG_DEBUG, "no", 2);
    ls_log(LS_LOG_OFF, "no");
    assert_int_equal(s->count, 0);
    ls_log_set_level(LS_LOG_DEBUG);
    ls_log(LS_LOG_DEBUG, "yes");
    assert_int_equal(s->count, 1);
    ls_log_set_level(LS_LOG_OFF);
    ls_log(LS_LOG_ERROR, "no");
    assert_int_equal(s->count, 1);
}

TEST_IN(seen, s, line_breaks_are_indented_and_control_characters_shown)
{
    ls_log(LS_LOG_INFO, "a\nb\tc\r\x1b[2J\x7f\n\n");
    assert_string_equal(s->line, "a\n\tb\tc\\x0d\\x1b[2J\\x7f");
    ls_log_text(LS_LOG_INFO, "%d\0z", 4);
    assert_string_equal(s->line, "%d\\x00z");
    ls_log_text(LS_LOG_INFO, "", 0);
    assert_int_equal(s->len, 0);
}

static void the_log_shows(seen *s, const char *text, const char *shown)
{
    ls_log_text(LS_LOG_INFO, text, strlen(text));
    assert_string_equal(s->line, shown);
}

/* C1 and the bidirectional controls act on a terminal as C0 does; 0x9b alone is CSI in some. */
TEST_IN(seen, s, characters_that_act_on_a_terminal_are_escaped)
{
    the_log_shows(s, "a\xc2\x80 b\xc2\x9f c\xc2\xa0", "a\\xc2\\x80 b\\xc2\\x9f c\xc2\xa0");
    the_log_shows(s, "\xe2\x80\x8d\xe2\x80\x8e\xe2\x80\x8f\xe2\x80\x90",
                  "\xe2\x80\x8d\\xe2\\x80\\x8e\\xe2\\x80\\x8f\xe2\x80\x90");
    the_log_shows(s, "\xe2\x80\xa9\xe2\x80\xaa\xe2\x80\xae\xe2\x80\xaf",
                  "\xe2\x80\xa9\\xe2\\x80\\xaa\\xe2\\x80\\xae\xe2\x80\xaf");
    the_log_shows(s, "\xe2\x81\xa5\xe2\x81\xa6\xe2\x81\xa9\xe2\x81\xaa",
                  "\xe2\x81\xa5\\xe2\\x81\\xa6\\xe2\\x81\\xa9\xe2\x81\xaa");
    the_log_shows(s, "\xd8\x9b\xd8\x9c\xd8\x9d", "\xd8\x9b\\xd8\\x9c\xd8\x9d");
    the_log_shows(s, "gr\xc3\xbc\xc3\x9f \xe4\xb8\xad \xf0\x9f\x98\x80",
                  "gr\xc3\xbc\xc3\x9f \xe4\xb8\xad \xf0\x9f\x98\x80");
    the_log_shows(s, "\x80z \x9b[2J \xffz \xc3z \xe2\x80", "\\x80z \\x9b[2J \\xffz \\xc3z \\xe2\\x80");
}

TEST_IN(seen, s, a_long_line_is_cut_at_its_limit)
{
    char *text = malloc(LINE_BYTES_MAX + 1);
    assert_non_null(text);
    memset(text, 'x', LINE_BYTES_MAX + 1);

    ls_log_text(LS_LOG_INFO, text, LINE_BYTES_MAX);
    assert_int_equal(s->len, LINE_BYTES_MAX);
    assert_int_equal(s->line[LINE_BYTES_MAX - 1], 'x');
    ls_log(LS_LOG_INFO, "%.*s", (int)LINE_BYTES_MAX, text);
    assert_int_equal(s->len, LINE_BYTES_MAX);
    assert_int_equal(s->line[LINE_BYTES_MAX - 1], 'x');

    ls_log_text(LS_LOG_INFO, text, LINE_BYTES_MAX + 1);
    assert_int_equal(s->len, LINE_BYTES_MAX);
    assert_string_equal(s->line + LINE_BYTES_MAX - (sizeof truncated_mark - 1), truncated_mark);
    ls_log(LS_LOG_INFO, "%.*s", (int)LINE_BYTES_MAX + 1, text);
    assert_int_equal(s->len, LINE_BYTES_MAX);
    assert_string_equal(s->line + LINE_BYTES_MAX - (sizeof truncated_mark - 1), truncated_mark);

    memset(text, '\1', LINE_BYTES_MAX); /* becomes four times as long */
    ls_log_text(LS_LOG_INFO, text, LINE_BYTES_MAX);
    assert_true(s->len <= LINE_BYTES_MAX);
    assert_string_equal(s->line + s->len - (sizeof truncated_mark - 1), truncated_mark);

    memset(text, 'x', LINE_BYTES_MAX + 1); /* a character across the limit is left out as a whole */
    memcpy(text + LINE_BYTES_MAX - sizeof truncated_mark, "\xe4\xb8\xad", 3);
    ls_log_text(LS_LOG_INFO, text, LINE_BYTES_MAX + 1);
    assert_int_equal(s->len, LINE_BYTES_MAX - 1);
    assert_string_equal(s->line + LINE_BYTES_MAX - sizeof truncated_mark, truncated_mark);
    free(text);
}

TEST(levels_have_names)
{
    enum ls_log_level level = LS_LOG_WARN;
    assert_int_equal(ls_log_level_of("debug", &level), LS_OK);
    assert_int_equal(level, LS_LOG_DEBUG);
    assert_int_equal(ls_log_level_of("off", &level), LS_OK);
    assert_int_equal(level, LS_LOG_OFF);
    assert_int_equal(ls_log_level_of("loud", &level), LS_EINVAL);
    assert_int_equal(level, LS_LOG_OFF);
}

enum { THREADS = 4, LINES = 20, WIDTH = 6000 }; /* more than a pipe takes at once */

static void write_lines(void *arg)
{
    char text[WIDTH];
    memset(text, *(const char *)arg, sizeof text);
    for (int i = 0; i < LINES; i++) ls_log_text(LS_LOG_INFO, text, sizeof text);
}

static void write_all_lines(void *arg)
{
    static const char letters[THREADS] = {'a', 'b', 'c', 'd'};
    ls_thread threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        char *letter = (char *)(uintptr_t)&letters[i];
        assert_int_equal(ls_thread_start(&threads[i], "log", write_lines, letter), LS_OK);
    }
    for (int i = 0; i < THREADS; i++) ls_thread_join(&threads[i]);
}

/* A line of the writers: 2026-01-31T12:00:00.123Z info xxxx */
static bool is_whole(const char *line)
{
    enum { HEAD = 30 };
    if (strlen(line) != HEAD + WIDTH + 1 || line[10] != 'T' || memcmp(line + 23, "Z info ", 7) != 0) return false;
    for (size_t i = HEAD; i < HEAD + WIDTH; i++) {
        if (line[i] != line[HEAD]) return false;
    }
    return line[HEAD + WIDTH] == '\n';
}

/* All of them are less than the queue takes, so that none is dropped, however late the reader is. */
TEST(lines_on_stderr_never_interleave)
{
    int pipe_fds[2];
    const int saved = dup(STDERR_FILENO);
    ls_thread writer;
    char line[WIDTH + 100];
    int whole = 0;
    assert_int_equal(pipe(pipe_fds), 0);
    assert_true(dup2(pipe_fds[1], STDERR_FILENO) >= 0);
    (void)close(pipe_fds[1]);
    ls_log_set_sink(NULL, NULL);
    assert_int_equal(ls_thread_start(&writer, "writer", write_all_lines, NULL), LS_OK);

    FILE *in = fdopen(pipe_fds[0], "r");
    assert_non_null(in);
    while (whole < THREADS * LINES && fgets(line, sizeof line, in) != NULL && is_whole(line)) whole++;
    ls_thread_join(&writer);
    ls_output_flush(); /* its thread has done with the descriptor */
    (void)dup2(saved, STDERR_FILENO);
    (void)close(saved);
    if (whole < THREADS * LINES) print_error("after %d lines: %s\n", whole, line);
    assert_int_equal(whole, THREADS * LINES);
    (void)fclose(in);
}
