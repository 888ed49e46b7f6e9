/* test_digest.c - SHA-1 with the examples of FIPS 180 and RFC 6455. */
/* sanitizers: asan; no thread starts */
#include "base/digest.h"

#include <stdio.h>

#include "base/err.h"
#include "support.h"

static void examples(void **unused)
{
    static const struct {
        const char *text, *digest;
    } cases[] = {
        {"", "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
        {"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "84983e441c3bd26ebaae4aa1f95129e5e54670f1"},
        {"dGhlIHNhbXBsZSBub25jZQ==258EAFA5-E914-47DA-95CA-C5AB0DC85B11", "b37a4f2cc0624f1690f64606cf385945b2bec4ea"},
    };
    (void)unused;
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        uint8_t digest[LS_SHA1_BYTES];
        char hex[2 * LS_SHA1_BYTES + 1];
        const int err = ls_sha1(cases[n].text, strlen(cases[n].text), digest);
        if (err == LS_ENOTSUP) skip(); /* built without OpenSSL */
        assert_int_equal(err, LS_OK);
        for (size_t i = 0; i < LS_SHA1_BYTES; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
        assert_string_equal(hex, cases[n].digest);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(examples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
