/* test_watch.c - events of files as editors write them. Each test awaits the event; WAIT_MS only ends a hang. */
#define _GNU_SOURCE
#include "base/io/watch.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io/fopen.h"
#include "base/os/thread.h"
#include "support.h"
#include "system.h"

enum { WAIT_MS = 60000 };

typedef struct fixture {
    ls_watch *watch;
    char folder[64], site[80], other[80], below[80], deep[96];
} fixture;

static void fixture_open(fixture *f)
{
    strcpy(f->folder, TEST_SCRATCH_PATH);
    assert_non_null(mkdtemp(f->folder));
    (void)snprintf(f->site, sizeof f->site, "%s/site.lua", f->folder);
    (void)snprintf(f->other, sizeof f->other, "%s/site.lua~", f->folder);
    (void)snprintf(f->below, sizeof f->below, "%s/below", f->folder);
    (void)snprintf(f->deep, sizeof f->deep, "%s/deep.lua", f->below);
    assert_int_equal(ls_watch_open(&f->watch), LS_OK);
}

static void fixture_close(fixture *f)
{
    ls_watch_close(f->watch);
    (void)remove(f->site);
    (void)remove(f->other);
    (void)remove(f->deep);
    (void)rmdir(f->below);
    assert_int_equal(rmdir(f->folder), 0);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = ls_fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Wait until the stamp differs from *last, as the server does; update it. */
static void await_change(fixture *f, const char *path, ls_watch_stamp *last)
{
    for (;;) {
        ls_watch_stamp now;
        assert_int_equal(ls_watch_path(f->watch, path), LS_OK);
        ls_watch_stamp_of(path, &now);
        if (!ls_watch_stamp_same(&now, last)) {
            *last = now;
            return;
        }
        assert_int_equal(ls_watch_wait(f->watch, WAIT_MS), LS_OK);
    }
}

static ls_watch_stamp begin(fixture *f, const char *path)
{
    ls_watch_stamp stamp;
    assert_int_equal(ls_watch_path(f->watch, path), LS_OK);
    ls_watch_stamp_of(path, &stamp);
    return stamp;
}

TEST_IN(fixture, f, a_file_that_is_written)
{
    write_file(f->site, "return 1");
    ls_watch_stamp stamp = begin(f, f->site);
    assert_true(stamp.exists);
    write_file(f->site, "return 22");
    await_change(f, f->site, &stamp);
    assert_true(stamp.exists);
}

TEST_IN(fixture, f, a_file_that_is_replaced_by_rename)
{
    write_file(f->site, "return 1");
    ls_watch_stamp stamp = begin(f, f->site);
    for (int n = 0; n < 3; n++) {
        write_file(f->other, "return 1");
        (void)remove(f->site); /* Windows renames over no file */
        assert_int_equal(rename(f->other, f->site), 0);
        do await_change(f, f->site, &stamp);
        while (!stamp.exists);
    }
}

TEST_IN(fixture, f, a_file_that_vanishes_and_comes_back)
{
    write_file(f->site, "return 1");
    ls_watch_stamp stamp = begin(f, f->site);
    assert_int_equal(remove(f->site), 0);
    await_change(f, f->site, &stamp);
    assert_false(stamp.exists);
    write_file(f->site, "return 1");
    await_change(f, f->site, &stamp);
    assert_true(stamp.exists);
}

TEST_IN(fixture, f, a_file_whose_folder_does_not_exist_yet)
{
    ls_watch_stamp stamp = begin(f, f->deep);
    assert_false(stamp.exists);
    assert_int_equal(mkdir(f->below, 0700), 0);
    assert_int_equal(ls_watch_wait(f->watch, WAIT_MS), LS_OK);
    write_file(f->deep, "return 1"); /* before the new folder is watched: the stamp shows it */
    await_change(f, f->deep, &stamp);
    assert_true(stamp.exists);
    write_file(f->deep, "return 22");
    await_change(f, f->deep, &stamp);
}

TEST(a_folder_that_is_removed_and_made_again)
{
    fixture place, *f = &place;
    if (!system_reports_removed_folders()) {
        print_message("skipped: of another system: the removal of a watched folder is an event\n");
        skip();
    }
    fixture_open(f);
    assert_int_equal(mkdir(f->below, 0700), 0);
    write_file(f->deep, "return 1");
    ls_watch_stamp stamp = begin(f, f->deep);
    assert_int_equal(remove(f->deep), 0);
    await_change(f, f->deep, &stamp);
    assert_int_equal(rmdir(f->below), 0);
    assert_int_equal(ls_watch_wait(f->watch, WAIT_MS), LS_OK);
    assert_int_equal(ls_watch_path(f->watch, f->deep), LS_OK);
    while (mkdir(f->below, 0700) < 0) /* Windows may keep the name until the watch has closed its handle */
        assert_int_equal(ls_watch_wait(f->watch, WAIT_MS), LS_OK);
    write_file(f->deep, "return 1");
    await_change(f, f->deep, &stamp);
    assert_true(stamp.exists);
    fixture_close(f);
}

TEST_IN(fixture, f, another_file_of_the_folder)
{
    write_file(f->site, "return 1");
    const ls_watch_stamp before = begin(f, f->site);
    write_file(f->other, "a log");
    assert_int_equal(ls_watch_wait(f->watch, WAIT_MS), LS_OK);
    ls_watch_stamp now;
    ls_watch_stamp_of(f->site, &now);
    assert_true(ls_watch_stamp_same(&before, &now));
}

TEST_IN(fixture, f, nothing_happens)
{
    (void)begin(f, f->site);
    assert_int_equal(ls_watch_wait(f->watch, 0), LS_ETIMEDOUT);
    assert_int_equal(ls_watch_wait(f->watch, 5), LS_ETIMEDOUT);
}

static void wake_from_here(void *watch)
{
    ls_watch_wake(watch);
}

TEST_IN(fixture, f, another_thread_ends_the_wait)
{
    ls_thread thread;
    (void)begin(f, f->site);
    assert_int_equal(ls_thread_start(&thread, "wake", wake_from_here, f->watch), LS_OK);
    assert_int_equal(ls_watch_wait(f->watch, -1), LS_ECANCELED);
    ls_thread_join(&thread);
    assert_int_equal(ls_watch_wait(f->watch, 0), LS_ETIMEDOUT);
}

TEST_IN(fixture, f, a_folder_is_no_file)
{
    ls_watch_stamp stamp;
    ls_watch_stamp_of(f->folder, &stamp);
    assert_false(stamp.exists);
}
