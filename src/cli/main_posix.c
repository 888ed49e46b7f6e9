/* main_posix.c - where the program begins, and what it says to the words of another system. */
#include <stdio.h>

#include "cli/main.h"

int main(int argc, char **argv)
{
    return ls_command_line(argc, argv);
}

int ls_command_service(int argc, char **argv)
{
    (void)argc;
    fprintf(stderr,
            "luaserve: %s is for services of Windows; here let the system's service manager run: luaserve site.lua\n",
            argv[0]);
    return LS_STATUS_USAGE;
}
