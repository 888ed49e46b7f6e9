/* tls_context_openssl.c - a generation: one SSL_CTX for each certificate with the settings that all have in common,
 * and the choice among them by the name that the client asks for (SNI, RFC 6066 section 3).
 *
 * Certificates of exactly the same names but different types of keys (ECDSA and RSA) share an SSL_CTX; OpenSSL
 * chooses the one that the client supports. A client that asks for no name gets the first certificate. Where all
 * certificates have the same names there is no choice: a client that asks for another name gets them too, and decides
 * itself whether it accepts them. */
#include <stdio.h>
#include <string.h>

#include <openssl/rsa.h>
#include <openssl/x509v3.h>

#include "base/err.h"
#include "net/tls/tls_internal_openssl.h"
#include "net/tls/tls_trust.h"

enum { VERIFY_DEPTH_MAX = 10, NAME_WHY_BYTES = 320 };

#define GROUPS "X25519:P-256:P-384"

static int failed(const ls_tls_text *why, const char *what)
{
    char room[LS_TLS_REASON_BYTES];
    return ls_tls_fail(why, LS_EINVAL, "%s: %s", what, ls_tls_reason(room));
}

/* ---- ciphers ------------------------------------------------------------------------------------------------ */

static int append(char **list, const char *name, size_t len)
{
    const size_t before = *list != NULL ? strlen(*list) : 0;
    char *grown = OPENSSL_realloc(*list, before + len + 2);
    if (grown == NULL) return LS_ENOMEM;
    if (before > 0) grown[before] = ':';
    memcpy(grown + before + (before > 0), name, len);
    grown[before + (before > 0) + len] = '\0';
    *list = grown;
    return LS_OK;
}

/* OpenSSL ignores unknown names in a list that also has known ones, so each is tried alone. */
static bool known(SSL_CTX *ctx, const char *name, bool tls13)
{
    if (name[0] == '@') return true; /* @STRENGTH, @SECLEVEL=n: checked with the whole list */
    if (strchr("!-+", name[0]) != NULL) name++;
    const bool ok = (tls13 ? SSL_CTX_set_ciphersuites(ctx, name) : SSL_CTX_set_cipher_list(ctx, name)) == 1;
    ERR_clear_error();
    return ok;
}

int ls_tls_ciphers_parse(ls_tls_config *config, const char *list, const ls_tls_text *why)
{
    static const char separators[] = ": ,;"; /* as in openssl-ciphers(1) */
    char *names[2] = {NULL, NULL};           /* of TLS 1.2, of TLS 1.3 */
    int err = LS_OK;
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    if (ctx == NULL) return LS_ENOMEM;
    for (const char *p = list + strspn(list, separators); *p != '\0' && err == LS_OK; p += strspn(p, separators)) {
        const size_t len = strcspn(p, separators);
        const bool tls13 = len > 4 && memcmp(p, "TLS_", 4) == 0;
        char *name = OPENSSL_strndup(p, len);
        if (name == NULL)
            err = LS_ENOMEM;
        else if (!known(ctx, name, tls13))
            err = ls_tls_fail(why, LS_EINVAL, "unknown cipher '%s': see `openssl ciphers -v`", name);
        else
            err = append(&names[tls13], name, len);
        OPENSSL_free(name);
        p += len;
    }
    if (err == LS_OK && names[0] == NULL && names[1] == NULL)
        err = ls_tls_fail(why, LS_EINVAL, "the list of ciphers is empty");
    if (err == LS_OK && names[0] != NULL && SSL_CTX_set_cipher_list(ctx, names[0]) != 1)
        err = failed(why, "the list of ciphers for TLS 1.2 cannot be used");
    SSL_CTX_free(ctx);
    if (names[0] != NULL && err == LS_OK) { /* a version without names keeps its default */
        OPENSSL_free(config->ciphers12);
        config->ciphers12 = names[0];
        names[0] = NULL;
    }
    if (names[1] != NULL && err == LS_OK) {
        config->ciphers13 = names[1];
        names[1] = NULL;
    }
    OPENSSL_free(names[0]);
    OPENSSL_free(names[1]);
    return err;
}

/* ---- callbacks of the handshake ----------------------------------------------------------------------------- */

static const ls_tls_site *site_of(const ls_tls_gen *gen, const char *host)
{
    const ls_tls_site *wild = NULL;
    for (unsigned i = 0; i < gen->site_count; i++) {
        const int match = ls_tls_names_match(&gen->sites[i].names, host);
        if (match == 2) return &gen->sites[i];
        if (match == 1 && wild == NULL) wild = &gen->sites[i];
    }
    return wild;
}

static int refuse_name(SSL *ssl, const char *host, int *alert)
{
    ls_tls_conn *s = BIO_get_data(SSL_get_rbio(ssl));
    char why[NAME_WHY_BYTES];
    if (SSL_CTX_get0_certificate(SSL_get_SSL_CTX(ssl)) == NULL)
        snprintf(why, sizeof why, "there is no certificate yet");
    else
        snprintf(why, sizeof why, "no certificate has the name '%s', which the client asks for", host);
    if (s->why == NULL) s->why = OPENSSL_strdup(why);
    *alert = SSL_AD_UNRECOGNIZED_NAME;
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static const unsigned char proof_protocol[] = {0, 11, 10, 'a', 'c', 'm', 'e', '-', 't', 'l', 's', '/', '1'};

/* An SSL_client_hello_cb_fn: an authority that checks a name offers this protocol alone (RFC 8737 section 3). */
static int look_for_proof(SSL *ssl, int *alert, void *arg)
{
    const unsigned char *list;
    size_t len;
    ls_tls_conn *s = BIO_get_data(SSL_get_rbio(ssl));
    s->proves = SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_application_layer_protocol_negotiation, &list, &len) == 1 &&
                len == sizeof proof_protocol && memcmp(list, proof_protocol, len) == 0;
    return SSL_CLIENT_HELLO_SUCCESS;
}

static int choose_site(SSL *ssl, int *alert, void *arg)
{
    const ls_tls_gen *gen = arg;
    const char *host = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    const ls_tls_conn *s = BIO_get_data(SSL_get_rbio(ssl));
    if (s->proves) {
        if (host != NULL && ls_tls_supply_answer(gen->tls->config.supply, ssl, host)) return SSL_TLSEXT_ERR_OK;
        return refuse_name(ssl, host != NULL ? host : "", alert);
    }
    if (SSL_CTX_get0_certificate(gen->sites[0].ctx) == NULL) return refuse_name(ssl, "", alert);
    if (host == NULL || gen->site_count == 1) return SSL_TLSEXT_ERR_OK;
    const ls_tls_site *site = site_of(gen, host);
    if (site == NULL) return refuse_name(ssl, host, alert);
    if (site == &gen->sites[0]) return SSL_TLSEXT_ERR_OK;
    return SSL_set_SSL_CTX(ssl, site->ctx) != NULL ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* The server's order decides; without a common protocol the handshake fails (RFC 7301 section 3.2). */
static int choose_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *offered,
                       unsigned offered_len, void *arg)
{
    const ls_tls_config *config = arg;
    if (((const ls_tls_conn *)BIO_get_data(SSL_get_rbio(ssl)))->proves) {
        *out = offered + 1;
        *out_len = offered[0];
        return SSL_TLSEXT_ERR_OK;
    }
    if (config->alpn == NULL) return SSL_TLSEXT_ERR_NOACK;
    for (char **own = config->alpn; *own != NULL; own++) {
        const size_t len = strlen(*own);
        for (unsigned at = 0; at < offered_len; at += 1u + offered[at])
            if (offered[at] == len && at + 1 + len <= offered_len && memcmp(offered + at + 1, *own, len) == 0) {
                *out = offered + at + 1;
                *out_len = (unsigned char)len;
                return SSL_TLSEXT_ERR_OK;
            }
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* ---- one SSL_CTX -------------------------------------------------------------------------------------------- */

/* A session is resumed only where it was made: under the same rules for client certificates. Contexts of several
 * machines that share ticket keys agree, because only the contents count. */
static bool set_id_context(SSL_CTX *ctx, const ls_tls_config *config, const STACK_OF(X509) * trusted)
{
    unsigned char id[EVP_MAX_MD_SIZE], hash[EVP_MAX_MD_SIZE];
    const unsigned char verify = (unsigned char)config->verify;
    unsigned len = 0;
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    bool ok = md != NULL && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1 && EVP_DigestUpdate(md, &verify, 1) == 1;
    for (int i = 0; ok && i < sk_X509_num(trusted); i++)
        ok = X509_digest(sk_X509_value(trusted, i), EVP_sha256(), hash, &len) == 1 &&
             EVP_DigestUpdate(md, hash, len) == 1;
    ok = ok && EVP_DigestFinal_ex(md, id, &len) == 1 && SSL_CTX_set_session_id_context(ctx, id, len) == 1;
    EVP_MD_CTX_free(md);
    return ok;
}

/* An ls_tls_trust_add: one that OpenSSL cannot parse verifies nothing, and is skipped. */
static bool trust(void *user, const void *der, size_t len)
{
    const unsigned char *bytes = der;
    X509 *cert = d2i_X509(NULL, &bytes, (long)len);
    const bool ok = cert == NULL || X509_STORE_add_cert(user, cert) == 1;
    X509_free(cert);
    ERR_clear_error();
    return ok;
}

/* Decode the extensions of the certificates now: OpenSSL does it at their first use, which many connections share. */
static void decode_extensions(X509_STORE *store)
{
    STACK_OF(X509_OBJECT) *objects = X509_STORE_get0_objects(store);
    for (int i = 0; i < sk_X509_OBJECT_num(objects); i++) {
        X509 *cert = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(objects, i));
        if (cert != NULL) (void)X509_check_purpose(cert, -1, 0);
    }
    ERR_clear_error();
}

static int set_trust(SSL_CTX *ctx, const ls_tls_config *config, const ls_tls_text *why)
{
    STACK_OF(X509) *trusted = NULL;
    int err = LS_OK;
    if (config->ca != NULL && (err = ls_tls_read_certs(config->ca, &trusted, why)) < 0) return err;
    X509_STORE *store = SSL_CTX_get_cert_store(ctx);
    bool ok = set_id_context(ctx, config, trusted);
    for (int i = 0; ok && i < sk_X509_num(trusted); i++) {
        X509 *cert = sk_X509_value(trusted, i);
        (void)X509_check_purpose(cert, -1, 0); /* parses its extensions once, before threads share it */
        ok = X509_STORE_add_cert(store, cert) == 1;
        if (ok && config->server) ok = SSL_CTX_add_client_CA(ctx, cert) == 1;
    }
    sk_X509_pop_free(trusted, X509_free);
    if (ok && config->ca == NULL && !config->server && !config->insecure) {
        const int system = ls_tls_trust_each(trust, store);
        ok = system == LS_OK || (system == LS_ENOTSUP && SSL_CTX_set_default_verify_paths(ctx) == 1);
    }
    /* A client trusts each certificate in its file, also one that an authority outside the file has issued. */
    if (config->ca != NULL && !config->server) (void)X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN);
    if (!ok) return failed(why, "cannot use the trusted certificates");
    decode_extensions(store);
    int mode = SSL_VERIFY_NONE;
    if (config->server && config->verify == LS_TLS_VERIFY_OPTIONAL) mode = SSL_VERIFY_PEER;
    if (config->server && config->verify == LS_TLS_VERIFY_REQUIRED)
        mode = SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    if (!config->server && !config->insecure) mode = SSL_VERIFY_PEER;
    SSL_CTX_set_verify(ctx, mode, NULL);
    SSL_CTX_set_verify_depth(ctx, VERIFY_DEPTH_MAX);
    return LS_OK;
}

static int set_resumption(SSL_CTX *ctx, const ls_tls_config *config)
{
    if (config->server) {
        SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
        SSL_CTX_set_timeout(ctx, LS_TLS_TICKET_LIFE_S);
        /* A client gets a new ticket with each resumption, so that one is enough. Making one takes a twentieth of a
         * full handshake. */
        if (SSL_CTX_set_num_tickets(ctx, 1) != 1) return LS_ENOMEM;
        if (SSL_CTX_set_session_ticket_cb(ctx, NULL, ls_tls_ticket_used_cb, NULL) != 1) return LS_ENOMEM;
        return SSL_CTX_set_tlsext_ticket_key_evp_cb(ctx, ls_tls_ticket_key_cb) == 1 ? LS_OK : LS_ENOMEM;
    }
    if (config->no_resumption) {
        SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
        SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
    } else {
        SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
        SSL_CTX_sess_set_new_cb(ctx, ls_tls_new_session_cb);
    }
    return LS_OK;
}

static int open_ctx(ls_tls_gen *gen, const ls_tls_config *config, SSL_CTX **out, const ls_tls_text *why)
{
    int err;
    SSL_CTX *ctx = SSL_CTX_new(config->server ? TLS_server_method() : TLS_client_method());
    if (ctx == NULL) return LS_ENOMEM;
    (void)SSL_CTX_set_app_data(ctx, gen);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_NO_AUTO_CHAIN);
    err = LS_EINVAL;
    if (SSL_CTX_set_min_proto_version(ctx, config->min) != 1 || SSL_CTX_set1_groups_list(ctx, GROUPS) != 1) {
        err = failed(why, "cannot set up TLS");
    } else if (SSL_CTX_set_cipher_list(ctx, config->ciphers12) != 1 ||
               (config->ciphers13 != NULL && SSL_CTX_set_ciphersuites(ctx, config->ciphers13) != 1)) {
        err = failed(why, "the ciphers cannot be used");
    } else if ((err = set_trust(ctx, config, why)) == LS_OK && (err = set_resumption(ctx, config)) == LS_OK) {
        if (config->server) {
            (void)SSL_CTX_set_tlsext_servername_callback(ctx, choose_site);
            (void)SSL_CTX_set_tlsext_servername_arg(ctx, gen);
            if (config->supply != NULL) SSL_CTX_set_client_hello_cb(ctx, look_for_proof, NULL);
            if (config->alpn != NULL || config->supply != NULL)
                SSL_CTX_set_alpn_select_cb(ctx, choose_alpn, (void *)(uintptr_t)config);
        } else if (config->alpn != NULL &&
                   SSL_CTX_set_alpn_protos(ctx, config->alpn_wire, config->alpn_wire_bytes) != 0) {
            err = LS_ENOMEM;
        }
    }
    if (err < 0)
        SSL_CTX_free(ctx);
    else
        *out = ctx;
    return err;
}

/* ---- the generation ----------------------------------------------------------------------------------------- */

/* The site that the certificate joins: that of the same names, if it has no key of this type yet. */
static ls_tls_site *site_to_join(ls_tls_gen *gen, const ls_tls_names *names, const ls_tls_pair *pair)
{
    for (unsigned i = 0; i < gen->site_count && names->count > 0; i++) {
        ls_tls_site *site = &gen->sites[i];
        bool taken = false;
        if (!ls_tls_names_equal(names, &site->names)) continue;
        for (long more = SSL_CTX_set_current_cert(site->ctx, SSL_CERT_SET_FIRST); more == 1 && !taken;
             more = SSL_CTX_set_current_cert(site->ctx, SSL_CERT_SET_NEXT))
            taken = EVP_PKEY_get_base_id(SSL_CTX_get0_privatekey(site->ctx)) == EVP_PKEY_get_base_id(pair->key);
        (void)SSL_CTX_set_current_cert(site->ctx, SSL_CERT_SET_FIRST);
        if (!taken) return site;
    }
    return NULL;
}

static int add_pair(ls_tls_gen *gen, const ls_tls_config *config, const ls_tls_pair *pair, const char *path,
                    const ls_tls_text *why)
{
    char room[LS_TLS_REASON_BYTES];
    ls_tls_names names;
    int err = ls_tls_names_of(pair->cert, &names);
    if (err < 0) return err;
    ls_tls_site *site = site_to_join(gen, &names, pair);
    const bool joins = site != NULL;
    if (!joins) {
        site = &gen->sites[gen->site_count];
        if ((err = open_ctx(gen, config, &site->ctx, why)) < 0) goto fail_names;
    }
    X509 *before = SSL_CTX_get0_certificate(site->ctx);
    STACK_OF(X509) *const chain = sk_X509_num(pair->chain) > 0 ? pair->chain : NULL; /* each session copies a chain */
    if (SSL_CTX_use_cert_and_key(site->ctx, pair->cert, pair->key, chain, 1) != 1) {
        err = ls_tls_fail(why, LS_EINVAL, "the certificate in '%s' cannot be used: %s", path, ls_tls_reason(room));
        goto fail_ctx;
    }
    if (joins) {
        (void)SSL_CTX_select_current_cert(site->ctx, before); /* of the fingerprint */
        ls_tls_names_drop(&names);
    } else {
        site->names = names;
        gen->site_count++;
    }
    return LS_OK;

fail_ctx:
    if (!joins) {
        SSL_CTX_free(site->ctx);
        site->ctx = NULL;
    }
fail_names:
    ls_tls_names_drop(&names);
    return err;
}

static int add_file(ls_tls_gen *gen, const ls_tls_config *config, const ls_tls_cert *files, ls_tls_pair *out,
                    const ls_tls_text *why)
{
    ls_tls_pair pair;
    int err = files->supplied != NULL ? ls_tls_supply_get(config->supply, files->supplied, &pair)
                                      : ls_tls_pair_read(files, &pair, why);
    if (err < 0 || pair.cert == NULL) return err;
    err = add_pair(gen, config, &pair, files->supplied != NULL ? files->supplied : files->cert, why);
    if (err == LS_OK)
        *out = pair;
    else
        ls_tls_pair_drop(&pair);
    return err;
}

/* The certificate in use, instead of one that cannot be used. */
static int keep_pair(ls_tls_gen *gen, const ls_tls_config *config, const ls_tls_cert *files, const ls_tls_pair *used,
                     ls_tls_pair *out, const ls_tls_text *why)
{
    const int err = add_pair(gen, config, used, files->cert, why);
    if (err < 0) return err;
    return ls_tls_pair_copy(used, out);
}

static int add_files(ls_tls_gen *gen, ls_tls *tls, bool keep, ls_tls_pair *pairs, int *broken, const ls_tls_text *why)
{
    const ls_tls_config *config = &tls->config;
    size_t used = 0;
    int err = LS_OK;
    for (unsigned i = 0; i < config->cert_count && err == LS_OK; i++) {
        const ls_tls_text rest = {why->text + used, why->bytes - used};
        err = add_file(gen, config, &config->certs[i], &pairs[i], &rest);
        if (err >= 0 || err == LS_ENOMEM || err == LS_EMFILE || !keep) continue;
        *broken = err;
        used += strlen(rest.text);
        const ls_tls_text next = {why->text + used, why->bytes - used};
        (void)ls_tls_fail(&next, 0, "; ");
        used += strlen(next.text);
        err = keep_pair(gen, config, &config->certs[i], &tls->pairs[i], &pairs[i], why);
    }
    if (used > 0 && err == LS_OK) why->text[used - 2] = '\0'; /* the last separator */
    for (unsigned i = 0; i < config->cert_count && err == LS_OK; i++)
        if (config->certs[i].supplied == NULL) ls_tls_pair_warn(pairs[i].cert, config->certs[i].cert, why);
    return err;
}

int ls_tls_gen_build(ls_tls *tls, bool keep, ls_tls_pair *pairs, ls_tls_gen **out, const ls_tls_text *why)
{
    const ls_tls_config *config = &tls->config;
    int err = LS_OK, broken = LS_OK;
    ls_tls_gen *gen = OPENSSL_zalloc(sizeof *gen);
    if (gen == NULL) return LS_ENOMEM;
    atomic_init(&gen->refs, 1);
    gen->tls = tls;
    gen->sites = OPENSSL_zalloc((config->cert_count + 1) * sizeof *gen->sites);
    err = gen->sites == NULL ? LS_ENOMEM : add_files(gen, tls, keep, pairs, &broken, why);
    if (err == LS_OK && config->self_signed.cert != NULL)
        err = add_pair(gen, config, &config->self_signed, "(self-signed)", why);
    if (err == LS_OK && gen->site_count == 0) { /* a client without a certificate, a server that has none yet */
        err = open_ctx(gen, config, &gen->sites[0].ctx, why);
        if (err == LS_OK) gen->site_count = 1;
    }
    if (err < 0) {
        ls_tls_gen_drop(gen);
        return err;
    }
    *out = gen;
    return broken;
}

void ls_tls_gen_drop(ls_tls_gen *gen)
{
    if (atomic_fetch_sub_explicit(&gen->refs, 1, memory_order_acq_rel) != 1) return;
    for (unsigned i = 0; i < gen->site_count; i++) {
        SSL_CTX_free(gen->sites[i].ctx);
        ls_tls_names_drop(&gen->sites[i].names);
    }
    OPENSSL_free(gen->sites);
    OPENSSL_free(gen);
}
