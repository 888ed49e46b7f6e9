/* test_line_log.c - lines of several threads in a file, and a reader that stops. */
#define _GNU_SOURCE
#include "support.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/io/line_log.h"
#include "base/io/log.h"
#include "base/os/thread.h"

enum { THREADS = 4, LINES = 20000, CLOSE_MS = 30000 };

static char folder[] = "/tmp/ls-lines-XXXXXX", path[64], moved[64];
static atomic_int warnings;

static void note(int level, const char *line, size_t len, void *user)
{
    if (level == LS_LOG_WARN) atomic_fetch_add(&warnings, 1);
}

static void *place_open(void)
{
    strcpy(folder + sizeof folder - 7, "XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/a.log", folder);
    (void)snprintf(moved, sizeof moved, "%s/b.log", folder);
    atomic_store(&warnings, 0);
    ls_log_set_sink(note, NULL);
    return folder;
}

static void place_close(void *unused)
{
    (void)unlink(path);
    (void)unlink(moved);
    assert_int_equal(rmdir(folder), 0);
    ls_log_set_sink(NULL, NULL);
}

static char *content(const char *of, size_t *len)
{
    FILE *file = fopen(of, "rb");
    assert_non_null(file);
    char *text = malloc(1 << 24);
    *len = fread(text, 1, 1 << 24, file);
    text[*len] = '\0';
    fclose(file);
    return text;
}

typedef struct filler {
    ls_line_log *log;
    unsigned number;
    ls_thread thread;
} filler;

static void fill(void *arg)
{
    const filler *f = arg;
    char line[64];
    for (unsigned n = 0; n < LINES; n++) {
        const int len =
            snprintf(line, sizeof line, "%u %u %.*s\n", f->number, n, (int)(n % 20 + 1), "....................");
        ls_line_log_put(f->log, f->number, line, (size_t)len);
        if (n % 500 == 0) ls_clock_sleep_ms(1); /* so that the writer keeps up on most machines */
    }
}

/* Those that were dropped are counted, and each other one is whole and in the order of its thread. */
TEST(lines_of_threads_are_whole)
{
    ls_line_log *log;
    filler fillers[THREADS];
    size_t len, lines = 0;
    long last[THREADS] = {-1, -1, -1, -1};
    (void)place_open();
    assert_int_equal(ls_line_log_open(path, THREADS, &log), LS_OK);
    for (unsigned n = 0; n < THREADS; n++) {
        fillers[n] = (filler){.log = log, .number = n};
        assert_int_equal(ls_thread_start(&fillers[n].thread, "fill", fill, &fillers[n]), LS_OK);
    }
    for (unsigned n = 0; n < THREADS; n++) ls_thread_join(&fillers[n].thread);
    const uint64_t dropped = ls_line_log_dropped(log);
    ls_line_log_close(log, CLOSE_MS);
    char *text = content(path, &len);
    for (char *at = text, *end; *at != '\0'; at = end + 1, lines++) {
        unsigned thread, number;
        int used;
        assert_non_null(end = strchr(at, '\n'));
        assert_int_equal(sscanf(at, "%u %u %n", &thread, &number, &used), 2);
        assert_int_equal(end - at - used, number % 20 + 1);
        assert_true(thread < THREADS && (long)number > last[thread]);
        last[thread] = number;
    }
    assert_int_equal(lines + dropped, THREADS * LINES);
    free(text);
    place_close(NULL);
}

TEST(a_moved_file_is_opened_again)
{
    ls_line_log *log;
    size_t len;
    struct stat st;
    (void)place_open();
    assert_int_equal(ls_line_log_open(path, 1, &log), LS_OK);
    ls_line_log_put(log, 0, "one\n", 4);
    while (stat(path, &st) < 0 || st.st_size == 0) ls_clock_sleep_ms(1);
    assert_int_equal(rename(path, moved), 0);
    ls_line_log_reopen(log);
    while (stat(path, &st) < 0) ls_clock_sleep_ms(1);
    ls_line_log_put(log, 0, "two\n", 4);
    ls_line_log_close(log, CLOSE_MS);
    char *text = content(moved, &len);
    assert_string_equal(text, "one\n");
    free(text);
    text = content(path, &len);
    assert_string_equal(text, "two\n");
    free(text);
    place_close(NULL);
}

/* The pipe and the ring take a part; then lines are dropped, until the reader continues. */
TEST(a_reader_that_stops_costs_lines_only)
{
    static char line[1000];
    ls_line_log *log;
    uint64_t put = 0, got = 0;
    char bytes[4096];
    (void)place_open();
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\n';
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(ls_line_log_open(path, 1, &log), LS_OK);
    const int reader = open(path, O_RDONLY | O_NONBLOCK);
    while (ls_line_log_dropped(log) == 0 || atomic_load(&warnings) == 0) {
        ls_line_log_put(log, 0, line, sizeof line);
        put++;
        if (put % 100 == 0) ls_clock_sleep_ms(1);
    }
    const uint64_t dropped = ls_line_log_dropped(log);
    /* Then the log says how many were dropped, perhaps before the last lines were read. */
    while (atomic_load(&warnings) == 1 || got < (put - dropped) * sizeof line) {
        ssize_t n;
        while ((n = read(reader, bytes, sizeof bytes)) > 0) got += (uint64_t)n;
        ls_clock_sleep_ms(1);
    }
    assert_int_equal(atomic_load(&warnings), 2);
    assert_int_equal(ls_line_log_dropped(log), dropped);
    assert_int_equal(got, (put - dropped) * sizeof line);
    ls_line_log_close(log, CLOSE_MS);
    close(reader);
    place_close(NULL);
}

TEST(a_file_that_cannot_be_opened)
{
    ls_line_log *log;
    assert_int_equal(ls_line_log_open("/tmp", 1, &log), LS_EISDIR);
    assert_int_equal(ls_line_log_open("/no/such/folder/a", 1, &log), LS_ENOENT);
}
