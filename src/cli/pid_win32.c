/* pid_win32.c - see pid.h: Windows has no signals, so these commands and options refer to the service. */
#include "cli/pid.h"

#include <stdio.h>

#include "cli/main.h"

int ls_pid_file_open(const char *path)
{
    fprintf(stderr,
            "luaserve: --pid %s is not available on Windows; run the site as a service: luaserve install --help\n",
            path);
    return -1;
}

void ls_pid_file_remove(void)
{
}

int ls_log_file_open(const char *path)
{
    fprintf(
        stderr,
        "luaserve: --log %s is not available here; redirect standard error, or run the site as a service: luaserve "
        "install --help\n",
        path);
    return -1;
}

void ls_log_file_reopen(void)
{
}

static int refuse(const char *command)
{
    fprintf(stderr, "luaserve: %s is not available on Windows; use sc.exe with the service\n", command);
    return LS_STATUS_USAGE;
}

int ls_command_reload(int argc, char **argv)
{
    (void)argc;
    return refuse(argv[0]);
}

int ls_command_stop(int argc, char **argv)
{
    (void)argc;
    return refuse(argv[0]);
}

int ls_command_status(int argc, char **argv)
{
    (void)argc;
    return refuse(argv[0]);
}
