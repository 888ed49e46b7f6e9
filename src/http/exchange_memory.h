/* exchange_memory.h - an exchange without a connection: the request lies in memory, and the response is collected
 * there. Its owner fills x (head, bytes, remote, id) after ls_memory_exchange_init, which zeroes it. */
#ifndef LS_HTTP_EXCHANGE_MEMORY_H
#define LS_HTTP_EXCHANGE_MEMORY_H

#include "http/exchange.h"

enum { LS_MEMORY_BODY_MAX = 256 * 1024 * 1024 }; /* of a response, in bytes */

typedef struct ls_memory_exchange {
    const char *body; /* of the request; the owner keeps it */
    size_t body_len;
    int64_t length; /* of the response: its Content-Length, or -1 */
    char *response; /* the body */
    size_t response_len, response_room;
    int failed; /* LS_ELIMIT: the response is longer than LS_MEMORY_BODY_MAX; LS_ENOMEM; the error of a file; LS_OK */
    void (*released)(ls_thread_ctx *ctx, struct ls_memory_exchange *m); /* the handler has returned the exchange */
    ls_exchange x;
} ls_memory_exchange;

void ls_memory_exchange_init(ls_memory_exchange *m, const char *body, size_t body_len);
void ls_memory_exchange_free(ls_memory_exchange *m); /* what it refers to; it may be called twice */

/* Whether the response is whole. */
static inline bool ls_memory_exchange_complete(const ls_memory_exchange *m)
{
    return ls_exchange_is_complete(&m->x) && m->failed == LS_OK;
}

extern const ls_transport ls_memory_transport;

#endif
