/* delimiter.c - see delimiter.h. A match that fails can only begin again at a CR, of which the delimiter has one. */
#include "codec/delimiter.h"

#include <string.h>

bool ls_delimiter_next(ls_delimiter *d, const char *piece, size_t len, ls_delimiter_run *run)
{
    *run = (ls_delimiter_run){0, 0};
    if (d->matched > 0) {
        const size_t left = d->len - d->matched, n = len < left ? len : left;
        if (memcmp(piece, d->text + d->matched, n) == 0) {
            if (n == left) return true;
            d->matched += n;
            return false;
        }
        run->before = d->matched;
        d->matched = 0;
    }
    const char *const end = piece + len;
    for (const char *at = piece; (at = memchr(at, '\r', (size_t)(end - at))) != NULL; at++) {
        const size_t left = (size_t)(end - at), n = left < d->len ? left : d->len;
        if ((n > 2 && at[2] != d->text[2]) || memcmp(at, d->text, n) != 0)
            continue; /* most lines do not begin with "-" */
        run->data = (size_t)(at - piece);
        if (n == d->len) return true;
        d->matched = n;
        return false;
    }
    run->data = len;
    return false;
}
