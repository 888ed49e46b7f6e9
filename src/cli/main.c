/* main.c - the command line. It uses only luaserve.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/main.h"

static const char usage[] =
    "luaserve - network servers in Lua\n"
    "\n"
    "usage: luaserve [options] site.lua [arguments...]\n"
    "       luaserve stress [options] URL      load test of a server: luaserve stress --help\n"
    "       luaserve install|uninstall         Windows service: luaserve install --help\n"
    "\n"
    "The arguments are available to the file as `...` and arg[1], arg[2], ...\n"
    "\n"
    "  --threads N        number of running threads (default: set by the site, else one per processor)\n"
    "  --backend NAME     %s (default: auto, the first of the others)\n"
    "  --check            load the site and print what it defines, without serving\n"
    "  --log-level LEVEL  debug, info, warn, error or off (default: info)\n"
    "  --help             print this text\n"
    "  --version          print the version and the build information\n"
    "\n"
    "The back end uring receives and sends through io_uring, with fewer system calls than epoll. With either, a\n"
    "handler that computes or blocks does not delay other requests, with one exception: if uring's handler blocks\n"
    "where no signal interrupts it (a device, an NFS server that does not respond), the operations of its thread\n"
    "wait. If the system refuses io_uring, luaserve uses epoll and logs the reason.\n"
    "\n"
    "SIGINT or SIGTERM starts the drain: luaserve responds to every accepted request and ends with status 0. A\n"
    "second signal ends it immediately.\n";

static const char *const options_known[] = {"--threads", "--backend", "--check", "--log-level", "--help", "--version"};

static void print_backends(FILE *to)
{
    fprintf(to, "auto %s", ls_server_backends());
}

static void print_usage(FILE *to)
{
    char names[128];
    snprintf(names, sizeof names, "auto %s", ls_server_backends());
    fprintf(to, usage, names);
}

static int fail_usage(const char *what, const char *value, const char *hint)
{
    fprintf(stderr, "luaserve: %s%s%s%s; %s\n", what, value != NULL ? " \"" : "", value != NULL ? value : "",
            value != NULL ? "\"" : "", hint);
    return LS_STATUS_USAGE;
}

/* The known option with the longest common prefix with `given`, or NULL. */
static const char *nearest_option(const char *given)
{
    const char *best = NULL;
    size_t best_len = 3; /* more than "--" and a letter */
    for (size_t i = 0; i < sizeof options_known / sizeof options_known[0]; i++) {
        size_t n = 0;
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): no argument before argv[argc] is NULL */
        while (given[n] != '\0' && given[n] == options_known[i][n]) n++;
        if (n >= best_len) {
            best = options_known[i];
            best_len = n;
        }
    }
    return best;
}

static int fail_unknown(const char *option)
{
    const char *near = nearest_option(option);
    fprintf(stderr, "luaserve: unknown option %s", option);
    if (near != NULL) fprintf(stderr, "; did you mean %s?", near);
    fprintf(stderr, "\nluaserve --help lists the options\n");
    return LS_STATUS_USAGE;
}

/* The value of "--name value" or "--name=value"; NULL if argv[*at] is another option. */
static const char *value_of(const char *name, int argc, char **argv, int *at)
{
    size_t len = strlen(name);
    /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): no argument before argv[argc] is NULL */
    if (strncmp(argv[*at], name, len) != 0) return NULL;
    if (argv[*at][len] == '=') return argv[*at] + len + 1;
    if (argv[*at][len] != '\0') return NULL;
    return *at + 1 < argc ? argv[++*at] : "";
}

static int is_known_backend(const char *name)
{
    char list[160], wanted[80];
    if (strlen(name) > 64 || name[0] == '\0' || strchr(name, ' ') != NULL) return 0;
    snprintf(list, sizeof list, " auto %s ", ls_server_backends());
    snprintf(wanted, sizeof wanted, " %s ", name);
    return strstr(list, wanted) != NULL;
}

static int parse_threads(const char *value, unsigned *out)
{
    char *end;
    errno = 0;
    unsigned long n = strtoul(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0 || n < 1 || n > 1024) return -1;
    *out = (unsigned)n;
    return 0;
}

ls_arguments ls_command_parse(int argc, char **argv, int is_service)
{
    ls_arguments args = {.done = 1, .server = {.signals = !is_service}};
    int at = 1;
    const char *value;
    for (; at < argc && argv[at][0] == '-' && argv[at][1] != '\0'; at++) {
        if (strcmp(argv[at], "--") == 0) {
            at++;
            break;
        }
        if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0) {
            print_usage(stdout);
            return args;
        }
        if (strcmp(argv[at], "--version") == 0) {
            printf("luaserve %s\n%sback ends: ", ls_server_version(), ls_server_build());
            print_backends(stdout);
            printf("\n");
            return args;
        }
        if (is_service && (value = value_of("--name", argc, argv, &at)) != NULL) {
            args.name = value;
        } else if (is_service && (value = value_of("--log", argc, argv, &at)) != NULL) {
            args.log = value;
        } else if (!is_service && strcmp(argv[at], "--check") == 0) {
            args.server.check = 1;
        } else if ((value = value_of("--threads", argc, argv, &at)) != NULL) {
            if (parse_threads(value, &args.server.threads) < 0) {
                args.status = fail_usage("--threads: invalid number", value, "give 1 to 1024");
                return args;
            }
        } else if ((value = value_of("--backend", argc, argv, &at)) != NULL) {
            if (!is_known_backend(value)) {
                fprintf(stderr, "luaserve: --backend: unknown back end \"%s\"; available: ", value);
                print_backends(stderr);
                fprintf(stderr, "\n");
                args.status = LS_STATUS_USAGE;
                return args;
            }
            args.server.backend = value;
        } else if ((value = value_of("--log-level", argc, argv, &at)) != NULL) {
            if (ls_server_log_level(value) < 0) {
                args.status = fail_usage("--log-level: unknown level", value, "give debug, info, warn, error or off");
                return args;
            }
            args.log_level = value;
        } else {
            args.status = fail_unknown(argv[at]);
            return args;
        }
    }
    if (at >= argc) {
        args.status = fail_usage("no site given", NULL, "usage: luaserve [options] site.lua [arguments...]");
        return args;
    }
    args.server.site = argv[at];
    args.server.argc = argc - at - 1;
    args.server.argv = argv + at + 1;
    args.done = 0;
    return args;
}

static int is_service_word(const char *word)
{
    return strcmp(word, "install") == 0 || strcmp(word, "uninstall") == 0 || strcmp(word, "run-as-service") == 0;
}

int ls_command_line(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "stress") == 0) return ls_stress_main(argc - 1, argv + 1);
    if (argc > 1 && is_service_word(argv[1])) return ls_command_service(argc - 1, argv + 1);
    ls_arguments args = ls_command_parse(argc, argv, 0);
    if (args.done) return args.status;

    ls_server *server;
    char message[2048];
    if (ls_server_open(&args.server, &server, message, sizeof message) < 0) {
        fprintf(stderr, "luaserve: %s\n", message);
        return LS_STATUS_FAILED;
    }
    if (args.server.check) {
        printf("%s: ok\n", args.server.site);
        ls_server_describe(server);
        ls_server_close(server);
        return LS_STATUS_OK;
    }
    if (ls_server_run(server) < 0) _Exit(LS_STATUS_FAILED); /* a handler may still run, so nothing is freed */
    ls_server_close(server);
    return LS_STATUS_OK;
}
