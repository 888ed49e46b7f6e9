/* coding_filter.c - see coding_filter.h. */
#include "http/coding/coding_filter.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/slices.h"
#include "codec/coding/http_accept.h"
#include "codec/http_text.h"
#include "http/exchange_out.h"
#include "port/file/shared_file.h"

enum {
    AT_ONCE_BYTES = 262144, /* more would hold the actor for some milliseconds */
    WORK_OUT_BYTES = LS_BLOCK_LARGE,
    WORK_IN_BYTES = 1 << 20, /* of one piece of work, at most */
    READ_BYTES = 32768,
    ETAG_BYTES_MAX = 256 /* a longer one is left out */
};

struct ls_coding_filter {
    ls_response_filter filter; /* first */
    ls_coding_rules *rules;
    const ls_coding_type *type;
    void *encoder;   /* NULL: not encoded, or the end was written */
    uint8_t framing; /* that of the inner transport; x->framing is BY_PARTS, so that the end is not missed */
    bool unsent;     /* the encoder may hold bytes of parts */
    bool filled;     /* a block was filled: the next one is large */
    ls_block *out;   /* encoded bytes: out->data[from..to) are not in `ready` yet */
    uint32_t from, to;
    ls_slices ready;
    ls_slices input; /* a whole body that ls_coding_filter_work encodes: what is left begins in item `at`, after `used`
                * bytes */
    unsigned at;
    size_t used;
    ls_external *made; /* by ls_coding_filter_work, with made_len bytes after it */
    size_t made_len;
    bool made_last;
};

/* ---- encoders between responses
 * ----------------------------------------------------------------------------------- */

static void *take_kept(ls_coding_rules *rules, unsigned at)
{
    void *encoder = rules->kept[at].encoder;
    rules->kept_bytes -= rules->kept[at].bytes;
    memmove(rules->kept + at, rules->kept + at + 1, (--rules->kept_count - at) * sizeof rules->kept[0]);
    return encoder;
}

static void close_oldest(ls_coding_rules *rules)
{
    const ls_coding_type *type = rules->kept[0].type;
    type->encoder_close(take_kept(rules, 0));
}

static int get_encoder(ls_coding_filter *c, const ls_encode_hint *hint)
{
    const ls_coding_rules *rules = c->rules;
    unsigned n = rules->kept_count;
    while (n > 0 && (rules->kept[n - 1].type != c->type || !c->type->encoder_reopen(rules->kept[n - 1].encoder, hint)))
        n--;
    if (n == 0) return c->type->encoder_open(hint, &c->encoder);
    c->encoder = take_kept(c->rules, n - 1);
    return LS_OK;
}

/* The encoder is kept for another response, or closed. */
static void put_encoder(ls_coding_filter *c, bool finished)
{
    ls_coding_rules *rules = c->rules;
    ls_kept_encoder kept = {c->type, c->encoder, SIZE_MAX};
    c->encoder = NULL;
    if (finished && c->type->encoder_bytes != NULL) kept.bytes = c->type->encoder_bytes(kept.encoder);
    if (kept.bytes > LS_CODING_KEPT_BYTES_MAX) {
        c->type->encoder_close(kept.encoder);
        return;
    }
    while (rules->kept_count == LS_CODING_KEPT_MAX || rules->kept_bytes + kept.bytes > LS_CODING_KEPT_BYTES_MAX)
        close_oldest(rules);
    rules->kept[rules->kept_count++] = kept;
    rules->kept_bytes += kept.bytes;
}

ls_coding_rules *ls_coding_rules_open(size_t types_bytes, size_t cache_bytes_max)
{
    ls_coding_rules *rules = calloc(1, sizeof *rules + types_bytes);
    if (rules == NULL) return NULL;
    atomic_init(&rules->refs, 1);
    if (cache_bytes_max == 0 || (rules->cache = ls_coding_cache_open(cache_bytes_max)) != NULL) return rules;
    free(rules);
    return NULL;
}

void ls_coding_rules_drop(ls_coding_rules *rules)
{
    if (atomic_fetch_sub(&rules->refs, 1) > 1) return;
    ls_coding_cache_close(rules->cache);
    while (rules->kept_count > 0) close_oldest(rules);
    free(rules);
}

/* ---- the decision
 * ------------------------------------------------------------------------------------------------- */

#define IS(text, len, literal) ls_text_same(text, len, literal, sizeof(literal) - 1)

/* Whether the list has the media type, whose parameters are ignored. */
static bool has_type(const char *list, const char *type, size_t len)
{
    const char *end = memchr(type, ';', len);
    if (end != NULL) len = (size_t)(end - type);
    while (len > 0 && (type[len - 1] == ' ' || type[len - 1] == '\t')) len--;
    for (size_t n; (n = strlen(list)) > 0; list += n + 1) {
        const size_t skip = *list == '+' && len > n ? len - n : 0; /* "+json" is the end of the name */
        const size_t compared = list[n - 1] == '/' && len > n ? n : len - skip;
        if (ls_text_same(type + skip, compared, list, n)) return true;
    }
    return false;
}

typedef struct head_facts { /* of the fields */
    bool excluded, varies;
    const char *type, *etag;
    size_t type_len, etag_len;
} head_facts;

static head_facts facts_of(const ls_exchange *x)
{
    head_facts f = {.type = x->type, .type_len = x->type != NULL ? strlen(x->type) : 0};
    ls_pair field;
    for (size_t at = 0; ls_exchange_next_field(x, &at, &field);) {
        if (IS(field.name, field.name_len, "content-encoding"))
            f.excluded = true;
        else if (IS(field.name, field.name_len, "cache-control"))
            f.excluded |= ls_list_has(field.value, field.value_len, "no-transform", 12);
        else if (IS(field.name, field.name_len, "vary"))
            f.varies |= ls_list_has(field.value, field.value_len, "accept-encoding", 15) ||
                        ls_list_has(field.value, field.value_len, "*", 1);
        else if (IS(field.name, field.name_len, "content-type"))
            f.type = field.value, f.type_len = field.value_len;
        else if (IS(field.name, field.name_len, "etag"))
            f.etag = field.value, f.etag_len = field.value_len;
    }
    return f;
}

static int set(ls_thread_ctx *ctx, ls_exchange *x, const char *name, const char *value, size_t len, bool replace)
{
    const uint8_t phase = x->response;
    x->response = LS_RESPONSE_NONE; /* a response in parts is open when its head is queued */
    const int err = ls_exchange_header(ctx, x, name, strlen(name), value, len, replace);
    x->response = phase;
    return err;
}

/* The encoded bytes are not those that the strong tag names (RFC 9110 section 8.8.1). `asked`: only if the client has
 * asked with the weak tag. */
static int weaken_etag(ls_thread_ctx *ctx, ls_exchange *x, const head_facts *f, bool asked)
{
    char weak[ETAG_BYTES_MAX + 2] = "W/";
    const size_t len = f->etag_len + 2;
    if (f->etag == NULL || f->etag_len == 0 || f->etag[0] != '"') return LS_OK;
    if (f->etag_len > ETAG_BYTES_MAX) {
        if (!asked) ls_exchange_remove(x, "etag", 4);
        return LS_OK;
    }
    memcpy(weak + 2, f->etag, f->etag_len);
    const ls_http_field *field = asked ? ls_http_head_find(&x->head, x->bytes, "if-none-match", 13) : NULL;
    if (asked && (field == NULL || !ls_list_has(x->bytes + field->value.at, field->value.len, weak, len)))
        return LS_OK;
    return set(ctx, x, "ETag", weak, len, true);
}

/* The coding of the response, -1: as it is, or LS_E*... below -1. Sets the fields. */
static int decide(ls_thread_ctx *ctx, ls_exchange *x, const ls_coding_rules *rules, int64_t length, bool *events)
{
    const head_facts f = facts_of(x);
    enum ls_coding accepted[LS_CODINGS];
    const bool unmodified = x->status == 304, part = x->status == 206;
    if (f.excluded || (!unmodified && !ls_status_has_content(x->status))) return -1;
    if (!unmodified && (f.type == NULL || !has_type(rules->types, f.type, f.type_len))) return -1;
    if (!unmodified && !part && length >= 0 && (uint64_t)length < rules->bytes_min) return -1;
    *events = f.type != NULL && f.type_len >= 17 && IS(f.type, 17, "text/event-stream");
    const unsigned count = part ? 0 : ls_accept_codings(&x->head, x->bytes, rules->codings, rules->count, accepted);
    int err = unmodified || count > 0 ? weaken_etag(ctx, x, &f, unmodified) : LS_OK;
    if (err == LS_OK && !f.varies) err = set(ctx, x, "Vary", "Accept-Encoding", 15, false);
    if (err == LS_OK && (unmodified || count == 0)) return -1;
    for (unsigned n = 1; *events && n < count; n++)
        if (accepted[n] == LS_CODING_GZIP) accepted[0] = LS_CODING_GZIP; /* it takes the least memory by far */
    if (err == LS_OK) {
        const char *name = ls_codings[accepted[0]]->name;
        err = set(ctx, x, "Content-Encoding", name, strlen(name), true);
    }
    ls_exchange_remove(x, "accept-ranges", 13);
    return err < 0 ? err : (int)accepted[0];
}

/* ---- encoding on this thread
 * -------------------------------------------------------------------------------------- */

/* What is in the block goes to `ready`. */
static int seal(ls_coding_filter *c)
{
    if (c->out == NULL) return LS_OK;
    if (c->to > c->from) {
        ls_slice slice = ls_slice_of(c->out, c->from, c->to - c->from);
        if (ls_slices_add(&c->ready, slice) < 0) {
            ls_slice_drop(&slice);
            return LS_ENOMEM;
        }
        c->from = c->to;
    }
    if (c->to < c->out->cap) return LS_OK;
    ls_block_drop(c->out);
    c->out = NULL;
    c->filled = true;
    return LS_OK;
}

static int feed(ls_thread_ctx *ctx, ls_coding_filter *c, const char *in, size_t len, enum ls_encode_step step)
{
    int err = LS_EAGAIN;
    while (err == LS_EAGAIN) {
        if (c->out == NULL) {
            if ((c->out = ls_block_get(ctx->pool, c->filled ? LS_BLOCK_LARGE : LS_BLOCK_SMALL)) == NULL)
                return LS_ENOMEM;
            c->from = c->to = 0;
        }
        size_t used = len, room = c->out->cap - c->to;
        err = c->type->encode(c->encoder, in, &used, c->out->data + c->to, &room, step);
        if (err < 0 && err != LS_EAGAIN) return err;
        in += used;
        len -= used;
        c->to += (uint32_t)room;
        if (c->to == c->out->cap && seal(c) < 0) return LS_ENOMEM;
    }
    return LS_OK;
}

static int feed_all(ls_thread_ctx *ctx, ls_coding_filter *c, const ls_slice *slices, unsigned count)
{
    int err = LS_OK;
    for (unsigned n = 0; n < count && err == LS_OK; n++)
        if (slices[n].len > 0) err = feed(ctx, c, slices[n].ptr, slices[n].len, LS_ENCODE_MORE);
    return err;
}

static int end_encoding(ls_thread_ctx *ctx, ls_coding_filter *c, const char *in, size_t len)
{
    int err = feed(ctx, c, in, len, LS_ENCODE_END);
    if (err == LS_OK) err = seal(c);
    put_encoder(c, err == LS_OK);
    c->unsent = false;
    return err;
}

static int inner_data(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count, unsigned how)
{
    const ls_coding_filter *c = ls_coding_filter_of(x);
    x->framing = c->framing;
    const int err = c->filter.next->data(ctx, x, slices, count, how);
    x->framing = LS_FRAMED_BY_PARTS;
    return err;
}

static int put_ready(ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_coding_filter *c = ls_coding_filter_of(x);
    const unsigned count = c->ready.count;
    c->filter.bytes += c->ready.bytes;
    c->ready.count = 0; /* the references are taken */
    c->ready.bytes = 0;
    return count > 0 ? inner_data(ctx, x, ls_slices_items(&c->ready), count, 0) : LS_DONE;
}

/* ---- the operations
 * ------------------------------------------------------------------------------------------------ */

static int filter_data(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count, unsigned how)
{
    ls_coding_filter *c = ls_coding_filter_of(x);
    int err = LS_OK;
    if (how & LS_DATA_HINTS) return c->filter.next->data(ctx, x, slices, count, how);
    if (how & LS_DATA_LAST) {
        if (c->encoder != NULL && (err = end_encoding(ctx, c, "", 0)) == LS_OK) err = put_ready(ctx, x);
        if (err >= 0 && c->framing == LS_FRAMED_BY_PARTS) return inner_data(ctx, x, slices, count, how);
    } else {
        err = feed_all(ctx, c, slices, count);
        c->unsent = true;
        if (err == LS_OK) err = put_ready(ctx, x);
    }
    ls_slices_drop(slices, count);
    return err < 0 ? err : how & LS_DATA_SHARED ? LS_PENDING : LS_DONE;
}

static int filter_flush(ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_coding_filter *c = ls_coding_filter_of(x);
    if (x->error == 0 && c->unsent) {
        int err = feed(ctx, c, "", 0, LS_ENCODE_FLUSH);
        if (err == LS_OK) err = seal(c);
        if (err == LS_OK) err = put_ready(ctx, x);
        if (err < 0) return err;
        c->unsent = false;
    }
    return c->filter.next->flush(ctx, x);
}

/* The body in `slices` is whole: encode it, or take it from the cache. */
static int encode_whole(ls_thread_ctx *ctx, ls_coding_filter *c, enum ls_coding coding, const ls_encode_hint *hint,
                        const ls_slice *slices, unsigned count)
{
    const unsigned before = count > 0 ? count - 1 : 0;
    const ls_slice last = count > 0 ? slices[before] : (ls_slice){.ptr = ""};
    ls_coding_cache *const cache = count == 1 ? c->rules->cache : NULL;
    uint64_t key = 0;
    bool keep = false;
    ls_slice found;
    if (cache != NULL && ls_coding_cache_find(cache, coding, &slices[0], &key, &keep, &found)) {
        if (ls_slices_add(&c->ready, found) == LS_OK) return LS_OK;
        ls_slice_drop(&found);
        return LS_ENOMEM;
    }
    c->filled = ls_slices_bytes(slices, count) > 2 * LS_BLOCK_SMALL;
    int err = get_encoder(c, hint);
    if (err == LS_OK) err = feed_all(ctx, c, slices, before);
    if (err == LS_OK) err = end_encoding(ctx, c, last.ptr, last.len);
    if (err == LS_OK && keep) ls_coding_cache_put(cache, key, &slices[0], ls_slices_items(&c->ready), c->ready.count);
    return err;
}

static int head_of_whole(ls_thread_ctx *ctx, ls_exchange *x, enum ls_coding coding, const ls_encode_hint *hint,
                         ls_slice *slices, unsigned count)
{
    ls_coding_filter *c = ls_coding_filter_of(x);
    const int err = encode_whole(ctx, c, coding, hint, slices, count);
    ls_slices_drop(slices, count);
    if (err < 0) return err;
    const unsigned ready = c->ready.count;
    c->filter.bytes = c->ready.bytes;
    c->ready.count = 0;
    return c->filter.next->head(ctx, x, (int64_t)c->filter.bytes, ls_slices_items(&c->ready), ready);
}

/* Keep the whole body for ls_coding_filter_work. */
static int keep_input(ls_coding_filter *c, ls_slice *slices, unsigned count)
{
    for (unsigned n = 0; n < count; n++) {
        if (ls_slices_add(&c->input, slices[n]) == LS_OK) continue;
        ls_slices_drop(slices + n, count - n);
        return LS_ENOMEM;
    }
    return LS_PENDING;
}

/* Whether the body is whole, and its slices stay valid: then other threads may encode it. */
static bool may_keep(const ls_exchange *x, const ls_slice *slices, unsigned count)
{
    if (x->response != LS_RESPONSE_NONE || count == 0) return false;
    for (unsigned n = 0; n < count; n++)
        if (slices[n].block == NULL) return false;
    return true;
}

static void take_parts(ls_coding_filter *c)
{
    c->filter.ops.data = filter_data;
    c->filter.ops.flush = filter_flush;
}

static int filter_head(ls_thread_ctx *ctx, ls_exchange *x, int64_t length, ls_slice *slices, unsigned count)
{
    ls_coding_filter *c = ls_coding_filter_of(x);
    ls_encode_hint hint = {.bytes = UINT64_MAX};
    const int decided = decide(ctx, x, c->rules, length, &hint.events);
    c->filter.ops = *c->filter.next;
    if (decided == -1) return c->filter.next->head(ctx, x, length, slices, count);
    if (decided >= 0 && x->no_body) { /* the length is unknown */
        x->framing = x->open_framing;
        if (x->framing == LS_FRAMED_BY_CLOSE) x->close = true;
        return c->filter.next->head(ctx, x, -1, slices, count);
    }
    bool of_file = false;
    const size_t bytes = ls_slices_bytes(slices, count);
    const bool whole = length >= 0 && (uint64_t)length == bytes;
    for (unsigned n = 0; n < count; n++) of_file |= ls_slice_is_file(&slices[n]);
    const bool at_once = whole && !of_file && bytes <= AT_ONCE_BYTES;
    int err = decided;
    if (decided >= 0) {
        c->type = ls_codings[decided];
        c->filter.changes = true;
        hint.level = c->rules->levels[decided];
        if (whole) hint.bytes = bytes;
        err = at_once ? LS_OK : get_encoder(c, &hint);
    }
    if (err < 0) {
        ls_slices_drop(slices, count);
        return err;
    }
    if (at_once) return head_of_whole(ctx, x, (enum ls_coding)decided, &hint, slices, count);
    take_parts(c);
    c->framing = x->framing = x->open_framing;
    if (c->framing == LS_FRAMED_BY_CLOSE) x->close = true;
    err = c->filter.next->head(ctx, x, -1, NULL, 0);
    x->framing = LS_FRAMED_BY_PARTS;
    if (err >= 0 && may_keep(x, slices, count)) return keep_input(c, slices, count);
    assert(!of_file); /* files are whole responses */
    if (err >= 0) return filter_data(ctx, x, slices, count, 0);
    ls_slices_drop(slices, count);
    return err;
}

static void filter_drop(ls_response_filter *filter)
{
    ls_coding_filter *c = (ls_coding_filter *)(void *)filter;
    if (c->encoder != NULL) c->type->encoder_close(c->encoder);
    if (c->out != NULL) ls_block_drop(c->out);
    free(c->made);
    ls_slices_clear(&c->ready);
    ls_slices_clear(&c->input);
    ls_coding_rules_drop(c->rules);
    free(c);
}

int ls_coding_filter_add(ls_exchange *x, ls_coding_rules *rules)
{
    if (ls_coding_filter_of(x) != NULL || x->response != LS_RESPONSE_NONE) return LS_OK;
    ls_coding_filter *c = calloc(1, sizeof *c);
    if (c == NULL) return LS_ENOMEM;
    c->filter.drop = filter_drop;
    c->rules = rules;
    atomic_fetch_add(&rules->refs, 1);
    ls_exchange_add_filter(x, &c->filter);
    c->filter.ops.head = filter_head;
    take_parts(c);
    return LS_OK;
}

ls_coding_filter *ls_coding_filter_of(const ls_exchange *x)
{
    return (ls_coding_filter *)(void *)ls_exchange_filter(x, filter_drop);
}

/* ---- encoding on other threads
 * ------------------------------------------------------------------------------------ */

bool ls_coding_filter_waits(const ls_exchange *x)
{
    const ls_coding_filter *c = ls_coding_filter_of(x);
    return c != NULL && c->input.count > 0 && c->encoder != NULL && x->error == 0;
}

/* The next bytes of the input: those in memory, or some of a file, read into `room`. 0 at the end, or LS_E*. */
static int64_t next_input(ls_coding_filter *c, char *room, const char **bytes)
{
    const ls_slice *slice = &ls_slices_items(&c->input)[c->at];
    while (c->at < c->input.count && c->used == slice->len) {
        c->at++;
        c->used = 0;
        slice++;
    }
    if (c->at == c->input.count) return 0;
    const size_t left = slice->len - c->used;
    *bytes = slice->ptr + c->used;
    if (!ls_slice_is_file(slice)) return left < WORK_IN_BYTES ? (int64_t)left : WORK_IN_BYTES;
    *bytes = room;
    const int64_t n = ls_shared_file_read(ls_shared_file_of(slice), room, left < READ_BYTES ? left : READ_BYTES,
                                          ls_slice_offset(slice) + c->used);
    return n == 0 ? LS_ECHANGED : n;
}

int ls_coding_filter_work(ls_coding_filter *c)
{
    c->made = malloc(sizeof *c->made + WORK_OUT_BYTES + READ_BYTES);
    if (c->made == NULL) return LS_ENOMEM;
    char *const out = (char *)(c->made + 1), *const room = out + WORK_OUT_BYTES;
    size_t taken = 0;
    int err = LS_OK;
    c->made_len = 0;
    while (c->made_len < WORK_OUT_BYTES && taken < WORK_IN_BYTES) {
        const char *bytes = "";
        const int64_t len = next_input(c, room, &bytes);
        if (len < 0) return (int)len;
        size_t used = (size_t)len, made = WORK_OUT_BYTES - c->made_len;
        err = c->type->encode(c->encoder, bytes, &used, out + c->made_len, &made,
                              len > 0 ? LS_ENCODE_MORE : LS_ENCODE_END);
        if (err < 0 && err != LS_EAGAIN) return err;
        c->used += used;
        taken += used;
        c->made_len += made;
        c->made_last = len == 0 && err == LS_OK;
        if (c->made_last) break;
    }
    return LS_OK;
}

int ls_coding_filter_put(ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_coding_filter *c = ls_coding_filter_of(x);
    ls_slice slice = ls_slice_external(c->made, c->made + 1, c->made_len);
    if (x->error != 0) return x->error;
    ls_external_init(c->made, LS_BLOCK_EXTERNAL, ls_external_free);
    c->made = NULL;
    c->filter.bytes += slice.len;
    if (slice.len == 0) ls_slice_drop(&slice);
    const int err = c->made_len > 0 ? inner_data(ctx, x, &slice, 1, 0) : LS_DONE;
    if (err < 0) return ls_exchange_fail(x, err);
    if (!c->made_last) return LS_DONE;
    put_encoder(c, true);
    return ls_exchange_finish(ctx, x);
}
