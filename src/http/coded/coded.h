/* coded.h - a content coding for the response of an exchange (RFC 9110 section 8.4): gzip, br or zstd.
 *
 * ls_coded_begin puts a transport of its own before that of the exchange. So whatever makes the response, before or after,
 * is not concerned: the decision is made when the head is queued, from what it then says, and an exchange without a coding
 * pays nothing.
 *
 *     as it is   the status has no content; Content-Encoding is there; Cache-Control has no-transform; the type is not in the
 *                list; the body is known to be shorter than bytes_min
 *     Vary       all others get Vary: Accept-Encoding; a 206, and those whose client accepts none of the codings, are left
 *                as they are otherwise
 *     coded      Content-Encoding, a weak ETag, no Accept-Ranges, and:
 *
 *     whole, at most AT_ONCE bytes in memory   encoded at once, with the new Content-Length; repeated bodies come from a cache
 *     whole, longer, or of a file              LS_RESPONSE_OPEN: the handler's task has ls_coded_work called by other threads,
 *                                              and queues what they made, until ls_coded_waits is false
 *     in parts                                 encoded part by part; a flush sends what was written so far
 *     of a HEAD                                the same fields, without Content-Length
 *
 * A 304 gets Vary, and the weak ETag if the client asked with that one.
 * Thread: inside x->actor, but ls_coded_work. */
#ifndef LS_HTTP_CODED_H
#define LS_HTTP_CODED_H

#include "codec/coding/http_coding.h"
#include "http/exchange.h"

typedef struct ls_coded_cache ls_coded_cache;

/* Encoders of finished responses are kept for the next ones, the youngest of them: at most so many, with so many bytes. A body
 * of 4 KiB needs 64 KiB for gzip, a body in parts 256 KiB. */
enum { LS_CODED_KEPT_MAX = 4, LS_CODED_KEPT_BYTES_MAX = 512 << 10 };

typedef struct ls_kept_encoder {
    const ls_coding_type *type;
    void *encoder;
    size_t bytes;
} ls_kept_encoder;

/* What a site wants, of many exchanges of one actor. */
typedef struct ls_coded_rules {
    _Atomic unsigned refs;
    uint64_t bytes_min;
    unsigned count; /* of the codings offered */
    enum ls_coding codings[LS_CODINGS];
    int levels[LS_CODINGS]; /* by coding */
    ls_coded_cache *cache;  /* NULL: none */
    unsigned kept_count;
    size_t kept_bytes;
    ls_kept_encoder kept[LS_CODED_KEPT_MAX]; /* the oldest first */
    char
        types[]; /* names, "text/" for all that begin so, "+json" for all that end so; each with its NUL, then a NUL */
} ls_coded_rules;

/* Rules with one reference and room for `types_bytes`; the caller fills them. cache_bytes_max: 0: no cache. NULL: out of
 * memory. */
ls_coded_rules *ls_coded_rules_open(size_t types_bytes, size_t cache_bytes_max);
void ls_coded_rules_drop(ls_coded_rules *rules);

/* Apply the rules to the response, which has not begun, unless others apply already. LS_OK or LS_ENOMEM. */
int ls_coded_begin(ls_exchange *x, ls_coded_rules *rules);

/* Whether a whole body waits for ls_coded_work. */
bool ls_coded_waits(const ls_exchange *x);
/* Encode a piece of it, for some milliseconds; on any thread, one at a time. LS_OK, LS_ENOMEM, LS_EIO, LS_ECHANGED: the file
 * has changed. */
int ls_coded_work(struct ls_coded *coded);
/* Queue the piece; at the end of the body the response is complete. LS_DONE, or an error, which x->error has too. */
int ls_coded_put(ls_thread_ctx *ctx, ls_exchange *x);

/* The transport of the exchange, behind the one of its coding. */
const ls_transport *ls_coded_inner(const ls_exchange *x);

/* ---- coded_cache.c ------------------------------------------------------------------------------------------------ */

/* Encoded bodies by the bytes of the body: a body is kept when it is seen for the second time. At most bytes_max, with the
 * bodies themselves, which are compared. NULL: out of memory. */
ls_coded_cache *ls_coded_cache_open(size_t bytes_max);
void ls_coded_cache_close(ls_coded_cache *cache);
/* *out: the encoded body, + 1 reference; true. false: not there, and *keep is whether it is worth keeping. *key is for the
 * other call. */
bool ls_coded_cache_find(ls_coded_cache *cache, enum ls_coding coding, const ls_slice *body, uint64_t *key, bool *keep,
                         ls_slice *out);
void ls_coded_cache_put(ls_coded_cache *cache, uint64_t key, const ls_slice *body, ls_slice *encoded, unsigned count);

#endif
