/* ws_echo.c - the echo protocol on a WebSocket: the server must send each message back as a message of the same
 * kind. */
#include <stdlib.h>
#include <string.h>

#include "stress/load/worker.h"
#include "stress/load/ws_frames.h"
#include "stress/protocols/echo.h"
#include "stress/protocols/protocols.h"

static enum ls_ws_opcode opcode(const ls_stress_plan *plan)
{
    return plan->binary ? LS_WS_BINARY : LS_WS_TEXT;
}

static bool compose_numbered(ls_stress_vu *u)
{
    const ls_stress_plan *plan = u->worker->plan;
    const size_t room = plan->message_len + LS_STRESS_ECHO_NUMBER_BYTES_MAX;
    char *scratch = malloc(room + ls_stress_ws_frame_bytes(room));
    if (scratch == NULL) return ls_stress_vu_fail(u, LS_STRESS_ERROR_WRITE);
    const size_t len = ls_stress_echo_write(u, u->echo.sent++, scratch);
    const bool ok =
        ls_stress_vu_put(u, scratch + room, ls_stress_ws_message(u, opcode(plan), scratch, len, scratch + room));
    free(scratch);
    return ok;
}

static bool compose(ls_stress_vu *u, uint32_t count)
{
    const ls_stress_plan *plan = u->worker->plan;
    if (!plan->numbered) {
        u->echo.sent += count;
        return plan->packed != NULL && u->ws->deflate
                   ? ls_stress_vu_put_static(u, plan->packed, plan->packed_len * count)
                   : ls_stress_vu_put_static(u, plan->request, plan->request_len * count);
    }
    if (!ls_stress_echo_reserve(u)) return false;
    for (uint32_t k = 0; k < count; k++)
        if (!compose_numbered(u)) return false;
    return true;
}

static bool message(ls_stress_vu *u, const char *bytes, size_t len, bool last)
{
    if (u->outstanding == 0 || u->ws->text == u->worker->plan->binary) return ls_stress_echo_mismatch(u, bytes, len);
    const char *expected = ls_stress_echo_expected(u);
    const size_t left = u->echo.len - u->echo.at;
    if (len > left || memcmp(expected + u->echo.at, bytes, len) != 0 || (last && len != left))
        return ls_stress_echo_mismatch(u, bytes, len);
    u->echo.at += (uint32_t)len;
    return !last || ls_stress_echo_complete(u, expected);
}

static void closed(ls_stress_vu *u)
{
    ls_stress_echo_closed(u);
    ls_stress_ws_closed(u);
}

const ls_stress_proto ls_stress_ws_echo_proto = {
    .received = ls_stress_ws_received,
    .peer_closed = ls_stress_ws_peer_closed,
    .compose = compose,
    .closed = closed,
    .message = message,
    .upgrade = ls_stress_ws_upgrade,
    .free = ls_stress_ws_free,
};
