/* bare.h - shared by the bare servers: sockets; for the two responders a fixed response and the detection of the end
 * of a request.
 *
 * The responders are the lower bound for any HTTP server on this machine: no parsing, no routing, no timeouts. A
 * request ends at an empty line (so requests have no bodies), each end gets the same response, responses to pipelined
 * requests are sent in one call. The head has the same fields as luaserve's. */
#ifndef LS_BENCH_BARE_H
#define LS_BENCH_BARE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define BARE_HEAD(name, connection)                                                  \
    "HTTP/1.1 200 OK\r\nServer: " name "\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n" \
    "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 13\r\n" connection "\r\n"
#define BARE_BODY "hello, world\n"

enum { BARE_EVENTS = 64, BARE_RESPONSES_MAX = 256, BARE_RECEIVE_BYTES = 8192, BARE_CONNECTIONS_MAX = 1 << 17 };

/* The response repeated, so that n responses are one contiguous buffer. */
typedef struct bare_responses {
    char *bytes;
    size_t each;
} bare_responses;

bool bare_responses_open(bare_responses *responses, const char *one);

/* A socket of this type bound to 127.0.0.1; on failure the program exits with a message. */
int bare_bound(const char *port, int type);

/* The same, non-blocking and listening for TCP connections. */
int bare_listen(const char *port);

/* Accept the next connection, non-blocking, with TCP_NODELAY, its descriptor below BARE_CONNECTIONS_MAX. -1: the queue
 * is empty; the next edge reports further connections. */
int bare_accept(int listener);

/* The number of requests that end in `bytes`. `*state` (0 to 3): the part of CR LF CR LF seen before, and afterwards. */
static inline unsigned bare_ends(const char *bytes, size_t len, unsigned char *state)
{
    const char *p = bytes, *end = bytes + len;
    unsigned seen = *state, ends = 0;
    while (p < end) {
        if (seen == 0) {
            p = memchr(p, '\r', (size_t)(end - p));
            if (p == NULL) break;
            seen = 1;
            p++;
        } else if (*p == (seen == 2 ? '\r' : '\n')) {
            p++;
            if (++seen == 4) {
                ends++;
                seen = 0;
            }
        } else {
            seen = *p == '\r';
            p++;
        }
    }
    *state = (unsigned char)seen;
    return ends;
}

#endif
