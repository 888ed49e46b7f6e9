/* tls_options.c - the identity of TLS options, with or without OpenSSL. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/tls/tls.h"

enum { TEXTS = 5, CERT_TEXTS = 4, LENGTH_CHARS = 24 };

static const char *text_at(const ls_tls_options *o, unsigned i)
{
    const char *const texts[TEXTS] = {o->ca, o->min, o->ciphers, o->alpn, o->tickets};
    if (i < TEXTS) return texts[i];
    const ls_tls_cert *cert = &o->certs[(i - TEXTS) / CERT_TEXTS];
    const char *const of_cert[CERT_TEXTS] = {cert->cert, cert->key, cert->password, cert->supplied};
    return of_cert[(i - TEXTS) % CERT_TEXTS];
}

char *ls_tls_options_key(const ls_tls_options *o)
{
    const unsigned count = TEXTS + CERT_TEXTS * o->cert_count;
    size_t room = LENGTH_CHARS, used;
    for (unsigned i = 0; i < count; i++) {
        const char *text = text_at(o, i);
        room += LENGTH_CHARS + (text != NULL ? strlen(text) : 0);
    }
    char *key = malloc(room);
    if (key == NULL) return NULL;
    used = (size_t)snprintf(key, room, "%d%d%d%d%d%d", o->server, o->self_signed, (int)o->verify, o->insecure,
                            o->no_resumption, o->keyring != NULL);
    for (unsigned i = 0; i < count; i++) { /* with its length, so that no two lists of texts make the same key */
        const char *text = text_at(o, i);
        if (text != NULL)
            used += (size_t)snprintf(key + used, room - used, "%zu:%s", strlen(text), text);
        else
            used += (size_t)snprintf(key + used, room - used, "-");
    }
    return key;
}
