/* test_dev_mode.c - dev mode of a server: files, versions, failures, warnings, and the thread that reloads the
 * site. */
#include "script/bind/dev_mode.h"

#include "base/io/fopen.h"
#include "base/os/thread.h"
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

typedef ls_dev site;

static site *site_open(void)
{
    ls_dev *dev;
    char message[200];
    write_file(path_a, "return 1");
    assert_int_equal(ls_dev_open(NULL, &dev, message, sizeof message), LS_OK);
    ls_dev_load_begin(dev);
    return dev;
}

static void site_close(site *dev)
{
    ls_dev_close(dev);
    (void)remove(path_a);
    (void)remove(path_b);
}

static unsigned what_changed(ls_dev *dev, bool *vanished)
{
    char name[64];
    return ls_dev_changed(dev, vanished, name, sizeof name);
}

static bool has_source(ls_dev *dev, const char *name)
{
    char path[LS_DEV_PATH_BYTES_MAX + 1];
    return ls_dev_find(dev, name, path);
}

TEST_WITH(site, dev, a_change_is_seen_once, site_open())
{
    bool vanished;
    char name[64] = "";
    assert_int_equal(ls_dev_file(dev, path_a, LS_DEV_SOURCE), LS_OK);
    assert_int_equal(what_changed(dev, &vanished), 0);
    write_file(path_a, "return 22");
    assert_int_equal(ls_dev_changed(dev, &vanished, name, sizeof name), LS_DEV_CHANGED_SITE);
    assert_string_equal(name, path_a);
    assert_false(vanished);
    assert_int_equal(what_changed(dev, &vanished), 0);
}

TEST_WITH(site, dev, a_file_that_vanishes_and_one_that_appears, site_open())
{
    bool vanished;
    assert_int_equal(ls_dev_file(dev, path_a, LS_DEV_SOURCE), LS_OK);
    assert_int_equal(ls_dev_file(dev, path_b, LS_DEV_SOURCE), LS_OK); /* looked for */
    assert_true(has_source(dev, path_a));
    assert_false(has_source(dev, path_b));
    assert_false(has_source(dev, "/etc/passwd"));
    write_file(path_b, "return 1");
    assert_int_equal(what_changed(dev, &vanished), LS_DEV_CHANGED_SITE);
    assert_false(vanished);
    assert_true(has_source(dev, path_b));
    assert_int_equal(remove(path_a), 0);
    assert_int_equal(what_changed(dev, &vanished), LS_DEV_CHANGED_SITE);
    assert_true(vanished);
}

/* What the site reads is watched but not shown; what it writes is neither. */
TEST_WITH(site, dev, data_of_the_site, site_open())
{
    bool vanished;
    assert_int_equal(ls_dev_file(dev, path_b, LS_DEV_OWN), LS_OK); /* not read: nothing to record */
    assert_int_equal(ls_dev_file(dev, path_a, LS_DEV_DATA), LS_OK);
    assert_false(has_source(dev, path_a));
    write_file(path_a, "return 22");
    assert_int_equal(what_changed(dev, &vanished), LS_DEV_CHANGED_SITE);
    assert_int_equal(ls_dev_file(dev, path_a, LS_DEV_OWN), LS_OK);
    write_file(path_a, "return 333");
    write_file(path_b, "return 1");
    assert_int_equal(what_changed(dev, &vanished), 0);
    ls_dev_load_begin(dev);
    assert_int_equal(ls_dev_file(dev, path_a, LS_DEV_SOURCE), LS_OK); /* also in later loads */
    write_file(path_a, "return 4444");
    assert_int_equal(what_changed(dev, &vanished), 0);
    assert_true(has_source(dev, path_a));
}

/* Lua cuts the beginning of a long name in messages. */
TEST_WITH(site, dev, a_source_is_found_by_its_name_or_the_end_of_it, site_open())
{
    char path[LS_DEV_PATH_BYTES_MAX + 1], cut[64];
    assert_int_equal(ls_dev_file(dev, path_a, LS_DEV_SOURCE), LS_OK);
    assert_true(ls_dev_find(dev, path_a, path));
    assert_string_equal(path, path_a);
    (void)snprintf(cut, sizeof cut, "...%s", path_a + 1);
    memset(path, 0, sizeof path);
    assert_true(ls_dev_find(dev, cut, path));
    assert_string_equal(path, path_a);
    assert_false(ls_dev_find(dev, path_a + 1, path));
    assert_false(ls_dev_find(dev, "...", path));
    assert_false(ls_dev_find(dev, "", path));
    (void)snprintf(cut, sizeof cut, "...x%s", path_a);
    assert_false(ls_dev_find(dev, cut, path));
}

/* Another state loads the site later than the first: a change in between is still seen. */
TEST_WITH(site, dev, the_first_stamp_of_a_load_counts, site_open())
{
    bool vanished;
    assert_int_equal(ls_dev_file(dev, path_a, LS_DEV_SOURCE), LS_OK);
    write_file(path_a, "return 22");
    assert_int_equal(ls_dev_file(dev, path_a, LS_DEV_SOURCE), LS_OK);
    assert_int_equal(what_changed(dev, &vanished), LS_DEV_CHANGED_SITE);
    write_file(path_a, "return 333");
    ls_dev_load_begin(dev);
    assert_int_equal(ls_dev_file(dev, path_a, LS_DEV_SOURCE), LS_OK);
    assert_int_equal(what_changed(dev, &vanished), 0);
}

TEST_WITH(site, dev, a_load_forgets_the_files_of_the_one_before, site_open())
{
    write_file(path_b, "return 1");
    assert_int_equal(ls_dev_file(dev, path_a, LS_DEV_SOURCE), LS_OK);
    assert_int_equal(ls_dev_file(dev, path_b, LS_DEV_SOURCE), LS_OK);
    ls_dev_load_end(dev, NULL);
    ls_dev_load_begin(dev);
    assert_int_equal(ls_dev_file(dev, path_a, LS_DEV_SOURCE), LS_OK);
    ls_dev_load_end(dev, "site.lua:1: broken"); /* a load that fails may not have reached all */
    assert_true(has_source(dev, path_a) && has_source(dev, path_b));
    ls_dev_load_begin(dev);
    assert_int_equal(ls_dev_file(dev, path_a, LS_DEV_SOURCE), LS_OK);
    ls_dev_load_end(dev, NULL);
    assert_true(has_source(dev, path_a) && !has_source(dev, path_b));
}

/* What was sent stays over loads, until the site loads it. */
TEST_WITH(site, dev, files_that_were_sent, site_open())
{
    static const char style[] = "test_dev_mode.css";
    char name[64] = "";
    bool vanished;
    write_file(style, "a");
    assert_int_equal(ls_dev_file(dev, path_a, LS_DEV_ASSET), LS_OK);
    assert_int_equal(ls_dev_file(dev, style, LS_DEV_ASSET), LS_OK);
    assert_false(has_source(dev, path_a));
    ls_dev_load_begin(dev);
    ls_dev_load_end(dev, NULL);
    write_file(style, "ab");
    assert_int_equal(what_changed(dev, &vanished), LS_DEV_CHANGED_STYLE);
    write_file(path_a, "return 22");
    assert_int_equal(what_changed(dev, &vanished), LS_DEV_CHANGED_ASSET);
    assert_int_equal(ls_dev_file(dev, path_a, LS_DEV_SOURCE), LS_OK);
    assert_int_equal(ls_dev_file(dev, path_a, LS_DEV_ASSET), LS_OK);
    write_file(path_a, "return 333");
    write_file(style, "abc");
    assert_int_equal(ls_dev_changed(dev, &vanished, name, sizeof name), LS_DEV_CHANGED_SITE | LS_DEV_CHANGED_STYLE);
    assert_string_equal(name, path_a);
    assert_int_equal(remove(style), 0);
    for (unsigned n = 1; n < LS_DEV_ASSETS_MAX; n++) {
        (void)snprintf(name, sizeof name, "%u.js", n);
        assert_int_equal(ls_dev_file(dev, name, LS_DEV_ASSET), LS_OK);
    }
    assert_int_equal(ls_dev_file(dev, "more.js", LS_DEV_ASSET), LS_ELIMIT);
    assert_int_equal(ls_dev_file(dev, "more.lua", LS_DEV_SOURCE), LS_OK);
}

TEST_WITH(site, dev, limits, site_open())
{
    char *name = malloc(LS_DEV_PATH_BYTES_MAX + 2);
    memset(name, 'a', LS_DEV_PATH_BYTES_MAX + 1);
    name[LS_DEV_PATH_BYTES_MAX + 1] = '\0';
    assert_int_equal(ls_dev_file(dev, name, LS_DEV_SOURCE), LS_ELIMIT);
    name[LS_DEV_PATH_BYTES_MAX] = '\0';
    assert_int_equal(ls_dev_file(dev, name, LS_DEV_SOURCE), LS_OK);
    free(name);
    for (unsigned n = 1; n < LS_DEV_FILES_MAX; n++) {
        char path[32];
        (void)snprintf(path, sizeof path, "%u.lua", n);
        assert_int_equal(ls_dev_file(dev, path, LS_DEV_SOURCE), LS_OK);
    }
    assert_int_equal(ls_dev_file(dev, "one more.lua", LS_DEV_SOURCE), LS_ELIMIT);
    assert_int_equal(ls_dev_file(dev, "1.lua", LS_DEV_SOURCE), LS_OK); /* known */
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

TEST_WITH(site, dev, failures, site_open())
{
    static char message[LS_DEV_TEXT_BYTES], traceback[LS_DEV_TEXT_BYTES], longer[2 * LS_DEV_TEXT_BYTES];
    const uint64_t version = ls_dev_version(dev);
    assert_false(ls_dev_failure(dev, message, traceback));
    ls_dev_traceback(dev, "stack");
    ls_dev_load_end(dev, "broken");
    assert_true(ls_dev_failure(dev, message, traceback));
    assert_string_equal(message, "broken");
    assert_string_equal(traceback, "stack");
    assert_true(ls_dev_version(dev) == version + 1);
    ls_dev_load_begin(dev);
    assert_true(ls_dev_failure(dev, message, traceback)); /* until the load has ended */
    assert_string_equal(message, "broken");
    assert_string_equal(traceback, "");
    memset(longer, 'x', sizeof longer - 1);
    ls_dev_traceback(dev, longer);
    assert_true(ls_dev_failure(dev, message, traceback));
    assert_int_equal(strlen(traceback), LS_DEV_TEXT_BYTES - 1);
    ls_dev_load_end(dev, NULL);
    assert_false(ls_dev_failure(dev, message, traceback));
    assert_true(ls_dev_version(dev) == version + 2);
}

/* ---- the thread ------------------------------------------------------------------------------------------------- */

typedef struct reloads {
    ls_mutex mutex;
    ls_cond changed;
    unsigned calls, busy; /* how often it returns LS_EBUSY */
} reloads;

static int count_reload(void *server)
{
    reloads *r = server;
    ls_mutex_lock(&r->mutex);
    r->calls++;
    const bool busy = r->busy > 0;
    if (busy) r->busy--;
    ls_cond_broadcast(&r->changed);
    ls_mutex_unlock(&r->mutex);
    return busy ? LS_EBUSY : LS_OK;
}

static void await_calls(reloads *r, unsigned calls)
{
    ls_mutex_lock(&r->mutex);
    while (r->calls < calls) ls_cond_wait(&r->changed, &r->mutex); /* more if the two steps of a write are far apart */
    ls_mutex_unlock(&r->mutex);
}

TEST_WITH(site, dev, a_change_reloads_the_site, site_open())
{
    reloads r = {.busy = 2};
    ls_mutex_open(&r.mutex);
    ls_cond_open(&r.changed);
    assert_int_equal(ls_dev_file(dev, path_a, LS_DEV_SOURCE), LS_OK);
    assert_int_equal(ls_dev_start(dev, count_reload, &r), LS_OK);
    write_file(path_a, "return 22");
    await_calls(&r, 3); /* again while another reload is under way */
    const unsigned calls = r.calls;
    assert_int_equal(ls_dev_file(dev, path_b, LS_DEV_SOURCE), LS_OK); /* recorded while the thread waits */
    write_file(path_b, "return 1");
    await_calls(&r, calls + 1);
    ls_dev_stop(dev);
    write_file(path_a, "return 333");
    ls_cond_close(&r.changed);
    ls_mutex_close(&r.mutex);
}
