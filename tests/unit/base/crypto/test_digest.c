/* test_digest.c - digests and HMAC with the examples of FIPS 180, RFC 1321, RFC 6455, RFC 2202 and RFC 4231. */
/* sanitizers: asan; no thread starts */
#include "base/crypto/digest.h"

#include "support.h"

TEST(sha1)
{
    static const struct {
        const char *text, *digest;
    } cases[] = {
        {"", "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
        {"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "84983e441c3bd26ebaae4aa1f95129e5e54670f1"},
        {"dGhlIHNhbXBsZSBub25jZQ==258EAFA5-E914-47DA-95CA-C5AB0DC85B11", "b37a4f2cc0624f1690f64606cf385945b2bec4ea"},
    };
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

/* The digest of the text in two parts, the first of `first` bytes. */
static void check(ls_digest digest, const char *key, size_t key_len, const char *text, size_t first,
                  const char *expected)
{
    uint8_t out[LS_DIGEST_BYTES_MAX];
    char hex[2 * LS_DIGEST_BYTES_MAX + 1];
    ls_hasher *hash;
    const int err = ls_hasher_open(digest, key, key_len, &hash);
    if (err == LS_ENOTSUP) skip(); /* built without OpenSSL, or the digest is disabled */
    assert_int_equal(err, LS_OK);
    assert_int_equal(ls_hasher_add(hash, text, first), LS_OK);
    assert_int_equal(ls_hasher_add(hash, text + first, strlen(text) - first), LS_OK);
    const int len = ls_hasher_end(hash, out);
    ls_hasher_free(hash);
    assert_int_equal(2 * len, strlen(expected));
    for (int i = 0; i < len; i++) snprintf(hex + 2 * i, 3, "%02x", out[i]);
    assert_string_equal(hex, expected);
}

TEST(digests)
{
    static const struct {
        ls_digest digest;
        const char *of_abc;
    } cases[] = {
        {LS_DIGEST_MD5, "900150983cd24fb0d6963f7d28e17f72"},
        {LS_DIGEST_SHA1, "a9993e364706816aba3e25717850c26c9cd0d89d"},
        {LS_DIGEST_SHA256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {LS_DIGEST_SHA384,
         "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7"},
        {LS_DIGEST_SHA512,
         "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd"
         "454d4423643ce80e2a9ac94fa54ca49f"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++)
        for (size_t first = 0; first <= 3; first++) check(cases[n].digest, NULL, 0, "abc", first, cases[n].of_abc);
}

TEST(hmac)
{
    static char ones[20], long_key[131], dd[51];
    static const char hash_first[] = "Test Using Larger Than Block-Size Key - Hash Key First",
                      jefe[] = "what do ya want for nothing?";
    memset(ones, 0x0b, sizeof ones);
    memset(long_key, 0xaa, sizeof long_key);
    memset(dd, 0xdd, 50);
    const struct {
        ls_digest digest;
        const char *key;
        size_t key_len;
        const char *text, *code;
    } cases[] = {
        {LS_DIGEST_MD5, "Jefe", 4, jefe, "750c783e6ab0b503eaa86e310a5db738"}, /* RFC 2202 */
        {LS_DIGEST_SHA1, "Jefe", 4, jefe, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"},
        {LS_DIGEST_SHA256, ones, 20, "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {LS_DIGEST_SHA384, ones, 20, "Hi There",
         "afd03944d84895626b0825f4ab46907f15f9dadbe4101ec682aa034c7cebc59cfaea9ea9076ede7f4af152e8b2fa9cb6"},
        {LS_DIGEST_SHA512, ones, 20, "Hi There",
         "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cdedaa833b7d6b8a702038b274eaea3f4e4be9d914eeb61"
         "f17"
         "02e696c203a126854"},
        {LS_DIGEST_SHA256, "Jefe", 4, jefe, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {LS_DIGEST_SHA256, long_key, 20, dd, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
        {LS_DIGEST_SHA256, long_key, 131, hash_first,
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {LS_DIGEST_SHA512, long_key, 131, hash_first,
         "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f3526b56d037e05f2598bd0fd2215d6a1e5295e64f73f63f"
         "0ae"
         "c8b915a985d786598"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++)
        check(cases[n].digest, cases[n].key, cases[n].key_len, cases[n].text, n % 5, cases[n].code);
}

TEST(an_empty_key_is_a_key) /* RFC 2104: it is a block of zeros */
{
    check(LS_DIGEST_SHA256, "", 0, "", 0, "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}
