/* open_loop.c - keep-alive clients that send requests on a fixed schedule and report the latency of the responses.
 *
 *     open_loop HOST PORT CONNECTIONS RATE SECONDS PATH [OCCUPY_PATH]
 *
 * Each of the CONNECTIONS requests PATH RATE times a second, the connections evenly staggered. The schedule does not
 * wait for the server: a request that is due while the previous one has no response is sent after that response, and
 * its latency counts from the scheduled time. So a stall of one second shows in every request it delayed, not in one.
 * With OCCUPY_PATH one more connection requests that path continuously.
 *
 * Prints one JSON object; times in microseconds, exact percentiles (all latencies are stored and sorted). "lag" is the
 * delay of this program itself for requests that were not held up: its own share of the latencies. A request without a
 * response 15 s after the end counts with its age at that time. */
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
#include <sys/timerfd.h>
#include <unistd.h>

#include "load.h"

enum { HEAD_BYTES_MAX = 4096, EVENTS = 64, CONNECTIONS_MAX = 16384 };
#define GRACE_NS   15000000000ull
#define WARM_UP_NS 300000000ull

typedef struct client {
    int fd;
    bool occupier;
    bool waiting; /* a request has no response yet */
    size_t sent;  /* requests sent; also the number of the next one */
    size_t due;   /* requests whose scheduled time has passed */
    size_t head_len;
    size_t body_left; /* while the body arrives; 0 with head_len > 0: the head arrives */
    bool in_body;
    char head[HEAD_BYTES_MAX + 1];
} client;

typedef struct samples {
    uint64_t *ns;
    size_t count, room;
} samples;

typedef struct run {
    struct sockaddr_in at;
    int epoll, timer;
    client *clients; /* the last one requests OCCUPY_PATH, if given */
    size_t connections;
    uint64_t start, step;    /* request k of client i is scheduled at start + (k * connections + i) * step */
    size_t scheduled, total; /* requests due so far, and in all */
    size_t answered, failed, occupied, occupied_failed;
    samples latencies, lags;
    char request[2][512]; /* [1]: for OCCUPY_PATH */
} run;

static void samples_open(samples *s, size_t room)
{
    s->ns = calloc(room ? room : 1, sizeof *s->ns);
    s->room = room;
    if (s->ns == NULL) load_die("memory");
}

static void samples_add(samples *s, uint64_t ns)
{
    if (s->count < s->room) s->ns[s->count++] = ns;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The smallest sample that a share of `share` does not exceed. The samples are sorted. */
static double samples_at(const samples *s, double share)
{
    size_t rank = (size_t)(share * (double)s->count + 0.999999);
    if (s->count == 0) return 0;
    if (rank > 0) rank--;
    return (double)s->ns[rank < s->count ? rank : s->count - 1] / 1000.0;
}

static uint64_t intended(const run *r, const client *c, size_t k)
{
    return r->start + (k * r->connections + (size_t)(c - r->clients)) * r->step;
}

static void client_connect(run *r, client *c)
{
    int one = 1;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&r->at, sizeof r->at) < 0) load_die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (epoll_ctl(r->epoll, EPOLL_CTL_ADD, c->fd, &event) < 0) load_die("epoll_ctl");
    c->waiting = c->in_body = false;
    c->head_len = c->body_left = 0;
}

static void client_ask(run *r, client *c)
{
    const char *request = r->request[c->occupier];
    ssize_t len = (ssize_t)strlen(request);
    c->waiting = true;
    c->sent++;
    /* A short or failed send: the end of the connection follows, and the request counts as failed. */
    if (send(c->fd, request, (size_t)len, MSG_NOSIGNAL) != len) shutdown(c->fd, SHUT_RDWR);
}

static void client_answered(run *r, client *c, bool good)
{
    c->waiting = false;
    c->head_len = 0;
    c->in_body = false;
    if (c->occupier) {
        good ? r->occupied++ : r->occupied_failed++;
        if (r->scheduled < r->total) client_ask(r, c);
        return;
    }
    good ? r->answered++ : r->failed++;
    samples_add(&r->latencies, load_now_ns() - intended(r, c, c->sent - 1));
    if (c->sent < c->due) client_ask(r, c);
}

static void client_lost(run *r, client *c)
{
    bool waiting = c->waiting;
    close(c->fd);
    client_connect(r, c);
    if (waiting) client_answered(r, c, false);
}

/* Handle bytes of a response: a head with Content-Length, then the body. false: not such a response. */
static bool client_take(run *r, client *c, const char *bytes, size_t len)
{
    while (len > 0) {
        if (!c->waiting) return false;
        if (!c->in_body) {
            c->head[c->head_len++] = *bytes++;
            c->head[c->head_len] = 0;
            len--;
            if (c->head_len < 4 || memcmp(c->head + c->head_len - 4, "\r\n\r\n", 4) != 0) {
                if (c->head_len == HEAD_BYTES_MAX) return false;
                continue;
            }
            const char *length = strcasestr(c->head, "\r\nContent-Length:");
            if (length == NULL) return false;
            c->body_left = strtoul(length + 17, NULL, 10);
            c->in_body = true;
        } else {
            size_t n = len < c->body_left ? len : c->body_left;
            bytes += n;
            len -= n;
            c->body_left -= n;
        }
        if (c->in_body && c->body_left == 0) client_answered(r, c, memcmp(c->head, "HTTP/1.1 200 ", 13) == 0);
    }
    return true;
}

static void client_readable(run *r, client *c)
{
    char bytes[16384];
    ssize_t n = recv(c->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0 || !client_take(r, c, bytes, (size_t)n)) client_lost(r, c);
}

static void set_timer(run *r)
{
    uint64_t at = r->start + r->scheduled * r->step;
    struct itimerspec when = {.it_value = {(time_t)(at / 1000000000ull), (long)(at % 1000000000ull)}};
    if (timerfd_settime(r->timer, TFD_TIMER_ABSTIME, &when, NULL) < 0) load_die("timerfd_settime");
}

static void send_due(run *r)
{
    uint64_t expirations;
    if (read(r->timer, &expirations, sizeof expirations) < 0) return;
    while (r->scheduled < r->total && r->start + r->scheduled * r->step <= load_now_ns()) {
        client *c = &r->clients[r->scheduled % r->connections];
        r->scheduled++;
        c->due++;
        if (c->waiting) continue;
        samples_add(&r->lags, load_now_ns() - intended(r, c, c->sent));
        client_ask(r, c);
    }
    if (r->scheduled < r->total) set_timer(r);
}

static void run_until_done(run *r)
{
    uint64_t end = r->start + r->total * r->step + GRACE_NS;
    struct epoll_event events[EVENTS];
    while (r->answered + r->failed < r->total && load_now_ns() < end) {
        int n = epoll_wait(r->epoll, events, EVENTS, 100);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == NULL) send_due(r);
            if (events[i].data.ptr != NULL) client_readable(r, events[i].data.ptr);
        }
    }
}

/* A request without a response counts with its age. */
static size_t count_unfinished(run *r)
{
    size_t unfinished = 0;
    uint64_t now = load_now_ns();
    for (size_t i = 0; i < r->connections; i++) {
        client *c = &r->clients[i];
        for (size_t k = c->sent - (c->waiting ? 1 : 0); k < c->due; k++, unfinished++) {
            samples_add(&r->latencies, now - intended(r, c, k));
        }
    }
    return unfinished;
}

static void make_request(char *out, size_t room, const char *path)
{
    if (snprintf(out, room, "GET %s HTTP/1.1\r\nHost: bench\r\n\r\n", path) >= (int)room) {
        fprintf(stderr, "the path is too long\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    static run r;
    double rate, seconds;
    if (argc < 7 || (rate = atof(argv[4])) <= 0 || (seconds = atof(argv[5])) <= 0 || atoi(argv[3]) < 1 ||
        atoi(argv[3]) > CONNECTIONS_MAX || inet_pton(AF_INET, argv[1], &r.at.sin_addr) != 1) {
        fprintf(stderr, "usage: open_loop HOST PORT CONNECTIONS RATE SECONDS PATH [OCCUPY_PATH]\n");
        return 2;
    }
    r.at.sin_family = AF_INET;
    r.at.sin_port = htons((unsigned short)atoi(argv[2]));
    r.connections = (size_t)atoi(argv[3]);
    r.step = (uint64_t)(1e9 / (rate * (double)r.connections));
    r.total = (size_t)(seconds * rate * (double)r.connections);
    samples_open(&r.latencies, r.total);
    samples_open(&r.lags, r.total);
    make_request(r.request[0], sizeof r.request[0], argv[6]);
    if (argc > 7) make_request(r.request[1], sizeof r.request[1], argv[7]);

    r.clients = calloc(r.connections + 1, sizeof *r.clients);
    r.epoll = epoll_create1(EPOLL_CLOEXEC);
    r.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event tick = {.events = EPOLLIN, .data.ptr = NULL};
    if (r.clients == NULL || r.epoll < 0 || r.timer < 0 || epoll_ctl(r.epoll, EPOLL_CTL_ADD, r.timer, &tick) < 0) {
        load_die("setting up");
    }
    for (size_t i = 0; i < r.connections; i++) client_connect(&r, &r.clients[i]);
    if (argc > 7) {
        client *occupier = &r.clients[r.connections];
        occupier->occupier = true;
        client_connect(&r, occupier);
        client_ask(&r, occupier);
    }
    r.start = load_now_ns() + WARM_UP_NS;
    set_timer(&r);
    run_until_done(&r);

    size_t unfinished = count_unfinished(&r);
    qsort(r.latencies.ns, r.latencies.count, sizeof *r.latencies.ns, by_size);
    qsort(r.lags.ns, r.lags.count, sizeof *r.lags.ns, by_size);
    printf("{\"scheduled\": %zu, \"answered\": %zu, \"failed\": %zu, \"unfinished\": %zu, \"occupied\": %zu, "
           "\"occupied_failed\": %zu, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, \"lag_p99_us\": %.1f, "
           "\"lag_max_us\": %.1f}\n",
           r.total, r.answered, r.failed, unfinished, r.occupied, r.occupied_failed, samples_at(&r.latencies, 0.5),
           samples_at(&r.latencies, 0.99), samples_at(&r.latencies, 1.0), samples_at(&r.lags, 0.99),
           samples_at(&r.lags, 1.0));
    return 0;
}
