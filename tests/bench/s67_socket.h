/* s67_socket.h - shared by the two baselines with blocking sockets. */
#ifndef LS_BENCH_S67_SOCKET_H
#define LS_BENCH_S67_SOCKET_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static inline void s67_fail(const char *what)
{
    perror(what);
    exit(1);
}

/* A listening, blocking socket on 127.0.0.1; "0" picks a free port. Prints the port. */
static inline int s67_listen(const char *port)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    const int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) s67_fail("socket");
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0) s67_fail("SO_REUSEADDR");
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0)
        s67_fail("TCP_NODELAY"); /* accepted sockets inherit it */
    if (bind(fd, (struct sockaddr *)&at, len) < 0) s67_fail("bind");
    if (listen(fd, 4096) < 0) s67_fail("listen");
    if (getsockname(fd, (struct sockaddr *)&at, &len) < 0) s67_fail("getsockname");
    printf("listening on 127.0.0.1:%d\n", ntohs(at.sin_port));
    (void)fflush(stdout);
    return fd;
}

/* Echo until the client closes or an error occurs. Returns the number of bytes. */
static inline unsigned long s67_acknowledge(int fd)
{
    char bytes[16384];
    unsigned long total = 0;
    for (;;) {
        const ssize_t got = recv(fd, bytes, sizeof bytes, 0);
        if (got <= 0) return total;
        for (ssize_t sent = 0; sent < got;) {
            const ssize_t n = send(fd, bytes + sent, (size_t)(got - sent), MSG_NOSIGNAL);
            if (n <= 0) return total;
            sent += n;
        }
        total += (unsigned long)got;
    }
}

#endif
