/* tls_openssl.c - contexts: what ls_tls_open was given, the files that it names, and the current generation built from
 * them. tls_internal_openssl.h lists the other files.
 *
 * Reload: each file has a fingerprint of its properties (ls_file_info), taken before the file is read, so that a
 * change during the reading is found by the next reload. A build that failed because of what a file holds is not
 * repeated until a file changes again; the caller would only log the same line again.
 *
 * Threads: any. `lock` guards what sessions take (the generation, ticket keys, the cache); `reload_lock` makes
 * reloads wait for each other. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/crypto/digest.h"
#include "base/err.h"
#include "base/io/log.h"
#include "net/tls/tls_internal_openssl.h"
#include "port/file/shared_file.h"

/* Mozilla's intermediate list, version 5.7 (https://wiki.mozilla.org/Security/Server_Side_TLS). A server has no DH
 * parameters, so that it never chooses DHE, which costs it much more than the client. */
#define CIPHERS_12                                                                             \
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:" \
    "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305:"   \
    "DHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES256-GCM-SHA384:DHE-RSA-CHACHA20-POLY1305"

struct ls_tls_seen { /* the state of a watched file */
    const char *path;
    int err; /* of opening it; info is valid only with LS_OK */
    ls_file_info info;
};

/* ---- reasons ------------------------------------------------------------------------------------------------ */

int ls_tls_fail(const ls_tls_text *why, int err, const char *format, ...)
{
    if (why->bytes == 0) return err;
    va_list args;
    va_start(args, format);
    vsnprintf(why->text, why->bytes, format, args);
    va_end(args);
    return err;
}

const char *ls_tls_reason(char room[LS_TLS_REASON_BYTES])
{
    const unsigned long code = ERR_peek_error();
    const char *text = ERR_SYSTEM_ERROR(code) ? NULL : ERR_reason_error_string(code);
    if (text == NULL)
        snprintf(room, LS_TLS_REASON_BYTES, "OpenSSL error %lX", code);
    else
        snprintf(room, LS_TLS_REASON_BYTES, "%s", text);
    ERR_clear_error();
    return room;
}

/* ---- files -------------------------------------------------------------------------------------------------- */

int ls_tls_read_file(const char *path, char **bytes, size_t *len, const ls_tls_text *why)
{
    ls_shared_file *file;
    int err = ls_shared_file_open(path, &file);
    if (err < 0) return ls_tls_fail(why, err, "cannot read '%s': %s", path, ls_err_text(err));
    char *to = NULL;
    const uint64_t size = file->info.bytes;
    if (size > LS_TLS_FILE_BYTES_MAX) {
        err = ls_tls_fail(why, LS_EINVAL, "'%s' is larger than 4 MiB", path);
    } else if ((to = OPENSSL_malloc((size_t)size + 1)) == NULL) {
        err = ls_tls_fail(why, LS_ENOMEM, "%s", ls_err_text(LS_ENOMEM));
    } else {
        const int64_t n = ls_shared_file_read(file, to, (size_t)size, 0);
        if (n < 0) {
            OPENSSL_free(to);
            err = ls_tls_fail(why, (int)n, "cannot read '%s': %s", path, ls_err_text((int)n));
        } else {
            to[n] = '\0';
            *bytes = to;
            *len = (size_t)n;
        }
    }
    ls_shared_file_drop(file);
    return err;
}

static void look(struct ls_tls_seen *seen)
{
    ls_shared_file *file;
    seen->info = (ls_file_info){.bytes = 0};
    seen->err = ls_shared_file_open(seen->path, &file);
    if (seen->err < 0) return;
    seen->info = file->info;
    ls_shared_file_drop(file);
}

static bool same(const struct ls_tls_seen *a, const struct ls_tls_seen *b)
{
    const ls_file_info *x = &a->info, *y = &b->info;
    return a->err == b->err && ls_file_info_same(x, y) && x->volume == y->volume && x->file == y->file;
}

/* ---- the options, copied ------------------------------------------------------------------------------------ */

/* A copy of text, NULL for NULL; sets *failed without memory. */
static char *copy(const char *text, bool *failed)
{
    char *to = OPENSSL_strdup(text);
    if (text != NULL && to == NULL) *failed = true;
    return to;
}

static void drop_config(ls_tls_config *config)
{
    for (unsigned i = 0; i < config->cert_count && config->certs != NULL; i++) {
        OPENSSL_free((void *)(uintptr_t)config->certs[i].cert);
        OPENSSL_free((void *)(uintptr_t)config->certs[i].key);
        OPENSSL_free((void *)(uintptr_t)config->certs[i].supplied);
        char *password = (char *)(uintptr_t)config->certs[i].password;
        if (password != NULL) OPENSSL_clear_free(password, strlen(password));
    }
    OPENSSL_free(config->certs);
    ls_tls_pair_drop(&config->self_signed);
    OPENSSL_free(config->ca);
    OPENSSL_free(config->tickets);
    if (config->keyring != NULL) ls_tls_keyring_drop(config->keyring);
    if (config->supply != NULL) ls_tls_supply_drop(config->supply);
    OPENSSL_free(config->ciphers12);
    OPENSSL_free(config->ciphers13);
    for (char **p = config->alpn; p != NULL && *p != NULL; p++) OPENSSL_free(*p);
    OPENSSL_free(config->alpn);
    OPENSSL_free(config->alpn_wire);
}

/* "h2,http/1.1" as strings and as in a ClientHello (RFC 7301 section 3.1). */
static int parse_alpn(ls_tls_config *config, const char *list, const ls_tls_text *why)
{
    const size_t bytes = strlen(list);
    unsigned count = 1;
    bool failed = false;
    for (const char *p = list; *p != '\0'; p++) count += *p == ',';
    config->alpn = OPENSSL_zalloc((count + 1) * sizeof *config->alpn);
    config->alpn_wire = OPENSSL_malloc(bytes + 1);
    if (config->alpn == NULL || config->alpn_wire == NULL) return LS_ENOMEM;
    const char *from = list;
    for (unsigned i = 0; i < count; i++) {
        const size_t len = strcspn(from, ",");
        if (len == 0 || len > 255)
            return ls_tls_fail(why, LS_EINVAL, "invalid ALPN protocol '%.*s': it must have 1 to 255 bytes",
                               (int)(len < 40 ? len : 40), from);
        config->alpn[i] = OPENSSL_strndup(from, len);
        if (config->alpn[i] == NULL) failed = true;
        config->alpn_wire[config->alpn_wire_bytes++] = (unsigned char)len;
        memcpy(config->alpn_wire + config->alpn_wire_bytes, from, len);
        config->alpn_wire_bytes += (unsigned)len;
        from += len + 1;
    }
    return failed ? LS_ENOMEM : LS_OK;
}

static int copy_options(ls_tls_config *config, const ls_tls_options *options, const ls_tls_text *why)
{
    bool failed = false;
    config->server = options->server;
    config->insecure = options->insecure;
    config->no_resumption = options->no_resumption;
    config->verify = options->verify;
    config->min = TLS1_2_VERSION;
    if (options->min != NULL && strcmp(options->min, "1.3") == 0)
        config->min = TLS1_3_VERSION;
    else if (options->min != NULL && strcmp(options->min, "1.2") != 0)
        return ls_tls_fail(why, LS_EINVAL, "invalid lowest version '%s' of TLS: it must be \"1.2\" or \"1.3\"",
                           options->min);
    if (options->server && options->cert_count == 0 && !options->self_signed)
        return ls_tls_fail(why, LS_EINVAL, "a TLS server needs a certificate");
    if (!options->server && options->cert_count > 1)
        return ls_tls_fail(why, LS_EINVAL, "a TLS client has at most one certificate");
    if (options->server && options->verify != LS_TLS_VERIFY_NONE && options->ca == NULL)
        return ls_tls_fail(why, LS_EINVAL, "to verify clients, a file of trusted certificates (client_ca) is needed");

    config->cert_count = options->self_signed ? 0 : options->cert_count;
    if (config->cert_count > 0) {
        config->certs = OPENSSL_zalloc(config->cert_count * sizeof *config->certs);
        if (config->certs == NULL) return LS_ENOMEM;
    }
    for (unsigned i = 0; i < config->cert_count; i++) {
        if (options->certs[i].cert == NULL && (options->certs[i].supplied == NULL || options->supply == NULL))
            return ls_tls_fail(why, LS_EINVAL, "a certificate lacks the name of its file");
        config->certs[i].cert = copy(options->certs[i].cert, &failed);
        config->certs[i].key = copy(options->certs[i].key, &failed);
        config->certs[i].password = copy(options->certs[i].password, &failed);
        config->certs[i].supplied = copy(options->certs[i].supplied, &failed);
    }
    config->ca = copy(options->ca, &failed);
    config->keyring = options->keyring;
    if (config->keyring != NULL) atomic_fetch_add(&config->keyring->refs, 1);
    if (options->supply != NULL) config->supply = ls_tls_supply_hold(options->supply);
    config->tickets = options->server ? copy(options->tickets, &failed) : NULL;
    config->ciphers12 = copy(CIPHERS_12, &failed);
    if (failed) return LS_ENOMEM;
    int err = LS_OK;
    if (options->ciphers != NULL) err = ls_tls_ciphers_parse(config, options->ciphers, why);
    if (err == LS_OK && options->alpn != NULL) err = parse_alpn(config, options->alpn, why);
    if (err == LS_OK && options->self_signed && options->server)
        err = ls_tls_pair_make("localhost", "DNS:localhost,IP:127.0.0.1,IP:::1", NULL, &config->self_signed);
    return err;
}

/* ---- open, reload ------------------------------------------------------------------------------------------- */

static int list_files(ls_tls *tls)
{
    const ls_tls_config *config = &tls->config;
    tls->seen = OPENSSL_zalloc((config->cert_count * 2 + 2) * sizeof *tls->seen);
    if (tls->seen == NULL) return LS_ENOMEM;
    for (unsigned i = 0; i < config->cert_count; i++) {
        if (config->certs[i].cert != NULL) tls->seen[tls->seen_count++].path = config->certs[i].cert;
        if (config->certs[i].key != NULL) tls->seen[tls->seen_count++].path = config->certs[i].key;
    }
    if (config->ca != NULL) tls->seen[tls->seen_count++].path = config->ca;
    if (config->tickets != NULL) tls->seen[tls->seen_count++].path = config->tickets;
    return LS_OK;
}

/* Note the state of all files, and of what is supplied. Returns whether one changed. */
static bool look_at_files(ls_tls *tls)
{
    bool changed = false;
    if (tls->config.supply != NULL) {
        const uint64_t version = ls_tls_supply_version(tls->config.supply);
        changed = atomic_exchange(&tls->supply_seen, version) != version;
    }
    for (unsigned i = 0; i < tls->seen_count; i++) {
        struct ls_tls_seen now = {.path = tls->seen[i].path};
        look(&now);
        if (same(&now, &tls->seen[i])) continue;
        tls->seen[i] = now;
        changed = true;
    }
    return changed;
}

static void drop_pairs(const ls_tls *tls, ls_tls_pair *pairs)
{
    for (unsigned i = 0; pairs != NULL && i < tls->config.cert_count; i++) ls_tls_pair_drop(&pairs[i]);
    OPENSSL_free(pairs);
}

static bool has_name(const ls_tls *tls, const char *name)
{
    ls_tls *const context = (ls_tls *)(uintptr_t)tls; /* only the lock is changed */
    bool found = false;
    ls_mutex_lock(&context->lock);
    for (unsigned i = 0; i < context->gen->site_count && !found; i++)
        found = ls_tls_names_match(&context->gen->sites[i].names, name) != 0;
    ls_mutex_unlock(&context->lock);
    return found;
}

void ls_tls_check_names(const ls_tls *tls, const char *names, const char *where)
{
    char name[256];
    for (const char *at = names != NULL ? names : ""; *at != '\0'; at += strcspn(at, "\n"), at += *at == '\n') {
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "\n"), at);
        if (!has_name(tls, name))
            ls_log(LS_LOG_WARN, "%s%stls: no certificate has the name '%s' of hosts: browsers refuse it", where,
                   where[0] != '\0' ? ": " : "", name);
    }
}

/* Log which certificates are new, and the names that were expected and that no certificate has now. */
static void log_renewal(const ls_tls *tls, const ls_tls_pair *before, bool names)
{
    char day[16];
    bool renewed = false;
    for (unsigned i = 0; before != NULL && i < tls->config.cert_count; i++) {
        const X509 *old = before[i].cert, *new = tls->pairs[i].cert;
        const ls_tls_cert *of = &tls->config.certs[i];
        if (new == NULL || (old != NULL && X509_cmp(old, new) == 0)) continue;
        renewed = true;
        ls_log(LS_LOG_INFO, "a new certificate is in use: '%s', valid until %s",
               of->supplied ? of->supplied : of->cert, ls_tls_day_of(X509_get0_notAfter(tls->pairs[i].cert), day));
    }
    if (renewed && names) ls_tls_check_names(tls, tls->names, "");
}

/* Read everything, then replace the generation and the ticket keys. The sessions that a client has cached go with the
 * old generation: a server that resumes one is not verified again. */
static int build(ls_tls *tls, bool force, const ls_tls_text *why)
{
    const unsigned count = tls->config.cert_count;
    const bool keep = !force && count > 1 && why->bytes > 0;
    ls_tls_tickets *tickets = NULL; /* as large as its limit: not for the stack */
    ls_tls_cache outdated;
    ls_tls_gen *gen = NULL;
    ls_tls_pair *pairs = OPENSSL_zalloc((count + 1) * sizeof *pairs);
    int err = pairs == NULL ? LS_ENOMEM : LS_OK;
    if (err == LS_OK && tls->config.tickets != NULL) {
        tickets = OPENSSL_zalloc(sizeof *tickets);
        err = tickets == NULL ? LS_ENOMEM : ls_tls_tickets_read(tls->config.tickets, tickets, why);
    }
    if (err == LS_OK) err = ls_tls_gen_build(tls, keep, pairs, &gen, why);
    if (gen != NULL) {
        ls_mutex_lock(&tls->lock);
        ls_tls_gen *old = tls->gen;
        tls->gen = gen;
        if (tickets != NULL) tls->tickets = *tickets;
        outdated = tls->cache;
        memset(&tls->cache, 0, sizeof tls->cache);
        ls_mutex_unlock(&tls->lock);
        if (old != NULL) ls_tls_gen_drop(old);
        ls_tls_cache_clear(&outdated);
        ls_tls_pair *const before = tls->pairs;
        tls->pairs = pairs;
        pairs = before;
        log_renewal(tls, before, !force);
    }
    drop_pairs(tls, pairs);
    if (tickets != NULL) OPENSSL_clear_free(tickets, sizeof *tickets);
    ERR_clear_error();
    return err;
}

int ls_tls_open(const ls_tls_options *options, ls_tls **out, char *why_text, size_t why_bytes)
{
    const ls_tls_text why = {why_text, why_bytes};
    (void)ls_tls_fail(&why, 0, "%s", "");
    int err = ls_digest_start();
    ls_tls *tls = err == LS_OK ? OPENSSL_zalloc(sizeof *tls) : NULL;
    err = LS_ENOMEM;
    if (tls == NULL) goto fail;
    atomic_init(&tls->refs, 1);
    ls_mutex_open(&tls->lock);
    ls_mutex_open(&tls->reload_lock);
    if ((err = copy_options(&tls->config, options, &why)) < 0) goto fail_config;
    err = LS_ENOMEM;
    tls->bio = ls_tls_bio_make();
    tls->aes128 = EVP_CIPHER_fetch(NULL, "AES-128-CBC", NULL);
    tls->aes256 = EVP_CIPHER_fetch(NULL, "AES-256-CBC", NULL);
    if (tls->bio == NULL || tls->aes128 == NULL || tls->aes256 == NULL) goto fail_config;
    if (options->server && options->tickets == NULL && (err = ls_tls_tickets_make(&tls->tickets)) < 0)
        goto fail_config;
    if ((err = list_files(tls)) < 0) goto fail_config;
    (void)look_at_files(tls);
    if ((err = build(tls, true, &why)) < 0) goto fail_config;
    *out = tls;
    return LS_OK;

fail_config:
    ERR_clear_error();
    ls_tls_drop(tls);
fail:
    if (why_bytes > 0 && why_text[0] == '\0') (void)ls_tls_fail(&why, err, "%s", ls_err_text(err));
    return err;
}

int ls_tls_reload(ls_tls *tls, bool force, char *why_text, size_t why_bytes)
{
    const ls_tls_text why = {why_text, why_bytes};
    int err = LS_OK;
    (void)ls_tls_fail(&why, 0, "%s", "");
    ls_mutex_lock(&tls->reload_lock);
    const bool changed = look_at_files(tls);
    if (changed || force) err = build(tls, force, &why);
    if (err < 0 && why_bytes > 0 && why_text[0] == '\0') (void)ls_tls_fail(&why, err, "%s", ls_err_text(err));
    /* A lack of memory or descriptors is not the fault of the files: the next reload tries again. */
    if (err == LS_ENOMEM || err == LS_EMFILE) {
        for (unsigned i = 0; i < tls->seen_count; i++) tls->seen[i].err = 1;
        atomic_store(&tls->supply_seen, UINT64_MAX);
    }
    ls_mutex_unlock(&tls->reload_lock);
    return err;
}

void ls_tls_expect_names(ls_tls *tls, const char *names, bool more)
{
    ls_mutex_lock(&tls->reload_lock);
    const char *const before = more && tls->names != NULL ? tls->names : "";
    const size_t bytes = names != NULL ? strlen(before) + strlen(names) + 2 : 0;
    char *all = bytes > 0 ? OPENSSL_malloc(bytes) : NULL; /* without memory there is no warning */
    if (all != NULL) snprintf(all, bytes, "%s%s%s", before, *before != '\0' ? "\n" : "", names);
    if (all != NULL || !more) {
        OPENSSL_free(tls->names);
        tls->names = all;
    }
    ls_mutex_unlock(&tls->reload_lock);
}

ls_tls *ls_tls_hold(ls_tls *tls)
{
    atomic_fetch_add_explicit(&tls->refs, 1, memory_order_relaxed);
    return tls;
}

void ls_tls_drop(ls_tls *tls)
{
    if (atomic_fetch_sub_explicit(&tls->refs, 1, memory_order_acq_rel) != 1) return;
    if (tls->gen != NULL) ls_tls_gen_drop(tls->gen);
    ls_tls_cache_clear(&tls->cache);
    BIO_meth_free(tls->bio);
    EVP_CIPHER_free(tls->aes128);
    EVP_CIPHER_free(tls->aes256);
    drop_pairs(tls, tls->pairs);
    drop_config(&tls->config);
    OPENSSL_free(tls->names);
    OPENSSL_free(tls->seen);
    ls_mutex_close(&tls->reload_lock);
    ls_mutex_close(&tls->lock);
    OPENSSL_clear_free(tls, sizeof *tls);
}

const char *ls_tls_library(void)
{
    static LS_THREAD_LOCAL char text[48];
    snprintf(text, sizeof text, "OpenSSL %s", OpenSSL_version(OPENSSL_VERSION_STRING)); /* of the shared library */
    return text;
}

void ls_tls_fingerprint(const ls_tls *tls, char out[96])
{
    ls_tls *const context = (ls_tls *)(uintptr_t)tls; /* only the lock is changed */
    ls_mutex_lock(&context->lock);
    const X509 *cert = SSL_CTX_get0_certificate(context->gen->sites[0].ctx);
    if (cert != NULL)
        ls_tls_hex(cert, out);
    else
        out[0] = '\0'; /* a client without a certificate */
    ls_mutex_unlock(&context->lock);
}
