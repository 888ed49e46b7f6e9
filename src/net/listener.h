/* listener.h - a listening socket with several accepts posted ahead.
 *
 * Every accepted descriptor goes to `accepted`, whose it is from then on. Past `connection limit->max` connections (a count that
 * listeners may share) each accept keeps the connection that it was given until another has gone, first come, first
 * served; the rest wait in the system's queue. */
#ifndef LS_NET_LISTENER_H
#define LS_NET_LISTENER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/list.h"
#include "base/thread.h"
#include "net/addr.h"
#include "port/port.h"

typedef struct ls_listener ls_listener;

/* The count of connections that all listeners of a server share. */
typedef struct ls_conn_limit {
    _Atomic uint32_t count; /* connections that have a place */
    uint32_t max;
    _Atomic uint32_t accepts; /* of started listeners; with a connection that waits for a place, or without */
    ls_mutex mutex;           /* guards the list */
    ls_node waiting;          /* accepts whose connection waits for a place, the oldest first */
    _Atomic bool has_waiting;
} ls_conn_limit;

int ls_conn_limit_open(ls_conn_limit *limit, uint32_t connections_max);
void ls_conn_limit_close(ls_conn_limit *limit);
void ls_conn_limit_leave(ls_conn_limit *limit); /* a connection has gone; any thread, inside an actor or not */
bool ls_conn_limit_idle(
    const ls_conn_limit *limit); /* no connection is left; when all listeners were stopped, none will come */

typedef void ls_accepted_fn(ls_thread_ctx *ctx, void *user, ls_fd fd, const ls_sockaddr *from);

/* Bind and listen at `at`; accepts are posted by ls_listener_start. On failure nothing is left open. */
int ls_listener_open(ls_port *port, const ls_addr *at, uint32_t backlog, uint32_t accepts, ls_conn_limit *limit,
                     ls_accepted_fn *accepted, void *user, ls_listener **out);
const ls_addr *ls_listener_addr(const ls_listener *listener); /* with the port that was picked */
void ls_listener_start(ls_thread_ctx *ctx, ls_listener *listener);

/* Accept no more. The listener frees itself when its accepts have completed; ls_conn_limit_idle tells when.
 * Connections that the system has completed but nobody accepted are accepted first, so that none of them is cut. */
void ls_listener_stop(ls_thread_ctx *ctx, ls_listener *listener);

#endif
