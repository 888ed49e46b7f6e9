/* udp_load.c - datagrams that are sent, echoed, compared byte by byte, and sent again: a window of them is in flight.
 *
 *     udp_load PORT SOCKETS WINDOW BYTES
 *
 * A closed loop on 127.0.0.1, controlled as described in load.h. Each of the SOCKETS keeps WINDOW datagrams of BYTES
 * in flight; the datagrams of one receive call are checked and replaced with one send call. A datagram begins with its
 * number, which distinguishes a late or duplicate echo from a wrong one.
 *
 * A datagram without an echo for a second is "lost"; an echo that arrives after that is "late"; one that matches no
 * sent datagram is "wrong". A run ends when the last echo has arrived, so that it includes all the work it caused. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "load.h"

enum { EVENTS = 64, SOCKETS_MAX = 1024, WINDOW_MAX = 64, BYTES_MIN = 24, BYTES_MAX = 1400 };
#define LOST_NS 1000000000ull

typedef struct heading {
    uint32_t socket, slot;
    uint64_t number;
} heading;

typedef struct datagram {
    heading head;
    uint64_t sent_ns;
    bool flying;
} datagram;

typedef struct client {
    int fd;
    uint64_t number; /* of the next datagram */
    datagram *slots;
} client;

typedef struct run {
    int epoll;
    client *clients;
    size_t count, window, flying;
    bool running;
    size_t sent, echoed, wrong, late, lost;
    load_messages messages;
    char received[WINDOW_MAX][BYTES_MAX + 1];
} run;

/* Fill the free slots with new datagrams, in one call. */
static void client_send(run *r, client *c)
{
    struct iovec parts[WINDOW_MAX][2];
    struct mmsghdr out[WINDOW_MAX];
    unsigned n = 0, done = 0;
    uint64_t now = load_now_ns();
    memset(out, 0, sizeof out[0] * r->window);
    for (size_t i = 0; i < r->window; i++) {
        datagram *d = &c->slots[i];
        if (d->flying) continue;
        d->head = (heading){(uint32_t)(c - r->clients), (uint32_t)i, c->number};
        const char *rest = load_message(&r->messages, (size_t)c->number) + sizeof d->head;
        parts[n][0] = (struct iovec){&d->head, sizeof d->head};
        parts[n][1] = (struct iovec){(char *)rest, r->messages.each - sizeof d->head};
        out[n].msg_hdr.msg_iov = parts[n];
        out[n].msg_hdr.msg_iovlen = 2;
        d->flying = true;
        d->sent_ns = now;
        c->number++;
        n++;
    }
    r->flying += n;
    r->sent += n;
    while (done < n) {
        int sent = sendmmsg(c->fd, out + done, n - done, 0);
        if (sent < 0 && errno != EINTR) load_die("sendmmsg");
        if (sent > 0) done += (unsigned)sent;
    }
}

static void client_take(run *r, client *c, const char *bytes, size_t len)
{
    heading head;
    if (len == r->messages.each) memcpy(&head, bytes, sizeof head);
    if (len != r->messages.each || head.socket != (size_t)(c - r->clients) || head.slot >= r->window ||
        memcmp(load_message(&r->messages, (size_t)head.number) + sizeof head, bytes + sizeof head,
               len - sizeof head) != 0) {
        r->wrong++;
        return;
    }
    datagram *d = &c->slots[head.slot];
    if (!d->flying || d->head.number != head.number) {
        r->late++;
        return;
    }
    d->flying = false;
    r->flying--;
    r->echoed++;
}

static void client_receive(run *r, client *c)
{
    struct iovec parts[WINDOW_MAX];
    struct mmsghdr in[WINDOW_MAX];
    memset(in, 0, sizeof in[0] * r->window);
    for (size_t i = 0; i < r->window; i++) {
        parts[i] = (struct iovec){r->received[i], sizeof r->received[i]};
        in[i].msg_hdr.msg_iov = &parts[i];
        in[i].msg_hdr.msg_iovlen = 1;
    }
    int n = recvmmsg(c->fd, in, (unsigned)r->window, MSG_DONTWAIT, NULL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) load_die("recvmmsg");
    for (int i = 0; i < n; i++) client_take(r, c, r->received[i], in[i].msg_len);
    if (r->running && n > 0) client_send(r, c);
}

static void give_up_lost(run *r)
{
    uint64_t now = load_now_ns();
    for (size_t i = 0; i < r->count; i++) {
        client *c = &r->clients[i];
        for (size_t k = 0; k < r->window; k++) {
            if (!c->slots[k].flying || now - c->slots[k].sent_ns < LOST_NS) continue;
            c->slots[k].flying = false;
            r->flying--;
            r->lost++;
        }
        if (r->running) client_send(r, c);
    }
}

static void run_for(run *r, double seconds)
{
    uint64_t start = load_now_ns(), end = start + (uint64_t)(seconds * 1e9), swept = start, now;
    double cpu = load_cpu_us();
    struct epoll_event events[EVENTS];
    r->sent = r->echoed = r->wrong = r->late = r->lost = 0;
    r->running = true;
    for (size_t i = 0; i < r->count; i++) client_send(r, &r->clients[i]);
    while (r->running || r->flying > 0) {
        int n = epoll_wait(r->epoll, events, EVENTS, 100);
        for (int i = 0; i < n; i++) client_receive(r, events[i].data.ptr);
        now = load_now_ns();
        r->running = now < end;
        if (now - swept < LOST_NS / 4) continue;
        swept = now;
        give_up_lost(r);
    }
    printf(
        "{\"requests\": %zu, \"duration_us\": %.0f, \"cpu_us\": %.0f, \"sent\": %zu, \"wrong\": %zu, \"late\": %zu, "
        "\"lost\": %zu}\n",
        r->echoed, (double)(load_now_ns() - start) / 1e3, load_cpu_us() - cpu, r->sent, r->wrong, r->late, r->lost);
}

static void client_open(run *r, client *c, const struct sockaddr_in *to)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    c->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    c->slots = calloc(r->window, sizeof *c->slots);
    if (c->fd < 0 || c->slots == NULL || connect(c->fd, (const struct sockaddr *)to, sizeof *to) < 0 ||
        epoll_ctl(r->epoll, EPOLL_CTL_ADD, c->fd, &event) < 0) {
        load_die("setting up");
    }
}

int main(int argc, char **argv)
{
    static run r;
    double seconds;
    struct sockaddr_in to = {.sin_family = AF_INET};
    long count = argc > 4 ? atol(argv[2]) : 0, window = argc > 4 ? atol(argv[3]) : 0;
    long each = argc > 4 ? atol(argv[4]) : 0;
    if (count < 1 || count > SOCKETS_MAX || window < 1 || window > WINDOW_MAX || each < BYTES_MIN ||
        each > BYTES_MAX) {
        fprintf(stderr, "usage: udp_load PORT SOCKETS WINDOW BYTES\n");
        return 2;
    }
    to.sin_port = htons((unsigned short)atoi(argv[1]));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    r.count = (size_t)count;
    r.window = (size_t)window;
    load_messages_open(&r.messages, (size_t)each);
    r.clients = calloc(r.count, sizeof *r.clients);
    r.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (r.clients == NULL || r.epoll < 0) load_die("setting up");
    for (size_t i = 0; i < r.count; i++) client_open(&r, &r.clients[i], &to);
    puts("ready");
    while (load_order(&seconds)) run_for(&r, seconds);
    return 0;
}
