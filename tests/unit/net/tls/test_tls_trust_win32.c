/* test_tls_trust_win32.c - the trusted certificates of Windows: the store of this system, and stores in memory in its
 * place, with certificates that OpenSSL makes. */
#include <winsock2.h>

#include <windows.h>
/* the order of these is significant */
#include <wincrypt.h>

#include <openssl/evp.h>
#include <openssl/x509v3.h>

#include "net/tls/tls_trust.h"
#include "support.h"

static struct {
    bool replaced;
    HCERTSTORE root, disallowed; /* NULL: cannot be opened */
    DWORD error;                 /* why not */
} sys;

extern HCERTSTORE(WINAPI *__real___imp_CertOpenStore)(LPCSTR, DWORD, HCRYPTPROV_LEGACY, DWORD, const void *);

static HCERTSTORE WINAPI fake_open(LPCSTR provider, DWORD encoding, HCRYPTPROV_LEGACY crypt, DWORD flags,
                                   const void *name)
{
    if (!sys.replaced || provider != CERT_STORE_PROV_SYSTEM_W)
        return __real___imp_CertOpenStore(provider, encoding, crypt, flags, name);
    const HCERTSTORE store = wcscmp(name, L"ROOT") == 0 ? sys.root : sys.disallowed;
    if (store == NULL) SetLastError(sys.error);
    return store != NULL ? CertDuplicateStore(store) : NULL;
}

HCERTSTORE(WINAPI *__wrap___imp_CertOpenStore)
(LPCSTR, DWORD, HCRYPTPROV_LEGACY, DWORD, const void *) = fake_open;

static HCERTSTORE memory_store(void)
{
    const HCERTSTORE store = __real___imp_CertOpenStore(CERT_STORE_PROV_MEMORY, 0, 0, 0, NULL);
    assert_non_null(store);
    return store;
}

/* Add a self-signed certificate of this name; usage NULL: without the extension extendedKeyUsage. */
static void add_cert(HCERTSTORE store, EVP_PKEY *key, const char *name, const char *usage)
{
    unsigned char *der = NULL;
    X509 *cert = X509_new();
    X509_NAME *subject = X509_get_subject_name(cert);
    assert_int_equal(X509_set_version(cert, 2), 1);
    assert_int_equal(ASN1_INTEGER_set(X509_get_serialNumber(cert), 1), 1);
    assert_non_null(X509_gmtime_adj(X509_getm_notBefore(cert), 0));
    assert_non_null(X509_gmtime_adj(X509_getm_notAfter(cert), 3600));
    assert_int_equal(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0),
                     1);
    assert_int_equal(X509_set_issuer_name(cert, subject), 1);
    assert_int_equal(X509_set_pubkey(cert, key), 1);
    if (usage != NULL) {
        X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, NID_ext_key_usage, usage);
        assert_non_null(extension);
        assert_int_equal(X509_add_ext(cert, extension, -1), 1);
        X509_EXTENSION_free(extension);
    }
    assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
    const int len = i2d_X509(cert, &der);
    assert_true(len > 0);
    assert_true(
        CertAddEncodedCertificateToStore(store, X509_ASN_ENCODING, der, (DWORD)len, CERT_STORE_ADD_ALWAYS, NULL));
    OPENSSL_free(der);
    X509_free(cert);
}

typedef struct got {
    int count, stop_after; /* stop_after 0: never */
    char names[256];
} got;

static bool collect(void *user, const void *der, size_t len)
{
    got *g = user;
    char name[64] = "?";
    const unsigned char *at = der;
    X509 *cert = d2i_X509(NULL, &at, (long)len);
    assert_non_null(cert);
    assert_ptr_equal(at, (const unsigned char *)der + len); /* nothing behind it */
    (void)X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, name, sizeof name);
    X509_free(cert);
    if (strlen(g->names) + strlen(name) + 2 < sizeof g->names) strcat(strcat(g->names, name), " ");
    return ++g->count != g->stop_after;
}

TEST(the_store_of_this_system)
{
    got g = {0};
    sys.replaced = false;
    assert_int_equal(ls_tls_trust_each(collect, &g), LS_OK);
    print_message("  %d certificates\n", g.count);
}

TEST(what_is_trusted_for_servers)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    assert_non_null(key);
    sys.replaced = true;
    sys.root = memory_store();
    sys.disallowed = memory_store();
    add_cert(sys.root, key, "any", NULL);
    add_cert(sys.root, key, "server", "serverAuth");
    add_cert(sys.root, key, "client", "clientAuth");
    add_cert(sys.root, key, "both", "clientAuth,serverAuth");
    add_cert(sys.root, key, "revoked", NULL);
    PCCERT_CONTEXT revoked =
        CertFindCertificateInStore(sys.root, X509_ASN_ENCODING, 0, CERT_FIND_SUBJECT_STR_W, L"revoked", NULL);
    assert_non_null(revoked);
    assert_true(CertAddCertificateContextToStore(sys.disallowed, revoked, CERT_STORE_ADD_ALWAYS, NULL));
    CertFreeCertificateContext(revoked);

    got all = {0}, one = {.stop_after = 1};
    assert_int_equal(ls_tls_trust_each(collect, &all), LS_OK);
    assert_int_equal(all.count, 3);
    assert_non_null(strstr(all.names, "any "));
    assert_non_null(strstr(all.names, "server "));
    assert_non_null(strstr(all.names, "both "));
    assert_int_equal(ls_tls_trust_each(collect, &one), LS_ESYS);
    assert_int_equal(one.count, 1);

    /* Every context was freed, or the store could not be closed. */
    assert_true(CertCloseStore(sys.root, CERT_CLOSE_STORE_CHECK_FLAG));
    assert_true(CertCloseStore(sys.disallowed, CERT_CLOSE_STORE_CHECK_FLAG));
    EVP_PKEY_free(key);
}

TEST(stores_that_cannot_be_opened)
{
    got g = {0};
    sys.replaced = true;
    sys.root = sys.disallowed = NULL;
    sys.error = ERROR_ACCESS_DENIED;
    assert_int_equal(ls_tls_trust_each(collect, &g), LS_ESYS);
    sys.disallowed = memory_store();
    assert_int_equal(ls_tls_trust_each(collect, &g), LS_ESYS);
    CertCloseStore(sys.disallowed, 0);
    sys.root = memory_store();
    sys.disallowed = NULL;
    assert_int_equal(ls_tls_trust_each(collect, &g), LS_ESYS); /* it might name one of the roots */
    sys.error = ERROR_FILE_NOT_FOUND;
    assert_int_equal(ls_tls_trust_each(collect, &g), LS_OK); /* nothing is disallowed */
    CertCloseStore(sys.root, 0);
    assert_int_equal(g.count, 0);
}
