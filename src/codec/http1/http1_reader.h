/* http1_reader.h - a client's reader of one HTTP/1.x response: interim responses, the head, the body, its end (RFC
 * 9112).
 *
 * Pure and resumable: the caller passes the bytes that it has received and not consumed, and learns which of them are
 * payload, without a copy. http1_parse_response.h reads the heads, http1_chunk.h the chunked coding. */
#ifndef LS_CODEC_HTTP1_HTTP1_READER_H
#define LS_CODEC_HTTP1_HTTP1_READER_H

#include "codec/http1/http1_chunk.h"
#include "codec/http1/http1_parse_response.h"

enum { LS_RESPONSE_INTERIM_MAX = 16 }; /* responses 1xx before the final one */

enum ls_asked { /* what the request asks for, as far as the end of its response depends on it */
                LS_ASKED_BODY,
                LS_ASKED_HEAD,   /* the request is HEAD */
                LS_ASKED_UPGRADE /* a response 101 may come, and is the final one */
};

typedef struct ls_http1_reader {
    ls_http_response head; /* of the final response, after ls_http1_read_head has returned it */
    ls_chunks chunks;
    uint64_t left;    /* payload bytes that follow, for LS_FRAMING_LENGTH */
    size_t seen;      /* bytes of an incomplete head that were looked at */
    uint8_t interims; /* responses 1xx so far */
    uint8_t asked;    /* enum ls_asked */
} ls_http1_reader;

void ls_http1_reader_init(ls_http1_reader *reader, enum ls_asked asked);

/* Read the head from bytes[0..len). *skip receives the length of the interim responses before it, which the caller
 * consumes, also when the head is incomplete. Returns the length of the head (> 0), which follows them and is
 * described by reader->head; 0: it is incomplete; LS_EPROTO with a static text in *why: a head is invalid or longer
 * than bytes_max, more than LS_RESPONSE_INTERIM_MAX interim responses, or 101 that was not asked for. */
int ls_http1_read_head(ls_http1_reader *reader, const char *bytes, size_t len, size_t bytes_max, size_t *skip,
                       const char **why);

/* Read from bytes[0..len), after the head, up to the end of one run of payload; see ls_chunk_run. Call it again with
 * the bytes after out->used until out->end. LS_OK; LS_EPROTO with a static text in *why. */
int ls_http1_read_body(ls_http1_reader *reader, const char *bytes, size_t len, ls_chunk_run *out, const char **why);

/* The connection has ended before out->end. LS_OK: so has the body (RFC 9112 section 6.3); LS_ETRUNCATED. */
int ls_http1_read_end(const ls_http1_reader *reader);

#endif
