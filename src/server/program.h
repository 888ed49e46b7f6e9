/* program.h - what the program luaserve calls besides luaserve.h, and the libraries do not export. */
#ifndef LS_SERVER_PROGRAM_H
#define LS_SERVER_PROGRAM_H

#include "luaserve.h"

/* ls_server_open. `editor`: of dev mode, NULL, or the URL of a line in the error page, such as
 * "vscode://file/{file}:{line}", valid until ls_server_close; else a page of the server. */
int ls_program_open(const ls_server_options *options, const char *editor, ls_server **out, char *message,
                    size_t message_bytes);

/* If standard error is a terminal, and the site serves HTTP and logs no requests itself, log how requests are logged.
 * For options.serving. */
void ls_program_log_hint(ls_server *server);

#endif
