/* cli/main.h - the command line (main.c) and its platform part (main_posix.c, *_win32.c). */
#ifndef LS_CLI_MAIN_H
#define LS_CLI_MAIN_H

#include "luaserve.h"

enum { LS_STATUS_OK = 0, LS_STATUS_FAILED = 1, LS_STATUS_USAGE = 2 }; /* exit statuses of the program */

int ls_command_line(int argc, char **argv); /* UTF-8; returns the exit status */

/* A parsed command line of a server. The strings are those of argv. */
typedef struct ls_arguments {
    ls_server_options server;
    const char *log_level;  /* NULL: not given; already in force */
    const char *name, *log; /* of a service; NULL: not given */
    int done;               /* nothing is left to do; exit with `status` */
    int status;
} ls_arguments;

/* Parse the options, the site and its arguments from argv[1] on. Errors are printed to standard error. `is_service`:
 * allow --name and --log. */
ls_arguments ls_command_parse(int argc, char **argv, int is_service);

/* The server has ended; the process still flushes its files, or closes the Lua states, whose finalizers are code of the
 * site. From here on the process ends with the status 1 after `seconds`, and with `status` when SIGINT or SIGTERM
 * arrives. Call it once, on the main thread. */
void ls_command_end_within(unsigned seconds, int status);

/* The command `repl`: argv[0] is its name. Returns the exit status. */
int ls_command_repl(int argc, char **argv);

/* What the system adds to the message of a site that cannot be opened; "" mostly. Static memory. */
const char *ls_main_site_hint(const char *site);

/* The service commands: argv[0] is "install", "uninstall" or "run-as-service". Returns the exit status. */
int ls_command_service(int argc, char **argv);

#endif
