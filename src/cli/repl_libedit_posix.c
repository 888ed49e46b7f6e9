/* repl_libedit_posix.c - the editor of the prompt over libedit: history and completion. The library is loaded here,
 * not linked: a server would load it and three others for nothing. Without it the terminal edits the lines. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "cli/repl.h"

enum { HISTORY_LINES_MAX = 1000 };

#define LIBEDIT(X)  \
    X(el_end)       \
    X(el_gets)      \
    X(el_init)      \
    X(el_insertstr) \
    X(el_line)      \
    X(el_reset)     \
    X(el_set)       \
    X(el_source)    \
    X(el_wset)      \
    X(history)      \
    X(history_end)  \
    X(history_init)
#define FIELD(name) __typeof__(name) *name;
static struct {
    LIBEDIT(FIELD)
} libedit;

static struct {
    EditLine *el;
    History *history;
    const char *path; /* of the history; "": none */
    const char *prompt;
    ls_repl_complete_fn *complete;
    void *user;
    int interrupted;
} editor;

const char ls_repl_editor[] = "libedit";

static char *prompt_of(EditLine *el)
{
    return (char *)(uintptr_t)editor.prompt; /* libedit does not change it */
}

/* Read a character in the encoding of the terminal: 1; 0: the end; -1: Ctrl-C or an error. */
static int read_character(EditLine *el, wchar_t *out)
{
    mbstate_t state = {0};
    char byte;
    for (;;) {
        if (ls_repl_wait_input() == LS_REPL_INTERRUPTED) {
            editor.interrupted = 1;
            return -1;
        }
        const ssize_t got = read(STDIN_FILENO, &byte, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return (int)got;
        const size_t used = mbrtowc(out, &byte, 1, &state);
        if (used == (size_t)-1) { /* not of this encoding: a byte of its own */
            *out = (wchar_t)(unsigned char)byte;
            return 1;
        }
        if (used != (size_t)-2) return 1;
    }
}

/* The length of the common beginning of all candidates. */
static size_t common_bytes(const char *list)
{
    size_t common = strcspn(list, "\n");
    for (const char *one = list; *one != '\0';) {
        size_t n = 0;
        while (n < common && one[n] == list[n]) n++;
        common = n;
        one += strcspn(one, "\n");
        if (*one == '\n') one++;
    }
    return common;
}

static void print_candidates(const char *list)
{
    printf("\n");
    for (const char *one = list; *one != '\0';) {
        const int bytes = (int)strcspn(one, "\n");
        printf("%.*s%s", bytes, one, one[bytes] == '\0' ? "\n" : "  ");
        one += bytes + (one[bytes] == '\n');
    }
    fflush(stdout);
}

/* Tab: complete the word before the cursor, or indent. */
static unsigned char on_tab(EditLine *el, int key)
{
    const LineInfo *line = libedit.el_line(el);
    const size_t bytes = (size_t)(line->cursor - line->buffer);
    const char *text = editor.complete(editor.user, line->buffer, bytes);
    const char *list = text != NULL ? strchr(text, '\n') : NULL; /* after the word */
    const size_t word_bytes = list != NULL ? (size_t)(list - text) : 0;
    if (list == NULL || *++list == '\0') {
        if (strspn(line->buffer, " ") < bytes) return CC_ERROR;
        return libedit.el_insertstr(el, "  ") < 0 ? CC_ERROR : CC_REFRESH;
    }
    const size_t common = common_bytes(list);
    if (common > word_bytes) {
        char *more = strndup(list + word_bytes, common - word_bytes);
        const int failed = more == NULL || libedit.el_insertstr(el, more) < 0;
        free(more);
        return failed ? CC_ERROR : CC_REFRESH;
    }
    if (strchr(list, '\n') == NULL) return CC_NORM; /* it is complete */
    print_candidates(list);
    return CC_REDISPLAY;
}

static int load(void) /* 0, or -1 */
{
#define NAME(name) #name,
    static const char *const names[] = {LIBEDIT(NAME)};
    void *const library = dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL);
    void **to = (void **)&libedit;
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        if (library == NULL || (*to++ = dlsym(library, names[n])) == NULL) return -1;
    return 0;
}

int ls_repl_editor_open(const char *history_path, ls_repl_complete_fn *complete, void *user)
{
    HistEvent event;
    if (load() < 0) return 0;
    (void)setlocale(LC_CTYPE, "");
    editor.path = history_path;
    editor.complete = complete;
    editor.user = user;
    editor.history = libedit.history_init();
    editor.el = libedit.el_init("luaserve", stdin, stdout, stderr);
    if (editor.history == NULL || editor.el == NULL) return -1;
    (void)libedit.history(editor.history, &event, H_SETSIZE, HISTORY_LINES_MAX);
    (void)libedit.history(editor.history, &event, H_SETUNIQUE, 1);
    if (history_path[0] != '\0') (void)libedit.history(editor.history, &event, H_LOAD, history_path); /* none yet */
    (void)libedit.el_set(editor.el, EL_PROMPT, prompt_of);
    (void)libedit.el_set(editor.el, EL_EDITOR, "emacs");
    (void)libedit.el_set(editor.el, EL_HIST, libedit.history, editor.history);
    (void)libedit.el_set(editor.el, EL_GETCFN, read_character);
    /* el_set would copy the texts and never free the copies. */
    (void)libedit.el_wset(editor.el, EL_ADDFN, L"luaserve-complete", L"Complete a name", on_tab);
    (void)libedit.el_set(editor.el, EL_BIND, "^I", "luaserve-complete", NULL);
    (void)libedit.el_set(editor.el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    (void)libedit.el_source(editor.el, NULL); /* ~/.editrc */
    return 0;
}

int ls_repl_editor_line(const char *prompt, const char **line)
{
    static char *copy;
    HistEvent event;
    int count = 0;
    if (editor.el == NULL) return ls_repl_plain_line(prompt, line);
    editor.prompt = prompt;
    editor.interrupted = 0;
    const char *got = libedit.el_gets(editor.el, &count);
    if (editor.interrupted) {
        libedit.el_reset(editor.el);
        return LS_REPL_INTERRUPTED;
    }
    if (got == NULL || count <= 0) return 0;
    if (strspn(got, " \t\n") < strlen(got)) (void)libedit.history(editor.history, &event, H_ENTER, got);
    free(copy);
    if ((copy = strdup(got)) == NULL) return 0;
    copy[strcspn(copy, "\n")] = '\0';
    *line = copy;
    return 1;
}

/* Write the history. Only the user may read it, also when the file was there before. */
static void save_history(void)
{
    HistEvent event;
    const int fd = open(editor.path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FILE *to = fd >= 0 && fchmod(fd, 0600) == 0 ? fdopen(fd, "w") : NULL;
    if (to == NULL) {
        fprintf(stderr, "luaserve repl: cannot write the history %s: %s\n", editor.path, strerror(errno));
        if (fd >= 0) close(fd);
        return;
    }
    (void)libedit.history(editor.history, &event, H_SAVE_FP, to);
    (void)fclose(to);
}

void ls_repl_editor_close(void)
{
    if (editor.el == NULL) return;
    if (editor.path[0] != '\0') save_history();
    libedit.el_end(editor.el);
    libedit.history_end(editor.history);
}
