/* h2_output.c - what a connection makes of the wishes of its handlers: heads, parts, resets, and credit for bodies.
 *
 * nghttp2 decides which stream sends next (RFC 9218) and asks for the bytes of a frame when there is room for it, so
 * that little waits between it and the socket. The bytes of a body go from the slices of the handler to the queue of the
 * stream without a copy; short ones are copied after the head of their frame. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "http/http2/h2_conn_internal.h"
#include "net/refused.h"
#include "port/file/shared_file.h"

enum {
    FIELDS_FEW = 128,  /* fields of a head without an allocation */
    FIELDS_OWN = 5,    /* status, server, date, type and length */
    LINE_MIN = 4,      /* bytes of "a:\r\n" */
    COPIED_MAX = 1024, /* shorter payloads are copied */
    WINDOW_MIN = 64,
    WINDOW_MAX = 1024 /* see is_dribble */
};

/* ---- fields -------------------------------------------------------------------------------------------------- */

typedef struct fields {
    nghttp2_nv few[FIELDS_FEW], *at;
    size_t count;
} fields;

/* For those of add_head and of so many bytes of lines. false: no memory. */
static bool begin(fields *f, size_t bytes)
{
    const size_t most = FIELDS_OWN + bytes / LINE_MIN;
    f->at = most <= FIELDS_FEW ? f->few : malloc(most * sizeof *f->at);
    f->count = 0;
    return f->at != NULL;
}

static void add(fields *f, const char *name, size_t name_len, const char *value, size_t value_len, uint8_t flags)
{
    f->at[f->count++] =
        (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, name_len, value_len, flags};
}

static void end(fields *f)
{
    if (f->at != f->few) free(f->at);
}

enum { KEPT = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE }; /* until the frame is made */
#define ADD(f, name, value, len) add((f), (name), sizeof(name) - 1, (value), (len), KEPT)

/* The lines belong to the exchange, so their names can be turned into small letters where they are. Fields that have no
 * place in HTTP/2 (RFC 9113 section 8.2.2) are left out. */
static void add_line(fields *f, const ls_pair *field, uint8_t flags)
{
    char *name = (char *)(uintptr_t)field->name;
    for (size_t n = 0; n < field->name_len; n++)
        if (name[n] >= 'A' && name[n] <= 'Z') name[n] = (char)(name[n] | 0x20);
    if (ls_h2_field_valid(name, field->name_len, "trailers", 8)) /* with any value */
        add(f, name, field->name_len, field->value, field->value_len, flags);
}

/* A WebSocket begins with 200. Where a handler has answered a request for one as if it were an ordinary one, the client
 * must not take that for a tunnel. */
static int status_of(const ls_h2_exchange *e)
{
    if (e->head.extended && e->tunnels) return 200;
    return e->head.extended && e->x.status < 300 ? 501 : e->x.status;
}

/* The head as fields. Numbers and the date are written into e->text. */
static void add_head(fields *f, ls_h2_exchange *e)
{
    ls_exchange *x = &e->x;
    char *to = e->text;
    ls_pair field;
    char *const status = to;
    to = ls_put_number(to, (uint64_t)status_of(e));
    ADD(f, ":status", status, (size_t)(to - status));
    if (!x->may_have_server || !ls_exchange_has_field(x, "server", 6)) ADD(f, "server", "luaserve", 8);
    if (!x->has_date) {
        memcpy(to, ls_http_date_now(ls_http_thread_of(e->c->http, e->c->ctx)), LS_HTTP_DATE_BYTES);
        ADD(f, "date", to, LS_HTTP_DATE_BYTES);
        to += LS_HTTP_DATE_BYTES;
    }
    if (x->type != NULL && !e->tunnels) ADD(f, "content-type", x->type, strlen(x->type));
    if (e->length >= 0) {
        char *const number = to;
        to = ls_put_number(to, (uint64_t)e->length);
        ADD(f, "content-length", number, (size_t)(to - number));
    }
    for (size_t at = 0; ls_exchange_next_field(x, &at, &field);) add_line(f, &field, KEPT);
}

/* An informational response: 100 without fields, 103 with these lines. */
static int submit_interim(ls_h2_exchange *e, const char *status, const ls_block *lines)
{
    fields f;
    ls_pair field;
    if (!begin(&f, lines != NULL ? lines->to : 0)) return NGHTTP2_ERR_NOMEM;
    ADD(&f, ":status", status, 3);
    for (size_t at = 0; lines != NULL && ls_lines_next(lines->data, lines->to, &at, &field);)
        add_line(&f, &field, NGHTTP2_NV_FLAG_NONE);
    const int err = nghttp2_submit_headers(e->c->session, NGHTTP2_FLAG_NONE, e->id, NULL, f.at, f.count, NULL);
    end(&f);
    return err;
}

static int submit_trailers(ls_h2_exchange *e)
{
    fields f;
    ls_pair field;
    if (!begin(&f, e->x.end_fields->to)) return NGHTTP2_ERR_NOMEM;
    for (size_t at = 0; ls_exchange_next_end_field(&e->x, &at, &field);) add_line(&f, &field, KEPT);
    const int err = nghttp2_submit_trailer(e->c->session, e->id, f.at, f.count);
    end(&f);
    return err;
}

/* ---- the body ------------------------------------------------------------------------------------------------ */

/* Whether a window of `length` is too small for the next frame, so that a client that opens it byte by byte gets no
 * frame for each byte. One whose windows are small from the start gets half of them; what is smaller leaves once a
 * second: see ls_h2_tick. */
static bool is_dribble(const ls_h2_exchange *e, size_t length, size_t have)
{
    if (length >= WINDOW_MAX || length >= have || e->waited) return false;
    const uint32_t first = nghttp2_session_get_remote_settings(e->c->session, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE);
    return length < (first / 2 < WINDOW_MIN ? WINDOW_MIN : first / 2);
}

/* How much of the body the next frame has, at most `length`. */
static ssize_t read_data(nghttp2_session *session, int32_t id, uint8_t *to, size_t length, uint32_t *flags,
                         nghttp2_data_source *source, void *user)
{
    ls_h2_exchange *e = source->ptr;
    ls_h2_conn *c = e->c;
    ls_mutex_lock(&c->lock);
    const size_t have = e->out.bytes;
    const bool last = e->left >= 0 ? have >= (uint64_t)e->left : e->out_end, trailers = e->trailers_due;
    ls_mutex_unlock(&c->lock);
    const size_t n = have < length ? have : length;
    if (n == 0 && e->ends_early) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* a reset, INTERNAL_ERROR */
    e->deferred = n == 0 && !last;
    e->dribbles = is_dribble(e, length, have);
    e->waited = false;
    if (e->deferred || e->dribbles) return NGHTTP2_ERR_DEFERRED;
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (n == have && last) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (trailers) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            if (submit_trailers(e) != 0) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        }
    }
    return (ssize_t)n;
}

static ls_slice take(ls_h2_exchange *e, size_t max)
{
    ls_mutex_lock(&e->c->lock);
    const ls_slice slice = ls_h2_queue_take(&e->out, max);
    atomic_fetch_sub_explicit(&e->x.queued, slice.len, memory_order_relaxed);
    if (e->awaits & LS_H2_AWAITS_SENT) ls_h2_tell(e->c->ctx, e);
    ls_mutex_unlock(&e->c->lock);
    return slice;
}

static int read_file(const ls_slice *slice, char *to)
{
    for (size_t at = 0; at < slice->len;) {
        const int64_t n =
            ls_shared_file_read(ls_shared_file_of(slice), to + at, slice->len - at, ls_slice_offset(slice) + at);
        if (n <= 0) return LS_ECHANGED;
        at += (size_t)n;
    }
    return LS_OK;
}

/* Read a range of a file into the queue of the stream. */
static int put_file(ls_h2_conn *c, const ls_slice *slice)
{
    char *to = ls_stream_room(c->ctx, c->s, slice->len);
    if (to == NULL) return LS_ENOMEM;
    const int err = read_file(slice, to);
    if (err == LS_OK) ls_stream_commit(c->s, slice->len);
    return err;
}

/* Queue a frame: its head, then bytes of the response. */
static int put_frame(ls_h2_exchange *e, const uint8_t *head, size_t length)
{
    ls_h2_conn *c = e->c;
    const bool copied = length <= COPIED_MAX;
    char *to = ls_stream_room(c->ctx, c->s, LS_H2_FRAME_HEAD + (copied ? length : 0));
    if (to == NULL) return LS_ENOMEM;
    memcpy(to, head, LS_H2_FRAME_HEAD);
    to += LS_H2_FRAME_HEAD;
    if (!copied) ls_stream_commit(c->s, LS_H2_FRAME_HEAD);
    int err = LS_OK;
    for (size_t left = length; left > 0 && err == LS_OK;) {
        ls_slice slice = take(e, left);
        left -= slice.len;
        if (ls_slice_is_file(&slice)) {
            err = copied ? read_file(&slice, to) : put_file(c, &slice);
        } else if (copied) {
            memcpy(to, slice.ptr, slice.len);
        } else if ((err = ls_stream_push(c->ctx, c->s, &slice)) == LS_OK) {
            continue; /* its reference has moved */
        }
        to += slice.len;
        ls_slice_drop(&slice);
    }
    if (copied && err == LS_OK) ls_stream_commit(c->s, LS_H2_FRAME_HEAD + length);
    return err;
}

int ls_h2_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t length,
                    nghttp2_data_source *source, void *user)
{
    ls_h2_exchange *e = source->ptr;
    ls_h2_conn *c = e->c;
    if (ls_stream_queued(c->s) >= LS_H2_SEND_AHEAD) return NGHTTP2_ERR_WOULDBLOCK;
    if (put_frame(e, head, length) < 0) return NGHTTP2_ERR_CALLBACK_FAILURE; /* part of the frame may be queued */
    c->limits.payload += length;
    e->measured += length;
    if (e->left >= 0) e->left -= (int64_t)length;
    return 0;
}

static void resume(ls_h2_exchange *e)
{
    e->deferred = false;
    e->dribbles = false;
    if (nghttp2_session_resume_data(e->c->session, e->id) == NGHTTP2_ERR_NOMEM) e->c->failed = true;
}

void ls_h2_window_grew(ls_h2_exchange *e, bool enough)
{
    if (!e->dribbles || e->closed) return;
    e->waited = enough;
    resume(e);
}

/* ---- the end ------------------------------------------------------------------------------------------------- */

void ls_h2_reset(ls_h2_exchange *e, uint32_t code, const char *why)
{
    char text[LS_ADDR_TEXT_BYTES];
    if (why != NULL) ls_refused_log("%s HTTP/2: %s", ls_addr_logged(&e->c->remote, text), why);
    if (nghttp2_submit_rst_stream(e->c->session, NGHTTP2_FLAG_NONE, e->id, code) != 0) e->c->failed = true;
}

void ls_h2_widen(ls_h2_exchange *e, uint64_t to)
{
    nghttp2_session *session = e->c->session;
    const uint32_t most = e->c->http->config.http2_window_bytes_max;
    const int32_t bytes = (int32_t)(to < most ? to : most);
    if (e->window >= (uint32_t)bytes) return;
    e->window = (uint32_t)bytes;
    if (nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, e->id, bytes) != 0 ||
        (nghttp2_session_get_effective_local_window_size(session) < bytes &&
         nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, bytes) != 0))
        e->c->failed = true;
}

static void credit(ls_h2_exchange *e, size_t bytes)
{
    e->uncredited -= (uint32_t)bytes;
    if (nghttp2_session_consume(e->c->session, e->id, bytes) != 0) e->c->failed = true;
}

/* The client has not sent all of the body, and no handler will read the rest. */
static bool is_unread(const ls_h2_exchange *e)
{
    return e->returned && (e->x.head.has_body || e->connects) && !e->in_end && !e->tunnels;
}

/* The response has ended, so the request has. A reset, for the client need not send the rest (RFC 9113 section 8.1),
 * would reach most clients before they have read the response, and they would drop it: ls_h2_tick sends it later. Until
 * then the rest is discarded. It has got a window before the response, because curl 7.88 reads nothing after it. */
static void skip_body(ls_h2_exchange *e)
{
    if (!e->end_sent || !is_unread(e) || e->unread_ms != 0) return;
    e->unread_ms = e->c->now_ms;
    credit(e, e->uncredited);
    ls_mutex_lock(&e->c->lock);
    ls_h2_queue_clear(&e->in);
    ls_mutex_unlock(&e->c->lock);
    if (e->x.recorder != NULL) ls_record_end(e->c->ctx, &e->x);
}

int ls_h2_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    ls_h2_conn *c = user;
    const uint32_t type = frame->hd.type, code = type == NGHTTP2_RST_STREAM ? frame->rst_stream.error_code : 0;
    if (type == NGHTTP2_GOAWAY) ls_h2_goaway_sent(c);
    if (code != NGHTTP2_NO_ERROR && code != NGHTTP2_INTERNAL_ERROR && code != NGHTTP2_CANCEL)
        ls_h2_count_reset(c); /* for a fault of the client: these are those of a handler */
    if ((type != NGHTTP2_HEADERS && type != NGHTTP2_DATA) || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) return 0;
    ls_h2_exchange *e = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (e == NULL) return 0;
    e->end_sent = true;
    skip_body(e);
    return 0;
}

/* ---- the wishes of a handler --------------------------------------------------------------------------------- */

static int submit_head(ls_h2_exchange *e)
{
    const ls_exchange *x = &e->x;
    const nghttp2_data_provider body = {{.ptr = e}, read_data};
    const bool has_body = e->tunnels || (!x->no_body && x->framing != LS_FRAMED_NOT && e->length != 0);
    fields f;
    if (!begin(&f, x->fields_len)) return NGHTTP2_ERR_NOMEM;
    add_head(&f, e);
    e->left = e->length;
    e->submitted = true;
    const int err = nghttp2_submit_response(e->c->session, e->id, f.at, f.count, has_body ? &body : NULL);
    end(&f);
    return err;
}

/* What becomes of a response that is not complete. */
static uint32_t reset_code(ls_h2_exchange *e, bool head, bool aborted)
{
    if (e->tunnels) return aborted ? NGHTTP2_CANCEL : 0; /* RFC 8441 section 5 */
    if (!aborted && (!e->returned || ls_exchange_is_complete(&e->x))) return 0;
    if (!head && !e->submitted) return NGHTTP2_CANCEL;
    e->ends_early = !aborted; /* what the handler has sent arrives, as with HTTP/1 */
    return aborted ? NGHTTP2_INTERNAL_ERROR : 0;
}

void ls_h2_serve(ls_thread_ctx *ctx, ls_h2_exchange *e)
{
    ls_h2_conn *c = e->c;
    ls_mutex_lock(&c->lock);
    e->listed = false;
    e->returned = e->released;
    const size_t read = e->credit;
    ls_block *hints = e->hints;
    const bool interim = e->continue_due, lost = e->closed || e->lost != 0, head = e->head_due && !e->submitted,
               aborted = e->aborted;
    e->credit = 0;
    e->hints = NULL;
    e->continue_due = false;
    ls_mutex_unlock(&c->lock);
    if (e->returned && e->counted) {
        e->counted = false;
        c->running--;
    }
    if (!lost && c->session != NULL) {
        const uint32_t code = reset_code(e, head, aborted);
        int err = 0;
        if (read > 0) credit(e, read);
        if (interim) err = submit_interim(e, "100", NULL);
        if (hints != NULL && err == 0) err = submit_interim(e, "103", hints);
        if (is_unread(e)) ls_h2_widen(e, e->x.head.has_length ? e->x.head.content_length : UINT32_MAX);
        if (head && code == 0 && err == 0)
            err = submit_head(e);
        else if (e->deferred)
            resume(e);
        if (err != 0) c->failed = true;
        if (code != 0)
            ls_h2_reset(e, code, NULL);
        else
            skip_body(e);
    }
    if (hints != NULL) ls_block_drop(hints);
    ls_h2_free_if_unused(e);
}

void ls_h2_refuse(ls_thread_ctx *ctx, ls_h2_exchange *e, int status, const char *why)
{
    ls_counter_add(&ls_http_thread_of(e->c->http, ctx)->refused, 1);
    ls_exchange_refuse(ctx, &e->x, status, why);
    ls_mutex_lock(&e->c->lock);
    ls_h2_unlock(ctx, e, true);
}
