/* http_coding_gzip_zlib.c - see http_coding.h. */
#define ZLIB_CONST
#include <zlib.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "base/err.h"
#include "codec/coding/http_coding.h"

enum {
    AS_GZIP = 16,            /* added to the bits of the window */
    MEMORY_LESS = 7,         /* the memory level is that much less than the bits, as in zlib's default */
    EVENTS_BITS = 12,        /* a window of 4 KiB, and about 40 KiB for an encoder */
    LOOK_AHEAD = 262,        /* zlib: the window has that many bytes less of use */
    PART_BYTES_MAX = 1 << 30 /* zlib counts in unsigned int */
};

static const char *library(void)
{
    static LS_THREAD_LOCAL char text[32];
    (void)snprintf(text, sizeof text, "zlib %s", zlibVersion());
    return text;
}

static unsigned part(size_t len)
{
    return (unsigned)(len < PART_BYTES_MAX ? len : PART_BYTES_MAX);
}

static void give(z_stream *z, const char *in, size_t in_len, char *out, size_t out_len)
{
    z->next_in = (const Bytef *)in;
    z->avail_in = part(in_len);
    z->next_out = (Bytef *)out;
    z->avail_out = part(out_len);
}

typedef struct encoder {
    z_stream z;
    int level, bits;
} encoder;

/* A short body needs no large window: the time to clear its tables would be longer than that to compress it. */
static int bits_for(const ls_encode_hint *hint)
{
    int bits = MAX_WBITS;
    if (hint->events) return EVENTS_BITS;
    while (bits > 9 && hint->bytes < ((uint64_t)1 << (bits - 1)) - LOOK_AHEAD) bits--;
    return bits;
}

static int encoder_open(const ls_encode_hint *hint, void **out)
{
    encoder *e = malloc(sizeof *e);
    if (e == NULL) return LS_ENOMEM;
    *e = (encoder){.level = hint->level, .bits = bits_for(hint)};
    if (deflateInit2(&e->z, e->level, Z_DEFLATED, e->bits + AS_GZIP, e->bits - MEMORY_LESS, Z_DEFAULT_STRATEGY) !=
        Z_OK) {
        free(e);
        return LS_ENOMEM;
    }
    *out = e;
    return LS_OK;
}

static bool encoder_reopen(void *state, const ls_encode_hint *hint)
{
    encoder *e = state;
    return e->level == hint->level && e->bits == bits_for(hint) && deflateReset(&e->z) == Z_OK;
}

static size_t encoder_bytes(const void *state)
{
    return (size_t)8 << ((const encoder *)state)->bits; /* zconf.h, but for its last few kilobytes */
}

static int encode(void *state, const char *in, size_t *in_len, char *out, size_t *out_len, enum ls_encode_step step)
{
    static const int steps[] = {
        [LS_ENCODE_MORE] = Z_NO_FLUSH, [LS_ENCODE_FLUSH] = Z_SYNC_FLUSH, [LS_ENCODE_END] = Z_FINISH};
    z_stream *z = &((encoder *)state)->z;
    const bool whole = part(*in_len) == *in_len;
    give(z, in, *in_len, out, *out_len);
    const unsigned in_part = z->avail_in, out_part = z->avail_out;
    const int result = deflate(z, whole ? steps[step] : Z_NO_FLUSH);
    *in_len = in_part - z->avail_in;
    *out_len = out_part - z->avail_out;
    if (step == LS_ENCODE_END) return result == Z_STREAM_END ? LS_OK : LS_EAGAIN;
    return whole && z->avail_in == 0 && z->avail_out > 0 ? LS_OK : LS_EAGAIN;
}

static void encoder_close(void *state)
{
    (void)deflateEnd(&((encoder *)state)->z);
    free(state);
}

/* ---- decoding
 * ---------------------------------------------------------------------------------------------------- */

enum { GZIP_ID1 = 0x1f };

typedef struct decoder {
    z_stream z;
    bool ended;  /* after a member */
    bool padded; /* bytes that are no member have followed */
} decoder;

static int decoder_open(void **out)
{
    decoder *d = calloc(1, sizeof *d);
    if (d == NULL) return LS_ENOMEM;
    if (inflateInit2(&d->z, MAX_WBITS + AS_GZIP) != Z_OK) {
        free(d);
        return LS_ENOMEM;
    }
    *out = d;
    return LS_OK;
}

static int decode(void *state, const char *in, size_t *in_len, char *out, size_t *out_len, bool *ended)
{
    decoder *d = state;
    if (d->ended && *in_len > 0) { /* another member (RFC 1952 section 2.2); other bytes are padding */
        if (d->padded || in[0] != GZIP_ID1) {
            d->padded = true;
            *out_len = 0;
            return LS_OK;
        }
        (void)inflateReset(&d->z);
        *ended = d->ended = false;
    }
    give(&d->z, in, *in_len, out, *out_len);
    const unsigned in_part = d->z.avail_in, out_part = d->z.avail_out;
    const int result = d->ended ? Z_OK : inflate(&d->z, Z_NO_FLUSH);
    *in_len = in_part - d->z.avail_in;
    *out_len = out_part - d->z.avail_out;
    if (result == Z_STREAM_END) *ended = d->ended = true;
    if (result == Z_MEM_ERROR) return LS_ENOMEM;
    return result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR ? LS_OK : LS_EPROTO;
}

static void decoder_close(void *state)
{
    (void)inflateEnd(&((decoder *)state)->z);
    free(state);
}

const ls_coding_type ls_coding_gzip = {.name = "gzip",
                                       .old_name = "x-gzip",
                                       .level_min = 1,
                                       .level_max = 9,
                                       .level_default = 5,
                                       .library = library,
                                       .encoder_open = encoder_open,
                                       .encode = encode,
                                       .encoder_close = encoder_close,
                                       .encoder_reopen = encoder_reopen,
                                       .encoder_bytes = encoder_bytes,
                                       .decoder_open = decoder_open,
                                       .decode = decode,
                                       .decoder_close = decoder_close};
