/* http_coding.h - the content codings of HTTP (RFC 9110 section 8.4.1), in both directions: one table, and a file for
 * each library.
 *
 *     gzip  RFC 1952  http_coding_gzip_zlib.c
 *     br    RFC 7932  http_coding_br_brotli.c
 *     zstd  RFC 8878  http_coding_zstd_zstd.c, with the window of RFC 9659
 *
 * A coding whose library is not built in has a row without functions (http_coding_*_none.c). Encoders and decoders
 * take bytes as they come; neither reads a clock or a socket. Thread: one at a time for each object. */
#ifndef LS_CODEC_HTTP_CODING_H
#define LS_CODEC_HTTP_CODING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ls_coding { LS_CODING_GZIP, LS_CODING_BR, LS_CODING_ZSTD, LS_CODINGS };

/* Past LS_INFLATE_FREE_BYTES of output, it may be at most LS_INFLATE_RATIO_MAX times as long as the input so far. */
enum { LS_INFLATE_FREE_BYTES = 1 << 20, LS_INFLATE_RATIO_MAX = 100 };

enum ls_encode_step {
    LS_ENCODE_MORE,  /* the encoder may keep bytes */
    LS_ENCODE_FLUSH, /* the decoder can decode all bytes so far */
    LS_ENCODE_END
};

/* What is known of the bytes to encode: it decides how much memory an encoder takes. */
typedef struct ls_encode_hint {
    int level;
    uint64_t bytes; /* of the whole body; UINT64_MAX: unknown */
    bool events;    /* a stream of small events that lasts for long: memory counts more than size */
} ls_encode_hint;

typedef struct ls_coding_type {
    const char *name;     /* as in Content-Encoding */
    const char *old_name; /* that recipients accept as well, or NULL */
    int level_min, level_max, level_default;
    const char *(*library)(void); /* the name and version of the library that runs. NULL, as all below: not built in */

    int (*encoder_open)(const ls_encode_hint *hint, void **out); /* LS_OK, LS_ENOMEM */
    /* Encode from in[0..*in_len) to out[0..*out_len); both receive the number of bytes used. LS_OK: all input was
     * taken, and the step is complete; LS_EAGAIN: call again with the rest of the input, the same step and more room;
     * LS_ENOMEM. */
    int (*encode)(void *encoder, const char *in, size_t *in_len, char *out, size_t *out_len, enum ls_encode_step step);
    void (*encoder_close)(void *encoder);
    /* Make a finished encoder as encoder_open would: true; false: this one does not suit the hint, and must be closed
     * or used for another. NULL, as the next one: the library cannot. */
    bool (*encoder_reopen)(void *encoder, const ls_encode_hint *hint);
    size_t (*encoder_bytes)(const void *encoder); /* that it holds */

    int (*decoder_open)(void **out); /* LS_OK, LS_ENOMEM */
    /* As ls_decoder_run, without its limit. *ended is whether the input may end here. */
    int (*decode)(void *decoder, const char *in, size_t *in_len, char *out, size_t *out_len, bool *ended);
    void (*decoder_close)(void *decoder);
} ls_coding_type;

extern const ls_coding_type ls_coding_gzip, ls_coding_br, ls_coding_zstd;
extern const ls_coding_type *const ls_codings[LS_CODINGS];

static inline bool ls_coding_built(enum ls_coding coding)
{
    return ls_codings[coding]->library != NULL;
}

/* The coding with this name, case ignored, or -1. The coding may not be built in. */
int ls_coding_find(const char *name, size_t len);

/* ---- decoding, with a limit against bodies that grow without measure -------------------------------------------- */

typedef struct ls_decoder ls_decoder;

/* LS_OK, LS_ENOMEM, LS_ENOTSUP: not built in. */
int ls_decoder_open(enum ls_coding coding, ls_decoder **out);
void ls_decoder_close(ls_decoder *decoder); /* NULL: no effect */

/* Decode from in[0..*in_len) to out[0..*out_len); both receive the number of bytes used. Several members of gzip, and
 * several frames of zstd, may follow one another. LS_OK: more input is needed, or more room; LS_EPROTO: not of this
 * coding, or damaged; LS_EMSGSIZE: past the ratio; LS_ENOMEM. */
int ls_decoder_run(ls_decoder *decoder, const char *in, size_t *in_len, char *out, size_t *out_len);

/* Whether the input may end here. */
bool ls_decoder_ended(const ls_decoder *decoder);
const char *ls_decoder_name(const ls_decoder *decoder); /* of the coding */

#endif
