/* http_coding_br_brotli.c - see http_coding.h. */
#include <brotli/decode.h>
#include <brotli/encode.h>

#include <stdio.h>

#include "base/compiler.h"
#include "base/err.h"
#include "codec/coding/http_coding.h"

/* Logarithms of windows: of a body of unknown length, at most; and of a stream of events. */
enum { WINDOW_BITS_MAX = 18, EVENTS_BITS = 12 };

static const char *library(void)
{
    static LS_THREAD_LOCAL char text[32];
    const uint32_t version = BrotliEncoderVersion();
    (void)snprintf(text, sizeof text, "brotli %u.%u.%u", version >> 24, version >> 12 & 0xfff, version & 0xfff);
    return text;
}

static int encoder_open(const ls_encode_hint *hint, void **out)
{
    BrotliEncoderState *encoder = BrotliEncoderCreateInstance(NULL, NULL, NULL);
    uint32_t bits = BROTLI_MIN_WINDOW_BITS;
    if (encoder == NULL) return LS_ENOMEM;
    while (bits < WINDOW_BITS_MAX && ((uint64_t)1 << bits) - 16 < hint->bytes) bits++; /* RFC 7932 section 9.1 */
    if (hint->events) bits = EVENTS_BITS;
    (void)BrotliEncoderSetParameter(encoder, BROTLI_PARAM_QUALITY, (uint32_t)hint->level);
    (void)BrotliEncoderSetParameter(encoder, BROTLI_PARAM_LGWIN, bits);
    if (hint->bytes < UINT32_MAX)
        (void)BrotliEncoderSetParameter(encoder, BROTLI_PARAM_SIZE_HINT, (uint32_t)hint->bytes);
    *out = encoder;
    return LS_OK;
}

static int encode(void *encoder, const char *in, size_t *in_len, char *out, size_t *out_len, enum ls_encode_step step)
{
    static const BrotliEncoderOperation steps[] = {[LS_ENCODE_MORE] = BROTLI_OPERATION_PROCESS,
                                                   [LS_ENCODE_FLUSH] = BROTLI_OPERATION_FLUSH,
                                                   [LS_ENCODE_END] = BROTLI_OPERATION_FINISH};
    size_t in_left = *in_len, out_left = *out_len;
    const uint8_t *next_in = (const uint8_t *)in;
    uint8_t *next_out = (uint8_t *)out;
    const bool taken =
        BrotliEncoderCompressStream(encoder, steps[step], &in_left, &next_in, &out_left, &next_out, NULL);
    *in_len -= in_left;
    *out_len -= out_left;
    if (!taken) return LS_ENOMEM;
    if (in_left > 0 || BrotliEncoderHasMoreOutput(encoder)) return LS_EAGAIN;
    return step != LS_ENCODE_END || BrotliEncoderIsFinished(encoder) ? LS_OK : LS_EAGAIN;
}

static void encoder_close(void *encoder)
{
    BrotliEncoderDestroyInstance(encoder);
}

static int decoder_open(void **out)
{
    *out = BrotliDecoderCreateInstance(NULL, NULL, NULL);
    return *out != NULL ? LS_OK : LS_ENOMEM;
}

static int decode(void *decoder, const char *in, size_t *in_len, char *out, size_t *out_len, bool *ended)
{
    size_t in_left = *in_len, out_left = *out_len;
    const uint8_t *next_in = (const uint8_t *)in;
    uint8_t *next_out = (uint8_t *)out;
    if (BrotliDecoderIsFinished(decoder)) { /* bytes after the end: the format has no members */
        *out_len = 0;
        return in_left > 0 ? LS_EPROTO : LS_OK;
    }
    const BrotliDecoderResult result =
        BrotliDecoderDecompressStream(decoder, &in_left, &next_in, &out_left, &next_out, NULL);
    *in_len -= in_left;
    *out_len -= out_left;
    *ended = result == BROTLI_DECODER_RESULT_SUCCESS;
    if (result != BROTLI_DECODER_RESULT_ERROR) return LS_OK;
    const BrotliDecoderErrorCode code = BrotliDecoderGetErrorCode(decoder);
    return code <= BROTLI_DECODER_ERROR_ALLOC_CONTEXT_MODES && code >= BROTLI_DECODER_ERROR_ALLOC_BLOCK_TYPE_TREES
               ? LS_ENOMEM
               : LS_EPROTO;
}

static void decoder_close(void *decoder)
{
    BrotliDecoderDestroyInstance(decoder);
}

const ls_coding_type ls_coding_br = {.name = "br",
                                     .level_min = 0,
                                     .level_max = 11,
                                     .level_default = 4,
                                     .library = library,
                                     .encoder_open = encoder_open,
                                     .encode = encode,
                                     .encoder_close = encoder_close,
                                     .decoder_open = decoder_open,
                                     .decode = decode,
                                     .decoder_close = decoder_close};
