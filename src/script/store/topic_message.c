/* topic_message.c - publications: one allocation with the entries for the inboxes, the name and mostly the data; and
 * their encoded forms. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "script/store/topic_internal.h"

typedef struct message {
    ls_publication publication; /* first */
    unsigned members;
    ls_topic_entry entries[]; /* then the bytes that are copied */
} message;

typedef struct ls_topic_form_block {
    ls_external external; /* first */
    size_t len;
    char bytes[];
} form_block;

ls_topic_entry *ls_publication_entries(ls_publication *p)
{
    return LS_CONTAINER(p, message, publication)->entries;
}

/* Copy the bytes to *at, which moves after them. */
static ls_slice copied(char **at, const char *bytes, size_t len)
{
    const ls_slice slice = ls_slice_static(*at, len);
    if (len > 0) memcpy(*at, bytes, len);
    *at += len;
    return slice;
}

ls_publication *ls_publication_make(const ls_publish_order *order, unsigned members)
{
    const bool copy = order->data.block == NULL || order->retain;
    const size_t fixed = sizeof(message) + members * sizeof(ls_topic_entry),
                 position = order->numbered ? LS_POSITION_BYTES : 0,
                 names = order->topic_len + order->event.len + order->id.len + position,
                 data = copy ? order->data.len : 0;
    if (data > SIZE_MAX - fixed - names) return NULL;
    message *m = malloc(fixed + names + data);
    if (m == NULL) return NULL;
    *m =
        (message){.publication = {.text = order->text, .topic_len = order->topic_len, .count = 1}, .members = members};
    ls_publication *p = &m->publication;
    char *at = (char *)m + fixed;
    atomic_init(&p->refs, 1);
    p->topic = copied(&at, order->topic, order->topic_len).ptr;
    p->event = copied(&at, order->event.ptr, order->event.len);
    p->id = copied(&at, order->id.ptr, order->id.len);
    if (order->numbered) p->id.ptr = at; /* the publisher writes it */
    at += position;
    p->data = copy ? copied(&at, order->data.ptr, order->data.len) : order->data;
    if (!copy) (void)ls_block_hold(p->data.block);
    return p;
}

ls_publication *ls_publication_hold(ls_publication *p)
{
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    return p;
}

void ls_publication_drop(ls_publication *p)
{
    if (atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1) return;
    ls_publication_drop_forms(p);
    ls_slice_drop(&p->data);
    free(LS_CONTAINER(p, message, publication));
}

/* ---- forms -------------------------------------------------------------------------------------------------- */

void ls_publication_drop_forms(ls_publication *p)
{
    for (int form = 0; form < LS_FORMS; form++) {
        form_block *block = atomic_load_explicit(&p->forms[form], memory_order_relaxed);
        if (block != NULL) ls_block_drop(ls_external_block(&block->external));
        atomic_store_explicit(&p->forms[form], NULL, memory_order_relaxed);
    }
}

static void form_release(ls_external *external)
{
    free(LS_CONTAINER(external, form_block, external));
}

char *ls_topic_form_room(size_t len, ls_slice *out)
{
    if (len > SIZE_MAX - sizeof(form_block)) return NULL;
    form_block *block = malloc(sizeof *block + len);
    if (block == NULL) return NULL;
    ls_external_init(&block->external, LS_BLOCK_EXTERNAL, form_release);
    *out = ls_slice_external(&block->external, block->bytes, len);
    return block->bytes;
}

int ls_publication_form(ls_thread_ctx *ctx, ls_publication *p, enum ls_topic_form form, ls_topic_encode_fn *encode,
                        ls_slice *out)
{
    form_block *block = atomic_load_explicit(&p->forms[form], memory_order_acquire);
    if (block == NULL) {
        ls_slice made;
        const int err = encode(ctx, p, &made);
        if (err < 0) return err;
        form_block *mine = LS_CONTAINER((ls_external *)(void *)made.block, form_block, external);
        mine->len = made.len;
        if (p->parts != NULL) ls_pool_copied(ctx->pool, made.len);
        if (atomic_compare_exchange_strong(&p->forms[form], &block, mine))
            block = mine;
        else
            ls_slice_drop(&made); /* another state was first */
    }
    *out = ls_slice_external(&block->external, block->bytes, block->len);
    return LS_OK;
}
