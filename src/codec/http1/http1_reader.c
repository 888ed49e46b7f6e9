/* http1_reader.c - see http1_reader.h. */
#include "codec/http1/http1_reader.h"

#include "base/err.h"

void ls_http1_reader_init(ls_http1_reader *reader, enum ls_asked asked)
{
    *reader = (ls_http1_reader){.asked = (uint8_t)asked};
    ls_chunks_init(&reader->chunks);
}

int ls_http1_read_head(ls_http1_reader *reader, const char *bytes, size_t len, size_t bytes_max, size_t *skip,
                       const char **why)
{
    size_t at = 0;
    for (;;) {
        const int length = ls_http1_parse_response(bytes + at, len - at, reader->seen, bytes_max,
                                                   reader->asked == LS_ASKED_HEAD, &reader->head, why);
        *skip = at;
        reader->seen = length == 0 ? len - at : 0;
        if (length <= 0) return length;
        if (reader->head.status >= 200 || (reader->head.status == 101 && reader->asked == LS_ASKED_UPGRADE)) {
            reader->left =
                reader->head.framing == LS_FRAMING_LENGTH ? reader->head.length : 0; /* not of a HEAD, a 304 */
            return length;
        }
        if (reader->head.status == 101) {
            *why = "status 101, but no upgrade was requested";
            return LS_EPROTO;
        }
        if (reader->interims == LS_RESPONSE_INTERIM_MAX) {
            *why = "too many interim responses";
            return LS_EPROTO;
        }
        reader->interims++;
        at += (size_t)length;
    }
}

int ls_http1_read_body(ls_http1_reader *reader, const char *bytes, size_t len, ls_chunk_run *out, const char **why)
{
    size_t run = len;
    switch (reader->head.framing) {
    case LS_FRAMING_NONE: *out = (ls_chunk_run){.end = true}; return LS_OK;
    case LS_FRAMING_CHUNKED: return ls_chunks_next(&reader->chunks, bytes, len, out, why);
    case LS_FRAMING_LENGTH:
        if (run > reader->left) run = (size_t)reader->left;
        reader->left -= run;
        *out = (ls_chunk_run){.len = run, .used = run, .end = reader->left == 0};
        return LS_OK;
    default: *out = (ls_chunk_run){.len = run, .used = run}; return LS_OK;
    }
}

int ls_http1_read_end(const ls_http1_reader *reader)
{
    return reader->head.framing == LS_FRAMING_TO_END ? LS_OK : LS_ETRUNCATED;
}
