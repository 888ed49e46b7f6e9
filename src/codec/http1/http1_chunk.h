/* http1_chunk.h - a decoder of the chunked transfer coding (RFC 9112 section 7.1). Pure, resumable at every byte.
 *
 * The caller passes bytes and gets the next run of payload inside them, without a copy. The decoder refuses
 * (LS_EPROTO) sizes with a sign, 0x, an underscore, white space or more than 15 hex digits, a bare CR or LF, chunk
 * extensions that do not match the grammar (section 7.1.1) or are longer than LS_CHUNK_EXT_BYTES_MAX with their white
 * space, and trailers above their limits. */
#ifndef LS_CODEC_HTTP1_HTTP1_CHUNK_H
#define LS_CODEC_HTTP1_HTTP1_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_CHUNK_EXT_BYTES_MAX = 256, LS_CHUNK_TRAILER_BYTES_MAX = 8192, LS_CHUNK_TRAILERS_MAX = 32 };

typedef struct ls_chunks {
    uint64_t left;       /* remaining payload bytes of the current chunk */
    uint32_t line_bytes; /* length of the current extension or trailer section so far */
    uint8_t state, digits, trailers;
} ls_chunks;

void ls_chunks_init(ls_chunks *chunks);

typedef struct ls_chunk_run {
    size_t from, len; /* payload inside the bytes passed; len 0: no payload */
    size_t used;      /* consumed bytes, including the run */
    size_t
        trailers; /* so many of the consumed bytes, the last ones, are of the trailer section, which ends with CR LF */
    bool end;     /* the last chunk and its trailers are complete */
} ls_chunk_run;

/* Consume bytes[0..len) up to the end of one payload run. Call again with the rest until used == len or end. LS_OK; or
 * LS_EPROTO, and *why (unless NULL) receives a static text. Trailer fields are checked; the caller
 * may collect them. */
int ls_chunks_next(ls_chunks *chunks, const char *bytes, size_t len, ls_chunk_run *out, const char **why);

#endif
