/* repl_plain.c - lines without an editor: from a pipe, and from a terminal that edits them itself, as the console of
 * Windows does. */
#include <stdio.h>

#include "cli/repl.h"

enum { LINE_BYTES_MAX = 1 << 20 };

int ls_repl_plain_line(const char *prompt, const char **line)
{
    static char text[LINE_BYTES_MAX + 1];
    size_t bytes = 0;
    int c = 0;
    if (prompt[0] != '\0') {
        fputs(prompt, stdout);
        fflush(stdout);
        (void)setvbuf(stdin, NULL, _IONBF, 0); /* else ls_repl_wait_input would miss lines that stdio has read */
        if (ls_repl_wait_input() == LS_REPL_INTERRUPTED) return LS_REPL_INTERRUPTED;
    }
    while (bytes < LINE_BYTES_MAX && (c = getchar()) != EOF && c != '\n') text[bytes++] = (char)c;
    if (c == EOF && bytes == 0) return 0;
    if (bytes > 0 && text[bytes - 1] == '\r') bytes--;
    text[bytes] = '\0';
    *line = text;
    return 1;
}
