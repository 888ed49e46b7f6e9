/* test_seal.c - scrypt with the examples of RFC 7914, sealed texts with one of the GCM specification, limits. */
/* sanitizers: asan; no thread starts */
#include "base/crypto/seal.h"

#include "support.h"

static void from_hex(const char *text, uint8_t *out)
{
    for (; *text != '\0'; text += 2) {
        const char digits[3] = {text[0], text[1], '\0'};
        *out++ = (uint8_t)strtoul(digits, NULL, 16);
    }
}

TEST(scrypt)
{
    static const struct {
        const char *password, *salt;
        unsigned log_n, r, p;
        const char *expected;
    } cases[] = {
        /* section 12 */
        {"", "", 4, 1, 1,
         "77d6576238657b203b19ca42c18a0497f16b4844e3074ae8dfdffa3fede21442fcd0069ded0948f8326a753a0fc81f17e8d3e0fb2e0d"
         "3628"
         "cf35e20c38d18906"},
        {"password", "NaCl", 10, 8, 16,
         "fdbabe1c9d3472007856e7190d01e9fe7c6ad7cbc8237830e77376634b3731622eaf30d92e22a3886ff109279d9830dac727afb94a83"
         "ee6d"
         "8360cbdfa2cc0640"},
        {"pleaseletmein", "SodiumChloride", 14, 8, 1,
         "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2d5432955613f0fcf62d49705242a9af9e61e85dc0d65"
         "1e40"
         "dfcf017b45575887"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        uint8_t out[64], expected[64];
        const int err = ls_scrypt(cases[n].password, strlen(cases[n].password), cases[n].salt, strlen(cases[n].salt),
                                  cases[n].log_n, cases[n].r, cases[n].p, out, sizeof out);
        if (err == LS_ENOTSUP) skip(); /* built without OpenSSL */
        assert_int_equal(err, LS_OK);
        from_hex(cases[n].expected, expected);
        assert_memory_equal(out, expected, sizeof out);
    }
}

static int scrypt_with(unsigned log_n, unsigned r, unsigned p)
{
    uint8_t out[32];
    return ls_scrypt("p", 1, "s", 1, log_n, r, p, out, sizeof out);
}

TEST(parameters_of_scrypt)
{
    if (scrypt_with(1, 1, 1) == LS_ENOTSUP) skip();
    assert_int_equal(scrypt_with(1, 1, 1), LS_OK);
    assert_int_equal(scrypt_with(0, 1, 1), LS_EINVAL);
    assert_int_equal(scrypt_with(1, 0, 1), LS_EINVAL);
    assert_int_equal(scrypt_with(1, 1, 0), LS_EINVAL);
    assert_int_equal(scrypt_with(15, 1, 1), LS_OK);
    assert_int_equal(scrypt_with(16, 1, 1), LS_EINVAL); /* N < 2^(128 * r / 8) */
    /* 128 * r * (2^17 + 1) bytes of at most 256 MiB */
    assert_int_equal(scrypt_with(17, 15, 1), LS_OK);
    assert_int_equal(scrypt_with(17, 16, 1), LS_ELIMIT);
    assert_int_equal(scrypt_with(31, 8, 1), LS_ELIMIT);
    assert_int_equal(scrypt_with(1, 1U << 31, 1), LS_ELIMIT);
    assert_int_equal(scrypt_with(1, 1, 1U << 31), LS_ELIMIT);
}

static const uint8_t some_key[LS_SEAL_KEY_BYTES] = {1, 2, 3};

TEST(an_example_of_gcm)
{
    uint8_t key[32], context[20], sealed[12 + 60 + 16], text[60], expected[60]; /* test case 16 of McGrew and Viega */
    from_hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308", key);
    from_hex("feedfacedeadbeeffeedfacedeadbeefabaddad2", context);
    from_hex("cafebabefacedbaddecaf888"
             "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e63"
             "93ba7a"
             "0abcc9f662"
             "76fc6ece0f4e1768cddf8853bb2d551b",
             sealed);
    from_hex("d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5"
             "aa0de6"
             "57ba637b39",
             expected);
    const int err = ls_unseal(key, context, sizeof context, sealed, sizeof sealed, text);
    if (err == LS_ENOTSUP) skip();
    assert_int_equal(err, LS_OK);
    assert_memory_equal(text, expected, sizeof text);
}

/* Each length up to that of some blocks, in place too, in memory of exactly that size. */
TEST(what_is_sealed_can_be_read)
{
    for (size_t len = 0; len <= 100; len++) {
        uint8_t *sealed = malloc(len + LS_SEAL_BYTES);
        char *text = test_copy_exact("", 0);
        text = realloc(text, len > 0 ? len : 1);
        memset(text, 'a' + (int)(len % 26), len);
        const int err = ls_seal(some_key, "context", 7, text, len, sealed);
        if (err == LS_OK) {
            assert_int_equal(
                ls_unseal(some_key, "context", 7, sealed, len + LS_SEAL_BYTES, sealed + LS_SEAL_NONCE_BYTES), LS_OK);
            assert_memory_equal(sealed + LS_SEAL_NONCE_BYTES, text, len);
        }
        free(text);
        free(sealed);
        if (err == LS_ENOTSUP) skip();
        assert_int_equal(err, LS_OK);
    }
}

TEST(a_change_of_any_bit_is_found)
{
    static const char text[] = "user 42";
    uint8_t sealed[sizeof text + LS_SEAL_BYTES], changed[sizeof sealed], out[sizeof text],
        other_key[LS_SEAL_KEY_BYTES];
    if (ls_seal(some_key, "c", 1, text, sizeof text, sealed) == LS_ENOTSUP) skip();
    assert_int_equal(ls_unseal(some_key, "c", 1, sealed, sizeof sealed, out), LS_OK);
    assert_memory_equal(out, text, sizeof text);
    for (size_t bit = 0; bit < 8 * sizeof sealed; bit++) {
        memcpy(changed, sealed, sizeof sealed);
        changed[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(ls_unseal(some_key, "c", 1, changed, sizeof changed, out), LS_EINVAL);
    }
    for (size_t len = 0; len < sizeof sealed; len++) {
        char *exact = test_copy_exact(sealed, len);
        assert_int_equal(ls_unseal(some_key, "c", 1, (uint8_t *)exact, len, out), LS_EINVAL);
        free(exact);
    }
    assert_int_equal(ls_unseal(some_key, "d", 1, sealed, sizeof sealed, out), LS_EINVAL);
    assert_int_equal(ls_unseal(some_key, "", 0, sealed, sizeof sealed, out), LS_EINVAL);
    memcpy(other_key, some_key, sizeof other_key);
    other_key[31] ^= 1;
    assert_int_equal(ls_unseal(other_key, "c", 1, sealed, sizeof sealed, out), LS_EINVAL);
}

TEST(a_nonce_is_used_once)
{
    uint8_t first[1 + LS_SEAL_BYTES], second[1 + LS_SEAL_BYTES];
    if (ls_seal(some_key, "", 0, "x", 1, first) == LS_ENOTSUP) skip();
    assert_int_equal(ls_seal(some_key, "", 0, "x", 1, second), LS_OK);
    assert_memory_not_equal(first, second, LS_SEAL_NONCE_BYTES);
}

TEST(equal)
{
    assert_true(ls_secret_equal("", "", 0));
    assert_true(ls_secret_equal("abc", "abc", 3));
    for (size_t n = 0; n < 3; n++) {
        char other[] = "abc";
        other[n] ^= 0x20;
        assert_false(ls_secret_equal("abc", other, 3));
    }
}
