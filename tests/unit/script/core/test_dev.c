/* test_dev.c - what dev mode shares: files, versions, failures, warnings, waiters. */
#include "script/core/dev.h"

#include <stdio.h>

#include "base/err.h"
#include "base/fopen.h"
#include "support.h"

static const char path_a[] = "luaserve-test-dev-a.lua",
                  path_b[] = "luaserve-test-dev-b.lua"; /* in the working directory */

static void write_file(const char *path, const char *text)
{
    FILE *file = ls_fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int setup(void **state)
{
    ls_dev *dev;
    write_file(path_a, "return 1");
    assert_int_equal(ls_dev_open(NULL, &dev), LS_OK);
    ls_dev_load_begin(dev);
    *state = dev;
    return 0;
}

static int teardown(void **state)
{
    ls_dev_close(*state);
    (void)ls_remove(path_a);
    (void)ls_remove(path_b);
    return 0;
}

static unsigned count_changes(ls_dev *dev, bool *vanished)
{
    char name[64];
    return ls_dev_changed(dev, vanished, name, sizeof name);
}

static void count_one(void *user, const char *path, bool exists)
{
    unsigned *count = user;
    (void)path;
    *count += exists;
}

static void a_change_is_seen_once(void **state)
{
    ls_dev *dev = *state;
    bool vanished;
    char name[64] = "";
    assert_int_equal(ls_dev_file(dev, path_a), LS_OK);
    assert_int_equal(count_changes(dev, &vanished), 0);
    write_file(path_a, "return 22");
    assert_int_equal(ls_dev_changed(dev, &vanished, name, sizeof name), 1);
    assert_string_equal(name, path_a);
    assert_false(vanished);
    assert_int_equal(count_changes(dev, &vanished), 0);
}

static void a_file_that_vanishes_and_one_that_appears(void **state)
{
    ls_dev *dev = *state;
    bool vanished;
    assert_int_equal(ls_dev_file(dev, path_a), LS_OK);
    assert_int_equal(ls_dev_file(dev, path_b), LS_OK); /* looked for */
    assert_true(ls_dev_has_file(dev, path_a));
    assert_false(ls_dev_has_file(dev, path_b));
    assert_false(ls_dev_has_file(dev, "/etc/passwd"));
    write_file(path_b, "return 1");
    assert_int_equal(count_changes(dev, &vanished), 1);
    assert_false(vanished);
    assert_true(ls_dev_has_file(dev, path_b));
    assert_int_equal(ls_remove(path_a), 0);
    assert_int_equal(count_changes(dev, &vanished), 1);
    assert_true(vanished);
}

/* Another state loads the site later than the first: a change in between is still seen. */
static void the_first_stamp_of_a_load_counts(void **state)
{
    ls_dev *dev = *state;
    bool vanished;
    assert_int_equal(ls_dev_file(dev, path_a), LS_OK);
    write_file(path_a, "return 22");
    assert_int_equal(ls_dev_file(dev, path_a), LS_OK);
    assert_int_equal(count_changes(dev, &vanished), 1);
    write_file(path_a, "return 333");
    ls_dev_load_begin(dev);
    assert_int_equal(ls_dev_file(dev, path_a), LS_OK);
    assert_int_equal(count_changes(dev, &vanished), 0);
}

static void a_load_forgets_the_files_of_the_one_before(void **state)
{
    ls_dev *dev = *state;
    unsigned count = 0;
    write_file(path_b, "return 1");
    assert_int_equal(ls_dev_file(dev, path_a), LS_OK);
    assert_int_equal(ls_dev_file(dev, path_b), LS_OK);
    ls_dev_load_end(dev, NULL);
    ls_dev_load_begin(dev);
    assert_int_equal(ls_dev_file(dev, path_a), LS_OK);
    ls_dev_load_end(dev, "site.lua:1: broken"); /* a load that fails may not have reached all */
    ls_dev_files(dev, count_one, &count);
    assert_int_equal(count, 2);
    ls_dev_load_begin(dev);
    assert_int_equal(ls_dev_file(dev, path_a), LS_OK);
    ls_dev_load_end(dev, NULL);
    count = 0;
    ls_dev_files(dev, count_one, &count);
    assert_int_equal(count, 1);
}

static void limits(void **state)
{
    ls_dev *dev = *state;
    char *name = malloc(LS_DEV_PATH_BYTES_MAX + 2);
    memset(name, 'a', LS_DEV_PATH_BYTES_MAX + 1);
    name[LS_DEV_PATH_BYTES_MAX + 1] = '\0';
    assert_int_equal(ls_dev_file(dev, name), LS_ELIMIT);
    name[LS_DEV_PATH_BYTES_MAX] = '\0';
    assert_int_equal(ls_dev_file(dev, name), LS_OK);
    free(name);
    for (unsigned n = 1; n < LS_DEV_FILES_MAX; n++) {
        char path[32];
        (void)snprintf(path, sizeof path, "%u.lua", n);
        assert_int_equal(ls_dev_file(dev, path), LS_OK);
    }
    assert_int_equal(ls_dev_file(dev, "one more.lua"), LS_ELIMIT);
    assert_int_equal(ls_dev_file(dev, "1.lua"), LS_OK); /* known */
    for (unsigned n = 0; n < LS_DEV_WARNINGS_MAX; n++) {
        char text[32];
        (void)snprintf(text, sizeof text, "warning %u", n);
        assert_true(ls_dev_once(dev, text));
        assert_false(ls_dev_once(dev, text));
    }
    assert_false(ls_dev_once(dev, "one more"));
    ls_dev_load_begin(dev);
    assert_true(ls_dev_once(dev, "one more"));
}

static void keep_failure(void *user, const char *message, const char *traceback)
{
    (void)snprintf(user, 64, "%s|%s", message, traceback);
}

static void failures(void **state)
{
    ls_dev *dev = *state;
    char text[64] = "";
    const uint64_t version = ls_dev_version(dev);
    assert_false(ls_dev_failure(dev, keep_failure, text));
    ls_dev_traceback(dev, "stack");
    ls_dev_load_end(dev, "broken");
    assert_true(ls_dev_failure(dev, keep_failure, text));
    assert_string_equal(text, "broken|stack");
    assert_true(ls_dev_version(dev) == version + 1);
    ls_dev_load_begin(dev);
    assert_true(ls_dev_failure(dev, keep_failure, text)); /* until the load has ended */
    assert_string_equal(text, "broken|");
    ls_dev_load_end(dev, NULL);
    assert_false(ls_dev_failure(dev, keep_failure, text));
    assert_true(ls_dev_version(dev) == version + 2);
}

static unsigned woken;

static void count_wake(ls_dev_waiter *waiter)
{
    assert_true(ls_list_empty(&waiter->node));
    woken++;
}

static void waiters(void **state)
{
    ls_dev *dev = *state;
    int owners[2];
    ls_dev_waiter one = {.owner = &owners[0], .wake = count_wake}, two = {.owner = &owners[1], .wake = count_wake};
    ls_node_init(&one.node);
    ls_node_init(&two.node);
    woken = 0;
    assert_false(ls_dev_wait(dev, &one, ls_dev_version(dev) - 1)); /* has changed already */
    assert_true(ls_dev_wait(dev, &one, ls_dev_version(dev)));
    assert_true(ls_dev_wait(dev, &two, ls_dev_version(dev)));
    ls_dev_wake(dev, &owners[1]);
    assert_int_equal(woken, 1);
    assert_false(ls_dev_wait_end(dev, &two));
    assert_true(ls_dev_wait(dev, &two, ls_dev_version(dev)));
    assert_true(ls_dev_wait_end(dev, &two));
    ls_dev_load_end(dev, NULL);
    assert_int_equal(woken, 2);
    assert_false(ls_dev_wait_end(dev, &one));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_change_is_seen_once),
        TEST(a_file_that_vanishes_and_one_that_appears),
        TEST(the_first_stamp_of_a_load_counts),
        TEST(a_load_forgets_the_files_of_the_one_before),
        TEST(limits),
        TEST(failures),
        TEST(waiters),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
