/* echo.c - the echo protocol: the server must send each message back, byte for byte, on a stream or as a datagram.
 *
 * The message is the plan's; numbered messages are "<i>. Thread <t> - <message>", where i counts the messages of
 * connection t, both from 1. The expected message is computed from its number, so sent messages are not stored. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stress/worker.h"

enum { NUMBER_BYTES_MAX = 48 }; /* of "<i>. Thread <t> - " */

/* Write the number of message i (from 0) of this virtual user: at most NUMBER_BYTES_MAX bytes. Returns the length. */
static size_t write_number(const ls_stress_vu *u, uint64_t i, char *to)
{
    return (size_t)snprintf(to, NUMBER_BYTES_MAX, "%llu. Thread %u - ", (unsigned long long)i + 1, u->index + 1);
}

/* Write the expected message i. Returns the length. */
static size_t write_expected(const ls_stress_vu *u, uint64_t i, char *to)
{
    const ls_stress_plan *plan = u->worker->plan;
    const size_t n = write_number(u, i, to);
    memcpy(to + n, plan->message, plan->message_len);
    return n + plan->message_len;
}

static bool compose(ls_stress_vu *u, uint32_t count)
{
    const ls_stress_plan *plan = u->worker->plan;
    char number[NUMBER_BYTES_MAX];
    if (!plan->numbered) {
        u->echo.sent += count;
        return ls_stress_vu_put_static(u, plan->request, plan->message_len * count);
    }
    if (u->echo.text == NULL && (u->echo.text = malloc(plan->message_len + NUMBER_BYTES_MAX)) == NULL) {
        ls_stress_vu_fail(u, LS_STRESS_ERROR_WRITE);
        return false;
    }
    for (uint32_t k = 0; k < count; k++)
        if (!ls_stress_vu_put(u, number, write_number(u, u->echo.sent++, number)) ||
            !ls_stress_vu_put(u, plan->message, plan->message_len))
            return false;
    return true;
}

static bool mismatch(ls_stress_vu *u, const char *bytes, size_t len)
{
    ls_stress_worker_record_failure(u->worker, "the echo differs from the message", bytes, len);
    ls_stress_vu_fail(u, LS_STRESS_ERROR_ANSWER);
    return false;
}

static bool received(ls_stress_vu *u, const char *bytes, size_t len)
{
    const ls_stress_plan *plan = u->worker->plan;
    const char *expected = plan->message;
    if (len == 0) return mismatch(u, bytes, len); /* an empty datagram */
    do {
        if (u->outstanding == 0) return mismatch(u, bytes, len);
        if (u->echo.at == 0)
            u->echo.len = plan->numbered ? (uint32_t)write_expected(u, u->echo.received, u->echo.text)
                                         : (uint32_t)plan->message_len;
        if (plan->numbered) expected = u->echo.text;
        const size_t left = u->echo.len - u->echo.at, n = len < left ? len : left;
        if (memcmp(expected + u->echo.at, bytes, n) != 0) return mismatch(u, bytes, len);
        if (plan->target.kind == LS_STRESS_TARGET_UDP && len != left) return mismatch(u, bytes, len);
        bytes += n;
        len -= n;
        u->echo.at += (uint32_t)n;
        if (u->echo.at == u->echo.len) {
            u->echo.at = 0;
            u->echo.received++;
            if (plan->show)
                printf("%.*s\n", (int)u->echo.len, expected); /* one call, so that the lines of threads do not mix */
            ls_stress_vu_complete(u, 0);
            if (!plan->config.keepalive) {
                ls_stress_vu_retry_later(u);
                ls_stress_vu_close(u);
                ls_stress_worker_check_end(u->worker);
                return false;
            }
        }
    } while (len > 0);
    return true;
}

static void peer_closed(ls_stress_vu *u)
{
    if (u->outstanding > 0) {
        if (u->echo.at > 0)
            ls_stress_worker_record_failure(u->worker, "the server closed the connection in the middle of an echo", "",
                                            0);
        ls_stress_vu_fail(u, LS_STRESS_ERROR_READ);
    } else {
        if (!u->used) u->reconnect_later = true;
        ls_stress_vu_close(u);
    }
}

/* Echoes of sent messages do not arrive on another connection. */
static void closed(ls_stress_vu *u)
{
    u->echo.at = 0;
    u->echo.received = u->echo.sent;
}

const ls_stress_proto ls_stress_echo_proto = {
    .received = received,
    .peer_closed = peer_closed,
    .compose = compose,
    .closed = closed,
};
