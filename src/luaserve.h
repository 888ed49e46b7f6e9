/* luaserve.h - a scripted network server for C programs.
 *
 *     ls_server *server;
 *     char message[512];
 *     ls_server_options options = {.site = "site.lua", .signals = 1};
 *     if (ls_server_open(&options, &server, message, sizeof message) < 0) ...   // message: place and reason
 *     int status = ls_server_run(server);      // serves until ls_server_stop or, with .signals, SIGINT or SIGTERM
 *     ls_server_close(server);
 *
 * Results are LS_OK (0) or a negative code; ls_error_text() describes a code.
 *
 * The header needs no other one. A program that defines Lua functions in options.open includes the headers of Lua 5.4
 * and links the Lua that the library uses: with libluaserve.so the shared Lua of the system (-llua5.4); libluaserve.a
 * contains no Lua and takes whichever the program links. */
#ifndef LUASERVE_H
#define LUASERVE_H

#include <stddef.h>

#if defined(_WIN32)
#define LS_PUBLIC
#else
#define LS_PUBLIC __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_server ls_server;
struct lua_State;

typedef struct ls_server_options {
    const char *site;   /* path of the Lua file; with `source`, its name in messages, and the folder of its modules */
    const char *source; /* NULL, or the text of the site in memory; copied */
    size_t source_bytes;
    int argc; /* arguments of the file: `...` and arg[1], arg[2], ...; copied */
    char **argv;
    unsigned threads;    /* running threads; 0: the number set by the site, else one per processor of this process */
    const char *backend; /* "auto" (also NULL) or one of the names of ls_server_backends() */
    int check;           /* nonzero: only load and describe the site; no listener is opened */
    /* Nonzero: SIGINT and SIGTERM drain the server, and a second one ends it immediately; SIGHUP reloads the site as
     * ls_server_reload does; SIGUSR1 calls reopen_logs; SIGUSR2 and SIGPIPE have no effect. 0: the server changes no
     * action of a signal. Only one server of the process at a
     * time may set it, else ls_server_open returns LS_EBUSY (-20). Windows: Ctrl-C and the other console events drain
     * it; the named events Local\luaserve-stop-PID and Local\luaserve-reload-PID stand for SIGTERM and SIGHUP. */
    int signals;
    /* NULL, or the address of all listeners and UDP sockets of the site, instead of their own: "127.0.0.1:0" gives
     * each a free port. For tests of a site that runs elsewhere as well. Listeners of http.sys keep their URLs. */
    const char *listen_on;
    /* NULL, or the path of a Unix socket: the control socket, at which `luaserve repl --attach` runs lines of Lua in
     * the server, with the rights of the server. Its mode is 0600, and only the user of the process and root may
     * connect. */
    const char *control;
    /* Nonzero: open no listener of the site, and run none of its timers, ls.once functions and "start" hooks. */
    int idle;
    void (*serving)(void *user); /* NULL, or called by ls_server_run when the server accepts connections */
    /* NULL, or called at the end of each reload by its thread: LS_OK, or a negative code and the reason. It must not
     * call ls_server_reload. */
    void (*reloaded)(void *user, int result, const char *message);
    /* NULL, or called for SIGUSR1, and at the begin of each reload, to open the log files of the program again. Any
     * thread. */
    void (*reopen_logs)(void *user);
    /* NULL, or called in each Lua state before the site, to define functions of the program: once per state. The first
     * calls are made inside ls_server_open or ls_server_reload, on its thread. Further states are made while the server
     * runs, when they are needed: on threads of the server, several at the same time. It finds an empty stack and may
     * leave values on it. If it returns a negative number or raises a Lua error, ls_server_open or ls_server_reload
     * fails with the message; of a further state the message is logged. The functions that it defines are called by
     * the threads of the server: by one at a time in the same state, by several in different states. */
    int (*open)(struct lua_State *L, void *user);
    void *user; /* argument of the functions above */
    /* Nonzero: dev mode, for the machine of a developer. The server reloads the site when one of the files that it has
     * loaded changes; shows errors, their source and the request to browsers; adds to HTML pages a script that reloads
     * them; logs each request, and what handlers do that Lua states do not share. ls_server_open waits for a change of
     * the site while it does not load, without an end. `site` must be a file. */
    int dev;
    /* NULL, or the URL of a line in the error page, such as "vscode://file/{file}:{line}", valid until ls_server_close;
     * else a page of the server. */
    const char *dev_editor;
} ls_server_options;

/* Load the site and open its listeners; nothing is served yet. LS_OK, or a negative code with a one-line description
 * in `message` (always terminated, cut to fit); nothing is left open then. A site that defines no listener, timer or
 * job is an error.
 *
 * Several servers may be open at a time, one of them with `signals`. Each has addresses, threads, Lua states, dicts,
 * channels and counters of its own; they share the log. A server changes nothing else of the process but this:
 *   - SIGURG has a handler while a server is open, which passes foreign signals on to the handler that was there before
 *   - the soft limit of open descriptors is raised towards the hard limit if max_connections of the site needs it */
LS_PUBLIC int ls_server_open(const ls_server_options *options, ls_server **out, char *message, size_t message_bytes);

/* Print the listeners of the site and their routes to standard output, one line each. */
LS_PUBLIC void ls_server_describe(const ls_server *server);

/* Write an address that the server is bound to: "127.0.0.1:43121", "[::1]:43121", "unix:/run/site.sock"; of http.sys
 * the URL. `index` counts from 0: first the addresses of ls.listen and ls.tcp in the order of the calls, then those of
 * ls.udp. A port without a host has two addresses on the loopback interface, IPv4 first. LS_OK; LS_ENOENT (-17): there
 * are fewer addresses; LS_EMSGSIZE (-23): the text does not fit into `bytes` bytes (128 are enough, but for a URL). Any
 * thread, from ls_server_open to ls_server_close. */
LS_PUBLIC int ls_server_address(const ls_server *server, unsigned index, char *text, size_t bytes);

/* Write the address in the form of the log: "http://127.0.0.1:43121", "https://[::1]:8443", "tcp://127.0.0.1:7000",
 * "tls://...", "udp://...", "unix:/run/site.sock". Arguments and results as for ls_server_address. */
LS_PUBLIC int ls_server_url(const ls_server *server, unsigned index, char *text, size_t bytes);

/* Serve until the server is stopped and has drained. ls_server_stop or ls.stop of the site stops it; with
 * options.signals also SIGINT and SIGTERM, which without it have the effect that the program gave them (by default they
 * end the process at once). A site without listeners also stops when all of its tasks and timers have ended. LS_OK;
 * LS_ETIMEDOUT (-5): the drain exceeded its time limit, which begins with the first stop, and the remaining connections
 * were closed; LS_ECANCELED (-4): stopped a second time. It returns in time even if C functions block all threads.
 * After the latter two results handlers may still run, and may hold the lock of a stdio file: end the process with
 * _Exit. Another negative code: the threads could not be started, and nothing was served. */
LS_PUBLIC int ls_server_run(ls_server *server);

/* Load the site again, in the calling thread, and serve the new one from now on. Any thread but one that runs a
 * handler, and not before ls_server_run serves. No request is lost and no connection closes: what has begun ends with
 * the old site, what begins later gets the new one. Addresses that both sites name stay open, new ones are opened
 * first, and those that are gone drain. The old site ends with its last task, at the latest after drain_timeout, which
 * cuts it. Certificates are read again. The settings threads, threads_max, max_connections and max_buffers keep their
 * values; a warning names those that the new site sets otherwise. options.open, .site, .source and the arguments are
 * used again.
 *
 * LS_OK; LS_EBUSY (-20): another reload is under way, or the server does not serve; LS_ENOTSUP (-19): it is idle
 * (options.idle); LS_ECANCELED (-4): the server was stopped meanwhile; another negative code: the new site cannot be
 * served (an error in the file, an address that is in use, a certificate), and the old one goes on untouched.
 * `message` receives the reason in one line (always terminated, cut to fit), "" with LS_OK. The result is logged, and
 * options.reloaded receives it. */
LS_PUBLIC int ls_server_reload(ls_server *server, char *message, size_t message_bytes);

/* Start the drain: stop accepting, respond to every accepted request, run the "drain" hooks. A second call ends the
 * server immediately, also after a signal, but not after ls.stop of the site. Any thread. */
LS_PUBLIC void ls_server_stop(ls_server *server);

/* End the lines of Lua that the sessions of the control socket compute at this moment. Any thread. */
LS_PUBLIC void ls_server_interrupt(ls_server *server);

/* Close the server: after ls_server_run has returned LS_OK or an error of the start, or if it was never called. The
 * finalizers of the site run in the calling thread, without a time limit. */
LS_PUBLIC void ls_server_close(ls_server *server);

/* Pass `bytes` bytes to Lua: each function of ls.on("host", fn) is called with them as a string, fn(data), in one Lua
 * state that is free, in a task of its own, which may wait. The bytes are copied. Posts begin in any order and at the
 * same time; the results of the functions are ignored, their errors logged. Before ls_server_run serves, posts are
 * kept until then. A post is unfinished until its functions have ended; the drain waits for the unfinished ones.
 * LS_OK, or at once, without waiting:
 *   LS_EAGAIN (-21)  LS_SERVER_POSTS_MAX posts are unfinished: try again later
 *   LS_ECLOSED (-6)  the server drains or has ended
 *   LS_ENOENT (-17)  the site has no ls.on("host")
 *   LS_ENOMEM (-2)
 * Any thread, from ls_server_open to ls_server_close; also from functions that options.open defined. It takes a mutex:
 * not inside a signal handler. */
enum { LS_SERVER_POSTS_MAX = 1024 };
LS_PUBLIC int ls_server_post(ls_server *server, const void *data, size_t bytes);

/* Publish a message to all subscribers of a topic, in all Lua states, as ls.publish does: WebSockets, server-sent
 * events, socks and functions of ls.subscribe. The bytes are copied; they are text if they are valid UTF-8, else
 * binary. Messages published before ls_server_run serves are delivered then. Returns the number of subscribers, which
 * may be 0, or at once:
 *   LS_EINVAL (-3)   the topic is empty or longer than 1,024 bytes
 *   LS_ELIMIT (-15)  too many messages are on their way to a Lua state: no subscriber gets it
 *   LS_ENOMEM (-2)
 * Any thread, from ls_server_open to ls_server_close. It takes mutexes: not inside a signal handler. */
LS_PUBLIC int ls_server_publish(ls_server *server, const char *topic, const void *data, size_t bytes);

/* Read a counter by the name that it has in ls.stats() of the site: "requests", "connections_open", "lua_bytes". LS_OK
 * and the number in *value, or LS_ENOENT (-17): there is no such name; *value is not changed. Any thread, from
 * ls_server_open to ls_server_close. */
LS_PUBLIC int ls_server_counter(ls_server *server, const char *name, double *value);

LS_PUBLIC const char *ls_server_version(void);  /* "0.1.0" */
LS_PUBLIC const char *ls_server_build(void);    /* build information, several lines; valid as long as the thread */
LS_PUBLIC const char *ls_server_backends(void); /* names separated by spaces */
LS_PUBLIC const char *ls_error_text(int code);

/* Drop log lines below this level: "debug", "info" (default), "warn", "error", "off". LS_OK, or LS_EINVAL (-3). */
LS_PUBLIC int ls_server_log_level(const char *name);

/* Send the log lines of all servers of the process to this function instead of standard error; NULL: to standard error
 * again. `level` is 0 debug, 1 info, 2 warn, 3 error; `line` has `bytes` bytes without a line break and is not
 * terminated. Any thread of a server calls it, also several at the same time: take a lock where it needs one. It must
 * not call functions of this header. Call ls_server_log_to while no server is open. */
typedef void ls_server_log_fn(int level, const char *line, size_t bytes, void *user);
LS_PUBLIC void ls_server_log_to(ls_server_log_fn *log, void *user);

/* Color the lines of warnings, errors and the requests of dev mode, if standard error is a terminal and NO_COLOR is not
 * set in the environment; else it has no effect. Call it while no server is open. */
LS_PUBLIC void ls_server_log_color(void);

/* The command line `luaserve stress`: argv[0] is "stress", its options follow (`luaserve stress --help`). Returns the
 * exit status: 0; 99: a threshold was missed; 1: the run failed, with the reason on standard error. */
LS_PUBLIC int ls_stress_main(int argc, char **argv);

#ifdef __cplusplus
}
#endif

#endif
