/* test_certificate.c - keys and requests that OpenSSL accepts, and texts that are no certificate or no key. A certificate
 * that an authority has made is read in tests/e2e/test_acme.py. */
/* sanitizers: asan; no thread starts */
#include "base/crypto/certificate.h"

#include "base/crypto/signature.h"
#include "support.h"

static size_t make_key(char pem[LS_KEY_PEM_BYTES_MAX])
{
    const int len = ls_key_make(pem);
    if (len == LS_ENOTSUP) skip(); /* built without OpenSSL */
    assert_true(len > 0);
    return (size_t)len;
}

TEST(a_key_signs_and_has_a_point)
{
    char pem[LS_KEY_PEM_BYTES_MAX], other[LS_KEY_PEM_BYTES_MAX];
    uint8_t point[LS_POINT_BYTES], of_other[LS_POINT_BYTES];
    const size_t len = make_key(pem), other_len = make_key(other);
    ls_signature_key *key;
    assert_int_equal(ls_key_point(pem, len, point), LS_OK);
    assert_int_equal(ls_key_point(other, other_len, of_other), LS_OK);
    assert_memory_not_equal(point, of_other, sizeof point);
    assert_int_equal(ls_signature_key_open(pem, len, &key), LS_OK);
    assert_int_equal(ls_signature_key_kind(key), LS_ES256);
    ls_signature_key_free(key);
    for (size_t n = 0; n + 2 < len; n++) { /* the last line may lack its end */
        char *part = test_copy_exact(pem, n);
        assert_int_equal(ls_key_point(part, n, point), LS_EINVAL);
        free(part);
    }
}

TEST(a_request_has_its_names)
{
    char pem[LS_KEY_PEM_BYTES_MAX];
    uint8_t der[LS_REQUEST_BYTES];
    const char *const names = "DNS:a.example,DNS:b.example";
    const size_t len = make_key(pem);
    const int bytes = ls_certificate_request(pem, len, names, der, sizeof der);
    assert_in_range(bytes, 200, sizeof der);
    int at = 0;
    while (at + 22 < bytes && memcmp(der + at,
                                     "\x82\x09"
                                     "a.example\x82\x09"
                                     "b.example",
                                     22) != 0)
        at++;
    assert_true(at + 22 < bytes);
    /* The length of a signature varies by a few bytes. */
    assert_int_equal(ls_certificate_request(pem, len, names, der, (size_t)bytes - 16), LS_ELIMIT);
    assert_int_equal(ls_certificate_request(pem, len, "a.example", der, sizeof der), LS_EINVAL);
    assert_int_equal(ls_certificate_request("", 0, names, der, sizeof der), LS_EINVAL);
}

TEST(what_is_no_certificate)
{
    char pem[LS_KEY_PEM_BYTES_MAX], names[LS_KEY_PEM_BYTES_MAX];
    const char *why = NULL;
    ls_certificate cert;
    const size_t len = make_key(pem);
    assert_int_equal(ls_certificate_read(pem, len, &cert, names, &why), LS_EINVAL);
    assert_string_equal(why, "there is no certificate");
    assert_int_equal(ls_certificate_read("", 0, &cert, names, &why), LS_EINVAL);
}
