/* log_stderr.c - see log_stderr.h. */
#include "base/io/log_stderr.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/io/output.h"

enum { LINE_BYTES = 17 * 1024 };

void ls_log_stderr(int level, const char *line, size_t len, void *user)
{
    char out[LINE_BYTES]; /* head, text, newline */
    const bool json = ls_log_is_json();
    if (!json && ls_log_journal(level, line, len)) return;
    const int64_t us = ls_clock_wall_us();
    const ls_date d = ls_clock_date(us / 1000000);
    size_t n =
        (size_t)snprintf(out, sizeof out, "%s%04u-%02u-%02uT%02u:%02u:%02u.%03uZ%s%s%s", json ? "{\"time\":\"" : "",
                         d.year, d.month, d.day, d.hour, d.minute, d.second, (unsigned)(us / 1000 % 1000),
                         json ? "\"," : " ", json ? "" : ls_log_level_name((enum ls_log_level)level), json ? "" : " ");
    if (len > sizeof out - n - 1) len = sizeof out - n - 1; /* never true: log.c truncates at 16 KiB */
    memcpy(out + n, line, len);
    n += len;
    out[n++] = '\n';
    ls_output_write(LS_OUTPUT_STDERR, out, n, false);
}
