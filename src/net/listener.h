/* listener.h - a listening socket with several accepts posted ahead.
 *
 * `accepted` owns every descriptor it receives. Past limit->max connections (several listeners may share the count)
 * each accept holds its connection until another connection has closed, first come, first served; further connections
 * stay in the system's queue. */
#ifndef LS_NET_LISTENER_H
#define LS_NET_LISTENER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/list.h"
#include "base/os/thread.h"
#include "net/sock/sock.h"
#include "port/port.h"

typedef struct ls_listener ls_listener;

/* The connection count, shared by all listeners of a server. */
typedef struct ls_conn_limit {
    _Atomic uint32_t count; /* admitted connections */
    uint32_t max;
    _Atomic uint32_t accepts; /* slots of started listeners, with or without a waiting connection */
    ls_mutex mutex;           /* guards the list */
    ls_node waiting;          /* slots whose connection is not admitted yet, oldest first */
    _Atomic bool has_waiting;
} ls_conn_limit;

void ls_conn_limit_open(ls_conn_limit *limit, uint32_t connections_max);
void ls_conn_limit_close(ls_conn_limit *limit);
bool ls_conn_limit_enter(ls_conn_limit *limit); /* count one connection if the limit allows it */
void ls_conn_limit_leave(ls_conn_limit *limit); /* a connection has closed; any thread, inside an actor or not */

/* No connection is left. After every listener has stopped, no further one is accepted. */
bool ls_conn_limit_idle(const ls_conn_limit *limit);

typedef void ls_accepted_fn(ls_thread_ctx *ctx, void *user, ls_fd fd, const ls_sockaddr *from);

typedef struct ls_listener_options {
    uint32_t backlog;
    uint32_t accepts;             /* posted in advance */
    const ls_path_access *access; /* NULL: none; see ls_sock_listen */
    void (*ended)(void *user);    /* NULL, or called once after the stop, when the last accept has completed */
} ls_listener_options;

/* Bind to `at` and listen; ls_listener_start posts the accepts. On failure nothing is left open. Errors: see
 * ls_sock_listen and ls_sock_attach. */
int ls_listener_open(ls_port *port, const ls_addr *at, const ls_listener_options *options, ls_conn_limit *limit,
                     ls_accepted_fn *accepted, void *user, ls_listener **out);
const ls_addr *ls_listener_addr(const ls_listener *listener); /* with the actual port */
void ls_listener_start(ls_thread_ctx *ctx, ls_listener *listener);

/* Change the length of the system's queue of connections; without effect where the system fixes it at the start. */
void ls_listener_set_backlog(ls_listener *listener, uint32_t backlog);

/* Another process has the socket as well, or not: with `kept` the stop leaves to it the connections that wait, and the
 * path. Before the stop, on its thread. Returns the socket. */
ls_fd ls_listener_keep(ls_listener *listener, bool kept);

/* Stop accepting. The listener frees itself when its accepts have completed; see ls_conn_limit_idle. Connections that
 * the system has completed are accepted first, so that none of them is dropped. */
void ls_listener_stop(ls_thread_ctx *ctx, ls_listener *listener);

#endif
