/* echo.c - messages that must come back as they were sent, byte for byte, on a stream or as datagrams: the message of
 * the plan as it is, or numbered: "<i>. Thread <t> - <message>", where i counts the messages of connection t, both from 1.
 *
 * What is expected next is written anew from its number, so nothing that was sent has to be kept. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stress/worker.h"

enum { NUMBER_BYTES_MAX = 48 }; /* of "<i>. Thread <t> - " */

/* Write message number i (from 0) of this virtual user, which is at most message_len + NUMBER_BYTES_MAX long. */
static size_t write_message(const ls_stress_vu *u, uint64_t i, char *to)
{
    const ls_stress_plan *plan = u->worker->plan;
    int n = snprintf(to, NUMBER_BYTES_MAX, "%llu. Thread %u - ", (unsigned long long)i + 1, u->index + 1);
    memcpy(to + n, plan->message, plan->message_len);
    return (size_t)n + plan->message_len;
}

static bool compose(ls_stress_vu *u, uint32_t count)
{
    const ls_stress_plan *plan = u->worker->plan;
    char *to;
    if (!plan->numbered) {
        u->slice = ls_slice_static(plan->request, plan->message_len * count);
        u->sent_count += count;
        return true;
    }
    if (u->text == NULL) u->text = malloc(plan->message_len + NUMBER_BYTES_MAX);
    if (u->text == NULL || !ls_stress_vu_room(u, (plan->message_len + NUMBER_BYTES_MAX) * count, &to)) {
        ls_stress_vu_fail(u, LS_STRESS_ERROR_WRITE);
        return false;
    }
    size_t len = 0;
    for (uint32_t k = 0; k < count; k++) len += write_message(u, u->sent_count++, to + len);
    u->slice.len = len;
    return true;
}

static bool differs(ls_stress_vu *u, const char *bytes, size_t len)
{
    ls_stress_worker_note_failure(u->worker, "an echo that is not what was sent", bytes, len);
    ls_stress_vu_fail(u, LS_STRESS_ERROR_ANSWER);
    return false;
}

static bool received(ls_stress_vu *u, const char *bytes, size_t len)
{
    const ls_stress_plan *plan = u->worker->plan;
    const char *expected = plan->message;
    if (len == 0) return differs(u, bytes, len); /* an empty datagram */
    do {
        if (u->outstanding == 0) return differs(u, bytes, len);
        if (u->echo_at == 0)
            u->echo_len =
                plan->numbered ? (uint32_t)write_message(u, u->echo_count, u->text) : (uint32_t)plan->message_len;
        if (plan->numbered) expected = u->text;
        const size_t left = u->echo_len - u->echo_at, n = len < left ? len : left;
        if (memcmp(expected + u->echo_at, bytes, n) != 0) return differs(u, bytes, len);
        if (plan->target.kind == LS_TARGET_UDP && len != left) return differs(u, bytes, len);
        bytes += n;
        len -= n;
        u->echo_at += (uint32_t)n;
        if (u->echo_at == u->echo_len) {
            u->echo_at = 0;
            u->echo_count++;
            if (plan->show) printf("%.*s\n", (int)u->echo_len, expected); /* one call: lines do not mix */
            ls_stress_vu_answered(u, 0);
            if (!plan->config.keepalive) {
                ls_stress_vu_retry_later(u);
                ls_stress_vu_close(u);
                ls_stress_worker_look(u->worker);
                return false;
            }
        }
    } while (len > 0);
    return true;
}

static void ended(ls_stress_vu *u)
{
    if (u->outstanding > 0) {
        if (u->echo_at > 0)
            ls_stress_worker_note_failure(u->worker, "the server hung up in the middle of an echo", "", 0);
        ls_stress_vu_fail(u, LS_STRESS_ERROR_READ);
    } else {
        if (!u->used) u->broken = true;
        ls_stress_vu_close(u);
    }
}

/* What was on its way does not come back on another connection. */
static void lost(ls_stress_vu *u)
{
    u->echo_at = 0;
    u->echo_count = u->sent_count;
}

const ls_stress_proto ls_stress_echo = {
    .received = received,
    .ended = ended,
    .compose = compose,
    .lost = lost,
};
