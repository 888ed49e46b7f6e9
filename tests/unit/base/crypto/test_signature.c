/* test_signature.c - the examples of RFC 7515 (appendices A.2 and A.3) and RFC 8037 (appendix A), and what is
 * refused. */
/* sanitizers: asan; no thread starts */
#include "base/crypto/signature.h"

#include "codec/base64.h"
#include "support.h"

/* The keys of the RFCs in PEM. */
static const char rsa_public[] = "-----BEGIN PUBLIC KEY-----\n"
                                 "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAofgWCuLjybRlzo0tZWJj\n"
                                 "NiuSfb4p4fAkd/wWJcyQoTbji9k0l8W26mPddxHmfHQp+Vaw+4qPCJrcS2mJPMEz\n"
                                 "P1Pt0Bm4d4QlL+yRT+SFd2lZS+pCgNMsD1W/YpRPEwOWvG6b32690r2jZ47soMZo\n"
                                 "9wGzjb/7OMg0LOL+bSf63kpaSHSXndS5z5rexMdbBYUsLA9e+KXBdQOS+UTo7WTB\n"
                                 "EMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6/I5IhlJH7aGhyxX\n"
                                 "FvUK+DWNmoudF8NAco9/h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXp\n"
                                 "oQIDAQAB\n"
                                 "-----END PUBLIC KEY-----\n";
static const char ec_public[] = "-----BEGIN PUBLIC KEY-----\n"
                                "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEf83OJ3D2xF1Bg8vub9tLe1gHMzV7\n"
                                "6e8Tus9uPHvRVEXH8UTNG72bfocs3+257rn0s2ldbqkLJK2KRiMohYjlrQ==\n"
                                "-----END PUBLIC KEY-----\n";
static const char ec_private[] = "-----BEGIN PRIVATE KEY-----\n"
                                 "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgjpsQnnGQmL+YBIff\n"
                                 "H1136cspYG6+0iY7X1fCE9+E9LKhRANCAAR/zc4ncPbEXUGDy+5v20t7WAczNXvp\n"
                                 "7xO6z248e9FURcfxRM0bvZt+hyzf7bnuufSzaV1uqQskrYpGIyiFiOWt\n"
                                 "-----END PRIVATE KEY-----\n";
static const char ed_public[] = "-----BEGIN PUBLIC KEY-----\n"
                                "MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n"
                                "-----END PUBLIC KEY-----\n";
static const char ed_private[] = "-----BEGIN PRIVATE KEY-----\n"
                                 "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n"
                                 "-----END PRIVATE KEY-----\n";

static const struct example {
    const char *key;
    ls_signature_kind kind;
    const char *data, *signature; /* base64url */
} examples[] = {
    {rsa_public, LS_RS256,
     "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19"
     "yb290Ijp0cnVlfQ",
     "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9"
     "uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB"
     "_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rq"
     "Vt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"},
    {ec_public, LS_ES256,
     "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19"
     "yb290Ijp0cnVlfQ",
     "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"},
    {ec_private, LS_ES256,
     "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19"
     "yb290Ijp0cnVlfQ",
     "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"},
    {ed_public, LS_EDDSA, "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc",
     "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"},
    {ed_private, LS_EDDSA, "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc",
     "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"},
};
enum { EXAMPLES = sizeof examples / sizeof examples[0] };

static ls_signature_key *key_open(const char *pem)
{
    ls_signature_key *key;
    char *exact = test_copy_exact(pem, strlen(pem));
    const int err = ls_signature_key_open(exact, strlen(pem), &key);
    free(exact);
    if (err == LS_ENOTSUP) skip(); /* built without OpenSSL */
    assert_int_equal(err, LS_OK);
    return key;
}

/* The signature of an example; its length. */
static size_t signature_of(const struct example *e, uint8_t *out)
{
    const ptrdiff_t len = ls_base64_read(e->signature, strlen(e->signature), true, out);
    assert_true(len > 0);
    return (size_t)len;
}

TEST(the_examples)
{
    for (int n = 0; n < EXAMPLES; n++) {
        uint8_t signature[512];
        ls_signature_key *key = key_open(examples[n].key);
        const size_t len = signature_of(&examples[n], signature);
        assert_int_equal(ls_signature_key_kind(key), examples[n].kind);
        assert_int_equal(ls_signature_check(key, examples[n].data, strlen(examples[n].data), signature, len), LS_OK);
        ls_signature_key_free(key);
    }
}

TEST(a_changed_signature_or_text)
{
    for (int n = 0; n < EXAMPLES; n++) {
        uint8_t signature[512] = {0};
        const char *data = examples[n].data;
        ls_signature_key *key = key_open(examples[n].key);
        const size_t len = signature_of(&examples[n], signature);
        assert_int_equal(ls_signature_check(key, data, strlen(data) - 1, signature, len), LS_EINVAL);
        for (size_t shorter = 0; shorter < len; shorter++) {
            char *exact = test_copy_exact(signature, shorter);
            assert_int_equal(ls_signature_check(key, data, strlen(data), (uint8_t *)exact, shorter), LS_EINVAL);
            free(exact);
        }
        for (size_t at = 0; at < len; at++) {
            signature[at] ^= 1;
            assert_int_equal(ls_signature_check(key, data, strlen(data), signature, len), LS_EINVAL);
            signature[at] ^= 1;
        }
        assert_int_equal(ls_signature_check(key, data, strlen(data), signature, len + 1), LS_EINVAL);
        memset(signature, 0, len); /* of ES256: r = s = 0 */
        assert_int_equal(ls_signature_check(key, data, strlen(data), signature, len), LS_EINVAL);
        ls_signature_key_free(key);
    }
}

TEST(sign)
{
    for (int n = 0; n < EXAMPLES; n++) {
        uint8_t made[LS_SIGNATURE_BYTES_MAX], expected[512];
        ls_signature_key *key = key_open(examples[n].key);
        const size_t len = strlen(examples[n].data);
        const int bytes = ls_signature_make(key, examples[n].data, len, made);
        if (examples[n].key != ec_private && examples[n].key != ed_private) {
            assert_int_equal(bytes, LS_EINVAL); /* a public key */
        } else {
            assert_int_equal(bytes, 64);
            assert_int_equal(ls_signature_check(key, examples[n].data, len, made, (size_t)bytes), LS_OK);
            (void)signature_of(&examples[n], expected);
            if (examples[n].kind == LS_EDDSA) assert_memory_equal(made, expected, 64); /* deterministic */
        }
        ls_signature_key_free(key);
    }
}

/* A number of an ES256 signature that begins with a zero byte keeps its 32 bytes. */
TEST(numbers_of_es256_have_their_full_length)
{
    ls_signature_key *key = key_open(ec_private);
    bool zero = false;
    for (unsigned n = 0; !zero && n < 20000; n++) { /* one in 128 has such a number */
        uint8_t made[LS_SIGNATURE_BYTES_MAX];
        assert_int_equal(ls_signature_make(key, &n, sizeof n, made), 64);
        zero = made[0] == 0 || made[32] == 0;
        if (zero) assert_int_equal(ls_signature_check(key, &n, sizeof n, made, 64), LS_OK);
    }
    assert_true(zero);
    ls_signature_key_free(key);
}

TEST(what_is_no_key)
{
    static const struct {
        const char *pem;
        int err;
    } cases[] = {
        {"", LS_EINVAL},
        {"secret", LS_EINVAL},
        {"-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n", LS_EINVAL},
        {"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----\n", LS_EINVAL},
        {/* RSA of 1,024 bits */
         "-----BEGIN PUBLIC KEY-----\n"
         "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDWeNBETrIhf4N019RWUpWfrwTu\n"
         "8VoF+gQ7ANVR7iqnoye0t/Mp9o+y5THoOkRMRlPUOCNfLx9dUAY+7nXC7t7nFsUz\n"
         "zVnlH7hYNYctwhegj9tvdKuRxCWeCG0eAFkp/Z/YXewihuuCPSoj40Bck7rGhq9Y\n"
         "giAHvPmOCDKtYb13HwIDAQAB\n"
         "-----END PUBLIC KEY-----\n",
         LS_ENOTSUP},
        {/* P-384 */
         "-----BEGIN PUBLIC KEY-----\n"
         "MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEA2gmyFkeVvjwF39YJoxoN4JAQcB24+vs\n"
         "yLMtzlDwWDoH34ZGC8SFX7F3uoRme9PVKwd2ntfLYgifXsskudzJO6WW6D864xBC\n"
         "YiWqhESOmHRwegRe88Zx1lx6Yez89vAc\n"
         "-----END PUBLIC KEY-----\n",
         LS_ENOTSUP},
        {/* X25519 */
         "-----BEGIN PUBLIC KEY-----\n"
         "MCowBQYDK2VuAyEADnb4Xs+zab9Lv8bLcBbIUF7LGI9zrum84F7oh811rnE=\n"
         "-----END PUBLIC KEY-----\n",
         LS_ENOTSUP},
        {/* encrypted */
         "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
         "MIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAj4M0WxjzG5/gICCAAw\n"
         "DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEJjhXwgwmWgeEx920i0W+OQEQOY6\n"
         "bMS4NI1XqhfpPgW+6X1QHXDiWV5HDqSgXpHHb0t5zflhlLt4zMWNqsicozTkK11e\n"
         "SscMMPqTZWUOClWX5WQ=\n"
         "-----END ENCRYPTED PRIVATE KEY-----\n",
         LS_EINVAL},
    };
    ls_signature_key *key;
    if (ls_signature_key_open(ed_public, sizeof ed_public - 1, &key) == LS_ENOTSUP) skip();
    ls_signature_key_free(key);
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++)
        assert_int_equal(ls_signature_key_open(cases[n].pem, strlen(cases[n].pem), &key), cases[n].err);
}
