/* exchange_keep.c - a copy of a request that outlives its exchange. Each span of the head gets its own bytes, because
 * the spans of a transport may lie far apart. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "http/exchange.h"

typedef struct kept {
    const ls_addr *local;
    ls_exchange x; /* last: memory for the fields that the head has; after it the addresses and the text of the head */
} kept;

static const ls_addr *local(const ls_exchange *x)
{
    const kept *k = x->conn;
    return k->local;
}

static void returned(ls_thread_ctx *ctx, ls_exchange *x)
{
    free(x->conn);
}

static const ls_transport transport = {.returned = returned, .local = local}; /* all else x->error refuses first */

static size_t span_bytes(const ls_http_head *head)
{
    size_t sum = (size_t)head->method_name.len + head->target.len + head->path.len + head->query.len + head->host.len;
    for (uint32_t n = 0; n < head->field_count; n++)
        sum += (size_t)head->fields[n].name.len + head->fields[n].value.len;
    return sum;
}

/* Copy the bytes of a span to `at` of `to`. Returns the position after them. */
static uint32_t keep_span(const char *from, ls_span *span, char *to, uint32_t at)
{
    memcpy(to + at, from + span->at, span->len);
    span->at = at;
    return at + span->len;
}

/* The bytes of an address that has only the room it needs: a whole one has room for the path of a Unix socket. */
static size_t addr_bytes(const ls_addr *addr)
{
    size_t bytes = offsetof(ls_addr, bytes);
    if (addr == NULL) return 0;
    switch (addr->family) {
    case LS_ADDR_IP4: bytes += 4; break;
    case LS_ADDR_IP6: bytes += 16; break;
    case LS_ADDR_UNIX: bytes += addr->bytes_len; break;
    default: break;
    }
    return (bytes + _Alignof(ls_addr) - 1) & ~(_Alignof(ls_addr) - 1);
}

/* Copy an address to *to, and move *to after it. */
static const ls_addr *keep_addr(const ls_addr *addr, char **to)
{
    char *const at = *to;
    if (addr == NULL) return NULL;
    memcpy(at, addr, addr_bytes(addr));
    *to += addr_bytes(addr);
    return (const ls_addr *)(const void *)at;
}

ls_exchange *ls_exchange_keep(const ls_exchange *x)
{
    const ls_addr *at = x->transport->local(x);
    const size_t head_bytes = offsetof(ls_http_head, fields) + x->head.field_count * sizeof x->head.fields[0];
    const size_t fixed = offsetof(kept, x) + offsetof(ls_exchange, head) + head_bytes;
    char *const memory = malloc(fixed + addr_bytes(at) + addr_bytes(x->remote) + span_bytes(&x->head));
    if (memory == NULL) return NULL;
    memset(memory, 0, offsetof(kept, x) + offsetof(ls_exchange, head));
    kept *k = (kept *)(void *)memory;
    char *bytes = memory + fixed;
    k->local = keep_addr(at, &bytes);
    ls_exchange *copy = &k->x;
    copy->remote = keep_addr(x->remote, &bytes);
    copy->transport = &transport;
    copy->conn = k;
    copy->actor = x->actor;
    copy->id = x->id;
    copy->id_field = x->id_field;
    copy->secure = x->secure;
    copy->body_bytes_max = x->body_bytes_max;
    copy->body_bytes = x->body_bytes;
    copy->body_done = true;
    copy->status = x->status;
    copy->response = LS_RESPONSE_DONE;
    copy->length = -1;
    copy->error = LS_ECLOSED;

    uint32_t end = 0;
    memcpy((char *)copy + offsetof(ls_exchange, head), &x->head, head_bytes);
    copy->bytes = bytes;
    end = keep_span(x->bytes, &copy->head.method_name, bytes, end);
    end = keep_span(x->bytes, &copy->head.target, bytes, end);
    end = keep_span(x->bytes, &copy->head.path, bytes, end);
    end = keep_span(x->bytes, &copy->head.query, bytes, end);
    end = keep_span(x->bytes, &copy->head.host, bytes, end);
    for (uint32_t n = 0; n < copy->head.field_count; n++) {
        end = keep_span(x->bytes, &copy->head.fields[n].name, bytes, end);
        end = keep_span(x->bytes, &copy->head.fields[n].value, bytes, end);
    }
    copy->head.bytes = end;
    return copy;
}
