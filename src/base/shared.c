/* shared.c - see shared.h. */
#include "base/shared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/os/thread.h"

struct ls_shared {
    ls_mutex lock;
    ls_node objects;
    uint32_t generation;
};

int ls_shared_open(ls_shared **out)
{
    ls_shared *shared = calloc(1, sizeof *shared);
    if (shared == NULL) return LS_ENOMEM;
    ls_mutex_open(&shared->lock);
    ls_node_init(&shared->objects);
    *out = shared;
    return LS_OK;
}

void ls_shared_close(ls_shared *shared)
{
    LS_LIST_TAKE (ls_shared_object, object, &shared->objects, node) {
        char *name = object->name;
        object->kind->close(object);
        free(name);
    }
    ls_mutex_close(&shared->lock);
    free(shared);
}

void ls_shared_next_generation(ls_shared *shared)
{
    ls_mutex_lock(&shared->lock);
    shared->generation++;
    ls_mutex_unlock(&shared->lock);
}

static ls_shared_object *find(ls_shared *shared, const ls_shared_kind *kind, const char *name)
{
    LS_LIST_EACH (ls_shared_object, object, &shared->objects, node)
        if (object->kind == kind && strcmp(object->name, name) == 0) return object;
    return NULL;
}

/* The definition of this generation, with options. */
static void note_definition(const ls_shared *shared, ls_shared_object *object, const char *where)
{
    object->generation = shared->generation;
    (void)snprintf(object->where, sizeof object->where, "%s", where);
}

static int define_again(const ls_shared *shared, ls_shared_object *object, const char *where, const void *options,
                        char *before)
{
    const bool reloaded = object->generation != shared->generation;
    if (options == NULL || object->kind->redefine == NULL) return LS_OK;
    if (!object->kind->redefine(object, options, reloaded)) {
        (void)snprintf(before, LS_SHARED_WHERE_BYTES, "%s", object->where);
        return LS_EEXIST;
    }
    if (reloaded) note_definition(shared, object, where);
    return LS_OK;
}

int ls_shared_get(ls_shared *shared, const ls_shared_kind *kind, const char *name, const char *where,
                  const void *options, ls_shared_object **out, char *before)
{
    int err;
    const size_t name_bytes = strlen(name) + 1;
    char *copy = NULL;
    ls_mutex_lock(&shared->lock);
    ls_shared_object *object = find(shared, kind, name);
    if (object != NULL) {
        err = define_again(shared, object, where, options, before);
    } else if ((copy = malloc(name_bytes)) == NULL) {
        err = LS_ENOMEM;
    } else if ((err = kind->open(options, &object)) == LS_OK) {
        object->kind = kind;
        object->name = memcpy(copy, name, name_bytes);
        note_definition(shared, object, where);
        ls_list_push(&shared->objects, &object->node);
    } else {
        free(copy);
    }
    if (err == LS_OK) *out = object;
    ls_mutex_unlock(&shared->lock);
    return err;
}

void ls_shared_each(ls_shared *shared, const ls_shared_kind *kind, void (*fn)(ls_shared_object *object, void *to),
                    void *to)
{
    ls_mutex_lock(&shared->lock);
    LS_LIST_EACH (ls_shared_object, object, &shared->objects, node)
        if (kind == NULL || object->kind == kind) fn(object, to);
    ls_mutex_unlock(&shared->lock);
}
