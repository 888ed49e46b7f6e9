/* test_fopen.c - files with non-ASCII names, and errno on failure. */
/* sanitizers: asan; no thread starts */
#include "base/io/fopen.h"

#include "port/file/file.h"
#include "support.h"

static const char name[] = "luaserve-test-\xc3\xbc-\xe6\x97\xa5.txt"; /* in the working directory */

TEST(written_bytes_are_read_back)
{
    char text[10] = "";
    FILE *file = ls_fopen(name, "wb");
    assert_non_null(file);
    assert_int_equal(fputs("a\nb", file) < 0, 0);
    assert_int_equal(fclose(file), 0);
    file = ls_fopen(name, "ab");
    assert_non_null(file);
    assert_int_equal(fputs("c", file) < 0, 0);
    assert_int_equal(fclose(file), 0);
    file = ls_fopen(name, "rb");
    assert_non_null(file);
    assert_int_equal(fread(text, 1, sizeof text, file), 4);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, "a\nbc");
    assert_int_equal(ls_file_remove(name), LS_OK);
    assert_null(ls_fopen(name, "rb"));
}

TEST(errors)
{
    errno = 0;
    assert_null(ls_fopen("no-such-folder/\xc3\xbc", "rb"));
    assert_int_equal(errno, ENOENT);
    errno = 0;
    assert_null(ls_fopen("no-such-file-\xff\xfe", "rb")); /* invalid UTF-8: missing, or refused */
    assert_true(errno == ENOENT || errno == EINVAL || errno == EILSEQ);
}
