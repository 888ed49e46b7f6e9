/* test_quote_win32.c - a command line built from arguments, parsed back with CommandLineToArgvW. */
#include <windows.h>

#include <shellapi.h>

#include "cli/main_win32.h"
#include "support.h"

enum { ROOM = 2048, COUNT_MAX = 40 };

static void check_round(const wchar_t *const *arguments, int count)
{
    wchar_t line[ROOM] = L"";
    int got = 0;
    for (int i = 0; i < count; i++) assert_int_equal(ls_main_quote(line, ROOM, arguments[i]), 0);
    wchar_t **back = CommandLineToArgvW(line, &got);
    assert_non_null(back);
    assert_int_equal(got, count);
    for (int i = 0; i < count; i++) assert_int_equal(wcscmp(back[i], arguments[i]), 0);
    LocalFree(back);
}

TEST(arguments_survive_a_round_trip)
{
    static const wchar_t *const arguments[] = {
        L"C:\\Program Files\\luaserve.exe",
        L"",
        L" ",
        L"a b",
        L"\"",
        L"\\",
        L"\\\\",
        L"a\\",
        L"a b\\",
        L"a b\\\\",
        L"\\\"",
        L"\\\\\"",
        L"a\"b",
        L"a\\\"b c",
        L"\"quoted\"",
        L"\t",
        L"*",
        L"%PATH%",
        L"^&|<>",
        L"日本語",
        L"\\\\host\\share\\",
        L"--name=x y",
        L"'",
    };
    check_round(arguments, sizeof arguments / sizeof arguments[0]);
    for (size_t i = 1; i < sizeof arguments / sizeof arguments[0]; i++) {
        const wchar_t *const two[] = {L"p", arguments[i]};
        check_round(two, 2);
    }
}

/* Every string of up to 5 of the special characters. */
TEST(every_short_string_survives_a_round_trip)
{
    static const wchar_t letters[] = L"\\\" a";
    for (unsigned len = 0; len <= 5; len++) {
        for (unsigned n = 0; n < 1u << (2 * len); n++) {
            wchar_t text[6] = L"";
            for (unsigned i = 0; i < len; i++) text[i] = letters[n >> (2 * i) & 3];
            const wchar_t *const arguments[] = {L"p", text, L"last"};
            check_round(arguments, 3);
        }
    }
}

TEST(simple_arguments_are_not_quoted)
{
    wchar_t line[ROOM] = L"";
    assert_int_equal(ls_main_quote(line, ROOM, L"C:\\luaserve.exe"), 0);
    assert_int_equal(ls_main_quote(line, ROOM, L"--threads"), 0);
    assert_int_equal(wcscmp(line, L"C:\\luaserve.exe --threads"), 0);
}

TEST(at_the_limit_and_one_past_it)
{
    wchar_t line[12] = L"a";
    assert_int_equal(ls_main_quote(line, 12, L"b \\\"cd"), -1); /* one past the size */
    assert_int_equal(wcscmp(line, L"a"), 0);
    assert_int_equal(ls_main_quote(line, 12, L"b \\\"c"), 0);
    assert_int_equal(wcscmp(line, L"a \"b \\\\\\\"c\""), 0);
    assert_int_equal(ls_main_quote(line, 12, L""), -1);
    assert_int_equal(wcslen(line), 11);
}
