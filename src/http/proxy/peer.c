/* peer.c - see peer.h. */
#include "http/proxy/peer.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"

#define LEAST 0.1 /* share of a server that was down */

enum { REFUSED_MS = 1000 /* between two lines of the log */ };

static int peer_open(const void *options, ls_shared_object **out)
{
    ls_peer *peer = calloc(1, sizeof *peer);
    if (peer == NULL) return LS_ENOMEM;
    *out = &peer->shared;
    return LS_OK;
}

static void peer_close(ls_shared_object *object)
{
    free(object);
}

static void peer_look(ls_shared_object *object, uint64_t figures[LS_FIGURES_MAX])
{
    ls_peer *peer = (ls_peer *)(void *)object;
    figures[0] = atomic_load(&peer->active);
    figures[1] = atomic_load(&peer->unhealthy) || atomic_load(&peer->down_until_ms) > ls_clock_coarse_ms();
}

const ls_shared_kind ls_peer_kind = {
    .name = "upstream", .open = peer_open, .close = peer_close, .look = peer_look, .figures = {"requests", "down"}};

double ls_peer_share(const ls_peer *peer, uint64_t now_ms, uint32_t slow_ms, bool checked)
{
    const uint64_t until_ms = atomic_load_explicit(&peer->down_until_ms, memory_order_relaxed);
    if ((checked && atomic_load_explicit(&peer->unhealthy, memory_order_relaxed)) || now_ms < until_ms) return 0;
    if (until_ms == 0 || now_ms - until_ms >= slow_ms) return 1;
    return LEAST + (1 - LEAST) * (double)(now_ms - until_ms) / slow_ms;
}

bool ls_peer_failed(ls_peer *peer, uint64_t now_ms, uint32_t fails_max, uint32_t down_ms)
{
    if (atomic_fetch_add(&peer->fails, 1) + 1 < fails_max) return false;
    atomic_store(&peer->fails, 0);
    atomic_store(&peer->down_until_ms, now_ms + down_ms);
    return !atomic_exchange(&peer->out, true); /* after down_until_ms: see ls_peer_back */
}

bool ls_peer_back(ls_peer *peer, uint64_t now_ms)
{
    return atomic_load(&peer->out) && now_ms >= atomic_load(&peer->down_until_ms) &&
           atomic_exchange(&peer->out, false);
}

uint32_t ls_peer_refused(ls_peer *peer, uint64_t now_ms, uint32_t count)
{
    uint64_t due_ms = atomic_load(&peer->refused_due_ms);
    if (atomic_fetch_add(&peer->refused, count) + count == 0) return 0;
    if (now_ms < due_ms || !atomic_compare_exchange_strong(&peer->refused_due_ms, &due_ms, now_ms + REFUSED_MS))
        return 0;
    return atomic_exchange(&peer->refused, 0);
}

void ls_peer_mark(ls_peer *peer, uint64_t now_ms, bool healthy)
{
    const bool was = !atomic_exchange(&peer->unhealthy, !healthy);
    if (healthy && !was) atomic_store(&peer->down_until_ms, now_ms); /* it starts slowly */
}
