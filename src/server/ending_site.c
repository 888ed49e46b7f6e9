/* ending_site.c - the end of an old generation: its tasks end, then its Lua states are closed while the server runs.
 *
 *     BUSY --> CLOSING --> CLOSED --> freed
 *
 * BUSY ends with the grace period of the swap, when no packet that found the old handlers runs, and nothing that was
 * replaced gives it work any more (a handshake that began before, connections of an address that was removed). From
 * then on it only loses tasks. CLOSING closes each Lua state after its last task. The thread that closed the last one
 * may still be inside, hence the second grace period. After drain_timeout its connections are aborted and
 * its tasks end.
 *
 * WebSockets outlive a reload: BUSY lasts as long as the generation has one. Tasks that wait in a channel for work end
 * as without a WebSocket, when nothing else is left; after drain_timeout the connections of its endpoints are aborted
 * and all tasks end but those of the WebSockets and what these have begun.
 * Beyond old_sites, or after old_site_timeout, they are closed with 1012, and handlers that continue get another
 * drain_timeout. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "server/server_internal.h"

enum {
    ABORT_MS = 1000,    /* time given to aborted connections before the handlers that they wait for end */
    LATE_MS = 5000,     /* after the end of the tasks, a handler that does not end is logged */
    WEBSOCKETS_MS = 500 /* interval of the checks of a generation that only WebSockets use */
};

/* drain_timeout is over: abort the connections of its endpoints. */
static void abort_connections(ls_server *server, ls_ending_site *g, unsigned websockets)
{
    if (websockets > 0)
        ls_log(LS_LOG_INFO, "the previous site continues for %u WebSocket connection%s; its other tasks end",
               websockets, websockets == 1 ? "" : "s");
    else
        ls_log(LS_LOG_WARN, "the previous site has not ended within %.3g s: its connections and tasks are ended",
               server->settings.drain_ms_max / 1e3);
    for (ls_node *node = server->endpoints.next; node != &server->endpoints; node = node->next) {
        ls_endpoint *e = LS_CONTAINER(node, ls_endpoint, node);
        if (e->ops->abort_until != NULL) e->ops->abort_until(e, g->number);
    }
    if (websockets > 0) ls_site_end_work(g->site, LS_END_TIME);
    g->aborted = true;
}

static void log_unfinished(ls_ending_site *g)
{
    unsigned counts[LS_SCOPES], sum = 0;
    char text[LS_SCOPE_TEXT_BYTES];
    if (!ls_site_unfinished(g->site, counts)) return;
    g->unfinished_logged = true;
    for (int scope = 0; scope < LS_SCOPES; scope++) sum += counts[scope];
    ls_scope_describe(counts, text, sizeof text);
    if (sum > 0) ls_log(LS_LOG_WARN, "ended with the previous site, unfinished: %s", text);
}

static uint64_t ms_since(uint64_t ns)
{
    return (ls_clock_ns() - ns) / 1000000u;
}

void ls_server_leave(ls_server *server, ls_ending_site *g, const char *why)
{
    const unsigned websockets = ls_site_websockets(g->site);
    if (websockets > 0)
        ls_log(LS_LOG_INFO, "the previous site closes %u WebSocket connection%s with 1012: %s", websockets,
               websockets == 1 ? "" : "s", why);
    g->left_ns = ls_clock_ns();
    server->websockets_left += websockets;
    ls_site_end_work(g->site, LS_END_OUTDATED);
}

/* Close the WebSockets of the replaced sites that are too many, the oldest first, or too old. */
static void limit_replaced_sites(ls_server *server)
{
    const ls_site_settings *settings = &server->settings;
    unsigned kept = 0;
    for (ls_node *node = server->ending.prev, *before; node != &server->ending; node = before) { /* the newest first */
        ls_ending_site *g = LS_CONTAINER(node, ls_ending_site, node);
        before = node->prev;
        if (g->left_ns != 0 || ls_site_websockets(g->site) == 0) continue;
        if (kept == settings->old_sites_max)
            ls_server_leave(server, g, "old_sites of ls.config is exceeded");
        else if (settings->old_site_ms_max > 0 && ms_since(g->retired_ns) >= settings->old_site_ms_max)
            ls_server_leave(server, g, "old_site_timeout of ls.config is over");
        else
            kept++;
    }
}

/* `needed`: the number of the oldest generation that may still get work. true: the site is freed. */
static bool step(ls_server *server, ls_ending_site *g, uint64_t needed)
{
    const uint32_t drain_ms = server->settings.drain_ms_max;
    const unsigned websockets = ls_site_websockets(g->site);
    if (!g->aborted && ms_since(g->retired_ns) >= drain_ms) abort_connections(server, g, websockets);
    const bool left = websockets == 0 || (g->left_ns != 0 && ms_since(g->left_ns) >= drain_ms);
    if (g->aborted && !g->forced && left) {
        g->forced = true;
        g->forced_ns = ls_clock_ns();
    }
    const uint64_t forced_ms = g->forced ? ms_since(g->forced_ns) : 0;
    if (g->aborted && !g->unfinished_logged) log_unfinished(g);
    g->waits_for_websockets = g->aborted && !g->forced && g->stage == ENDING_BUSY;
    if (!g->late_logged && forced_ms >= LATE_MS) {
        g->late_logged = true;
        ls_log(LS_LOG_WARN, "a handler of the previous site does not end: its memory is kept until it does");
    }
    const bool late = forced_ms >= ABORT_MS;
    switch (g->stage) {
    case ENDING_BUSY:
        if (!ls_grace_over(&server->grace, g->ticket) || (needed <= g->number && !late)) return false;
        if (websockets > 0 && !late) {
            if (!g->aborted) ls_site_end_work(g->site, LS_END_UNUSED);
            return false;
        }
        g->stage = ENDING_CLOSING;
        return false;
    case ENDING_CLOSING:
        if (!ls_site_end(g->site, g->forced) || needed <= g->number) return false;
        g->ticket = ls_grace_begin(&server->grace);
        g->stage = ENDING_CLOSED;
        return false;
    default:
        if (!ls_grace_over(&server->grace, g->ticket)) return false;
        ls_site_close(g->site);
        return true;
    }
}

void ls_server_begin_jobs(ls_server *server)
{
    unsigned counts[LS_SCOPES] = {0};
    for (const ls_node *node = server->ending.next; node != &server->ending; node = node->next) {
        const ls_ending_site *g = LS_CONTAINER(node, ls_ending_site, node);
        if (!g->aborted) ls_site_add_running(g->site, counts);
    }
    if (counts[LS_SCOPE_SITE] == 0) ls_site_begin_jobs(server->site);
}

uint32_t ls_server_poll_generations(ls_server *server)
{
    ls_mutex_lock(&server->lists);
    const uint64_t oldest = ls_list_empty(&server->ending)
                                ? server->generation
                                : LS_CONTAINER(server->ending.next, ls_ending_site, node)->number;
    uint64_t needed =
        ls_endpoints_drain_removed(&server->env, &server->removed, server->settings.drain_ms_max, oldest);
    bool active = !ls_list_empty(&server->removed);
    for (ls_node *node = server->endpoints.next; node != &server->endpoints; node = node->next) {
        ls_endpoint *e = LS_CONTAINER(node, ls_endpoint, node);
        const uint64_t of_it = e->ops->free_replaced != NULL ? e->ops->free_replaced(e) : UINT64_MAX;
        if (of_it < needed) needed = of_it;
    }
    limit_replaced_sites(server);
    for (ls_node *node = server->ending.next, *next; node != &server->ending; node = next) {
        ls_ending_site *g = LS_CONTAINER(node, ls_ending_site, node);
        next = node->next;
        if (!step(server, g, needed)) {
            active |= !g->waits_for_websockets;
            continue;
        }
        ls_list_remove(&g->node);
        free(g);
        ls_log(LS_LOG_DEBUG, "the previous site has ended");
    }
    ls_server_begin_jobs(server);
    const bool left = !ls_list_empty(&server->ending);
    ls_mutex_unlock(&server->lists);
    return active || needed != UINT64_MAX ? SUPERVISE_MS : left ? WEBSOCKETS_MS : 0;
}

unsigned ls_server_busy(ls_server *server)
{
    ls_mutex_lock(&server->lists);
    unsigned sum = ls_site_busy(server->site);
    for (const ls_node *node = server->ending.next; node != &server->ending; node = node->next)
        sum += ls_site_busy(LS_CONTAINER(node, ls_ending_site, node)->site);
    ls_mutex_unlock(&server->lists);
    return sum;
}
