/* main_posix.c - the entry point of the program, and the reply to the service commands of Windows. */
#include <stdio.h>

#include "cli/main.h"

int main(int argc, char **argv)
{
    return ls_command_line(argc, argv);
}

const char *ls_main_site_hint(const char *site)
{
    (void)site;
    return "";
}

int ls_command_service(int argc, char **argv)
{
    (void)argc;
    fprintf(stderr,
            "luaserve: %s is for Windows services; on this system have the service manager run: luaserve site.lua\n",
            argv[0]);
    return LS_STATUS_USAGE;
}
