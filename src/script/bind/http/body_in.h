/* body_in.h - the body of a request as it is received: slices of the received blocks, until it is whole. Part of an
 * ls_request; knows no Lua. */
#ifndef LS_SCRIPT_BODY_IN_H
#define LS_SCRIPT_BODY_IN_H

#include "http/exchange_in.h"

enum ls_body_state { LS_BODY_UNREAD, LS_BODY_READING, LS_BODY_WHOLE, LS_BODY_STREAMED, LS_BODY_FAILED };

/* The body is decoded while it is read, by what begins with this struct. */
typedef struct ls_body_decoder {
    int (*read)(struct ls_body_decoder *decoder, ls_thread_ctx *ctx, ls_exchange *x, ls_slice *out);
    void (*drop)(struct ls_body_decoder *decoder);
} ls_body_decoder;

typedef struct ls_body_in {
    ls_slice *slices; /* received so far */
    unsigned count, room;
    size_t len;
    ls_block *fill;           /* the last block that small pieces are copied into, or NULL */
    ls_body_decoder *decoder; /* NULL: it is not decoded */
    int error;                /* LS_E* of a failed body; decides the status if the handler does not catch the error */
    int16_t refused;          /* the status for LS_REQ_REFUSED */
    uint8_t state;            /* enum ls_body_state */
} ls_body_in;

/* As ls_exchange_read, after the decoding. */
static inline int ls_body_in_read(ls_body_in *in, ls_thread_ctx *ctx, ls_exchange *x, ls_slice *out)
{
    return in->decoder != NULL ? in->decoder->read(in->decoder, ctx, x, out) : ls_exchange_read(ctx, x, out);
}

/* Keep a piece, with its reference. false: out of memory. */
bool ls_body_in_keep(ls_body_in *in, ls_pool *pool, ls_slice slice);
/* Free what was kept. */
void ls_body_in_drop(ls_body_in *in);

#endif
