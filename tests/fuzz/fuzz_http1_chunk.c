/* fuzz_http1_chunk.c - the chunk decoder gives the same payload, end and error for every split, and never more payload
 * than input. It accepts the first size line exactly if the grammar does. */
#include "fuzz.h"

#include "base/err.h"
#include "codec/http1/http1_chunk.h"
#include "codec/http_chars.h"

typedef struct decoded {
    int err;
    bool end;
    size_t used, len;
    char *payload; /* room for the whole input */
} decoded;

/* Feed the input in pieces of `piece` bytes. */
static decoded decode(const uint8_t *data, size_t size, size_t piece)
{
    decoded d = {.payload = malloc(size + 1)};
    ls_chunks chunks;
    FUZZ_HOLDS(d.payload != NULL);
    ls_chunks_init(&chunks);
    for (size_t from = 0; from < size && d.err == LS_OK && !d.end; from += piece) {
        const size_t len = size - from < piece ? size - from : piece;
        char *copy = fuzz_copy_exact(data + from, len);
        for (size_t at = 0; at < len && !d.end;) {
            ls_chunk_run run;
            const char *why = NULL;
            d.err = ls_chunks_next(&chunks, copy + at, len - at, &run, &why);
            FUZZ_HOLDS((d.err == LS_EPROTO && why != NULL) || (d.err == LS_OK && why == NULL));
            if (d.err < 0) break;
            FUZZ_HOLDS(run.used > 0 && run.used <= len - at); /* every call consumes bytes */
            FUZZ_HOLDS(run.from <= run.used && run.len <= run.used - run.from);
            FUZZ_HOLDS(run.len > 0 || run.end || run.used == len - at);
            memcpy(d.payload + d.len, copy + at + run.from, run.len);
            d.len += run.len;
            d.used += run.used;
            d.end = run.end;
            at += run.used;
        }
        free(copy);
    }
    return d;
}

static const char *skip(const char *at, const char *end, enum ls_char_class wanted)
{
    while (at < end && ls_char_is(*at, wanted)) at++;
    return at;
}

static const char *skip_white_space(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t')) at++;
    return at;
}

/* The end of the quoted-string at `at`; NULL: it is not valid. */
static const char *skip_quoted(const char *at, const char *end)
{
    for (at++; at < end && *at != '"'; at++) {
        if (*at == '\\') at++;
        if (at == end || !ls_char_is(*at, LS_CHAR_VALUE)) return NULL;
    }
    return at < end ? at + 1 : NULL;
}

/* chunk-size [ chunk-ext ] of RFC 9112 section 7.1, from `at` to `end`, within the limits of the decoder. */
static bool is_size_line(const char *at, const char *end)
{
    const char *from = at;
    at = skip(at, end, LS_CHAR_HEX);
    if (at == from || at - from > 15 || end - at > LS_CHUNK_EXT_BYTES_MAX) return false;
    while (at < end) {
        at = skip_white_space(at, end);
        if (at == end || *at++ != ';') return false;
        from = at = skip_white_space(at, end);
        if ((at = skip(at, end, LS_CHAR_TOKEN)) == from) return false;
        const char *const after = skip_white_space(at, end);
        if (after == end || *after != '=') continue;
        from = at = skip_white_space(after + 1, end);
        if (at < end && *at == '"')
            at = skip_quoted(at, end);
        else
            at = skip(at, end, LS_CHAR_TOKEN);
        if (at == NULL || at == from) return false;
    }
    return true;
}

/* The decoder agrees with the grammar about the first size line, if the input has a whole one. */
static void check_size_line(const uint8_t *data, size_t size)
{
    const uint8_t *const end = memchr(data, '\n', size);
    if (end == NULL) return;
    const char *const from = (const char *)data, *const to = (const char *)end;
    const bool valid = to > from && to[-1] == '\r' && is_size_line(from, to - 1);
    decoded line = decode(data, (size_t)(to + 1 - from), (size_t)(to + 1 - from));
    FUZZ_HOLDS((line.err == LS_OK) == valid);
    free(line.payload);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t pieces[] = {1, 2, 3, 7, 16, 61};
    decoded whole = decode(data, size, size > 0 ? size : 1);
    FUZZ_HOLDS(whole.err < 0 || whole.end || whole.used == size);
    FUZZ_HOLDS(!whole.end || (whole.used >= 5 && memcmp(data + whole.used - 2, "\r\n", 2) == 0));
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        decoded split = decode(data, size, pieces[i]);
        FUZZ_HOLDS(split.err == whole.err && split.end == whole.end && split.len == whole.len);
        FUZZ_HOLDS(memcmp(split.payload, whole.payload, whole.len) == 0);
        FUZZ_HOLDS(split.err < 0 || split.used == whole.used);
        free(split.payload);
    }
    free(whole.payload);
    if (size > 0) check_size_line(data, size);
    return 0;
}
