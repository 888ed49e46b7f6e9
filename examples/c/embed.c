/* embed.c - a server inside a C program: src/luaserve.h, and Lua for a function that the program defines.
 *
 *     embed [site.lua [arguments...]]
 *
 * Without a file the program serves the site in its own memory. The server runs on its own threads. A thread of the
 * program reads lines from standard input and posts each of them into Lua, to the functions of ls.on("host"). When the
 * input ends, the program drains the server and exits with status 0. Link it with the shared library and the Lua that it
 * uses:
 *
 *     cc -Isrc -I/usr/include/lua5.4 examples/c/embed.c -Lbuild -lluaserve -llua5.4 -lpthread -Wl,-rpath,$PWD/build */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include <lauxlib.h>
#include <lua.h>

#include "luaserve.h"

static const char own_site[] = "local ls = require 'luaserve'\n"
                               "local app = ls.app()\n"
                               "local lines = ls.channel('lines')\n"
                               "ls.on('host', function(line) lines:send(line) end)\n"
                               "app:get('/', function() return host.count() .. '\\n' end)\n"
                               "app:get('/line', function() return lines:receive(10) or 204 end)\n"
                               "ls.listen(0, app)\n";

typedef struct counter { /* shared by all Lua states */
    pthread_mutex_t mutex;
    long count;
    const char *prefix; /* of the lines of the log */
} counter;

/* host.count() -> how often it was called, in any state. Several threads may call it at the same time. */
static int host_count(lua_State *L)
{
    counter *c = lua_touserdata(L, lua_upvalueindex(1));
    pthread_mutex_lock(&c->mutex);
    const long count = ++c->count;
    pthread_mutex_unlock(&c->mutex);
    lua_pushinteger(L, count);
    return 1;
}

/* Called in each Lua state before the site: defines the table `host`. */
static int define_host(lua_State *L, void *user)
{
    lua_newtable(L);
    lua_pushlightuserdata(L, user);
    lua_pushcclosure(L, host_count, 1);
    lua_setfield(L, -2, "count");
    lua_setglobal(L, "host");
    return 0;
}

/* Receives the log. stdio locks the stream, so that lines of several threads are not mixed. */
static void log_line(int level, const char *line, size_t bytes, void *user)
{
    const counter *c = user;
    fprintf(stderr, "%s[%d] %.*s\n", c->prefix, level, (int)bytes, line);
}

/* Posts each line of standard input. A site without ls.on("host") ignores them. */
static void *read_lines(void *server)
{
    char line[1000];
    while (fgets(line, sizeof line, stdin) != NULL) {
        int result;
        while ((result = ls_server_post(server, line, strlen(line))) == LS_EAGAIN) sched_yield();
        if (result < 0 && result != LS_ENOENT) /* no ls.on("host") */
            fprintf(stderr, "embed: the line was not posted: %s\n", ls_error_text(result));
    }
    return NULL;
}

int main(int argc, char **argv)
{
    char message[512], address[128];
    counter hits = {PTHREAD_MUTEX_INITIALIZER, 0, "embed: "};
    ls_server *server;
    pthread_t reader;
    double requests = 0;
    ls_server_options options = {
        .size = sizeof options, .threads = 2, .open = define_host, .log = log_line, .user = &hits};
    if (argc > 1) {
        options.site = argv[1];
        options.argc = argc - 2;
        options.argv = argv + 2;
    } else {
        options.site = "built-in site"; /* its name in messages */
        options.source = own_site;
    }
    if (ls_server_open(&options, &server, message, sizeof message) < 0) {
        fprintf(stderr, "embed: %s\n", message); /* contains the place and the reason */
        return 1;
    }
    if (ls_server_start(server) < 0) { /* on a thread of the library */
        ls_server_close(server);
        return 1;
    }
    printf("luaserve %s serves", ls_server_version());
    for (unsigned n = 0; ls_server_address(server, n, address, sizeof address) == 0; n++) printf(" %s", address);
    printf("\n");
    fflush(stdout);

    if (pthread_create(&reader, NULL, read_lines, server) == 0) pthread_join(reader, NULL); /* until the input ends */

    ls_server_stop(server); /* accepted requests still get their responses, posted lines their tasks */
    const int result = ls_server_wait(server);
    ls_server_counter(server, "requests", &requests); /* any name of ls.stats() */
    ls_server_close(server);                          /* in any case: it ends handlers that still run */
    if (result < 0) {
        fprintf(stderr, "embed: %s\n", ls_error_text(result));
        return 1;
    }
    printf("stopped after %.0f requests\n", requests);
    return 0;
}
