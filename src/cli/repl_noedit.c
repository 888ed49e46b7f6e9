/* repl_noedit.c - the editor of a build without libedit: that of the terminal. No history, no completion. */
#include "cli/repl.h"

const char ls_repl_editor[] = "none";

int ls_repl_editor_open(const char *history, ls_repl_complete_fn *complete, void *user)
{
    return 0;
}

int ls_repl_editor_line(const char *prompt, const char **line)
{
    return ls_repl_plain_line(prompt, line);
}

void ls_repl_editor_close(void)
{
}
