/* echo.c - the echo protocol: the server must send each message back, byte for byte, on a stream or as a datagram. */
#include "stress/protocols/echo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stress/load/worker.h"
#include "stress/protocols/protocols.h"

/* Write the number of message i (from 0) of this virtual user. Returns the length. */
static size_t write_number(const ls_stress_vu *u, uint64_t i, char *to)
{
    return (size_t)snprintf(to, LS_STRESS_ECHO_NUMBER_BYTES_MAX, "%llu. Thread %u - ", (unsigned long long)i + 1,
                            u->index + 1);
}

size_t ls_stress_echo_write(const ls_stress_vu *u, uint64_t i, char *to)
{
    const ls_stress_plan *plan = u->worker->plan;
    const size_t n = write_number(u, i, to);
    memcpy(to + n, plan->message, plan->message_len);
    return n + plan->message_len;
}

bool ls_stress_echo_reserve(ls_stress_vu *u)
{
    if (u->echo.text != NULL) return true;
    u->echo.text = malloc(u->worker->plan->message_len + LS_STRESS_ECHO_NUMBER_BYTES_MAX);
    return u->echo.text != NULL || ls_stress_vu_fail(u, LS_STRESS_ERROR_WRITE);
}

const char *ls_stress_echo_expected(ls_stress_vu *u)
{
    const ls_stress_plan *plan = u->worker->plan;
    if (!plan->numbered) {
        u->echo.len = (uint32_t)plan->message_len;
        return plan->message;
    }
    if (u->echo.at == 0) u->echo.len = (uint32_t)ls_stress_echo_write(u, u->echo.received, u->echo.text);
    return u->echo.text;
}

bool ls_stress_echo_complete(ls_stress_vu *u, const char *expected)
{
    const ls_stress_plan *plan = u->worker->plan;
    u->echo.at = 0;
    u->echo.received++;
    if (plan->show)
        printf("%.*s\n", (int)u->echo.len, expected); /* one call, so that the lines of threads do not mix */
    ls_stress_vu_complete(u, 0);
    if (plan->keepalive) return true;
    ls_stress_vu_retry_later(u);
    ls_stress_vu_close(u);
    ls_stress_worker_check_end(u->worker);
    return false;
}

bool ls_stress_echo_mismatch(ls_stress_vu *u, const char *bytes, size_t len)
{
    return ls_stress_vu_fail_answer(u, "the echo differs from the message", bytes, len);
}

static bool compose(ls_stress_vu *u, uint32_t count)
{
    const ls_stress_plan *plan = u->worker->plan;
    char number[LS_STRESS_ECHO_NUMBER_BYTES_MAX];
    if (!plan->numbered) {
        u->echo.sent += count;
        return ls_stress_vu_put_static(u, plan->request, plan->message_len * count);
    }
    if (!ls_stress_echo_reserve(u)) return false;
    for (uint32_t k = 0; k < count; k++)
        if (!ls_stress_vu_put(u, number, write_number(u, u->echo.sent++, number)) ||
            !ls_stress_vu_put(u, plan->message, plan->message_len))
            return false;
    return true;
}

static bool received(ls_stress_vu *u, const char *bytes, size_t len)
{
    if (len == 0) return ls_stress_echo_mismatch(u, bytes, len); /* an empty datagram */
    do {
        if (u->outstanding == 0) return ls_stress_echo_mismatch(u, bytes, len);
        const char *expected = ls_stress_echo_expected(u);
        const size_t left = u->echo.len - u->echo.at, n = len < left ? len : left;
        if (memcmp(expected + u->echo.at, bytes, n) != 0 ||
            (u->worker->plan->kind == LS_STRESS_TARGET_UDP && len != left))
            return ls_stress_echo_mismatch(u, bytes, len);
        bytes += n;
        len -= n;
        u->echo.at += (uint32_t)n;
        if (u->echo.at == u->echo.len && !ls_stress_echo_complete(u, expected)) return false;
    } while (len > 0);
    return true;
}

static void peer_closed(ls_stress_vu *u)
{
    ls_stress_vu_peer_closed(u, u->echo.at > 0 ? "the server closed the connection in the middle of an echo" : NULL);
}

void ls_stress_echo_closed(ls_stress_vu *u)
{
    u->echo.at = 0;
    u->echo.received = u->echo.sent;
}

const ls_stress_proto ls_stress_echo_proto = {
    .received = received,
    .peer_closed = peer_closed,
    .compose = compose,
    .closed = ls_stress_echo_closed,
};
