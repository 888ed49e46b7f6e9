/* body_coding.c - request bodies with a content coding, decoded as they are read: compress.requests of
 * lua/luaserve/compress.lua. The limit of the body counts before and after. */
#include <stdlib.h>

#include "base/err.h"
#include "codec/coding/http_coding.h"
#include "codec/http_text.h"
#include "script/bind/http/body.h"

typedef struct body_coding {
    ls_body_decoder base; /* first */
    ls_decoder *decoder;
    ls_slice encoded; /* received; what is left of it */
    uint64_t bytes;   /* decoded */
    bool begun;       /* bytes were received */
    bool more;        /* the last block was filled: the decoder may hold more */
} body_coding;

static void drop(ls_body_decoder *base)
{
    body_coding *coding = (body_coding *)base;
    ls_decoder_close(coding->decoder);
    ls_slice_drop(&coding->encoded);
    free(coding);
}

/* Receive encoded bytes. LS_DONE: there are some, or *end; LS_PENDING; LS_E*. */
static int receive(body_coding *coding, ls_thread_ctx *ctx, ls_exchange *x, bool *end)
{
    ls_slice_drop(&coding->encoded);
    const int err = ls_exchange_read(ctx, x, &coding->encoded);
    if (err != LS_DONE) return err;
    *end = coding->encoded.len == 0;
    if (*end && coding->begun && !ls_decoder_ended(coding->decoder)) return LS_EPROTO;
    coding->begun = true;
    return LS_DONE;
}

/* Decode into a new block. LS_DONE: *out, perhaps of length 0; LS_E*. */
static int decode(body_coding *coding, ls_pool *pool, const ls_exchange *x, ls_slice *out)
{
    ls_block *block = ls_block_get(pool, coding->more ? LS_BLOCK_LARGE : LS_BLOCK_SMALL);
    if (block == NULL) return LS_ENOMEM;
    size_t in = coding->encoded.len, len = block->cap;
    int err = ls_decoder_run(coding->decoder, coding->encoded.ptr, &in, block->data, &len);
    if (err == LS_OK && len > x->body_bytes_max - coding->bytes) err = LS_EMSGSIZE;
    if (err < 0) {
        ls_block_drop(block);
        return err;
    }
    coding->encoded.ptr += in;
    coding->encoded.len -= in;
    coding->bytes += len;
    coding->more = len == block->cap;
    *out = (ls_slice){block, block->data, len};
    return LS_DONE;
}

static int read_decoded(ls_body_decoder *base, ls_thread_ctx *ctx, ls_exchange *x, ls_slice *out)
{
    body_coding *coding = (body_coding *)base;
    bool end = false;
    for (;;) {
        int err = coding->encoded.len == 0 && !coding->more ? receive(coding, ctx, x, &end) : LS_DONE;
        if (err == LS_DONE && !end) err = decode(coding, ctx->pool, x, out);
        if (err != LS_DONE) return err;
        if (end) *out = ls_slice_static(NULL, 0);
        if (end || out->len > 0) return LS_DONE;
        ls_slice_drop(out);
    }
}

/* The coding of the body, LS_CODINGS: none; -1: one that is not built in, or several. *value receives the field. */
static int coding_of(const ls_exchange *x, ls_span *value)
{
    int found = LS_CODINGS;
    for (uint32_t i = 0; i < x->head.field_count; i++) {
        const ls_http_field *field = &x->head.fields[i];
        if (!ls_text_same(x->bytes + field->name.at, field->name.len, "content-encoding", 16)) continue;
        const char *text = x->bytes + field->value.at;
        if (ls_text_same(text, field->value.len, "identity", 8)) continue;
        *value = field->value;
        if (found != LS_CODINGS) return -1;
        found = ls_coding_find(text, field->value.len);
        if (found < 0 || !ls_coding_built((enum ls_coding)found)) return -1;
    }
    return found;
}

/* Raise: the response is 415, with the codings that are accepted (RFC 9110 section 12.5.3). */
static int refuse(lua_State *L, ls_request *r, ls_span value)
{
    char accepted[40] = "";
    size_t at = 0;
    for (unsigned n = 0; n < LS_CODINGS; n++) {
        if (!ls_coding_built((enum ls_coding)n)) continue;
        for (const char *prefix = at > 0 ? ", " : ""; *prefix != '\0';) accepted[at++] = *prefix++;
        for (const char *name = ls_codings[n]->name; *name != '\0';) accepted[at++] = *name++;
    }
    (void)ls_exchange_header(r->state->ctx, r->x, "Accept-Encoding", 15, accepted, at, true);
    const char *given = lua_pushlstring(L, r->x->bytes + value.at, value.len < 100 ? value.len : 100);
    lua_pushfstring(L, "the Content-Encoding must be one of: %s; got %s", accepted, given);
    return ls_body_refuse(L, r, 415);
}

/* core.decode_request(req): the body is decoded when it is read. Raises a refusal for an unknown coding, and an error
 * if the body was read before. */
static int core_decode_request(lua_State *L)
{
    ls_request *r = ls_request_check_req(L, 1);
    ls_span value = {0};
    const int coding = r->x->body_done && r->in.state == LS_BODY_UNREAD ? LS_CODINGS : coding_of(r->x, &value);
    if (coding == LS_CODINGS || r->in.decoder != NULL) return 0;
    if (r->in.state != LS_BODY_UNREAD)
        return luaL_error(
            L, "compress.requests: the body was read before: put it outside of the middleware that reads it");
    if (coding < 0) return refuse(L, r, value);
    body_coding *made = calloc(1, sizeof *made);
    if (made == NULL || ls_decoder_open((enum ls_coding)coding, &made->decoder) < 0) {
        free(made);
        return luaL_error(L, "not enough memory");
    }
    made->base = (ls_body_decoder){.read = read_decoded, .drop = drop};
    r->in.decoder = &made->base;
    return 0;
}

static const luaL_Reg functions[] = {{"decode_request", core_decode_request}, {NULL, NULL}};

const ls_module ls_body_coding_module = {.name = "body_coding", .functions = functions};
