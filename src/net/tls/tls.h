/* tls.h - TLS 1.2 and 1.3 (RFC 5246, RFC 8446) for streams. tls_openssl.c implements it with OpenSSL 3; tls_none.c
 * stands in for it in a build without OpenSSL and returns LS_ENOTSUP.
 *
 * A context (ls_tls) holds certificates, keys and settings; all threads share it. A session is one connection without
 * its input and output: ls_tls_handshake consumes and produces bytes until it is complete; afterwards the session is a
 * filter (net/stream/filter.h) of the stream. */
#ifndef LS_NET_TLS_H
#define LS_NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/stream/filter.h"

typedef struct ls_tls ls_tls;

enum ls_tls_verify { LS_TLS_VERIFY_NONE, LS_TLS_VERIFY_OPTIONAL, LS_TLS_VERIFY_REQUIRED };

typedef struct ls_tls_cert { /* PEM files; the certificate file may hold the chain, and the key */
    const char *cert, *key;  /* key NULL: in the certificate file */
    const char *password;    /* of an encrypted key; NULL: none */
    const char *supplied;    /* a name of the supply, in place of files; NULL: none */
} ls_tls_cert;

typedef struct ls_tls_options {
    bool server;
    const ls_tls_cert *certs; /* a server chooses by SNI from the names in them; the first one is the default */
    unsigned cert_count;
    bool self_signed;          /* server: make a key (P-256) and a certificate in memory */
    const char *ca;            /* PEM file of trusted certificates: of clients for a server, of servers for a client;
                              * NULL: none, for a client the trust store of the system */
    enum ls_tls_verify verify; /* server: of clients */
    bool insecure;             /* client: accept any certificate */
    const char *min;           /* "1.2" (default), "1.3" */
    const char *ciphers; /* of TLS 1.2 and 1.3, as `openssl ciphers` takes them; NULL: Mozilla's intermediate list */
    const char *alpn;    /* protocols in order of preference, separated by commas; NULL: none */
    const char *tickets; /* server: file with ticket keys, shared by machines; NULL: own keys, which rotate */
    struct ls_tls_keyring *keyring; /* server: ticket keys in place of own ones; NULL: none */
    struct ls_tls_supply *supply;   /* server: where the certificates with `supplied` are, or will be; NULL: none */
    bool no_resumption;             /* client: full handshakes only */
    const char *names;              /* server: that the site has, one per line; NULL: none. For ls_tls_check_names */
} ls_tls_options;

/* `why` receives the file and the reason when it fails, or a warning (an expired certificate) on success, else "".
 * LS_OK; LS_EINVAL; LS_ENOENT, LS_EACCES; LS_ENOTSUP: built without OpenSSL; LS_ENOMEM. */
int ls_tls_open(const ls_tls_options *options, ls_tls **out, char *why, size_t why_bytes);
/* A text that is the same for the same options, `names` left out. The caller frees it; NULL: out of memory. */
char *ls_tls_options_key(const ls_tls_options *options);
ls_tls *ls_tls_hold(ls_tls *tls); /* + 1 reference */
void ls_tls_drop(ls_tls *tls);
/* Keys of session tickets that contexts share: an own one, which rotates, until ls_tls_keyring_set. Any thread. */
typedef struct ls_tls_keyring ls_tls_keyring;
int ls_tls_keyring_open(ls_tls_keyring **out);  /* LS_ENOMEM, LS_ESYS, LS_ENOTSUP */
void ls_tls_keyring_drop(ls_tls_keyring *ring); /* contexts have references of their own */
/* Keys of 80 bytes as those of a file; the first encrypts from now on, the one that did until now still decrypts.
 * Without another call own keys follow after LS_TLS_TICKET_ROTATE_S. LS_OK or LS_EINVAL. */
int ls_tls_keyring_set(ls_tls_keyring *ring, const char *bytes, size_t len);

/* Certificates that are given while the server runs (RFC 8555), and those that prove a name to an authority (RFC 8737).
 * Contexts have references of their own, and use a certificate for the handshakes that begin after the call; one
 * whose certificate is missing refuses handshakes with the alert unrecognized_name. Any thread. */
typedef struct ls_tls_supply ls_tls_supply;
int ls_tls_supply_open(ls_tls_supply **out); /* LS_ENOMEM, LS_ENOTSUP */
void ls_tls_supply_drop(ls_tls_supply *supply);
/* The certificate of this name, from a PEM text with its chain and key. LS_OK; LS_EINVAL with the reason in `why`;
 * LS_ENOMEM. */
int ls_tls_supply_set(ls_tls_supply *supply, const char *name, const char *pem, size_t len, char *why,
                      size_t why_bytes);
/* Prove `host` with this digest to who offers only the protocol "acme-tls/1"; NULL: no longer. LS_OK, LS_ENOMEM. */
enum { LS_TLS_PROOF_BYTES = 32 };
int ls_tls_supply_prove(ls_tls_supply *supply, const char *host, const uint8_t digest[LS_TLS_PROOF_BYTES]);

const char *ls_tls_library(void); /* "OpenSSL 3.0.15", for --version; NULL: not built in */

/* Read the files again if they changed; `force`: in any case. Handshakes that begin later use the new
 * certificates; sessions that exist keep theirs. Logs each new certificate. On failure the old ones stay, and `why`
 * says why; without `force` that holds for each of several certificates on its own. LS_OK, also when nothing changed.
 * Any thread. */
int ls_tls_reload(ls_tls *tls, bool force, char *why, size_t why_bytes);

/* The certificates should have these names, one per line (NULL: none): a renewal that leaves one without is a warning
 * in the log. `more`: beside those of earlier calls, else instead of them. Any thread. */
void ls_tls_expect_names(ls_tls *tls, const char *names, bool more);

/* SHA-256 of the default certificate in hexadecimal with colons. */
void ls_tls_fingerprint(const ls_tls *tls, char out[96]);

/* Warn in the log of each of these names, one per line (NULL: none), that no certificate of a server has; a name may
 * begin with "*.". `where`: the place in the site, or "". */
void ls_tls_check_names(const ls_tls *tls, const char *names, const char *where);

/* A new session. server_name: a client's SNI and the name that the certificate must have (a name or an address). It
 * must be given unless `insecure`. LS_OK, LS_ENOMEM, LS_EINVAL. */
int ls_tls_session(ls_tls *tls, const char *server_name, ls_filter **out);

/* Continue the handshake. LS_DONE: complete (*out may hold the last bytes, which must be sent); LS_EAGAIN: send *out,
 * then feed received bytes; LS_EPROTO, LS_ECERT (the peer's certificate is not accepted), LS_ETRUNCATED, LS_ENOMEM:
 * failed; *out may hold an alert. */
int ls_tls_handshake(ls_filter *session, ls_filter_out *out);
/* Whether the handshake of a server waits for the rest of the first record, and holds not more than 2 KiB for that.
 * One that has begun takes about 40 KiB. */
bool ls_tls_is_small(const ls_filter *session);
const char *ls_tls_why(const ls_filter *session); /* the reason of a failure, static or owned by the session */

bool ls_tls_resumed(const ls_filter *session); /* a complete handshake that resumed an earlier session */

/* What was negotiated, valid as long as the session. NULL or empty: not negotiated, not sent. */
typedef struct ls_tls_peer {
    const char *version, *cipher, *alpn,
        *server_name;       /* "TLSv1.3", "TLS_AES_128_GCM_SHA256", "http/1.1", "example.org" */
    bool resumed, verified; /* verified: the peer has a certificate, which was checked and accepted */
    bool is_client;         /* the peer is the client: this side is the server */
    char subject[256], issuer[256], fingerprint[96]; /* of the peer's certificate */
} ls_tls_peer;
void ls_tls_peer_of(const ls_filter *session, ls_tls_peer *out);
bool ls_tls_speaks(const ls_filter *session, const char *protocol); /* whether ALPN has negotiated it */

#endif
