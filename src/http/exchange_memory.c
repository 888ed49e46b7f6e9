/* exchange_memory.c - see exchange_memory.h. */
#include "http/exchange_memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "port/file/shared_file.h"

static ls_memory_exchange *memory_of(ls_exchange *x)
{
    return LS_CONTAINER(x, ls_memory_exchange, x);
}

static int add(ls_memory_exchange *m, const char *bytes, size_t len)
{
    if (len > m->response_room - m->response_len) {
        size_t room = m->response_room == 0 ? 256 : m->response_room;
        if (len > LS_MEMORY_BODY_MAX - m->response_len) return LS_ELIMIT;
        while (room < m->response_len + len) room *= 2;
        char *const grown = realloc(m->response, room);
        if (grown == NULL) return LS_ENOMEM;
        m->response = grown;
        m->response_room = room;
    }
    if (len > 0) memcpy(m->response + m->response_len, bytes, len);
    m->response_len += len;
    return LS_OK;
}

static int add_slice(ls_memory_exchange *m, const ls_slice *slice)
{
    char part[4096];
    if (!ls_slice_is_file(slice)) return add(m, slice->ptr, slice->len);
    for (size_t at = 0; at < slice->len;) {
        const size_t left = slice->len - at;
        const int64_t n = ls_shared_file_read(ls_shared_file_of(slice), part, left < sizeof part ? left : sizeof part,
                                              ls_slice_offset(slice) + at);
        const int err = n < 0 ? (int)n : n == 0 ? LS_ECHANGED : add(m, part, (size_t)n);
        if (err < 0) return err;
        at += (size_t)n;
    }
    return LS_OK;
}

static int data(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count, unsigned how)
{
    ls_memory_exchange *m = memory_of(x);
    for (unsigned n = 0; n < count && !(how & LS_DATA_LAST); n++) /* trailers stay in x->end_fields */
        if (m->failed == LS_OK) m->failed = add_slice(m, &slices[n]);
    ls_slices_drop(slices, count);
    return LS_DONE;
}

static int head(ls_thread_ctx *ctx, ls_exchange *x, int64_t length, ls_slice *slices, unsigned count)
{
    memory_of(x)->length = x->framing == LS_FRAMED_BY_LENGTH ? length : -1;
    return data(ctx, x, slices, count, 0);
}

static int flush(ls_thread_ctx *ctx, ls_exchange *x)
{
    return LS_DONE;
}

static int more(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *out)
{
    const ls_memory_exchange *m = memory_of(x);
    if (out == NULL) return LS_OK;
    *out = ls_slice_static(m->body, m->body_len);
    x->body_done = true;
    return LS_DONE;
}

static void returned(ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_memory_exchange *m = memory_of(x);
    if (x->released) m->released(ctx, m);
}

static const ls_addr *local(const ls_exchange *x)
{
    return NULL;
}

const ls_transport ls_memory_transport = {
    .head = head,
    .data = data,
    .flush = flush,
    .more = more,
    .returned = returned,
    .local = local,
    .no_upgrade = "the request has no connection to hand over",
};

void ls_memory_exchange_init(ls_memory_exchange *m, const char *body, size_t body_len)
{
    memset(m, 0, sizeof *m);
    m->body = body;
    m->body_len = body_len;
    m->length = -1;
    m->x.transport = &ls_memory_transport;
    m->x.open_framing = LS_FRAMED_BY_PARTS;
    m->x.body_done = body_len == 0;
    m->x.status = 200;
    m->x.length = -1;
}

void ls_memory_exchange_free(ls_memory_exchange *m)
{
    free(m->response);
    ls_exchange_drop_fields(&m->x);
    m->response = NULL;
    m->x.fields = m->x.trailers = m->x.end_fields = NULL;
    m->x.filter = NULL;
    m->response_len = m->response_room = m->x.fields_len = 0;
}
