/* log_color.c - ls_main_log_color: the lines of the log with colors (ECMA-48, SGR). */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/io/log_stderr.h"
#include "base/io/terminal.h"
#include "cli/main.h"

enum { LINE_BYTES = 16 * 1024 + 256 };

static const char off[] = "\033[0m", dim[] = "\033[2m", red[] = "\033[31m", green[] = "\033[32m",
                  yellow[] = "\033[33m", cyan[] = "\033[36m";

static const char *color_of_status(char first)
{
    switch (first) {
    case '2': return green;
    case '3': return cyan;
    case '4': return yellow;
    default: return red;
    }
}

/* The offset of the status in a line of a request, "GET /path 200 0.4 ms"; 0: another line. */
static size_t status_of(const char *line, size_t len)
{
    size_t at = 0;
    while (at < len && isupper((unsigned char)line[at])) at++;
    if (at == 0 || at + 2 >= len || line[at] != ' ' || line[at + 1] != '/') return 0;
    while (++at < len && line[at] != ' ') continue;
    if (at + 5 >= len || line[at + 4] != ' ' || memcmp(line + len - 3, " ms", 3) != 0) return 0;
    for (size_t n = 1; n <= 3; n++)
        if (!isdigit((unsigned char)line[at + n])) return 0;
    return at + 1;
}

static void color_sink(int level, const char *line, size_t len, void *user)
{
    char out[LINE_BYTES];
    const size_t status = level == LS_LOG_INFO ? status_of(line, len) : 0;
    int n;
    if (status > 0)
        n = snprintf(out, sizeof out, "%.*s%s%.3s%s%s%.*s%s", (int)status, line, color_of_status(line[status]),
                     line + status, off, dim, (int)(len - status - 3), line + status + 3, off);
    else
        n = snprintf(out, sizeof out, "%s%.*s%s",
                     level >= LS_LOG_ERROR  ? red
                     : level == LS_LOG_WARN ? yellow
                                            : "",
                     (int)len, line, level >= LS_LOG_WARN ? off : "");
    ls_log_stderr(level, out, n < (int)sizeof out ? (size_t)n : sizeof out - 1, NULL);
}

void ls_main_log_color(void)
{
    if (ls_is_terminal(stderr) && !ls_terminal_no_color()) ls_server_log_to(color_sink, NULL);
}
