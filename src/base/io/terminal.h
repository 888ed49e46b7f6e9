/* terminal.h - whether a stream is a terminal, and its width. Defined in terminal_posix.c or terminal_win32.c. */
#ifndef LS_BASE_TERMINAL_H
#define LS_BASE_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* True for a terminal that supports cursor control sequences (ECMA-48): not a file, not a pipe, not TERM=dumb. On
 * Windows this call enables the sequences. */
bool ls_is_terminal(FILE *stream);

/* The current width of the window, which may change at any time; 80 if unknown. */
unsigned ls_terminal_columns(FILE *stream);

/* True if the terminal's encoding is UTF-8: by the first of LC_ALL, LC_CTYPE and LANG that is set; on Windows by the
 * console's code page. */
bool ls_terminal_utf8(void);

/* True if NO_COLOR is set and not empty (https://no-color.org). */
bool ls_terminal_no_color(void);

#endif
