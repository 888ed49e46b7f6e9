/* slices.c - see slices.h. */
#include "base/slices.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum { FIRST_ROOM = 4 };

int ls_slices_add(ls_slices *list, ls_slice slice)
{
    const unsigned room = list->many != NULL ? list->room : 1;
    if (list->count == room) {
        const unsigned wanted = room < FIRST_ROOM ? FIRST_ROOM : room * 2;
        ls_slice *many = realloc(list->many, wanted * sizeof *many);
        if (many == NULL) return LS_ENOMEM;
        if (list->many == NULL) many[0] = list->one;
        list->many = many;
        list->room = wanted;
    }
    ls_slices_items(list)[list->count++] = slice;
    list->bytes += slice.len;
    return LS_OK;
}

void ls_slices_clear(ls_slices *list)
{
    ls_slices_drop(ls_slices_items(list), list->count);
    free(list->many);
    memset(list, 0, sizeof *list);
}
