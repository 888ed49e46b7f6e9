/* main_posix.c - the entry point of the program, and the reply to the service commands of Windows. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/main.h"

/* Open /dev/null for each standard descriptor that the parent closed: else the next file that is opened would get the
 * number, and with it the log. */
static void fill_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        /* open(2) returns the lowest free number, which is fd: the lower ones are open by now */
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            _Exit(LS_STATUS_FAILED); /* nowhere to report it */
    }
}

int main(int argc, char **argv)
{
    fill_standard_descriptors();
    return ls_command_line(argc, argv);
}

int ls_command_service(int argc, char **argv)
{
    (void)argc;
    fprintf(stderr,
            "luaserve: %s is for Windows services; on this system have the service manager run: luaserve site.lua\n",
            argv[0]);
    return LS_STATUS_USAGE;
}
