/* tls_contexts.c - see tls_contexts.h. A short list; the options of each are a text to compare. */
#include "script/bind/tls/tls_contexts.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/list.h"
#include "base/os/thread.h"
#include "net/handshake.h"

typedef struct tls_context {
    ls_node node;
    ls_tls *tls;
    size_t key_bytes;
    char key[];
} tls_context;

struct ls_tls_contexts {
    ls_mutex mutex;
    ls_node list; /* the oldest first */
    unsigned count;
};

/* A key that is being written. */
typedef struct key_writer {
    char *to; /* NULL: only the number of bytes is wanted */
    size_t bytes;
} key_writer;

static void key_byte(key_writer *key, char byte)
{
    if (key->to != NULL) key->to[key->bytes] = byte;
    key->bytes++;
}

/* A text with its NUL, behind a byte that tells an absent one from an empty one. */
static void key_text(key_writer *key, const char *text)
{
    const size_t bytes = text != NULL ? strlen(text) + 1 : 0;
    key_byte(key, text != NULL ? '=' : '-');
    if (key->to != NULL && bytes > 0) memcpy(key->to + key->bytes, text, bytes);
    key->bytes += bytes;
}

/* Write the options as bytes that differ when they differ. `to` may be NULL. Returns the number of bytes. */
static size_t key_write(const ls_tls_options *o, char *to)
{
    const char *const texts[] = {o->ca, o->min, o->ciphers, o->alpn, o->tickets};
    key_writer key = {to, 0};
    key_byte(&key, o->server ? 's' : 'c');
    key_byte(&key, o->insecure ? '1' : '0');
    key_byte(&key, (char)('0' + o->verify));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) key_text(&key, texts[i]);
    for (unsigned i = 0; i < o->cert_count; i++) {
        key_text(&key, o->certs[i].cert);
        key_text(&key, o->certs[i].key);
        key_text(&key, o->certs[i].password);
    }
    return key.bytes;
}

static tls_context *context_new(const ls_tls_options *options)
{
    const size_t bytes = key_write(options, NULL);
    tls_context *context = malloc(sizeof *context + bytes);
    if (context == NULL) return NULL;
    ls_node_init(&context->node);
    context->key_bytes = key_write(options, context->key);
    return context;
}

static void context_remove(ls_tls_contexts *contexts, tls_context *context)
{
    ls_list_remove(&context->node);
    contexts->count--;
    ls_tls_drop(context->tls);
    free(context);
}

static tls_context *context_find(ls_tls_contexts *contexts, const tls_context *like)
{
    LS_LIST_EACH (tls_context, context, &contexts->list, node) {
        if (context->key_bytes == like->key_bytes && memcmp(context->key, like->key, like->key_bytes) == 0)
            return context;
    }
    return NULL;
}

/* The mutex is held: two tasks that begin at the same time share the context. Takes `context`. */
static int find_or_open(ls_tls_contexts *contexts, tls_context *context, const ls_tls_options *options, ls_tls **out,
                        char *why, size_t why_bytes)
{
    tls_context *found = context_find(contexts, context);
    if (found != NULL) {
        free(context);
        if (options->ca != NULL || options->cert_count > 0) ls_handshake_refresh(found->tls);
        *out = ls_tls_hold(found->tls);
        return LS_OK;
    }
    const int err = ls_tls_open(options, &context->tls, why, why_bytes);
    if (err < 0) {
        free(context);
        return err;
    }
    if (contexts->count == LS_TLS_CONTEXTS_MAX)
        context_remove(contexts, LS_CONTAINER(contexts->list.next, tls_context, node));
    ls_list_push(&contexts->list, &context->node);
    contexts->count++;
    *out = ls_tls_hold(context->tls);
    return LS_OK;
}

int ls_tls_contexts_get(ls_tls_contexts *contexts, const ls_tls_options *options, ls_tls **out, char *why,
                        size_t why_bytes)
{
    tls_context *context = context_new(options);
    if (why_bytes > 0) why[0] = '\0';
    if (context == NULL) return LS_ENOMEM;
    ls_mutex_lock(&contexts->mutex);
    const int err = find_or_open(contexts, context, options, out, why, why_bytes);
    ls_mutex_unlock(&contexts->mutex);
    return err;
}

int ls_tls_contexts_open(ls_tls_contexts **out)
{
    ls_tls_contexts *contexts = calloc(1, sizeof *contexts);
    if (contexts == NULL) return LS_ENOMEM;
    const int err = ls_mutex_open(&contexts->mutex);
    if (err < 0) {
        free(contexts);
        return err;
    }
    ls_node_init(&contexts->list);
    *out = contexts;
    return LS_OK;
}

void ls_tls_contexts_close(ls_tls_contexts *contexts)
{
    while (!ls_list_empty(&contexts->list))
        context_remove(contexts, LS_CONTAINER(contexts->list.next, tls_context, node));
    ls_mutex_close(&contexts->mutex);
    free(contexts);
}
