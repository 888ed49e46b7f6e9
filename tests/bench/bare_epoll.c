/* bare_epoll.c - the bare responder on epoll: one thread, edge-triggered, 64 events per wait. See bare.h.
 *
 *     bare_epoll PORT [close]      "close": each response ends its connection
 *
 * A connection is only its descriptor and one byte of state. A response that the socket does not take completely ends
 * the connection: a benchmark client reads its responses. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bare.h"

static void accept_all(int epoll, int listener, unsigned char *states)
{
    int fd;
    while ((fd = bare_accept(listener)) >= 0) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.fd = fd};
        states[fd] = 0;
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) close(fd);
    }
}

/* Receive and respond. false: the connection has ended. */
static bool serve(int fd, unsigned events, const bare_responses *responses, unsigned char *state, bool once)
{
    char bytes[BARE_RECEIVE_BYTES];
    ssize_t n;
    do {
        n = recv(fd, bytes, sizeof bytes, 0);
        if (n < 0) return errno == EAGAIN || errno == EINTR;
        if (n == 0) return false;
        unsigned ends = bare_ends(bytes, (size_t)n, state);
        if (ends > BARE_RESPONSES_MAX) return false;
        if (once && ends > 1) ends = 1;
        size_t len = responses->each * ends;
        if (ends > 0 && send(fd, responses->bytes, len, MSG_NOSIGNAL) != (ssize_t)len) return false;
        if (once && ends > 0) return false;
    } while (n == sizeof bytes || (events & EPOLLRDHUP) != 0);
    return true;
}

int main(int argc, char **argv)
{
    bool once = argc > 2 && strcmp(argv[2], "close") == 0;
    bare_responses responses;
    unsigned char *states = calloc(BARE_CONNECTIONS_MAX, 1);
    if (argc < 2 || states == NULL ||
        !bare_responses_open(&responses, once ? BARE_HEAD("bareresp", "Connection: close\r\n") BARE_BODY
                                              : BARE_HEAD("bareresp", "") BARE_BODY)) {
        fprintf(stderr, "usage: bare_epoll PORT [close]\n");
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
                accept_all(epoll, listener, states);
            } else if (!serve(fd, events[i].events, &responses, &states[fd], once)) {
                close(fd);
            }
        }
    }
}
