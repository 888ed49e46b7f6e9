/* test.c - `luaserve test`: the module luaserve.test.system for the files in lua/luaserve/test/, and the processes
 * that they run in (test/child.lua).
 *
 *     luaserve test ...                                          test/run.lua finds the files and prints the results
 *       luaserve test --file-process [options] NAME SETTINGS     test/file.lua runs one file; one JSON report per line
 *         luaserve test --server-process [options] SITE ...      a server of the file (test/server.lua)
 *
 * The second and the third process have no signal handlers: they end when the pipe from their parent closes
 * (parent.h). Each is a process of its own so that a crash or os.exit of a site ends neither the run nor the report
 * about it. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <lauxlib.h>
#include <lua.h>

#include "base/err.h"
#include "base/io/terminal.h"
#include "base/os/thread.h"
#include "cli/main.h"
#include "cli/parent.h"
#include "script/core/lua/lua_folder.h"
#include "script/core/lua/push.h"

enum { CLOSE_SECONDS_MAX = 15, URL_BYTES = 1024, PATH_BYTES = 4096 };
#define ANY_PORT "127.0.0.1:0"

/* What the functions of the module know; of this process. */
static struct session {
    ls_server *server; /* of the first process */
    int status;        /* exit status of the first process */
    FILE *channel;     /* NULL in the first process: where the reports go */
} session;

/* ---- the module ------------------------------------------------------------------------------------------------ */

/* system.program() -> the path of this program */
static int system_program(lua_State *L)
{
    char path[PATH_BYTES];
    if (ls_parent_program(path, sizeof path) < 0) return luaL_error(L, "the path of the program is unknown");
    return ls_push_text(L, path);
}

/* system.terminal() -> whether standard output is a terminal */
static int system_terminal(lua_State *L)
{
    return ls_push_boolean(L, ls_is_terminal(stdout));
}

/* system.report(line): send a line to the parent. */
static int system_report(lua_State *L)
{
    size_t len;
    const char *line = luaL_checklstring(L, 1, &len);
    (void)fwrite(line, 1, len, session.channel);
    (void)fputc('\n', session.channel);
    (void)fflush(session.channel);
    return 0;
}

/* system.codes() -> a table with the codes of errors as keys */
static int system_codes(lua_State *L)
{
    const char *name = "ESYS";
    lua_newtable(L);
    for (int err = LS_ESYS; err == LS_ESYS || strcmp(name, "ESYS") != 0; name = ls_err_name(--err))
        ls_set_boolean(L, name, true);
    return 1;
}

/* system.finish(status): the first process drains and ends with the status; another one ends at once, because a test
 * that timed out may still run. */
static int system_finish(lua_State *L)
{
    session.status = (int)luaL_checkinteger(L, 1);
    if (session.channel != NULL) {
        (void)fflush(NULL);
        _Exit(session.status);
    }
    if (session.server != NULL) ls_server_stop(session.server);
    return 0;
}

static int define(lua_State *L, void *user)
{
    static const luaL_Reg functions[] = {{"program", system_program}, {"terminal", system_terminal},
                                         {"report", system_report},   {"codes", system_codes},
                                         {"finish", system_finish},   {NULL, NULL}};
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    luaL_newlib(L, functions);
    luaL_setfuncs(L, ls_lua_folder_functions, 0);
    lua_setfield(L, -2, "luaserve.test.system");
    return 0;
}

/* ---- the first process ----------------------------------------------------------------------------------------- */

static int run_tests(int argc, char **argv)
{
    static const char source[] = "require('luaserve.test.run').main(...)";
    const ls_server_options options = {.size = sizeof options,
                                       .site = "luaserve test",
                                       .source = source,
                                       .argc = argc - 1,
                                       .argv = argv + 1,
                                       .open = define};
    char message[1024];
    session.status = LS_STATUS_FAILED;
    (void)ls_server_log_level("warn");
    if (ls_server_open(&options, &session.server, message, sizeof message) < 0) {
        fprintf(stderr, "luaserve: %s\n", message);
        return LS_STATUS_FAILED;
    }
    if (ls_server_run(session.server) < 0) _Exit(LS_STATUS_FAILED); /* its Lua state may still run */
    ls_server_close(session.server);
    return session.status;
}

/* ---- the process of a file ------------------------------------------------------------------------------------- */

static void end_process(void)
{
    _Exit(LS_STATUS_FAILED);
}

static int run_file(ls_server_options *options)
{
    static const char source[] = "require('luaserve.test.file').main(require('cjson').decode((...)))";
    ls_server *server;
    char message[1024];
    if ((session.channel = ls_parent_open(end_process)) == NULL) return LS_STATUS_FAILED;
    options->source = source;
    options->signals = 0;
    options->threads = 1; /* one Lua state, else the file would run several times */
    options->listen_on = ANY_PORT;
    options->open = define;
    if (ls_server_open(options, &server, message, sizeof message) < 0) {
        fprintf(stderr, "luaserve test: %s\n", message);
        return LS_STATUS_FAILED;
    }
    (void)ls_server_run(server); /* system.finish ends the process */
    (void)fflush(NULL);
    _Exit(LS_STATUS_FAILED);
}

/* ---- a server of a file ---------------------------------------------------------------------------------------- */

/* The server, for the watcher of the pipe; NULL: it loads, or has ended. */
static struct {
    ls_mutex mutex;
    ls_server *server;
    bool parent_ended;
} serving;

static void drain_server(void)
{
    ls_mutex_lock(&serving.mutex);
    serving.parent_ended = true;
    if (serving.server != NULL) ls_server_stop(serving.server);
    ls_mutex_unlock(&serving.mutex);
}

static void set_serving(ls_server *server)
{
    ls_mutex_lock(&serving.mutex);
    serving.server = server;
    if (server != NULL && serving.parent_ended) ls_server_stop(server);
    ls_mutex_unlock(&serving.mutex);
}

static void report_addresses(void *user)
{
    const ls_server *server = session.server;
    char url[URL_BYTES];
    for (unsigned i = 0; ls_server_url(server, i, url, sizeof url) == 0; i++)
        fprintf(session.channel, "listening %s\n", url);
    fprintf(session.channel, "ready\n");
    (void)fflush(session.channel);
}

static int serve_site(ls_server_options *options)
{
    char message[2048];
    ls_mutex_open(&serving.mutex);
    if ((session.channel = ls_parent_open(drain_server)) == NULL) return LS_STATUS_FAILED;
    options->signals = 0;
    options->listen_on = ANY_PORT;
    options->serving = report_addresses;
    if (ls_server_open(options, &session.server, message, sizeof message) < 0) {
        fprintf(session.channel, "error %s\n", message);
        return LS_STATUS_FAILED;
    }
    set_serving(session.server);
    if (ls_server_run(session.server) < 0) {
        (void)fflush(NULL);
        _Exit(LS_STATUS_FAILED);
    }
    set_serving(NULL);
    ls_command_end_within(CLOSE_SECONDS_MAX, LS_STATUS_OK);
    ls_server_close(session.server);
    return LS_STATUS_OK;
}

int ls_command_test(int argc, char **argv)
{
    int (*run)(ls_server_options * options) = NULL;
    ls_arguments args = {0};
    ls_main_set_env("test", 1); /* one of the caller may name the data of a real server */
    if (argc > 1 && strcmp(argv[1], "--file-process") == 0) run = run_file;
    if (argc > 1 && strcmp(argv[1], "--server-process") == 0) run = serve_site;
    if (run == NULL) return run_tests(argc, argv);
    const int status = ls_line_read("serve", argc - 1, argv + 1, &args);
    return status == LS_LINE_READ ? run(&args.server) : status;
}
