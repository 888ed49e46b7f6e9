/* http.c - the client side of HTTP/1.1: requests that were made before, or by a script, and answers.
 *
 * Heads of answers repeat themselves: only their Date changes, once a second. So the last head that came as a whole is
 * kept with what it said; an answer that begins with the same bytes says the same, and is not parsed. */
#include <stdlib.h>
#include <string.h>

#include "stress/script.h"
#include "stress/worker.h"

enum phase { AT_HEAD, AT_BODY, AT_CHUNKS, AT_END_OF_CONNECTION };

enum { BODY_BYTES_MAX = 64 << 20 }; /* of one answer, when a script looks at it */

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* Note which of the requests of a text are HEAD: their answers have no body. */
static void note_methods(ls_stress_vu *u, uint32_t from, const char *bytes, size_t len)
{
    const ls_stress_worker *w = u->worker;
    bool to_head = false;
    size_t at = 0;
    for (uint32_t k = 0; k < w->batch; k++) {
        if (w->batch == 1)
            to_head = len > 5 && memcmp(bytes, "HEAD ", 5) == 0;
        else if (!ls_stress_script_next_request(bytes, len, &at, &to_head))
            return; /* another number of requests than the first text had: its answers will not fit either */
        u->requests[(u->first + from + k) % w->pipeline].to_head = to_head;
    }
}

static bool compose_script(ls_stress_vu *u, uint32_t count)
{
    ls_stress_worker *w = u->worker;
    const uint32_t from = u->outstanding - count;
    const char *bytes;
    size_t len, used = 0;
    if (ls_stress_script_fixed(w->script, &bytes, &len)) {
        for (uint32_t i = 0; i < count; i += w->batch) note_methods(u, from + i, bytes, len);
        u->slice = ls_slice_static(bytes, len * (count / w->batch));
        return true;
    }
    for (uint32_t i = 0; i < count; i += w->batch) {
        char *to;
        if (!ls_stress_script_request(w->script, u, &bytes, &len)) return false;
        note_methods(u, from + i, bytes, len);
        if (used == 0) {
            if (!ls_stress_vu_room(u, len, &to)) goto fail;
        } else if (!ls_stress_vu_more_room(u, len, &to)) {
            goto fail;
        }
        memcpy(to, bytes, len);
        used += len;
        ls_stress_script_request_sent(w->script);
    }
    w->stale = true; /* Lua takes its time */
    return true;

fail:
    ls_stress_script_request_sent(w->script);
    ls_stress_vu_fail(u, LS_STRESS_ERROR_WRITE);
    return false;
}

static bool compose(ls_stress_vu *u, uint32_t count)
{
    const ls_stress_plan *plan = u->worker->plan;
    if (plan->mode == LS_PLAN_SCRIPT) return compose_script(u, count);
    u->slice = ls_slice_static(plan->request, plan->request_len * count);
    return true;
}

/* ---- the end of an answer ---------------------------------------------------------------------------------------- */

static uint32_t crc_table[256];

void ls_http_prepare(void)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t c = n;
        for (int k = 0; k < 8; k++) c = c & 1 ? UINT32_C(0xedb88320) ^ (c >> 1) : c >> 1;
        crc_table[n] = c;
    }
}

static bool bad_answer(ls_stress_vu *u, const char *why, const char *bytes, size_t len)
{
    ls_stress_worker_note_failure(u->worker, why, bytes, len);
    ls_stress_vu_fail(u, LS_STRESS_ERROR_ANSWER);
    return false;
}

/* A TLS server answers what it cannot read with an alert (RFC 8446 section 5.1: type 21, version 3.x). */
static bool bad_head(ls_stress_vu *u, const char *why, const char *bytes, size_t len)
{
    const bool is_alert = len >= 2 && bytes[0] == 0x15 && bytes[1] == 0x03;
    return bad_answer(u, is_alert ? "the server speaks TLS on this port" : why, bytes, len);
}

static void check_answer(ls_stress_vu *u)
{
    const ls_stress_plan_expect *expect = &u->worker->plan->expect;
    ls_stress_worker *w = u->worker;
    if (expect->status_from > 0)
        ls_stress_worker_check(w, "status", 6,
                               u->head.status >= expect->status_from && u->head.status <= expect->status_to);
    if (expect->has_length) ls_stress_worker_check(w, "length", 6, u->body_len == expect->length);
    if (expect->has_crc) ls_stress_worker_check(w, "crc32", 5, (u->crc ^ UINT32_MAX) == expect->crc);
    if (expect->has_body) ls_stress_worker_check(w, "body", 4, !u->differs && u->body_len == expect->body_len);
}

/* The answer is complete. False: so is the connection. */
static bool complete(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    const ls_stress_plan *plan = w->plan;
    check_answer(u);
    if (w->script != NULL && ls_stress_script_has_response(w->script)) {
        const size_t head = ls_stress_script_wants_headers(w->script) ? u->head.bytes : 0;
        if (!ls_stress_script_response(w->script, u, &u->head, u->held, u->held + head, u->held_len - head))
            return false;
        w->stale = true;
    }
    u->held_len = 0;
    u->phase = AT_HEAD;
    ls_stress_vu_answered(u, u->head.status);
    if (u->head.keep_alive && plan->config.keepalive) return true;
    ls_stress_vu_retry_later(u);
    ls_stress_vu_close(u);
    ls_stress_worker_look(w);
    return false;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static bool hold(ls_stress_vu *u, const char *bytes, size_t len)
{
    if (len > u->held_room - u->held_len) {
        size_t room = u->held_room > 0 ? u->held_room : 1024;
        while (room - u->held_len < len) room *= 2;
        if (room > BODY_BYTES_MAX + LS_STRESS_HEAD_BYTES_MAX) return false;
        char *held = realloc(u->held, room);
        if (held == NULL) return false;
        u->held = held;
        u->held_room = (uint32_t)room;
    }
    memcpy(u->held + u->held_len, bytes, len);
    u->held_len += (uint32_t)len;
    return true;
}

/* A part of the body. */
static bool body_bytes(ls_stress_vu *u, const char *bytes, size_t len)
{
    const ls_stress_plan_expect *expect = &u->worker->plan->expect;
    if (expect->has_crc) {
        uint32_t crc = u->crc;
        for (size_t i = 0; i < len; i++) crc = crc_table[(crc ^ (unsigned char)bytes[i]) & 0xff] ^ (crc >> 8);
        u->crc = crc;
    }
    if (expect->has_body && !u->differs)
        u->differs = u->body_len + len > expect->body_len || memcmp(expect->body + u->body_len, bytes, len) != 0;
    u->body_len += len;
    if (u->worker->script != NULL && ls_stress_script_wants_body(u->worker->script) && !hold(u, bytes, len))
        return bad_answer(u, "a body too large for the script", bytes, 0);
    return true;
}

/* The head of an answer begins at bytes. The bytes used; 0: all of them, and there must be more; or negative. */
static int take_head(ls_stress_vu *u, const char *bytes, size_t len)
{
    ls_stress_worker *w = u->worker;
    const bool to_head = u->requests[u->first].to_head;
    const char *why = NULL;
    int used;
    if (u->held_len > 0) { /* the rest of one of which we have a part */
        const uint32_t before = u->held_len;
        if (!hold(u, bytes, len)) return LS_ENOMEM;
        used =
            ls_http1_parse_response(u->held, u->held_len, before, LS_STRESS_HEAD_BYTES_MAX, to_head, &u->head, &why);
        if (used < 0) (void)bad_head(u, why, u->held, u->held_len);
        if (used <= 0) return used;
        u->held_len = (uint32_t)used;
        return used - (int)before;
    }
    if (w->cached_len > 0 && len >= w->cached_len && to_head == w->cached_to_head &&
        memcmp(bytes, w->cache, w->cached_len) == 0) {
        u->head = w->cached;
        return (int)w->cached_len;
    }
    used = ls_http1_parse_response(bytes, len, 0, LS_STRESS_HEAD_BYTES_MAX, to_head, &u->head, &why);
    if (used < 0) (void)bad_head(u, why, bytes, len);
    if (used == 0 && !hold(u, bytes, len)) return LS_ENOMEM;
    if (used > 0 && used <= LS_HEAD_CACHE_BYTES) {
        memcpy(w->cache, bytes, (size_t)used);
        w->cached_len = (uint32_t)used;
        w->cached_to_head = to_head;
        w->cached = u->head;
    }
    return used;
}

/* The head is there: what follows it? */
static bool begin_body(ls_stress_vu *u, const char *head)
{
    ls_stress_worker *w = u->worker;
    if (u->head.status == 101) return bad_answer(u, "the server switched protocols unasked", head, 0);
    if (u->head.status < 200) { /* an interim answer: the final one follows (RFC 9110 section 15.2) */
        u->held_len = 0;
        return true;
    }
    if (w->script != NULL && ls_stress_script_wants_headers(w->script)) {
        if (u->held_len == 0 && !hold(u, head, u->head.bytes)) return bad_answer(u, "no memory", head, 0);
    } else {
        u->held_len = 0;
    }
    u->body_len = 0;
    u->crc = UINT32_MAX;
    u->differs = false;
    switch (u->head.framing) {
    case LS_FRAMING_NONE: return complete(u);
    case LS_FRAMING_LENGTH:
        u->body_left = u->head.length;
        u->phase = AT_BODY;
        break;
    case LS_FRAMING_CHUNKED:
        ls_chunks_init(&u->chunks);
        u->phase = AT_CHUNKS;
        break;
    default: u->phase = AT_END_OF_CONNECTION; break;
    }
    return true;
}

static bool take_chunks(ls_stress_vu *u, const char **bytes, size_t *len)
{
    ls_chunk_run run;
    const char *why = NULL;
    if (ls_chunks_next(&u->chunks, *bytes, *len, &run, &why) < 0) return bad_answer(u, why, *bytes, *len);
    if (run.len > 0 && !body_bytes(u, *bytes + run.from, run.len)) return false;
    *bytes += run.used;
    *len -= run.used;
    return run.end ? complete(u) : true;
}

/* A server that gives up on an idle connection may say so before it closes (RFC 9110 section 15.5.9). */
static bool unasked(ls_stress_vu *u, const char *bytes, size_t len)
{
    static const char gives_up[] = "HTTP/1.1 408";
    const size_t whole = sizeof gives_up - 1, minor = 7;
    size_t at = u->held_len;
    for (size_t i = 0; i < len && at < whole; i++, at++)
        if (!u->used || (bytes[i] != gives_up[at] && (at != minor || bytes[i] != '0')))
            return bad_answer(u, "bytes that nobody asked for", bytes, len);
    if (at < whole && hold(u, bytes, len)) return true;
    ls_stress_vu_close(u);
    return false;
}

static bool received(ls_stress_vu *u, const char *bytes, size_t len)
{
    while (len > 0) {
        if (u->outstanding == 0) return unasked(u, bytes, len);
        size_t n = len;
        switch (u->phase) {
        case AT_HEAD: {
            int used = take_head(u, bytes, len);
            if (used == 0) return true;
            if (used == LS_ENOMEM) (void)bad_answer(u, "no memory", bytes, 0);
            if (used < 0) return false;
            if (!begin_body(u, bytes)) return false;
            n = (size_t)used;
            break;
        }
        case AT_BODY:
            if (n > u->body_left) n = (size_t)u->body_left;
            u->body_left -= n;
            if (!body_bytes(u, bytes, n) || (u->body_left == 0 && !complete(u))) return false;
            break;
        case AT_CHUNKS:
            if (!take_chunks(u, &bytes, &len)) return false;
            continue;
        default:
            if (!body_bytes(u, bytes, n)) return false;
            break;
        }
        bytes += n;
        len -= n;
    }
    return true;
}

/* The server closed: in order between answers, or at the end of a body that lasts until then. */
static void ended(ls_stress_vu *u)
{
    if (u->phase == AT_END_OF_CONNECTION) {
        (void)complete(u);
    } else if (u->outstanding > 0) {
        if (u->phase != AT_HEAD || u->held_len > 0)
            ls_stress_worker_note_failure(u->worker, "the server hung up in the middle of an answer", u->held,
                                          u->held_len);
        ls_stress_vu_fail(u, LS_STRESS_ERROR_READ);
    } else {
        if (!u->used) u->broken = true; /* or a server that accepts and closes would be asked without a pause */
        ls_stress_vu_close(u);
    }
}

static void lost(ls_stress_vu *u)
{
    u->phase = AT_HEAD;
    u->held_len = 0;
}

const ls_stress_proto ls_stress_http = {
    .received = received,
    .ended = ended,
    .compose = compose,
    .lost = lost,
};
