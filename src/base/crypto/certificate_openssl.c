/* certificate_openssl.c - see certificate.h. */
#include "base/crypto/certificate.h"

#include <limits.h>
#include <string.h>

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "base/crypto/digest.h"
#include "base/err.h"

enum { UNCOMPRESSED = 4, DAY_S = 24 * 3600 }; /* SEC 1 section 2.3.3 */

/* Without it OpenSSL would ask for the password of an encrypted key at the terminal. */
static int no_password(char *to, int size, int writing, void *user)
{
    return -1;
}

static int read_key(const char *pem, size_t len, EVP_PKEY **out)
{
    int err = ls_digest_start();
    if (err < 0) return err;
    BIO *bio = len <= INT_MAX ? BIO_new_mem_buf(pem, (int)len) : NULL;
    *out = bio != NULL ? PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL) : NULL;
    BIO_free(bio);
    return *out != NULL ? LS_OK : ls_openssl_failed(LS_EINVAL);
}

int ls_key_make(char out[LS_KEY_PEM_BYTES_MAX])
{
    const int err = ls_digest_start();
    if (err < 0) return err;
    EVP_PKEY *key = EVP_EC_gen("P-256");
    BIO *bio = BIO_new(BIO_s_secmem());
    int len = LS_ENOMEM;
    if (key != NULL && bio != NULL && PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) == 1)
        len = BIO_read(bio, out, LS_KEY_PEM_BYTES_MAX);
    BIO_free(bio);
    EVP_PKEY_free(key);
    return len > 0 ? len : ls_openssl_failed(LS_ENOMEM);
}

int ls_key_point(const char *pem, size_t len, uint8_t out[LS_POINT_BYTES])
{
    uint8_t bytes[LS_POINT_BYTES + 1];
    size_t n = 0;
    EVP_PKEY *key;
    const int err = read_key(pem, len, &key);
    if (err < 0) return err;
    const int got = EVP_PKEY_get_octet_string_param(key, OSSL_PKEY_PARAM_PUB_KEY, bytes, sizeof bytes, &n);
    EVP_PKEY_free(key);
    if (got != 1 || n != sizeof bytes || bytes[0] != UNCOMPRESSED) return ls_openssl_failed(LS_EINVAL);
    memcpy(out, bytes + 1, LS_POINT_BYTES);
    return LS_OK;
}

int ls_certificate_request(const char *pem, size_t len, const char *names, uint8_t *out, size_t room)
{
    EVP_PKEY *key;
    unsigned char *bytes = NULL;
    int n = read_key(pem, len, &key);
    if (n < 0) return n;
    X509_REQ *request = X509_REQ_new();
    STACK_OF(X509_EXTENSION) *extensions = sk_X509_EXTENSION_new_null();
    X509_EXTENSION *alternatives = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, names);
    if (request != NULL && extensions != NULL && alternatives != NULL &&
        sk_X509_EXTENSION_push(extensions, alternatives) > 0) {
        alternatives = NULL; /* it belongs to the list */
        if (X509_REQ_set_pubkey(request, key) == 1 && X509_REQ_add_extensions(request, extensions) == 1 &&
            X509_REQ_sign(request, key, EVP_sha256()) > 0)
            n = i2d_X509_REQ(request, &bytes);
    }
    if (n <= 0) n = ls_openssl_failed(LS_EINVAL);
    if (n > 0 && (size_t)n > room) n = LS_ELIMIT;
    if (n > 0) memcpy(out, bytes, (size_t)n);
    OPENSSL_free(bytes);
    X509_EXTENSION_free(alternatives);
    sk_X509_EXTENSION_pop_free(extensions, X509_EXTENSION_free);
    X509_REQ_free(request);
    EVP_PKEY_free(key);
    return n;
}

/* ---- what a certificate says ----------------------------------------------------------------------------------- */

static int64_t seconds_of(const ASN1_TIME *time)
{
    int days = 0, seconds = 0;
    ASN1_TIME *epoch = ASN1_TIME_set(NULL, 0);
    (void)ASN1_TIME_diff(&days, &seconds, epoch, time);
    ASN1_TIME_free(epoch);
    return (int64_t)days * DAY_S + seconds;
}

/* They are shorter than the certificate in PEM. */
static size_t names_of(const X509 *cert, char *out)
{
    GENERAL_NAMES *list = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    size_t used = 0;
    for (int i = 0; i < sk_GENERAL_NAME_num(list); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(list, i);
        if (name->type != GEN_DNS) continue;
        const size_t len = (size_t)ASN1_STRING_length(name->d.dNSName);
        memcpy(out + used, ASN1_STRING_get0_data(name->d.dNSName), len);
        out[used + len] = '\n';
        used += len + 1;
    }
    GENERAL_NAMES_free(list);
    return used;
}

static int serial_of(X509 *cert, ls_certificate *out)
{
    enum { HEAD = 2 }; /* tag and length, which is below 128 (RFC 5280 section 4.1.2.2) */
    uint8_t der[HEAD + LS_SERIAL_BYTES_MAX], *at = der;
    const ASN1_INTEGER *serial = X509_get0_serialNumber(cert);
    const int n = i2d_ASN1_INTEGER(serial, NULL);
    if (n <= HEAD || n > (int)sizeof der) return LS_EINVAL;
    (void)i2d_ASN1_INTEGER(serial, &at);
    out->serial_len = (size_t)n - HEAD;
    memcpy(out->serial, der + HEAD, out->serial_len);
    return LS_OK;
}

static void key_id_of(X509 *cert, ls_certificate *out)
{
    const ASN1_OCTET_STRING *id = X509_get0_authority_key_id(cert);
    const int n = id != NULL ? ASN1_STRING_length(id) : 0;
    if (n <= 0 || n > LS_KEY_ID_BYTES_MAX) return;
    out->key_id_len = (size_t)n;
    memcpy(out->key_id, ASN1_STRING_get0_data(id), out->key_id_len);
}

static const char *wrong_with(STACK_OF(X509) * certs, const EVP_PKEY *key)
{
    if (sk_X509_num(certs) == 0) return "there is no certificate";
    if (key == NULL) return "there is no key";
    if (X509_check_private_key(sk_X509_value(certs, 0), key) != 1) return "the certificate is for another key";
    for (int i = 0; i + 1 < sk_X509_num(certs); i++) {
        X509 *issuer = sk_X509_value(certs, i + 1);
        if (X509_check_issued(issuer, sk_X509_value(certs, i)) != X509_V_OK ||
            X509_verify(sk_X509_value(certs, i), X509_get0_pubkey(issuer)) != 1)
            return "the chain is broken: a certificate in it has not signed the one before";
    }
    return NULL;
}

int ls_certificate_read(const char *pem, size_t len, ls_certificate *out, char *names, const char **why)
{
    EVP_PKEY *key = NULL;
    X509 *cert;
    ls_certificate made = {0};
    int err = read_key(pem, len, &key);
    if (err != LS_OK && err != LS_EINVAL) return err;
    BIO *bio = BIO_new_mem_buf(pem, (int)len);
    STACK_OF(X509) *certs = sk_X509_new_null();
    err = bio != NULL && certs != NULL ? LS_OK : LS_ENOMEM;
    while (err == LS_OK && (cert = PEM_read_bio_X509(bio, NULL, no_password, NULL)) != NULL)
        if (sk_X509_push(certs, cert) <= 0) {
            X509_free(cert);
            err = LS_ENOMEM;
        }
    if (err == LS_OK && (*why = wrong_with(certs, key)) != NULL) err = LS_EINVAL;
    if (err == LS_OK) {
        cert = sk_X509_value(certs, 0);
        *why = "its serial number is too long";
        err = serial_of(cert, &made);
        key_id_of(cert, &made);
        made.not_before = seconds_of(X509_get0_notBefore(cert));
        made.not_after = seconds_of(X509_get0_notAfter(cert));
        made.names_len = names_of(cert, names);
    }
    if (err == LS_OK) *out = made;
    ERR_clear_error();
    BIO_free(bio);
    sk_X509_pop_free(certs, X509_free);
    EVP_PKEY_free(key);
    return err;
}
