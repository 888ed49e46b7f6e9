/* terminal_posix.c - isatty(3), TIOCGWINSZ (ioctl_tty(2)) and the environment. */
#define _GNU_SOURCE
#include "base/io/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool ls_is_terminal(FILE *stream)
{
    const char *term = getenv("TERM");
    if (term == NULL || term[0] == '\0' || strcmp(term, "dumb") == 0) return false;
    return isatty(fileno(stream)) == 1;
}

unsigned ls_terminal_columns(FILE *stream)
{
    struct winsize size;
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}

bool ls_terminal_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value == NULL || value[0] == '\0') continue;
        const char *dot = strchr(value, '.'), *codeset = dot != NULL ? dot + 1 : value; /* "de_DE.UTF-8", or "UTF-8" */
        return strncasecmp(codeset, "utf-8", 5) == 0 || strncasecmp(codeset, "utf8", 4) == 0;
    }
    return false;
}

bool ls_terminal_no_color(void)
{
    const char *value = getenv("NO_COLOR");
    return value != NULL && value[0] != '\0';
}
