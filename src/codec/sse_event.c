/* sse_event.c - see sse_event.h. */
#include "codec/sse_event.h"

#include <string.h>

#include "codec/http_text.h"

bool ls_sse_is_field(const char *text, size_t len)
{
    for (size_t n = 0; n < len; n++)
        if (text[n] == '\r' || text[n] == '\n' || text[n] == '\0') return false;
    return true;
}

/* The first `c` in [at, end), or `end`. */
static const char *find(const char *at, const char *end, char c)
{
    const char *found = at < end ? memchr(at, c, (size_t)(end - at)) : NULL;
    return found != NULL ? found : end;
}

/* The lines of a text, one after the other. `feed` and `cr` are the next LF and CR, or `end`: each byte is searched
 * for each of them once, however long the lines are. */
typedef struct lines {
    const char *at, *end, *feed, *cr;
} lines;

static lines lines_of(const char *text, size_t len)
{
    const char *const end = text + len;
    return (lines){text, end, find(text, end, '\n'), find(text, end, '\r')};
}

/* Take the next line out. Returns its length; its address was l->at. *last: no line follows. */
static size_t take_line(lines *l, bool *last)
{
    const char *const from = l->at, *const stop = l->feed < l->cr ? l->feed : l->cr;
    *last = stop == l->end;
    if (*last) return (size_t)(stop - from);
    const bool is_crlf = stop == l->cr && stop + 1 == l->feed && l->feed < l->end; /* one end */
    l->at = stop + (is_crlf ? 2 : 1);
    if (l->feed < l->at) l->feed = find(l->at, l->end, '\n');
    if (l->cr < l->at) l->cr = find(l->at, l->end, '\r');
    return (size_t)(stop - from);
}

/* Each line after `label`; only counts when `to` is NULL. Returns the number of bytes. */
static size_t put_lines(const char *label, const char *text, size_t len, char *to)
{
    const size_t label_len = strlen(label);
    lines left = lines_of(text, len);
    size_t sum = 0;
    for (bool last = false; !last;) {
        const char *const line = left.at;
        const size_t run = take_line(&left, &last);
        if (to != NULL) {
            memcpy(to + sum, label, label_len);
            memcpy(to + sum + label_len, line, run);
            to[sum + label_len + run] = '\n';
        }
        sum += label_len + run + 1;
    }
    return sum;
}

static size_t put_field(const char *label, const char *text, size_t len, char *to)
{
    const size_t label_len = strlen(label);
    if (text == NULL) return 0;
    if (to != NULL) {
        memcpy(to, label, label_len);
        memcpy(to + label_len, text, len);
        to[label_len + len] = '\n';
    }
    return label_len + len + 1;
}

static size_t put_event(const ls_sse_event *event, char *to)
{
    char digits[20];
    size_t sum = 0;
#define AT (to != NULL ? to + sum : NULL)
    if (event->retry_ms >= 0)
        sum += put_field("retry: ", digits, (size_t)(ls_put_number(digits, (uint64_t)event->retry_ms) - digits), AT);
    sum += put_field("event: ", event->name, event->name_len, AT);
    sum += put_field("id: ", event->id, event->id_len, AT);
    if (event->data != NULL) sum += put_lines("data: ", event->data, event->data_len, AT);
#undef AT
    if (to != NULL) to[sum] = '\n';
    return sum + 1;
}

size_t ls_sse_event_bytes(const ls_sse_event *event)
{
    return put_event(event, NULL);
}

char *ls_sse_event_write(const ls_sse_event *event, char *to)
{
    return to + put_event(event, to);
}

size_t ls_sse_comment_bytes(const char *text, size_t len)
{
    return put_lines(": ", text, len, NULL) + 1;
}

char *ls_sse_comment_write(const char *text, size_t len, char *to)
{
    to += put_lines(": ", text, len, to);
    *to = '\n';
    return to + 1;
}
