/* ws_frames.c - see ws_frames.h. */
#include "stress/load/ws_frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crypto/random.h"
#include "base/utf8.h"
#include "stress/load/bytes.h"
#include "stress/load/deflate.h"
#include "stress/load/worker.h"

enum { LINE_SHOWN_MAX = 80 /* bytes of a line of a response in a message */ };

void ls_stress_ws_free(ls_stress_vu *u)
{
    if (u->ws == NULL) return;
    free(u->ws->buf.at);
    free(u->ws->packed.at);
    free(u->ws);
}

/* ---- the handshake ---------------------------------------------------------------------------------------------- */

int ls_stress_ws_request(ls_stress_vu *u, const ls_ws_request *request, char **text, size_t *len)
{
    if (u->ws == NULL && (u->ws = calloc(1, sizeof *u->ws)) == NULL) return LS_ENOMEM;
    struct ls_stress_ws *ws = u->ws;
    ws->in_frame = ws->in_message = ws->close_sent = ws->deflate = false;
    ws->packed.len = u->http.buf.len = 0;
    ws->partial_len = 0;
    ws->code = 0;
    ws->request = *request;
    ws->request.deflate = u->worker->deflate != NULL ? &ls_stress_deflate_options : NULL;
    ls_ws_key(ws->request.key);
    ls_http1_reader_init(&u->http.reader, LS_ASKED_UPGRADE);
    ws->begun_ns = ls_stress_worker_now(u->worker);
    *len = ls_ws_request_write(&ws->request, NULL, 0);
    if ((*text = malloc(*len + 1)) == NULL) return LS_ENOMEM;
    (void)ls_ws_request_write(&ws->request, *text, *len + 1);
    return LS_OK;
}

int ls_stress_ws_upgrade(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    const ls_stress_plan *plan = w->plan;
    ls_ws_request request = plan->ws_request;
    char *text, *target = NULL;
    size_t len;
    if (plan->mode == LS_STRESS_PLAN_FANOUT) {
        const bool publishes = u->role == LS_STRESS_ROLE_PUBLISHER;
        request.target = target = ls_stress_plan_topic(publishes ? plan->publish_path : request.target, u->topic);
    }
    int err = request.target != NULL ? ls_stress_ws_request(u, &request, &text, &len) : LS_ENOMEM;
    free(target);
    if (err < 0) return err;
    err = w->transport->put(u, text, len) ? w->transport->send(u) : LS_ENOMEM;
    free(text);
    w->clock_stale = true;
    if (err >= 0) ls_counter_add(&w->count.bytes_out, len);
    return err;
}

/* The length of the line that begins at `bytes`, without its end; of a long one, of whole characters. */
static int line_bytes(const char *bytes, size_t len)
{
    const char *end = memchr(bytes, '\n', len);
    size_t n = end != NULL ? (size_t)(end - bytes) : len;
    while (n > 0 && (bytes[n - 1] == '\r' || bytes[n - 1] == ' ')) n--;
    if (n <= LINE_SHOWN_MAX) return (int)n;
    for (n = LINE_SHOWN_MAX; n > 0 && ((unsigned char)bytes[n] & 0xc0) == 0x80;) n--;
    return (int)n;
}

static bool is_text(const char *bytes, int len)
{
    for (int n = 0; n < len; n++)
        if ((unsigned char)bytes[n] < ' ' || bytes[n] == 0x7f) return false;
    return len > 0 && ls_utf8_valid(bytes, (size_t)len);
}

/* Add the first line of the body of a refusal, as far as it is there. */
static void add_body(char *why, size_t room, const ls_http_response *head, const char *body, size_t len)
{
    const int line = line_bytes(body, len);
    const size_t at = strlen(why);
    if (head->framing != LS_FRAMING_CHUNKED && is_text(body, line))
        (void)snprintf(why + at, room - at, ": %.*s", line, body);
}

int ls_stress_ws_response(ls_stress_vu *u, const char *bytes, size_t len, size_t *used)
{
    ls_stress_worker *w = u->worker;
    struct ls_stress_ws *ws = u->ws;
    ls_ws_response response;
    ls_stress_head head;
    char why[LS_WS_WHY_BYTES + LINE_SHOWN_MAX + 4] = "";
    const int n = ls_stress_vu_head(u, bytes, len, &head);
    if (n == 0) return LS_EAGAIN;
    int err = n;
    if (n > 0) err = ls_ws_response_check(&u->http.reader.head, head.at, &ws->request, &response, why);
    if (err == LS_EREFUSED) {
        add_body(why, sizeof why, &u->http.reader.head, bytes + n, len - (size_t)n);
        head.len = 0;
    }
    u->http.buf.len = 0;
    if (err < 0) {
        ls_stress_vu_handshake_failed(u,
                                      n < 0            ? head.why
                                      : why[0] != '\0' ? why
                                                       : ls_err_text(err),
                                      head.at, head.len);
        return err;
    }
    ws->protocol = response.protocol >= 0 ? ws->request.protocols.names[response.protocol] : NULL;
    ws->deflate = response.deflated;
    if (ws->deflate) ls_counter_add(&w->count.deflated, 1);
    *used = (size_t)n;
    const uint64_t now_ns = ls_stress_worker_now(w);
    ls_counter_add(&w->count.upgrades, 1);
    ls_histogram_record(w->count.upgrade, now_ns > ws->begun_ns ? now_ns - ws->begun_ns : 0);
    return LS_DONE;
}

/* ---- frames that are sent --------------------------------------------------------------------------------------- */

size_t ls_stress_ws_frame_bytes(size_t len)
{
    return LS_WS_HEAD_BYTES_MAX + len;
}

size_t ls_stress_ws_frame(enum ls_ws_opcode opcode, bool compressed, const char *payload, size_t len, char *out)
{
    ls_ws_head head = {
        .length = len, .opcode = (uint8_t)opcode, .fin = true, .masked = true, .compressed = compressed};
    ls_random(head.key, sizeof head.key);
    const size_t n = ls_ws_head_write(&head, out);
    ls_ws_mask_copy(out + n, payload, len, head.key, 0);
    return n + len;
}

size_t ls_stress_ws_message(ls_stress_vu *u, enum ls_ws_opcode opcode, const char *data, size_t len, char *out)
{
    ls_stress_worker *w = u->worker;
    const char *packed;
    size_t packed_len;
    const bool compressed =
        u->ws->deflate && ls_stress_deflate_message(w->deflate, w->pool, data, len, &packed, &packed_len) == LS_OK;
    return compressed ? ls_stress_ws_frame(opcode, true, packed, packed_len, out)
                      : ls_stress_ws_frame(opcode, false, data, len, out);
}

bool ls_stress_ws_send(ls_stress_vu *u, enum ls_ws_opcode opcode, const char *payload, size_t len)
{
    ls_stress_worker *w = u->worker;
    struct ls_stress_ws *ws = u->ws;
    ws->buf.len = 0;
    if (!ls_stress_bytes_reserve(&ws->buf, ls_stress_ws_frame_bytes(len)))
        return ls_stress_vu_fail(u, LS_STRESS_ERROR_WRITE);
    const size_t n = ls_stress_ws_frame(opcode, false, payload, len, ws->buf.at);
    if (!u->tx_pending) return ls_stress_vu_put(u, ws->buf.at, n) && ls_stress_vu_send(u);
    /* The pending send includes what is queued meanwhile. */
    ls_counter_add(&w->count.bytes_out, n);
    return w->transport->put(u, ws->buf.at, n) || ls_stress_vu_fail(u, LS_STRESS_ERROR_WRITE);
}

bool ls_stress_ws_close(ls_stress_vu *u, unsigned code, const char *reason, size_t len)
{
    char payload[LS_WS_CONTROL_BYTES_MAX];
    if (u->ws->close_sent) return true;
    u->ws->close_sent = true;
    if (code == LS_WS_NO_CODE) return ls_stress_ws_send(u, LS_WS_CLOSE, "", 0);
    payload[0] = (char)(code >> 8);
    payload[1] = (char)code;
    memcpy(payload + 2, reason, len);
    return ls_stress_ws_send(u, LS_WS_CLOSE, payload, 2 + len);
}

/* ---- frames that are received ----------------------------------------------------------------------------------- */

static void count_code(ls_stress_vu *u, unsigned code)
{
    if (code >= LS_STRESS_CODE_MIN && code <= LS_STRESS_CODE_MAX)
        ls_counter_add(&u->worker->count.codes[code - LS_STRESS_CODE_MIN], 1);
}

/* The server's Close frame: answer it (section 5.5.1). The protocol decides what it means. */
static bool take_close(ls_stress_vu *u)
{
    struct ls_stress_ws *ws = u->ws;
    const size_t len = (size_t)ws->frame.length;
    unsigned code;
    const char *reason;
    size_t reason_len;
    if (ls_ws_close_parse(ws->control, len, &code, &reason, &reason_len) < 0)
        return ls_stress_vu_fail_answer(u, "the server sent an invalid Close frame", ws->control, len);
    ws->code = (uint16_t)code;
    count_code(u, code);
    if (!ls_stress_ws_close(u, code, "", 0)) return false;
    u->proto->peer_closed(u);
    return u->state == LS_STRESS_VU_OPEN;
}

static bool take_control(ls_stress_vu *u)
{
    struct ls_stress_ws *ws = u->ws;
    ws->in_frame = false;
    if (ws->frame.opcode == LS_WS_CLOSE) return take_close(u);
    if (ws->frame.opcode != LS_WS_PING || ws->close_sent) return true;
    return ls_stress_ws_send(u, LS_WS_PONG, ws->control, (size_t)ws->frame.length);
}

/* The head of a frame is complete: check its place in the message (section 5.4). */
static bool begin_frame(ls_stress_vu *u)
{
    struct ls_stress_ws *ws = u->ws;
    ws->in_frame = true;
    ws->at = 0;
    if (ws->frame.opcode >= LS_WS_CLOSE) return true;
    if (ws->frame.opcode == LS_WS_CONTINUATION)
        return ws->in_message ||
               ls_stress_vu_fail_answer(u, "the server sent a continuation without a message", "", 0);
    if (ws->in_message) return ls_stress_vu_fail_answer(u, "the server began a message inside another one", "", 0);
    ws->in_message = true;
    ws->text = ws->frame.opcode == LS_WS_TEXT;
    ws->compressed = ws->frame.compressed;
    return true;
}

/* Parse the head of a frame. Returns the number of bytes used; 0: all of them, and the head is incomplete; or
 * negative: an error, handled. */
static int read_head(ls_stress_vu *u, const char *bytes, size_t len)
{
    struct ls_stress_ws *ws = u->ws;
    const ls_ws_rules rules = {.masked = false, .compressed = ws->deflate};
    const size_t before = ws->partial_len;
    const char *why = NULL;
    size_t have = len;
    if (before > 0) {
        have = len < sizeof ws->partial - before ? len : sizeof ws->partial - before;
        memcpy(ws->partial + before, bytes, have);
    }
    const int n = ls_ws_head_parse(before > 0 ? ws->partial : bytes, before + have, &rules, &ws->frame, &why);
    if (n < 0) {
        (void)ls_stress_vu_fail_answer(u, why, bytes, len);
        return n;
    }
    if (n == 0 && before == 0) memcpy(ws->partial, bytes, len);
    ws->partial_len = n == 0 ? (uint8_t)(before + have) : 0;
    return n == 0 ? 0 : n - (int)before;
}

static bool take_message(ls_stress_vu *u, const char *bytes, size_t len, bool last)
{
    return u->proto->message == NULL || u->proto->message(u, bytes, len, last);
}

/* Bytes of a compressed message: pass it on when it is complete. */
static bool read_compressed(ls_stress_vu *u, const char *bytes, size_t len, bool last)
{
    ls_stress_worker *w = u->worker;
    struct ls_stress_ws *ws = u->ws;
    const char *plain;
    size_t plain_len;
    if (!last || ws->packed.len > 0) {
        if (!ls_stress_bytes_add(&ws->packed, bytes, len, LS_STRESS_MESSAGE_BYTES_MAX))
            return ls_stress_vu_fail_answer(u, "a compressed message is longer than 64 MiB", "", 0);
        if (!last) return true;
        bytes = ws->packed.at;
        len = ws->packed.len;
        ws->packed.len = 0;
    }
    const int err =
        ls_stress_inflate_message(w->deflate, w->pool, bytes, len, LS_STRESS_MESSAGE_BYTES_MAX, &plain, &plain_len);
    if (err == LS_OK) return take_message(u, plain, plain_len, true);
    return ls_stress_vu_fail_answer(u,
                                    err == LS_EMSGSIZE ? "a compressed message is longer than 64 MiB"
                                                       : "a compressed message cannot be inflated",
                                    "", 0);
}

/* Bytes of the payload of this frame. */
static bool read_payload(ls_stress_vu *u, const char *bytes, size_t len)
{
    struct ls_stress_ws *ws = u->ws;
    const uint64_t at = ws->at;
    ws->at += len;
    const bool ends = ws->at == ws->frame.length;
    if (ws->frame.opcode >= LS_WS_CLOSE) {
        memcpy(ws->control + at, bytes, len);
        return !ends || take_control(u);
    }
    const bool last = ends && ws->frame.fin;
    if (ends) ws->in_frame = false;
    if (last) ws->in_message = false;
    return ws->compressed ? read_compressed(u, bytes, len, last) : take_message(u, bytes, len, last);
}

bool ls_stress_ws_received(ls_stress_vu *u, const char *bytes, size_t len)
{
    struct ls_stress_ws *ws = u->ws;
    if (u->state == LS_STRESS_VU_CONNECTING) {
        size_t used = 0;
        const int err = ls_stress_ws_response(u, bytes, len, &used);
        if (err == LS_EAGAIN) return true;
        ls_stress_vu_upgraded(u, err);
        if (u->state != LS_STRESS_VU_OPEN) return false;
        bytes += used;
        len = u->stalled ? 0 : len - used;
    }
    while (len > 0 && ws->code == 0) { /* what follows a Close frame is ignored */
        if (!ws->in_frame) {
            const int n = read_head(u, bytes, len);
            if (n <= 0) return n == 0;
            bytes += n;
            len -= (size_t)n;
            if (!begin_frame(u)) return false;
        }
        const uint64_t left = ws->frame.length - ws->at;
        const size_t n = len < left ? len : (size_t)left;
        if (n == 0 && left > 0) return true;
        if (!read_payload(u, bytes, n)) return false;
        bytes += n;
        len -= n;
    }
    return true;
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

void ls_stress_ws_peer_closed(ls_stress_vu *u)
{
    char why[80] = "the server closed the connection without a Close frame";
    const unsigned code = u->ws->code;
    if (code == 0)
        count_code(u, LS_WS_ABNORMAL);
    else
        (void)snprintf(why, sizeof why, "the server closed the WebSocket with the code %u", code);
    ls_stress_vu_peer_closed(u, why);
}

/* The Close frame of an orderly end, if the socket takes it at once. */
void ls_stress_ws_closed(ls_stress_vu *u)
{
    char frame[LS_WS_HEAD_BYTES_MAX + 2];
    static const char normal[] = {LS_WS_NORMAL >> 8, (char)(LS_WS_NORMAL & 0xff)};
    if (u->ws->close_sent || u->tx_pending || u->output > 0) return;
    u->ws->close_sent = true;
    if (u->worker->transport->put(u, frame, ls_stress_ws_frame(LS_WS_CLOSE, false, normal, sizeof normal, frame)))
        (void)u->worker->transport->send(u);
}
