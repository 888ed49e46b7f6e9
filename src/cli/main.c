/* main.c - the commands that serve a site: `luaserve site.lua`, and dev. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/main.h"
#include "cli/pid.h"
#include "cli/repl.h"
#include "port/file/image.h"
#include "server/program.h"

enum { FLUSH_SECONDS_MAX = 1, CLOSE_SECONDS_MAX = 15 };

/* Read standard input to its end. The caller frees the text; NULL: it cannot be read, or memory is exhausted. */
static char *read_input(size_t *bytes)
{
    size_t room = 65536, used = 0;
    char *text = malloc(room);
    while (text != NULL) {
        const size_t n = fread(text + used, 1, room - used, stdin);
        *bytes = used += n;
        if (n == 0 && !ferror(stdin)) {
            text[used] = '\0'; /* used < room */
            return text;
        }
        char *grown = n == 0 ? NULL : used < room ? text : realloc(text, room *= 2);
        if (grown == NULL) free(text);
        text = grown;
    }
    return NULL;
}

/* Open the server of the command line. LS_STATUS_OK, or the reason is printed. */
static int open_server(ls_server_options *options, const char *editor, ls_server **out)
{
    char message[2048], *input = NULL;
    if (options->source == NULL && strcmp(options->site, "-") == 0) {
        if ((input = read_input(&options->source_bytes)) == NULL) {
            fprintf(stderr, "luaserve: cannot read the site from standard input\n");
            return LS_STATUS_FAILED;
        }
        options->site = "(standard input)";
        options->source = input;
    }
    const int err = ls_program_open(options, editor, out, message, sizeof message);
    if (err < 0) {
        fprintf(stderr, "luaserve: %s", message);
        if (options->source == NULL) {
            char *words[] = {"suggest", (char *)options->site, options->argc > 0 ? options->argv[0] : ""};
            fprintf(stderr, "%s", ls_main_site_hint(options->site));
            (void)ls_command_lua(3, words); /* the site may be a command, misspelt */
        }
        fprintf(stderr, "\n");
    }
    free(input);
    return err < 0 ? LS_STATUS_FAILED : LS_STATUS_OK;
}

static void reopen_logs(void *user)
{
    ls_log_file_reopen();
}

typedef struct serving {
    ls_server *server;
    const char *takes_pid; /* NULL, or the file of the process that this one replaces */
    bool hints;
} serving;

static void on_serving(void *user)
{
    const serving *s = user;
    if (s->hints) ls_program_log_hint(s->server);
    if (s->takes_pid != NULL) (void)ls_pid_file_take(s->takes_pid);
}

static int serve(ls_arguments *args)
{
    ls_server *server;
    serving now = {.hints = args->log == NULL && !args->server.dev};
    args->server.serving = on_serving;
    args->server.user = &now;
    if (args->log != NULL && ls_log_file_open(args->log) < 0) return LS_STATUS_FAILED;
    args->server.signals = 1;
    args->server.notify = 1;
    args->server.reopen_logs = reopen_logs;
    if (args->pid != NULL) ls_pid_take_reload();
    if (open_server(&args->server, args->editor, &server) != LS_STATUS_OK) return LS_STATUS_FAILED;
    now.server = server;
    if (args->pid != NULL && ls_program_replaces(server)) now.takes_pid = args->pid;
    if (args->pid != NULL && now.takes_pid == NULL && !args->server.check && ls_pid_file_open(args->pid) < 0) {
        ls_server_close(server);
        return LS_STATUS_FAILED;
    }
    if (args->server.check) {
        if (!args->json) printf("%s: ok\n", args->server.site);
        ls_program_describe(server, args->json);
        ls_server_close(server);
        return LS_STATUS_OK;
    }
    const int result = ls_server_run(server);
    ls_pid_file_remove(result >= 0);
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

int ls_command_serve(int argc, char **argv)
{
    ls_arguments args = {0};
    const int status = ls_line_read(ls_image_site() != NULL ? "packed" : "serve", argc, argv, &args);
    if (status != LS_LINE_READ) return status;
    if (args.packed) return ls_command_lua(1, (char *[]){"inside"});
    const int err = args.overlay != NULL ? ls_image_overlay(args.overlay) : LS_OK;
    if (err < 0) {
        fprintf(stderr, "luaserve: cannot use --overlay %s: %s\n", args.overlay, ls_error_text(err));
        return LS_STATUS_USAGE;
    }
    if (!args.version) return serve(&args);
    printf("luaserve %s\n%sback end: %s\nline editor: %s\n%s", ls_server_version(), ls_server_build(),
           ls_server_backends(), ls_repl_editor, ls_main_libraries());
    return LS_STATUS_OK;
}

int ls_command_dev(int argc, char **argv)
{
    ls_arguments args = {.server = {.dev = 1}};
    const int status = ls_line_read("dev", argc, argv, &args);
    if (status != LS_LINE_READ) return status;
    ls_main_set_env("development", 0);
    ls_main_log_color();
    return serve(&args);
}
