/* event_stream.h - server-sent events, from the side of a client (WHATWG HTML, section 9.2.6): bytes in, the data of
 * events out. Only the field `data` is used. A byte order mark at the beginning of the stream is ignored. */
#ifndef LS_STRESS_SSE_H
#define LS_STRESS_SSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stress/load/bytes.h"

enum { LS_SSE_MARK_BYTES = 3 /* of a byte order mark in UTF-8 */ };

typedef struct ls_sse {         /* all zero but bytes_max at the beginning of a stream */
    size_t bytes_max;           /* of a line, and of the data of an event with a line feed after each line */
    ls_stress_bytes line, data; /* the beginning of an incomplete line; the data lines of an incomplete event */
    uint8_t mark_len; /* bytes of a byte order mark before the first line; LS_SSE_MARK_BYTES: its place is passed */
    bool has_data;
    bool after_cr; /* the last line ended with CR: a LF that follows belongs to it */
} ls_sse;

/* Continue with bytes[*at..len). True: an event is complete, and *data has its data, valid until the next call; *at is
 * after the event, call again. False: *err is LS_OK, and all bytes are used; LS_EMSGSIZE, past bytes_max; or
 * LS_ENOMEM. */
bool ls_sse_next(ls_sse *sse, const char *bytes, size_t len, size_t *at, const char **data, size_t *data_len,
                 int *err);

void ls_sse_reset(ls_sse *sse); /* for a new stream */
void ls_sse_close(ls_sse *sse);

#endif
