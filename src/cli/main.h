/* cli/main.h - the command line: command.c (the commands and their options), main.c (to serve), and the platform part
 * (main_posix.c, *_win32.c). */
#ifndef LS_CLI_MAIN_H
#define LS_CLI_MAIN_H

#include <lauxlib.h>

#include "luaserve.h"

enum { LS_STATUS_OK = 0, LS_STATUS_FAILED = 1, LS_STATUS_USAGE = 2 }; /* exit statuses of the program */

int ls_command_line(int argc, char **argv); /* UTF-8; returns the exit status */

/* A command line that opens a server. The strings are those of argv. */
typedef struct ls_arguments {
    ls_server_options server;
    const char *log_level;  /* NULL: not given; already in force */
    const char *log_format; /* NULL: not given; already in force */
    const char *log;        /* NULL: standard error */
    const char *name, *pid; /* of a service; not of a service; NULL: not given */
    const char *attach;     /* of repl; NULL: not given */
    const char *editor;     /* of dev; NULL: a page of the server */
    const char *overlay;    /* of a packed program; NULL: none */
    int listen;             /* of repl */
    int json;               /* with server.check */
    int version, packed;    /* print the version, or the files inside; the other members have no meaning */
} ls_arguments;

/* Commands: argv[0] is the name. They return the exit status. */
int ls_command_serve(int argc, char **argv); /* of the program itself, whose name argv[0] is */
int ls_command_dev(int argc, char **argv);
int ls_command_repl(int argc, char **argv);
int ls_command_test(int argc, char **argv);
int ls_command_service(int argc, char **argv); /* install, uninstall and run-as-service */
extern const luaL_Reg ls_service_functions[];  /* for Lua; none where the system has no such services */
int ls_command_lua(int argc, char **argv);     /* the others, which are written in Lua */

/* Read the options of `luaserve site.lua` ("serve"), of a packed program ("packed"), dev, repl or run-as-service ("service"), the site and its
 * arguments, from argv[1] on; lua/luaserve/command/server.lua has their table. LS_LINE_READ: the log level is in force
 * now. Else the exit status: help, or what is wrong with the line, is printed. */
enum { LS_LINE_READ = -1 };
int ls_line_read(const char *line, int argc, char **argv, ls_arguments *args);

/* The server has ended; the process still flushes its files, or closes the Lua states, whose finalizers are code of
 * the site. From here on the process ends with the status 1 after `seconds`, and with `status` when SIGINT or SIGTERM
 * arrives. Call it once, on the main thread. */
void ls_command_end_within(unsigned seconds, int status);

/* Set the variable LUASERVE_ENV of this process and its children: for `replace`, also one that is set. Before threads
 * start. */
void ls_main_set_env(const char *value, int replace);

/* Color the lines of warnings, errors and the requests of dev mode, if standard error is a terminal and NO_COLOR is
 * not set in the environment; else it has no effect. While no server is open. */
void ls_main_log_color(void);

/* For --version: that the libraries are inside the program, if they are; else "". Static memory. */
const char *ls_main_libraries(void);

/* What the system adds to the message of a site that cannot be opened; "" mostly. Static memory. */
const char *ls_main_site_hint(const char *site);

#endif
