/* filter.h - what sits between a stream and its socket: today TLS. A filter is pure: bytes in, bytes out, no socket,
 * no thread, no clock. The stream does the input and output. One thread at a time uses a filter, except `free`.
 *
 *     socket --> feed --> read --> handler            queue --> write --> output --> socket
 *
 * A stream hands its filter over only after the handshake (net/tls/tls.h drives that); from then on a write never
 * needs input, and a read needs no output, but may have an answer: see `answer`. */
#ifndef LS_NET_FILTER_H
#define LS_NET_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

typedef struct ls_filter ls_filter;

enum { LS_FILTER_OUT_MAX = 4 };

/* Encrypted bytes in pool blocks, to be sent. */
typedef struct ls_filter_out {
    ls_pool *pool;
    unsigned count;
    ls_slice slices[LS_FILTER_OUT_MAX]; /* each holds a reference */
} ls_filter_out;

typedef struct ls_filter_type {
    /* Give the filter received bytes. It takes the reference and consumes them in later reads. Only when it does not
     * hold unconsumed input, which is so after `read` returned LS_EAGAIN. */
    void (*feed)(ls_filter *f, ls_slice bytes);
    /* The socket has ended: the next read that would return LS_EAGAIN returns LS_ETRUNCATED. */
    void (*feed_end)(ls_filter *f);
    /* Decrypt into `to`. Returns the number of bytes (> 0), 0 at the orderly end (close_notify), LS_EAGAIN (needs more
     * input; if has_input, it first needs room for its answers), LS_ETRUNCATED, LS_EPROTO (invalid or forged records;
     * the alert is the answer), LS_ENOMEM. */
    int64_t (*read)(ls_filter *f, char *to, size_t len);
    /* The reason of a read or write that returned LS_EPROTO, as text; valid as long as the filter. */
    const char *(*why)(const ls_filter *f);
    bool (*has_input)(const ls_filter *f); /* bytes that a read may return without more input */
    /* Encrypt the first bytes of the slices into records in out. Returns the number of plaintext bytes taken: as many
     * as fit into a bounded number of output blocks, at least 1. A slice of a file range is read from the file.
     * LS_ENOMEM, LS_ECHANGED, LS_EPROTO. On failure nothing of the stream can be sent any more. */
    int64_t (*write)(ls_filter *f, const ls_slice *slices, unsigned count, ls_filter_out *out);
    /* Append the end of the protocol to out: close_notify, or the alert of a failed read. LS_OK or an error; nothing
     * is appended when there is nothing to say, such as after a failed write. */
    int (*end)(ls_filter *f, ls_filter_out *out);
    void (*free)(ls_filter *f); /* any thread; drops input that it holds */
} ls_filter_type;

struct ls_filter { /* first member of the struct of a filter, zeroed but for the type */
    const ls_filter_type *type;
    /* Encrypted bytes that reads have produced, such as an alert. While nothing is queued, the stream sends and
     * removes the first `answer_len` bytes or some of them; else they precede those of the next write. */
    char *answer;
    uint32_t answer_len;
    /* Of the stream: its queue, and the receive that its handler asked for. */
    struct ls_outq *out;
    char *recv_ptr;
    uint32_t recv_len;
};

#endif
