/* repl.c - `luaserve repl`: reads lines, has them run by a session of a server, prints the values. See repl.h. */
#include "cli/repl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/main.h"
#include "cli/options.h"

enum { CLOSE_SECONDS_MAX = 15, HEADER_BYTES_MAX = 96, INPUT_BYTES_MAX = 1 << 20, READ_BYTES = 65536 };

typedef struct message {
    char kind[16];
    char *text; /* allocated; followed by a zero byte */
    size_t bytes;
    uint64_t number;
} message;

typedef struct repl {
    const char *path;  /* of the control socket, for --attach; NULL: the server is our own */
    ls_server *server; /* our own, or NULL */
    intptr_t link;
    uint64_t session; /* the number in "hello" */
    char buffer[READ_BYTES];
    size_t from, to;             /* the received bytes in the buffer that were not consumed */
    int left_waiting;            /* a line was interrupted: its task may still wait */
    char *words;                 /* of the last completion */
    char input[INPUT_BYTES_MAX]; /* the lines of the text that is not complete yet */
    size_t input_bytes;
} repl;

/* ---- messages --------------------------------------------------------------------------------------------------- */

/* Ctrl-C: first for a line that computes, then for a line that waits. */
static void interrupt(repl *r)
{
    static const char waits[] = "interrupt 0\n";
    char text[64];
    intptr_t other;
    if (r->server != NULL) {
        ls_server_interrupt(r->server);
    } else if (ls_repl_connect(r->path, &other, text, sizeof text) == 0) {
        const int bytes = snprintf(text, sizeof text, "interrupt %" PRIu64 "\n", r->session);
        long got = ls_repl_write(other, text, (size_t)bytes);
        while (got != 0 && got != -1) got = ls_repl_read(other, text, sizeof text); /* the server closes it */
        ls_repl_disconnect(other);
    }
    (void)ls_repl_write(r->link, waits, sizeof waits - 1);
}

/* Receive more bytes. 0, or -1: the connection has ended. */
static int fill(repl *r)
{
    for (;;) {
        const long got = ls_repl_read(r->link, r->buffer + r->to, sizeof r->buffer - r->to);
        if (got == LS_REPL_INTERRUPTED) {
            interrupt(r);
            continue;
        }
        if (got <= 0) return -1;
        r->to += (size_t)got;
        return 0;
    }
}

/* Consume the line in front. NULL: the connection has ended. */
static char *take_line(repl *r)
{
    char *end;
    memmove(r->buffer, r->buffer + r->from, r->to - r->from);
    r->to -= r->from;
    r->from = 0;
    while ((end = memchr(r->buffer, '\n', r->to)) == NULL)
        if (r->to >= HEADER_BYTES_MAX || fill(r) < 0) return NULL;
    *end = '\0';
    r->from = (size_t)(end - r->buffer) + 1;
    return r->buffer;
}

/* Receive a message, whose text the caller frees. 0, or -1: the connection has ended, or memory is exhausted. */
static int receive(repl *r, message *m)
{
    const char *line = take_line(r);
    if (line == NULL || sscanf(line, "%15s %zu %" SCNu64, m->kind, &m->bytes, &m->number) != 3) return -1;
    m->text = malloc(m->bytes + 1);
    if (m->text == NULL) return -1;
    for (size_t done = 0; done < m->bytes;) {
        if (r->from == r->to) r->from = r->to = 0;
        if (r->to == 0 && fill(r) < 0) {
            free(m->text);
            return -1;
        }
        const size_t ready = r->to - r->from, wanted = m->bytes - done, n = ready < wanted ? ready : wanted;
        memcpy(m->text + done, r->buffer + r->from, n);
        r->from += n;
        done += n;
    }
    m->text[m->bytes] = '\0';
    return 0;
}

static int send_text(repl *r, const char *kind, const char *text, size_t bytes)
{
    char head[64];
    const int n = snprintf(head, sizeof head, "%s %zu\n", kind, bytes);
    if (ls_repl_write(r->link, head, (size_t)n) < 0) return -1;
    return ls_repl_write(r->link, text, bytes);
}

/* Send a text and receive the message that responds to it. 0, or -1: the connection has ended without one. */
static int exchange(repl *r, const char *kind, const char *text, size_t bytes, message *m)
{
    if (send_text(r, kind, text, bytes) < 0) return -1;
    while (receive(r, m) == 0) {
        if (strcmp(m->kind, "out") == 0) {
            fwrite(m->text, 1, m->bytes, stdout);
            fflush(stdout);
        } else if (strcmp(m->kind, "hello") == 0) {
            r->session = m->number;
        } else {
            return 0;
        }
        free(m->text);
    }
    return -1;
}

/* Begin a session. 0, or -1 with the reason in `why`. */
static int begin(repl *r, const char *path, char *why, size_t why_bytes)
{
    static const char first[] = "repl\n";
    message m;
    r->from = r->to = 0;
    if (ls_repl_connect(path, &r->link, why, why_bytes) < 0) return -1;
    if (ls_repl_write(r->link, first, sizeof first - 1) == 0 && receive(r, &m) == 0) {
        r->session = m.number;
        free(m.text);
        return 0;
    }
    ls_repl_disconnect(r->link);
    snprintf(why, why_bytes, "the server closed the connection; it accepts its own user and root");
    return -1;
}

/* ---- lines ------------------------------------------------------------------------------------------------------ */

static const char *complete(void *user, const char *text, size_t bytes)
{
    repl *r = user;
    message m;
    free(r->words);
    r->words = NULL;
    if (exchange(r, "words", text, bytes, &m) < 0) return NULL;
    r->words = m.text;
    return strcmp(m.kind, "words") == 0 ? r->words : NULL;
}

/* Run the input. A session ends when the site is reloaded; the text then runs in a new one. 0; -1: the server has
 * ended. */
static int run(repl *r, message *m)
{
    char why[256];
    if (exchange(r, "eval", r->input, r->input_bytes, m) == 0) return 0;
    ls_repl_disconnect(r->link);
    if (r->path == NULL || begin(r, r->path, why, sizeof why) < 0) {
        r->link = -1;
        fprintf(stderr, "luaserve repl: the server has ended\n");
        return -1;
    }
    fprintf(stderr, "(the site was reloaded: a new session)\n");
    return exchange(r, "eval", r->input, r->input_bytes, m);
}

static int is_blank(const char *text)
{
    return text[strspn(text, " \t\r")] == '\0';
}

/* Add a line to the input. 0, or -1: it is too long. */
static int add_line(repl *r, const char *line)
{
    const size_t bytes = strlen(line);
    if (r->input_bytes + bytes + 2 > sizeof r->input) return -1;
    if (r->input_bytes > 0) r->input[r->input_bytes++] = '\n';
    memcpy(r->input + r->input_bytes, line, bytes + 1);
    r->input_bytes += bytes;
    return 0;
}

/* Read and run lines until the end of the input. Returns the exit status. */
static int loop(repl *r, int terminal)
{
    const char *line;
    message m;
    for (;;) {
        const int got =
            terminal ? ls_repl_editor_line(r->input_bytes > 0 ? ">> " : "> ", &line) : ls_repl_plain_line("", &line);
        if (got == LS_REPL_INTERRUPTED) {
            r->input_bytes = 0;
            printf("\n");
            continue;
        }
        if (got == 0) break;
        if (r->input_bytes == 0 && is_blank(line)) continue;
        if (add_line(r, line) < 0) {
            fprintf(stderr, "luaserve repl: the text is longer than %d bytes\n", INPUT_BYTES_MAX);
            return LS_STATUS_FAILED;
        }
        if (run(r, &m) < 0) return LS_STATUS_FAILED;
        const int failed = strcmp(m.kind, "error") == 0, more = strcmp(m.kind, "more") == 0;
        if (failed && strcmp(m.text, "interrupted") == 0) r->left_waiting = 1;
        if (!more && m.bytes > 0) fprintf(failed ? stderr : stdout, "%s\n", m.text);
        fflush(stdout);
        free(m.text);
        if (!more) r->input_bytes = 0;
        if (failed && !terminal) return LS_STATUS_FAILED;
    }
    if (terminal) {
        printf("\n");
    } else if (r->input_bytes > 0) {
        fprintf(stderr, "luaserve repl: the last statement is incomplete\n");
        return LS_STATUS_FAILED;
    }
    return LS_STATUS_OK;
}

static int prompt(repl *r)
{
    char history[1024] = "";
    const int terminal = ls_repl_is_terminal();
    if (terminal) {
        ls_repl_history_path(history, sizeof history);
        ls_repl_catch_interrupts();
        printf("luaserve %s, Lua 5.4. Ctrl-C ends a line, Ctrl-D leaves.\n", ls_server_version());
    }
    if (terminal && ls_repl_editor_open(history, complete, r) < 0) {
        fprintf(stderr, "luaserve repl: cannot read lines from this terminal\n");
        return LS_STATUS_FAILED;
    }
    const int status = loop(r, terminal);
    if (terminal) ls_repl_editor_close();
    if (r->link != -1) ls_repl_disconnect(r->link);
    free(r->words);
    return status;
}

/* ---- the server ------------------------------------------------------------------------------------------------- */

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "luaserve repl: %s%s%s\n", what, why[0] != '\0' ? ": " : "", why);
    return LS_STATUS_FAILED;
}

static int attach(repl *r, const char *path)
{
    char why[256];
    r->path = path;
    if (begin(r, path, why, sizeof why) < 0) {
        fprintf(stderr, "luaserve repl: cannot attach to %s: %s\n", path, why);
        return LS_STATUS_FAILED;
    }
    return prompt(r);
}

/* The end of our own server. A line that still waits does not delay it. */
static int end(repl *r, int status)
{
    ls_server_stop(r->server);
    if (r->left_waiting) ls_server_stop(r->server);
    if (ls_repl_join() < 0) {
        fflush(NULL);
        _Exit(status); /* handlers may still run in their Lua states, so nothing is freed */
    }
    ls_command_end_within(CLOSE_SECONDS_MAX, status);
    ls_server_close(r->server);
    return status;
}

/* Open a server of our own, with a control socket that exists until we are connected. */
static int serve(repl *r, ls_server_options *options)
{
    char path[128], text[2048];
    if (ls_repl_private_path(path, sizeof path, text, sizeof text) < 0) return fail("cannot make a folder", text);
    options->control = path;
    if (ls_server_open(options, &r->server, text, sizeof text) < 0) {
        ls_repl_private_remove(path);
        fprintf(stderr, "luaserve: %s\n", text);
        return LS_STATUS_FAILED;
    }
    if (ls_repl_serve(r->server) < 0) {
        ls_repl_private_remove(path);
        ls_server_close(r->server);
        return fail("cannot start a thread", "");
    }
    const int begun = begin(r, path, text, sizeof text);
    ls_repl_private_remove(path);
    if (begun < 0) return end(r, fail("cannot reach the own server", text));
    return end(r, prompt(r));
}

int ls_command_repl(int argc, char **argv)
{
    static repl r; /* large */
    ls_arguments args = {0};
    if (ls_line_read(argc, argv, LS_LINE_REPL, &args) < 0) return ls_command_explain("repl", argc, argv);
    if (args.attach != NULL) return attach(&r, args.attach);
    if (args.log_level == NULL) (void)ls_server_log_level("warn");
    args.server.idle = !args.listen || args.server.site == NULL;
    if (args.server.site == NULL) args.server.site = "(no site)", args.server.source = "";
    return serve(&r, &args.server);
}
