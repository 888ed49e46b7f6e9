/* test.c - `luaserve test`: the module luaserve.test.system for the files in lua/luaserve/test/, and the processes that
 * they run in.
 *
 *     luaserve test ...                                          test/run.lua finds the files and prints the results
 *       luaserve test --file-process [options] NAME SETTINGS     test/file.lua runs one file; one JSON report per line
 *         luaserve test --server-process [options] SITE ...      a server of the file (test/server.lua)
 *
 * The second and the third process have no signal handlers: they end when the pipe from their parent closes
 * (process.h), and an interrupt from the terminal ends all. Each is a process of its own so that a crash or os.exit of
 * a site ends neither the run nor the report about it. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <lauxlib.h>
#include <lua.h>

#include "cli/main.h"
#include "cli/options.h"
#include "cli/process.h"
#include "script/core/lua/lua_folder.h"

enum { CLOSE_SECONDS_MAX = 15, URL_BYTES = 1024 };
#define ANY_PORT "127.0.0.1:0"

/* What the functions of the module know; of this process. */
static struct session {
    ls_server *server; /* of the first process */
    int status;        /* exit status of the first process */
    FILE *channel;     /* NULL in the first process: where the reports go */
} session;

/* ---- processes ------------------------------------------------------------------------------------------------- */

static const char process_name[] = "luaserve.test.process";

typedef struct child {
    ls_process *process; /* NULL: closed */
    char *bytes;         /* read, and not returned yet */
    size_t used, room;
} child;

/* system.start(arguments) -> process | nil, message. Starts this program with the arguments. */
static int system_start(lua_State *L)
{
    char message[256];
    luaL_checktype(L, 1, LUA_TTABLE);
    const int count = (int)lua_rawlen(L, 1);
    const char **arguments = lua_newuserdatauv(L, ((size_t)count + 1) * sizeof *arguments, 0);
    luaL_checkstack(L, count + 8, "too many arguments");
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, 1, i + 1); /* stays on the stack, so the text stays valid */
        arguments[i] = luaL_checkstring(L, -1);
    }
    child *c = lua_newuserdatauv(L, sizeof *c, 0);
    *c = (child){NULL, NULL, 0, 0};
    luaL_setmetatable(L, process_name);
    c->process = ls_process_start(count, arguments, message, sizeof message);
    if (c->process != NULL) return 1;
    lua_pushnil(L);
    lua_pushstring(L, message);
    return 2;
}

static child *check_child(lua_State *L)
{
    child *c = luaL_checkudata(L, 1, process_name);
    if (c->process == NULL) luaL_error(L, "the process is closed");
    return c;
}

/* Push the first line of what was read, without its end. */
static int push_line(lua_State *L, child *c)
{
    const char *end = c->used > 0 ? memchr(c->bytes, '\n', c->used) : NULL;
    if (end == NULL) return 0;
    const size_t len = (size_t)(end - c->bytes);
    lua_pushlstring(L, c->bytes, len);
    c->used -= len + 1;
    memmove(c->bytes, end + 1, c->used);
    return 1;
}

/* process:receive(seconds) -> line | nil, "timeout" | nil, "closed". Blocks the thread. */
static int process_receive(lua_State *L)
{
    enum { ROOM_MIN = 4096 };
    child *c = check_child(L);
    const unsigned ms = (unsigned)(luaL_checknumber(L, 2) * 1000);
    for (;;) {
        if (push_line(L, c)) return 1;
        if (c->room - c->used < ROOM_MIN) {
            const size_t room = 2 * c->room + ROOM_MIN;
            char *grown = realloc(c->bytes, room);
            if (grown == NULL) return luaL_error(L, "not enough memory");
            c->bytes = grown;
            c->room = room;
        }
        const long n = ls_process_read(c->process, c->bytes + c->used, c->room - c->used, ms);
        if (n <= 0) {
            lua_pushnil(L);
            lua_pushstring(L, n < 0 ? "timeout" : "closed");
            return 2;
        }
        c->used += (size_t)n;
    }
}

/* process:stop(): close the pipe to it, which makes it end. */
static int process_stop(lua_State *L)
{
    ls_process_stop(check_child(L)->process);
    return 0;
}

/* process:wait() -> "exit", status | "signal", number, name. Blocks until the process has ended. */
static int process_wait(lua_State *L)
{
    int number;
    const enum ls_process_end end = ls_process_wait(check_child(L)->process, &number);
    lua_pushstring(L, end == LS_PROCESS_EXIT ? "exit" : "signal");
    lua_pushinteger(L, number);
    if (end == LS_PROCESS_EXIT) return 2;
    lua_pushstring(L, ls_process_signal_name(number));
    return 3;
}

/* process:close(): end it now, if it runs. */
static int process_close(lua_State *L)
{
    child *c = luaL_checkudata(L, 1, process_name);
    if (c->process != NULL) ls_process_close(c->process);
    free(c->bytes);
    *c = (child){NULL, NULL, 0, 0};
    return 0;
}

/* ---- the module ------------------------------------------------------------------------------------------------ */

/* system.terminal() -> whether standard output is a terminal */
static int system_terminal(lua_State *L)
{
    lua_pushboolean(L, ls_process_is_terminal());
    return 1;
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
    static const luaL_Reg methods[] = {{"receive", process_receive}, {"stop", process_stop},  {"wait", process_wait},
                                       {"close", process_close},     {"__gc", process_close}, {NULL, NULL}};
    static const luaL_Reg functions[] = {{"start", system_start},
                                         {"terminal", system_terminal},
                                         {"report", system_report},
                                         {"finish", system_finish},
                                         {NULL, NULL}};
    luaL_newmetatable(L, process_name);
    luaL_setfuncs(L, methods, 0);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "__index");
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
                                       .source_bytes = sizeof source - 1,
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

static void end_process(void *user)
{
    _Exit(LS_STATUS_FAILED);
}

static int run_file(ls_server_options *options)
{
    static const char source[] = "require('luaserve.test.file').main(require('cjson').decode((...)))";
    ls_server *server;
    char message[1024];
    if ((session.channel = ls_process_channel(end_process, NULL)) == NULL) return LS_STATUS_FAILED;
    options->source = source;
    options->source_bytes = sizeof source - 1;
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

/* The server: taken by the thread that uses it, so that the watcher of the pipe does not stop one that is closed. */
static _Atomic(ls_server *) shared_server;
static atomic_flag stop_begun = ATOMIC_FLAG_INIT;
static atomic_bool parent_gone;

static ls_server *take_server(void)
{
    ls_server *server;
    do {
        server = atomic_exchange(&shared_server, NULL);
    } while (server == NULL);
    return server;
}

/* A second stop would end the server at once. */
static void stop_once(ls_server *server)
{
    if (!atomic_flag_test_and_set(&stop_begun)) ls_server_stop(server);
}

static void drain_server(void *user)
{
    atomic_store(&parent_gone, true);
    ls_server *server = atomic_exchange(&shared_server, NULL);
    if (server == NULL) return; /* it still loads, and serve_site stops it; or it has ended */
    stop_once(server);
    atomic_store(&shared_server, server);
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
    if ((session.channel = ls_process_channel(drain_server, NULL)) == NULL) return LS_STATUS_FAILED;
    options->signals = 0;
    options->listen_on = ANY_PORT;
    options->serving = report_addresses;
    if (ls_server_open(options, &session.server, message, sizeof message) < 0) {
        fprintf(session.channel, "error %s\n", message);
        return LS_STATUS_FAILED;
    }
    atomic_store(&shared_server, session.server);
    if (atomic_load(&parent_gone)) stop_once(session.server);
    if (ls_server_run(session.server) < 0) {
        (void)fflush(NULL);
        _Exit(LS_STATUS_FAILED);
    }
    ls_command_end_within(CLOSE_SECONDS_MAX, LS_STATUS_OK);
    ls_server_close(take_server());
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
    if (ls_line_read(argc - 1, argv + 1, LS_LINE_SERVE, &args) < 0)
        return ls_command_explain("serve", argc - 1, argv + 1);
    return run(&args.server);
}
