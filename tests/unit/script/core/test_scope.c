/* test_scope.c - the table of scope.c, each cell of it; scopes of what work begins, and their names. The table of
 * deploying.md is made of it. */
/* sanitizers: asan; no thread starts */
#include "script/core/scope.h"

#include "support.h"

/* The words of the page. */
static const char *const scopes[LS_SCOPES] = {
    [LS_SCOPE_REQUEST] = "the handler of a request",
    [LS_SCOPE_CONNECTION] = "the handler of a connection of `ls.tcp`",
    [LS_SCOPE_WEBSOCKET] = "functions of a WebSocket, and what they have begun",
    [LS_SCOPE_SITE] = "`ls.init`, `\"start\"`, and their jobs",
    [LS_SCOPE_BATCH] = "the same, after a value of a channel",
    [LS_SCOPE_TIMER] = "timers of the file and of `ls.init`, and what they begin",
    [LS_SCOPE_JOB] = "jobs and timers of requests and connections, other functions",
};
static const char *const waits[LS_WAITS] = {
    /* clang-format off */
    "runs", "`ls.sleep`, `job:wait`", "the next value of a channel", "the same of Redis", "a permit of Redis",
    "the same of a channel with a limit, of Redis for a request", "other waits", "work on a thread", "`ls.after`", "`ls.every`",
    "`ls.subscribe`",
    /* clang-format on */
};

/* Each cell a second time, in the words of the rule: a change of the table is a change of this function. */
static enum ls_scope_end expected(enum ls_end_why why, enum ls_scope scope, enum ls_wait_for wait)
{
    const bool task = wait < LS_WAIT_ONCE, message = wait == LS_WAIT_MESSAGE || wait == LS_WAIT_REMOTE,
               of_file = scope == LS_SCOPE_SITE || scope == LS_SCOPE_TIMER;
    switch (why) {
    case LS_END_CLIENT_LEFT: /* a request, where it waits for what would be lost */
        return scope == LS_SCOPE_REQUEST && (message || wait == LS_WAIT_RESULT) ? LS_ENDS_NOW : LS_ENDS_NEVER;
    case LS_END_TIMEOUT: /* each task that waits, but not in an operation */
        return scope != LS_SCOPE_NONE && wait >= LS_WAIT_IDLE && wait <= LS_WAIT_WRITE ? LS_ENDS_NOW : LS_ENDS_NEVER;
    case LS_END_REPLACED: /* what the next site begins again, and what repeats; not that of connections that stay
                           * open */
        if (scope == LS_SCOPE_NONE || scope == LS_SCOPE_WEBSOCKET) return LS_ENDS_NEVER;
        if (wait == LS_WAIT_PUBLISH) return scope != LS_SCOPE_CONNECTION ? LS_ENDS_NOW : LS_ENDS_NEVER;
        if (wait == LS_WAIT_REPEAT || (wait == LS_WAIT_ONCE && of_file)) return LS_ENDS_NOW;
        if (scope == LS_SCOPE_SITE && (wait == LS_WAIT_IDLE || wait == LS_WAIT_LEASE || message)) return LS_ENDS_NOW;
        return scope == LS_SCOPE_BATCH && message ? LS_ENDS_NOW : LS_ENDS_NEVER;
    case LS_END_STOP: /* what repeats; tasks are completed, and receive what others send until then */
        if (scope == LS_SCOPE_NONE) return LS_ENDS_NEVER;
        if (task && scope == LS_SCOPE_SITE)
            return wait == LS_WAIT_REMOTE || wait == LS_WAIT_LEASE ? LS_ENDS_NOW : LS_ENDS_NEVER;
        if (task) return wait == LS_WAIT_REMOTE && scope == LS_SCOPE_BATCH ? LS_ENDS_NOW : LS_ENDS_NEVER;
        return wait != LS_WAIT_ONCE || of_file ? LS_ENDS_NOW : LS_ENDS_NEVER;
    case LS_END_SPARE: /* what waits for a value of a channel */
        return (scope == LS_SCOPE_SITE || scope == LS_SCOPE_BATCH) && wait == LS_WAIT_MESSAGE ? LS_ENDS_NOW
                                                                                              : LS_ENDS_NEVER;
    case LS_END_REQUESTS:
        if (scope != LS_SCOPE_REQUEST) return LS_ENDS_NEVER;
        break;
    case LS_END_UNUSED:
    case LS_END_TIME:
        if (scope == LS_SCOPE_NONE || scope == LS_SCOPE_WEBSOCKET) return LS_ENDS_NEVER;
        break;
    case LS_END_CLOSED: break;
    default: return LS_ENDS_NEVER; /* OUTDATED closes connections only */
    }
    return wait == LS_WAIT_NONE || wait == LS_WAIT_HELD ? LS_ENDS_LATER : LS_ENDS_NOW;
}

TEST(each_cell_is_as_the_rule_says)
{
    for (enum ls_end_why why = LS_END_NONE; why < LS_ENDS; why++)
        for (enum ls_scope scope = LS_SCOPE_NONE; scope < LS_SCOPES; scope++)
            for (enum ls_wait_for wait = LS_WAIT_NONE; wait < LS_WAITS; wait++)
                if (ls_scope_ends(why, scope, wait) != expected(why, scope, wait))
                    fail_msg("reason %d, scope %d, wait %d", (int)why, (int)scope, (int)wait);
}

TEST(the_first_of_several_reasons_ends_work)
{
    const unsigned both = 1u << LS_END_TIME | 1u << LS_END_REPLACED;
    assert_int_equal(ls_scope_end_of(0, LS_SCOPE_SITE, LS_WAIT_IDLE), LS_END_NONE);
    assert_int_equal(ls_scope_end_of(both, LS_SCOPE_SITE, LS_WAIT_IDLE), LS_END_REPLACED);
    assert_int_equal(ls_scope_end_of(both, LS_SCOPE_SITE, LS_WAIT_RESULT), LS_END_TIME);
    assert_int_equal(ls_scope_end_of(both, LS_SCOPE_SITE, LS_WAIT_HELD), LS_END_NONE); /* later */
}

TEST(what_work_begins_has_its_scope)
{
    static const enum ls_scope of[LS_SCOPES][3] = {
        /* a job of it, a timer that it sets, itself with a value of a channel */
        [LS_SCOPE_REQUEST] = {LS_SCOPE_JOB, LS_SCOPE_JOB, LS_SCOPE_REQUEST},
        [LS_SCOPE_CONNECTION] = {LS_SCOPE_JOB, LS_SCOPE_JOB, LS_SCOPE_CONNECTION},
        [LS_SCOPE_WEBSOCKET] = {LS_SCOPE_WEBSOCKET, LS_SCOPE_WEBSOCKET, LS_SCOPE_WEBSOCKET},
        [LS_SCOPE_SITE] = {LS_SCOPE_SITE, LS_SCOPE_TIMER, LS_SCOPE_BATCH},
        [LS_SCOPE_BATCH] = {LS_SCOPE_BATCH, LS_SCOPE_JOB, LS_SCOPE_BATCH},
        [LS_SCOPE_TIMER] = {LS_SCOPE_TIMER, LS_SCOPE_TIMER, LS_SCOPE_JOB},
        [LS_SCOPE_JOB] = {LS_SCOPE_JOB, LS_SCOPE_JOB, LS_SCOPE_JOB}};
    for (enum ls_scope scope = LS_SCOPE_REQUEST; scope < LS_SCOPES; scope++) {
        assert_int_equal(ls_scope_of_job(scope), of[scope][0]);
        assert_int_equal(ls_scope_of_timer(scope), of[scope][1]);
        assert_int_equal(ls_scope_with_value(scope), of[scope][2]);
    }
}

static void add(void *to, const char *name, double value)
{
    char *text = to;
    (void)snprintf(text + strlen(text), 400 - strlen(text), "%s=%g ", name, value);
}

TEST(counts_are_named)
{
    unsigned counts[LS_SCOPES] = {0};
    char text[LS_SCOPE_TEXT_BYTES], stats[400] = "";
    ls_scope_describe(counts, text, sizeof text);
    assert_string_equal(text, "nothing");
    counts[LS_SCOPE_REQUEST] = 1;
    counts[LS_SCOPE_SITE] = 2;
    counts[LS_SCOPE_BATCH] = 1;
    counts[LS_SCOPE_JOB] = 12;
    ls_scope_describe(counts, text, sizeof text);
    assert_string_equal(text, "a request, 3 tasks of ls.init or \"start\", 12 jobs");
    ls_scope_describe(counts, text, 20); /* truncated */
    assert_string_equal(text, "a request, 3 tasks ");
    ls_scope_each(counts, add, stats);
    assert_string_equal(stats, "running.requests=1 running.connections=0 running.websockets=0 running.site=3 "
                               "running.timers=0 running.jobs=12 ");
    for (unsigned n = 0; n < LS_SCOPES; n++) counts[n] = 4294967295u;
    ls_scope_describe(counts, text, sizeof text);
    assert_true(strlen(text) + 1 < sizeof text);
    assert_string_equal(ls_scope_name(LS_SCOPE_BATCH), ls_scope_name(LS_SCOPE_SITE));
}

/* ---- the page ------------------------------------------------------------------------------------------------ */

#define PAGE TEST_TREE "/lua/docs/deploying.md"
enum { PAGE_BYTES_MAX = 1 << 17, TABLE_BYTES_MAX = 4096 };
static const char first_words[] = "| work of the previous site |";

/* A row for each scope, a column for each wait: what a reload ends at once, and after drain_timeout. */
static void write_table(char *out)
{
    static const enum ls_wait_for shown[] = {LS_WAIT_IDLE,  LS_WAIT_MESSAGE, LS_WAIT_REMOTE, LS_WAIT_LEASE,
                                             LS_WAIT_WRITE, LS_WAIT_ONCE,    LS_WAIT_REPEAT, LS_WAIT_PUBLISH};
    enum { SHOWN = sizeof shown / sizeof shown[0] };
    out += sprintf(out, "%s", first_words);
    for (int n = 0; n < SHOWN; n++) out += sprintf(out, " %s |", waits[shown[n]]);
    out += sprintf(out, " after `drain_timeout` |\n|---|");
    for (int n = 0; n < SHOWN; n++) out += sprintf(out, "---|");
    out += sprintf(out, "---|\n");
    for (enum ls_scope scope = LS_SCOPE_REQUEST; scope < LS_SCOPES; scope++) {
        out += sprintf(out, "| %s |", scopes[scope]);
        for (int n = 0; n < SHOWN; n++)
            out += sprintf(out, "%s |", ls_scope_ends(LS_END_REPLACED, scope, shown[n]) == LS_ENDS_NOW ? " ends" : "");
        out += sprintf(out, "%s |\n", ls_scope_ends(LS_END_TIME, scope, LS_WAIT_IDLE) == LS_ENDS_NOW ? " ends" : "");
    }
}

static char page[PAGE_BYTES_MAX], table[TABLE_BYTES_MAX];

static void read_page(void)
{
    FILE *file = fopen(PAGE, "rb");
    assert_non_null(file);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    (void)fclose(file);
    write_table(table);
}

/* `test_script_core_scope --write` puts the table into the page. */
static void write_page(void)
{
    read_page();
    char *from = strstr(page, first_words), *to = strstr(from, "\n\n") + 1;
    FILE *file = fopen(PAGE, "wb");
    (void)fprintf(file, "%.*s%s%s", (int)(from - page), page, table, to);
    (void)fclose(file);
}

TEST(the_page_has_the_table)
{
    read_page();
    if (strstr(page, table) == NULL) fail_msg("deploying.md: another table; run this program with --write");
}

int main(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--write") != 0) return test_run(NULL, NULL);
    write_page();
    return 0;
}
