/* tls_load.c - clients that each open a connection, shake hands (TLS 1.3), request / once, and read to the end.
 *
 *     tls_load PORT CLIENTS full|resumed
 *
 * A closed loop on 127.0.0.1, controlled as described in load.h; it is ready when each client has received one response.
 * `full`: every handshake is a full one. `resumed`: each client presents the ticket of its previous connection.
 *
 * A response that is not the expected one, and a handshake that is not of the wanted kind, are "wrong"; a connection
 * that fails is "closed". Those still without a response 15 s after the end of a run are "unfinished". Certificates are
 * not verified. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "load.h"

enum { EVENTS = 64, CLIENTS_MAX = 1 << 12, RESPONSE_MAX = 1024 };
#define GRACE_NS 15000000000ull
#define OPEN_NS  60000000000ull

static const char request[] = "GET / HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n";
static const char status[] = "HTTP/1.1 200 ", body[] = "\r\n\r\nhello, world\n";

typedef struct client {
    int fd; /* -1: no connection */
    SSL *ssl;
    SSL_SESSION *session; /* resumed: for the next connection */
    bool requested;
    size_t len;
    char response[RESPONSE_MAX];
} client;

typedef struct run {
    struct sockaddr_in to;
    int epoll;
    SSL_CTX *tls;
    client *clients;
    size_t count, open;
    bool again;       /* a client begins again when its connection has ended */
    bool want_reused; /* the kind of handshake */
    size_t done, wrong, closed;
} run;

/* Keep a ticket for the next connection. 1: the reference is kept. */
static int keep_session(SSL *ssl, SSL_SESSION *session)
{
    client *c = SSL_get_app_data(ssl);
    SSL_SESSION_free(c->session);
    c->session = session;
    return 1;
}

static void client_begin(run *r, client *c)
{
    const int one = 1;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | (unsigned)EPOLLET, .data.ptr = c};
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0) load_die("socket");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(c->fd, (struct sockaddr *)&r->to, sizeof r->to) < 0 && errno != EINPROGRESS) load_die("connect");
    c->requested = false;
    c->len = 0;
    c->ssl = SSL_new(r->tls);
    if (c->ssl == NULL || SSL_set_fd(c->ssl, c->fd) != 1) load_die("a TLS session");
    SSL_set_app_data(c->ssl, c);
    SSL_set_connect_state(c->ssl);
    if (c->session != NULL) SSL_set_session(c->ssl, c->session);
    r->open++;
    if (epoll_ctl(r->epoll, EPOLL_CTL_ADD, c->fd, &event) < 0) load_die("epoll_ctl");
}

static bool is_expected(const run *r, const client *c)
{
    const size_t tail = sizeof body - 1;
    return c->len > sizeof status - 1 + tail && memcmp(c->response, status, sizeof status - 1) == 0 &&
           memcmp(c->response + c->len - tail, body, tail) == 0 && (SSL_session_reused(c->ssl) == 1) == r->want_reused;
}

/* The connection has ended: with close_notify, or with the end of the stream. */
static void client_done(run *r, client *c)
{
    if (c->len == 0)
        r->closed++;
    else if (is_expected(r, c))
        r->done++;
    else
        r->wrong++;
    (void)SSL_shutdown(c->ssl);
    SSL_free(c->ssl);
    close(c->fd);
    c->fd = -1;
    r->open--;
    if (r->again) client_begin(r, c);
}

/* Shake hands, send the request and read, as far as the socket allows. */
static void client_step(run *r, client *c)
{
    int n;
    ERR_clear_error();
    while (c->len < sizeof c->response) {
        if (!c->requested) {
            if ((n = SSL_write(c->ssl, request, sizeof request - 1)) > 0) c->requested = true; /* with the handshake */
        } else {
            if ((n = SSL_read(c->ssl, c->response + c->len, (int)(sizeof c->response - c->len))) > 0)
                c->len += (size_t)n;
        }
        if (n > 0) continue;
        const int why = SSL_get_error(c->ssl, n);
        if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) return;
        break;
    }
    client_done(r, c);
}

/* Until the time is over or no connection is open. */
static void run_until(run *r, uint64_t end)
{
    struct epoll_event events[EVENTS];
    while (r->open > 0 && load_now_ns() < end) {
        const int n = epoll_wait(r->epoll, events, EVENTS, 100);
        for (int i = 0; i < n; i++) client_step(r, events[i].data.ptr);
    }
}

static void begin_all(run *r)
{
    for (size_t i = 0; i < r->count; i++) client_begin(r, &r->clients[i]);
}

static void first_round(run *r)
{
    begin_all(r);
    run_until(r, load_now_ns() + OPEN_NS);
    if (r->done == r->count) return;
    fprintf(stderr, "of %zu clients %zu received the response, %zu a wrong one, %zu none\n", r->count, r->done,
            r->wrong, r->closed);
    exit(1);
}

static void run_for(run *r, double seconds)
{
    const uint64_t start = load_now_ns(), end = start + (uint64_t)(seconds * 1e9);
    const double cpu = load_cpu_us();
    r->done = r->wrong = r->closed = 0;
    r->again = true;
    begin_all(r);
    run_until(r, end);
    r->again = false;
    run_until(r, end + GRACE_NS);
    printf("{\"requests\": %zu, \"duration_us\": %.0f, \"cpu_us\": %.0f, \"wrong\": %zu, \"closed\": %zu, "
           "\"unfinished\": %zu}\n",
           r->done, (double)(load_now_ns() - start) / 1e3, load_cpu_us() - cpu, r->wrong, r->closed, r->open);
    if (r->open > 0) exit(1); /* a later run would wait for them */
}

int main(int argc, char **argv)
{
    static run r;
    double seconds;
    const long count = argc == 4 ? atol(argv[2]) : 0;
    const bool resume = argc == 4 && strcmp(argv[3], "resumed") == 0;
    if (count < 1 || count > CLIENTS_MAX || (!resume && strcmp(argv[3], "full") != 0)) {
        fprintf(stderr, "usage: tls_load PORT CLIENTS full|resumed\n");
        return 2;
    }
    r.count = (size_t)count;
    r.to.sin_family = AF_INET;
    r.to.sin_port = htons((unsigned short)atoi(argv[1]));
    r.to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    r.clients = calloc(r.count, sizeof *r.clients);
    r.epoll = epoll_create1(EPOLL_CLOEXEC);
    r.tls = SSL_CTX_new(TLS_client_method());
    if (r.clients == NULL || r.epoll < 0 || r.tls == NULL) load_die("setting up");
    SSL_CTX_set_min_proto_version(r.tls, TLS1_3_VERSION);
    SSL_CTX_set_session_cache_mode(r.tls,
                                   resume ? SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL : SSL_SESS_CACHE_OFF);
    if (resume) SSL_CTX_sess_set_new_cb(r.tls, keep_session);
    first_round(&r);
    r.want_reused = resume;
    puts("ready");
    while (load_order(&seconds)) run_for(&r, seconds);
    return 0;
}
