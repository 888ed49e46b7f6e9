/* terminal.h - whether someone looks at a stream, and how wide the window is. terminal_posix.c or terminal_win32.c
 * supplies it. */
#ifndef LS_STRESS_TERMINAL_H
#define LS_STRESS_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* A terminal that obeys cursor control sequences (ECMA-48): neither a file or pipe, nor TERM=dumb. Where the system has
 * to be asked to obey them, this asks. */
bool ls_terminal_is(FILE *stream);

/* Columns of the window now; it may change at any time. 80 when the system does not say. */
unsigned ls_terminal_columns(FILE *stream);

/* The virtual user's encoding is UTF-8, by LC_ALL, LC_CTYPE or LANG, whichever is set first; on Windows by the console's code
 * page. */
bool ls_terminal_utf8(void);

/* NO_COLOR is set to something (https://no-color.org). */
bool ls_terminal_no_color(void);

#endif
