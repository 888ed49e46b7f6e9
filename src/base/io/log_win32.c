/* log_win32.c - the stderr sink: the time and the level in front of the line. */
#include <windows.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/io/log_stderr.h"
#include "base/io/output.h"

enum { LINE_BYTES = 17 * 1024 };

static size_t write_head(char *to, size_t room, int level)
{
    SYSTEMTIME t;
    GetSystemTime(&t);
    const bool json = ls_log_is_json();
    const int n = snprintf(to, room, "%s%04u-%02u-%02uT%02u:%02u:%02u.%03uZ%s%s%s", json ? "{\"time\":\"" : "", t.wYear,
                           t.wMonth, t.wDay, t.wHour, t.wMinute, t.wSecond, t.wMilliseconds, json ? "\"," : " ",
                           json ? "" : ls_log_level_name((enum ls_log_level)level), json ? "" : " ");
    return n > 0 ? (size_t)n : 0;
}

void ls_log_stderr(int level, const char *line, size_t len, void *user)
{
    char line_out[LINE_BYTES]; /* head, text, newline */
    size_t n = write_head(line_out, sizeof line_out, level);
    if (len > sizeof line_out - n - 1) len = sizeof line_out - n - 1; /* never true: log.c truncates at 16 KiB */
    memcpy(line_out + n, line, len);
    n += len;
    line_out[n++] = '\n';
    ls_output_write(LS_OUTPUT_STDERR, line_out, n, false);
}
