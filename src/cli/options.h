/* options.h - the options of `luaserve site.lua`, of the commands dev, repl, install and run-as-service, which open a
 * server as well, and of uninstall.
 *
 * options.c has one table of them. A command line that is right is read from it here, because the start of a server
 * should not wait for a Lua state; help, errors and the manual page are made from it by
 * lua/luaserve/command/server.lua. */
#ifndef LS_CLI_OPTIONS_H
#define LS_CLI_OPTIONS_H

#include <lua.h>

#include "cli/main.h"

/* The command lines, as bits: of the program itself, of dev, of repl, of install and run-as-service, of uninstall. */
enum { LS_LINE_SERVE = 1, LS_LINE_DEV = 2, LS_LINE_REPL = 4, LS_LINE_SERVICE = 8, LS_LINE_UNINSTALL = 16 };

/* Read the options of this line, the site and its arguments, from argv[1] on. The log level is in force then. 0; -1:
 * the line has an error, or --help: see ls_command_explain. */
int ls_line_read(int argc, char **argv, unsigned line, ls_arguments *args);

/* Push the table: a list of { form, kind, least =, most =, words =, expected =, text =, serve =, dev =, ... }. Raises
 * when out of memory. */
void ls_line_push_options(lua_State *L);

#endif
