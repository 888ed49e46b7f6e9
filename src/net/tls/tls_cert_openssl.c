/* tls_cert_openssl.c - certificates and keys: read from PEM files, or made in memory; the names that a certificate is
 * for, its dates, its fingerprint. No function keeps state; any thread. */
#include <stdio.h>
#include <string.h>

#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include "base/err.h"
#include "codec/http_chars.h"
#include "net/tls/tls_internal_openssl.h"

enum { SELF_SIGNED_DAYS = 365, NAMES_MAX = 10000 };

/* ---- PEM files ---------------------------------------------------------------------------------------------- */

/* Of a key that is encrypted. */
typedef struct password {
    const char *text;
    bool asked;
} password;

static int give_password(char *to, int size, int writing, void *user)
{
    password *p = user;
    p->asked = true;
    if (p->text == NULL) return -1;
    const size_t len = strlen(p->text);
    if (len > (size_t)size) return -1;
    memcpy(to, p->text, len);
    return (int)len;
}

static int no_memory(const ls_tls_text *why)
{
    return ls_tls_fail(why, LS_ENOMEM, "%s", ls_err_text(LS_ENOMEM));
}

/* Whether the last call failed because the file has no further block of this type. */
static bool at_end_of_pem(void)
{
    const unsigned long code = ERR_peek_last_error();
    return ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE;
}

static int parse_certs(const char *path, BIO *bio, STACK_OF(X509) * certs, const ls_tls_text *why)
{
    password none = {NULL, false};
    char room[LS_TLS_REASON_BYTES];
    X509 *cert;
    ERR_clear_error();
    while ((cert = PEM_read_bio_X509(bio, NULL, give_password, &none)) != NULL) {
        if (sk_X509_push(certs, cert) > 0) continue;
        X509_free(cert);
        return no_memory(why);
    }
    if (!at_end_of_pem())
        return ls_tls_fail(why, LS_EINVAL, "'%s' holds an invalid certificate: %s", path, ls_tls_reason(room));
    ERR_clear_error();
    if (sk_X509_num(certs) == 0) return ls_tls_fail(why, LS_EINVAL, "'%s' holds no certificate in PEM format", path);
    return LS_OK;
}

static int certs_of(const char *path, const char *bytes, size_t len, STACK_OF(X509) * *out, const ls_tls_text *why)
{
    BIO *bio = BIO_new_mem_buf(bytes, (int)len);
    STACK_OF(X509) *certs = sk_X509_new_null();
    const int err = bio == NULL || certs == NULL ? no_memory(why) : parse_certs(path, bio, certs, why);
    BIO_free(bio);
    if (err == LS_OK)
        *out = certs;
    else
        sk_X509_pop_free(certs, X509_free);
    return err;
}

int ls_tls_read_certs(const char *path, STACK_OF(X509) * *out, const ls_tls_text *why)
{
    char *bytes;
    size_t len;
    int err = ls_tls_read_file(path, &bytes, &len, why);
    if (err < 0) return err;
    err = certs_of(path, bytes, len, out, why);
    OPENSSL_clear_free(bytes, len + 1); /* the file may hold a key */
    return err;
}

static int key_of(const char *path, const char *bytes, size_t len, const char *text, EVP_PKEY **out,
                  const ls_tls_text *why)
{
    char room[LS_TLS_REASON_BYTES];
    password p = {text, false};
    int err = LS_OK;
    BIO *bio = BIO_new_mem_buf(bytes, (int)len);
    ERR_clear_error();
    EVP_PKEY *key = bio != NULL ? PEM_read_bio_PrivateKey(bio, NULL, give_password, &p) : NULL;
    if (key != NULL)
        *out = key;
    else if (bio == NULL)
        err = no_memory(why);
    else if (p.asked && text == NULL)
        err = ls_tls_fail(why, LS_EINVAL, "the key in '%s' is encrypted and needs a password", path);
    else if (p.asked)
        err = ls_tls_fail(why, LS_EINVAL, "the password does not open the key in '%s'", path);
    else if (strstr(bytes, "PRIVATE KEY-----") == NULL)
        err = ls_tls_fail(why, LS_EINVAL, "'%s' holds no private key in PEM format", path);
    else
        err = ls_tls_fail(why, LS_EINVAL, "'%s' holds an invalid private key: %s", path, ls_tls_reason(room));
    ERR_clear_error();
    BIO_free(bio);
    return err;
}

static int read_key(const char *path, const char *text, EVP_PKEY **out, const ls_tls_text *why)
{
    char *bytes;
    size_t len;
    int err = ls_tls_read_file(path, &bytes, &len, why);
    if (err < 0) return err;
    err = key_of(path, bytes, len, text, out, why);
    OPENSSL_clear_free(bytes, len + 1);
    return err;
}

/* Make a pair of what was read, `err` being the result of that. */
static int join(int err, ls_tls_pair *pair, const char *key, const char *cert, ls_tls_pair *out,
                const ls_tls_text *why)
{
    if (err == LS_OK && X509_check_private_key(pair->cert, pair->key) != 1)
        err = ls_tls_fail(why, LS_EINVAL, "the key in '%s' does not belong to the certificate in '%s'", key, cert);
    ERR_clear_error();
    if (err == LS_OK)
        *out = *pair;
    else
        ls_tls_pair_drop(pair);
    return err;
}

int ls_tls_pair_read(const ls_tls_cert *files, ls_tls_pair *out, const ls_tls_text *why)
{
    ls_tls_pair pair = {NULL, NULL, NULL};
    int err = ls_tls_read_certs(files->cert, &pair.chain, why);
    if (err < 0) return err;
    pair.cert = sk_X509_shift(pair.chain);
    const char *key = files->key != NULL ? files->key : files->cert;
    err = read_key(key, files->password, &pair.key, why);
    return join(err, &pair, key, files->cert, out, why);
}

int ls_tls_pair_parse(const char *name, const char *pem, size_t len, ls_tls_pair *out, const ls_tls_text *why)
{
    ls_tls_pair pair = {NULL, NULL, NULL};
    int err = certs_of(name, pem, len, &pair.chain, why);
    if (err < 0) return err;
    pair.cert = sk_X509_shift(pair.chain);
    err = key_of(name, pem, len, NULL, &pair.key, why);
    return join(err, &pair, name, name, out, why);
}

int ls_tls_pair_copy(const ls_tls_pair *from, ls_tls_pair *out)
{
    STACK_OF(X509) *chain = X509_chain_up_ref(from->chain);
    if (chain == NULL) return LS_ENOMEM;
    *out = (ls_tls_pair){from->cert, chain, from->key};
    (void)X509_up_ref(out->cert);
    (void)EVP_PKEY_up_ref(out->key);
    return LS_OK;
}

void ls_tls_pair_drop(ls_tls_pair *pair)
{
    X509_free(pair->cert);
    sk_X509_pop_free(pair->chain, X509_free);
    EVP_PKEY_free(pair->key);
    *pair = (ls_tls_pair){NULL, NULL, NULL};
}

const char *ls_tls_day_of(const ASN1_TIME *time, char to[16])
{
    struct tm tm;
    if (ASN1_TIME_to_tm(time, &tm) == 1)
        snprintf(to, 16, "%04d-%02d-%02d", (tm.tm_year + 1900) % 10000, (tm.tm_mon + 1) % 100, tm.tm_mday % 100);
    else
        snprintf(to, 16, "an unknown day");
    return to;
}

void ls_tls_pair_warn(const X509 *cert, const char *path, const ls_tls_text *why)
{
    char day[16];
    if (why->bytes == 0 || why->text[0] != '\0') return; /* the first warning */
    if (X509_cmp_current_time(X509_get0_notAfter(cert)) < 0)
        (void)ls_tls_fail(why, 0, "the certificate in '%s' expired on %s", path,
                          ls_tls_day_of(X509_get0_notAfter(cert), day));
    else if (X509_cmp_current_time(X509_get0_notBefore(cert)) > 0)
        (void)ls_tls_fail(why, 0, "the certificate in '%s' is not valid before %s", path,
                          ls_tls_day_of(X509_get0_notBefore(cert), day));
}

/* ---- made in memory ----------------------------------------------------------------------------------------- */

static bool add_extension(X509 *cert, int nid, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);
    const bool ok = extension != NULL && X509_add_ext(cert, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return ok;
}

static bool set_serial(X509 *cert)
{
    unsigned char bytes[8];
    uint64_t serial = 0;
    if (RAND_bytes(bytes, sizeof bytes) != 1) return false;
    for (size_t i = 0; i < sizeof bytes; i++) serial = serial << 8 | bytes[i];
    return ASN1_INTEGER_set_uint64(X509_get_serialNumber(cert), serial >> 1 | 1) == 1; /* positive */
}

/* The extension acmeIdentifier (RFC 8737 section 3): an octet string in an octet string. */
static bool add_proof(X509 *cert, const uint8_t *proof)
{
    enum { OCTET_STRING = 4 };
    uint8_t der[2 + LS_TLS_PROOF_BYTES] = {OCTET_STRING, LS_TLS_PROOF_BYTES};
    ASN1_OBJECT *id = OBJ_txt2obj("1.3.6.1.5.5.7.1.31", 1);
    ASN1_OCTET_STRING *value = ASN1_OCTET_STRING_new();
    X509_EXTENSION *extension = NULL;
    memcpy(der + 2, proof, LS_TLS_PROOF_BYTES);
    if (id != NULL && value != NULL && ASN1_OCTET_STRING_set(value, der, sizeof der) == 1)
        extension = X509_EXTENSION_create_by_OBJ(NULL, id, 1, value);
    const bool ok = extension != NULL && X509_add_ext(cert, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    ASN1_OCTET_STRING_free(value);
    ASN1_OBJECT_free(id);
    return ok;
}

static bool fill(X509 *cert, EVP_PKEY *key, const char *common_name, const char *names, const uint8_t *proof)
{
    enum { DAY = 24 * 3600 };
    X509_NAME *name = X509_get_subject_name(cert);
    return X509_set_version(cert, X509_VERSION_3) == 1 && set_serial(cert) &&
           X509_gmtime_adj(X509_getm_notBefore(cert), -DAY) != NULL && /* clocks differ */
           X509_gmtime_adj(X509_getm_notAfter(cert), (long)SELF_SIGNED_DAYS * DAY) != NULL &&
           X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_ASC, (const unsigned char *)common_name, -1, -1,
                                      0) == 1 &&
           X509_set_issuer_name(cert, name) == 1 && X509_set_pubkey(cert, key) == 1 &&
           add_extension(cert, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(cert, NID_ext_key_usage, "serverAuth") && add_extension(cert, NID_subject_alt_name, names) &&
           (proof == NULL || add_proof(cert, proof)) && X509_sign(cert, key, EVP_sha256()) > 0;
}

int ls_tls_pair_make(const char *common_name, const char *names, const uint8_t *proof, ls_tls_pair *out)
{
    ls_tls_pair pair = {X509_new(), sk_X509_new_null(), EVP_EC_gen("P-256")};
    if (pair.cert == NULL || pair.chain == NULL || pair.key == NULL ||
        !fill(pair.cert, pair.key, common_name, names, proof)) {
        ls_tls_pair_drop(&pair);
        ERR_clear_error();
        return LS_ENOMEM;
    }
    *out = pair;
    return LS_OK;
}

/* ---- names -------------------------------------------------------------------------------------------------- */

static int add_name(ls_tls_names *names, const ASN1_STRING *text)
{
    const char *bytes = (const char *)ASN1_STRING_get0_data(text);
    const int len = ASN1_STRING_length(text);
    if (len <= 0 || memchr(bytes, '\0', (size_t)len) != NULL || names->count == NAMES_MAX) return LS_OK;
    char **grown = OPENSSL_realloc(names->names, (names->count + 1) * sizeof *grown);
    if (grown == NULL) return LS_ENOMEM;
    names->names = grown;
    char *name = OPENSSL_strndup(bytes, (size_t)len);
    if (name == NULL) return LS_ENOMEM;
    for (char *p = name; *p != '\0'; p++) *p = ls_char_lower(*p);
    names->names[names->count++] = name;
    return LS_OK;
}

int ls_tls_names_of(const X509 *cert, ls_tls_names *out)
{
    ls_tls_names names = {NULL, 0};
    int err = LS_OK;
    GENERAL_NAMES *alternatives = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; i < sk_GENERAL_NAME_num(alternatives) && err == LS_OK; i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(alternatives, i);
        if (name->type == GEN_DNS) err = add_name(&names, name->d.dNSName);
    }
    GENERAL_NAMES_free(alternatives);
    if (names.count == 0 && err == LS_OK) {
        const X509_NAME *subject = X509_get_subject_name(cert);
        const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
        if (at >= 0) err = add_name(&names, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
    }
    ERR_clear_error(); /* an extension that cannot be parsed has no names */
    if (err == LS_OK)
        *out = names;
    else
        ls_tls_names_drop(&names);
    return err;
}

void ls_tls_names_drop(ls_tls_names *names)
{
    for (unsigned i = 0; i < names->count; i++) OPENSSL_free(names->names[i]);
    OPENSSL_free(names->names);
    *names = (ls_tls_names){NULL, 0};
}

bool ls_tls_names_equal(const ls_tls_names *a, const ls_tls_names *b)
{
    if (a->count != b->count) return false;
    for (unsigned i = 0; i < a->count; i++)
        if (strcmp(a->names[i], b->names[i]) != 0) return false;
    return true;
}

/* host: in any case, without a final dot. */
static bool equal(const char *name, const char *host)
{
    for (; *name != '\0' && *name == ls_char_lower(*host); name++, host++) {
        /* the same so far */
    }
    return *name == '\0' && *host == '\0';
}

int ls_tls_names_match(const ls_tls_names *names, const char *host)
{
    const char *parent = strchr(host, '.'); /* a wildcard stands for exactly the first label */
    int found = 0;
    for (unsigned i = 0; i < names->count; i++) {
        const char *name = names->names[i];
        if (equal(name, host)) return 2;
        if (name[0] == '*' && name[1] == '.' && parent != NULL && parent != host && equal(name + 1, parent)) found = 1;
    }
    return found;
}

void ls_tls_hex(const X509 *cert, char out[96])
{
    static const char digits[] = "0123456789ABCDEF";
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    out[0] = '\0';
    if (X509_digest(cert, EVP_sha256(), hash, &len) != 1) return;
    for (unsigned i = 0; i < len; i++) {
        out[3 * i] = digits[hash[i] >> 4];
        out[3 * i + 1] = digits[hash[i] & 15];
        out[3 * i + 2] = i + 1 < len ? ':' : '\0';
    }
}
