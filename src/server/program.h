/* program.h - what the program luaserve calls besides luaserve.h, and the libraries do not export. */
#ifndef LS_SERVER_PROGRAM_H
#define LS_SERVER_PROGRAM_H

#include <stdbool.h>

#include "luaserve.h"

/* ls_server_describe, as text or as JSON. */
void ls_program_describe(const ls_server *server, bool as_json);

/* Of a server with options.check: what the site has loaded, lines of text (lua/luaserve/description.lua, files). The
 * caller frees it; NULL: out of memory. */
char *ls_program_files(const ls_server *server);

/* ls_server_open. `editor`: of dev mode, NULL, or the URL of a line in the error page, such as
 * "vscode://file/{file}:{line}", valid until ls_server_close; else a page of the server. */
int ls_program_open(const ls_server_options *options, const char *editor, ls_server **out, char *message,
                    size_t message_bytes);

/* If standard error is a terminal, and the site serves HTTP and logs no requests itself, log how requests are logged.
 * For options.serving. */
void ls_program_log_hint(ls_server *server);

/* Whether the process replaces another one (upgrade.c), which has the file of --pid until options.serving is called. */
bool ls_program_replaces(const ls_server *server);

#endif
