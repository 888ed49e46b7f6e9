/* test_shared_file.c - open files whose ranges are slices. */
/* sanitizers: asan; no thread starts */
#define _GNU_SOURCE
#include "port/file/shared_file.h"

#include <unistd.h>

#include "support.h"
#include "system.h"

typedef struct place { /* a directory of one's own with one file */
    char dir[256], path[300];
} place;

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static void place_open(place *p)
{
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(p->dir, sizeof p->dir, "%s/" TEST_SCRATCH_NAME, tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(p->dir));
    (void)snprintf(p->path, sizeof p->path, "%s/it", p->dir);
    put(p->path, "0123456789");
}

static void place_close(place *p)
{
    (void)remove(p->path);
    assert_int_equal(rmdir(p->dir), 0);
}

TEST_IN(place, p, a_file_is_read_through_its_slices)
{
    ls_shared_file *file;
    char room[32];
    assert_int_equal(ls_shared_file_open(p->path, &file), LS_OK);
    assert_int_equal(file->info.bytes, 10);
    ls_slice slice = ls_shared_file_slice(file, 3, 4);
    assert_true(ls_slice_is_file(&slice));
    assert_ptr_equal(ls_shared_file_of(&slice), file);
    assert_int_equal(ls_slice_offset(&slice), 3);
    assert_int_equal(ls_shared_file_read(file, room, slice.len, ls_slice_offset(&slice)), 4);
    assert_memory_equal(room, "3456", 4);
    assert_int_equal(ls_shared_file_read(file, room, sizeof room, 0), 10);
    assert_int_equal(ls_shared_file_read(file, room, sizeof room, 9), 1);
    assert_int_equal(ls_shared_file_read(file, room, sizeof room, 10), 0);
    assert_int_equal(ls_shared_file_read(file, room, 0, 0), 0);
    ls_slice_drop(&slice);
    ls_shared_file_drop(file);
}

static bool is_open(ls_fd fd)
{
    char byte;
    const ls_shared_file look = {.fd = fd};
    return ls_shared_file_read(&look, &byte, 1, 0) == 1;
}

TEST_IN(place, p, the_last_slice_closes_it)
{
    ls_shared_file *file;
    assert_int_equal(ls_shared_file_open(p->path, &file), LS_OK);
    const ls_fd fd = file->fd;
    ls_slice one = ls_shared_file_slice(file, 0, 1), two = ls_shared_file_slice(file, 1, 1);
    ls_shared_file_drop(ls_shared_file_hold(file));
    ls_shared_file_drop(file);
    ls_slice_drop(&one);
    assert_true(is_open(fd));
    ls_slice_drop(&two);
#ifndef _WIN32 /* a debugger breaks at an invalid handle */
    assert_false(is_open(fd));
#endif
}

TEST_IN(place, p, other_types_and_missing_files_are_refused)
{
    ls_shared_file *file = NULL;
    char path[320];
    assert_int_equal(ls_shared_file_open(p->dir, &file), LS_EISDIR);
    (void)snprintf(path, sizeof path, "%s/none", p->dir);
    assert_int_equal(ls_shared_file_open(path, &file), LS_ENOENT);
#ifndef _WIN32
    assert_int_equal(ls_shared_file_open("/dev/null", &file), LS_ENOTSUP);
#endif
    assert_null(file);
}

TEST_IN(place, p, a_descriptor_is_not_left_open)
{
    ls_shared_file *file;
    for (int n = 0; n < 3000; n++) { /* more than the limit of descriptors */
        assert_int_equal(ls_shared_file_open(p->dir, &file), LS_EISDIR);
        assert_int_equal(ls_shared_file_open(p->path, &file), LS_OK);
        ls_shared_file_drop(file);
    }
}

TEST_IN(place, p, changes_are_seen)
{
    ls_shared_file *file, *same;
    char room[8];
    assert_int_equal(ls_shared_file_open(p->path, &file), LS_OK);
    assert_true(ls_shared_file_unchanged(file));
    put(p->path, "0123"); /* truncates it */
    assert_false(ls_shared_file_unchanged(file));
    ls_shared_file_drop(file);

    assert_int_equal(ls_shared_file_open(p->path, &file), LS_OK);
    file->info.modified_ns ^= 1;
    assert_false(ls_shared_file_unchanged(file));
    file->info.modified_ns ^= 1;
    file->info.modified_s--;
    assert_false(ls_shared_file_unchanged(file));
    file->info.modified_s++;
    assert_true(ls_shared_file_unchanged(file));

    char other[320]; /* a replaced file: the open one stays as it was */
    (void)snprintf(other, sizeof other, "%s/other", p->dir);
    put(other, "new");
#ifdef _WIN32
    (void)remove(other);
#else
    assert_int_equal(rename(other, p->path), 0);
    assert_true(ls_shared_file_unchanged(file));
    assert_int_equal(ls_shared_file_read(file, room, sizeof room, 0), 4);
    assert_memory_equal(room, "0123", 4);
    assert_int_equal(ls_shared_file_open(p->path, &same), LS_OK);
    assert_int_equal(same->info.bytes, 3);
    ls_shared_file_drop(same);
#endif
    (void)room;
    (void)same;
    ls_shared_file_drop(file);
}

static const struct ls_file_name *find(const ls_file_names *names, const char *name)
{
    for (unsigned i = 0; i < names->count; i++)
        if (strcmp(names->names[i].name, name) == 0) return &names->names[i];
    return NULL;
}

TEST_IN(place, p, names_of_a_directory)
{
    ls_file_names *names = NULL;
    assert_int_equal(ls_file_list(p->path, NULL, 100, &names), LS_ENOTDIR);
    char none[320];
    (void)snprintf(none, sizeof none, "%s/none", p->dir);
    assert_int_equal(ls_file_list(none, NULL, 100, &names), LS_ENOENT);
    assert_null(names);
    assert_int_equal(ls_file_list(p->dir, p->dir, 100, &names), LS_OK);
    assert_int_equal(names->count, 1);
    assert_false(names->more);
    assert_string_equal(names->names[0].name, "it");
    assert_int_equal(names->names[0].info.bytes, 10);
    assert_int_equal(names->names[0].info.type, LS_FILE_REGULAR);
    ls_file_names_free(names);
    ls_file_names_free(NULL);

    for (int n = 0; n < 100; n++) { /* the table grows */
        (void)snprintf(none, sizeof none, "%s/%d", p->dir, n);
        put(none, "x");
    }
    assert_int_equal(ls_file_list(p->dir, NULL, 100, &names), LS_OK);
    assert_int_equal(names->count, 100);
    assert_true(names->more);
    ls_file_names_free(names);
    assert_int_equal(ls_file_list(p->dir, NULL, 101, &names), LS_OK);
    assert_int_equal(names->count, 101);
    assert_false(names->more);
    assert_non_null(find(names, "0"));
    assert_non_null(find(names, "99"));
    ls_file_names_free(names);
    for (int n = 0; n < 100; n++) {
        (void)snprintf(none, sizeof none, "%s/%d", p->dir, n);
        (void)remove(none);
    }
}

#ifndef _WIN32
TEST_IN(place, p, links_stay_beneath_a_directory)
{
    char dir[320], in[340], out[340], file[340];
    ls_shared_file *opened;
    ls_file_names *names;
    (void)snprintf(dir, sizeof dir, "%s/dir", p->dir);
    (void)snprintf(file, sizeof file, "%s/file", dir);
    (void)snprintf(in, sizeof in, "%s/in", dir);
    (void)snprintf(out, sizeof out, "%s/out", dir);
    assert_int_equal(mkdir(dir, 0700), 0);
    put(file, "inside");
    assert_int_equal(symlink(file, in), 0); /* absolute, and still inside */
    assert_int_equal(symlink("../it", out), 0);

    assert_int_equal(ls_shared_file_open_beneath(out, NULL, &opened), LS_OK);
    ls_shared_file_drop(opened);
    assert_int_equal(ls_shared_file_open_beneath(out, dir, &opened), LS_EACCES);
    assert_int_equal(ls_shared_file_open_beneath(in, dir, &opened), LS_OK);
    assert_int_equal(opened->info.bytes, 6);
    ls_shared_file_drop(opened);
    assert_int_equal(ls_shared_file_open_beneath(p->path, dir, &opened), LS_EACCES);

    assert_int_equal(ls_file_list(dir, NULL, 100, &names), LS_OK);
    assert_int_equal(names->count, 3);
    ls_file_names_free(names);
    assert_int_equal(ls_file_list(dir, dir, 100, &names), LS_OK);
    assert_int_equal(names->count, 2);
    assert_null(find(names, "out"));
    assert_true(find(names, "in")->link && !find(names, "file")->link);
    ls_file_names_free(names);
    (void)remove(file); /* `in` loses its target */
    assert_int_equal(ls_file_list(dir, dir, 100, &names), LS_OK);
    assert_int_equal(names->count, 0);
    ls_file_names_free(names);
    assert_int_equal(ls_file_list(dir, NULL, 100, &names), LS_OK);
    assert_int_equal(names->count, 2);
    assert_int_equal(find(names, "in")->info.type, LS_FILE_OTHER);
    assert_int_equal(find(names, "out")->info.type, LS_FILE_REGULAR);
    ls_file_names_free(names);
    (void)remove(in);
    (void)remove(out);
    assert_int_equal(rmdir(dir), 0);
}
#endif
