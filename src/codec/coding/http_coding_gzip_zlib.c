/* http_coding_gzip_zlib.c - see http_coding.h. */
#define ZLIB_CONST
#include <zlib.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "base/err.h"
#include "codec/coding/http_coding.h"

enum {
    AS_GZIP = 16,     /* added to the bits of the window */
    MEMORY_USUAL = 8, /* the memory level of zlib's default */
    EVENTS_BITS = 12, /* a window of 4 KiB, and about 40 KiB for an encoder */
    EVENTS_MEMORY = 5,
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

/* A short body needs no large window: the time to clear its tables would be longer than that to compress it. */
static int encoder_open(const ls_encode_hint *hint, void **out)
{
    int bits = MAX_WBITS, memory = MEMORY_USUAL;
    while (bits > 9 && hint->bytes < ((uint64_t)1 << (bits - 1)) - LOOK_AHEAD) {
        bits--;
        if (memory > 1) memory--;
    }
    if (hint->events) {
        bits = EVENTS_BITS;
        memory = EVENTS_MEMORY;
    }
    z_stream *z = calloc(1, sizeof *z);
    if (z == NULL) return LS_ENOMEM;
    if (deflateInit2(z, hint->level, Z_DEFLATED, bits + AS_GZIP, memory, Z_DEFAULT_STRATEGY) != Z_OK) {
        free(z);
        return LS_ENOMEM;
    }
    *out = z;
    return LS_OK;
}

static int encode(void *encoder, const char *in, size_t *in_len, char *out, size_t *out_len, enum ls_encode_step step)
{
    static const int steps[] = {
        [LS_ENCODE_MORE] = Z_NO_FLUSH, [LS_ENCODE_FLUSH] = Z_SYNC_FLUSH, [LS_ENCODE_END] = Z_FINISH};
    z_stream *z = encoder;
    const bool whole = part(*in_len) == *in_len;
    give(z, in, *in_len, out, *out_len);
    const unsigned in_part = z->avail_in, out_part = z->avail_out;
    const int result = deflate(z, whole ? steps[step] : Z_NO_FLUSH);
    *in_len = in_part - z->avail_in;
    *out_len = out_part - z->avail_out;
    if (step == LS_ENCODE_END) return result == Z_STREAM_END ? LS_OK : LS_EAGAIN;
    return whole && z->avail_in == 0 && z->avail_out > 0 ? LS_OK : LS_EAGAIN;
}

static void encoder_close(void *encoder)
{
    (void)deflateEnd(encoder);
    free(encoder);
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

enum { GZIP_ID1 = 0x1f };

typedef struct decoder {
    z_stream z;
    bool ended;  /* behind a member */
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
                                       .decoder_open = decoder_open,
                                       .decode = decode,
                                       .decoder_close = decoder_close};
