/* test_http_path.c - valid and invalid paths of files, and the limits. */
/* sanitizers: asan; no thread starts */
#include "codec/http_path.h"

#include "support.h"

static const char *wrong(const char *path, size_t len)
{
    char *copy = test_copy_exact(path, len); /* the sanitizer finds a read past its end */
    const char *why = ls_http_path_wrong(copy, len);
    free(copy);
    return why;
}

TEST(valid_paths)
{
    static const char *const paths[] = {
        /* clang-format off */
        "a", "index.html", "a/b/c.txt", ".well-known/acme-challenge/x", ".htaccess", "..a", "...a", "a..b",
        "a b", " a", "a.b.c", "-", "~", "~a", "a~", "note.txt~", "foo.txt.~1~", "a~1b", "verylongname~1",
        "a~1.html", "console", "con1", "nul1.txt", "com", "com10", "COMA", "lpt", "lpt12", "xcon", "null",
        "auxiliary.txt", "printer", "c", "C", "a%2e%2e", "a;b", "a,b", "a&b=c", "a#b", "a'b", "(a)[b]{c}",
        "$a", "a@b", "!", "^", "`", "+", "=", "\xc3\xbcml", "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e.txt",
        "\xf0\x9f\x8e\x89", "com\xc2\xb4", "com\xe2\x81\xb4",
        "\xef\xbc\x8e\xef\xbc\x8e/a", /* full-width dots are not dots */
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        const char *why = wrong(paths[i], strlen(paths[i]));
        if (why != NULL) fail_msg("\"%s\": %s", paths[i], why);
    }
}

TEST(invalid_paths)
{
    static const struct {
        const char *path, *why;
    } rows[] = {
        /* clang-format off */
        {"", "empty"}, {"/", "empty"}, {"/a", "empty"}, {"a/", "empty"}, {"a//b", "empty"},
        {"//host/share", "empty"}, {".", "dot or a space"}, {"..", "dot or a space"},
        {"../a", "dot or a space"}, {"a/..", "dot or a space"}, {"a/../b", "dot or a space"},
        {"a/./b", "dot or a space"}, {"...", "dot or a space"}, {"a.", "dot or a space"},
        {"a ", "dot or a space"}, {"a. .", "dot or a space"}, {".. /a", "dot or a space"},
        {" ", "dot or a space"}, {"a./b", "dot or a space"}, {"..\\a", "one of"}, {"a\\b", "one of"},
        {"\\\\host\\share", "one of"}, {"\\\\?\\C:\\a", "one of"}, {"\\\\.\\pipe\\a", "one of"},
        {"C:", "one of"}, {"C:/a", "one of"}, {"C:a", "one of"}, {"a/c:/b", "one of"},
        {"a.txt::$DATA", "one of"}, {"a.txt:stream", "one of"}, {":a", "one of"}, {"a*", "one of"},
        {"a?", "one of"}, {"a\"", "one of"}, {"a<", "one of"}, {"a>", "one of"}, {"a|b", "one of"},
        {"/?\?/C:/a", "empty"}, {"con", "device"}, {"CON", "device"}, {"cOn", "device"}, {"nul", "device"},
        {"NUL.txt", "device"}, {"nul.tar.gz", "device"}, {"aux", "device"}, {"prn", "device"},
        {"a/con", "device"}, {"con/a", "device"}, {"con .txt", "device"}, {"com1", "device"},
        {"COM0", "device"}, {"com9.log", "device"}, {"lpt1", "device"}, {"LPT9", "device"},
        {"com\xc2\xb9", "device"}, {"lpt\xc2\xb2", "device"}, {"COM\xc2\xb3.txt", "device"},
        {"conin$", "device"}, {"CONOUT$", "device"}, {"clock$", "device"}, {"con.", "dot or a space"},
        {"PROGRA~1", "8.3"}, {"progra~1/a", "8.3"}, {"a/SECRET~2.TXT", "8.3"}, {"a~1", "8.3"},
        {"TE021F~1.HTM", "8.3"}, {"a~12345", "8.3"}, {"A~1.C", "8.3"}, {"~1", "8.3"}, {"a\nb", "control"},
        {"a\tb", "control"}, {"\x7f", "control"}, {"a\x01", "control"}, {"\xff", "UTF-8"},
        {"\xc0\xae\xc0\xae/a", "UTF-8"}, {"a\xc0\xaf\x62", "UTF-8"}, {"\xe0\x80\xae", "UTF-8"},
        {"\xed\xa0\x80", "UTF-8"}, {"a\xc3", "UTF-8"}, {"\xf4\x90\x80\x80", "UTF-8"},
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *why = wrong(rows[i].path, strlen(rows[i].path));
        if (why == NULL || strstr(why, rows[i].why) == NULL)
            fail_msg("\"%s\": %s", rows[i].path, why != NULL ? why : "accepted");
    }
}

TEST(every_byte)
{
    for (unsigned c = 0; c < 256; c++) {
        const char path[3] = {'a', (char)c, 'b'};
        const bool is_good = c >= 0x20 && c < 0x7f && strchr("\\:*?\"<>|", (int)c) == NULL;
        assert_int_equal(wrong(path, 3) == NULL, is_good); /* the slash separates two names */
    }
    assert_non_null(wrong("a\0b", 3));
    assert_non_null(wrong("a\0", 2));
}

TEST(at_the_limits_and_one_above)
{
    static char path[LS_PATH_BYTES_MAX + 1];
    memset(path, 'a', sizeof path);
    assert_null(wrong(path, LS_PATH_SEGMENT_BYTES_MAX));
    assert_non_null(wrong(path, LS_PATH_SEGMENT_BYTES_MAX + 1));
    for (size_t i = LS_PATH_SEGMENT_BYTES_MAX; i < LS_PATH_BYTES_MAX - 1; i += LS_PATH_SEGMENT_BYTES_MAX + 1)
        path[i] = '/';
    path[LS_PATH_BYTES_MAX - 1] = 'a';
    path[LS_PATH_BYTES_MAX - 2] = '/';
    assert_null(wrong(path, LS_PATH_BYTES_MAX));
    assert_non_null(wrong(path, LS_PATH_BYTES_MAX + 1));
}
