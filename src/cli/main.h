/* cli/main.h - the command line (main.c), and the part of it that is the system's (main_posix.c, main_*_win32.c). */
#ifndef LS_CLI_MAIN_H
#define LS_CLI_MAIN_H

#include "luaserve.h"

enum { LS_STATUS_OK = 0, LS_STATUS_FAILED = 1, LS_STATUS_USAGE = 2 }; /* of the program */

int ls_command_line(int argc, char **argv); /* UTF-8; returns the exit status */

/* What a command line for a server says. The texts are those of argv. */
typedef struct ls_arguments {
    ls_server_options server;
    const char *log_level;  /* NULL: not given; it is set already */
    const char *name, *log; /* of a service; NULL: not given */
    int done;               /* everything is said; end with `status` */
    int status;
} ls_arguments;

/* argv[1] and on are options, the site, its arguments. What is wrong is said on standard error. `is_service`: it may have a
 * --name and a --log. */
ls_arguments ls_command_parse(int argc, char **argv, int is_service);

/* The words of services: argv[0] is "install", "uninstall" or "run-as-service". Returns the exit status. */
int ls_command_service(int argc, char **argv);

#endif
