/* http_inflate_zlib.c - see http_inflate.h. */
#define ZLIB_CONST
#include <zlib.h>

#include <stdint.h>
#include <stdlib.h>

#include "base/err.h"
#include "codec/http_inflate.h"

enum { GZIP_ONLY = 16, PART_BYTES_MAX = 1 << 30 /* zlib counts in unsigned int */, GZIP_ID1 = 0x1f };

struct ls_inflate {
    z_stream z;
    uint64_t in_bytes, out_bytes;
    bool ended;  /* behind a member */
    bool padded; /* bytes that are no member have followed */
};

bool ls_inflate_supported(void)
{
    return true;
}

int ls_inflate_open(ls_inflate **out)
{
    ls_inflate *decoder = calloc(1, sizeof *decoder);
    if (decoder == NULL) return LS_ENOMEM;
    if (inflateInit2(&decoder->z, MAX_WBITS + GZIP_ONLY) != Z_OK) {
        free(decoder);
        return LS_ENOMEM;
    }
    *out = decoder;
    return LS_OK;
}

void ls_inflate_close(ls_inflate *decoder)
{
    if (decoder == NULL) return;
    (void)inflateEnd(&decoder->z);
    free(decoder);
}

static unsigned part(size_t len)
{
    return (unsigned)(len < PART_BYTES_MAX ? len : PART_BYTES_MAX);
}

int ls_inflate_run(ls_inflate *decoder, const char *in, size_t *in_len, char *out, size_t *out_len)
{
    z_stream *z = &decoder->z;
    const unsigned in_part = part(*in_len), out_part = part(*out_len);
    if (decoder->ended && in_part > 0) { /* another member (RFC 1952 section 2.2); other bytes are padding */
        if (decoder->padded || in[0] != GZIP_ID1) {
            decoder->padded = true;
            *in_len = in_part;
            *out_len = 0;
            return LS_OK;
        }
        (void)inflateReset(z);
        decoder->ended = false;
    }
    z->next_in = (const Bytef *)in;
    z->avail_in = in_part;
    z->next_out = (Bytef *)out;
    z->avail_out = out_part;
    const int result = decoder->ended ? Z_OK : inflate(z, Z_NO_FLUSH);
    *in_len = in_part - z->avail_in;
    *out_len = out_part - z->avail_out;
    decoder->in_bytes += *in_len;
    decoder->out_bytes += *out_len;
    if (result == Z_STREAM_END) decoder->ended = true;
    if (result == Z_MEM_ERROR) return LS_ENOMEM;
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) return LS_EPROTO;
    return decoder->out_bytes > LS_INFLATE_FREE_BYTES && decoder->out_bytes / LS_INFLATE_RATIO_MAX > decoder->in_bytes
               ? LS_EMSGSIZE
               : LS_OK;
}

bool ls_inflate_ended(const ls_inflate *decoder)
{
    return decoder->ended;
}
