/* bytes.c - see bytes.h. */
#include "stress/load/bytes.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM_MIN = 256 };

bool ls_stress_bytes_reserve(ls_stress_bytes *b, size_t more)
{
    size_t room = b->room > 0 ? b->room : ROOM_MIN;
    if (more <= b->room - b->len) return true;
    while (room - b->len < more) room *= 2;
    char *at = realloc(b->at, room);
    if (at == NULL) return false;
    b->at = at;
    b->room = room;
    return true;
}

bool ls_stress_bytes_add(ls_stress_bytes *b, const void *bytes, size_t len, size_t bytes_max)
{
    /* The room is a power of two and not above bytes_max: what has room is within the limit. */
    if (len > b->room - b->len && (len > bytes_max - b->len || !ls_stress_bytes_reserve(b, len))) return false;
    if (len > 0) memcpy(b->at + b->len, bytes, len); /* without bytes there may be no memory */
    b->len += len;
    return true;
}
