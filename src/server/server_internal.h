/* server_internal.h - the struct of a server, shared by server.c (its life), reload.c (a new generation of its site)
 * and ending_site.c (the end of the previous one).
 *
 * Threads. The thread of ls_server_run supervises: it starts the workers, waits, ends old generations and drains. The
 * workers do what touches sockets, in the packet `control`. A reload runs on the thread of its caller, or, for SIGHUP,
 * on a thread of its own: it loads and plans there, and the commit is a packet.
 *
 *     mutex   phase, settings, reload, control; the supervisor waits with it. Held for short
 *     lists   endpoints, generations, their sites. Taken after `mutex` if both are needed. No Lua runs under it,
 *             except while a site loads its certificates */
#ifndef LS_SERVER_INTERNAL_H
#define LS_SERVER_INTERNAL_H

#include "base/compiler.h"
#include "base/io/log.h"
#include "base/os/event.h"
#include "base/os/signals.h"
#include "base/os/thread.h"
#include "luaserve.h"
#include "server/control.h"
#include "server/endpoint.h"
#include "server/options.h"
#include "server/posts.h"
#include "server/upgrade.h"

enum phase { PHASE_OPEN, PHASE_SERVING, PHASE_DRAINING, PHASE_HARD };

enum { SUPERVISE_MS = 20 /* interval at which the supervisor looks whether a drain or a generation is at its end */ };

enum ending_stage {
    ENDING_BUSY,    /* it could get work */
    ENDING_CLOSING, /* its states are closed one by one, each after its last task */
    ENDING_CLOSED   /* the last packet inside its states may still run */
};

typedef struct ls_ending_site { /* an old generation */
    ls_node node;
    ls_site *site;
    uint64_t number;
    uint64_t retired_ns;
    uint64_t ticket; /* of the grace period of this stage */
    enum ending_stage stage;
    bool aborted; /* the connections of its endpoints were aborted */
    bool forced;  /* its tasks are ended as well, since: */
    uint64_t forced_ns;
    uint64_t left_ns;          /* when its WebSockets were closed; 0: they stay */
    bool waits_for_websockets; /* all other connections were aborted */
    bool late_logged, unfinished_logged;
} ls_ending_site;

struct ls_server {
    ls_server_options options; /* with copies of what it points to */
    ls_log_kept errors;        /* for a look at the server */
    ls_log_target log;         /* of all its threads, and of those that call it meanwhile */
    ls_site_host host;         /* functions that the site may call */
    ls_runtime *runtime;       /* of the script layer */
    ls_dev *dev;               /* of the runtime; NULL: no dev mode */
    const char *editor;        /* of dev mode; NULL: none */
    ls_pools *pools;
    ls_port *port;
    ls_deadlines *deadlines; /* of all streams */
    ls_workers *workers;
    ls_grace grace;
    ls_signals *signals;
    ls_conn_limit conn_limit;
    bool conn_limit_open;
    ls_site_settings settings; /* the values in force: from the options, the site and the defaults */
    uint64_t opened_ns;
    ls_control *control_socket; /* NULL: none */

    ls_mutex lists;
    ls_site *site; /* the current generation */
    uint64_t generation;
    ls_node endpoints, removed;
    ls_node ending;           /* old generations, oldest first */
    uint64_t websockets_left; /* closed with 1012 */
    ls_http_stats past;
    ls_endpoint_env env;
    ls_endpoint_plan plan; /* of the start, or of the reload that is under way */
    ls_site *next_site;    /* of the reload that is under way */
    ls_site_settings next_settings;
    ls_ending_site *next_end; /* allocated before the commit, which cannot fail */

    ls_posts posts; /* of ls_server_post */
    ls_op control;  /* runs one function on the workers at a time */
    ls_mutex mutex;
    ls_cond changed;
    enum phase phase;
    uint64_t drains_at_ns;     /* a stop has begun drain_delay, which ends then; 0: none has */
    uint64_t stopped_ns;       /* the drain, and its timeout, begin */
    bool stopped_from_outside; /* by a signal or ls_server_stop */
    bool ended_early;          /* the run has ended before the drain, or before its threads: */
    bool drained;              /* only threads are left */
    bool control_done;
    ls_op beat; /* of the watchdog of the service manager, see feed_watchdog */
    bool beat_posted, beat_fed;
    uint64_t beat_ns; /* when it was posted; 0: it was not since the last feed */
    bool reloading;   /* a thread is inside ls_server_reload */
    bool loading;     /* ls_server_load runs */
    ls_thread load_thread;
    ls_cond load_ended;
    bool committing; /* its listeners are opened, its commit is posted or runs; the drain waits for that */
    bool init_ended; /* the functions of ls.init, of the start or of the reload that is under way */
    bool init_failed;
    bool initialised; /* a site has passed its ls.init: the next one is that of a reload */
    char init_message[LS_MESSAGE_BYTES];
    bool reload_asked;    /* by SIGHUP or the control socket */
    ls_node reload_waits; /* for the end of that reload: ls_reload_wait */
    ls_node status_waits; /* for the text of ls_server_poll_status */
    ls_log_target status_to;
    ls_mutex status_mutex; /* guards the text; taken last */
    char *status_text;     /* NULL: none is being made */
    size_t status_bytes;
    bool reload_thread_running, reload_thread_ended; /* of a reload or an upgrade */
    ls_thread reload_thread;
    bool upgrade_asked, upgrading; /* by SIGUSR2 or the control socket; until its end */
    bool serves_elsewhere;         /* it serves already: no client waits for the end of the drain */
    bool handed_over;              /* another process serves, or will: the drain leaves the sockets to it */
    ls_reload_wait *upgrade_wait;  /* NULL: none */
    ls_upgrade upgrade;            /* of a process that replaces another one */

    bool started, waited; /* the thread of ls_server_start exists; it was joined */
    ls_thread run_thread;
    int run_result;
    ls_event ended;
};

/* Wait until the flag has this value. The caller holds the mutex. Returns as ls_server_on_workers. */
int ls_server_await(ls_server *server, const bool *flag, bool value);

/* Run `what` on the workers and wait for it. The caller holds the mutex. All threads may be occupied for ever, so the
 * result is LS_OK, LS_ETIMEDOUT (the drain timeout) or LS_ECANCELED (stopped a second time). */
int ls_server_on_workers(ls_server *server, ls_op_fn *what);
void ls_server_set_flag(ls_server *server, bool *flag,
                        bool value); /* one that others wait for: control_done at the end of `what` */

/* The first endpoint (`after` NULL) or the next one, also of those that were removed; NULL: no more. The caller holds
 * `lists`. */
static inline ls_endpoint *ls_server_next_endpoint(const ls_server *server, const ls_endpoint *after)
{
    const ls_node *node = after != NULL ? after->node.next : server->endpoints.next;
    if (node == &server->endpoints) node = server->removed.next;
    return node != &server->removed ? LS_CONTAINER((uintptr_t)node, ls_endpoint, node) : NULL;
}

/* The sink of ls_server.status_to. */
void ls_server_add_status(int level, const char *line, size_t len, void *server);
/* Answer those who have asked. The caller holds the mutex. */
void ls_server_poll_status(ls_server *server);

/* ---- about.c ------------------------------------------------------------------------------------------------ */

/* For ls_site_host. A site may call them while it loads, and a finalizer after everything is closed: a missing part
 * counts as 0. */
void ls_server_stats(void *server, ls_site_stat_fn *each, void *to);
unsigned ls_server_threads(void *server, ls_worker_look *out, unsigned max);

/* ---- drain.c ------------------------------------------------------------------------------------------------ */

/* What is left of the drain timeout, which begins with the first stop; 0: nothing. */
uint32_t ls_server_drain_ms_left(const ls_server *server);
/* Accept no more, and wait for the end of requests, tasks and connections. The caller holds the mutex. LS_OK,
 * LS_ETIMEDOUT, LS_ECANCELED. */
int ls_server_drain(ls_server *server);
/* Stop the threads. All handlers have ended, but a finalizer may still run. Returns as ls_server_drain. */
int ls_server_join(ls_server *server);
void ls_server_abort(ls_server *server); /* end the requests and connections that are left, and log their number */
/* The run has ended before the drain: end the tasks that are left, and the threads. true: the server can be closed.
 * false: a thread is inside a C function; the server is left as it is. */
bool ls_server_end(ls_server *server);

/* ---- reload.c ----------------------------------------------------------------------------------------------- */

/* Call what(), which loads the site, while a thread enforces the limits of loading. Returns its result. */
typedef int ls_server_load_fn(ls_server *server, char *message, size_t message_bytes);
int ls_server_load(ls_server *server, ls_server_load_fn *what, char *message, size_t message_bytes);
/* Run the functions of ls.init of a site that has loaded, and wait for their end. LS_OK; LS_ESCRIPT: a function has
 * raised, with a message; LS_ECANCELED: the server stops, and they may still run. The caller holds the mutex. */
int ls_server_init_site(ls_server *server, ls_site *site, char *message, size_t message_bytes);
/* Open the site of the options: one that has nothing to do is an error, but of an idle server. */
int ls_server_open_site(ls_server *server, ls_site **out, char *message, size_t message_bytes);

/* Any thread. `wait`: NULL, or it receives the result. */
void ls_server_ask_reload(void *server, ls_reload_wait *wait);
void ls_server_reopen_logs(ls_server *server);                                    /* of the program, and access logs */
void ls_server_end_reload_waits(ls_node *waits, int result, const char *message); /* the list is empty afterwards */
/* Any thread. `wait`: NULL, or it receives the result: LS_OK and "" or the file that the new process waits for. */
void ls_server_ask_upgrade(void *server, ls_reload_wait *wait);
/* Any thread. `wait` receives LS_OK and what runs now, a line for each task that waits. */
void ls_server_ask_status(void *server, ls_reload_wait *wait);
/* Start the reload or the upgrade that was asked for; join the thread of one that has ended. The caller holds the
 * mutex. */
void ls_server_poll_reload(ls_server *server);

/* ---- ending_site.c ------------------------------------------------------------------------------------------ */

/* One step of the old generations and of the endpoints that were removed or replaced. The time until the next one in
 * ms; 0: nothing is left. */
uint32_t ls_server_poll_generations(ls_server *server);
/* Begin the jobs of the site that are held, when the loops of the sites before it have ended. The caller holds
 * `lists`. */
void ls_server_begin_jobs(ls_server *server);
/* Close the WebSockets of an old generation with 1012. The caller holds `lists`. */
void ls_server_leave(ls_server *server, ls_ending_site *g, const char *why);
unsigned ls_server_busy(ls_server *server); /* the sum of ls_site_busy of all generations */

#endif
