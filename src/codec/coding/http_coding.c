/* http_coding.c - see http_coding.h. */
#include "codec/coding/http_coding.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "codec/http_text.h"

const ls_coding_type *const ls_codings[LS_CODINGS] = {&ls_coding_gzip, &ls_coding_br, &ls_coding_zstd};

int ls_coding_find(const char *name, size_t len)
{
    for (int n = 0; n < LS_CODINGS; n++) {
        const ls_coding_type *type = ls_codings[n];
        if (ls_text_same(name, len, type->name, strlen(type->name))) return n;
        if (type->old_name != NULL && ls_text_same(name, len, type->old_name, strlen(type->old_name))) return n;
    }
    return -1;
}

struct ls_decoder {
    const ls_coding_type *type;
    void *state;
    uint64_t in_bytes, out_bytes;
    bool ended;
};

int ls_decoder_open(enum ls_coding coding, ls_decoder **out)
{
    const ls_coding_type *type = ls_codings[coding];
    if (type->library == NULL) return LS_ENOTSUP;
    ls_decoder *decoder = calloc(1, sizeof *decoder);
    if (decoder == NULL) return LS_ENOMEM;
    const int err = type->decoder_open(&decoder->state);
    if (err < 0) {
        free(decoder);
        return err;
    }
    decoder->type = type;
    *out = decoder;
    return LS_OK;
}

void ls_decoder_close(ls_decoder *decoder)
{
    if (decoder == NULL) return;
    decoder->type->decoder_close(decoder->state);
    free(decoder);
}

int ls_decoder_run(ls_decoder *decoder, const char *in, size_t *in_len, char *out, size_t *out_len)
{
    const int err = decoder->type->decode(decoder->state, in, in_len, out, out_len, &decoder->ended);
    if (err < 0) return err;
    decoder->in_bytes += *in_len;
    decoder->out_bytes += *out_len;
    return decoder->out_bytes > LS_INFLATE_FREE_BYTES && decoder->out_bytes / LS_INFLATE_RATIO_MAX > decoder->in_bytes
               ? LS_EMSGSIZE
               : LS_OK;
}

bool ls_decoder_ended(const ls_decoder *decoder)
{
    return decoder->ended;
}

const char *ls_decoder_name(const ls_decoder *decoder)
{
    return decoder->type->name;
}
