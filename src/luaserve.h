/* luaserve.h - a scripted network server for C programs.
 *
 *     ls_server *server;
 *     char message[512];
 *     ls_server_options options = {.size = sizeof options, .site = "site.lua", .signals = 1};
 *     if (ls_server_open(&options, &server, message, sizeof message) < 0) ...   // message: place and reason
 *     int status = ls_server_run(server);      // serves until ls_server_stop or, with .signals, SIGINT or SIGTERM
 *     ls_server_close(server);
 *
 * Results are LS_OK (0) or a negative code of enum ls_error; ls_error_text() describes a code. All names are of version
 * 0.1.0; what later versions add says "since".
 *
 * The header needs no other one. A program that defines Lua functions in options.open includes the headers of Lua 5.4
 * and links the Lua that the library uses, as pkg-config luaserve-lua and the CMake target luaserve::lua do: with
 * libluaserve.so the shared Lua of the system; libluaserve.a contains no Lua and takes whichever the program links. */
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

/* The version of this header: 10000 * major + 100 * minor + patch. Versions 0.x.y with the same x are compatible, as
 * the SONAME (libluaserve.so.0.1) and find_package(luaserve) say: a program that was compiled with this header runs
 * with each library of 0.1 that is as old as the header or younger. ls_server_version_number() tells which one
 * runs. */
#define LS_VERSION_MAJOR  0
#define LS_VERSION_MINOR  1
#define LS_VERSION_PATCH  0
#define LS_VERSION_NUMBER (LS_VERSION_MAJOR * 10000 + LS_VERSION_MINOR * 100 + LS_VERSION_PATCH)

/* The error codes: X(name without LS_, number, text of ls_error_text). Lua receives the name as the third result of
 * `nil, message, code`. The numbers do not change in later versions, which may add codes at the end. */
#define LS_ERRORS(X)                                                   \
    X(ESYS, -1, "system error")                                        \
    X(ENOMEM, -2, "out of memory")                                     \
    X(EINVAL, -3, "invalid argument")                                  \
    X(ECANCELED, -4, "operation cancelled")                            \
    X(ETIMEDOUT, -5, "timeout")                                        \
    X(ECLOSED, -6, "closed")                                           \
    X(ERESET, -7, "connection reset by the peer")                      \
    X(EPIPE, -8, "the peer no longer reads")                           \
    X(EREFUSED, -9, "connection refused")                              \
    X(EUNREACH, -10, "no route to the host")                           \
    X(EADDRINUSE, -11, "address in use")                               \
    X(EADDRNOTAVAIL, -12, "address not available on this machine")     \
    X(EACCES, -13, "permission denied")                                \
    X(EMFILE, -14, "too many open descriptors")                        \
    X(ELIMIT, -15, "limit reached")                                    \
    X(EPROTO, -16, "protocol error")                                   \
    X(ENOENT, -17, "not found")                                        \
    X(EEXIST, -18, "already exists")                                   \
    X(ENOTSUP, -19, "not supported here")                              \
    X(EBUSY, -20, "busy")                                              \
    X(EAGAIN, -21, "would block")                                      \
    X(ESCRIPT, -22, "script error")                                    \
    X(EMSGSIZE, -23, "message too long")                               \
    X(EISDIR, -24, "is a directory")                                   \
    X(ENOSPC, -25, "no space left on the device")                      \
    X(EIO, -26, "I/O error")                                           \
    X(EPROTOTYPE, -27, "a datagram or seqpacket socket has this path") \
    X(ETRUNCATED, -28, "the stream was cut off before its end")        \
    X(ECERT, -29, "the certificate is not accepted")                   \
    X(ECHANGED, -30, "the file was changed while it was sent")         \
    X(ENOTDIR, -31, "is not a directory")                              \
    X(ENOTEMPTY, -32, "the directory is not empty")                    \
    X(EXDEV, -33, "on another file system")

#define LS_ERROR_CODE(name, number, text) , LS_##name = number
enum ls_error { LS_OK = 0 LS_ERRORS(LS_ERROR_CODE) };
#undef LS_ERROR_CODE

typedef struct ls_server ls_server;
struct lua_State;

/* Receives the lines of a log. `level` is 0 debug, 1 info, 2 warn, 3 error; `line` has `bytes` bytes without a line
 * break and is not terminated. Any thread of a server calls it, also several at the same time: take a lock where it
 * needs one. It must not call functions of this header. */
typedef void ls_server_log_fn(int level, const char *line, size_t bytes, void *user);

enum { LS_SERVER_THREADS_MAX = 1024 };

/* Set every field by its name, and zero for the others: later versions add fields at the end. */
typedef struct ls_server_options {
    size_t size;         /* sizeof(ls_server_options): a library that has further fields takes them as zero */
    const char *site;    /* path of the Lua file; with `source`, its name in messages, and the folder of its modules */
    const char *source;  /* NULL, or the text of the site in memory; copied */
    size_t source_bytes; /* 0: the text is terminated */
    int argc;            /* arguments of the file: `...` and arg[1], arg[2], ...; copied */
    char **argv;
    unsigned threads;    /* running threads, at most LS_SERVER_THREADS_MAX; 0: the number set by the site, else one
                          * per processor of this process */
    const char *backend; /* "auto" (also NULL) or the name that ls_server_backends() returns. On Linux also "uring", of
                          * earlier versions: a line of the log says that epoll is used */
    int check;           /* nonzero: only load and describe the site; no listener is opened */
    /* Nonzero: SIGINT and SIGTERM drain the server, and a second one ends it immediately; SIGHUP reloads the site as
     * ls_server_reload does; SIGUSR1 calls reopen_logs; SIGPIPE has no effect, and SIGUSR2 none without
     * `notify`. 0: the server changes no action of a signal. Only one server of the process at a
     * time may set it, else ls_server_open returns LS_EBUSY. Windows: Ctrl-C and the other console events drain
     * it; the named events Local\luaserve-stop-PID and Local\luaserve-reload-PID stand for SIGTERM and SIGHUP. */
    int signals;
    /* NULL, or the address of all listeners and UDP sockets of the site, instead of their own: "127.0.0.1:0" gives
     * each a free port. For tests of a site that runs elsewhere as well. Listeners of http.sys keep their URLs. */
    const char *listen_on;
    /* NULL, or the path of a Unix socket: the control socket, at which `luaserve repl --attach` runs lines of Lua in
     * the server, with the rights of the server. Its mode is 0600, and only the user of the process and root may
     * connect. */
    const char *control;
    /* Nonzero: open no listener of the site, and run none of its timers, ls.init functions and "start" hooks. */
    int idle;
    void (*serving)(void *user); /* NULL, or called by ls_server_run when the server accepts connections */
    /* NULL, or called at the end of each reload by its thread: LS_OK, or a negative code and the reason. It must not
     * reload the server. */
    void (*reloaded)(void *user, int result, const char *message);
    /* NULL, or called for SIGUSR1, and at the start of each reload, to open the log files of the program again. Any
     * thread. */
    void (*reopen_logs)(void *user);
    /* NULL, or called in each Lua state before the site, to define functions of the program: once per state. The first
     * calls are made inside ls_server_open or a reload, on its thread. Additional states are made while the server
     * runs, when they are needed: on threads of the server, several at the same time. It finds an empty stack and may
     * leave values on it. If it returns a negative number or raises a Lua error, ls_server_open or ls_server_reload
     * fails with the message; of an additional state the message is logged. The functions that it defines are called
     * by the threads of the server: by one at a time in the same state, by several in different states. */
    int (*open)(struct lua_State *L, void *user);
    void *user; /* argument of the functions above */
    /* Nonzero: dev mode, for the machine of a developer. The server reloads the site when one of the files that it has
     * loaded changes; shows errors, their source and the request to browsers; adds to HTML pages a script that reloads
     * them; logs each request, and what handlers do that Lua states do not share. ls_server_open waits for a change of
     * the site while it does not load, without an end. `site` must be a file. */
    int dev;
    /* Nonzero: tell the service manager of the variable NOTIFY_SOCKET, as sd_notify(3) describes it: when the server
     * serves, reloads, and begins to drain. ls_server_open removes the variable from the environment. With
     * it also: the bound sockets of LISTEN_FDS are used, those of the site are stored if FDSTORE is set, and the
     * watchdog of WATCHDOG_USEC is fed. With `signals`, SIGUSR2 runs the command line of the program again, which must
     * open such a server, and drains when that serves: the page Deploying describes it. One server of the process may
     * set it. */
    int notify;
    /* NULL, or receives the log of this server, with `user`, from ls_server_open to ls_server_close; a server that is
     * abandoned may still log. NULL: as ls_server_log_to says. */
    ls_server_log_fn *log;
    const char *log_level; /* NULL: as ls_server_log_level says; or drop lines of this server below it */
    /* NULL, or called when the server has ended, as the last step of ls_server_run: with its result. It must not close
     * the server. */
    void (*ended)(void *user, int result);
} ls_server_options;

/* Load the site and open its listeners; nothing is served yet. LS_OK, or a negative code with a one-line description
 * in `message` (always terminated, truncated to fit); nothing is left open then. A site that defines no listener,
 * timer or job is an error. LS_EINVAL: options->size is 0, or larger than the options that this library knows, because
 * the program was compiled with the header of a later version; or there is no options->site. Any thread.
 *
 * Several servers may be open at a time, one of them with `signals`. Each has addresses, threads, Lua states, dicts,
 * channels, counters and a log of its own; they share the standard output. A server changes nothing else of the
 * process but this:
 *   - SIGURG has a handler while a server is open, which passes foreign signals on to the handler that was there
 *     before
 *   - the soft limit of open descriptors is raised towards the hard limit if max_connections of the site needs it
 *   - a thread remains, to write what print or the log has printed, once the reader of standard output or standard
 *     error was late
 * print and io.stdout of a site write to the descriptor 1 past the buffer of the C library's stdout: flush that
 * before. */
LS_PUBLIC int ls_server_open(const ls_server_options *options, ls_server **out, char *message, size_t message_bytes);

/* Print what the site defines to standard output: listeners, their routes, timers, one line each. Of a server that was opened
 * with `check`; of another one nothing. */
LS_PUBLIC void ls_server_describe(const ls_server *server);

/* Write an address that the server is bound to: "127.0.0.1:43121", "[::1]:43121", "unix:/run/site.sock"; of http.sys
 * the URL. `index` counts from 0: first the addresses of ls.listen and ls.tcp in the order of the calls, then those of
 * ls.udp. A port without a host has two addresses on the loopback interface, IPv4 first. LS_OK; LS_ENOENT: there
 * are fewer addresses; LS_EMSGSIZE: the text does not fit into `bytes` bytes (128 are enough, but for a URL). Any
 * thread, from ls_server_open to ls_server_close. */
LS_PUBLIC int ls_server_address(const ls_server *server, unsigned index, char *text, size_t bytes);

/* Write the address in the form of the log: "http://127.0.0.1:43121", "https://[::1]:8443", "tcp://127.0.0.1:7000",
 * "tls://...", "udp://...", "unix:/run/site.sock". Arguments and results as for ls_server_address. */
LS_PUBLIC int ls_server_url(const ls_server *server, unsigned index, char *text, size_t bytes);

/* Serve until the server is stopped and has drained. ls_server_stop or ls.stop of the site stops it; with
 * options.signals also SIGINT and SIGTERM, which without it have the effect that the program gave them (by default
 * they end the process at once). A site without listeners also stops when all of its tasks and timers have ended.
 * LS_OK; LS_ETIMEDOUT: the drain exceeded its time limit, which begins with the first stop; requests whose handlers
 * waited got 503, and the remaining connections were closed; LS_ECANCELED: stopped a second time. It returns in time even if C functions block all
 * threads. After the latter two results handlers may still run: ls_server_close says what becomes of them. A process
 * that ends then should use _Exit, because a handler may hold the lock of a stdio file. Another negative code: the
 * threads could not be started, and nothing was served. */
LS_PUBLIC int ls_server_run(ls_server *server);

/* ls_server_run on a thread of the library, for a program with an event loop of its own. LS_OK, or a negative code:
 * nothing was started. The thread keeps the signal mask of its creator. Instead of ls_server_run; options.ended is
 * called on this thread. */
LS_PUBLIC int ls_server_start(ls_server *server);

/* A descriptor that is readable when a started server has ended: for poll(2) and the event loops of libuv, GLib or Qt.
 * Only wait for it: do not read it, nor close it. LS_ENOTSUP on Windows, which has options.ended. Any thread, from
 * ls_server_start to ls_server_close. */
LS_PUBLIC int ls_server_fd(const ls_server *server);

/* Wait for the end of a started server, and return the result of its run: at once when the descriptor is readable.
 * ls_server_close stops a server that is still running, and waits. One thread. */
LS_PUBLIC int ls_server_wait(ls_server *server);

/* Load the site again, in the calling thread, and serve the new one from now on. Any thread but one that runs a
 * handler, and not before ls_server_run serves. No request is lost and no connection closes: what has begun ends with
 * the previous site, what begins later gets the new one. Addresses that both sites name stay open, new ones are opened
 * first, and removed ones drain. The previous site ends with its last task, at the latest after drain_timeout, which
 * ends it. Certificates are read again. The settings threads, threads_max, max_connections and max_buffers keep their
 * values; a warning names those that the new site sets otherwise. options.open, .site, .source and the arguments are
 * used again.
 *
 * LS_OK; LS_EBUSY: another reload is under way, or the server does not serve; LS_ENOTSUP: it is idle
 * (options.idle); LS_ECANCELED: the server was stopped meanwhile; another negative code: the new site cannot be
 * served (an error in the file, an address that is in use, a certificate), and the old one continues untouched.
 * `message` receives the reason in one line (always terminated, truncated to fit), "" with LS_OK. The result is
 * logged, and options.reloaded receives it. */
LS_PUBLIC int ls_server_reload(ls_server *server, char *message, size_t message_bytes);

/* The same with another text of the site, also for a server that was opened with a file. `text` has `bytes` bytes, or
 * is terminated if that is 0; it is copied. With LS_OK it is what later reloads load; else they load what they loaded
 * before. The results and the message are those of ls_server_reload; LS_ENOTSUP also in dev mode, which reloads files;
 * LS_ENOMEM. Threads as for ls_server_reload. */
LS_PUBLIC int ls_server_reload_source(ls_server *server, const char *text, size_t bytes, char *message,
                                      size_t message_bytes);

/* Start the drain: stop accepting, respond to every accepted request, run the "drain" hooks. A second call ends the
 * server immediately, also after a signal, but not after ls.stop of the site. Any thread. */
LS_PUBLIC void ls_server_stop(ls_server *server);

/* End the lines of Lua that the sessions of the control socket compute at this moment. Any thread. */
LS_PUBLIC void ls_server_interrupt(ls_server *server);

/* Close the server: after ls_server_run has returned, or if it was never called; at any time after ls_server_start. The
 * finalizers of the site run in the
 * calling thread, without a time limit.
 *
 * After LS_ETIMEDOUT or LS_ECANCELED of ls_server_run it ends the tasks that are left: those that wait end where they
 * wait, those that compute at their next instruction. Then it closes the server as well. This takes two seconds at
 * most. If a thread is still inside a C function, the server is abandoned: its memory (Lua states, buffers), this
 * thread, some descriptors, and the connections whose handlers are in the C function. No finalizer runs. The process
 * may continue, and open another server, also at the same addresses, unless all threads_max threads were blocked when
 * the stop came: then the listeners stay open. When the C function returns, its handler may run for a moment before it
 * ends, and with it the thread: functions of the program, and what options.user points to, stay in use until then.
 * Call no other function for the server any more, except ls_task_resume for its tasks. NULL: nothing happens. */
LS_PUBLIC void ls_server_close(ls_server *server);

/* Pass `bytes` bytes to Lua: each function of ls.on("host", fn) is called with them as a string, fn(data), in one Lua
 * state that is free, in a task of its own, which may wait. The bytes are copied. Posts begin in the order of the calls:
 * each when the functions of the one before have ended or wait. The results of the functions are ignored, their errors
 * logged. Before ls_server_run serves, posts are kept until then. A post is unfinished until its functions have ended;
 * the drain waits for the unfinished ones.
 * LS_OK, or at once, without waiting:
 *   LS_EAGAIN   LS_SERVER_POSTS_MAX posts are unfinished: try again later
 *   LS_ECLOSED  the server drains or has ended
 *   LS_ENOENT   the site has no ls.on("host")
 *   LS_ENOMEM
 * Any thread, from ls_server_open to ls_server_close; also from functions that options.open defined. It takes a mutex:
 * not inside a signal handler. */
enum { LS_SERVER_POSTS_MAX = 1024 };
LS_PUBLIC int ls_server_post(ls_server *server, const void *data, size_t bytes);

/* Receives the result of ls_server_call: LS_OK, and `bytes` bytes of `data`, which are valid during the call: the value
 * that the function has returned, a string as it is, another value as JSON; NULL: it returned nil. Of several functions
 * the first one that returns another value or raises. Or, with the reason as `data`:
 *   LS_ESCRIPT    the function raised this error
 *   LS_ECANCELED  its task was ended by a stop or a reload, or the server was closed before
 *   LS_ENOENT     a reload has meanwhile brought a site without ls.on("host")
 *   LS_ENOMEM
 * Called on a thread of the server, or by ls_server_close: it must not wait, nor close or reload the server. */
typedef void ls_server_answer_fn(void *user, int result, const char *data, size_t bytes);

/* As ls_server_post, with the same results, and in one order with its calls; and with LS_OK `answered` is called once,
 * with `user`, also before this call returns. */
LS_PUBLIC int ls_server_call(ls_server *server, const void *data, size_t bytes, ls_server_answer_fn *answered,
                             void *user);

/* A C function that waits. A function that options.open has defined suspends the task that calls it (a handler, a
 * timer, whatever the site runs), hands the task to a thread of the program, and the thread resumes it with the
 * results. Other tasks of the Lua state run meanwhile:
 *
 *     static int fetch(lua_State *L)                       // fetch(url) -> text
 *     {
 *         const char *url = luaL_checkstring(L, 1);        // first all that may raise a Lua error
 *         ls_task *task = ls_task_suspend(L);
 *         pool_submit(task, url);                          // a job: the task may be resumed from here on
 *         return ls_task_wait(L, task);
 *     }
 *
 *     static int results(lua_State *L, void *data)         // in the task, later with L NULL to free the data
 *     {
 *         job *j = data;
 *         if (L == NULL) return free_job(j), 0;
 *         lua_pushlstring(L, j->text, j->bytes);
 *         return 1;
 *     }
 *
 *     ... ls_task_resume(j->task, results, j);             // in a thread of the pool, exactly once
 */
typedef struct ls_task ls_task;

/* Suspend the task that runs in L. The calling C function then returns what ls_task_wait returns; in between it may
 * not call a function that waits. The result is valid until ls_task_resume, which must be called exactly once for it,
 * in any case: also if the C function raises an error after this call, if the task has ended meanwhile, and after
 * ls_server_close. Raises a Lua error, and nothing is suspended then, where a task cannot wait (while the site loads;
 * in a function that C code calls, such as the comparison of table.sort; in a finalizer), and when out of memory.
 *
 * The suspension has no time limit of its own. It lasts until the resume, unless the task is ended before: by the
 * `timeout` of its route, by the drain_timeout of a stop or of a reload, or by ls_server_close. A client that leaves
 * does not end it. The drain of a stop or a reload waits for suspended tasks. Thread: the one that runs the C
 * function. */
LS_PUBLIC ls_task *ls_task_suspend(struct lua_State *L);

/* Wait for the resume: `return ls_task_wait(L, task);`, in the C function that has called ls_task_suspend. The results
 * of the C function are those that `results` pushes. Raises a Lua error where ls_task_suspend does. */
LS_PUBLIC int ls_task_wait(struct lua_State *L, ls_task *task);

/* Pushes the results on the empty stack of L, at least 20 of them without lua_checkstack, and returns their number. It
 * runs in the task, on a thread of the server, and may raise a Lua error, which the C function raises then; it cannot
 * wait. It is called once more with L NULL, as the last call for this `data`, to free that: by ls_task_resume or by a
 * thread of the server, always once, also when the task has ended and it was not called before. */
typedef int ls_task_results_fn(struct lua_State *L, void *data);

/* Resume the task: it continues on a thread of the server, with the results. LS_OK, or:
 *   LS_ECANCELED  the task has ended. results(NULL, data) was called, and nothing else happens
 *   LS_EBUSY      the task was resumed before. `results` is not called. This is detected only while the task has not
 *                 continued: afterwards `task` is not valid any more
 * With LS_OK the task may still end before it continues. The call does not wait. Any thread, also before ls_task_wait
 * is called; it takes mutexes: not inside a signal handler. */
LS_PUBLIC int ls_task_resume(ls_task *task, ls_task_results_fn *results, void *data);

/* Publish a message to all subscribers of a topic, in all Lua states, as ls.publish does: WebSockets, server-sent
 * events, socks and functions of ls.subscribe. The bytes are copied; they are text if they are valid UTF-8, else
 * binary. Messages published before ls_server_run serves are delivered then. Returns the number of subscribers that
 * will get it, which may be 0: not those in a Lua state to which too many messages are on their way; these count as
 * topic_dropped of ls.stats(). Or at once, and no subscriber gets it:
 *   LS_EINVAL  the topic is empty or longer than 1,024 bytes
 *   LS_ENOMEM
 * Any thread, from ls_server_open to ls_server_close. It takes mutexes: not inside a signal handler. */
LS_PUBLIC int ls_server_publish(ls_server *server, const char *topic, const void *data, size_t bytes);

/* Read a counter by the name that it has in ls.stats() of the site: "requests", "connections_open", "lua_bytes". LS_OK
 * and the number in *value, or LS_ENOENT: there is no such name; *value is not changed. Any thread, from
 * ls_server_open to ls_server_close. */
LS_PUBLIC int ls_server_counter(ls_server *server, const char *name, double *value);

LS_PUBLIC const char *ls_server_version(void);  /* of the library: "0.1.0" */
LS_PUBLIC int ls_server_version_number(void);   /* LS_VERSION_NUMBER of the library that runs */
LS_PUBLIC const char *ls_server_build(void);    /* build information, several lines; valid as long as the thread */
LS_PUBLIC const char *ls_server_backends(void); /* the back end of this system: "epoll" or "iocp" */
/* The text of a code in one line without a full stop, "system error" for a number that is no code. Static; any
 * thread. */
LS_PUBLIC const char *ls_error_text(int code);

/* Drop log lines below this level: "debug", "info" (default), "warn", "error", "off". LS_OK, or LS_EINVAL. Of the
 * servers without options.log_level. */
LS_PUBLIC int ls_server_log_level(const char *name);

/* Send the log lines of the servers without options.log, and those that concern no server, to this function instead of
 * standard error; NULL: to standard error again. Call it while no server is open. */
LS_PUBLIC void ls_server_log_to(ls_server_log_fn *log, void *user);

#ifdef __cplusplus
}
#endif

#endif
