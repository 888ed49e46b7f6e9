/* control.h - the control socket: a Unix socket on which the owner of the process talks to the server.
 *
 * The first line of a connection, sent in one call, says what it is for:
 *
 *     repl             a session of lua/luaserve/repl.lua in a Lua state, until either side closes. Sessions have
 *                      places of their own: the other lines are answered also when all of these are taken
 *     interrupt N      ends the line that the session with the number N computes; the server closes the connection
 *     stats            the values of ls.stats(), one line "name value" each; the server closes the connection
 *     reload           loads the site again; at the end of that "ok", or "failed" and the reason; then it closes
 *     upgrade          starts the program again, in a process that replaces this one: "ok" when that serves, "ok" and the
 *                      path of a file that it waits for, or "failed" and the reason; then it closes
 *     status           "ok" and what runs now, a line for each task that waits; then it closes
 *     ready, unready   what app:health says from now on; "ok", or "draining" when that is what it says; then it closes
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

typedef struct ls_control_calls { /* of the server, with a wait for the result; any thread */
    void (*reload)(void *server, ls_reload_wait *wait);
    void (*upgrade)(void *server, ls_reload_wait *wait);
    void (*status)(void *server, ls_reload_wait *wait);
} ls_control_calls;

/* Listen at the Unix path `path`. `runtime` and its host are used until ls_control_close, `calls` until
 * ls_control_stop. `replaces`: another process has the path: ls_control_start takes it over. LS_OK or an error of
 * ls_acceptor_open. */
int ls_control_open(ls_port *port, ls_deadlines *deadlines, ls_runtime *runtime, const ls_control_calls *calls,
                    const char *path, bool replaces, ls_control **out);

/* Begin sessions in the states of `site` from now on. A site that was opened with the option `control`. Any thread; at
 * first before ls_control_start. */
void ls_control_serve(ls_control *control, ls_site *site);

void ls_control_start(ls_thread_ctx *ctx, ls_control *control);
void ls_control_stop(ls_thread_ctx *ctx, ls_control *control); /* accept no further connection; once */
bool ls_control_idle(const ls_control *control); /* after the stop: no connection is left, and none will be accepted */

/* No thread runs any more. The port is open. `ctx` is of any thread. */
void ls_control_close(ls_control *control, ls_thread_ctx *ctx);

#endif
