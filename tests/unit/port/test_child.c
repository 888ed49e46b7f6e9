/* test_child.c - processes that the server starts: their streams, ends, groups, and what they inherit. */
/* sanitizers: asan; no thread starts */
#include "port/child.h"

#include <unistd.h>

#include "base/clock.h"
#include "support.h"

enum { ROOM = 65536 };

static int start(ls_child *child, const char *script, bool input)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    const ls_child_options options = {.argv = argv, .cwd = "/", .input_len = input};
    return ls_child_start(&options, child);
}

/* Read the stream to its end. */
static const char *text_of(const ls_child *child, int stream)
{
    static char text[ROOM];
    size_t len = 0;
    for (;;) {
        const long count = ls_child_read(child, stream, text + len, sizeof text - 1 - len);
        if (count == 0) break;
        if (count == LS_EAGAIN) {
            ls_clock_sleep_ms(1);
            continue;
        }
        assert_true(count > 0);
        len += (size_t)count;
    }
    text[len] = '\0';
    return text;
}

static void end(ls_child *child)
{
    while (!ls_child_reap(child, 1000)) continue;
    for (int n = 0; n < LS_CHILD_FDS; n++) ls_child_close(child, n);
    assert_true(ls_child_reap(child, 0)); /* again: nothing to do */
}

TEST(output_and_status)
{
    ls_child child;
    assert_int_equal(start(&child, "echo out; echo err >&2; exit 7", false), LS_OK);
    assert_true(child.fds[LS_CHILD_IN] == LS_FD_NONE);
    assert_string_equal(text_of(&child, LS_CHILD_OUT), "out\n");
    assert_string_equal(text_of(&child, LS_CHILD_ERR), "err\n");
    end(&child);
    assert_int_equal(child.code, 7);
    assert_int_equal(child.signal, 0);
}

TEST(input_is_written_until_the_child_leaves)
{
    static char bytes[ROOM * 4];
    ls_child child;
    long count = 0;
    assert_int_equal(start(&child, "cat", true), LS_OK);
    assert_int_equal(ls_child_write(&child, "text", 4), 4);
    ls_child_close(&child, LS_CHILD_IN);
    assert_string_equal(text_of(&child, LS_CHILD_OUT), "text");
    end(&child);
    assert_int_equal(child.code, 0);

    assert_int_equal(start(&child, "exec true", true), LS_OK);
    while ((count = ls_child_write(&child, bytes, sizeof bytes)) != LS_EPIPE) {
        assert_true(count >= 0 || count == LS_EAGAIN);
        ls_clock_sleep_ms(1);
    }
    end(&child);
}

TEST(the_input_stays_open_until_it_is_closed)
{
    const char *const argv[] = {"sh", "-c", "echo begun; cat; echo ended >&2", NULL};
    const ls_child_options options = {.argv = argv, .cwd = "/", .feed = true, .shares_err = true};
    const int err = dup(STDERR_FILENO);
    int ends[2];
    ls_child child;
    char text[8];
    assert_int_equal(pipe(ends), 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    assert_int_equal(ls_child_start(&options, &child), LS_OK);
    assert_true(dup2(err, STDERR_FILENO) >= 0);
    (void)close(ends[1]);
    (void)close(err);
    assert_true(child.fds[LS_CHILD_ERR] == LS_FD_NONE);
    while (ls_child_read(&child, LS_CHILD_OUT, text, sizeof text) != 6) ls_child_wait(&child, 1000);
    ls_child_wait(&child, 1);
    assert_false(ls_child_reap(&child, 0));
    ls_child_close(&child, LS_CHILD_IN);
    assert_int_equal(read(ends[0], text, sizeof text), 6); /* "ended\n" */
    end(&child);
    assert_int_equal(child.code, 0);
    (void)close(ends[0]);
}

TEST(a_signal_reaches_the_group)
{
    ls_child child;
    assert_int_equal(start(&child, "sleep 600 & echo; wait", false), LS_OK);
    char byte;
    while (ls_child_read(&child, LS_CHILD_OUT, &byte, 1) != 1) ls_clock_sleep_ms(1);
    assert_false(ls_child_reap(&child, 0));
    ls_child_end(&child, false);
    assert_string_equal(text_of(&child, LS_CHILD_OUT), ""); /* sleep had it open, too */
    end(&child);
    assert_int_equal(child.signal, 15);
    assert_int_equal(child.code, 143);

    assert_int_equal(start(&child, "trap '' TERM; echo; while :; do sleep 600; done", false), LS_OK);
    while (ls_child_read(&child, LS_CHILD_OUT, &byte, 1) != 1) ls_clock_sleep_ms(1);
    ls_child_end(&child, false);
    assert_false(ls_child_reap(&child, 0));
    ls_child_end(&child, true);
    end(&child);
    assert_int_equal(child.signal, 9);
}

TEST(the_rest_of_the_group_ends_with_the_leader)
{
    ls_child child;
    assert_int_equal(start(&child, "sleep 600 & exit 0", false), LS_OK);
    while (!ls_child_reap(&child, 1000)) continue;
    assert_string_equal(text_of(&child, LS_CHILD_OUT), "");
    end(&child);
    assert_int_equal(child.code, 0);
}

TEST(what_cannot_be_started)
{
    const char *const argv[] = {"/no/such/program", NULL};
    ls_child_options options = {.argv = argv, .cwd = "/"};
    ls_child child = {.pid = -5};
    const int before = dup(0);
    (void)close(before);
    assert_int_equal(ls_child_start(&options, &child), LS_ENOENT);
    options.cwd = "/no/such/folder";
    assert_int_equal(ls_child_start(&options, &child), LS_ENOENT);
    options.argv = (const char *const[]){"/", NULL};
    options.cwd = "/";
    assert_int_equal(ls_child_start(&options, &child), LS_EACCES);
    assert_int_equal(child.pid, -5);
    const int after = dup(0);
    (void)close(after);
    assert_int_equal(after, before); /* nothing was left open */
}

TEST(nothing_is_inherited)
{
    const char *const argv[] = {"sh", "-c", "echo $A$B; test -e /proc/self/fd/9 && echo leaked", NULL};
    const char *const env[] = {"A=1", NULL};
    const ls_child_options options = {.argv = argv, .env = env, .cwd = "/"};
    ls_child child;
    assert_int_equal(dup2(0, 9), 9); /* without FD_CLOEXEC */
    assert_int_equal(ls_child_start(&options, &child), LS_OK);
    assert_string_equal(text_of(&child, LS_CHILD_OUT), "1\n");
    end(&child);
    (void)close(9);
}
