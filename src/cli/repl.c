/* repl.c - `luaserve repl`: its options, its server, and the functions of lua/luaserve/command/prompt.lua, which has
 * the loop. See repl.h. */
#include "cli/repl.h"

#include <stdio.h>
#include <stdlib.h>

#include <lauxlib.h>

#include "base/io/terminal.h"
#include "base/os/thread.h"
#include "cli/main.h"
#include "script/core/lua/push.h"

enum { CLOSE_SECONDS_MAX = 15, READ_BYTES = 65536 };

/* Our own server, on another thread. */
static struct own {
    ls_server_options options;
    ls_server *server;
    ls_thread thread;
    int result; /* of ls_server_run */
} own;

/* nil, or the message that `why` has */
static int push_failure(lua_State *L, const char *why)
{
    return ls_push_nil_text(L, why);
}

/* A text; nil: the end (0); false: Ctrl-C. */
static int push_input(lua_State *L, long got, const char *text)
{
    if (got > 0)
        lua_pushlstring(L, text, (size_t)got);
    else if (got == LS_REPL_INTERRUPTED)
        lua_pushboolean(L, 0);
    else
        lua_pushnil(L);
    return 1;
}

/* ---- connections ------------------------------------------------------------------------------------------------ */

/* connect(path) -> link | nil, message */
static int repl_connect(lua_State *L)
{
    char why[256];
    intptr_t link;
    if (ls_repl_connect(luaL_checkstring(L, 1), &link, why, sizeof why) < 0) return push_failure(L, why);
    return ls_push_integer(L, link);
}

/* write(link, text) -> whether the connection lives */
static int repl_write(lua_State *L)
{
    size_t bytes;
    const char *text = luaL_checklstring(L, 2, &bytes);
    return ls_push_boolean(L, ls_repl_write((intptr_t)luaL_checkinteger(L, 1), text, bytes) == 0);
}

/* read(link) -> text | nil: the connection has ended | false: Ctrl-C */
static int repl_read(lua_State *L)
{
    static char text[READ_BYTES];
    return push_input(L, ls_repl_read((intptr_t)luaL_checkinteger(L, 1), text, sizeof text), text);
}

/* key(ms) -> the key that was pressed on the terminal, "": none within the time | nil: Ctrl-C, or the end of the input */
static int repl_key(lua_State *L)
{
    const int key = ls_repl_key((int)luaL_checkinteger(L, 1));
    const char text = (char)key;
    if (key < 0) return 0;
    lua_pushlstring(L, &text, key > 0);
    return 1;
}

/* columns() -> those of the terminal */
static int repl_columns(lua_State *L)
{
    return ls_push_integer(L, ls_terminal_columns(stdout));
}

static int repl_disconnect(lua_State *L)
{
    ls_repl_disconnect((intptr_t)luaL_checkinteger(L, 1));
    return 0;
}

/* ---- lines ------------------------------------------------------------------------------------------------------ */

static const char *complete(void *user, const char *text, size_t bytes)
{
    lua_State *L = user;
    lua_getfield(L, LUA_REGISTRYINDEX, "luaserve.complete");
    lua_pushlstring(L, text, bytes);
    const char *words = lua_pcall(L, 1, 1, 0) == LUA_OK ? lua_tostring(L, -1) : NULL;
    lua_setfield(L, LUA_REGISTRYINDEX, "luaserve.words"); /* `words` lives there until the next call */
    return words;
}

/* open_editor(complete) -> whether lines can be read from the terminal; Ctrl-C does not end the program any more.
 * complete(text) -> the last word and its candidates, a line each | nil */
static int repl_open_editor(lua_State *L)
{
    static char history[1024];
    lua_setfield(L, LUA_REGISTRYINDEX, "luaserve.complete");
    ls_repl_history_path(history, sizeof history);
    ls_repl_catch_interrupts();
    return ls_push_boolean(L, ls_repl_editor_open(history, complete, L) == 0);
}

static int repl_close_editor(lua_State *L)
{
    ls_repl_editor_close();
    return 0;
}

/* line([prompt]) -> the next line | nil: the end of the input | false: Ctrl-C. With a prompt from the editor. */
static int repl_line(lua_State *L)
{
    const char *prompt = luaL_optstring(L, 1, NULL), *line = NULL;
    const int got = prompt != NULL ? ls_repl_editor_line(prompt, &line) : ls_repl_plain_line("", &line);
    if (got <= 0) return push_input(L, got, NULL);
    return ls_push_text(L, line);
}

/* terminal() -> whether standard input and output are a terminal */
static int repl_terminal(lua_State *L)
{
    return ls_push_boolean(L, ls_repl_is_terminal());
}

/* ---- the server ------------------------------------------------------------------------------------------------- */

static void serve(void *arg)
{
    own.result = ls_server_run(own.server);
}

/* serve() -> the path of the control socket of our own server | nil, message. The socket exists until remove(path). */
static int repl_serve(lua_State *L)
{
    static char path[128];
    char text[2048];
    if (ls_repl_private_path(path, sizeof path, text, sizeof text) < 0)
        return push_failure(L, lua_pushfstring(L, "luaserve repl: cannot make a folder: %s", text));
    own.options.control = path;
    if (ls_server_open(&own.options, &own.server, text, sizeof text) < 0) {
        ls_repl_private_remove(path);
        return push_failure(L, lua_pushfstring(L, "luaserve: %s", text));
    }
    if (ls_thread_start_parent(&own.thread, "ls-repl", serve, NULL) < 0) {
        ls_repl_private_remove(path);
        ls_server_close(own.server);
        return push_failure(L, "luaserve repl: cannot start a thread");
    }
    return ls_push_text(L, path);
}

static int repl_remove(lua_State *L)
{
    static char path[128];
    (void)snprintf(path, sizeof path, "%s", luaL_checkstring(L, 1));
    ls_repl_private_remove(path);
    return 0;
}

/* interrupt(): end what computes in our own server */
static int repl_interrupt(lua_State *L)
{
    ls_server_interrupt(own.server);
    return 0;
}

/* stop(waits, status): end our own server. `waits`: a line that still waits does not delay it. */
static int repl_stop(lua_State *L)
{
    const int status = (int)luaL_checkinteger(L, 2);
    ls_server_stop(own.server);
    if (lua_toboolean(L, 1)) ls_server_stop(own.server);
    ls_thread_join(&own.thread);
    if (own.result < 0) {
        fflush(NULL);
        _Exit(status); /* handlers may still run in their Lua states, so nothing is freed */
    }
    ls_command_end_within(CLOSE_SECONDS_MAX, status);
    ls_server_close(own.server);
    return 0;
}

const luaL_Reg ls_repl_functions[] = {{"connect", repl_connect},
                                      {"write", repl_write},
                                      {"read", repl_read},
                                      {"disconnect", repl_disconnect},
                                      {"open_editor", repl_open_editor},
                                      {"line", repl_line},
                                      {"close_editor", repl_close_editor},
                                      {"terminal", repl_terminal},
                                      {"key", repl_key},
                                      {"columns", repl_columns},
                                      {"serve", repl_serve},
                                      {"remove", repl_remove},
                                      {"interrupt", repl_interrupt},
                                      {"stop", repl_stop},
                                      {NULL, NULL}};

int ls_command_repl(int argc, char **argv)
{
    ls_arguments args = {0};
    const int status = ls_line_read("repl", argc, argv, &args);
    if (status != LS_LINE_READ) return status;
    if (args.attach == NULL && args.log_level == NULL) (void)ls_server_log_level("warn");
    args.server.idle = !args.listen || args.server.site == NULL;
    if (args.server.site == NULL) args.server.site = "(no site)", args.server.source = "";
    own.options = args.server;
    return ls_command_lua(args.attach != NULL ? 2 : 1, (char *[]){"prompt", (char *)args.attach});
}
