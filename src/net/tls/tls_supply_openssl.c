/* tls_supply_openssl.c - certificates that are given while the server runs: see tls.h. Two short lists, of the
 * certificates by their name and of the proofs by their host. Nothing is removed but proofs: a context that is built
 * later uses what is there. */
#include <stdio.h>
#include <string.h>

#include "base/crypto/digest.h"
#include "base/err.h"
#include "net/tls/tls_internal_openssl.h"

typedef struct supplied {
    struct supplied *next;
    ls_tls_pair pair;
    char name[];
} supplied;

struct ls_tls_supply {
    _Atomic uint32_t refs;
    _Atomic uint64_t version;
    ls_mutex lock; /* of the lists */
    supplied *certs, *proofs;
};

int ls_tls_supply_open(ls_tls_supply **out)
{
    if (ls_digest_start() < 0) return LS_ENOMEM;
    ls_tls_supply *supply = OPENSSL_zalloc(sizeof *supply);
    if (supply == NULL) return LS_ENOMEM;
    atomic_init(&supply->refs, 1);
    ls_mutex_open(&supply->lock);
    *out = supply;
    return LS_OK;
}

ls_tls_supply *ls_tls_supply_hold(ls_tls_supply *supply)
{
    atomic_fetch_add(&supply->refs, 1);
    return supply;
}

static void drop_first(supplied **list)
{
    supplied *one = *list;
    *list = one->next;
    ls_tls_pair_drop(&one->pair);
    OPENSSL_free(one);
}

void ls_tls_supply_drop(ls_tls_supply *supply)
{
    if (atomic_fetch_sub(&supply->refs, 1) != 1) return;
    while (supply->certs != NULL) drop_first(&supply->certs);
    while (supply->proofs != NULL) drop_first(&supply->proofs);
    ls_mutex_close(&supply->lock);
    OPENSSL_free(supply);
}

/* Where the one with this name is in the list, or the end of the list. */
static supplied **find(supplied **list, const char *name)
{
    while (*list != NULL && strcmp((*list)->name, name) != 0) list = &(*list)->next;
    return list;
}

/* The pair takes the place of the one with this name; NULL: removes that. LS_ENOMEM: the pair was dropped. */
static int put(ls_tls_supply *supply, supplied **list, const char *name, ls_tls_pair *pair)
{
    const size_t bytes = strlen(name) + 1;
    supplied *made = pair != NULL ? OPENSSL_zalloc(sizeof *made + bytes) : NULL;
    if (pair != NULL && made == NULL) {
        ls_tls_pair_drop(pair);
        return LS_ENOMEM;
    }
    ls_mutex_lock(&supply->lock);
    supplied **at = find(list, name);
    if (*at != NULL) drop_first(at);
    if (made != NULL) {
        made->pair = *pair;
        made->next = *at;
        memcpy(made->name, name, bytes);
        *at = made;
    }
    ls_mutex_unlock(&supply->lock);
    return LS_OK;
}

int ls_tls_supply_set(ls_tls_supply *supply, const char *name, const char *pem, size_t len, char *why_text,
                      size_t why_bytes)
{
    const ls_tls_text why = {why_text, why_bytes};
    ls_tls_pair pair;
    int err = len <= LS_TLS_FILE_BYTES_MAX ? ls_tls_pair_parse(name, pem, len, &pair, &why) : LS_EINVAL;
    if (err == LS_OK && (err = put(supply, &supply->certs, name, &pair)) == LS_OK)
        atomic_fetch_add(&supply->version, 1);
    return err;
}

int ls_tls_supply_prove(ls_tls_supply *supply, const char *host, const uint8_t digest[LS_TLS_PROOF_BYTES])
{
    char names[300];
    ls_tls_pair pair;
    (void)snprintf(names, sizeof names, "DNS:%s", host);
    if (digest == NULL) return put(supply, &supply->proofs, host, NULL);
    const int err = ls_tls_pair_make("acme-tls", names, digest, &pair);
    return err < 0 ? err : put(supply, &supply->proofs, host, &pair);
}

uint64_t ls_tls_supply_version(const ls_tls_supply *supply)
{
    return atomic_load_explicit(&supply->version, memory_order_acquire);
}

int ls_tls_supply_get(ls_tls_supply *supply, const char *name, ls_tls_pair *out)
{
    *out = (ls_tls_pair){NULL, NULL, NULL};
    ls_mutex_lock(&supply->lock);
    const supplied *found = *find(&supply->certs, name);
    const int err = found != NULL ? ls_tls_pair_copy(&found->pair, out) : LS_OK;
    ls_mutex_unlock(&supply->lock);
    return err;
}

bool ls_tls_supply_answer(ls_tls_supply *supply, SSL *ssl, const char *host)
{
    ls_mutex_lock(&supply->lock);
    const supplied *found = *find(&supply->proofs, host);
    const bool used = found != NULL && SSL_use_cert_and_key(ssl, found->pair.cert, found->pair.key, NULL, 1) == 1;
    ls_mutex_unlock(&supply->lock);
    if (used) SSL_set_verify(ssl, SSL_VERIFY_NONE, NULL); /* the connection ends after the handshake */
    return used;
}
