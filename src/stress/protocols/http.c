/* http.c - the HTTP/1.1 protocol: prepared requests or requests of a script, and their responses.
 *
 * Response heads repeat: only Date changes, once a second. So the worker keeps the last complete head and its parse
 * result; a response that begins with the same bytes is not parsed again. */
#include <string.h>

#include "stress/load/worker.h"
#include "stress/protocols/protocols.h"
#include "stress/scripts/script.h"

/* ---- requests --------------------------------------------------------------------------------------------------- */

/* Record which requests of a text are HEAD requests: their responses have no body. */
static void record_methods(ls_stress_vu *u, uint32_t from, const char *bytes, size_t len)
{
    const ls_stress_worker *w = u->worker;
    bool is_head = false;
    size_t at = 0;
    for (uint32_t k = 0; k < w->batch; k++) {
        if (w->batch == 1)
            is_head = len > 5 && memcmp(bytes, "HEAD ", 5) == 0;
        else if (!ls_stress_script_next_request(bytes, len, &at, &is_head))
            return; /* not the number of requests in the first text: the responses will be errors */
        u->requests[(u->first + from + k) % w->pipeline].is_head = is_head;
    }
}

static void number_requests(ls_stress_vu *u, uint32_t from)
{
    for (uint32_t i = from; i < u->outstanding; i++) {
        ls_stress_request *request = &u->requests[(u->first + i) % u->worker->pipeline];
        if (request->number == 0) request->number = ++u->numbered;
    }
}

static bool compose_script(ls_stress_vu *u, uint32_t count)
{
    ls_stress_worker *w = u->worker;
    const uint32_t from = u->outstanding - count;
    const char *bytes;
    size_t len;
    const ls_stress_script_traits *script = w->traits;
    number_requests(u, from);
    if (script->fixed != NULL) {
        for (uint32_t i = 0; i < count; i += w->batch) record_methods(u, from + i, script->fixed, script->fixed_len);
        return ls_stress_vu_put_static(u, script->fixed, script->fixed_len * (count / w->batch));
    }
    for (uint32_t i = 0; i < count; i += w->batch) {
        ls_stress_request *request = &u->requests[(u->first + from + i) % w->pipeline];
        if (!ls_stress_script_request(w->script, u, request, &bytes, &len)) return false;
        record_methods(u, from + i, bytes, len);
        const bool ok = ls_stress_vu_put(u, bytes, len);
        ls_stress_script_request_sent(w->script);
        if (!ok) return false;
    }
    w->clock_stale = true; /* Lua code has run */
    return true;
}

static bool compose(ls_stress_vu *u, uint32_t count)
{
    const ls_stress_plan *plan = u->worker->plan;
    if (plan->mode == LS_STRESS_PLAN_SCRIPT) return compose_script(u, count);
    return ls_stress_vu_put_static(u, plan->request, plan->request_len * count);
}

/* ---- the end of a response -------------------------------------------------------------------------------------- */

static uint32_t crc_table[256];

void ls_stress_http_init(void)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t c = n;
        for (int k = 0; k < 8; k++) c = c & 1 ? UINT32_C(0xedb88320) ^ (c >> 1) : c >> 1;
        crc_table[n] = c;
    }
}

/* A TLS server responds to plain text with an alert (RFC 8446 section 5.1: type 21, version 3.x). */
static bool bad_head(ls_stress_vu *u, const char *why, const char *bytes, size_t len)
{
    const bool is_alert = len >= 2 && bytes[0] == 0x15 && bytes[1] == 0x03;
    return ls_stress_vu_fail_answer(u, is_alert ? "the port expects TLS (https://)" : why, bytes, len);
}

static void check_expectations(ls_stress_vu *u)
{
    const ls_stress_plan *plan = u->worker->plan;
    ls_stress_worker *w = u->worker;
    ls_stress_request *request = &u->requests[u->first];
    const unsigned status = u->http.reader.head.status;
    if (plan->status_from > 0)
        ls_stress_worker_count_check(w, request, "status", 6,
                                     status >= plan->status_from && status <= plan->status_to);
    if (plan->has_length) ls_stress_worker_count_check(w, request, "length", 6, u->http.body_len == plan->length);
    if (plan->has_crc) ls_stress_worker_count_check(w, request, "crc32", 5, (u->http.crc ^ UINT32_MAX) == plan->crc);
    if (plan->expected_body != NULL)
        ls_stress_worker_count_check(w, request, "body", 4,
                                     !u->http.body_differs && u->http.body_len == plan->expected_body_len);
}

/* The response is complete. False: the connection closes. */
static bool complete(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    const ls_http_response *response = &u->http.reader.head;
    check_expectations(u);
    if (w->traits != NULL && w->traits->has_response) {
        const size_t head = w->traits->wants_headers ? response->bytes : 0;
        if (!ls_stress_script_response(w->script, u, response, u->http.buf.at, u->http.buf.at + head,
                                       u->http.buf.len - head))
            return false;
        w->clock_stale = true;
    }
    ls_stress_http_closed(u);
    ls_stress_vu_complete(u, response->status);
    if (response->keep_alive && w->plan->keepalive) return true;
    ls_stress_vu_retry_later(u);
    ls_stress_vu_close(u);
    ls_stress_worker_check_end(w);
    return false;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

static bool buffer(ls_stress_vu *u, const char *bytes, size_t len)
{
    return ls_stress_bytes_add(&u->http.buf, bytes, len, SIZE_MAX);
}

/* Check and keep a part of the body. */
static bool read_body(ls_stress_vu *u, const char *bytes, size_t len)
{
    const ls_stress_plan *plan = u->worker->plan;
    if (plan->has_crc) {
        uint32_t crc = u->http.crc;
        for (size_t i = 0; i < len; i++) crc = crc_table[(crc ^ (unsigned char)bytes[i]) & 0xff] ^ (crc >> 8);
        u->http.crc = crc;
    }
    if (plan->expected_body != NULL && !u->http.body_differs)
        u->http.body_differs = u->http.body_len + len > plan->expected_body_len ||
                               memcmp(plan->expected_body + u->http.body_len, bytes, len) != 0;
    u->http.body_len += len;
    if (u->worker->traits == NULL || !u->worker->traits->wants_body) return true;
    if (u->http.body_len > u->worker->plan->body_bytes_max) {
        ls_stress_worker_record_failure(u->worker, "a body is longer than --max-body, the limit for scripts", bytes,
                                        0);
        return ls_stress_vu_fail(u, LS_STRESS_ERROR_BODY);
    }
    return buffer(u, bytes, len) || ls_stress_vu_fail_answer(u, "not enough memory for the body", bytes, 0);
}

/* The next bytes of a head; when it is complete, prepare for the body. Returns the number of bytes used; 0: all of
 * them, and the head is incomplete; or negative: an error, handled. */
static int read_head(ls_stress_vu *u, const char *bytes, size_t len)
{
    ls_stress_worker *w = u->worker;
    const enum ls_asked asked = u->requests[u->first].is_head ? LS_ASKED_HEAD : LS_ASKED_BODY;
    ls_stress_head head = {bytes, w->cached_len, NULL};
    int used = (int)w->cached_len;
    if (u->http.phase == LS_STRESS_HTTP_START && u->http.buf.len == 0 && used > 0 && len >= w->cached_len &&
        asked == w->cached.asked && memcmp(bytes, w->cache, w->cached_len) == 0) {
        u->http.reader = w->cached;
    } else {
        if (u->http.phase == LS_STRESS_HTTP_START) ls_http1_reader_init(&u->http.reader, asked);
        u->http.phase = LS_STRESS_HTTP_HEAD;
        used = ls_stress_vu_head(u, bytes, len, &head);
        if (used < 0) (void)bad_head(u, head.why, head.at, head.len);
        if (used <= 0) return used;
        if (head.len <= LS_STRESS_HEAD_CACHE_BYTES) {
            memcpy(w->cache, head.at, head.len);
            w->cached_len = (uint32_t)head.len;
            w->cached = u->http.reader;
        }
    }
    if (w->traits == NULL || !w->traits->wants_headers) {
        u->http.buf.len = 0;
    } else if (u->http.buf.len == 0 && !buffer(u, head.at, head.len)) {
        (void)ls_stress_vu_fail_answer(u, "not enough memory", "", 0);
        return LS_ENOMEM;
    }
    u->http.phase = LS_STRESS_HTTP_BODY;
    u->http.body_len = 0;
    u->http.crc = UINT32_MAX;
    u->http.body_differs = false;
    return used;
}

/* A server may send 408 before it closes an idle connection (RFC 9110 section 15.5.9). */
static bool unexpected(ls_stress_vu *u, const char *bytes, size_t len)
{
    static const char request_timeout[] = "HTTP/1.1 408";
    const size_t whole = sizeof request_timeout - 1, minor = 7;
    size_t at = u->http.buf.len;
    for (size_t i = 0; i < len && at < whole; i++, at++)
        if (!u->used || (bytes[i] != request_timeout[at] && (at != minor || bytes[i] != '0')))
            return ls_stress_vu_fail_answer(u, "unexpected data without a request", bytes, len);
    if (at < whole && buffer(u, bytes, len)) return true;
    ls_stress_vu_close(u);
    return false;
}

bool ls_stress_http_received(ls_stress_vu *u, const char *bytes, size_t len)
{
    while (len > 0) {
        if (u->outstanding == 0) return unexpected(u, bytes, len);
        if (u->http.phase != LS_STRESS_HTTP_BODY) {
            const int used = read_head(u, bytes, len);
            if (used <= 0) return used == 0;
            bytes += used;
            len -= (size_t)used;
        }
        ls_chunk_run run;
        const char *why = NULL;
        if (ls_http1_read_body(&u->http.reader, bytes, len, &run, &why) < 0)
            return ls_stress_vu_fail_answer(u, why, bytes, len);
        if (run.len > 0 && !read_body(u, bytes + run.from, run.len)) return false;
        bytes += run.used;
        len -= run.used;
        if (run.end && !complete(u)) return false;
    }
    return true;
}

/* The server closed: between responses, or at the end of a body that lasts until the close. */
void ls_stress_http_peer_closed(ls_stress_vu *u)
{
    if (u->http.phase == LS_STRESS_HTTP_BODY && ls_http1_read_end(&u->http.reader) == LS_OK) {
        (void)complete(u);
    } else {
        if (u->outstanding > 0 && u->http.phase != LS_STRESS_HTTP_START)
            ls_stress_worker_record_failure(u->worker, "the server closed the connection in the middle of a response",
                                            u->http.buf.at, u->http.buf.len);
        ls_stress_vu_peer_closed(u, NULL);
    }
}

void ls_stress_http_closed(ls_stress_vu *u)
{
    u->http.phase = LS_STRESS_HTTP_START;
    u->http.buf.len = 0;
}

const ls_stress_proto ls_stress_http_proto = {
    .received = ls_stress_http_received,
    .peer_closed = ls_stress_http_peer_closed,
    .compose = compose,
    .closed = ls_stress_http_closed,
};
