/* shared.h - the registry of what all Lua states of a server share by name: dicts, channels, semaphores.
 *
 * The server owns the registry, and the registry owns its objects. Both stay until no state is left, so a state may
 * keep a pointer to an object, and an object survives the reload of the site. Each kind has names of its own.
 *
 * Threads: any thread may call ls_shared_get and ls_shared_next_generation. */
#ifndef LS_BASE_SHARED_H
#define LS_BASE_SHARED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

typedef struct ls_shared ls_shared;
typedef struct ls_shared_object ls_shared_object;

enum { LS_SHARED_NAME_BYTES_MAX = 100, LS_SHARED_WHERE_BYTES = 80, LS_FIGURES_MAX = 3 };

typedef struct ls_shared_kind {
    const char *name; /* "dict" */
    /* Make an object. LS_OK, or a code with *out untouched. Called under the lock of the registry. */
    int (*open)(const void *options, ls_shared_object **out);
    void (*close)(ls_shared_object *object); /* free it: no state is left */
    /* The site defines the object again with `options`. `reloaded`: a new generation of the site does so for the first
     * time, so its options replace the old ones. Otherwise returns whether they are those of the object. NULL: every
     * definition is the same. Called under the lock of the registry. */
    bool (*redefine)(ls_shared_object *object, const void *options, bool reloaded);
    /* What the object is now: one value for each of the names. NULL: it has no figures. Called under the lock of the
     * registry. */
    void (*look)(ls_shared_object *object, uint64_t figures[LS_FIGURES_MAX]);
    const char *figures[LS_FIGURES_MAX]; /* names; NULL after the last one */
} ls_shared_kind;

struct ls_shared_object { /* the first field of every object */
    ls_node node;
    const ls_shared_kind *kind;
    uint32_t generation;               /* of the site that defined it last */
    char *name;                        /* set before the first use, never changed; the registry frees it */
    char where[LS_SHARED_WHERE_BYTES]; /* position of its definition: "site.lua:12" */
};

/* LS_OK or LS_ENOMEM. */
int ls_shared_open(ls_shared **out);
/* Close every object and free the registry. No state is left. */
void ls_shared_close(ls_shared *shared);

/* Call fn(object, to) for each object of the kind, NULL: of every kind, under the lock of the registry. */
void ls_shared_each(ls_shared *shared, const ls_shared_kind *kind, void (*fn)(ls_shared_object *object, void *to),
                    void *to);

/* A new generation of the site begins to load. */
void ls_shared_next_generation(ls_shared *shared);

/* Find the object `name` of this kind, or make it. `options` goes to
 * the functions of the kind; NULL if the caller gives none, then an existing object is found whatever its options are.
 * Returns LS_OK, LS_ENOMEM, another code of `open`, or LS_EEXIST if the object has other options: `before`
 * (LS_SHARED_WHERE_BYTES) then receives the position of its definition. */
int ls_shared_get(ls_shared *shared, const ls_shared_kind *kind, const char *name, const char *where,
                  const void *options, ls_shared_object **out, char *before);

#endif
