/* test_base64.c - base64 and base64url with the examples of RFC 4648 section 10, hexadecimal digits, and what is
 * refused. */
/* sanitizers: asan; no thread starts */
#include "codec/base64.h"

#include "support.h"

TEST(examples)
{
    static const struct {
        const char *bytes, *text, *url;
    } cases[] = {
        /* clang-format off */
        {"", "", ""}, {"f", "Zg==", "Zg"}, {"fo", "Zm8=", "Zm8"}, {"foo", "Zm9v", "Zm9v"},
        {"foob", "Zm9vYg==", "Zm9vYg"}, {"fooba", "Zm9vYmE=", "Zm9vYmE"}, {"foobar", "Zm9vYmFy", "Zm9vYmFy"},
        {"\xfb\xff\xbf", "+/+/", "-_-_"},
        /* clang-format on */
    };
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        for (int url = 0; url < 2; url++) {
            const char *expected = url ? cases[n].url : cases[n].text;
            const size_t len = strlen(cases[n].bytes);
            char out[16], *exact = test_copy_exact(cases[n].bytes, len),
                          *text = test_copy_exact(expected, strlen(expected));
            assert_int_equal(ls_base64_write(exact, len, url, out), strlen(expected));
            assert_memory_equal(out, expected, strlen(expected));
            assert_int_equal(ls_base64_read(text, strlen(expected), url, out), len);
            assert_memory_equal(out, cases[n].bytes, len);
            free(exact);
            free(text);
        }
    }
}

TEST(every_length_comes_back)
{
    uint8_t bytes[256], back[256 + 8];
    char text[LS_BASE64_CHARS(256)], hex[512];
    for (size_t n = 0; n < sizeof bytes; n++) bytes[n] = (uint8_t)(n * 151);
    for (size_t len = 0; len <= sizeof bytes; len++) {
        for (int url = 0; url < 2; url++) {
            const size_t chars = ls_base64_write(bytes, len, url, text);
            assert_int_equal(ls_base64_read(text, chars, url, back), len);
            assert_memory_equal(back, bytes, len);
        }
        ls_hex_write(bytes, len, hex);
        assert_true(ls_hex_read(hex, 2 * len, back));
        assert_memory_equal(back, bytes, len);
    }
}

TEST(what_is_refused)
{
    static const char *const wrong[] = {"Z",     "Zg=", "Zh", "Zh==", "Zm9=", "Zm9",  "Zg==Zg==", "Zm 9v",   "Zm9v\n",
                                        "Zm9vZ", "=",   "==", "====", "Z===", "Zm-v", "Zm_v",     "Zm9v===="};
    static const char *const wrong_url[] = {"Zm+v", "Zm/v", "Zh", "Z", "Zm9v="};
    static const char *const wrong_hex[] = {"0", "0g", "g0", "0x", "000", " 0", "0/", "0:", "0@", "0G", "0`"};
    char out[32];
    for (size_t n = 0; n < sizeof wrong / sizeof wrong[0]; n++)
        assert_int_equal(ls_base64_read(wrong[n], strlen(wrong[n]), false, out), -1);
    for (size_t n = 0; n < sizeof wrong_url / sizeof wrong_url[0]; n++)
        assert_int_equal(ls_base64_read(wrong_url[n], strlen(wrong_url[n]), true, out), -1);
    for (size_t n = 0; n < sizeof wrong_hex / sizeof wrong_hex[0]; n++)
        assert_false(ls_hex_read(wrong_hex[n], strlen(wrong_hex[n]), out));
    assert_int_equal(ls_base64_read("Zm\0v", 4, false, out), -1);
    assert_int_equal(ls_base64_read("Zg", 2, false, out), 1); /* padding may be missing */
    assert_int_equal(ls_base64_read("Zg==", 4, true, out), 1);
    assert_true(ls_hex_read("aF", 2, out));
    assert_int_equal((uint8_t)out[0], 0xaf);
}
