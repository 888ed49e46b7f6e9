/* cli/repl.h - the parts of `luaserve repl`: lua/luaserve/command/prompt.lua (the loop), repl.c (the server, and
 * functions for Lua), repl_posix.c or repl_win32.c (the system), repl_plain.c (lines without an editor), and
 * repl_libedit_posix.c or repl_noedit.c (the editor).
 *
 * The lines run in a server: in the one of --attach, or in one that the program opens itself on another thread. Both
 * are reached through a control socket. A session exchanges messages: a line, then as many bytes as it says.
 *
 *     to the server                                from the server
 *     "eval BYTES": a text to run                  "out BYTES NUMBER": printed text
 *     "words BYTES": a text to complete            "value BYTES NUMBER": the text ran; its values
 *     "interrupt 0": end the text that runs        "error BYTES NUMBER": it failed; the message
 *                                                  "more BYTES NUMBER": it is incomplete
 *                                                  "words BYTES 0": the last word, then the candidates, one per line
 *                                                  "hello BYTES NUMBER": the version; the number of the session, which
 *                                                  the line "interrupt NUMBER" of another connection names
 */
#ifndef LS_CLI_REPL_H
#define LS_CLI_REPL_H

#include <stddef.h>
#include <stdint.h>

#include <lauxlib.h>

#include "luaserve.h"

extern const luaL_Reg ls_repl_functions[];

enum { LS_REPL_INTERRUPTED = -2 };

/* ---- the system ------------------------------------------------------------------------------------------------- */

/* Connect to a control socket. 0, or -1 with the reason in `why`. */
int ls_repl_connect(const char *path, intptr_t *out, char *why, size_t why_bytes);
int ls_repl_write(intptr_t link, const void *bytes, size_t n); /* all of them: 0; -1: the connection has ended */
/* The number of bytes received, at most `room`; 0: the connection has ended; LS_REPL_INTERRUPTED: Ctrl-C. */
long ls_repl_read(intptr_t link, void *to, size_t room);
void ls_repl_disconnect(intptr_t link);

/* From now on Ctrl-C does not end the program: it interrupts ls_repl_read and the editor. */
void ls_repl_catch_interrupts(void);
/* Wait until standard input can be read. 1; LS_REPL_INTERRUPTED: Ctrl-C. */
int ls_repl_wait_input(void);

/* The key that is pressed on the terminal within `ms`, without an echo; 0: none; -1: the end of the input, or Ctrl-C, which
 * does not end the program from the first call on. */
int ls_repl_key(int ms);

/* Whether standard input and output are a terminal. */
int ls_repl_is_terminal(void);

/* Make a path for a socket in a new folder of the user. 0, or -1 with the reason in `why`. */
int ls_repl_private_path(char *path, size_t path_bytes, char *why, size_t why_bytes);
void ls_repl_private_remove(char *path); /* the socket and its folder */

/* The path of the history in the user's folder for state, which is made; "" without one. */
void ls_repl_history_path(char *path, size_t path_bytes);

/* The next line of standard input, without its end: 1; 0: the end of the input; LS_REPL_INTERRUPTED. `prompt`: ""
 * where the input is no terminal. */
int ls_repl_plain_line(const char *prompt, const char **line);

/* ---- the editor, of a terminal ---------------------------------------------------------------------------------- */

/* The last word of `text`, a newline, and the candidates that it may become, separated by newlines; NULL: none. Valid
 * until the next call. */
typedef const char *ls_repl_complete_fn(void *user, const char *text, size_t bytes);

extern const char ls_repl_editor[]; /* its name, for --version */

/* 0, or -1: out of memory, or the terminal cannot be edited. */
int ls_repl_editor_open(const char *history, ls_repl_complete_fn *complete, void *user);
/* The next line without its end in *line, valid until the next call: 1; 0: the end of the input;
 * LS_REPL_INTERRUPTED. */
int ls_repl_editor_line(const char *prompt, const char **line);
void ls_repl_editor_close(void); /* saves the history, with the mode 0600 */

#endif
