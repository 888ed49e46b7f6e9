/* log_posix.c - lines for the journal, which knows the time: the priority of sd-daemon(3) is in front of each. */
#define _POSIX_C_SOURCE 200809L
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io/log_stderr.h"
#include "base/io/output.h"

enum { LINE_BYTES = 17 * 1024 };

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

bool ls_log_journal(int level, const char *line, size_t len)
{
    char out[LINE_BYTES];
    if (!is_journal()) return false;
    ls_output_write(LS_OUTPUT_STDERR, out, write_entries(out, sizeof out, level, line, len), false);
    return true;
}
