/* dev.c - the command `luaserve dev site.lua`. */
#include <stdio.h>
#include <string.h>

#include "cli/main.h"

static const char usage[] =
    "usage: luaserve dev [options] site.lua [arguments...]\n"
    "\n"
    "Serves the site for its developer: reloads it when one of the files that it has loaded changes, shows errors in\n"
    "the browser, reloads the pages in the browser, and logs each request and what takes long.\n"
    "\n"
    "  --threads N        number of running threads (default: set by the site, else one per processor)\n"
    "  --backend NAME     as of luaserve\n"
    "  --log-level LEVEL  debug, info, warn, error or off (default: info)\n"
    "  --editor URL       URL of a line in the error page, with {file} and {line}: vscode://file/{file}:{line}\n"
    "                     (default: a page of the server)\n"
    "  --help             print this text\n"
    "\n"
    "Errors, sources and headers of requests are shown to every client that reaches the server: use it on a loopback\n"
    "address or in a network that you trust.\n";

int ls_command_dev(int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        (void)fputs(usage, stdout);
        return LS_STATUS_OK;
    }
    ls_arguments args = ls_command_parse(argc, argv, LS_COMMAND_DEV);
    if (args.done) return args.status;
    ls_server_log_color();
    return ls_command_serve(&args);
}
