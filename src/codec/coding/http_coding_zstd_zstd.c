/* http_coding_zstd_zstd.c - see http_coding.h. */
#include <zstd.h>
#include <zstd_errors.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "base/err.h"
#include "codec/coding/http_coding.h"

/* Logarithms of windows: RFC 9659 forbids more than 8 MiB; of a body of unknown length; of a stream of events. */
enum { WINDOW_BITS_MAX = 23, UNKNOWN_BITS = 18, EVENTS_BITS = 12 };

static const char *library(void)
{
    static LS_THREAD_LOCAL char text[32];
    (void)snprintf(text, sizeof text, "zstd %s", ZSTD_versionString());
    return text;
}

static bool encoder_reopen(void *encoder, const ls_encode_hint *hint)
{
    (void)ZSTD_CCtx_reset(encoder, ZSTD_reset_session_and_parameters);
    (void)ZSTD_CCtx_setParameter(encoder, ZSTD_c_compressionLevel, hint->level);
    if (hint->events)
        (void)ZSTD_CCtx_setParameter(encoder, ZSTD_c_windowLog, EVENTS_BITS);
    else if (hint->bytes == UINT64_MAX)
        (void)ZSTD_CCtx_setParameter(encoder, ZSTD_c_windowLog, UNKNOWN_BITS);
    else
        (void)ZSTD_CCtx_setPledgedSrcSize(encoder, hint->bytes);
    return true;
}

static int encoder_open(const ls_encode_hint *hint, void **out)
{
    ZSTD_CCtx *encoder = ZSTD_createCCtx();
    if (encoder == NULL) return LS_ENOMEM;
    (void)encoder_reopen(encoder, hint);
    *out = encoder;
    return LS_OK;
}

static size_t encoder_bytes(const void *encoder)
{
    return ZSTD_sizeof_CCtx(encoder);
}

static int encode(void *encoder, const char *in, size_t *in_len, char *out, size_t *out_len, enum ls_encode_step step)
{
    static const ZSTD_EndDirective steps[] = {
        [LS_ENCODE_MORE] = ZSTD_e_continue, [LS_ENCODE_FLUSH] = ZSTD_e_flush, [LS_ENCODE_END] = ZSTD_e_end};
    ZSTD_inBuffer from = {in, *in_len, 0};
    ZSTD_outBuffer to = {out, *out_len, 0};
    const size_t left = ZSTD_compressStream2(encoder, &to, &from, steps[step]);
    const bool taken = from.pos == *in_len;
    *in_len = from.pos;
    *out_len = to.pos;
    if (ZSTD_isError(left)) return LS_ENOMEM;
    return taken && (left == 0 || step == LS_ENCODE_MORE) ? LS_OK : LS_EAGAIN;
}

static void encoder_close(void *encoder)
{
    (void)ZSTD_freeCCtx(encoder);
}

/* ---- decoding
 * ---------------------------------------------------------------------------------------------------- */

enum { MAGIC_BYTES = 4, SKIPPED = 0x50 };

typedef struct decoder {
    ZSTD_DCtx *z;
    unsigned begun; /* bytes of the magic number of this frame that were taken, at most MAGIC_BYTES */
    bool skipped;   /* it is that of a skippable frame */
} decoder;

static int decoder_open(void **out)
{
    decoder *d = calloc(1, sizeof *d);
    if (d == NULL || (d->z = ZSTD_createDCtx()) == NULL) {
        free(d);
        return LS_ENOMEM;
    }
    (void)ZSTD_DCtx_setParameter(d->z, ZSTD_d_windowLogMax, WINDOW_BITS_MAX);
    *out = d;
    return LS_OK;
}

/* Whether the bytes continue with the magic number of a frame, or of a skippable one (RFC 8878 section 3.1). The
 * library may also decode formats before the RFC. */
static bool is_frame(decoder *d, const char *in, size_t len)
{
    static const uint8_t frame[MAGIC_BYTES] = {0x28, 0xb5, 0x2f, 0xfd},
                         skippable[MAGIC_BYTES] = {SKIPPED, 0x2a, 0x4d, 0x18};
    for (unsigned n = d->begun; n < MAGIC_BYTES && n - d->begun < len; n++) {
        const uint8_t byte = (uint8_t)in[n - d->begun];
        if (n == 0) d->skipped = (byte & 0xf0) == SKIPPED;
        if (d->skipped ? n > 0 && byte != skippable[n] : byte != frame[n]) return false;
    }
    return true;
}

static int decode(void *state, const char *in, size_t *in_len, char *out, size_t *out_len, bool *ended)
{
    decoder *d = state;
    ZSTD_inBuffer from = {in, *in_len, 0};
    ZSTD_outBuffer to = {out, *out_len, 0};
    if (*ended && *in_len == 0) { /* without input it would ask for a frame */
        *out_len = 0;
        return LS_OK;
    }
    if (*ended) d->begun = 0;
    if (!is_frame(d, in, *in_len)) return LS_EPROTO;
    const size_t left = ZSTD_decompressStream(d->z, &to, &from);
    d->begun = from.pos < MAGIC_BYTES - d->begun ? d->begun + (unsigned)from.pos : MAGIC_BYTES;
    *in_len = from.pos;
    *out_len = to.pos;
    *ended = left == 0;
    if (!ZSTD_isError(left)) return LS_OK;
    return ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation ? LS_ENOMEM : LS_EPROTO;
}

static void decoder_close(void *state)
{
    (void)ZSTD_freeDCtx(((decoder *)state)->z);
    free(state);
}

const ls_coding_type ls_coding_zstd = {.name = "zstd",
                                       .level_min = 1,
                                       .level_max = 19, /* above it the window is larger than clients must accept */
                                       .level_default = 3,
                                       .library = library,
                                       .encoder_open = encoder_open,
                                       .encode = encode,
                                       .encoder_close = encoder_close,
                                       .encoder_reopen = encoder_reopen,
                                       .encoder_bytes = encoder_bytes,
                                       .decoder_open = decoder_open,
                                       .decode = decode,
                                       .decoder_close = decoder_close};
