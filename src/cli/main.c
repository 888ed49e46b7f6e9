/* main.c - the command line. It uses only luaserve.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/main.h"
#include "cli/pid.h"
#include "cli/repl.h"

enum { FLUSH_SECONDS_MAX = 1, CLOSE_SECONDS_MAX = 15 };

static const char usage[] =
    "luaserve - network servers in Lua\n"
    "\n"
    "usage: luaserve [options] site.lua [arguments...]\n"
    "       luaserve [options] -e CODE [arguments...]   the site is CODE\n"
    "       luaserve [options] - [arguments...]         the site is read from standard input\n"
    "       luaserve COMMAND ...                        luaserve COMMAND --help describes it\n"
    "\n"
    "%s"
    "\n"
    "The arguments are available to the site as `...` and arg[1], arg[2], ...\n"
    "\n"
    "  --threads N        number of running threads (default: set by the site, else one per processor)\n"
    "  --backend NAME     %s (default: auto, the first of the others)\n"
    "  --control PATH     Unix socket for luaserve repl --attach PATH; only the same user and root may connect\n"
    "  --check            load the site and print its listeners and routes, without serving\n"
    "  --log FILE         append the log, and what the site prints, to FILE; SIGUSR1 opens it again\n"
    "  --log-level LEVEL  debug, info, warn, error or off (default: info)\n"
    "  --pid FILE         write the process id to FILE while the server runs, for reload, stop and status\n"
    "  --help             print this text\n"
    "  --version          print the version and the build information\n"
    "\n"
    "The back end uring receives and sends through io_uring, with fewer system calls than epoll. With either, a\n"
    "handler that computes or blocks does not delay other requests, with one exception: if uring's handler blocks\n"
    "where no signal interrupts it (a device, an NFS server that does not respond), the operations of its thread\n"
    "wait. If the system refuses io_uring, luaserve uses epoll and logs the reason.\n"
    "\n"
    "A site without listeners ends with status 0 when its last job and timer have ended.\n"
    "SIGHUP loads the site again: requests that have begun end with the old site, and no connection closes.\n"
    "SIGINT or SIGTERM starts the drain: luaserve responds to every accepted request and ends with status 0. A\n"
    "second signal ends it immediately.\n";

static const char *const server_options[] = {"--threads",   "--backend", "--control", "--check",   "--log",
                                             "--log-level", "--pid",     "--help",    "--version", NULL};
static const char *const dev_options[] = {"--threads", "--backend", "--log",     "--log-level", "--pid",
                                          "--editor",  "--help",    "--version", NULL};
static const char *const service_options[] = {"--threads", "--backend", "--log-level", "--name",
                                              "--log",     "--help",    "--version",   NULL};

/* The commands, in the order of --help; argv[0] of a command is its name. A command without a line of help is not
 * listed: another program calls it. A site of the same name is given as ./NAME. */
static const struct command {
    const char *name;
    int (*run)(int argc, char **argv); /* returns the exit status */
    const char *help;
} commands[] = {
    {"dev", ls_command_dev, "serve a site, reload it after each change, show errors in the browser"},
    {"new", ls_command_new, "make a folder with a site, its tests and editor settings"},
    {"test", ls_command_test, "run the tests of a site"},
    {"stress", ls_stress_main, "load test of a server"},
    {"reload", ls_command_reload, "have the running server load its site again"},
    {"stop", ls_command_stop, "stop the running server"},
    {"status", ls_command_status, "print whether the server runs"},
    {"repl", ls_command_repl, "a prompt for Lua, also in a running server"},
    {"install", ls_command_service, "make a Windows service of a site"},
    {"uninstall", ls_command_service, "delete the Windows service"},
    {"run-as-service", ls_command_service, NULL},
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

static void print_backends(FILE *to)
{
    fprintf(to, "auto %s", ls_server_backends());
}

static void print_usage(FILE *to)
{
    char names[128], list[1024] = "";
    size_t used = 0;
    snprintf(names, sizeof names, "auto %s", ls_server_backends());
    for (size_t i = 0; i < COMMANDS && used < sizeof list; i++)
        if (commands[i].help != NULL)
            used +=
                (size_t)snprintf(list + used, sizeof list - used, "  %-18s %s\n", commands[i].name, commands[i].help);
    fprintf(to, usage, list, names);
}

static int fail_usage(const char *what, const char *value, const char *hint)
{
    fprintf(stderr, "luaserve: %s%s%s%s; %s\n", what, value != NULL ? " \"" : "", value != NULL ? value : "",
            value != NULL ? "\"" : "", hint);
    return LS_STATUS_USAGE;
}

enum { WORD_BYTES_MAX = 31 };

/* The number of insertions, deletions, replacements and exchanges of neighbours that turn `a` into `b`. */
static size_t edit_distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t d[WORD_BYTES_MAX + 1][WORD_BYTES_MAX + 1];
    for (size_t i = 0; i <= a_len; i++) {
        for (size_t j = 0; j <= b_len; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[a_len][b_len];
}

const char *ls_command_nearest(const char *given, const char *const words[])
{
    enum { PREFIX_BYTES_MIN = 4 };
    const size_t len = strcspn(given, "=");
    const char *best = NULL;
    size_t least = (len / 3 > 2 ? len / 3 : 2) + 1;
    if (len > WORD_BYTES_MAX) return NULL;
    for (; *words != NULL; words++) {
        size_t distance = edit_distance(given, len, *words, strlen(*words));
        if (len >= PREFIX_BYTES_MIN && distance > 1 && strncmp(given, *words, len) == 0) distance = 1;
        if (distance < least) {
            best = *words;
            least = distance;
        }
    }
    return best;
}

static const char *nearest_command(const char *given)
{
    const char *names[COMMANDS + 1];
    size_t count = 0;
    for (size_t i = 0; i < COMMANDS; i++)
        if (commands[i].help != NULL) names[count++] = commands[i].name;
    names[count] = NULL;
    return ls_command_nearest(given, names);
}

static int fail_unknown(const char *option, const char *const known[])
{
    const char *near = ls_command_nearest(option, known);
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

ls_arguments ls_command_parse(int argc, char **argv, enum ls_command_kind kind)
{
    const int is_service = kind == LS_COMMAND_SERVICE, is_dev = kind == LS_COMMAND_DEV;
    ls_arguments args = {.done = 1, .server = {.signals = !is_service, .dev = is_dev}};
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
        if (kind == LS_COMMAND_SERVE && strcmp(argv[at], "-e") == 0) {
            if (at + 1 == argc) {
                args.status = fail_usage("-e: the code is missing", NULL, "usage: luaserve -e CODE [arguments...]");
                return args;
            }
            args.server.site = "(command line)";
            args.server.source = argv[at + 1];
            args.server.source_bytes = strlen(argv[at + 1]);
            at++; /* in the place of the site */
            break;
        }
        if (strcmp(argv[at], "--version") == 0) {
            printf("luaserve %s\n%sback ends: ", ls_server_version(), ls_server_build());
            print_backends(stdout);
            printf("\nline editor: %s\n", ls_repl_editor);
            return args;
        }
        if (is_service && (value = value_of("--name", argc, argv, &at)) != NULL) {
            args.name = value;
        } else if ((value = value_of("--log", argc, argv, &at)) != NULL) {
            if (value[0] == '\0') {
                args.status = fail_usage("--log: the file is missing", NULL, "usage: --log FILE");
                return args;
            }
            args.log = value;
        } else if (!is_service && (value = value_of("--pid", argc, argv, &at)) != NULL) {
            if (value[0] == '\0') {
                args.status = fail_usage("--pid: the file is missing", NULL, "usage: --pid FILE");
                return args;
            }
            args.pid = value;
        } else if (is_dev && (value = value_of("--editor", argc, argv, &at)) != NULL) {
            if (strstr(value, "{file}") == NULL) {
                args.status =
                    fail_usage("--editor: the URL has no {file}:", value, "example: vscode://file/{file}:{line}");
                return args;
            }
            args.server.dev_editor = value;
        } else if (kind == LS_COMMAND_SERVE && strcmp(argv[at], "--check") == 0) {
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
        } else if (!is_service && (value = value_of("--control", argc, argv, &at)) != NULL) {
            if (value[0] == '\0') {
                args.status = fail_usage("--control: the path is missing", NULL, "give the path of a Unix socket");
                return args;
            }
            args.server.control = value;
        } else if ((value = value_of("--log-level", argc, argv, &at)) != NULL) {
            if (ls_server_log_level(value) < 0) {
                args.status = fail_usage("--log-level: unknown level", value, "give debug, info, warn, error or off");
                return args;
            }
            args.log_level = value;
        } else {
            args.status = fail_unknown(argv[at], is_service ? service_options : is_dev ? dev_options : server_options);
            return args;
        }
    }
    if (at >= argc) {
        args.status = fail_usage("no site given", NULL,
                                 is_dev ? "usage: luaserve dev [options] site.lua [arguments...]"
                                        : "usage: luaserve [options] site.lua [arguments...]");
        return args;
    }
    if (is_service && strcmp(argv[at], "-") == 0) {
        args.status = fail_usage("a service cannot read its site from standard input", NULL, "give the file");
        return args;
    }
    if (is_dev && strcmp(argv[at], "-") == 0) {
        args.status = fail_usage("luaserve dev cannot read its site from standard input", NULL, "give the file");
        return args;
    }
    if (args.server.source == NULL) args.server.site = argv[at];
    args.server.argc = argc - at - 1;
    args.server.argv = argv + at + 1;
    args.done = 0;
    return args;
}

/* Read standard input to its end. The caller frees the text; NULL: the reason is printed. */
static char *read_input(size_t *bytes)
{
    size_t room = 65536, used = 0;
    char *text = malloc(room);
    while (text != NULL) {
        const size_t n = fread(text + used, 1, room - used, stdin);
        used += n;
        if (n == 0 && !ferror(stdin)) {
            *bytes = used;
            return text;
        }
        if (n == 0) {
            fprintf(stderr, "luaserve: cannot read the site from standard input\n");
            free(text);
            return NULL;
        }
        if (used < room) continue;
        char *grown = realloc(text, room * 2);
        if (grown == NULL) free(text);
        text = grown;
        room *= 2;
    }
    fprintf(stderr, "luaserve: not enough memory for the site\n");
    return NULL;
}

/* Open the server of the command line. LS_STATUS_OK, or the reason is printed. */
static int open_server(ls_server_options *options, ls_server **out)
{
    char message[2048], *input = NULL;
    if (options->source == NULL && strcmp(options->site, "-") == 0) {
        if ((input = read_input(&options->source_bytes)) == NULL) return LS_STATUS_FAILED;
        options->site = "(standard input)";
        options->source = input;
    }
    const int err = ls_server_open(options, out, message, sizeof message);
    free(input);
    if (err == 0) return LS_STATUS_OK;
    const char *near = strpbrk(options->site, "./\\") == NULL ? nearest_command(options->site) : NULL;
    fprintf(stderr, "luaserve: %s%s", message, options->source == NULL ? ls_main_site_hint(options->site) : "");
    if (strcmp(options->site, "help") == 0) near = "--help";
    if (options->source == NULL && near != NULL) fprintf(stderr, "; did you mean luaserve %s?", near);
    fprintf(stderr, "\n");
    return LS_STATUS_FAILED;
}

static void reopen_logs(void *user)
{
    (void)user;
    ls_log_file_reopen();
}

int ls_command_line(int argc, char **argv)
{
    const struct command *command = argc > 1 ? find_command(argv[1]) : NULL;
    if (command != NULL) return command->run(argc - 1, argv + 1);
    ls_arguments args = ls_command_parse(argc, argv, LS_COMMAND_SERVE);
    return args.done ? args.status : ls_command_serve(&args);
}

int ls_command_serve(ls_arguments *args)
{
    ls_server *server;
    if (args->log != NULL && ls_log_file_open(args->log) < 0) return LS_STATUS_FAILED;
    args->server.reopen_logs = reopen_logs;
    if (open_server(&args->server, &server) != LS_STATUS_OK) return LS_STATUS_FAILED;
    if (args->pid != NULL && !args->server.check && ls_pid_file_open(args->pid) < 0) {
        ls_server_close(server);
        return LS_STATUS_FAILED;
    }
    if (args->server.check) {
        printf("%s: ok\n", args->server.site);
        ls_server_describe(server);
        ls_server_close(server);
        return LS_STATUS_OK;
    }
    const int result = ls_server_run(server);
    ls_pid_file_remove();
    if (result < 0) {
        /* A handler may still run in its Lua state, so nothing is freed. It may also hold the lock of a file. */
        ls_command_end_within(FLUSH_SECONDS_MAX, LS_STATUS_FAILED);
        fflush(NULL);
        _Exit(LS_STATUS_FAILED);
    }
    ls_command_end_within(CLOSE_SECONDS_MAX, LS_STATUS_OK);
    ls_server_close(server);
    return LS_STATUS_OK;
}
