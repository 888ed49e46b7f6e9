/* sse_event.c - see sse_event.h. */
#include "proto/sse_event.h"

#include <string.h>

#include "proto/http_text.h"

bool ls_sse_is_field(const char *text, size_t len)
{
    for (size_t n = 0; n < len; n++)
        if (text[n] == '\r' || text[n] == '\n' || text[n] == '\0') return false;
    return true;
}

/* The line at `at` ends at the result; *next receives the start of the next one, NULL: it is the last. */
static const char *line_end(const char *at, const char *end, const char **next)
{
    const char *feed = memchr(at, '\n', (size_t)(end - at)), *stop = feed != NULL ? feed : end;
    const char *cr = memchr(at, '\r', (size_t)(stop - at));
    *next = feed != NULL ? feed + 1 : NULL;
    if (cr == NULL) return stop;
    if (cr + 1 != feed) *next = cr + 1;
    return cr;
}

/* Each line behind `label`; only counts when `to` is NULL. Returns the number of bytes. */
static size_t put_lines(const char *label, const char *text, size_t len, char *to)
{
    const size_t label_len = strlen(label);
    size_t sum = 0;
    for (const char *at = text, *next; at != NULL; at = next) {
        const size_t run = (size_t)(line_end(at, text + len, &next) - at);
        if (to != NULL) {
            memcpy(to + sum, label, label_len);
            memcpy(to + sum + label_len, at, run);
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
