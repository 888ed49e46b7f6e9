/* bare_echo.c - the bare echo on epoll: one thread, edge-triggered, 64 events per wait, 64 KiB per receive.
 *
 *     bare_echo PORT
 *
 * Received data is sent back immediately from one buffer that all connections share. Data that the socket does not
 * take is copied to memory of the connection, which receives nothing until that data is sent. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bare.h"

enum { ECHO_BYTES = 65536 };

typedef struct echo {
    char *rest; /* NULL, or the data not sent yet: [from, len) */
    size_t from, len;
} echo;

static void accept_all(int epoll, int listener, echo *echoes)
{
    int fd;
    while ((fd = bare_accept(listener)) >= 0) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.fd = fd};
        echoes[fd] = (echo){0};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) close(fd);
    }
}

static bool keep_rest(echo *e, const char *bytes, size_t len)
{
    e->rest = malloc(len);
    if (e->rest == NULL) return false;
    memcpy(e->rest, bytes, len);
    e->from = 0;
    e->len = len;
    return true;
}

/* Send the stored data. 1: all sent; 0: data left; -1: the connection has ended. */
static int send_rest(int fd, echo *e)
{
    while (e->from < e->len) {
        ssize_t n = send(fd, e->rest + e->from, e->len - e->from, MSG_NOSIGNAL);
        if (n < 0) return errno == EAGAIN ? 0 : -1;
        e->from += (size_t)n;
    }
    free(e->rest);
    e->rest = NULL;
    return 1;
}

/* false: the connection has ended. */
static bool serve(int fd, unsigned events, echo *e)
{
    static char bytes[ECHO_BYTES];
    /* A receive shorter than the buffer has emptied the socket, unless the end of the stream has arrived as well. */
    bool more = true;
    while (more) {
        int left = e->rest != NULL ? send_rest(fd, e) : 1;
        if (left <= 0) return left == 0;
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n < 0) return errno == EAGAIN;
        if (n == 0) return false;
        ssize_t sent = send(fd, bytes, (size_t)n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) return false;
        if (sent < 0) sent = 0;
        if (sent < n && !keep_rest(e, bytes + sent, (size_t)(n - sent))) return false;
        more = n == sizeof bytes || e->rest != NULL || (events & EPOLLRDHUP) != 0;
    }
    return true;
}

int main(int argc, char **argv)
{
    echo *echoes = calloc(BARE_CONNECTIONS_MAX, sizeof *echoes);
    if (argc < 2 || echoes == NULL) {
        fprintf(stderr, "usage: bare_echo PORT\n");
        return 2;
    }
    int listener = bare_listen(argv[1]), epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event events[BARE_EVENTS] = {{.events = EPOLLIN | EPOLLET, .data.fd = listener}};
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &events[0]) < 0) {
        perror("epoll");
        return 1;
    }
    for (;;) {
        int n = epoll_wait(epoll, events, BARE_EVENTS, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                accept_all(epoll, listener, echoes);
            } else if (!serve(fd, events[i].events, &echoes[fd])) {
                free(echoes[fd].rest);
                close(fd);
            }
        }
    }
}
