/* fanout_sse.c - fan-out over server-sent events: its subscribers. Publishers are requests of http.c. See fanout.h. */
#include <stdlib.h>
#include <string.h>

#include "stress/fanout.h"
#include "stress/subscriber.h"

enum phase { AT_HEAD, AT_BODY }; /* the first: ls_stress_http_closed() */

static bool fail(ls_stress_vu *u, const char *why, const char *bytes, size_t len)
{
    ls_stress_worker_record_failure(u->worker, why, bytes, len);
    u->reconnect_later = true;
    ls_stress_vu_fail(u, LS_STRESS_ERROR_ANSWER);
    return false;
}

static bool opened(ls_stress_vu *u)
{
    const ls_stress_plan *plan = u->worker->plan;
    size_t len;
    char *path = ls_stress_fanout_topic(plan->target.path, u->topic);
    char *request = path != NULL ? ls_stress_plan_request(plan, "GET", path, NULL, 0, 1, &len) : NULL;
    free(path);
    if (request == NULL) return fail(u, ls_err_text(LS_ENOMEM), "", 0);
    ls_sse_reset(&u->subscriber->sse);
    /* Before the empty line at the end. */
    const bool ok = ls_stress_vu_put(u, request, len - 2) &&
                    ls_stress_vu_put_static(u, "Accept: text/event-stream\r\n\r\n", 29) && ls_stress_vu_send(u);
    free(request);
    return ok;
}

static bool is_event_stream(const ls_stress_vu *u)
{
    static const char type[] = "text/event-stream";
    ls_pair field;
    for (size_t at = 0; ls_http1_response_field(u->http.buf, &u->http.head, &at, &field);)
        if (ls_text_same(field.name, field.name_len, "content-type", 12))
            return field.value_len >= sizeof type - 1 &&
                   ls_text_same(field.value, sizeof type - 1, type, sizeof type - 1);
    return false;
}

/* Continue with the head. Returns the bytes used of these; 0: all, and the head is incomplete; or negative: failed. */
static int read_head(ls_stress_vu *u, const char *bytes, size_t len)
{
    const uint32_t before = u->http.buf_len;
    const char *why = NULL;
    if (before + len > u->http.buf_room) {
        char *buf = realloc(u->http.buf, before + len);
        if (buf == NULL) return (void)fail(u, ls_err_text(LS_ENOMEM), "", 0), LS_ENOMEM;
        u->http.buf = buf;
        u->http.buf_room = (uint32_t)(before + len);
    }
    memcpy(u->http.buf + before, bytes, len);
    u->http.buf_len += (uint32_t)len;
    const int n = ls_http1_parse_response(u->http.buf, u->http.buf_len, before, LS_STRESS_HEAD_BYTES_MAX, false,
                                          &u->http.head, &why);
    if (n == 0) return 0;
    if (n > 0 && u->http.head.status != 200) why = "a subscriber needs a response with status 200";
    if (n > 0 && why == NULL && !is_event_stream(u))
        why = "a subscriber needs a response of the type text/event-stream";
    if (n > 0 && why == NULL && u->http.head.framing != LS_FRAMING_CHUNKED &&
        u->http.head.framing != LS_FRAMING_TO_END)
        why = "the response of a subscriber has a Content-Length: it ends";
    if (n < 0 || why != NULL) {
        (void)fail(u, why, u->http.buf, u->http.buf_len);
        return LS_EPROTO;
    }
    u->http.buf_len = 0;
    u->http.phase = AT_BODY;
    ls_chunks_init(&u->http.chunks);
    return n - (int)before;
}

static bool read_events(ls_stress_vu *u, const char *bytes, size_t len)
{
    const char *data;
    size_t at = 0, data_len;
    bool failed;
    while (ls_sse_next(&u->subscriber->sse, bytes, len, &at, &data, &data_len, &failed)) {
        ls_stress_fanout_deliver(u, data, data_len);
        if (u->state != LS_STRESS_VU_OPEN) return false;
    }
    return !failed || fail(u, "not enough memory for an event", "", 0);
}

static bool received(ls_stress_vu *u, const char *bytes, size_t len)
{
    if (u->http.phase == AT_HEAD) {
        const int used = read_head(u, bytes, len);
        if (used <= 0) return used == 0;
        bytes += used;
        len -= (size_t)used;
    }
    if (u->http.head.framing == LS_FRAMING_TO_END) return read_events(u, bytes, len);
    while (len > 0) {
        ls_chunk_run run;
        const char *why = NULL;
        if (ls_chunks_next(&u->http.chunks, bytes, len, &run, &why) < 0) return fail(u, why, bytes, len);
        if (run.len > 0 && !read_events(u, bytes + run.from, run.len)) return false;
        if (run.end) return fail(u, "the server ended the response of a subscriber", "", 0);
        bytes += run.used;
        len -= run.used;
    }
    return true;
}

static void peer_closed(ls_stress_vu *u)
{
    ls_stress_worker_record_failure(u->worker, "the server closed the connection of a subscriber", "", 0);
    u->reconnect_later = true;
    ls_stress_vu_fail(u, LS_STRESS_ERROR_READ);
}

const ls_stress_proto ls_stress_sse_subscriber_proto = {
    .opened = opened,
    .received = received,
    .peer_closed = peer_closed,
    .closed = ls_stress_http_closed,
};
