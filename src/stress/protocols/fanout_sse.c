/* fanout_sse.c - fan-out over server-sent events: its subscribers, and its publishers, whose requests
 * are those of http.c. See fanout.h. */
#include <stdlib.h>
#include <string.h>

#include "stress/protocols/fanout.h"
#include "stress/protocols/protocols.h"

/* ---- subscribers ------------------------------------------------------------------------------------------------ */

enum { EVENT_BYTES_MAX = 1 << 20 }; /* of an event, beside the message of the run */

static bool opened(ls_stress_vu *u)
{
    const ls_stress_plan *plan = u->worker->plan;
    char *path = ls_stress_plan_topic(plan->path, u->topic);
    if (path == NULL) return ls_stress_vu_fail_answer(u, ls_err_text(LS_ENOMEM), "", 0);
    ls_http1_reader_init(&u->http.reader, LS_ASKED_BODY);
    ls_sse_reset(&u->subscriber->sse);
    u->subscriber->sse.bytes_max = LS_DELIVERY_HEAD_BYTES + plan->message_len + EVENT_BYTES_MAX;
    const bool ok = ls_stress_vu_put(u, "GET ", 4) && ls_stress_vu_put(u, path, strlen(path)) &&
                    ls_stress_vu_put(u, plan->base, strlen(plan->base)) &&
                    ls_stress_vu_put_static(u, "Accept: text/event-stream\r\n\r\n", 29) && ls_stress_vu_send(u);
    free(path);
    return ok;
}

static bool is_event_stream(const ls_http_response *response, const char *head)
{
    static const char type[] = "text/event-stream";
    ls_pair field;
    for (size_t at = 0; ls_http1_response_field(head, response, &at, &field);)
        if (ls_text_same(field.name, field.name_len, "content-type", 12))
            return field.value_len >= sizeof type - 1 &&
                   ls_text_same(field.value, sizeof type - 1, type, sizeof type - 1);
    return false;
}

/* Why the response is not one of a subscriber; NULL: it is. */
static const char *refusal(const ls_http_response *response, const char *head)
{
    if (response->status != 200) return "a subscriber needs a response with status 200";
    if (!is_event_stream(response, head)) return "a subscriber needs a response of the type text/event-stream";
    return response->framing == LS_FRAMING_CHUNKED || response->framing == LS_FRAMING_TO_END
               ? NULL
               : "the response of a subscriber has a Content-Length: it ends";
}

/* Continue with the head. Returns the bytes used of these; 0: all, and the head is incomplete; or negative: failed. */
static int read_head(ls_stress_vu *u, const char *bytes, size_t len)
{
    ls_stress_head head;
    const int used = ls_stress_vu_head(u, bytes, len, &head);
    if (used > 0) head.why = refusal(&u->http.reader.head, head.at);
    if (head.why != NULL) {
        (void)ls_stress_vu_fail_answer(u, head.why, head.at, head.len);
        return LS_EPROTO;
    }
    if (used > 0) u->http.buf.len = 0;
    return used;
}

static bool read_events(ls_stress_vu *u, const char *bytes, size_t len)
{
    const char *data;
    size_t at = 0, data_len;
    int err;
    while (ls_sse_next(&u->subscriber->sse, bytes, len, &at, &data, &data_len, &err)) {
        ls_stress_fanout_deliver(u, data, data_len);
        if (u->state != LS_STRESS_VU_OPEN) return false;
    }
    if (err == LS_OK) return true;
    (void)ls_stress_vu_fail_answer(
        u, err == LS_EMSGSIZE ? "an event is more than 1 MiB longer than the message" : ls_err_text(err), "", 0);
    u->worker->event_failed = true;
    ls_stress_worker_vu_prepared(u->worker, u); /* it failed: nothing is to be expected from waiting longer */
    return false;
}

static bool received(ls_stress_vu *u, const char *bytes, size_t len)
{
    if (u->http.phase != LS_STRESS_HTTP_BODY) {
        const int used = read_head(u, bytes, len);
        if (used <= 0) return used == 0;
        u->http.phase = LS_STRESS_HTTP_BODY;
        bytes += used;
        len -= (size_t)used;
    }
    while (len > 0) {
        ls_chunk_run run;
        const char *why = NULL;
        if (ls_http1_read_body(&u->http.reader, bytes, len, &run, &why) < 0)
            return ls_stress_vu_fail_answer(u, why, bytes, len);
        if (run.len > 0 && !read_events(u, bytes + run.from, run.len)) return false;
        if (run.end) return ls_stress_vu_fail_answer(u, "the server ended the response of a subscriber", "", 0);
        bytes += run.used;
        len -= run.used;
    }
    return true;
}

static void peer_closed(ls_stress_vu *u)
{
    ls_stress_vu_peer_closed(u, "the server closed the connection of a subscriber");
}

const ls_stress_proto ls_stress_sse_subscriber_proto = {
    .opened = opened,
    .received = received,
    .peer_closed = peer_closed,
    .closed = ls_stress_http_closed,
    .free = ls_stress_fanout_free,
};

/* ---- publishers ------------------------------------------------------------------------------------------------- */

static bool compose(ls_stress_vu *u, uint32_t count)
{
    const ls_stress_plan *plan = u->worker->plan;
    const size_t body_len = LS_DELIVERY_HEAD_BYTES + plan->message_len;
    char *path = ls_stress_plan_topic(plan->publish_path, u->topic), *body = malloc(body_len);
    bool ok = path != NULL && body != NULL;
    if (!ok) (void)ls_stress_vu_fail(u, LS_STRESS_ERROR_WRITE);
    for (uint32_t k = u->outstanding - count; ok && k < u->outstanding; k++) {
        ls_stress_fanout_write(u, k, body);
        ok = ls_stress_vu_put(u, "POST ", 5) && ls_stress_vu_put(u, path, strlen(path)) &&
             ls_stress_vu_put(u, plan->post, strlen(plan->post)) && ls_stress_vu_put(u, body, body_len);
    }
    free(path);
    free(body);
    return ok;
}

const ls_stress_proto ls_stress_sse_publisher_proto = {
    .received = ls_stress_http_received,
    .peer_closed = ls_stress_http_peer_closed,
    .compose = compose,
    .closed = ls_stress_http_closed,
};
