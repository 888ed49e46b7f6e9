/* ws_deflate_zlib.c - see ws_deflate.h: messages through zlib, in raw DEFLATE format (RFC 7692 section 7.2).
 *
 * A *coder* is a compressor or a decompressor. The store keeps idle ones, at most IDLE_MAX of each direction: as many
 * are in use as threads compress at the same time. Short messages have coders with a small window and a small hash
 * table, because each message begins with clearing that table. */
#define ZLIB_CONST
#include <zlib.h>

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/os/thread.h"
#include "codec/ws/ws_deflate.h"

enum {
    LEVEL = 3,       /* of 1 to 9: text becomes about a tenth larger than with level 6, in less time */
    IDLE_MAX = 8,    /* of each direction */
    SHORT_BITS = 12, /* the window for a message that fits in it */
    MEMORY_SHORT = 5,
    MEMORY_LONG = 8,          /* memLevel of zlib: its default */
    STATE_BYTES = 8192,       /* of a coder, besides window and tables */
    PART_BYTES_MAX = 1 << 30, /* zlib counts in unsigned int */
    TAIL_BYTES = 4
};

static const char tail[TAIL_BYTES] = {0, 0, '\xff', '\xff'}; /* of Z_SYNC_FLUSH, which is not sent */

typedef struct coder {
    struct coder *next; /* while idle */
    unsigned bits;      /* window */
    bool deflates, open;
    z_stream z;
} coder;

struct ls_ws_deflate_store {
    ls_mutex mutex;
    coder *idle[2]; /* [deflates] */
    unsigned idle_count[2];
    uint64_t takeover_bytes_max;
    _Atomic uint64_t takeover_bytes;
};

struct ls_ws_takeover { /* zlib's memory is allocated for the first message */
    coder send, receive;
    size_t bytes; /* reserved */
};

const char *ls_ws_deflate_library(void)
{
    return zlibVersion();
}

/* ---- coders ---------------------------------------------------------------------------------------------------- */

static int memory_level(unsigned bits)
{
    return bits > SHORT_BITS ? MEMORY_LONG : MEMORY_SHORT;
}

static size_t coder_bytes(bool deflates, unsigned bits) /* see zconf.h */
{
    const size_t window = (size_t)1 << bits;
    return STATE_BYTES + (deflates ? 4 * window + ((size_t)1 << (memory_level(bits) + 9)) : window);
}

static int coder_open(coder *c, bool deflates, unsigned bits)
{
    if (c->open) return LS_OK;
    memset(&c->z, 0, sizeof c->z);
    c->bits = bits;
    c->deflates = deflates;
    const int raw = -(int)bits; /* without a header */
    const int err = deflates ? deflateInit2(&c->z, LEVEL, Z_DEFLATED, raw, memory_level(bits), Z_DEFAULT_STRATEGY)
                             : inflateInit2(&c->z, raw);
    if (err != Z_OK) return LS_ENOMEM; /* the arguments are valid */
    c->open = true;
    return LS_OK;
}

static void coder_close(coder *c)
{
    if (!c->open) return;
    if (c->deflates)
        (void)deflateEnd(&c->z);
    else
        (void)inflateEnd(&c->z);
    c->open = false;
}

static coder *idle_take(ls_ws_deflate_store *store, bool deflates, unsigned bits)
{
    coder *found = NULL;
    ls_mutex_lock(&store->mutex);
    for (coder **link = &store->idle[deflates]; *link != NULL; link = &(*link)->next) {
        if ((*link)->bits != bits) continue;
        found = *link;
        *link = found->next;
        store->idle_count[deflates]--;
        break;
    }
    ls_mutex_unlock(&store->mutex);
    return found;
}

/* A coder for one message; NULL: out of memory. */
static coder *coder_borrow(ls_ws_deflate_store *store, bool deflates, unsigned bits)
{
    coder *c = idle_take(store, deflates, bits);
    if (c != NULL) return c;
    c = calloc(1, sizeof *c);
    if (c == NULL || coder_open(c, deflates, bits) == LS_OK) return c;
    free(c);
    return NULL;
}

static void coder_free(coder *c)
{
    coder_close(c);
    free(c);
}

/* The store keeps the most recently used ones: those of a window that connections no longer ask for go. */
static void coder_return(ls_ws_deflate_store *store, coder *c)
{
    coder *surplus = NULL;
    (void)(c->deflates ? deflateReset(&c->z) : inflateReset(&c->z));
    ls_mutex_lock(&store->mutex);
    c->next = store->idle[c->deflates];
    store->idle[c->deflates] = c;
    if (++store->idle_count[c->deflates] > IDLE_MAX) {
        coder **link = &c->next;
        while ((*link)->next != NULL) link = &(*link)->next;
        surplus = *link;
        *link = NULL;
        store->idle_count[c->deflates]--;
    }
    ls_mutex_unlock(&store->mutex);
    if (surplus != NULL) coder_free(surplus);
}

/* ---- the store ------------------------------------------------------------------------------------------------- */

int ls_ws_deflate_store_open(uint64_t takeover_bytes_max, ls_ws_deflate_store **out)
{
    ls_ws_deflate_store *store = calloc(1, sizeof *store);
    if (store == NULL) return LS_ENOMEM;
    ls_mutex_open(&store->mutex);
    store->takeover_bytes_max = takeover_bytes_max;
    *out = store;
    return LS_OK;
}

void ls_ws_deflate_store_close(ls_ws_deflate_store *store)
{
    if (store == NULL) return;
    for (int deflates = 0; deflates < 2; deflates++) {
        for (coder *c = store->idle[deflates], *next; c != NULL; c = next) {
            next = c->next;
            coder_free(c);
        }
    }
    ls_mutex_close(&store->mutex);
    free(store);
}

uint64_t ls_ws_deflate_store_bytes(const ls_ws_deflate_store *store)
{
    return atomic_load_explicit(&store->takeover_bytes, memory_order_relaxed);
}

static bool reserve(ls_ws_deflate_store *store, size_t bytes)
{
    uint64_t old = atomic_load_explicit(&store->takeover_bytes, memory_order_relaxed);
    do {
        if (bytes > store->takeover_bytes_max || old > store->takeover_bytes_max - bytes) return false;
    } while (!atomic_compare_exchange_weak_explicit(&store->takeover_bytes, &old, old + bytes, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

static void unreserve(ls_ws_deflate_store *store, size_t bytes)
{
    atomic_fetch_sub_explicit(&store->takeover_bytes, bytes, memory_order_relaxed);
}

/* ---- a connection ---------------------------------------------------------------------------------------------- */

int ls_ws_deflate_begin(ls_ws_deflate_store *store, const ls_ws_deflate_params *params, uint32_t bytes_min,
                        bool client, ls_ws_deflate *out)
{
    ls_ws_deflate d = {.store = store, .bytes_min = bytes_min};
    d.send_bits = client ? params->client_bits : params->server_bits;
    d.receive_bits = client ? params->server_bits : params->client_bits;
    d.send_takeover = client ? params->client_takeover : params->server_takeover;
    d.receive_takeover = client ? params->server_takeover : params->client_takeover;
    if (d.send_takeover || d.receive_takeover) {
        const size_t bytes = sizeof *d.takeover + (d.send_takeover ? coder_bytes(true, d.send_bits) : 0) +
                             (d.receive_takeover ? coder_bytes(false, d.receive_bits) : 0);
        if (!reserve(store, bytes)) return LS_ELIMIT;
        d.takeover = calloc(1, sizeof *d.takeover);
        if (d.takeover == NULL) {
            unreserve(store, bytes);
            return LS_ENOMEM;
        }
        d.takeover->bytes = bytes;
    }
    *out = d;
    return LS_OK;
}

void ls_ws_deflate_end(ls_ws_deflate *d)
{
    if (d->takeover != NULL) {
        coder_close(&d->takeover->send);
        coder_close(&d->takeover->receive);
        unreserve(d->store, d->takeover->bytes);
        free(d->takeover);
    }
    *d = (ls_ws_deflate){.store = NULL};
}

/* ---- output in blocks ------------------------------------------------------------------------------------------ */

typedef struct output {
    ls_pool *pool;
    ls_slices *list;
    z_stream *z;
    ls_block *block; /* that z writes into, from `from` on; NULL: none */
    size_t from;
} output;

static size_t block_used(const output *o)
{
    return (size_t)((const char *)o->z->next_out - o->block->data) - o->from;
}

/* Give z the next block. */
static int block_begin(output *o, size_t room)
{
    o->block = ls_block_get(o->pool, LS_BLOCK_LARGE);
    if (o->block == NULL) return LS_ENOMEM;
    o->from = room;
    o->z->next_out = (Bytef *)o->block->data + room;
    o->z->avail_out = (uInt)(LS_BLOCK_LARGE - room);
    return LS_OK;
}

/* The block is full, or the last one: to the list. A short message moves to a small block, since it may wait in a
 * queue. */
static int block_end(output *o)
{
    const size_t used = block_used(o);
    ls_slice slice = {o->block, o->block->data + o->from, used};
    if (used == 0 && o->list->count > 0) {
        ls_block_drop(o->block);
        o->block = NULL;
        return LS_OK;
    }
    if (o->from + used <= LS_BLOCK_SMALL) {
        ls_block *small = ls_block_get(o->pool, LS_BLOCK_SMALL);
        if (small == NULL) return LS_ENOMEM;
        memcpy(small->data + o->from, slice.ptr, used);
        ls_pool_copied(o->pool, used);
        ls_block_drop(o->block);
        o->block = small;
        slice = (ls_slice){small, small->data + o->from, used};
    }
    const int err = ls_slices_add(o->list, slice);
    if (err == LS_OK) o->block = NULL; /* the reference went to the list */
    return err;
}

static int output_fail(output *o, int err)
{
    if (o->block != NULL) ls_block_drop(o->block);
    ls_slices_clear(o->list);
    return err;
}

/* The bytes of a slice from `at` on that zlib takes in one call. */
static size_t part_of(const ls_slice *slice, size_t at)
{
    const size_t left = slice->len - at;
    return left < PART_BYTES_MAX ? left : PART_BYTES_MAX;
}

/* ---- compress -------------------------------------------------------------------------------------------------- */

/* Compress len bytes; with Z_SYNC_FLUSH all output follows. */
static int deflate_part(output *o, const char *bytes, size_t len, int flush)
{
    o->z->next_in = (const Bytef *)bytes;
    o->z->avail_in = (uInt)len;
    do {
        if (o->z->avail_out == 0) {
            int err = block_end(o);
            if (err == LS_OK) err = block_begin(o, 0);
            if (err < 0) return err;
        }
        const int result = deflate(o->z, flush); /* Z_BUF_ERROR: nothing was left */
        assert(result != Z_STREAM_ERROR);
        (void)result;
    } while (o->z->avail_out == 0);
    return LS_OK;
}

static int deflate_slice(output *o, const ls_slice *slice)
{
    int err = LS_OK;
    for (size_t at = 0, part; err == LS_OK && at < slice->len; at += part) {
        part = part_of(slice, at);
        err = deflate_part(o, slice->ptr + at, part, Z_NO_FLUSH);
    }
    return err;
}

static void drop_tail(ls_slices *list)
{
    size_t left = TAIL_BYTES;
    list->bytes -= TAIL_BYTES;
    while (left > 0) {
        ls_slice *last = &ls_slices_items(list)[list->count - 1];
        const size_t part = left < last->len ? left : last->len;
        last->len -= part;
        left -= part;
        if (last->len > 0 || list->count == 1) continue;
        ls_slice_drop(last);
        list->count--;
    }
}

static int deflate_slices(ls_pool *pool, coder *c, const ls_slice *slices, unsigned count, size_t room, ls_slices *out)
{
    output o = {.pool = pool, .list = out, .z = &c->z};
    int err = block_begin(&o, room);
    for (unsigned i = 0; err == LS_OK && i < count; i++) err = deflate_slice(&o, &slices[i]);
    if (err == LS_OK) err = deflate_part(&o, "", 0, Z_SYNC_FLUSH);
    if (err == LS_OK) err = block_end(&o);
    if (err < 0) return output_fail(&o, err);
    drop_tail(out);
    return LS_OK;
}

/* Whether a receiver of this file would refuse the message as too long for its compressed size. */
static bool exceeds_ratio(size_t bytes, const ls_slices *packed)
{
    return bytes > LS_WS_INFLATE_FREE_BYTES && packed->bytes * LS_WS_INFLATE_RATIO_MAX < bytes;
}

/* A message alone, by a coder of the store. */
static int deflate_alone(ls_pool *pool, ls_ws_deflate_store *store, unsigned bits, const ls_slice *slices,
                         unsigned count, size_t room, ls_slices *out)
{
    const size_t bytes = ls_slices_bytes(slices, count);
    if (bits > SHORT_BITS && bytes <= (size_t)1 << SHORT_BITS) bits = SHORT_BITS;
    coder *c = coder_borrow(store, true, bits);
    if (c == NULL) return LS_ENOMEM;
    const int err = deflate_slices(pool, c, slices, count, room, out);
    coder_return(store, c);
    if (err < 0 || (out->bytes < bytes && !exceeds_ratio(bytes, out))) return err;
    ls_slices_clear(out);
    return LS_EAGAIN;
}

/* A message in the context of those before. */
static int deflate_next(ls_pool *pool, coder *c, const ls_slice *slices, unsigned count, size_t room, ls_slices *out)
{
    const int err = deflate_slices(pool, c, slices, count, room, out);
    if (err < 0 || !exceeds_ratio(ls_slices_bytes(slices, count), out)) return err;
    ls_slices_clear(out);
    (void)deflateReset(&c->z); /* the peer's context lacks this message: do not refer to it */
    return LS_EAGAIN;
}

int ls_ws_deflate_message(ls_pool *pool, ls_ws_deflate *d, const ls_slice *slices, unsigned count, size_t room,
                          ls_slices *out)
{
    const size_t bytes = ls_slices_bytes(slices, count);
    if (d->store == NULL || bytes == 0 || bytes < d->bytes_min) return LS_EAGAIN;
    if (d->send_bits < LS_WS_DEFLATE_BITS_MIN) return LS_EAGAIN; /* an uncompressed message is always allowed */
    if (!d->send_takeover) return deflate_alone(pool, d->store, d->send_bits, slices, count, room, out);
    const int err = coder_open(&d->takeover->send, true, d->send_bits);
    return err < 0 ? err : deflate_next(pool, &d->takeover->send, slices, count, room, out);
}

int ls_ws_deflate_shared(ls_pool *pool, ls_ws_deflate_store *store, uint32_t bytes_min, const ls_slice *slices,
                         unsigned count, size_t room, ls_slices *out)
{
    ls_ws_deflate d = {.store = store, .bytes_min = bytes_min, .send_bits = LS_WS_DEFLATE_BITS_MAX};
    return ls_ws_deflate_message(pool, &d, slices, count, room, out);
}

/* ---- inflate --------------------------------------------------------------------------------------------------- */

typedef struct inflation {
    output o;
    uint64_t bytes_max, bytes; /* bytes: in finished blocks */
    bool between;              /* a final block has ended, and nothing follows it so far */
} inflation;

/* Give z room for at most one byte more than is allowed. */
static int inflation_room(inflation *in)
{
    output *o = &in->o;
    int err = LS_OK;
    if (o->block != NULL) {
        in->bytes += block_used(o);
        if (in->bytes > in->bytes_max) return LS_EMSGSIZE;
        err = block_end(o);
    }
    if (err == LS_OK) err = block_begin(o, 0);
    if (err == LS_OK && in->bytes_max - in->bytes < o->z->avail_out)
        o->z->avail_out = (uInt)(in->bytes_max - in->bytes) + 1;
    return err;
}

/* Inflate len bytes. A final block (BFINAL) ends a stream of DEFLATE, and another one may follow in the same message
 * (RFC 7692 section 7.2.3.4). */
static int inflate_part(inflation *in, const char *bytes, size_t len)
{
    z_stream *z = in->o.z;
    z->next_in = (const Bytef *)bytes;
    z->avail_in = (uInt)len;
    do {
        if (z->avail_out == 0) {
            const int err = inflation_room(in);
            if (err < 0) return err;
        }
        const int result = inflate(z, Z_SYNC_FLUSH);
        if (result == Z_BUF_ERROR) break; /* all input was used, and all output written */
        if (result == Z_MEM_ERROR) return LS_ENOMEM;
        if (result != Z_OK && result != Z_STREAM_END) return LS_EPROTO;
        in->between = result == Z_STREAM_END;
        if (in->between) (void)inflateReset(z);
    } while (z->avail_in > 0 || z->avail_out == 0);
    return LS_OK;
}

static int inflate_slice(inflation *in, const ls_slice *slice)
{
    int err = LS_OK;
    for (size_t at = 0, part; err == LS_OK && at < slice->len; at += part) {
        part = part_of(slice, at);
        err = inflate_part(in, slice->ptr + at, part);
    }
    return err;
}

/* The bytes that the sender has left out. They complete a block of length 0: no output, and the end lies between two
 * blocks (data_type of zlib.h: 128). Otherwise the data was cut off. */
static int inflation_tail(inflation *in)
{
    const z_stream *z = in->o.z;
    const uLong before = z->total_out;
    const int err = inflate_part(in, tail, TAIL_BYTES);
    if (err < 0) return err;
    return z->total_out == before && z->data_type == 128 ? LS_OK : LS_EPROTO;
}

static int inflation_finish(inflation *in)
{
    const int err = in->between ? LS_OK : inflation_tail(in);
    if (err < 0) return err;
    if (in->bytes + block_used(&in->o) > in->bytes_max) return LS_EMSGSIZE;
    return block_end(&in->o);
}

static uint64_t inflated_max(uint64_t compressed, uint64_t bytes_max)
{
    const uint64_t by_ratio =
        compressed > UINT64_MAX / LS_WS_INFLATE_RATIO_MAX ? UINT64_MAX : compressed * LS_WS_INFLATE_RATIO_MAX;
    const uint64_t most = by_ratio > LS_WS_INFLATE_FREE_BYTES ? by_ratio : LS_WS_INFLATE_FREE_BYTES;
    return most < bytes_max ? most : bytes_max;
}

static int inflate_slices(ls_pool *pool, coder *c, ls_slice *slices, unsigned count, uint64_t bytes_max,
                          ls_slices *out)
{
    inflation in = {.o = {.pool = pool, .list = out, .z = &c->z},
                    .bytes_max = inflated_max(ls_slices_bytes(slices, count), bytes_max)};
    c->z.avail_out = 0;
    int err = inflation_room(&in);
    for (unsigned i = 0; i < count; i++) {
        if (err == LS_OK) err = inflate_slice(&in, &slices[i]);
        ls_slice_drop(&slices[i]);
    }
    if (err == LS_OK) err = inflation_finish(&in);
    return err < 0 ? output_fail(&in.o, err) : LS_OK;
}

int ls_ws_inflate_message(ls_pool *pool, ls_ws_deflate *d, ls_slice *slices, unsigned count, uint64_t bytes_max,
                          ls_slices *out)
{
    coder *const c =
        d->receive_takeover ? &d->takeover->receive : coder_borrow(d->store, false, LS_WS_DEFLATE_BITS_MAX);
    if (c == NULL || coder_open(c, false, d->receive_bits) < 0) { /* a borrowed one is open */
        ls_slices_drop(slices, count);
        return LS_ENOMEM;
    }
    const int err = inflate_slices(pool, c, slices, count, bytes_max, out);
    if (!d->receive_takeover) coder_return(d->store, c);
    return err;
}
