/* coding_filter.h - a content coding for the response of an exchange (RFC 9110 section 8.4): gzip, br or zstd.
 *
 * The filter of a response (exchange.h): whatever makes the response, before or after, is not concerned. It decides
 * when the head is queued, from what that then says.
 *
 *     as it is   the status has no content; Content-Encoding is there; Cache-Control has no-transform; the type is not
 *                in the list; the body is known to be shorter than bytes_min
 *     Vary       all others get Vary: Accept-Encoding; a 206, and those whose client accepts none of the codings, are
 *                left as they are otherwise
 *     encoded    Content-Encoding, a weak ETag, no Accept-Ranges, and:
 *
 *     whole, at most AT_ONCE bytes in memory   encoded at once, with the new Content-Length; repeated bodies come from
 *                                              a cache
 *     whole, longer, or of a file              LS_RESPONSE_OPEN: the handler's task has ls_coding_filter_work called
 *                                              by other threads, and queues what they made, until
 *                                              ls_coding_filter_waits is false
 *     in parts                                 encoded part by part; a flush sends what was written so far
 *     of a HEAD                                the same fields, without Content-Length
 *
 * A 304 gets Vary, and the weak ETag if the client asked with that one.
 * Thread: inside x->actor, but ls_coding_filter_work. */
#ifndef LS_HTTP_CODING_FILTER_H
#define LS_HTTP_CODING_FILTER_H

#include "codec/coding/http_coding.h"
#include "http/exchange.h"

typedef struct ls_coding_cache ls_coding_cache;
typedef struct ls_coding_filter ls_coding_filter;

/* Encoders of finished responses are kept for the next ones, the youngest of them: at most so many, with so many
 * bytes. A body of 4 KiB needs 64 KiB for gzip, a body in parts 256 KiB. */
enum { LS_CODING_KEPT_MAX = 4, LS_CODING_KEPT_BYTES_MAX = 512 << 10 };

typedef struct ls_kept_encoder {
    const ls_coding_type *type;
    void *encoder;
    size_t bytes;
} ls_kept_encoder;

/* What a site wants, of many exchanges of one actor. */
typedef struct ls_coding_rules {
    _Atomic unsigned refs;
    uint64_t bytes_min;
    unsigned count; /* of the codings offered */
    enum ls_coding codings[LS_CODINGS];
    int levels[LS_CODINGS]; /* by coding */
    ls_coding_cache *cache; /* NULL: none */
    unsigned kept_count;
    size_t kept_bytes;
    ls_kept_encoder kept[LS_CODING_KEPT_MAX]; /* the oldest first */
    char
        types[]; /* names, "text/" for all that begin so, "+json" for all that end so; each with its NUL, then a NUL */
} ls_coding_rules;

/* Rules with one reference and room for `types_bytes`; the caller fills them. cache_bytes_max: 0: no cache. NULL: out
 * of memory. */
ls_coding_rules *ls_coding_rules_open(size_t types_bytes, size_t cache_bytes_max);
void ls_coding_rules_drop(ls_coding_rules *rules);

/* Apply the rules to the response, which has not begun, unless others apply already. LS_OK or LS_ENOMEM. */
int ls_coding_filter_add(ls_exchange *x, ls_coding_rules *rules);
ls_coding_filter *ls_coding_filter_of(const ls_exchange *x); /* NULL: no rules apply */

/* Whether a whole body waits for ls_coding_filter_work. */
bool ls_coding_filter_waits(const ls_exchange *x);
/* Encode a piece of it, for some milliseconds; on any thread, one at a time. LS_OK, LS_ENOMEM, LS_EIO, LS_ECHANGED:
 * the file has changed. */
int ls_coding_filter_work(ls_coding_filter *c);
/* Queue the piece; at the end of the body the response is complete. LS_DONE, or an error, which x->error has too. */
int ls_coding_filter_put(ls_thread_ctx *ctx, ls_exchange *x);

/* ---- coding_cache.c
 * ------------------------------------------------------------------------------------------------ */

/* Encoded bodies by the bytes of the body: a body is kept when it is seen for the second time. At most bytes_max, with
 * the bodies themselves, which are compared. NULL: out of memory. */
ls_coding_cache *ls_coding_cache_open(size_t bytes_max);
void ls_coding_cache_close(ls_coding_cache *cache);
/* *out: the encoded body, + 1 reference; true. false: not there, and *keep is whether it is worth keeping. *key is for
 * the other call. */
bool ls_coding_cache_find(ls_coding_cache *cache, enum ls_coding coding, const ls_slice *body, uint64_t *key,
                          bool *keep, ls_slice *out);
void ls_coding_cache_put(ls_coding_cache *cache, uint64_t key, const ls_slice *body, ls_slice *encoded,
                         unsigned count);

#endif
