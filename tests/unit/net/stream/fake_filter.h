/* fake_filter.h - a filter for tests: records of 2 length bytes, most significant first, and that many bytes xor
 * FAKE_KEY. A record of length 0 is the end; length FAKE_ALERT, with no bytes, is the alert of a failed read. */
#ifndef TESTS_UNIT_NET_FAKE_FILTER_H
#define TESTS_UNIT_NET_FAKE_FILTER_H

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "net/stream/filter.h"
#include "port/file/shared_file.h"

enum { FAKE_KEY = 0x5a, FAKE_RECORD_MAX = 1000, FAKE_ALERT = 0xffff };

typedef struct fake_filter {
    ls_filter base; /* first */
    ls_slice in;
    unsigned char record[2 + FAKE_RECORD_MAX]; /* the current record: bytes [0, have) */
    size_t have;
    size_t read_at; /* plaintext of it that was read; the record is complete */
    bool complete, in_ended, socket_ended, broken, write_failed;
    int read_err, write_err, end_err; /* results of the next calls; 0: they work */
    int writes, ends;
    int *freed;
} fake_filter;

static inline fake_filter *fake_of(ls_filter *f)
{
    return (fake_filter *)(void *)f; /* its first member */
}

static inline size_t fake_length(const unsigned char *head)
{
    return (size_t)head[0] << 8 | head[1];
}

static inline void fake_feed(ls_filter *f, ls_slice bytes)
{
    fake_filter *fake = fake_of(f);
    if (fake->in.len > 0 || bytes.len == 0) abort(); /* the contract of feed */
    fake->in = bytes;
}

static inline void fake_feed_end(ls_filter *f)
{
    fake_of(f)->socket_ended = true;
}

/* Take input into the current record. true: it is complete. */
static inline bool fake_collect(fake_filter *fake)
{
    while (!fake->complete && fake->in.len > 0) {
        size_t want = fake->have < 2 ? 2 : 2 + fake_length(fake->record);
        if (want > sizeof fake->record) return false; /* broken */
        size_t run = want - fake->have < fake->in.len ? want - fake->have : fake->in.len;
        memcpy(fake->record + fake->have, fake->in.ptr, run);
        fake->have += run;
        fake->in.ptr += run;
        fake->in.len -= run;
        if (fake->in.len == 0) ls_slice_drop(&fake->in);
        if (fake->have >= 2) fake->complete = fake->have == 2 + fake_length(fake->record);
    }
    return fake->complete;
}

static inline int64_t fake_read(ls_filter *f, char *to, size_t len)
{
    fake_filter *fake = fake_of(f);
    if (fake->read_err != 0) {
        const int err = fake->read_err;
        fake->read_err = 0;
        fake->broken = err == LS_EPROTO;
        return err;
    }
    if (fake->broken) return LS_EPROTO;
    if (fake->in_ended) return 0;
    if (!fake_collect(fake)) {
        if (fake->have >= 2 && 2 + fake_length(fake->record) > sizeof fake->record) {
            fake->broken = true;
            return LS_EPROTO;
        }
        return fake->socket_ended ? LS_ETRUNCATED : LS_EAGAIN;
    }
    const size_t length = fake_length(fake->record);
    if (length == 0) {
        fake->in_ended = true;
        return 0;
    }
    size_t run = length - fake->read_at < len ? length - fake->read_at : len;
    for (size_t i = 0; i < run; i++) to[i] = (char)(fake->record[2 + fake->read_at + i] ^ FAKE_KEY);
    fake->read_at += run;
    if (fake->read_at == length) {
        fake->complete = false;
        fake->have = fake->read_at = 0;
    }
    return (int64_t)run;
}

static inline bool fake_has_input(const ls_filter *f)
{
    const fake_filter *fake = (const fake_filter *)(const void *)f;
    return fake->complete || fake->in.len > 0;
}

/* Copy `len` plaintext bytes of the slice from `at` on. */
static inline int fake_copy(const ls_slice *slice, size_t at, char *to, size_t len)
{
    if (!ls_slice_is_file(slice)) {
        memcpy(to, slice->ptr + at, len);
        return LS_OK;
    }
    const ls_shared_file *file = ls_shared_file_of(slice);
    if (!ls_shared_file_unchanged(file)) return LS_ECHANGED;
    while (len > 0) {
        const int64_t n = ls_shared_file_read(file, to, len, ls_slice_offset(slice) + at);
        if (n <= 0) return n == 0 ? LS_ECHANGED : (int)n;
        to += n;
        at += (size_t)n;
        len -= (size_t)n;
    }
    return LS_OK;
}

static inline int64_t fake_write_failed(fake_filter *fake, int err)
{
    fake->write_failed = true;
    return err;
}

/* One block of records, whose last may be short; at most FAKE_RECORD_MAX bytes of one slice are in a record. */
static inline int64_t fake_write(ls_filter *f, const ls_slice *slices, unsigned count, ls_filter_out *out)
{
    fake_filter *fake = fake_of(f);
    size_t taken = 0, at = 0, filled = 0;
    fake->writes++;
    if (fake->write_err != 0) return fake_write_failed(fake, fake->write_err);
    if (out->count != 0) abort();
    ls_block *block = ls_block_get(out->pool, LS_BLOCK_SMALL);
    if (block == NULL) return fake_write_failed(fake, LS_ENOMEM);
    for (unsigned i = 0; i < count;) {
        size_t run = slices[i].len - at;
        if (run == 0) {
            i++;
            at = 0;
            continue;
        }
        if (filled + 3 > block->cap) break;
        if (run > FAKE_RECORD_MAX) run = FAKE_RECORD_MAX;
        if (run > block->cap - filled - 2) run = block->cap - filled - 2;
        char *const to = block->data + filled;
        const int err = fake_copy(&slices[i], at, to + 2, run);
        if (err < 0) {
            ls_block_drop(block);
            return fake_write_failed(fake, err);
        }
        to[0] = (char)(run >> 8);
        to[1] = (char)run;
        for (size_t k = 0; k < run; k++) to[2 + k] = (char)(to[2 + k] ^ FAKE_KEY);
        filled += 2 + run;
        at += run;
        taken += run;
    }
    out->slices[out->count++] = (ls_slice){block, block->data, filled};
    return (int64_t)taken;
}

static inline int fake_end(ls_filter *f, ls_filter_out *out)
{
    fake_filter *fake = fake_of(f);
    fake->ends++;
    if (fake->end_err != 0) return fake->end_err;
    if (fake->write_failed) return LS_OK; /* nothing to say */
    if (out->count == LS_FILTER_OUT_MAX) abort();
    ls_block *block = ls_block_get_reserved(out->pool);
    if (block == NULL) return LS_ENOMEM;
    memset(block->data, fake->broken ? 0xff : 0, 2);
    out->slices[out->count++] = (ls_slice){block, block->data, 2};
    return LS_OK;
}

static inline void fake_free(ls_filter *f)
{
    fake_filter *fake = fake_of(f);
    ls_slice_drop(&fake->in);
    if (fake->freed != NULL) ++*fake->freed;
    free(fake);
}

static inline const char *fake_why(const ls_filter *f)
{
    return "broken record";
}

static const ls_filter_type fake_type = {fake_feed,      fake_feed_end, fake_read, fake_why,
                                         fake_has_input, fake_write,    fake_end,  fake_free};

static inline fake_filter *fake_open(int *freed)
{
    fake_filter *fake = calloc(1, sizeof *fake);
    if (fake == NULL) abort();
    fake->base.type = &fake_type;
    fake->freed = freed;
    return fake;
}

/* ---- the other end: what it makes of the records, and the records that it sends
 * ----------------------------------- */

typedef struct fake_peer {
    unsigned char head[2];
    size_t head_have, left; /* of the current record */
    bool ended, alerted;
} fake_peer;

/* Decode received bytes in place. Returns the number of plaintext bytes at `bytes`. Aborts on bytes behind the end. */
static inline size_t fake_peer_read(fake_peer *p, char *bytes, size_t len)
{
    size_t plain = 0;
    for (size_t i = 0; i < len; i++) {
        if (p->ended || p->alerted) abort();
        if (p->left > 0) {
            bytes[plain++] = (char)(bytes[i] ^ FAKE_KEY);
            p->left--;
            continue;
        }
        p->head[p->head_have++] = (unsigned char)bytes[i];
        if (p->head_have < 2) continue;
        p->head_have = 0;
        p->left = fake_length(p->head);
        p->ended = p->left == 0;
        p->alerted = p->left == FAKE_ALERT;
        if (p->alerted) p->left = 0;
    }
    return plain;
}

/* Encode one record to `to`, which has room for 2 + len bytes. Returns its size. */
static inline size_t fake_record(char *to, const char *bytes, size_t len)
{
    to[0] = (char)(len >> 8);
    to[1] = (char)len;
    for (size_t i = 0; i < len; i++) to[2 + i] = (char)(bytes[i] ^ FAKE_KEY);
    return 2 + len;
}

#endif
