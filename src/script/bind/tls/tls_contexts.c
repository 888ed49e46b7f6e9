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
    char *key;
} tls_context;

struct ls_tls_contexts {
    ls_mutex mutex;
    ls_node list; /* the oldest first */
    unsigned count;
};

static void context_remove(ls_tls_contexts *contexts, tls_context *context)
{
    ls_list_remove(&context->node);
    contexts->count--;
    ls_tls_drop(context->tls);
    free(context->key);
    free(context);
}

static tls_context *context_find(const ls_tls_contexts *contexts, const char *key)
{
    LS_LIST_EACH (tls_context, context, &contexts->list, node)
        if (strcmp(context->key, key) == 0) return context;
    return NULL;
}

/* Open a context in place of the oldest one, if there are too many. Takes `key` with success. */
static int context_open(ls_tls_contexts *contexts, const ls_tls_options *options, char *key, tls_context **out,
                        char *why, size_t why_bytes)
{
    tls_context *context = calloc(1, sizeof *context);
    const int err = context != NULL ? ls_tls_open(options, &context->tls, why, why_bytes) : LS_ENOMEM;
    if (err < 0) {
        free(context);
        return err;
    }
    if (contexts->count == LS_TLS_CONTEXTS_MAX)
        context_remove(contexts, LS_CONTAINER(contexts->list.next, tls_context, node));
    context->key = key;
    ls_list_push(&contexts->list, &context->node);
    contexts->count++;
    *out = context;
    return LS_OK;
}

int ls_tls_contexts_get(ls_tls_contexts *contexts, const ls_tls_options *options, ls_tls **out, char *why,
                        size_t why_bytes)
{
    char *key = ls_tls_options_key(options);
    int err = LS_OK;
    if (why_bytes > 0) why[0] = '\0';
    if (key == NULL) return LS_ENOMEM;
    ls_mutex_lock(&contexts->mutex); /* also while one is opened: two tasks that begin at the same time share it */
    tls_context *context = context_find(contexts, key);
    if (context == NULL) {
        if ((err = context_open(contexts, options, key, &context, why, why_bytes)) == LS_OK) key = NULL;
    } else if (options->ca != NULL || options->cert_count > 0) {
        ls_handshake_refresh(context->tls);
    }
    if (err == LS_OK) *out = ls_tls_hold(context->tls);
    ls_mutex_unlock(&contexts->mutex);
    free(key);
    return err;
}

int ls_tls_contexts_open(ls_tls_contexts **out)
{
    ls_tls_contexts *contexts = calloc(1, sizeof *contexts);
    if (contexts == NULL) return LS_ENOMEM;
    ls_mutex_open(&contexts->mutex);
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
