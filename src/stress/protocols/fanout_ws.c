/* fanout_ws.c - fan-out over WebSocket: its subscribers and publishers. See fanout.h. */
#include <stdlib.h>
#include <string.h>

#include "stress/load/ws_frames.h"
#include "stress/protocols/fanout.h"
#include "stress/protocols/protocols.h"

/* ---- subscribers ------------------------------------------------------------------------------------------------ */

static bool subscriber_opened(ls_stress_vu *u)
{
    const ls_stress_plan *plan = u->worker->plan;
    if (u->subscriber != NULL) u->subscriber->at = 0;
    if (plan->subscribe == NULL) return true;
    char *text = ls_stress_plan_topic(plan->subscribe, u->topic);
    if (text == NULL) return ls_stress_vu_fail(u, LS_STRESS_ERROR_WRITE);
    const bool ok = ls_stress_ws_send(u, LS_WS_TEXT, text, strlen(text));
    free(text);
    return ok;
}

/* Keep the head of a message that arrives in parts, and compare the rest. */
static void keep_part(ls_stress_vu *u, const char *bytes, size_t len)
{
    const ls_stress_plan *plan = u->worker->plan;
    struct ls_stress_subscriber *s = u->subscriber;
    if (s->at < sizeof s->head) {
        const size_t n = len < sizeof s->head - s->at ? len : sizeof s->head - s->at;
        memcpy(s->head + s->at, bytes, n);
        s->at += n;
        bytes += n;
        len -= n;
    }
    if (len == 0) return;
    const size_t from = s->at - sizeof s->head;
    s->differs |= len > plan->message_len - from || memcmp(plan->message + from, bytes, len) != 0;
    if (!s->differs) s->at += len;
}

static bool subscriber_message(ls_stress_vu *u, const char *bytes, size_t len, bool last)
{
    struct ls_stress_subscriber *s = u->subscriber;
    ls_delivery_head head;
    if (last && s->at == 0) {
        ls_stress_fanout_deliver(u, bytes, len);
        return u->state == LS_STRESS_VU_OPEN;
    }
    if (s->at == 0) s->differs = false;
    keep_part(u, bytes, len);
    if (!last) return true;
    const bool whole = s->at == sizeof s->head + u->worker->plan->message_len && !s->differs;
    const size_t at = s->at;
    s->at = 0;
    if (whole && ls_delivery_read(s->head, sizeof s->head, &head))
        ls_stress_fanout_count(u, &head);
    else
        ls_stress_fanout_deliver(u, s->head, at < sizeof s->head ? at : sizeof s->head); /* not ours, or it differs */
    return u->state == LS_STRESS_VU_OPEN;
}

static void subscriber_free(ls_stress_vu *u)
{
    ls_stress_ws_free(u);
    ls_stress_fanout_free(u);
}

const ls_stress_proto ls_stress_ws_subscriber_proto = {
    .opened = subscriber_opened,
    .received = ls_stress_ws_received,
    .peer_closed = ls_stress_ws_peer_closed,
    .closed = ls_stress_ws_closed,
    .message = subscriber_message,
    .upgrade = ls_stress_ws_upgrade,
    .free = subscriber_free,
};

/* ---- publishers ------------------------------------------------------------------------------------------------- */

static bool publisher_compose(ls_stress_vu *u, uint32_t count)
{
    const ls_stress_plan *plan = u->worker->plan;
    const size_t len = LS_DELIVERY_HEAD_BYTES + plan->message_len;
    char *payload = malloc(len + ls_stress_ws_frame_bytes(len)), *frame = payload + len;
    if (payload == NULL) return ls_stress_vu_fail(u, LS_STRESS_ERROR_WRITE);
    bool ok = true;
    for (uint32_t k = u->outstanding - count; ok && k < u->outstanding; k++) {
        ls_stress_fanout_write(u, k, payload);
        ok = ls_stress_vu_put(u, frame,
                              ls_stress_ws_message(u, plan->binary ? LS_WS_BINARY : LS_WS_TEXT, payload, len, frame));
    }
    free(payload);
    return ok;
}

/* The publication is over when it is sent. */
static void publisher_start(ls_stress_vu *u)
{
    if (!ls_stress_vu_send(u)) return;
    while (u->outstanding > 0) ls_stress_vu_retire(u);
    ls_stress_worker_check_end(u->worker);
}

const ls_stress_proto ls_stress_ws_publisher_proto = {
    .received = ls_stress_ws_received,
    .peer_closed = ls_stress_ws_peer_closed,
    .compose = publisher_compose,
    .closed = ls_stress_ws_closed,
    .start = publisher_start,
    .upgrade = ls_stress_ws_upgrade,
    .free = ls_stress_ws_free,
};
