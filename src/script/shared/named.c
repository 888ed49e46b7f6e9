/* named.c - see named.h. */
#include "script/shared/named.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/thread.h"
#include "script/shared/channel.h"
#include "script/shared/semaphore.h"

enum { BUCKETS = 256 };

typedef struct entry {
    ls_node node;
    void *object;
    size_t number;
    char where[80];      /* of the call that gave the number; "": it is the default */
    uint64_t generation; /* of that call */
    size_t name_len;
    char name[]; /* terminated */
} entry;

struct ls_named {
    const ls_named_kind *kind;
    ls_mutex mutex; /* guards everything below */
    unsigned count;
    ls_node buckets[BUCKETS];
};

/* ---- the kinds ---------------------------------------------------------------------------------------------- */

static int open_channel(size_t capacity, void **out)
{
    ls_channel *channel;
    const int err = ls_channel_open(capacity, &channel);
    if (err == LS_OK) *out = channel;
    return err;
}

static void resize_channel(void *channel, size_t capacity)
{
    ls_channel_resize(channel, capacity);
}

static void free_channel(void *channel)
{
    ls_channel_free(channel);
}

static int open_semaphore(size_t permits, void **out)
{
    ls_semaphore *semaphore;
    const int err = ls_semaphore_open((unsigned)permits, &semaphore);
    if (err == LS_OK) *out = semaphore;
    return err;
}

static void resize_semaphore(void *semaphore, size_t permits)
{
    ls_semaphore_resize(semaphore, (unsigned)permits);
}

static void free_semaphore(void *semaphore)
{
    ls_semaphore_free(semaphore);
}

const ls_named_kind ls_named_channels = {"ls.channel", "capacity", 1000, open_channel, resize_channel, free_channel};
const ls_named_kind ls_named_semaphores = {"ls.semaphore",   "permits",        1, open_semaphore, resize_semaphore,
                                           free_semaphore};

/* ---- the table ---------------------------------------------------------------------------------------------- */

int ls_named_open(const ls_named_kind *kind, ls_named **out)
{
    ls_named *named = calloc(1, sizeof *named);
    if (named == NULL) return LS_ENOMEM;
    if (ls_mutex_open(&named->mutex) < 0) {
        free(named);
        return LS_ENOMEM;
    }
    named->kind = kind;
    for (unsigned n = 0; n < BUCKETS; n++) ls_node_init(&named->buckets[n]);
    *out = named;
    return LS_OK;
}

void ls_named_close(ls_named *named)
{
    if (named == NULL) return;
    for (unsigned n = 0; n < BUCKETS; n++) {
        while (!ls_list_empty(&named->buckets[n])) {
            entry *e = LS_CONTAINER(named->buckets[n].next, entry, node);
            ls_list_remove(&e->node);
            named->kind->free(e->object);
            free(e);
        }
    }
    ls_mutex_close(&named->mutex);
    free(named);
}

static ls_node *bucket_of(ls_named *named, const ls_named_call *call)
{
    uint32_t hash = 2166136261U; /* FNV-1a */
    for (size_t n = 0; n < call->name_len; n++) hash = (hash ^ (unsigned char)call->name[n]) * 16777619U;
    return &named->buckets[hash % BUCKETS];
}

static entry *find(ls_node *bucket, const ls_named_call *call)
{
    for (ls_node *node = bucket->next; node != bucket; node = node->next) {
        entry *e = LS_CONTAINER(node, entry, node);
        if (e->name_len == call->name_len && memcmp(e->name, call->name, call->name_len) == 0) return e;
    }
    return NULL;
}

static entry *create(ls_named *named, ls_node *bucket, const ls_named_call *call)
{
    entry *e = calloc(1, sizeof *e + call->name_len + 1);
    if (e == NULL) return NULL;
    e->number = call->number > 0 ? call->number : named->kind->number_default;
    if (named->kind->open(e->number, &e->object) < 0) {
        free(e);
        return NULL;
    }
    memcpy(e->name, call->name, call->name_len);
    e->name_len = call->name_len;
    ls_list_push(bucket, &e->node);
    named->count++;
    return e;
}

/* The call gives a number: note it, or refuse it. */
static int settle(const ls_named_kind *kind, entry *e, const ls_named_call *call, char *message, size_t message_bytes)
{
    const bool given = e->where[0] != '\0';
    if (given && call->number == e->number) {
        if (call->generation > e->generation) e->generation = call->generation;
        return LS_OK;
    }
    if (given && call->generation == e->generation) {
        (void)snprintf(message, message_bytes,
                       "%s: '%s' has %s %zu by the call at %s, and %zu by the call at %s; give both the same number",
                       kind->call, e->name, kind->number, e->number, e->where, call->number, call->where);
        return LS_EEXIST;
    }
    if (given && call->generation < e->generation) return LS_OK; /* a newer site has already changed it */
    if (call->number != e->number) kind->resize(e->object, call->number);
    e->number = call->number;
    e->generation = call->generation;
    (void)snprintf(e->where, sizeof e->where, "%s", call->where);
    return LS_OK;
}

int ls_named_get(ls_named *named, const ls_named_call *call, void **object, const char **name, char *message,
                 size_t message_bytes)
{
    int err = LS_OK;
    ls_mutex_lock(&named->mutex);
    ls_node *bucket = bucket_of(named, call);
    entry *e = find(bucket, call);
    if (e == NULL && named->count >= LS_NAMED_MAX) {
        err = LS_ELIMIT;
        (void)snprintf(message, message_bytes, "%s: more than %d names; a name lasts as long as the server",
                       named->kind->call, LS_NAMED_MAX);
    } else if (e == NULL && (e = create(named, bucket, call)) == NULL) {
        err = LS_ENOMEM;
        (void)snprintf(message, message_bytes, "%s: not enough memory", named->kind->call);
    } else if (call->number > 0) {
        err = settle(named->kind, e, call, message, message_bytes);
    }
    if (err == LS_OK) {
        *object = e->object;
        *name = e->name;
    }
    ls_mutex_unlock(&named->mutex);
    return err;
}
