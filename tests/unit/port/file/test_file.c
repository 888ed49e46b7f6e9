/* test_file.c - calls on files, as file.h promises them. */
#define _GNU_SOURCE
#define TESTS_FILE_LIMIT
#include "port/file/file.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "port/file/file_internal.h"
#include "support.h"
#include "system.h"

typedef struct place { /* a directory of one's own, and the path of a file in it */
    char dir[256], path[300], other[300];
} place;

static void place_open(place *p)
{
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(p->dir, sizeof p->dir, "%s/" TEST_SCRATCH_NAME, tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(p->dir));
    (void)snprintf(p->path, sizeof p->path, "%s/it", p->dir);
    (void)snprintf(p->other, sizeof p->other, "%s/other", p->dir);
}

/* Nothing else is left in the directory, such as the new file of a save. */
static void place_close(place *p)
{
    ls_file_names *names;
    assert_int_equal(ls_file_list(p->dir, NULL, 10, &names), LS_OK);
    for (unsigned i = 0; i < names->count; i++)
        assert_true(strcmp(names->names[i].name, "it") == 0 || strcmp(names->names[i].name, "other") == 0);
    ls_file_names_free(names);
    (void)ls_file_remove(p->path);
    (void)ls_file_remove(p->other);
    assert_int_equal(ls_file_remove(p->dir), LS_OK);
}

static int save(const char *path, const char *text, unsigned flags)
{
    const ls_slice slice = {NULL, text, strlen(text)};
    return ls_file_save(path, &slice, 1, flags);
}

static void holds(const char *path, const char *text)
{
    char room[64];
    ls_fd fd;
    assert_int_equal(ls_file_open(path, LS_FILE_READ, &fd), LS_OK);
    const int64_t n = ls_file_read(fd, room, sizeof room, 0);
    ls_file_close(fd);
    assert_int_equal(n, strlen(text));
    assert_memory_equal(room, text, (size_t)n);
}

static int result_of_open(const char *path, unsigned flags)
{
    ls_fd fd = LS_FD_NONE;
    const int err = ls_file_open(path, flags, &fd);
    assert_int_equal(err == LS_OK, fd != LS_FD_NONE);
    if (err == LS_OK) ls_file_close(fd);
    return err;
}

/* ---- open, read, stat ------------------------------------------------------------------------------------------- */

TEST_IN(place, p, a_file_from_its_creation_to_its_end)
{
    const ls_slice slices[] = {{NULL, "hello, ", 7}, {NULL, "", 0}, {NULL, "file", 4}};
    char room[16] = "";
    ls_file_info info, by_path;
    struct stat st;
    ls_fd fd;
    assert_int_equal(ls_file_open(p->path, LS_FILE_READ | LS_FILE_WRITE | LS_FILE_CREATE | LS_FILE_EXCLUSIVE, &fd),
                     LS_OK);
    assert_int_equal(ls_file_write(fd, slices, 3), LS_OK);
    assert_int_equal(ls_file_sync(fd), LS_OK);
    assert_int_equal(ls_file_read(fd, room, 4, 7), 4);
    assert_memory_equal(room, "file", 4);
    assert_int_equal(ls_file_read(fd, room, sizeof room, 7), 4); /* no more is there */
    assert_int_equal(ls_file_read(fd, room, sizeof room, 11), 0);
    assert_int_equal(ls_file_read(fd, room, sizeof room, 1000), 0);

    assert_int_equal(stat(p->path, &st), 0);
    assert_int_equal(ls_file_stat_open(fd, &info), LS_OK);
    assert_int_equal(ls_file_stat(p->path, &by_path), LS_OK);
    assert_true(by_path.type == info.type && by_path.bytes == info.bytes && by_path.modified_s == info.modified_s &&
                by_path.modified_ns == info.modified_ns && by_path.volume == info.volume && by_path.file == info.file);
    assert_int_equal(info.type, LS_FILE_REGULAR);
    assert_int_equal(info.bytes, 11);
    assert_int_equal(info.modified_s, st.st_mtime);
    assert_in_range(info.modified_ns, 0, 999999999);
    assert_int_equal(ls_file_stat(p->dir, &by_path), LS_OK);
    assert_int_equal(by_path.type, LS_FILE_DIRECTORY);
    assert_int_equal(by_path.bytes, 0);
    assert_true(by_path.file != info.file && by_path.volume == info.volume);

    assert_int_equal(ls_file_remove(p->path), LS_OK);
    ls_file_close(fd);
    assert_int_equal(ls_file_stat(p->path, &info), LS_ENOENT);
}

TEST_IN(place, p, a_new_file_replaces_none)
{
    ls_file_info info;
    assert_int_equal(save(p->path, "first", LS_SAVE_NEW), LS_OK);
    assert_int_equal(save(p->path, "second one", LS_SAVE_NEW), LS_EEXIST);
    assert_int_equal(ls_file_stat(p->path, &info), LS_OK);
    assert_int_equal(info.bytes, 5);
}

TEST_IN(place, p, flags_are_what_they_say)
{
    char room[8];
    ls_file_info info;
    ls_fd fd;
    assert_int_equal(result_of_open(p->path, LS_FILE_READ), LS_ENOENT);
    assert_int_equal(result_of_open(p->path, LS_FILE_WRITE), LS_ENOENT);
    assert_int_equal(ls_file_open(p->path, LS_FILE_WRITE | LS_FILE_CREATE, &fd), LS_OK);
    assert_int_equal(ls_file_write(fd, &(ls_slice){NULL, "12345", 5}, 1), LS_OK);
    assert_true(ls_file_read(fd, room, 5, 0) < 0); /* not opened for it */
    ls_file_close(fd);
    assert_int_equal(result_of_open(p->path, LS_FILE_WRITE | LS_FILE_CREATE | LS_FILE_EXCLUSIVE), LS_EEXIST);
    assert_int_equal(result_of_open(p->path, LS_FILE_WRITE | LS_FILE_CREATE), LS_OK);
    assert_int_equal(ls_file_stat(p->path, &info), LS_OK);
    assert_int_equal(info.bytes, 5);
    assert_int_equal(result_of_open(p->path, LS_FILE_WRITE | LS_FILE_TRUNCATE), LS_OK);
    assert_int_equal(ls_file_stat(p->path, &info), LS_OK);
    assert_int_equal(info.bytes, 0);
}

TEST_IN(place, p, errors_have_their_codes)
{
    char room[8], below[320];
    ls_file_info info;
    ls_fd fd;
    assert_int_equal(save(p->path, "", 0), LS_OK);
    (void)snprintf(below, sizeof below, "%s/below", p->path);
    assert_int_equal(result_of_open(below, LS_FILE_READ), LS_ENOENT); /* a file is no directory */
    assert_int_equal(ls_file_stat(below, &info), LS_ENOENT);
    assert_int_equal(ls_file_remove(below), LS_ENOENT);
    assert_int_equal(save(below, "x", 0), LS_ENOENT);
    assert_int_equal(result_of_open("", LS_FILE_READ), LS_ENOENT);

    assert_int_equal(result_of_open(p->dir, LS_FILE_READ | LS_FILE_WRITE), LS_EISDIR);
    assert_int_equal(ls_file_open(p->dir, LS_FILE_READ, &fd), LS_OK);
    assert_int_equal(ls_file_read(fd, room, sizeof room, 0), LS_EISDIR);
    assert_int_equal(ls_file_stat_open(fd, &info), LS_OK);
    assert_int_equal(info.type, LS_FILE_DIRECTORY);
    ls_file_close(fd);
    for (unsigned flags = 0; flags <= LS_SAVE_IN_PLACE; flags++) assert_int_equal(save(p->dir, "x", flags), LS_EISDIR);

    assert_int_equal(ls_file_read(LS_FD_NONE, room, sizeof room, 0), LS_EINVAL);
    assert_int_equal(ls_file_stat_open(LS_FD_NONE, &info), LS_EINVAL);
}

TEST_IN(place, p, what_is_forbidden_is_eacces)
{
    access_before forbidden;
    assert_int_equal(save(p->path, "kept", 0), LS_OK);
    deny_access(&forbidden, p->dir, p->path, p->other);
    const int reading = result_of_open(p->path, LS_FILE_READ);
    const int making = save(p->other, "x", LS_SAVE_IN_PLACE);
    const int removing = ls_file_remove(p->path);
    const int writing = save(p->path, "x", LS_SAVE_IN_PLACE);
    restore_access(&forbidden, p->dir);
    assert_int_equal(reading, LS_EACCES);
    assert_int_equal(making, LS_EACCES);
    assert_int_equal(removing, LS_EACCES);
    assert_int_equal(writing, LS_EACCES);
    (void)chmod(p->path, 0600);
    holds(p->path, "kept");
}

TEST_IN(place, p, out_of_descriptors_is_emfile)
{
    descriptors_before before;
    assert_int_equal(save(p->path, "kept", 0), LS_OK);
    exhaust_descriptors(&before);
    const int reading = result_of_open(p->path, LS_FILE_READ), writing = save(p->path, "new", LS_SAVE_IN_PLACE);
    restore_descriptors(&before);
    assert_int_equal(reading, LS_EMFILE);
    assert_int_equal(writing, LS_EMFILE);
    holds(p->path, "kept");
}

TEST_IN(place, p, offsets_beyond_4_gib)
{
    static const uint64_t beyond = (UINT64_C(5) << 30) - 4;
    char room[16];
    ls_file_info info;
    ls_fd fd;
    assert_int_equal(ls_file_open(p->path, LS_FILE_READ | LS_FILE_WRITE | LS_FILE_CREATE, &fd), LS_OK);
    make_sparse(fd, beyond);
    ls_file_close(fd);
    assert_int_equal(save(p->path, "far away", LS_SAVE_APPEND), LS_OK);
    assert_int_equal(ls_file_open(p->path, LS_FILE_READ, &fd), LS_OK);
    assert_int_equal(ls_file_stat_open(fd, &info), LS_OK);
    assert_int_equal(info.bytes, beyond + 8);
    memset(room, 'x', sizeof room);
    assert_int_equal(ls_file_read(fd, room, sizeof room, beyond - 4), 12);
    assert_memory_equal(room, "\0\0\0\0far away", 12);
    assert_int_equal(ls_file_read(fd, room, 4, (uint32_t)beyond), 4); /* a hole */
    assert_memory_equal(room, "\0\0\0\0", 4);
    ls_file_close(fd);
}

/* ---- save ------------------------------------------------------------------------------------------------------- */

TEST_IN(place, p, a_save_makes_replaces_and_appends)
{
    assert_int_equal(ls_file_save(p->path, NULL, 0, 0), LS_OK);
    holds(p->path, "");
    assert_int_equal(save(p->path, "one", LS_SAVE_SYNC), LS_OK);
    holds(p->path, "one");
    assert_int_equal(save(p->path, "2", 0), LS_OK);
    holds(p->path, "2");
    assert_int_equal(save(p->path, "three", LS_SAVE_IN_PLACE | LS_SAVE_SYNC), LS_OK);
    holds(p->path, "three");
    assert_int_equal(save(p->path, "4", LS_SAVE_IN_PLACE), LS_OK);
    holds(p->path, "4");
    assert_int_equal(save(p->path, " and 5", LS_SAVE_APPEND | LS_SAVE_SYNC), LS_OK);
    holds(p->path, "4 and 5");
    assert_int_equal(save(p->other, "made", LS_SAVE_APPEND | LS_SAVE_EXISTING), LS_ENOENT);
    assert_int_equal(save(p->other, "made", LS_SAVE_IN_PLACE | LS_SAVE_EXISTING), LS_ENOENT);
    assert_int_equal(save(p->other, "ma", LS_SAVE_APPEND), LS_OK);
    assert_int_equal(save(p->other, "de", LS_SAVE_APPEND | LS_SAVE_EXISTING), LS_OK);
    holds(p->other, "made");
}

TEST_IN(place, p, many_slices_leave_in_order)
{
    enum { COUNT = 3 * LS_FILE_GATHER + 5, LEN = 30000 };
    static char bytes[COUNT][LEN], back[COUNT * LEN + 1];
    static ls_slice slices[COUNT];
    size_t sum = 0;
    ls_fd fd;
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t n = 0; n < LEN; n++) bytes[i][n] = (char)(i * 31 + n * 7);
        slices[i] = (ls_slice){NULL, bytes[i], i % 5 == 0 ? 0 : LEN - i};
    }
    for (int append = 0; append < 2; append++) {
        assert_int_equal(ls_file_save(append ? p->other : p->path, slices, COUNT, append ? LS_SAVE_APPEND : 0), LS_OK);
        assert_int_equal(ls_file_open(append ? p->other : p->path, LS_FILE_READ, &fd), LS_OK);
        sum = (size_t)ls_file_read(fd, back, sizeof back, 0);
        ls_file_close(fd);
        size_t at = 0;
        for (size_t i = 0; i < COUNT; i++) {
            assert_memory_equal(back + at, slices[i].ptr, slices[i].len);
            at += slices[i].len;
        }
        assert_int_equal(sum, at);
    }
}

/* A reader of the old file keeps it, also while it is replaced. */
TEST_IN(place, p, a_replaced_file_stays_with_its_readers)
{
    char room[8];
    ls_fd fd;
    assert_int_equal(save(p->path, "old", 0), LS_OK);
    assert_int_equal(ls_file_open(p->path, LS_FILE_READ, &fd), LS_OK);
    const bool replaces = system_replaces_open_files();
    assert_int_equal(save(p->path, "new", 0), replaces ? LS_OK : LS_EACCES);
    assert_int_equal(ls_file_read(fd, room, sizeof room, 0), 3);
    assert_memory_equal(room, "old", 3);
    ls_file_close(fd);
    holds(p->path, replaces ? "new" : "old");
}

TEST_IN(place, p, the_longest_name_can_be_saved)
{
    char path[600], name[256];
    memset(name, 'n', sizeof name);
    name[255] = '\0';
    (void)snprintf(path, sizeof path, "%s/%s", p->dir, name);
    assert_int_equal(save(path, "x", 0), LS_OK);
    assert_int_equal(save(path, "y", 0), LS_OK);
    holds(path, "y");
    assert_int_equal(ls_file_remove(path), LS_OK);
}

#ifndef _WIN32
TEST_IN(place, p, permissions_are_kept)
{
    struct stat st;
    const mode_t mask = umask(027);
    assert_int_equal(save(p->path, "x", 0), LS_OK);
    assert_int_equal(stat(p->path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    static const mode_t modes[] = {0600, 0755, 0444, 0666};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(chmod(p->path, modes[i]), 0);
        assert_int_equal(save(p->path, "y", 0), LS_OK);
        assert_int_equal(stat(p->path, &st), 0);
        assert_int_equal(st.st_mode & 07777, modes[i]);
    }
    if (geteuid() ==
        0) { /* who may gives the file its old owner; who may not takes the permissions of the group away */
        assert_int_equal(chown(p->path, 1234, 5678), 0);
        assert_int_equal(chmod(p->path, 04660), 0);
        assert_int_equal(save(p->path, "z", 0), LS_OK);
        assert_int_equal(stat(p->path, &st), 0);
        assert_int_equal(st.st_uid, 1234);
        assert_int_equal(st.st_gid, 5678);
        assert_int_equal(st.st_mode & 07777, 04660);
        assert_int_equal(chmod(p->dir, 0777), 0);
        assert_int_equal(seteuid(65534), 0);
        const int saved = save(p->path, "nobody's", 0);
        assert_int_equal(seteuid(0), 0);
        assert_int_equal(saved, LS_OK);
        assert_int_equal(stat(p->path, &st), 0);
        assert_int_equal(st.st_uid, 65534);
        assert_int_equal(st.st_mode & 07777, 0600);
    }
    (void)umask(mask);
}

TEST_IN(place, p, a_link_stays_and_its_target_is_replaced)
{
    struct stat st;
    assert_int_equal(symlink("other", p->path), 0);
    assert_int_equal(save(p->path, "through a link to nothing", 0), LS_OK);
    assert_int_equal(save(p->path, "new", 0), LS_OK);
    assert_int_equal(lstat(p->path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(lstat(p->other, &st), 0);
    assert_true(S_ISREG(st.st_mode));
    holds(p->other, "new");
    assert_int_equal(ls_file_remove(p->path), LS_OK); /* the link itself */
    holds(p->other, "new");
    assert_int_equal(symlink("it", p->path), 0);
    assert_int_equal(save(p->path, "x", 0), LS_ELIMIT); /* a link to itself */
}

/* A full device keeps the old file. RLIMIT_FSIZE takes its place: a file system of one's own needs privileges. */
TEST_IN(place, p, a_full_device_keeps_the_old_file)
{
    static char large[20000];
    const ls_slice slice = {NULL, large, sizeof large};
    struct rlimit before, small = {10000, 10000};
    assert_int_equal(save(p->path, "kept", 0), LS_OK);
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const int replacing = ls_file_save(p->path, &slice, 1, 0), making = ls_file_save(p->other, &slice, 1, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(replacing, LS_ELIMIT); /* EFBIG */
    assert_int_equal(making, LS_ELIMIT);
    holds(p->path, "kept");
    assert_int_equal(result_of_open(p->other, LS_FILE_READ), LS_ENOENT);
    assert_int_equal(save("/dev/full", "x", 0), LS_ENOSPC); /* and a device is not replaced */
    assert_int_equal(save("/dev/null", "x", LS_SAVE_SYNC), LS_OK);
    ls_file_info info;
    assert_int_equal(ls_file_stat("/dev/null", &info), LS_OK);
    assert_int_equal(info.type, LS_FILE_OTHER);
}
#endif

/* ---- directories and names
 * --------------------------------------------------------------------------------------- */

TEST_IN(place, p, directories_are_made_with_their_parents)
{
    char path[400];
    ls_file_info info;
    static const char *const rest[] = {"/a//b/c", "/a/b", "/a"};
    (void)snprintf(path, sizeof path, "%s/a/b", p->path);
    assert_int_equal(ls_file_mkdir(path, false), LS_ENOENT);
    (void)snprintf(path, sizeof path, "%s/a//b/c/", p->path);
    assert_int_equal(ls_file_mkdir(path, true), LS_OK);
    assert_int_equal(ls_file_mkdir(path, true), LS_OK);
    assert_int_equal(ls_file_mkdir(path, false), LS_EEXIST);
    assert_int_equal(ls_file_stat(path, &info), LS_OK);
    assert_int_equal(info.type, LS_FILE_DIRECTORY);
    assert_int_equal(ls_file_remove(p->path), LS_ENOTEMPTY);
    for (int i = 0; i < 3; i++) {
        (void)snprintf(path, sizeof path, "%s%s", p->path, rest[i]);
        assert_int_equal(ls_file_remove(path), LS_OK);
    }
    assert_int_equal(ls_file_mkdir("", true), LS_ENOENT);

    assert_int_equal(save(p->other, "a file", 0), LS_OK);
    assert_int_equal(ls_file_mkdir(p->other, true), LS_EEXIST);
    (void)snprintf(path, sizeof path, "%s/a/b", p->other);
    const int below = ls_file_mkdir(path, true);
    assert_true(below == LS_ENOTDIR || below == LS_EEXIST);
}

TEST_IN(place, p, a_name_replaces_another_one)
{
    char below[320];
    assert_int_equal(ls_file_rename(p->path, p->other), LS_ENOENT);
    assert_int_equal(save(p->path, "new", 0), LS_OK);
    assert_int_equal(save(p->other, "old", 0), LS_OK);
    assert_int_equal(ls_file_rename(p->path, p->other), LS_OK);
    holds(p->other, "new");
    assert_int_equal(result_of_open(p->path, LS_FILE_READ), LS_ENOENT);

    assert_int_equal(ls_file_mkdir(p->path, false), LS_OK);
    assert_int_equal(ls_file_rename(p->other, p->path), LS_EISDIR);
    (void)snprintf(below, sizeof below, "%s/below", p->path);
    assert_int_equal(ls_file_rename(p->other, below), LS_OK);
    holds(below, "new");
    assert_int_equal(ls_file_rename(p->path, p->other), LS_OK); /* a directory with its content */
    (void)snprintf(below, sizeof below, "%s/below", p->other);
    holds(below, "new");
#ifndef _WIN32
    assert_int_equal(ls_file_mkdir(p->path, false), LS_OK);
    assert_int_equal(ls_file_rename(p->path, p->other), LS_ENOTEMPTY);
    assert_int_equal(ls_file_rename(p->path, below), LS_ENOTDIR);
#endif
    assert_int_equal(ls_file_remove(below), LS_OK);
}
