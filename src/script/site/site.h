/* site.h - one generation of a site: its file, its Lua states and what they define. The interface between the script
 * layer and the server, which includes no other header of it (scripts/layering).
 *
 *     ls_site_runtime_open --> ls_site_open: loads the file into the first state, which gives the settings, the
 *                              listeners or an error
 *     the server opens its port and workers --> ls_site_runtime_attach
 *     ls_site_ready: loads a state for each further running thread
 *     the server opens the listeners, the workers start --> ls_site_init: the functions of ls.init
 *     --> ls_site_start: "start" hooks, timers; the listeners accept
 *
 * States beyond these are made when all are in use (core/generation.h). A site without listeners and UDP sockets stops
 * the server when its last task and timer have ended.
 *
 * Reload: ls_site_open, ls_site_ready and ls_site_start of the new generation, beside running workers, on a thread
 * that is no worker; the server passes new work to it. Then the old one ends without a stop of any thread:
 *
 *     every worker has begun another packet, or waits (ls_workers_left): no new work reaches the old generation
 *     ls_site_end_work --> ls_site_busy() == 0, or the drain timeout --> ls_site_end, until it returns true
 *     every worker has begun another packet, or waits --> ls_site_close
 *
 * Thread: one thread at a time makes the calls, unless a comment says otherwise. */
#ifndef LS_SCRIPT_SITE_H
#define LS_SCRIPT_SITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lua.h>

#include "net/udp/udp.h"
#include "script/bind/access/access.h"
#include "script/bind/dev/dev_object.h"
#include "script/bind/http/site_listener.h"
#include "script/bind/sock/udp_object.h"
#include "script/bind/tasks/host.h"
#include "script/bind/tasks/interrupt.h"
#include "script/bind/tasks/process_object.h"
#include "script/core/generation.h"
#include "script/core/runtime.h"

typedef struct ls_site ls_site;

/* ---- the runtime: what all generations share -------------------------------------------------------------------- */

/* Open a runtime without a port. `host` must outlive it. LS_OK or an error; nothing is left open. */
int ls_site_runtime_open(const ls_site_host *host, ls_runtime **out);
/* The server has opened its port, for workers with at most threads_max threads. `port` may be NULL in tests that post
 * nothing. LS_OK or an error; ls_site_runtime_close in any case. */
int ls_site_runtime_attach(ls_runtime *runtime, ls_port *port, struct ls_deadlines *deadlines, unsigned threads_max);
/* Close the idle connections of ls.fetch. No worker runs; the port is still open. */
void ls_site_runtime_disconnect(ls_runtime *runtime, ls_thread_ctx *ctx);
/* Every site is closed and no worker runs. The port may be closed. */
void ls_site_runtime_close(ls_runtime *runtime);

/* Publish a message for the functions and connections that have subscribed. Their number, or LS_E*. Any thread. */
int64_t ls_site_publish(const ls_runtime *runtime, const char *topic, const void *data, size_t bytes);

/* Write what the site has in memory for the process that replaces this one, or read that: see ls_dicts_write. */
int ls_site_write_memory(const ls_runtime *runtime, FILE *out);
int ls_site_read_memory(const ls_runtime *runtime, FILE *in, unsigned *entries);

/* One line for each library of the script layer: its version, or "not built in". */
void ls_site_libraries(char *text, size_t bytes);

/* For ls_workers_options.on_tick. Posts a garbage collection to each state whose buffers may be garbage, and lets
 * states that are unused give their memory back; *more: as ls_states_on_tick. Returns true if it posted a
 * collection. */
bool ls_site_on_tick(ls_runtime *runtime, bool idle, bool *more);
/* For ls_workers_options.on_stall: ls_runtime_on_stall (core/runtime.h), with the runtime as user data. */

/* ---- a generation ----------------------------------------------------------------------------------------------- */

typedef struct ls_site_options {
    const char *path;   /* of site.lua; with `source`, its name in messages and the folder of its modules */
    const char *source; /* NULL: read the file `path`; else the text of the site, which is copied */
    size_t source_bytes;
    int (*open)(lua_State *L, void *user); /* NULL, or called in each state before the site: see ls_server_options */
    void *open_user;
    bool control;          /* the server has a control socket, which lua/luaserve/repl.lua serves */
    int argc;              /* arguments of the site: `...` and arg[1..argc]; arg[0] is the path */
    char **argv;           /* copied */
    const char *listen_on; /* NULL, or the "address:port" of all listeners and UDP sockets: see ls_server_options */
} ls_site_options;

/* Load the file into the first state. Its text is kept: every additional state runs the same text. LS_OK, LS_ESCRIPT
 * (a Lua error), LS_ENOENT or LS_ENOMEM. On failure `message` receives a text such as "site.lua:12: text", truncated
 * to fit, and nothing is left open. The calling thread is inside no pool of a worker. */
int ls_site_open(ls_runtime *runtime, const ls_site_options *options, ls_site **out, char *message,
                 size_t message_bytes);

const ls_site_settings *ls_site_settings_get(const ls_site *site);
unsigned ls_site_listener_count(const ls_site *site);
const ls_site_listener *ls_site_listener_get(const ls_site *site, unsigned index);
const ls_http_handler *ls_site_http_handler(ls_site *site, unsigned listener);

/* The user data of ls_tcp_start() for listener `index` (LS_SITE_TCP). `limit` is the connection limit of the
 * listener; the site leaves it once for every connection that closes. */
ls_tcp_server *ls_site_tcp_server(ls_site *site, unsigned index, ls_conn_limit *limit);

/* The same for the control socket (ls_site_options.control). */
ls_tcp_server *ls_site_control(ls_site *site, ls_conn_limit *limit);

/* Print what the site defines to standard output, as text or as JSON (lua/luaserve/description.lua); `threads` and
 * `threads_max` are those of the server. It was only loaded, with ls_site_host.check. */
void ls_site_describe(ls_site *site, bool as_json, unsigned threads, unsigned threads_max);

/* What the site has loaded, while ls_site_host.check is set: the text of description.files (lua/luaserve/description.lua).
 * The caller frees it; NULL: out of memory. */
char *ls_site_files(ls_site *site);
/* Whether it has functions of ls.on("log"). */
bool ls_site_logs_requests(const ls_site *site);

/* Whether the site defines anything that runs: a listener, a UDP socket, a timer, an ls.init function or a "start"
 * hook. */
bool ls_site_has_work(const ls_site *site);
/* Whether something waits for the end of ls.init: requests, a timer, a "start" hook. */
bool ls_site_follows_init(const ls_site *site);

/* The ls.udp calls. For each of them the server opens one socket, or two for the loopback, with the callback
 * ls_site_udp_batch and the user data ls_site_udp_user(), and reports it with ls_site_udp_bound(). The server owns the
 * sockets: it closes them, and frees them after the site. */
unsigned ls_site_udp_count(const ls_site *site);
const ls_site_udp *ls_site_udp_get(const ls_site *site, unsigned index);
void *ls_site_udp_user(ls_site *site, unsigned index);
void ls_site_udp_bound(ls_site *site, unsigned index, ls_udp *udp);

/* Load one state for each of `threads` running threads, and check that each defines as many listeners and UDP sockets
 * as the first; settings.states_max and threads_max limit the number of states. The runtime is attached. Errors as for
 * ls_site_open(), but the site stays open. */
int ls_site_ready(ls_site *site, unsigned threads, unsigned threads_max, char *message, size_t message_bytes);

/* Apply the limits of the site to all tasks: the part of ls_site_start that a site needs which is only loaded. */
void ls_site_apply(ls_site *site);

/* Post the functions of ls.init, for a site that has any: they run in the first state, before ls_site_start. Their end
 * is reported to ls_site_host.init_ended, which a worker calls while it holds the actor. The workers must run. A site
 * whose init has begun ends as one that has started does: ls_site_end_work. */
bool ls_site_has_init(const ls_site *site);
void ls_site_init(ls_site *site, bool reload); /* reload: the argument of the functions */

/* Post the start: every state runs its "start" hooks and starts the timers that were defined while loading. The
 * workers must run. `previous`: the site that it replaces, or NULL: no code of it runs any more that the reload ends,
 * although its states learn of it by ls_site_end_work. */
void ls_site_start(ls_site *site, ls_site *previous);

/* Before ls_site_init of a reload: jobs of its ls.init and "start" functions begin with ls_site_begin_jobs, but at
 * once when such a function waits for what they may do. */
void ls_site_hold_jobs(ls_site *site);
void ls_site_begin_jobs(ls_site *site);

/* Post to every state: the work ends that ends for this reason (core/scope.h), REPLACED and STOP with the "drain"
 * functions. Call it again for LS_END_UNUSED: it has an effect in a state that has no other work. The workers must
 * run. */
void ls_site_end_work(ls_site *site, enum ls_end_why why);
/* Whether LS_END_TIME, or ls_site_end, has reached all states: then `counts` receives, by scope, the tasks that were
 * ended before they were done. */
bool ls_site_unfinished(const ls_site *site, unsigned counts[LS_SCOPES]);
/* Add the tasks that run or wait, by scope. Any thread. */
void ls_site_add_running(const ls_site *site, unsigned counts[LS_SCOPES]);

/* Post to every state: log the tasks that have not ended. `ended`: with their requests, because they are ended now. */
void ls_site_report(ls_site *site, bool ended);
bool ls_site_reported(const ls_site *site); /* every state has done it */
/* Have each state log to `to` what its tasks wait for: always the same target of this site, valid until its close. Any
 * thread, one at a time. Returns, also later with `to` NULL, the number of states that have not answered: they
 * compute, or block. */
unsigned ls_site_ask_status(ls_site *site, const struct ls_log_target *to);

/* Number of unfinished tasks without those of requests, plus posted operations (start, retire, drain) and work that
 * has not run yet, plus connections that Lua has closed and that send their last bytes. Any thread. */
unsigned ls_site_busy(const ls_site *site);
/* Whether the site has called ls.on("host"). */
bool ls_site_has_host_hooks(const ls_site *site);
/* Run its functions with the bytes of the post: see ls_host_deliver. Thread: a worker inside no actor. */
void ls_site_post(ls_site *site, ls_thread_ctx *ctx, ls_host_post *post);

uint32_t ls_site_connections(
    const ls_site *site); /* open `sock` connections and WebSockets, those that are closing included */

unsigned ls_site_websockets(const ls_site *site); /* open WebSockets of its routes, and handlers of ended ones */

/* Post to every state: close connections, sockets and timers; no task is left. For the stop of the server, which
 * closes Lua when no worker runs any more. */
void ls_site_disconnect(ls_site *site);

/* A step of the live close; the workers run. Posts to each state: close what is pending (timers, connections,
 * sockets), then close Lua. A state with unfinished tasks or requests waits for them; with `force` it ends them:
 * connections are aborted. Returns true when every state is closed; else call again, some milliseconds later. A
 * handler that never ends keeps its own state open, and nothing else. */
bool ls_site_end(ls_site *site, bool force);

/* Close the sockets that Lua objects own. No worker may run any more; the port must be open. */
void ls_site_close_sockets(ls_site *site, ls_thread_ctx *ctx);

/* Free the site. After ls_site_end() returned true: no worker is in a packet that it began before. Otherwise no worker
 * runs any more and the port is closed, because its queue and timers may hold operations of unfinished tasks, or was
 * never used; the states are closed here. The buffer pools of the workers are still open. */
void ls_site_close(ls_site *site);

#endif
