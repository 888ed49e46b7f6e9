/* echo_load.c - connections that each send a message, wait for its echo, compare every byte, and send the next.
 *
 *     echo_load PORT CONNECTIONS BYTES [ROUND]
 *
 * A closed loop on 127.0.0.1, controlled as described in load.h; it is ready when each connection has received one
 * echo. A run ends when the last echo has arrived, so that it includes all the work it caused. With ROUND, the
 * connections come from 127.0.1.ROUND (so that many rounds find free ports), and every second one ends with a reset.
 *
 * A connection that receives a wrong byte ("wrong") or ends early ("closed") is dropped; those still waiting for an
 * echo 15 s after the end of a run are "unfinished". */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "load.h"

/* OPENING_MAX is below the backlog of every server: a dropped connection attempt costs a second. */
enum { EVENTS = 64, CONNECTIONS_MAX = 1 << 16, OPENING_MAX = 128, RECEIVE_BYTES = 1 << 18 };
#define GRACE_NS 15000000000ull
#define OPEN_NS  60000000000ull

typedef struct client {
    int fd;             /* -1: not open, or dropped */
    bool waiting;       /* for the rest of an echo */
    bool out;           /* EPOLLOUT is registered */
    size_t number;      /* of the message, from 0 */
    size_t sent, taken; /* of this message */
} client;

typedef struct run {
    struct sockaddr_in to, from;
    int epoll;
    size_t round; /* 0: none */
    client *clients;
    size_t count, opened, ready; /* opened: at least connecting; ready: received the first echo */
    size_t open, waiting;        /* clients that are */
    bool running, closing;
    size_t echoed, wrong, closed;
    load_messages messages;
    char received[RECEIVE_BYTES];
} run;

static const char *client_message(const run *r, const client *c)
{
    return load_message(&r->messages, (size_t)(c - r->clients) * 7 + c->number);
}

static void client_out(run *r, client *c)
{
    close(c->fd);
    c->fd = -1;
    r->open--;
    if (c->waiting) r->waiting--;
    c->waiting = false;
}

static void client_lost(run *r, client *c)
{
    r->closed++;
    client_out(r, c);
}

static void client_watch(run *r, client *c, bool out)
{
    struct epoll_event event = {.events = EPOLLIN | (out ? (unsigned)EPOLLOUT : 0), .data.ptr = c};
    if (c->out == out) return;
    c->out = out;
    if (epoll_ctl(r->epoll, EPOLL_CTL_MOD, c->fd, &event) < 0) load_die("epoll_ctl");
}

/* Send the rest of the message. false: the connection is lost. */
static bool client_send(run *r, client *c)
{
    const char *message = client_message(r, c);
    while (c->sent < r->messages.each) {
        ssize_t n = send(c->fd, message + c->sent, r->messages.each - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) {
            client_lost(r, c);
            return false;
        }
        c->sent += (size_t)n;
    }
    client_watch(r, c, c->sent < r->messages.each);
    return true;
}

static void client_begin(run *r, client *c)
{
    c->sent = c->taken = 0;
    c->waiting = true;
    r->waiting++;
    client_send(r, c);
}

static void client_open(run *r, client *c)
{
    int one = 1;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0) load_die("socket");
    if (r->round > 0) {
        setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
        if (bind(c->fd, (struct sockaddr *)&r->from, sizeof r->from) < 0) load_die("bind");
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(c->fd, (struct sockaddr *)&r->to, sizeof r->to) < 0 && errno != EINPROGRESS) load_die("connect");
    if (epoll_ctl(r->epoll, EPOLL_CTL_ADD, c->fd, &event) < 0) load_die("epoll_ctl");
    /* The first message is sent when the socket is writable, that is, connected. */
    c->out = c->waiting = true;
    r->waiting++;
    r->open++;
    r->opened++;
}

static void client_answered(run *r, client *c)
{
    c->waiting = false;
    r->waiting--;
    r->echoed++;
    if (c->number++ == 0) {
        r->ready++;
        if (r->opened < r->count) client_open(r, &r->clients[r->opened]);
    }
    if (r->running) client_begin(r, c);
}

static void client_receive(run *r, client *c)
{
    ssize_t n = recv(c->fd, r->received, sizeof r->received, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        r->closing ? client_out(r, c) : client_lost(r, c);
        return;
    }
    size_t len = (size_t)n;
    if (!c->waiting || len > c->sent - c->taken || memcmp(client_message(r, c) + c->taken, r->received, len) != 0) {
        r->wrong++;
        client_out(r, c);
        return;
    }
    c->taken += len;
    if (c->taken == r->messages.each) client_answered(r, c);
}

static void turn(run *r)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(r->epoll, events, EVENTS, 100);
    for (int i = 0; i < n; i++) {
        client *c = events[i].data.ptr;
        if (c->fd >= 0 && (events[i].events & EPOLLOUT) != 0 && !client_send(r, c)) continue;
        if (c->fd >= 0 && (events[i].events & ~(unsigned)EPOLLOUT) != 0) client_receive(r, c);
    }
}

static void open_all(run *r)
{
    uint64_t end = load_now_ns() + OPEN_NS;
    while (r->opened < r->count && r->opened < OPENING_MAX) client_open(r, &r->clients[r->opened]);
    while (r->ready < r->count && r->wrong + r->closed == 0 && load_now_ns() < end) turn(r);
    if (r->ready < r->count) {
        fprintf(stderr, "of %zu connections %zu received an echo, %zu a wrong one, %zu were closed\n", r->count,
                r->ready, r->wrong, r->closed);
        exit(1);
    }
}

static void run_for(run *r, double seconds)
{
    uint64_t start = load_now_ns(), end = start + (uint64_t)(seconds * 1e9);
    double cpu = load_cpu_us();
    r->echoed = r->wrong = r->closed = 0;
    r->running = true;
    for (size_t i = 0; i < r->count; i++) {
        if (r->clients[i].fd >= 0) client_begin(r, &r->clients[i]);
    }
    while (r->open > 0 && load_now_ns() < end) turn(r);
    r->running = false;
    end += GRACE_NS;
    while (r->waiting > 0 && load_now_ns() < end) turn(r);
    printf("{\"requests\": %zu, \"duration_us\": %.0f, \"cpu_us\": %.0f, \"wrong\": %zu, \"closed\": %zu, "
           "\"unfinished\": %zu}\n",
           r->echoed, (double)(load_now_ns() - start) / 1e3, load_cpu_us() - cpu, r->wrong, r->closed, r->waiting);
}

/* The server must close each connection that this side ends; a reset needs no reply. */
static void close_all(run *r)
{
    uint64_t end = load_now_ns() + GRACE_NS;
    r->closing = true;
    for (size_t i = 0; i < r->count; i++) {
        client *c = &r->clients[i];
        struct linger reset = {1, 0};
        if (c->fd < 0) continue;
        if (r->round > 0 && i % 2 == 1) {
            setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
            client_out(r, c);
        } else {
            shutdown(c->fd, SHUT_WR);
        }
    }
    while (r->open > 0 && load_now_ns() < end) turn(r);
    if (r->open > 0) {
        fprintf(stderr, "%zu connections were not closed by the server\n", r->open);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    static run r;
    double seconds;
    long count = argc > 3 ? atol(argv[2]) : 0, each = argc > 3 ? atol(argv[3]) : 0;
    if (count < 1 || count > CONNECTIONS_MAX || each < 1 || each > 1 << 26) {
        fprintf(stderr, "usage: echo_load PORT CONNECTIONS BYTES [ROUND]\n");
        return 2;
    }
    r.count = (size_t)count;
    r.round = argc > 4 ? (size_t)atol(argv[4]) % 255 : 0;
    r.to.sin_family = r.from.sin_family = AF_INET;
    r.to.sin_port = htons((unsigned short)atoi(argv[1]));
    r.to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    r.from.sin_addr.s_addr = htonl(0x7f000100u + (unsigned)r.round);
    load_messages_open(&r.messages, (size_t)each);
    r.clients = calloc(r.count, sizeof *r.clients);
    r.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (r.clients == NULL || r.epoll < 0) load_die("setting up");
    for (size_t i = 0; i < r.count; i++) r.clients[i].fd = -1;
    open_all(&r);
    puts("ready");
    while (load_order(&seconds)) run_for(&r, seconds);
    close_all(&r);
    return 0;
}
