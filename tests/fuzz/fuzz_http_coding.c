/* fuzz_http_coding.c - the decoders of all codings: any data decodes or is refused, past the free bytes at most at the ratio,
 * how it is divided does not matter, and what came out encodes and decodes to the same. The first byte chooses the coding. */
#include "fuzz.h"

#include "base/err.h"
#include "codec/coding/http_coding.h"

enum { OUT_MAX = 4 << 20 };

static char out[2][OUT_MAX], packed[OUT_MAX + 65536];

/* Decode in pieces of at most `step` bytes, each in memory of its own. The number of bytes, or LS_E*; OUT_MAX: stopped. */
static int decode(enum ls_coding coding, const uint8_t *data, size_t size, size_t step, size_t room, char *to,
                  bool *ended)
{
    ls_decoder *decoder;
    size_t at = 0, used = 0, got = 0;
    int err = LS_OK;
    FUZZ_HOLDS(ls_decoder_open(coding, &decoder) == LS_OK);
    while (err == LS_OK && used + room <= OUT_MAX && (at < size || got == room)) {
        const size_t piece = step < size - at ? step : size - at;
        char *copy = fuzz_copy_exact(data + at, piece);
        size_t in = piece;
        got = room;
        err = ls_decoder_run(decoder, copy, &in, to + used, &got);
        free(copy);
        FUZZ_HOLDS(err < 0 || (in <= piece && got <= room));
        if (err == LS_OK) at += in;
        if (err == LS_OK) used += got;
        if (err == LS_OK && in == 0 && got == 0 && piece > 0) err = LS_EPROTO; /* no progress */
        FUZZ_HOLDS(err < 0 || used <= LS_INFLATE_FREE_BYTES || used / LS_INFLATE_RATIO_MAX <= size);
    }
    *ended = err == LS_OK && at == size && ls_decoder_ended(decoder);
    ls_decoder_close(decoder);
    return err < 0 ? err : (int)used;
}

static void encode_again(enum ls_coding coding, const char *text, size_t len, bool events)
{
    const ls_encode_hint hint = {ls_codings[coding]->level_min, UINT64_MAX, events};
    void *encoder;
    size_t in = len, room = sizeof packed;
    bool ended;
    FUZZ_HOLDS(ls_codings[coding]->encoder_open(&hint, &encoder) == LS_OK);
    FUZZ_HOLDS(ls_codings[coding]->encode(encoder, text, &in, packed, &room, LS_ENCODE_END) == LS_OK && in == len);
    ls_codings[coding]->encoder_close(encoder);
    const int back = decode(coding, (const uint8_t *)packed, room, room, 65536, out[1], &ended);
    FUZZ_HOLDS(back == LS_EMSGSIZE || ((size_t)back == len && ended && memcmp(out[1], text, len) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool ended[2];
    if (size < 2) return 0;
    const enum ls_coding coding = (enum ls_coding)(data[0] % LS_CODINGS);
    if (!ls_coding_built(coding)) return 0;
    const size_t step = 1 + data[1];
    const int whole = decode(coding, data + 2, size - 2, size, 65536, out[0], &ended[0]);
    const int parts = decode(coding, data + 2, size - 2, step, 65536, out[1], &ended[1]);
    FUZZ_HOLDS(whole == LS_EMSGSIZE || parts == LS_EMSGSIZE ||
               (whole < 0) == (parts < 0)); /* the ratio depends on the pieces */
    if (whole < 0 || parts < 0) return 0;
    FUZZ_HOLDS(whole == parts && ended[0] == ended[1] && memcmp(out[0], out[1], (size_t)whole) == 0);
    if (ended[0] && whole < OUT_MAX - 65536) encode_again(coding, out[0], (size_t)whole, data[1] & 1);
    return 0;
}
