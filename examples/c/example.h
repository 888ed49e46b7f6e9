/* example.h - shared by the C examples: loopback sockets, a port with its pools, and a check that exits on failure at
 * the start. */
#ifndef LS_EXAMPLES_EXAMPLE_H
#define LS_EXAMPLES_EXAMPLE_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "port/notify.h"

static inline void check(bool good, const char *what)
{
    if (good) return;
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

/* A port, and the account of the pools from which its threads receive. */
static inline ls_port *example_port(ls_pools **pools)
{
    ls_port *port;
    setvbuf(stdout, NULL, _IOLBF, 0); /* print each line immediately */
    check(ls_port_open(&(ls_port_options){.sockets_max = 1024}, &port) == LS_OK, "port");
    check(ls_pools_open(16u << 20, pools) == LS_OK, "pools");
    return port;
}

/* A thread context at the port for the calling thread. */
static inline void example_ctx(ls_thread_ctx *ctx, ls_port *port, ls_pools *pools, unsigned index)
{
    ls_pool *pool;
    check(ls_pool_open(pools, &pool) == LS_OK, "pool");
    ls_pool_enter(pool);
    ls_thread_ctx_init(ctx, port, pool, index);
}

/* Submit one registration; returns its result. */
static inline int example_notify(ls_port *port, ls_registration r)
{
    (void)ls_port_notify(port, NULL, &r, 1, NULL, 0, 0);
    return r.result;
}

/* Bind to a loopback port; "0": any free port. */
static inline void example_bind(int fd, const char *port)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    check(bind(fd, (struct sockaddr *)&at, sizeof at) == 0, "bind");
}

/* Print the address: the socket now receives. */
static inline void example_ready(int fd)
{
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    check(getsockname(fd, (struct sockaddr *)&at, &len) == 0, "getsockname");
    printf("listening on 127.0.0.1:%d\n", ntohs(at.sin_port));
}

/* A listening TCP socket; flags may be SOCK_NONBLOCK. */
static inline int example_listen(const char *port, int flags)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    check(fd >= 0, "socket");
    check(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) == 0, "SO_REUSEADDR");
    example_bind(fd, port);
    check(listen(fd, 128) == 0, "listen");
    example_ready(fd);
    return fd;
}

#endif
