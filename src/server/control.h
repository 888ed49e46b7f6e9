/* control.h - the control socket: a Unix socket on which the owner of the process talks to the server.
 *
 * The first line of a connection, sent in one call, says what it is for:
 *
 *     repl             a session of lua/luaserve/repl.lua in a Lua state, until either side closes. Sessions have
 *                      places of their own: the other lines are answered also when all of these are taken
 *     interrupt N      ends the line that the session with the number N computes; the server closes the connection
 *     stats            the values of ls.stats(), one line "name value" each; the server closes the connection
 *     reload           loads the site again; at the end of that "ok", or "failed" and the reason; then it closes
 *
 * All but "repl" run in C, so they are answered also while all Lua states compute. The path has the mode 0600.
 * In addition, the server closes a connection of another user than its own or root. */
#ifndef LS_SERVER_CONTROL_H
#define LS_SERVER_CONTROL_H

#include <stdbool.h>

#include "base/list.h"
#include "net/stream/deadline.h"
#include "port/port.h"
#include "script/site/site.h"

typedef struct ls_control ls_control;

enum { LS_CONTROL_CONNECTIONS_MAX = 64 }; /* and as many sessions */

typedef struct ls_reload_wait { /* of a caller who waits for the end of a reload that begins after the call */
    ls_node node;
    /* Once: LS_OK, or a negative code and the reason. Any thread; it takes no lock of the server. */
    void (*ended)(struct ls_reload_wait *wait, int result, const char *message);
} ls_reload_wait;

typedef void ls_reload_fn(void *server, ls_reload_wait *wait); /* any thread */

/* Listen at the Unix path `path`. `runtime` and its host are used until ls_control_close, `reload` until
 * ls_control_stop. LS_OK or an error of ls_acceptor_open. */
int ls_control_open(ls_port *port, ls_deadlines *deadlines, const ls_runtime *runtime, ls_reload_fn *reload,
                    const char *path, ls_control **out);

/* Begin sessions in the states of `site` from now on. A site that was opened with the option `control`. Any thread; at
 * first before ls_control_start. */
void ls_control_serve(ls_control *control, ls_site *site);

void ls_control_start(ls_thread_ctx *ctx, ls_control *control);
void ls_control_stop(ls_thread_ctx *ctx, ls_control *control); /* accept no further connection; once */
bool ls_control_idle(const ls_control *control); /* after the stop: no connection is left, and none will be accepted */

/* No thread runs any more. The port is open. `ctx` is of any thread. */
void ls_control_close(ls_control *control, ls_thread_ctx *ctx);

#endif
