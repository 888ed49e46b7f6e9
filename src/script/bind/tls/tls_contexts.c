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

static tls_context *context_new(const ls_tls_options *options)
{
    tls_context *context = calloc(1, sizeof *context);
    if (context == NULL) return NULL;
    ls_node_init(&context->node);
    if ((context->key = ls_tls_options_key(options)) != NULL) return context;
    free(context);
    return NULL;
}

static void context_free(tls_context *context)
{
    free(context->key);
    free(context);
}

static void context_remove(ls_tls_contexts *contexts, tls_context *context)
{
    ls_list_remove(&context->node);
    contexts->count--;
    ls_tls_drop(context->tls);
    context_free(context);
}

static tls_context *context_find(ls_tls_contexts *contexts, const tls_context *like)
{
    LS_LIST_EACH (tls_context, context, &contexts->list, node) {
        if (strcmp(context->key, like->key) == 0) return context;
    }
    return NULL;
}

/* The mutex is held: two tasks that begin at the same time share the context. Takes `context`. */
static int find_or_open(ls_tls_contexts *contexts, tls_context *context, const ls_tls_options *options, ls_tls **out,
                        char *why, size_t why_bytes)
{
    tls_context *found = context_find(contexts, context);
    if (found != NULL) {
        context_free(context);
        if (options->ca != NULL || options->cert_count > 0) ls_handshake_refresh(found->tls);
        *out = ls_tls_hold(found->tls);
        return LS_OK;
    }
    const int err = ls_tls_open(options, &context->tls, why, why_bytes);
    if (err < 0) {
        context_free(context);
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
