/* event_stream.c - see event_stream.h. A line that lies in the bytes is copied only if its value is needed later. */
#include "stress/protocols/event_stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* LS_OK, LS_EMSGSIZE, LS_ENOMEM. */
static int append(const ls_sse *sse, ls_stress_bytes *to, const char *bytes, size_t n)
{
    if (n > sse->bytes_max - to->len) return LS_EMSGSIZE;
    return ls_stress_bytes_add(to, bytes, n, SIZE_MAX) ? LS_OK : LS_ENOMEM;
}

/* The length of the line at `bytes` without its end; `len`: the end is not there. */
static size_t line_length(const char *bytes, size_t len)
{
    const char *lf = memchr(bytes, '\n', len);
    const size_t n = lf != NULL ? (size_t)(lf - bytes) : len;
    const char *cr = memchr(bytes, '\r', n);
    return cr != NULL ? (size_t)(cr - bytes) : n;
}

/* The value of a data line, or NULL: another field, or a comment. */
static const char *data_value(const char *line, size_t len, size_t *value_len)
{
    if (len < 4 || memcmp(line, "data", 4) != 0 || (len > 4 && line[4] != ':')) return NULL;
    const size_t from = len > 5 && line[5] == ' ' ? 6 : len > 4 ? 5 : 4;
    *value_len = len - from;
    return line + from;
}

/* Skip a byte order mark at the beginning of the stream. The first bytes of another character belong to the first
 * line. LS_OK or an error of `append`. */
static int skip_mark(ls_sse *sse, const char *bytes, size_t len, size_t *at)
{
    static const char mark[] = "\xEF\xBB\xBF";
    while (sse->mark_len < LS_SSE_MARK_BYTES && *at < len) {
        if (bytes[*at] != mark[sse->mark_len]) {
            const size_t n = sse->mark_len;
            sse->mark_len = LS_SSE_MARK_BYTES;
            return append(sse, &sse->line, mark, n);
        }
        sse->mark_len++;
        ++*at;
    }
    return LS_OK;
}

bool ls_sse_next(ls_sse *sse, const char *bytes, size_t len, size_t *at, const char **data, size_t *data_len, int *err)
{
    if ((*err = skip_mark(sse, bytes, len, at)) < 0) return false;
    while (*at < len) {
        if (sse->after_cr && bytes[*at] == '\n') ++*at;
        sse->after_cr = false;
        if (*at == len) break;
        const char *line = bytes + *at;
        size_t n = line_length(line, len - *at), value_len = 0;
        const bool ends = *at + n < len;
        if ((!ends || sse->line.len > 0) && (*err = append(sse, &sse->line, line, n)) < 0) return false;
        *at += n;
        if (!ends) break;
        sse->after_cr = bytes[(*at)++] == '\r';
        if (sse->line.len > 0) {
            line = sse->line.at;
            n = sse->line.len;
            sse->line.len = 0;
        }
        if (n == 0) {
            if (!sse->has_data) continue;
            sse->has_data = false;
            *data = sse->data.at;
            *data_len = sse->data.len - 1; /* without the last line feed */
            sse->data.len = 0;
            return true;
        }
        const char *value = data_value(line, n, &value_len);
        if (value == NULL) continue;
        sse->has_data = true;
        *err = append(sse, &sse->data, value, value_len);
        if (*err == LS_OK) *err = append(sse, &sse->data, "\n", 1);
        if (*err < 0) return false;
    }
    return false;
}

void ls_sse_reset(ls_sse *sse)
{
    sse->line.len = sse->data.len = 0;
    sse->mark_len = 0;
    sse->has_data = sse->after_cr = false;
}

void ls_sse_close(ls_sse *sse)
{
    free(sse->line.at);
    free(sse->data.at);
    *sse = (ls_sse){0};
}
