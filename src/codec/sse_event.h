/* sse_event.h - the text of a server-sent event (WHATWG HTML, section 9.2 "Server-sent events"). Pure. */
#ifndef LS_CODEC_SSE_EVENT_H
#define LS_CODEC_SSE_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_sse_event { /* a pointer is NULL without that field */
    const char *name;         /* of the event: ls_sse_is_field */
    size_t name_len;
    const char *id; /* ls_sse_is_field; empty: the client drops the last one */
    size_t id_len;
    const char *data; /* any number of lines that end in LF, CR LF or CR: a client joins them with LF */
    size_t data_len;
    int64_t retry_ms; /* how long a client waits before it connects again; -1: without */
} ls_sse_event;

/* Whether the text can be a name or an id: without CR, LF and NUL. */
bool ls_sse_is_field(const char *text, size_t len);

/* The number of bytes that ls_sse_event_write writes. */
size_t ls_sse_event_bytes(const ls_sse_event *event);
/* Write the event with the empty line that ends it. Returns the address after it. */
char *ls_sse_event_write(const ls_sse_event *event, char *to);

/* The same for a comment, which a client ignores. */
size_t ls_sse_comment_bytes(const char *text, size_t len);
char *ls_sse_comment_write(const char *text, size_t len, char *to);

#endif
