/* command.c - which command the command line names, and the commands and the options in Lua
 * (lua/luaserve/command/). */
#include <stdio.h>
#include <string.h>

#include <lauxlib.h>
#include <lua.h>

#include "base/io/log_stderr.h"
#include "cli/embedded.h"
#include "cli/main.h"
#include "cli/pack.h"
#include "cli/pid.h"
#include "cli/repl.h"
#include "port/file/image.h"
#include "script/core/lua/lua_folder.h"
#include "script/core/lua/lua_modules.h"
#include "script/core/lua/push.h"
#include "stress/stress.h"

/* The commands, in the order of --help; argv[0] of a command is its name. A command without a line of help is not
 * listed: another program calls it. A site of the same name is given as ./NAME. */
static const struct command {
    const char *name;
    int (*run)(int argc, char **argv); /* returns the exit status */
    const char *help;
} commands[] = {
    {"dev", ls_command_dev, "serve a site, reload it after each change, show errors in the browser"},
    {"new", ls_command_lua, "make a folder with a site, its tests and editor settings"},
    {"test", ls_command_test, "run the tests of a site"},
    {"stress", ls_stress_main, "load test of a server"},
    {"pack", ls_command_lua, "make one executable of luaserve, a site and its files"},
    {"reload", ls_command_lua, "have the running server load its site again"},
    {"upgrade", ls_command_lua, "have another process of the program replace the running server"},
    {"stop", ls_command_lua, "stop the running server"},
    {"status", ls_command_lua, "print whether the server runs"},
    {"top", ls_command_lua, "what the running server does now"},
    {"unready", ls_command_lua, "have the health page of the running server say that it is not ready"},
    {"ready", ls_command_lua, "the opposite"},
    {"repl", ls_command_repl, "a prompt for Lua, also in a running server"},
    {"install", ls_command_service, "make a Windows service of a site"},
    {"uninstall", ls_command_service, "delete the Windows service"},
    {"run-as-service", ls_command_service, NULL},
    {"manual", ls_command_lua, NULL}, /* the build calls it */
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

int ls_command_line(int argc, char **argv)
{
    const int packed = ls_pack_open();
    if (packed < 0) return LS_STATUS_FAILED;
    for (size_t i = 0; argc > 1 && packed == 0 && i < COMMANDS; i++)
        if (strcmp(commands[i].name, argv[1]) == 0) return commands[i].run(argc - 1, argv + 1);
    return ls_command_serve(argc, argv);
}

/* ---- functions of the commands in Lua --------------------------------------------------------------------------- */

/* files() -> list of { path =, bytes = }: what `luaserve new` writes */
static int program_files(lua_State *L)
{
    lua_newtable(L);
    for (int i = 0; ls_embedded_files[i].path != NULL; i++) {
        lua_createtable(L, 0, 2);
        ls_set_text(L, "path", ls_embedded_files[i].path);
        lua_pushlstring(L, ls_embedded_files[i].bytes, ls_embedded_files[i].len);
        lua_setfield(L, -2, "bytes");
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* owner(path) -> the id of the process that owns the file, or nil */
static int program_owner(lua_State *L)
{
    const long id = ls_pid_file_owner(luaL_checkstring(L, 1));
    if (id == 0) return 0;
    return ls_push_integer(L, id);
}

/* reload(id) -> whether the process was notified */
static int program_reload(lua_State *L)
{
    return ls_push_boolean(L, ls_pid_reload((long)luaL_checkinteger(L, 1)) == 0);
}

/* upgrade(id) -> whether the process was notified */
static int program_upgrade(lua_State *L)
{
    return ls_push_boolean(L, ls_pid_upgrade((long)luaL_checkinteger(L, 1)) == 0);
}

/* stop(id, path) -> whether the process has ended, whether in order */
static int program_stop(lua_State *L)
{
    const int result = ls_pid_stop((long)luaL_checkinteger(L, 1), luaL_checkstring(L, 2));
    lua_pushboolean(L, result >= 0);
    lua_pushboolean(L, result == 0);
    return 2;
}

/* build() -> what --version prints of the libraries */
static int program_build(lua_State *L)
{
    return ls_push_text(L, ls_server_build());
}

static void push_program(lua_State *L)
{
    static const luaL_Reg functions[] = {{"build", program_build},
                                         {"files", program_files},
                                         {"owner", program_owner},
                                         {"reload", program_reload},
                                         {"stop", program_stop},
                                         {"upgrade", program_upgrade},
                                         {NULL, NULL}};
    luaL_newlib(L, functions);
    luaL_setfuncs(L, ls_lua_folder_functions, 0);
    lua_newtable(L);
    luaL_setfuncs(L, ls_pack_functions, 0);
    lua_setfield(L, -2, "pack");
    lua_newtable(L);
    luaL_setfuncs(L, ls_repl_functions, 0);
    lua_setfield(L, -2, "repl");
    lua_newtable(L);
    luaL_setfuncs(L, ls_service_functions, 0);
    lua_setfield(L, -2, "service");
    ls_set_text(L, "version", ls_server_version());
    ls_set_text(L, "backend", ls_server_backends());
    ls_set_boolean(L, "static", *ls_main_libraries() != '\0');
    lua_createtable(L, COMMANDS, 0);
    for (size_t i = 0, listed = 0; i < COMMANDS; i++) {
        if (commands[i].help == NULL) continue;
        lua_createtable(L, 2, 0);
        lua_pushstring(L, commands[i].name);
        lua_rawseti(L, -2, 1);
        lua_pushstring(L, commands[i].help);
        lua_rawseti(L, -2, 2);
        lua_rawseti(L, -2, (lua_Integer)++listed);
    }
    lua_setfield(L, -2, "commands");
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

/* The text where the command line has it: there it outlives the Lua state. */
static const char *place_of(char **argv, const char *text)
{
    const size_t bytes = strlen(text);
    while (strlen(*argv) < bytes || strcmp(*argv + strlen(*argv) - bytes, text) != 0) argv++;
    return *argv + strlen(*argv) - bytes;
}

/* Take the options at `values`, which server.lua has read, and the words from argv[at] on. */
static void take_line(lua_State *L, int values, int argc, char **argv, int at, ls_arguments *args)
{
    static const struct {
        const char *key;
        size_t offset;
    } texts[] = {{"attach", offsetof(ls_arguments, attach)},
                 {"backend", offsetof(ls_arguments, server.backend)},
                 {"control", offsetof(ls_arguments, server.control)},
                 {"e", offsetof(ls_arguments, server.source)},
                 {"editor", offsetof(ls_arguments, editor)},
                 {"log", offsetof(ls_arguments, log)},
                 {"log_format", offsetof(ls_arguments, log_format)},
                 {"log_level", offsetof(ls_arguments, log_level)},
                 {"name", offsetof(ls_arguments, name)},
                 {"overlay", offsetof(ls_arguments, overlay)},
                 {"pid", offsetof(ls_arguments, pid)}},
      switches[] = {{"check", offsetof(ls_arguments, server.check)},
                    {"json", offsetof(ls_arguments, json)},
                    {"listen", offsetof(ls_arguments, listen)},
                    {"packed", offsetof(ls_arguments, packed)},
                    {"version", offsetof(ls_arguments, version)}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (lua_getfield(L, values, texts[i].key) == LUA_TSTRING)
            *(const char **)((char *)args + texts[i].offset) = place_of(argv, lua_tostring(L, -1));
    for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++)
        if (lua_getfield(L, values, switches[i].key) == LUA_TBOOLEAN) *(int *)((char *)args + switches[i].offset) = 1;
    if (lua_getfield(L, values, "threads") == LUA_TNUMBER) args->server.threads = (unsigned)lua_tointeger(L, -1);
    args->server.size = sizeof args->server;
    if (args->server.source != NULL) {
        args->server.site = "(command line)";
        args->server.source_bytes = strlen(args->server.source);
    } else if (ls_image_site() != NULL) {
        args->server.site = ls_image_site();
    } else if (at < argc) {
        args->server.site = argv[at++];
    }
    args->server.argc = argc - at;
    args->server.argv = argv + at;
}

typedef struct call {
    const char *name;
    int argc;
    char **argv;
    ls_arguments *args; /* of a line that is read; else NULL */
} call;

/* Runs protected. Argument: the call, a light userdata. Returns the exit status, or LINE_READ. */
static int run(lua_State *L)
{
    const call *c = lua_touserdata(L, 1);
    ls_push_module(L, "luaserve.command.main");
    push_program(L);
    lua_pushstring(L, c->name);
    lua_createtable(L, c->argc, 0);
    for (int i = 1; i < c->argc; i++) {
        lua_pushstring(L, c->argv[i]);
        lua_rawseti(L, -2, i);
    }
    lua_call(L, 3, 2);
    const bool is_read = c->args != NULL && lua_istable(L, -2);
    if (is_read) take_line(L, lua_absindex(L, -2), c->argc, c->argv, (int)lua_tointeger(L, -1), c->args);
    return ls_push_integer(L, is_read ? LS_LINE_READ : lua_tointeger(L, -2));
}

static int call_lua(const char *name, int argc, char **argv, ls_arguments *args)
{
    call c = {name, argc, argv, args};
    lua_State *L = ls_lua_modules_state();
    int status = LS_STATUS_FAILED;
    if (L != NULL) {
        if (args != NULL) (void)lua_gc(L, LUA_GCSTOP); /* the start of a server waits for it */
        lua_pushcfunction(L, run);
        lua_pushlightuserdata(L, &c);
    }
    if (L != NULL && lua_pcall(L, 1, 1, 0) == LUA_OK)
        status = (int)lua_tointeger(L, -1);
    else
        fprintf(stderr, "luaserve: %s\n", L != NULL ? lua_tostring(L, -1) : "not enough memory");
    if (L != NULL) lua_close(L);
    return status;
}

int ls_command_lua(int argc, char **argv)
{
    return call_lua(argv[0], argc, argv, NULL);
}

int ls_line_read(const char *line, int argc, char **argv, ls_arguments *args)
{
    const int status = call_lua(line, argc, argv, args);
    if (status == LS_LINE_READ && args->log_level != NULL) (void)ls_server_log_level(args->log_level);
    if (status == LS_LINE_READ && args->log_format != NULL) ls_log_set_json(strcmp(args->log_format, "json") == 0);
    return status;
}
