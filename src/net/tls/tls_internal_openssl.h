/* tls_internal_openssl.h - inside tls_openssl.c: what its files share.
 *
 *     tls_openssl.c           ls_tls: options, the files that it watches, reload
 *     tls_context_openssl.c   ls_tls_gen: one SSL_CTX for each certificate, and the settings of all
 *     tls_cert_openssl.c      certificates and keys from files or made in memory; names, dates, fingerprints
 *     tls_supply_openssl.c    certificates that are given while the server runs
 *     tls_resume_openssl.c    keys of session tickets (server), newest ticket of each server (client)
 *     tls_session_openssl.c   one connection: the handshake and the filter
 *     tls_peer_openssl.c      what was negotiated, and the reason of a failure, as text
 *
 * A generation (ls_tls_gen) never changes after it was built. A reload builds a new one; sessions that exist hold a
 * reference to theirs. */
#ifndef LS_NET_TLS_INTERNAL_OPENSSL_H
#define LS_NET_TLS_INTERNAL_OPENSSL_H

#include <stdatomic.h>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "base/compiler.h"
#include "base/os/thread.h"
#include "net/tls/tls.h"
#include "port/file/file.h"

/* ---- reasons ------------------------------------------------------------------------------------------------ */

typedef struct ls_tls_text { /* of the caller of ls_tls_open and ls_tls_reload */
    char *text;
    size_t bytes;
} ls_tls_text;

LS_PRINTF(3, 4)
int ls_tls_fail(const ls_tls_text *why, int err, const char *format, ...); /* writes why; returns err */

/* The reason of the first error in OpenSSL's queue, as text; empties the queue. `room` may be used for it. */
enum { LS_TLS_REASON_BYTES = 160 };
const char *ls_tls_reason(char room[LS_TLS_REASON_BYTES]);

/* ---- files -------------------------------------------------------------------------------------------------- */

/* Read a whole file, at most LS_TLS_FILE_BYTES_MAX. A final 0 follows the bytes. OPENSSL_free(*bytes). */
enum { LS_TLS_FILE_BYTES_MAX = 4 << 20 };
int ls_tls_read_file(const char *path, char **bytes, size_t *len, const ls_tls_text *why);

/* ---- certificates ------------------------------------------------------------------------------------------- */

typedef struct ls_tls_pair { /* a certificate with its chain and key */
    X509 *cert;
    STACK_OF(X509) * chain; /* without cert */
    EVP_PKEY *key;
} ls_tls_pair;

int ls_tls_pair_read(const ls_tls_cert *files, ls_tls_pair *out, const ls_tls_text *why);
/* The same from a text that has all, of the file or certificate `name`. */
int ls_tls_pair_parse(const char *name, const char *pem, size_t len, ls_tls_pair *out, const ls_tls_text *why);
/* A self-signed one with a key for P-256, for these subjectAltNames; `proof`, or NULL: see ls_tls_supply_prove.
 * LS_ENOMEM */
int ls_tls_pair_make(const char *common_name, const char *names, const uint8_t *proof, ls_tls_pair *out);
int ls_tls_pair_copy(const ls_tls_pair *from, ls_tls_pair *out); /* with references; LS_ENOMEM */
void ls_tls_pair_drop(ls_tls_pair *pair);
const char *ls_tls_day_of(const ASN1_TIME *time, char to[16]);                     /* "2026-01-31" */
void ls_tls_pair_warn(const X509 *cert, const char *path, const ls_tls_text *why); /* expired, not yet valid */

/* The DNS names that a certificate is for, in lower case: of its subjectAltName, without any the commonName. */
typedef struct ls_tls_names {
    char **names;
    unsigned count;
} ls_tls_names;
int ls_tls_names_of(const X509 *cert, ls_tls_names *out); /* LS_ENOMEM */
void ls_tls_names_drop(ls_tls_names *names);
bool ls_tls_names_equal(const ls_tls_names *a, const ls_tls_names *b);
/* 2: one of the names is `host`; 1: a wildcard matches it (RFC 6125 section 6.4.3); 0. */
int ls_tls_names_match(const ls_tls_names *names, const char *host);

/* All certificates of a PEM file. LS_EINVAL: it holds no certificate. */
int ls_tls_read_certs(const char *path, STACK_OF(X509) * *out, const ls_tls_text *why);
void ls_tls_hex(const X509 *cert, char out[96]); /* its fingerprint; "" without memory */

/* ---- certificates that are given ---------------------------------------------------------------------------- */

ls_tls_supply *ls_tls_supply_hold(ls_tls_supply *supply);
uint64_t ls_tls_supply_version(const ls_tls_supply *supply); /* changes with each ls_tls_supply_set */
int ls_tls_supply_get(ls_tls_supply *supply, const char *name, ls_tls_pair *out); /* an empty pair: not given yet */
/* Use the certificate that proves `host`, if there is one. */
bool ls_tls_supply_answer(ls_tls_supply *supply, SSL *ssl, const char *host);

/* ---- resumption --------------------------------------------------------------------------------------------- */

enum {
    LS_TLS_TICKET_KEYS_MAX = 16,
    LS_TLS_TICKET_ROTATE_S = 12 * 3600, /* own keys: time for which one encrypts, then for which it still decrypts */
    LS_TLS_TICKET_LIFE_S = 4 * 3600,
    LS_TLS_CACHE_MAX = 64 /* servers whose newest ticket a client context keeps */
};

typedef struct ls_tls_ticket_key {
    unsigned char name[16], hmac[32], aes[32];
    unsigned half; /* bytes of hmac and of aes: 16 or 32 */
} ls_tls_ticket_key;

typedef struct ls_tls_tickets { /* the first key encrypts, all decrypt */
    ls_tls_ticket_key keys[LS_TLS_TICKET_KEYS_MAX];
    unsigned count;
    bool own;         /* made here: they rotate */
    uint64_t made_ms; /* of an own first key, ls_clock_coarse_ms */
} ls_tls_tickets;

struct ls_tls_keyring {
    _Atomic uint32_t refs;
    ls_mutex lock; /* of the following */
    ls_tls_tickets tickets;
    ls_tls_ticket_key last; /* that encrypted until ls_tls_keyring_set replaced it by another one, at last_ms */
    uint64_t last_ms;
};

typedef struct ls_tls_cached {
    char *server_name; /* NULL: unused */
    SSL_SESSION *session;
    uint64_t used; /* value of the cache's clock */
} ls_tls_cached;

typedef struct ls_tls_cache {
    ls_tls_cached at[LS_TLS_CACHE_MAX];
    uint64_t clock; /* counts uses */
} ls_tls_cache;

int ls_tls_tickets_make(ls_tls_tickets *out); /* LS_ESYS: no random numbers */
int ls_tls_tickets_read(const char *path, ls_tls_tickets *out, const ls_tls_text *why);
/* As SSL_CTX_set_tlsext_ticket_key_evp_cb(3) asks for. */
int ls_tls_ticket_key_cb(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac,
                         int encrypt);
/* As SSL_CTX_set_session_ticket_cb(3) asks for: TLS 1.2 resumes a session only for the name that it was made for (RFC
 * 6066 section 3). In TLS 1.3 names do not belong to sessions. */
int ls_tls_ticket_used_cb(SSL *ssl, SSL_SESSION *session, const unsigned char *key_name, size_t key_name_len,
                          int status, void *arg);
int ls_tls_new_session_cb(SSL *ssl, SSL_SESSION *session); /* of a client */
void ls_tls_cache_use(ls_tls *tls, SSL *ssl, const char *server_name);
void ls_tls_cache_clear(ls_tls_cache *cache);

/* ---- contexts ----------------------------------------------------------------------------------------------- */

typedef struct ls_tls_site { /* one certificate, or several of the same names with different types of keys */
    SSL_CTX *ctx;
    ls_tls_names names;
} ls_tls_site;

typedef struct ls_tls_gen {
    _Atomic uint32_t refs;
    ls_tls *tls; /* not a reference: a session holds one of its own */
    ls_tls_site *sites;
    unsigned site_count; /* a client has one */
} ls_tls_gen;

/* What ls_tls_open was given, copied. Lists of strings end in NULL. */
typedef struct ls_tls_config {
    bool server, insecure, no_resumption;
    enum ls_tls_verify verify;
    ls_tls_cert *certs;
    unsigned cert_count;
    ls_tls_pair self_signed; /* cert NULL: none */
    char *ca, *tickets;
    ls_tls_keyring *keyring;
    ls_tls_supply *supply;
    char *ciphers12, *ciphers13;
    int min;     /* TLS1_2_VERSION, TLS1_3_VERSION */
    char **alpn; /* NULL: none */
    unsigned char *alpn_wire;
    unsigned alpn_wire_bytes;
} ls_tls_config;

struct ls_tls {
    _Atomic uint32_t refs;
    ls_tls_config config;
    BIO_METHOD *bio;
    EVP_CIPHER *aes128, *aes256; /* of tickets: a fetch for each would take longer than the encryption */
    ls_mutex reload_lock;
    _Atomic uint64_t supply_seen; /* the version at the last build */
    struct ls_tls_seen *seen;     /* the watched files at the last build; guarded by reload_lock */
    unsigned seen_count;
    ls_tls_pair *pairs; /* those in use, cert_count; guarded by reload_lock */
    char *names;        /* ls_tls_expect_names; guarded by reload_lock */
    ls_mutex lock;      /* of the following, held for at most a few microseconds */
    ls_tls_gen *gen;
    ls_tls_tickets tickets;
    ls_tls_cache cache;
};

/* Build a generation from the files. `pairs`, of cert_count empty ones, receives their certificates. `keep`: the one
 * in use takes the place of a certificate that cannot be used; the result is then the error of the last such one, *out
 * is set all the same, and `why` names all. *out stays NULL on another failure. */
int ls_tls_gen_build(ls_tls *tls, bool keep, ls_tls_pair *pairs, ls_tls_gen **out, const ls_tls_text *why);
void ls_tls_gen_drop(ls_tls_gen *gen);
/* Split a list of ciphers into those of TLS 1.2 and 1.3, and check each name. */
int ls_tls_ciphers_parse(ls_tls_config *config, const char *list, const ls_tls_text *why);

/* ---- sessions ----------------------------------------------------------------------------------------------- */

typedef struct ls_tls_conn {
    ls_filter filter; /* first */
    SSL *ssl;         /* NULL: of a server, before the first record */
    ls_tls *tls;
    ls_tls_gen *gen;    /* with ssl */
    ls_slice in;        /* received, not yet consumed by OpenSSL */
    ls_filter_out *out; /* during a call that may produce bytes, else NULL */
    char *first;        /* of a server: the first record, which arrives in pieces */
    char *name;         /* of a client: the server's */
    char *why;
    uint32_t first_len;
    int32_t failed; /* LS_E*: the session can no longer read */
    uint16_t burst; /* plaintext bytes since the start of the burst, see write_records */
    uint8_t out_at; /* index of the slice of `out` that is being filled */
    bool server;
    bool complete;    /* the handshake */
    bool ended;       /* feed_end was called */
    bool closed;      /* close_notify was received */
    bool owes_result; /* `failed` or `closed` is not yet reported by a read */
    bool drained;     /* the last write took everything */
    bool write_ended; /* close_notify was sent, or a write failed */
    bool no_memory;   /* in a callback */
    bool begun;       /* the first byte was received */
    bool not_tls;     /* it does not begin a record */
    bool proves;      /* the client is an authority, which looks at the certificate alone (RFC 8737) */
} ls_tls_conn;

BIO_METHOD *ls_tls_bio_make(void);

/* The reason of a failed handshake or read, from OpenSSL's queue, as an error code and as text in s->why. */
int ls_tls_explain(ls_tls_conn *s);

static inline ls_tls_gen *ls_tls_gen_of(const SSL *ssl)
{
    return SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
}

#endif
