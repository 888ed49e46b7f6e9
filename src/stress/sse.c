/* sse.c - see sse.h. A line that lies in the bytes is not copied before its value is kept. */
#include "stress/sse.h"

#include <stdlib.h>
#include <string.h>

static bool append(char **to, size_t *len, size_t *room, const char *bytes, size_t n)
{
    if (n > *room - *len) {
        size_t wanted = *room > 0 ? *room : 256;
        while (wanted - *len < n) wanted *= 2;
        char *grown = wanted > LS_SSE_BYTES_MAX ? NULL : realloc(*to, wanted);
        if (grown == NULL) return false;
        *to = grown;
        *room = wanted;
    }
    if (n > 0) memcpy(*to + *len, bytes, n);
    *len += n;
    return true;
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

/* Skip a byte order mark at the beginning of the stream. The first bytes of another character belong to the first line.
 * False: out of memory. */
static bool skip_mark(ls_sse *sse, const char *bytes, size_t len, size_t *at)
{
    static const char mark[] = "\xEF\xBB\xBF";
    while (sse->mark_len < LS_SSE_MARK_BYTES && *at < len) {
        if (bytes[*at] != mark[sse->mark_len]) {
            const size_t n = sse->mark_len;
            sse->mark_len = LS_SSE_MARK_BYTES;
            return append(&sse->line, &sse->line_len, &sse->line_room, mark, n);
        }
        sse->mark_len++;
        ++*at;
    }
    return true;
}

bool ls_sse_next(ls_sse *sse, const char *bytes, size_t len, size_t *at, const char **data, size_t *data_len,
                 bool *failed)
{
    *failed = !skip_mark(sse, bytes, len, at);
    if (*failed) return false;
    while (*at < len) {
        if (sse->after_cr && bytes[*at] == '\n') ++*at;
        sse->after_cr = false;
        if (*at == len) break;
        const char *line = bytes + *at;
        size_t n = line_length(line, len - *at), value_len = 0;
        const bool ends = *at + n < len;
        if (!ends || sse->line_len > 0) {
            if (!append(&sse->line, &sse->line_len, &sse->line_room, line, n)) {
                *failed = true;
                return false;
            }
        }
        *at += n;
        if (!ends) break;
        sse->after_cr = bytes[(*at)++] == '\r';
        if (sse->line_len > 0) {
            line = sse->line;
            n = sse->line_len;
            sse->line_len = 0;
        }
        if (n == 0) {
            if (!sse->has_data) continue;
            sse->has_data = false;
            *data = sse->data;
            *data_len = sse->data_len - 1; /* without the last line feed */
            sse->data_len = 0;
            return true;
        }
        const char *value = data_value(line, n, &value_len);
        if (value == NULL) continue;
        sse->has_data = true;
        if (!append(&sse->data, &sse->data_len, &sse->data_room, value, value_len) ||
            !append(&sse->data, &sse->data_len, &sse->data_room, "\n", 1)) {
            *failed = true;
            return false;
        }
    }
    return false;
}

void ls_sse_reset(ls_sse *sse)
{
    sse->line_len = sse->data_len = 0;
    sse->mark_len = 0;
    sse->has_data = sse->after_cr = false;
}

void ls_sse_close(ls_sse *sse)
{
    free(sse->line);
    free(sse->data);
    *sse = (ls_sse){0};
}
