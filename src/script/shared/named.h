/* named.h - the channels, or the semaphores, of a server by name.
 *
 * Each is created by the first call that names it, and lives until the table is closed. It has one number: the capacity
 * of a channel, the permits of a semaphore. Every state of a site makes the same calls, and a reload makes them again:
 *
 *     in one generation of the site every call gives the same number, or none; else it is refused
 *     the first call of a newer generation that gives another number changes it
 *
 * Any thread may call these functions. */
#ifndef LS_SCRIPT_NAMED_H
#define LS_SCRIPT_NAMED_H

#include <stddef.h>
#include <stdint.h>

enum { LS_NAMED_MAX = 10000, LS_NAMED_BYTES_MAX = 255, LS_NAMED_MESSAGE_BYTES = 700 };

typedef struct ls_named_kind {
    const char *call;      /* for messages: "ls.channel" */
    const char *number;    /* the same: "capacity" */
    size_t number_default; /* of a new object when the call gives none */
    int (*open)(size_t number, void **out);
    void (*resize)(void *object, size_t number);
    void (*free)(void *object);
} ls_named_kind;

extern const ls_named_kind ls_named_channels, ls_named_semaphores;

typedef struct ls_named ls_named;

/* A call of ls.channel or ls.semaphore. */
typedef struct ls_named_call {
    const char *name; /* 1 to LS_NAMED_BYTES_MAX bytes */
    size_t name_len;
    size_t number;       /* 0: not given */
    const char *where;   /* the line of the call: "site.lua:12" */
    uint64_t generation; /* of the site; a newer one has a larger number */
} ls_named_call;

/* LS_OK or LS_ENOMEM. */
int ls_named_open(const ls_named_kind *kind, ls_named **out);
/* Free all objects. None has waiters. NULL is allowed. */
void ls_named_close(ls_named *named);

/* Find the object, or create it. LS_OK: *object and *name, its terminated name, are valid until ls_named_close(). Else
 * `message` receives the reason: LS_EEXIST: it has another number; LS_ELIMIT: there are LS_NAMED_MAX objects; LS_ENOMEM. */
int ls_named_get(ls_named *named, const ls_named_call *call, void **object, const char **name, char *message,
                 size_t message_bytes);

#endif
