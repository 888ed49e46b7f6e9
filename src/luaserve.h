/* luaserve.h - a scripted network server for C programs.
 *
 *     ls_server *server;
 *     char message[512];
 *     ls_server_options options = {.site = "site.lua", .signals = 1};
 *     if (ls_server_open(&options, &server, message, sizeof message) < 0) ...   // message: place and reason
 *     int status = ls_server_run(server);      // serves until ls_server_stop or, with .signals, SIGINT or SIGTERM
 *     ls_server_close(server);
 *
 * Results are LS_OK (0) or a negative code; ls_error_text() describes a code. */
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

typedef struct ls_server_options {
    const char *site; /* path of the Lua file */
    int argc;         /* arguments of the file: `...` and arg[1], arg[2], ... */
    char **argv;
    unsigned threads;    /* running threads; 0: the number set by the site, else one per processor of this process */
    const char *backend; /* "auto" (also NULL) or one of the names of ls_server_backends() */
    int check;           /* nonzero: only load and describe the site; no listener is opened */
    /* Nonzero: SIGINT and SIGTERM drain the server, and a second one ends it immediately; SIGHUP, SIGUSR1 and SIGUSR2 are
     * logged; SIGPIPE has no effect. 0: the server changes no action of a signal. Only one server of the process at a
     * time may set it, else ls_server_open returns LS_EBUSY (-20). */
    int signals;
    void (*serving)(void *user); /* NULL, or called by ls_server_run when the server accepts connections */
    void *user;                  /* argument of serving */
} ls_server_options;

/* Load the site and open its listeners; nothing is served yet. LS_OK, or a negative code with a one-line description
 * in `message` (always terminated, cut to fit); nothing is left open then. */
LS_PUBLIC int ls_server_open(const ls_server_options *options, ls_server **out, char *message, size_t message_bytes);

/* Print the listeners of the site to standard output, one line each. */
LS_PUBLIC void ls_server_describe(const ls_server *server);

/* Serve until the server is stopped and has drained. LS_OK; LS_ETIMEDOUT (-5): the drain exceeded its time limit, and
 * the remaining connections were closed; LS_ECANCELED (-4): stopped a second time. After the latter two, handlers may
 * still run: end the process. Another negative code: the threads could not be started, and nothing was served. */
LS_PUBLIC int ls_server_run(ls_server *server);

/* Start the drain: stop accepting, respond to every accepted request, run the "drain" hooks. A second call ends the
 * server immediately. Any thread. */
LS_PUBLIC void ls_server_stop(ls_server *server);

/* Close the server: after ls_server_run has returned LS_OK or an error of the start, or if it was never called. */
LS_PUBLIC void ls_server_close(ls_server *server);

LS_PUBLIC const char *ls_server_version(void);  /* "0.1.0" */
LS_PUBLIC const char *ls_server_build(void);    /* build information, several lines */
LS_PUBLIC const char *ls_server_backends(void); /* names separated by spaces */
LS_PUBLIC const char *ls_error_text(int code);

/* Drop log lines below this level: "debug", "info" (default), "warn", "error", "off". LS_OK, or LS_EINVAL (-3). */
LS_PUBLIC int ls_server_log_level(const char *name);

/* The command line `luaserve stress`: argv[0] is "stress", its options follow (`luaserve stress --help`). Returns the
 * exit status: 0; 99: a threshold was missed; 1: the run failed, with the reason on standard error. */
LS_PUBLIC int ls_stress_main(int argc, char **argv);

#ifdef __cplusplus
}
#endif

#endif
