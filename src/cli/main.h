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
    const char *log;        /* NULL: standard error */
    const char *name, *pid; /* of a service; not of a service; NULL: not given */
    int done;               /* nothing is left to do; exit with `status` */
    int status;
} ls_arguments;

enum ls_command_kind {
    LS_COMMAND_SERVE,
    LS_COMMAND_SERVICE, /* allows --name and --log */
    LS_COMMAND_DEV      /* allows --editor, and only a file as the site */
};

/* Parse the options, the site and its arguments from argv[1] on. Errors are printed to standard error. */
ls_arguments ls_command_parse(int argc, char **argv, enum ls_command_kind kind);

/* Open the server and run it to its end. Returns the exit status. */
int ls_command_serve(ls_arguments *args);

int ls_command_dev(int argc, char **argv); /* argv[0] is "dev"; returns the exit status */

/* The server has ended; the process still flushes its files, or closes the Lua states, whose finalizers are code of the
 * site. From here on the process ends with the status 1 after `seconds`, and with `status` when SIGINT or SIGTERM
 * arrives. Call it once, on the main thread. */
void ls_command_end_within(unsigned seconds, int status);

/* The command `repl`: argv[0] is its name. Returns the exit status. */
int ls_command_repl(int argc, char **argv);

/* What the system adds to the message of a site that cannot be opened; "" mostly. Static memory. */
const char *ls_main_site_hint(const char *site);

/* The word of the list, which NULL ends, that is most similar to `given` up to its "=", or that begins with it; NULL:
 * the list has no such word. */
const char *ls_command_nearest(const char *given, const char *const words[]);

/* `luaserve test` and `luaserve new`: argv[0] is the name of the command. Return the exit status. */
int ls_command_test(int argc, char **argv);
int ls_command_new(int argc, char **argv);

/* The service commands: argv[0] is "install", "uninstall" or "run-as-service". Returns the exit status. */
int ls_command_service(int argc, char **argv);

#endif
