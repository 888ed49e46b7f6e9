/* log_posix.c - the stderr sink: the time and the level in front of the line; for the journal, which knows the time,
 * the priority of sd-daemon(3) in front of each line. */
#define _POSIX_C_SOURCE 200809L
#include <time.h>

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io/log_stderr.h"
#include "base/io/output.h"

enum { LINE_BYTES = 17 * 1024 };

static size_t write_head(char *out, size_t room, enum ls_log_level level)
{
    const int64_t us = ls_clock_wall_us();
    const time_t s = (time_t)(us / 1000000);
    struct tm t = {0};
    char date[24] = "";
    if (gmtime_r(&s, &t) != NULL) (void)strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &t);
    const int ms = (int)(us / 1000 % 1000);
    const int n = ls_log_is_json() ? snprintf(out, room, "{\"time\":\"%s.%03dZ\",", date, ms)
                                   : snprintf(out, room, "%s.%03dZ %s ", date, ms, ls_log_level_name(level));
    return (size_t)n;
}

/* Whether standard error is the stream of the journal that the variable names: systemd.exec(5). --log and a program
 * may replace the descriptor at any time. */
static bool is_journal(void)
{
    static atomic_bool parsed;
    static atomic_ullong device, inode;
    struct stat st;
    if (!atomic_load(&parsed)) { /* threads at the same time find the same */
        const char *text = getenv("JOURNAL_STREAM");
        char *end = NULL;
        if (text != NULL) atomic_store(&device, strtoull(text, &end, 10));
        if (end != NULL && *end == ':') atomic_store(&inode, strtoull(end + 1, NULL, 10));
        atomic_store(&parsed, true);
    }
    return atomic_load(&inode) != 0 && fstat(STDERR_FILENO, &st) == 0 && st.st_dev == atomic_load(&device) &&
           st.st_ino == atomic_load(&inode);
}

/* Each line is an entry. Returns the length. */
static size_t write_entries(char *out, size_t room, int level, const char *text, size_t len)
{
    static const char priorities[] = "7643"; /* of syslog(3): debug, info, warn, error */
    size_t used = 0;
    for (size_t at = 0, n; at < len && used + 4 < room; at += n + 1) {
        const char *end = memchr(text + at, '\n', len - at);
        n = end != NULL ? (size_t)(end - text) - at : len - at;
        const size_t fits = n < room - used - 4 ? n : room - used - 4;
        out[used++] = '<';
        out[used++] = priorities[level];
        out[used++] = '>';
        memcpy(out + used, text + at, fits);
        used += fits;
        out[used++] = '\n';
    }
    return used;
}

void ls_log_stderr(int level, const char *line, size_t len, void *user)
{
    char out[LINE_BYTES]; /* head, text, newline */
    if (is_journal() && !ls_log_is_json()) {
        ls_output_write(LS_OUTPUT_STDERR, out, write_entries(out, sizeof out, level, line, len), false);
        return;
    }
    size_t n = write_head(out, sizeof out, (enum ls_log_level)level);
    if (len > sizeof out - n - 1) len = sizeof out - n - 1; /* never true: log.c truncates at 16 KiB */
    memcpy(out + n, line, len);
    n += len;
    out[n++] = '\n';
    ls_output_write(LS_OUTPUT_STDERR, out, n, false);
}
