/* pid.c - see pid.h: the commands that use the file with the process id. */
#include "cli/pid.h"

#include <stdio.h>
#include <string.h>

#include "cli/main.h"

enum { STATUS_NOT_RUNNING = 3 }; /* of `status`: Linux Standard Base, "Init Script Actions" */

#define DEFAULT_PATH "luaserve.pid"

/* Parse [--pid FILE]. NULL: *status is the exit status. */
static const char *parse(int argc, char **argv, const char *what, int *status)
{
    const char *path = DEFAULT_PATH;
    for (int at = 1; at < argc; at++) {
        if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0) {
            printf("usage: luaserve %s [--pid FILE]\n\n%s\nFILE is the file that the server wrote with --pid FILE "
                   "(default: " DEFAULT_PATH ").\n",
                   argv[0], what);
            *status = LS_STATUS_OK;
            return NULL;
        }
        if (strncmp(argv[at], "--pid=", 6) == 0) {
            path = argv[at] + 6;
        } else if (strcmp(argv[at], "--pid") == 0) {
            path = at + 1 < argc ? argv[++at] : "";
        } else {
            fprintf(stderr, "luaserve: %s: unexpected argument \"%s\"; usage: luaserve %s [--pid FILE]\n", argv[0],
                    argv[at], argv[0]);
            *status = LS_STATUS_USAGE;
            return NULL;
        }
        if (path[0] == '\0') {
            fprintf(stderr, "luaserve: %s: --pid: the file is missing; usage: luaserve %s [--pid FILE]\n", argv[0],
                    argv[0]);
            *status = LS_STATUS_USAGE;
            return NULL;
        }
    }
    return path;
}

static int not_running(const char *path)
{
    fprintf(stderr, "luaserve: no running server owns %s; start it with --pid %s\n", path, path);
    return LS_STATUS_FAILED;
}

int ls_command_reload(int argc, char **argv)
{
    int status;
    const char *path =
        parse(argc, argv, "Have the running server load its site again. Its log shows the result.", &status);
    if (path == NULL) return status;
    const long pid = ls_pid_file_owner(path);
    if (pid == 0 || ls_pid_reload(pid) < 0) return not_running(path);
    printf("process %ld loads its site again; its log shows the result\n", pid);
    return LS_STATUS_OK;
}

int ls_command_stop(int argc, char **argv)
{
    int status;
    const char *path = parse(argc, argv, "Stop the running server and wait until it has ended.", &status);
    if (path == NULL) return status;
    const long pid = ls_pid_file_owner(path);
    return pid == 0 || ls_pid_stop(pid, path) < 0 ? not_running(path) : LS_STATUS_OK;
}

int ls_command_status(int argc, char **argv)
{
    int status;
    const char *path =
        parse(argc, argv, "Print whether the server runs. The exit status is 0 if it does, else 3.", &status);
    if (path == NULL) return status;
    const long pid = ls_pid_file_owner(path);
    if (pid == 0)
        printf("not running: no server owns %s\n", path);
    else
        printf("running, process id %ld\n", pid);
    return pid == 0 ? STATUS_NOT_RUNNING : LS_STATUS_OK;
}
