/* luaserve.h - a scripted network server for C programs.
 *
 *     ls_server *server;
 *     char message[512];
 *     ls_server_options options = {.site = "site.lua", .signals = 1};
 *     if (ls_server_open(&options, &server, message, sizeof message) < 0) ...   // message says where and why
 *     int status = ls_server_run(server);      // serves until ls_server_stop, SIGINT or SIGTERM
 *     ls_server_close(server);
 *
 * Results are LS_OK (0) or a negative code; ls_error_text() says it in words. */
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
    int argc;         /* what the file sees as `...` and arg[1], arg[2], ... */
    char **argv;
    unsigned threads;    /* that run at a time; 0: what the site asks for, else the processors of this process */
    const char *backend; /* "auto" (also NULL) or a name that ls_server_backends() lists */
    int check;           /* not 0: load and describe only; no listener is opened */
    int signals;         /* not 0: SIGINT and SIGTERM drain the server, a second one ends it at once */
    void (*serving)(void *user); /* NULL, or called by ls_server_run once it serves */
    void *user;                  /* its argument */
} ls_server_options;

/* Load the site and open its listeners; nothing is served yet. LS_OK, or a negative code with a line for people in
 * `message` (always terminated, cut to fit); then nothing is left open. */
LS_PUBLIC int ls_server_open(const ls_server_options *options, ls_server **out, char *message, size_t message_bytes);

/* What the site defines, a line for each listener, to standard output. */
LS_PUBLIC void ls_server_describe(const ls_server *server);

/* Serve; returns when the server was stopped and has drained. LS_OK; LS_ETIMEDOUT (-5): the drain took longer than its
 * limit and connections were cut; LS_ECANCELED (-4): stopped a second time. After the latter two some handlers may still
 * run: end the process. Another negative code: the threads could not be started, and nothing was served. */
LS_PUBLIC int ls_server_run(ls_server *server);

/* Begin to drain: accept no more, answer what was accepted, run "drain" hooks. A second call ends at once. Any thread. */
LS_PUBLIC void ls_server_stop(ls_server *server);

/* After ls_server_run has returned LS_OK or could not start its threads, or instead of it. */
LS_PUBLIC void ls_server_close(ls_server *server);

LS_PUBLIC const char *ls_server_version(void);  /* "0.1.0" */
LS_PUBLIC const char *ls_server_build(void);    /* what is built in, several lines */
LS_PUBLIC const char *ls_server_backends(void); /* names, separated by spaces */
LS_PUBLIC const char *ls_error_text(int code);

/* Log lines below this level are dropped: "debug", "info" (default), "warn", "error", "off". LS_OK, or LS_EINVAL (-3). */
LS_PUBLIC int ls_server_log_level(const char *name);

/* The command line `luaserve stress`: argv[0] is "stress", its options follow (`luaserve stress --help`). Returns the
 * exit status: 0; 99 when a threshold was missed; 1 when the run could not be made, which was said on standard error. */
LS_PUBLIC int ls_stress_main(int argc, char **argv);

#ifdef __cplusplus
}
#endif

#endif
