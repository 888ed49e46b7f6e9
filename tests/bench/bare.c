/* bare.c - shared by the bare servers; see bare.h. */
#define _GNU_SOURCE
#include "bare.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

bool bare_responses_open(bare_responses *responses, const char *one)
{
    size_t each = strlen(one);
    char *bytes = malloc(each * BARE_RESPONSES_MAX);
    if (bytes == NULL) return false;
    for (size_t i = 0; i < BARE_RESPONSES_MAX; i++) memcpy(bytes + i * each, one, each);
    responses->bytes = bytes;
    responses->each = each;
    return true;
}

int bare_bound(const char *port, int type)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(port))};
    int one = 1, fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
        bind(fd, (struct sockaddr *)&at, sizeof at) < 0) {
        perror("cannot bind");
        exit(1);
    }
    return fd;
}

int bare_listen(const char *port)
{
    int fd = bare_bound(port, SOCK_STREAM | SOCK_NONBLOCK);
    if (listen(fd, 4096) < 0) {
        perror("cannot listen");
        exit(1);
    }
    return fd;
}

int bare_accept(int listener)
{
    for (;;) {
        int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return -1; /* EAGAIN, or the client has disconnected */
        if (fd < BARE_CONNECTIONS_MAX && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0) return fd;
        close(fd);
    }
}
