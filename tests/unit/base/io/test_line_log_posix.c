/* test_line_log_posix.c - lines of several threads in a file, a reader that stops, and the system's log. */
#define _GNU_SOURCE
#include "support.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
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

static _Atomic bool hangs, is_inside;

int64_t __real_ls_line_file_write(ls_line_file *file, const char *lines, size_t len);
int64_t __wrap_ls_line_file_write(ls_line_file *file, const char *lines, size_t len);

int64_t __wrap_ls_line_file_write(ls_line_file *file, const char *lines, size_t len)
{
    while (atomic_load(&hangs)) {
        atomic_store(&is_inside, true);
        ls_clock_sleep_ms(1);
    }
    return __real_ls_line_file_write(file, lines, len);
}

/* Nor does a write that does not return: the ring takes what it has room for, and the others are counted. */
TEST(no_line_waits_for_the_writer)
{
    enum { LINE = 1000, ROOM = LS_LINE_LOG_RING_BYTES / LINE, MANY = 3 * ROOM };
    static char line[LINE];
    ls_line_log *log;
    struct stat st = {.st_size = 0};
    (void)place_open();
    memset(line, 'x', LINE - 1);
    line[LINE - 1] = '\n';
    assert_int_equal(ls_line_log_open(path, 1, &log), LS_OK);
    atomic_store(&hangs, true);
    ls_line_log_put(log, 0, line, LINE);
    while (!atomic_load(&is_inside)) ls_clock_sleep_ms(1);
    for (int n = 0; n < MANY; n++) ls_line_log_put(log, 0, line, LINE);
    assert_int_equal(ls_line_log_dropped(log), MANY - ROOM);
    ls_line_log_reopen(log);
    atomic_store(&hangs, false);
    while (st.st_size < (off_t)(ROOM + 1) * LINE) {
        ls_clock_sleep_ms(1);
        (void)stat(path, &st);
    }
    ls_line_log_close(log, CLOSE_MS);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, (ROOM + 1) * LINE);
    place_close(NULL);
}

TEST(a_file_that_cannot_be_opened)
{
    ls_line_log *log;
    assert_int_equal(ls_line_log_open("/tmp", 1, &log), LS_EISDIR);
    assert_int_equal(ls_line_log_open("/no/such/folder/a", 1, &log), LS_ENOENT);
}

/* ---- syslog ------------------------------------------------------------------------------------------------------ */

static struct sockaddr_un daemon_at = {.sun_family = AF_UNIX};

int __real_connect(int fd, const struct sockaddr *to, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t len);

int __wrap_connect(int fd, const struct sockaddr *to, socklen_t len)
{
    const bool is_log =
        to->sa_family == AF_UNIX && strcmp(((const struct sockaddr_un *)to)->sun_path, "/dev/log") == 0;
    return is_log ? __real_connect(fd, (const struct sockaddr *)&daemon_at, sizeof daemon_at)
                  : __real_connect(fd, to, len);
}

static int daemon_start(void)
{
    const struct timeval patience = {.tv_sec = CLOSE_MS / 1000};
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&daemon_at, sizeof daemon_at), 0);
    return fd;
}

static void daemon_stop(int fd)
{
    (void)close(fd);
    (void)unlink(daemon_at.sun_path);
}

/* The next message is one of RFC 3164, of the facility local7 (23) with the severity info (6), and has this text. */
static void expect_message(int fd, const char *text)
{
    char got[256], month[4], name[16];
    int priority, day, hour, minute, second, pid, at = -1;
    const ssize_t len = recv(fd, got, sizeof got - 1, 0);
    assert_true(len > 0);
    got[len] = '\0';
    (void)sscanf(got, "<%d>%3[A-Za-z] %2d %2d:%2d:%2d %15[a-z][%d]: %n", &priority, month, &day, &hour, &minute,
                 &second, name, &pid, &at);
    assert_int_equal(at,
                     strlen("<190>Nov  9 01:02:03 luaserve[") + (size_t)snprintf(NULL, 0, "%d", pid) + strlen("]: "));
    assert_int_equal(priority, 23 * 8 + 6);
    assert_string_equal(name, "luaserve");
    assert_int_equal(pid, getpid());
    assert_string_equal(got + at, text);
}

TEST(lines_for_syslog_are_messages_and_its_daemon_may_restart)
{
    ls_line_log *log;
    (void)place_open();
    (void)snprintf(daemon_at.sun_path, sizeof daemon_at.sun_path, "%s/log", folder);
    assert_int_equal(ls_line_log_open("syslog", 1, &log), LS_ENOENT);
    int daemon = daemon_start();
    assert_int_equal(ls_line_log_open("syslog", 1, &log), LS_OK);
    ls_line_log_put(log, 0, "one\ntwo\n", 8);
    expect_message(daemon, "one");
    expect_message(daemon, "two");
    daemon_stop(daemon);
    ls_line_log_put(log, 0, "three\n", 6);
    daemon = daemon_start();
    expect_message(daemon, "three");
    ls_line_log_put(log, 0, "four\n", 5);
    ls_line_log_close(log, CLOSE_MS);
    expect_message(daemon, "four");
    daemon_stop(daemon);
    place_close(NULL);
}
