/* tls_resume_openssl.c - resumption without a store on the server: session tickets (RFC 5077, RFC 8446 section 4.6.1).
 *
 * Server: a ticket is the session, encrypted with AES-CBC and authenticated with HMAC-SHA256 under keys that all
 * threads share, as other servers do it, so that machines with the same key file accept each other's tickets. Own keys
 * rotate:
 *
 *     age of the first key   < LS_TLS_TICKET_ROTATE_S       it encrypts, and decrypts as does the one before
 *                            < 2 * LS_TLS_TICKET_ROTATE_S   it becomes the second, a new one the first
 *                            else                           all are dropped
 *
 * A ticket lives for LS_TLS_TICKET_LIFE_S, which is shorter than one period. A keyring has the keys of other servers;
 * when they are not renewed, they rotate as own ones.
 *
 * Client: a context keeps the newest session of each server name; the least recently used of LS_TLS_CACHE_MAX leaves
 * first, and all leave when a file has changed, as they were verified with the old trust. The cache and each
 * connection have copies of their own: OpenSSL marks a session as used up when a handshake with it completes, but
 * connections begin before those in front of them have received new tickets.
 *
 * tls->lock guards keys and cache. */
#include <string.h>

#include <openssl/core_names.h>
#include <openssl/rand.h>

#include "base/clock.h"
#include "base/err.h"
#include "net/tls/tls_internal_openssl.h"

enum { KEY_SMALL = 48, KEY_LARGE = 80 };

/* ---- keys of tickets ---------------------------------------------------------------------------------------- */

static bool make_key(ls_tls_ticket_key *out)
{
    out->half = 32;
    return RAND_bytes(out->name, sizeof out->name) == 1 && RAND_priv_bytes(out->hmac, sizeof out->hmac) == 1 &&
           RAND_priv_bytes(out->aes, sizeof out->aes) == 1;
}

int ls_tls_tickets_make(ls_tls_tickets *out)
{
    if (!make_key(&out->keys[0])) return LS_ESYS;
    out->count = 1;
    out->own = true;
    out->made_ms = ls_clock_coarse_ms();
    return LS_OK;
}

/* The layouts of nginx's ssl_session_ticket_key: name, HMAC key, AES-256 key; name, AES-128 key, HMAC key. */
static void parse_key(const unsigned char *bytes, size_t key_bytes, ls_tls_ticket_key *out)
{
    out->half = key_bytes == KEY_LARGE ? 32 : 16;
    memcpy(out->name, bytes, 16);
    memcpy(key_bytes == KEY_LARGE ? out->hmac : out->aes, bytes + 16, out->half);
    memcpy(key_bytes == KEY_LARGE ? out->aes : out->hmac, bytes + 16 + out->half, out->half);
}

int ls_tls_tickets_read(const char *path, ls_tls_tickets *out, const ls_tls_text *why)
{
    char *bytes;
    size_t len;
    int err = ls_tls_read_file(path, &bytes, &len, why);
    if (err < 0) return err;
    const size_t key_bytes = len % KEY_LARGE == 0 ? KEY_LARGE : KEY_SMALL;
    if (len == 0 || len % key_bytes != 0) {
        err = ls_tls_fail(why, LS_EINVAL,
                          "'%s' must hold ticket keys of 80 bytes each, or of 48 bytes each; it has %zu", path, len);
    } else if (len / key_bytes > LS_TLS_TICKET_KEYS_MAX) {
        err = ls_tls_fail(why, LS_EINVAL, "'%s' holds more than %d ticket keys", path, LS_TLS_TICKET_KEYS_MAX);
    } else {
        out->own = false;
        out->count = (unsigned)(len / key_bytes);
        for (unsigned i = 0; i < out->count; i++)
            parse_key((const unsigned char *)bytes + i * key_bytes, key_bytes, &out->keys[i]);
    }
    OPENSSL_clear_free(bytes, len + 1);
    return err;
}

/* tls->lock is held. false: no random numbers; the old keys stay. */
static bool rotate(ls_tls_tickets *tickets)
{
    const uint64_t now = ls_clock_coarse_ms();
    const uint64_t period = (uint64_t)LS_TLS_TICKET_ROTATE_S * 1000;
    ls_tls_ticket_key fresh;
    if (!tickets->own || now - tickets->made_ms < period) return true;
    if (!make_key(&fresh)) return false;
    tickets->count = now - tickets->made_ms < 2 * period ? 2 : 1;
    if (tickets->count == 2) tickets->keys[1] = tickets->keys[0];
    tickets->keys[0] = fresh;
    tickets->made_ms = now;
    OPENSSL_cleanse(&fresh, sizeof fresh);
    return true;
}

int ls_tls_keyring_open(ls_tls_keyring **out)
{
    ls_tls_keyring *ring = OPENSSL_zalloc(sizeof *ring);
    if (ring == NULL) return LS_ENOMEM;
    atomic_init(&ring->refs, 1);
    ls_mutex_open(&ring->lock);
    const int err = ls_tls_tickets_make(&ring->tickets);
    if (err < 0)
        ls_tls_keyring_drop(ring);
    else
        *out = ring;
    return err;
}

void ls_tls_keyring_drop(ls_tls_keyring *ring)
{
    if (atomic_fetch_sub_explicit(&ring->refs, 1, memory_order_acq_rel) != 1) return;
    ls_mutex_close(&ring->lock);
    OPENSSL_clear_free(ring, sizeof *ring);
}

int ls_tls_keyring_set(ls_tls_keyring *ring, const char *bytes, size_t len)
{
    ls_tls_tickets *tickets = &ring->tickets;
    const unsigned count = (unsigned)(len / KEY_LARGE);
    if (len == 0 || len % KEY_LARGE != 0 || len / KEY_LARGE >= LS_TLS_TICKET_KEYS_MAX) return LS_EINVAL;
    ls_mutex_lock(&ring->lock);
    tickets->made_ms = ls_clock_coarse_ms();
    bool stays = false;
    for (unsigned i = 0; i < count; i++)
        stays |= memcmp(bytes + (size_t)i * KEY_LARGE, tickets->keys[0].name, sizeof tickets->keys[0].name) == 0;
    if (!stays) {
        ring->last = tickets->keys[0];
        ring->last_ms = tickets->made_ms;
    }
    for (unsigned i = 0; i < count; i++)
        parse_key((const unsigned char *)bytes + (size_t)i * KEY_LARGE, KEY_LARGE, &tickets->keys[i]);
    tickets->count = count;
    if (tickets->made_ms - ring->last_ms < (uint64_t)LS_TLS_TICKET_LIFE_S * 1000)
        tickets->keys[tickets->count++] = ring->last;
    ls_mutex_unlock(&ring->lock);
    return LS_OK;
}

/* Copy the key that encrypts (name NULL) or the one of this name. Its index; -1: there is no such key. */
static int take_key(ls_tls *tls, const unsigned char *name, ls_tls_ticket_key *out)
{
    int found = -1;
    ls_tls_keyring *ring = tls->config.keyring;
    ls_mutex *lock = ring != NULL ? &ring->lock : &tls->lock;
    ls_tls_tickets *tickets = ring != NULL ? &ring->tickets : &tls->tickets;
    ls_mutex_lock(lock);
    const bool ok = rotate(tickets);
    for (unsigned i = 0; i < tickets->count && found < 0; i++)
        if (name == NULL ? ok : memcmp(tickets->keys[i].name, name, sizeof out->name) == 0) found = (int)i;
    if (found >= 0) *out = tickets->keys[found];
    ls_mutex_unlock(lock);
    return found;
}

int ls_tls_ticket_key_cb(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac,
                         int encrypt)
{
    enum { FAILED = -1, UNKNOWN = 0, OK = 1, RENEW = 2 };
    ls_tls *tls = ls_tls_gen_of(ssl)->tls;
    ls_tls_ticket_key key;
    char digest[] = "SHA256";
    const int at = take_key(tls, encrypt ? NULL : name, &key);
    if (at < 0) return encrypt ? FAILED : UNKNOWN;
    const EVP_CIPHER *aes = key.half == 32 ? tls->aes256 : tls->aes128;
    const OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, key.hmac, key.half),
                                 OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                 OSSL_PARAM_construct_end()};
    bool ok = EVP_MAC_CTX_set_params(mac, params) == 1;
    if (encrypt) {
        memcpy(name, key.name, sizeof key.name);
        ok = ok && RAND_bytes(iv, EVP_CIPHER_get_iv_length(aes)) == 1 &&
             EVP_EncryptInit_ex(cipher, aes, NULL, key.aes, iv) == 1;
    } else {
        ok = ok && EVP_DecryptInit_ex(cipher, aes, NULL, key.aes, iv) == 1;
    }
    OPENSSL_cleanse(&key, sizeof key);
    if (!ok) return FAILED;
    if (encrypt) return OK;
    return at > 0 || SSL_version(ssl) >= TLS1_3_VERSION ? RENEW : OK; /* clients use a ticket of TLS 1.3 once */
}

/* The name in the ClientHello that is being processed, which OpenSSL has not parsed yet; *len 0: none. */
static const char *requested_name(SSL *ssl, size_t *len)
{
    enum { HEAD = 5 }; /* length of the list, type, length of the name (RFC 6066 section 3): OpenSSL refuses others */
    const unsigned char *list;
    size_t bytes;
    *len = 0;
    if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_server_name, &list, &bytes) != 1 || bytes <= HEAD) return "";
    *len = bytes - HEAD;
    return (const char *)list + HEAD;
}

int ls_tls_ticket_used_cb(SSL *ssl, SSL_SESSION *session, const unsigned char *key_name, size_t key_name_len,
                          int status, void *arg)
{
    size_t len;
    if (status != SSL_TICKET_SUCCESS && status != SSL_TICKET_SUCCESS_RENEW) return SSL_TICKET_RETURN_IGNORE_RENEW;
    const char *const made_for = SSL_SESSION_get0_hostname(session), *const name = requested_name(ssl, &len);
    const bool same = made_for == NULL ? len == 0 : len == strlen(made_for) && memcmp(name, made_for, len) == 0;
    if (!same && SSL_version(ssl) < TLS1_3_VERSION) return SSL_TICKET_RETURN_IGNORE_RENEW;
    return status == SSL_TICKET_SUCCESS ? SSL_TICKET_RETURN_USE : SSL_TICKET_RETURN_USE_RENEW;
}

/* ---- the newest session of each server ---------------------------------------------------------------------- */

/* Of this server; with `make`, else the entry to replace. NULL without. tls->lock is held. */
static ls_tls_cached *find(ls_tls_cache *cache, const char *server_name, bool make)
{
    ls_tls_cached *oldest = &cache->at[0];
    for (unsigned i = 0; i < LS_TLS_CACHE_MAX; i++) {
        ls_tls_cached *entry = &cache->at[i];
        if (entry->server_name != NULL && strcmp(entry->server_name, server_name) == 0) return entry;
        if (entry->used < oldest->used) oldest = entry;
    }
    return make ? oldest : NULL;
}

int ls_tls_new_session_cb(SSL *ssl, SSL_SESSION *session)
{
    const ls_tls_conn *s = BIO_get_data(SSL_get_rbio(ssl));
    ls_tls *tls = s->tls;
    if (s->name == NULL || SSL_SESSION_is_resumable(session) != 1) return 0;
    char *name = OPENSSL_strdup(s->name);
    SSL_SESSION *own = name != NULL ? SSL_SESSION_dup(session) : NULL;
    if (own == NULL) {
        OPENSSL_free(name);
        return 0;
    }
    ls_tls_cached drop = {name, own, 0}; /* unless its generation is the current one */
    ls_mutex_lock(&tls->lock);
    if (s->gen == tls->gen) {
        ls_tls_cached *entry = find(&tls->cache, s->name, true);
        drop = *entry;
        *entry = (ls_tls_cached){name, own, ++tls->cache.clock};
    }
    ls_mutex_unlock(&tls->lock);
    OPENSSL_free(drop.server_name);
    SSL_SESSION_free(drop.session);
    return 0; /* the reference is not kept */
}

void ls_tls_cache_use(ls_tls *tls, SSL *ssl, const char *server_name)
{
    SSL_SESSION *own = NULL;
    ls_mutex_lock(&tls->lock);
    ls_tls_cached *entry = find(&tls->cache, server_name, false);
    if (entry != NULL) {
        own = SSL_SESSION_dup(entry->session);
        entry->used = ++tls->cache.clock;
    }
    ls_mutex_unlock(&tls->lock);
    if (own == NULL) return;
    (void)SSL_set_session(ssl, own); /* without it the handshake is a full one */
    SSL_SESSION_free(own);
}

void ls_tls_cache_clear(ls_tls_cache *cache)
{
    for (unsigned i = 0; i < LS_TLS_CACHE_MAX; i++) {
        OPENSSL_free(cache->at[i].server_name);
        SSL_SESSION_free(cache->at[i].session);
        cache->at[i] = (ls_tls_cached){NULL, NULL, 0};
    }
}
