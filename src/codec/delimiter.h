/* delimiter.h - finds the delimiter of a multipart body, CRLF "--" boundary (RFC 2046 section 5.1.1), in pieces.
 * Pure. */
#ifndef LS_CODEC_DELIMITER_H
#define LS_CODEC_DELIMITER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ls_delimiter {
    const char *text; /* begins with CR, and has no other one */
    size_t len;
    size_t matched; /* first bytes of the delimiter with which the pieces so far end; 0 at the start */
} ls_delimiter;

typedef struct ls_delimiter_run {
    size_t before; /* bytes of the last pieces that had matched: they are data */
    size_t data;   /* bytes of this piece, from its start, that are data after those */
} ls_delimiter_run;

/* Search the next piece. true: the delimiter follows the data of *run; d->matched of its bytes are in the pieces
 * before. false: another piece is needed, before which d->matched bytes may be a part of the delimiter. */
bool ls_delimiter_next(ls_delimiter *d, const char *piece, size_t len, ls_delimiter_run *run);

#endif
