/* embed.c - a server inside a C program, with src/luaserve.h only.
 *
 *     embed site.lua [arguments...]
 *
 * The server runs on its own threads; meanwhile this program waits until its standard input ends. Then it drains the
 * server and exits with status 0. Link it with either library:
 *
 *     cc -Isrc examples/c/embed.c -Lbuild -lluaserve -lpthread -Wl,-rpath,$PWD/build */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "luaserve.h"

static void *serve(void *arg)
{
    static int status;
    status = ls_server_run(arg); /* until ls_server_stop */
    return &status;
}

int main(int argc, char **argv)
{
    char message[512], bytes[256];
    ls_server *server;
    pthread_t thread;
    void *status;
    if (argc < 2) {
        fprintf(stderr, "usage: embed site.lua [arguments...]\n");
        return 2;
    }
    const ls_server_options options = {.site = argv[1], .argc = argc - 2, .argv = argv + 2, .threads = 2};
    if (ls_server_open(&options, &server, message, sizeof message) < 0) {
        fprintf(stderr, "embed: %s\n", message); /* contains the place and the reason */
        return 1;
    }
    if (pthread_create(&thread, NULL, serve, server) != 0) {
        ls_server_close(server); /* instead of a run */
        return 1;
    }
    printf("luaserve %s serves\n", ls_server_version());
    fflush(stdout);

    while (read(0, bytes, sizeof bytes) > 0) continue; /* the rest of the program */

    ls_server_stop(server); /* from any thread: accepted requests still get their responses */
    pthread_join(thread, &status);
    if (*(int *)status < 0) {
        fprintf(stderr, "embed: %s\n", ls_error_text(*(int *)status));
        return 1; /* a handler may still run, so exit without closing the server */
    }
    ls_server_close(server);
    printf("stopped\n");
    return 0;
}
