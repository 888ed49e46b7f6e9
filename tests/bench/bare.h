/* bare.h - what the bare servers share: sockets; and for the two responders one fixed answer, and the search for the
 * ends of requests.
 *
 * The responders are the floor under every HTTP server on this machine: no parsing, no routing, no timeouts. A
 * request ends at an empty line (so they take no bodies), each end gets the same answer, answers to pipelined
 * requests leave in one send. The head has the fields that luaserve's has. */
#ifndef LS_BENCH_BARE_H
#define LS_BENCH_BARE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define BARE_HEAD(name, connection)                                                  \
    "HTTP/1.1 200 OK\r\nServer: " name "\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n" \
    "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 13\r\n" connection "\r\n"
#define BARE_BODY "hello, world\n"

enum { BARE_EVENTS = 64, BARE_ANSWERS_MAX = 256, BARE_RECEIVE_BYTES = 8192, BARE_CONNECTIONS_MAX = 1 << 17 };

/* The same answer many times over, so that n answers are one piece of memory. */
typedef struct bare_answers {
    char *bytes;
    size_t each;
} bare_answers;

bool bare_answers_open(bare_answers *answers, const char *one);

/* A socket of this type on 127.0.0.1; ends the program with a message when that fails. */
int bare_bound(const char *port, int type);

/* The same, non-blocking, and listening for TCP connections. */
int bare_listen(const char *port);

/* The next connection, non-blocking and without delay, its descriptor below BARE_CONNECTIONS_MAX; or -1: no more are
 * waiting, and the next edge will tell. */
int bare_accept(int listener);

/* How many requests end in `bytes`? `*state` (0 to 3): how much of the CR LF CR LF had been seen before, and after. */
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
