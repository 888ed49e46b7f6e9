/* slices.h - a list of slices that grows, with room for one without an allocation. The list may be moved with its
 * struct; zeroes are an empty list. */
#ifndef LS_BASE_SLICES_H
#define LS_BASE_SLICES_H

#include "base/buf.h"

typedef struct ls_slices {
    ls_slice one, *many; /* many: NULL, or from malloc */
    unsigned count, room;
    size_t bytes; /* of all slices */
} ls_slices;

static inline ls_slice *ls_slices_items(ls_slices *list)
{
    return list->many != NULL ? list->many : &list->one;
}

/* Append `slice`, whose reference goes to the list. LS_OK; LS_ENOMEM: the reference is still the caller's. */
int ls_slices_add(ls_slices *list, ls_slice slice);

/* Drop all references and free the memory: an empty list. */
void ls_slices_clear(ls_slices *list);

#endif
