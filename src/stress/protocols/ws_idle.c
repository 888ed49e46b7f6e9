/* ws_idle.c - connections without messages: those that stay idle (--hold), and those that come and go (--cycles). */
#include <string.h>

#include "stress/load/worker.h"
#include "stress/load/ws_frames.h"
#include "stress/protocols/protocols.h"

/* ---- idle ------------------------------------------------------------------------------------------------------- */

static bool ignore(ls_stress_vu *u, const char *bytes, size_t len)
{
    return true;
}

static void peer_closed(ls_stress_vu *u)
{
    ls_stress_vu_peer_closed(u, "the server closed an idle connection");
}

const ls_stress_proto ls_stress_hold_proto = {.received = ignore, .peer_closed = peer_closed};

static bool send_subscribe(ls_stress_vu *u)
{
    const char *text = u->worker->plan->subscribe;
    return text == NULL || ls_stress_ws_send(u, LS_WS_TEXT, text, strlen(text));
}

const ls_stress_proto ls_stress_ws_hold_proto = {
    .opened = send_subscribe,
    .received = ls_stress_ws_received,
    .peer_closed = ls_stress_ws_peer_closed,
    .closed = ls_stress_ws_closed,
    .upgrade = ls_stress_ws_upgrade,
    .free = ls_stress_ws_free,
};

/* ---- cycles: a request is a connection, from its connect to the end of the closing handshake -------------------- */

static void begin_close(ls_stress_vu *u)
{
    u->close_received = false;
    if (u->connect_start_ns > u->worker->start_ns) u->requests[u->first].sent_ns = u->connect_start_ns;
    if (send_subscribe(u)) (void)ls_stress_ws_close(u, LS_WS_NORMAL, "", 0);
}

/* The server's Close frame, then the end of the connection, which the server begins (RFC 6455 section 7.1.1). */
static void cycle_peer_closed(ls_stress_vu *u)
{
    if (u->ws->code == 0 || u->outstanding == 0) {
        ls_stress_ws_peer_closed(u);
        return;
    }
    if (!u->close_received) {
        u->close_received = true;
        return;
    }
    u->worker->now_ns = ls_stress_worker_now(u->worker);
    ls_stress_vu_complete(u, 0);
    u->inactive = u->left == 0;
    ls_stress_vu_close(u);
    ls_stress_worker_check_end(u->worker);
}

const ls_stress_proto ls_stress_ws_cycle_proto = {
    .received = ls_stress_ws_received,
    .peer_closed = cycle_peer_closed,
    .closed = ls_stress_ws_closed,
    .start = begin_close,
    .upgrade = ls_stress_ws_upgrade,
    .free = ls_stress_ws_free,
};
