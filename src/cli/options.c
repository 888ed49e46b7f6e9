/* options.c - see options.h. */
#include "cli/options.h"

#include <stdlib.h>
#include <string.h>

enum kind {
    SWITCH, /* an int */
    NUMBER, /* an unsigned from `least` to `most` */
    WORD,   /* one of `words` */
    BACKEND,
    TEXT, /* not empty; contains `words`, if that is not NULL */
    CODE  /* the site; ends the options */
};

enum {
    SERVE = LS_LINE_SERVE,
    DEV = LS_LINE_DEV,
    REPL = LS_LINE_REPL,
    SERVICE = LS_LINE_SERVICE,
    UNINSTALL = LS_LINE_UNINSTALL,
    ALL = SERVE | DEV | REPL | SERVICE
};

#define AT(member) offsetof(ls_arguments, member)
#define LEVELS     "debug info warn error off"

static const struct option {
    const char *form;
    unsigned lines; /* on which it is allowed */
    enum kind kind;
    size_t offset; /* in ls_arguments */
    unsigned least, most;
    const char *words;
    const char *expected; /* of a TEXT */
    const char *text;
} options[] = {
    {"--attach PATH", REPL, TEXT, AT(attach), 0, 0, NULL, "the path of a Unix socket",
     "run the lines in the server whose control socket is PATH: luaserve --control PATH site.lua"},
    {"--listen", REPL, SWITCH, AT(listen), 0, 0, NULL, NULL,
     "also start the site: open its listeners, run its timers and \"start\" hooks"},
    {"--name NAME", SERVICE | UNINSTALL, TEXT, AT(name), 0, 0, NULL, "the name of a service",
     "name of the service (default: luaserve)"},
    {"--log FILE", SERVICE, TEXT, AT(log), 0, 0, NULL, "a file name",
     "file to which the log and the output of the site are appended (default: SITE.log)"},
    {"--editor URL", DEV, TEXT, AT(server.dev_editor), 0, 0, "{file}",
     "a URL with {file}, such as vscode://file/{file}:{line}",
     "URL of a line in the error page, with {file} and {line}, such as vscode://file/{file}:{line} (default: a page "
     "of "
     "the server)"},
    {"--threads N", ALL, NUMBER, AT(server.threads), 1, 1024, NULL, NULL,
     "run N threads at a time (default: `threads` of ls.config in the site, else one per processor). A standby thread "
     "replaces a thread whose handler computes or blocks for more than 5 ms"},
    {"--backend NAME", ALL, BACKEND, AT(server.backend), 0, 0, NULL, NULL,
     "epoll on Linux, iocp on Windows, or auto, the default: a system has one back end"},
    {"--control PATH", SERVE | DEV, TEXT, AT(server.control), 0, 0, NULL, "the path of a Unix socket",
     "listen at the Unix socket PATH for luaserve repl --attach PATH; only the same user and root may connect"},
    {"--check", SERVE, SWITCH, AT(server.check), 0, 0, NULL, NULL,
     "load the site and print its listeners and routes, without serving"},
    {"--log FILE", SERVE | DEV, TEXT, AT(log), 0, 0, NULL, "a file name",
     "append the log, and what the site prints, to FILE; SIGUSR1 opens it again"},
    {"--log-level LEVEL", ALL & ~REPL, WORD, AT(log_level), 0, 0, LEVELS, NULL,
     "drop log lines below this level: debug, info (the default), warn, error or off"},
    {"--log-level LEVEL", REPL, WORD, AT(log_level), 0, 0, LEVELS, NULL, "as of luaserve (default: warn)"},
    {"--pid FILE", SERVE | DEV, TEXT, AT(pid), 0, 0, NULL, "a file name",
     "write the process id to FILE while the server runs, for reload, stop and status; it is an error if a running "
     "server owns the file"},
    {"-e CODE", SERVE | REPL, CODE, AT(server.source), 0, 0, NULL, NULL,
     "the site is CODE; the last option: the arguments of the site follow"},
    {"--version", SERVE, SWITCH, AT(version), 0, 0, NULL, NULL, "print the version and what is built in"},
};

enum { OPTIONS = sizeof options / sizeof options[0] };

/* ---- a command line that is right ------------------------------------------------------------------------------- */

static int is_one_of(const char *text, const char *words)
{
    const size_t len = strlen(text);
    for (const char *at = words; *at != '\0'; at += strspn(at, " ")) {
        const size_t n = strcspn(at, " ");
        if (n == len && memcmp(at, text, n) == 0) return 1;
        at += n;
    }
    return 0;
}

static int is_backend(const char *name)
{
    const char *own = ls_server_backends();
    return strcmp(name, "auto") == 0 || strcmp(name, own) == 0 ||
           (strcmp(name, "uring") == 0 && strcmp(own, "epoll") == 0); /* the server logs that epoll is used */
}

/* Set the member of the option. 0; -1: the value is invalid. */
static int set(const struct option *option, const char *value, ls_arguments *args)
{
    void *member = (char *)args + option->offset;
    switch (option->kind) {
    case SWITCH: *(int *)member = 1; return 0;
    case NUMBER: {
        const size_t digits = strspn(value, "0123456789");
        const unsigned long number = digits > 0 && digits <= 9 && value[digits] == '\0' ? strtoul(value, NULL, 10) : 0;
        if (number < option->least || number > option->most) return -1;
        *(unsigned *)member = (unsigned)number;
        return 0;
    }
    case WORD:
        if (!is_one_of(value, option->words)) return -1;
        break;
    case BACKEND:
        if (!is_backend(value)) return -1;
        break;
    case TEXT:
        if (value[0] == '\0' || (option->words != NULL && strstr(value, option->words) == NULL)) return -1;
        break;
    case CODE:
        args->server.site = "(command line)";
        args->server.source_bytes = strlen(value);
        break;
    }
    *(const char **)member = value;
    return 0;
}

/* The option of this line that the argument names; *value receives the value in the argument, or NULL. NULL: there is
 * no such option. */
static const struct option *find(const char *argument, unsigned line, const char **value)
{
    for (size_t i = 0; i < OPTIONS; i++) {
        const size_t len = strcspn(options[i].form, " ");
        const int is_letter = argument[1] != '-';
        if ((options[i].lines & line) == 0 || strncmp(argument, options[i].form, len) != 0) continue;
        if (argument[len] != '\0' && !is_letter && argument[len] != '=') continue;
        *value = argument[len] == '\0' ? NULL : argument + len + !is_letter;
        return &options[i];
    }
    return NULL;
}

/* Returns the index of the first argument that is no option; -1: an error. */
static int read_options(int argc, char **argv, unsigned line, ls_arguments *args)
{
    int at = 1;
    for (; at < argc && argv[at][0] == '-' && argv[at][1] != '\0'; at++) {
        const char *value;
        if (strcmp(argv[at], "--") == 0) return at + 1;
        const struct option *option = find(argv[at], line, &value);
        if (option == NULL) return -1;
        if (option->kind == SWITCH && value != NULL) return -1;
        if (option->kind != SWITCH && value == NULL && (value = argv[++at]) == NULL) return -1;
        if (set(option, value, args) < 0) return -1;
        if (option->kind == CODE || args->version) return at + 1;
    }
    return at;
}

int ls_line_read(int argc, char **argv, unsigned line, ls_arguments *args)
{
    int at = read_options(argc, argv, line, args);
    if (at < 0 || args->version) return at < 0 ? -1 : 0;
    args->server.size = sizeof args->server;
    if (args->server.source == NULL && at < argc) {
        if (strcmp(argv[at], "-") == 0 && line != LS_LINE_SERVE) return -1;
        args->server.site = argv[at++];
    }
    if (args->server.site == NULL && line != LS_LINE_REPL) return -1;
    if (args->attach != NULL && (args->server.site != NULL || args->listen)) return -1;
    args->server.argc = argc - at;
    args->server.argv = argv + at;
    if (args->log_level != NULL) (void)ls_server_log_level(args->log_level);
    return 0;
}

/* ---- the table in Lua ------------------------------------------------------------------------------------------- */

static void set_text(lua_State *L, const char *name, const char *text)
{
    lua_pushstring(L, text);
    lua_setfield(L, -2, name);
}

void ls_line_push_options(lua_State *L)
{
    static const char *const kinds[] = {"switch", "number", "word", "backend", "text", "code"};
    static const char *const lines[] = {"serve", "dev", "repl", "service", "uninstall"};
    lua_createtable(L, OPTIONS, 0);
    for (size_t i = 0; i < OPTIONS; i++) {
        lua_newtable(L);
        set_text(L, "form", options[i].form);
        set_text(L, "kind", kinds[options[i].kind]);
        set_text(L, "words", options[i].words);
        set_text(L, "expected", options[i].expected);
        set_text(L, "text", options[i].text);
        lua_pushinteger(L, options[i].least);
        lua_setfield(L, -2, "least");
        lua_pushinteger(L, options[i].most);
        lua_setfield(L, -2, "most");
        for (unsigned k = 0; k < sizeof lines / sizeof lines[0]; k++) {
            lua_pushboolean(L, (int)(options[i].lines >> k & 1));
            lua_setfield(L, -2, lines[k]);
        }
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}
