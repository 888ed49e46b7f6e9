/* http1_chunk.h - the chunked transfer coding, decoded (RFC 9112 section 7.1). Pure, resumable at every byte.
 *
 * Feed bytes; get the next run of payload inside them, without a copy. Sizes with sign, 0x, underscore, white space or
 * more than 15 hex digits, bare CR or LF, extensions of a chunk longer than LS_CHUNK_EXT_BYTES_MAX, and trailers past their
 * limits are refused (LS_EPROTO). */
#ifndef LS_PROTO_HTTP1_CHUNK_H
#define LS_PROTO_HTTP1_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_CHUNK_EXT_BYTES_MAX = 256, LS_CHUNK_TRAILER_BYTES_MAX = 8192, LS_CHUNK_TRAILERS_MAX = 32 };

typedef struct ls_chunks {
    uint64_t left;       /* payload bytes of the current chunk still to come */
    uint32_t line_bytes; /* of the current size line, extension or trailer section, so far */
    uint8_t state, digits, trailers;
} ls_chunks;

void ls_chunks_init(ls_chunks *chunks);

typedef struct ls_chunk_run {
    size_t from, len; /* payload inside the bytes given; len 0: none */
    size_t used;      /* bytes consumed, the run included */
    bool end;         /* the last chunk and its trailers are complete */
} ls_chunk_run;

/* Take from bytes[0..len) up to the end of one payload run. Call again with the rest until used == len or end.
 * LS_OK, or LS_EPROTO with *why (may be NULL) set. Trailer fields are checked and dropped (RFC 9110 6.5.1). */
int ls_chunks_next(ls_chunks *chunks, const char *bytes, size_t len, ls_chunk_run *out, const char **why);

#endif
