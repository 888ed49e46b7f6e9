/* test_acceptor.c - from accept to protocol: PROXY headers, handshakes of TLS, the limit of handshakes, the stop. TLS
 * is that of tls_fake.h. */
#include "port/port_fixture.h"

#include <poll.h>

#include "base/io/log.h"
#include "base/os/rlimit.h"
#include "base/os/thread.h"
#include "net/acceptor.h"
#include "net/proxy_header.h"
#include "net/stream/deadline.h"
#include "net/tls/tls_fake.h"
#include "sched/actor.h"

enum { CONNS_MAX = 64, WAIT_MS_MAX = 90000 };

/* ---- an acceptor and its protocols -------------------------------------------------------------------------- */

typedef struct started { /* a connection that has reached a protocol */
    ls_stream *stream;   /* NULL: closed */
    char protocol;
    char text[64]; /* the bytes received */
    size_t len;
    char peer[LS_ADDR_TEXT_BYTES];
} started;

typedef struct place { /* `user` of the protocols: p->echo */
    net_place net;
    ls_deadlines *deadlines;
    ls_conn_limit limit;
    ls_acceptor *acceptor;
    ls_acceptor_service *service;
    ls_tls tls;
    ls_mutex mutex; /* protects what follows */
    started started[CONNS_MAX];
    int count;
    char log[4096];
} place;

static place *the_place; /* of the running test */

typedef struct conn { /* the user's room of a started stream */
    started *of;
    char zero[200];
} conn;

static void conn_closed(ls_thread_ctx *ctx, ls_stream *s)
{
    ls_stream_free(s);
    ls_conn_limit_leave(&the_place->limit);
}

static void conn_receive(ls_thread_ctx *ctx, ls_stream *s);

static void conn_received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    conn *c = ls_stream_user(s);
    if (result <= 0) {
        c->of->stream = NULL;
        ls_stream_close(ctx, s);
        return;
    }
    ls_slice bytes = ls_stream_take(s);
    assert_true(c->of->len + bytes.len < sizeof c->of->text);
    memcpy(c->of->text + c->of->len, bytes.ptr, bytes.len);
    c->of->len += bytes.len;
    ls_slice_drop(&bytes);
    conn_receive(ctx, s);
}

static void conn_sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
}

static const ls_stream_handler conn_handler = {.received = conn_received, .sent = conn_sent, .closed = conn_closed};

static void conn_receive(ls_thread_ctx *ctx, ls_stream *s)
{
    int64_t result = 0;
    const int err = ls_stream_recv(ctx, s, NULL, LS_BLOCK_SMALL, &result);
    /* An error: the client has reset the connection. */
    if (err != LS_PENDING) conn_received(ctx, s, err == LS_DONE ? result : err);
}

static void start(ls_thread_ctx *ctx, ls_stream *s, void *user)
{
    static const char zeros[sizeof(conn)];
    place *p = the_place;
    ls_addr peer;
    assert_memory_equal(ls_stream_user(s), zeros, sizeof zeros);
    ls_mutex_lock(&p->mutex);
    assert_true(p->count < CONNS_MAX);
    started *of = &p->started[p->count++];
    ls_mutex_unlock(&p->mutex);
    of->stream = s;
    of->protocol = *(const char *)user;
    ls_stream_peer(s, &peer);
    (void)ls_addr_text(&peer, of->peer);
    ((conn *)ls_stream_user(s))->of = of;
    ls_stream_handover(s, &conn_handler);
    conn_receive(ctx, s);
}

static const ls_acceptor_protocol protocol = {start, "d", sizeof(conn)};

static void log_line(int level, const char *line, size_t len, void *user)
{
    place *p = user;
    ls_mutex_lock(&p->mutex);
    const size_t at = strlen(p->log);
    snprintf(p->log + at, sizeof p->log - at, "%.*s\n", (int)len, line);
    ls_mutex_unlock(&p->mutex);
}

static const char plain_response[] = "HTTP/1.1 400 Bad Request\r\n\r\nplain HTTP";

static int refuse_plain_http(ls_thread_ctx *ctx, ls_stream *s, void *user, ls_text received)
{
    assert_string_equal(user, "d");
    assert_memory_equal(received.ptr, "GET / HTTP/1.1\n", 15);
    char *room = ls_stream_room_reserved(ctx, s, sizeof plain_response - 1);
    assert_non_null(room);
    memcpy(room, plain_response, sizeof plain_response - 1);
    ls_stream_commit(s, sizeof plain_response - 1);
    return LS_OK;
}

enum {
    PROXY = 1,
    TLS = 2,
    NO_HTTP = 4,
    SMALL_PORT = 8, /* room for the listener and one connection */
    LARGE_PORT = 16
};

enum { CONNECTIONS_MAX = 1000 };
static uint32_t connections_max = CONNECTIONS_MAX; /* of the next place */

static void place_open(place *p, unsigned what, ls_acceptor_service_options options)
{
    ls_network loopback[2];
    ls_addr at;
    memset(p, 0, sizeof *p);
    the_place = p;
    net_place_open(&p->net);
    if (what & (SMALL_PORT | LARGE_PORT)) {
        const ls_port_options sizes = {.sockets_max = what & SMALL_PORT ? 2 : 2048};
        ls_port *const usual = p->net.port;
        ls_port *port;
        assert_int_equal(ls_port_open(&sizes, &port), LS_OK);
        net_use(&p->net, port);
        ls_port_close(usual);
    }
    ls_mutex_open(&p->mutex);
    ls_log_set_sink(log_line, p);
    ls_log_set_level(LS_LOG_DEBUG);
    assert_int_equal(ls_stream_deadlines_open(p->net.port, &p->deadlines), LS_OK);
    ls_conn_limit_open(&p->limit, connections_max);
    assert_int_equal(ls_network_parse("127.0.0.0/8", &loopback[0]), LS_OK);
    assert_int_equal(ls_network_parse("unix:", &loopback[1]), LS_OK);
    const ls_acceptor_options acceptor = {
        .deadlines = p->deadlines, .limit = &p->limit, .listener = {.backlog = 64, .accepts = 2}};
    options.protocol = protocol;
    options.proxy_protocol = what & PROXY;
    if (!(what & NO_HTTP)) options.refuse_plain_http = refuse_plain_http;
    if (options.trusted == NULL) {
        options.trusted = loopback;
        options.trusted_count = 2;
    }
    if (what & TLS) options.tls = &p->tls;
    assert_int_equal(ls_addr_parse("127.0.0.1", 0, &at), LS_OK);
    assert_int_equal(ls_acceptor_service_open(&options, &p->service), LS_OK);
    assert_int_equal(ls_acceptor_open(p->net.port, &at, &acceptor, p->service, &p->acceptor), LS_OK);
    assert_int_equal(p->tls.refs, what & TLS ? 1 : 0);
    ls_acceptor_start(&p->net.ctx, p->acceptor);
}

static void pump(place *p, int timeout_ms)
{
    ls_packet packet;
    if (ls_port_wait(p->net.port, &p->net.ctx, &packet, 1, timeout_ms) > 0) ls_packet_dispatch(&p->net.ctx, &packet);
}

/* Handle packets until the condition holds. */
#define UNTIL(p, condition)                                                 \
    do {                                                                    \
        const uint64_t end_ms_ = ls_clock_coarse_ms() + WAIT_MS_MAX;        \
        while (!(condition) && ls_clock_coarse_ms() < end_ms_) pump(p, 10); \
        assert_true(condition);                                             \
    } while (0)

static void pump_all(place *p) /* until the port is empty */
{
    ls_packet packet;
    while (ls_port_wait(p->net.port, &p->net.ctx, &packet, 1, 0) > 0) ls_packet_dispatch(&p->net.ctx, &packet);
}

static int dial(place *p)
{
    ls_sockaddr to;
    ls_addr_to(ls_acceptor_addr(p->acceptor), &to);
    return net_dial(&to);
}

/* Connect and send; the acceptor has handled it when this returns. */
static int dial_with(place *p, const char *text)
{
    const int fd = dial(p);
    if (text[0] != '\0') net_write(fd, text, strlen(text));
    pump_all(p);
    return fd;
}

static void say(place *p, int fd, const char *text)
{
    net_write(fd, text, strlen(text));
    pump_all(p);
}

static bool readable(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

/* The peer has received exactly this. */
static void expect_reply(place *p, int fd, const char *text)
{
    char bytes[512];
    UNTIL(p, readable(fd));
    net_read(fd, bytes, strlen(text));
    assert_memory_equal(bytes, text, strlen(text));
}

static bool is_closed(int fd) /* the end of the stream, or a reset */
{
    char byte;
    if (!readable(fd)) return false;
    const ssize_t n = read(fd, &byte, 1);
    return n == 0 || (n < 0 && errno == ECONNRESET);
}

static void expect_closed(place *p, int fd)
{
    UNTIL(p, is_closed(fd));
    close(fd);
}

static uint32_t open_count(place *p)
{
    return atomic_load(&p->limit.count);
}

static bool text_is(place *p, int i, const char *text)
{
    return p->count > i && strcmp(p->started[i].text, text) == 0;
}

/* The clients have closed their ends, or do so. */
static void place_close(place *p)
{
    if (p->acceptor != NULL) {
        ls_acceptor_stop(&p->net.ctx, p->acceptor);
        ls_acceptor_abort(p->acceptor);
        UNTIL(p, ls_conn_limit_idle(&p->limit));
        UNTIL(p, ls_acceptor_drain(p->acceptor, false) == 0);
        ls_acceptor_close(p->acceptor);
    }
    pump_all(p);
    ls_acceptor_service_drop(p->service);
    assert_int_equal(p->tls.refs, 0);
    assert_int_equal(atomic_load(&sessions_live), 0);
    ls_conn_limit_close(&p->limit);
    net_place_release(&p->net);
    ls_deadlines_close(p->deadlines);
    ls_log_set_level(LS_LOG_INFO);
    ls_log_set_sink(NULL, NULL);
    ls_mutex_close(&p->mutex);
}

static const ls_acceptor_service_options defaults = {.handshakes_max = 0};

/* ---- plain -------------------------------------------------------------------------------------------------- */

TEST(plain_connections_start_at_once)
{
    place p;
    char peer[LS_ADDR_TEXT_BYTES];
    ls_addr own;
    place_open(&p, 0, defaults);
    const int client = dial_with(&p, "");
    UNTIL(&p, p.count == 1);
    assert_int_equal(p.started[0].protocol, 'd');
    assert_int_equal(blocks_live(&p.net), 0);
    assert_int_equal(ls_sock_local(client, &own), LS_OK);
    assert_string_equal(p.started[0].peer, ls_addr_text(&own, peer));
    say(&p, client, "PROXY UNKNOWN\r\n"); /* without proxy_protocol it is like other bytes */
    UNTIL(&p, text_is(&p, 0, "PROXY UNKNOWN\r\n"));
    assert_int_equal(ls_acceptor_drain(p.acceptor, false), 1); /* its accepts */
    close(client);
    place_close(&p);
    assert_string_equal(p.log, "");
}

TEST_IN(place, p, a_full_port_costs_one_connection, SMALL_PORT, defaults)
{
    const int first = dial_with(p, "one");
    UNTIL(p, text_is(p, 0, "one"));
    expect_closed(p, dial_with(p, ""));
    assert_non_null(strstr(p->log, "connection refused: "));
    assert_int_equal(open_count(p), 1);
    say(p, first, " more");
    UNTIL(p, text_is(p, 0, "one more"));
    close(first);
    UNTIL(p, open_count(p) == 0);
}

/* ---- PROXY -------------------------------------------------------------------------------------------------- */

#define LINE "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n"

TEST(a_header_names_the_peer)
{
    place p;
    place_open(&p, PROXY, defaults);
    int clients[3];
    clients[0] = dial_with(&p, LINE "GET /");
    UNTIL(&p, text_is(&p, 0, "GET /"));
    assert_string_equal(p.started[0].peer, "192.0.2.1:56324");
    assert_int_equal(p.started[0].protocol, 'd');
    say(&p, clients[0], " HTTP");
    UNTIL(&p, text_is(&p, 0, "GET / HTTP"));

    clients[1] = dial_with(&p, LINE); /* nothing behind it yet */
    UNTIL(&p, p.count == 2);
    assert_int_equal(blocks_live(&p.net), 0);
    say(&p, clients[1], "later");
    UNTIL(&p, text_is(&p, 1, "later"));

    clients[2] = dial(&p);
    static const char local[] = "\r\n\r\n\0\r\nQUIT\n\x20\0\0\0behind";
    net_write(clients[2], local, sizeof local - 1);
    UNTIL(&p, text_is(&p, 2, "behind"));
    assert_memory_equal(p.started[2].peer, "127.0.0.1:", 10); /* the socket's */
    for (int i = 0; i < 3; i++) close(clients[i]);
    place_close(&p);
    assert_string_equal(p.log, "");
}

TEST_IN(place, p, a_header_may_arrive_in_pieces, PROXY, defaults)
{
    static const char text[] = LINE "x";
    const int client = dial(p);
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        net_write(client, text + i, 1);
        if (i + 2 < sizeof text - 1) {
            pump_all(p);
            assert_int_equal(p->count, 0);
        }
    }
    UNTIL(p, text_is(p, 0, "x"));
    assert_string_equal(p->started[0].peer, "192.0.2.1:56324");

    /* The longest one of version 2, cut at every 1000 bytes; the last piece has one byte more. */
    char bytes[LS_PROXY_V2_BYTES_MAX + 1] =
        "\r\n\r\n\0\r\nQUIT\n\x21\x11\x0f\xf0\xc6\x33\x64\x07\x0a\0\0\1\0\x50\1\xbb";
    bytes[LS_PROXY_V2_BYTES_MAX] = 'y';
    const int second = dial(p);
    for (size_t at = 0, len; at < sizeof bytes; at += len) {
        len = sizeof bytes - at < 1000 ? sizeof bytes - at : 1000;
        net_write(second, bytes + at, len);
        pump_all(p);
    }
    UNTIL(p, text_is(p, 1, "y"));
    assert_string_equal(p->started[1].peer, "198.51.100.7:80");
    close(client);
    close(second);
}

TEST(a_header_of_others_is_not_parsed)
{
    place p;
    ls_network other;
    assert_int_equal(ls_network_parse("192.0.2.0/24", &other), LS_OK);
    place_open(&p, PROXY, (ls_acceptor_service_options){.trusted = &other, .trusted_count = 1});
    const int client = dial_with(&p, "PROXY UNKNOWN\r\n");
    UNTIL(&p, text_is(&p, 0, "PROXY UNKNOWN\r\n"));
    close(client);
    place_close(&p);
}

TEST_IN(place, p, an_invalid_header_closes, PROXY, defaults)
{
    expect_closed(p, dial_with(p, "GET / HTTP/1.1\r\n\r\n"));
    assert_non_null(strstr(p->log, "refused 127.0.0.1 PROXY header: "));
    assert_non_null(strstr(p->log, ": neither \"PROXY \" nor the signature of version 2\n"));
    const int client = dial_with(p, "PROXY TCP4 1.2.3");
    say(p, client, ".4.5 1.2.3.4 1 2\r\n");
    expect_closed(p, client);
    assert_non_null(strstr(p->log, ": invalid source address\n"));
    assert_ptr_equal(strchr(strchr(p->log, '\n') + 1, '\n') + 1, p->log + strlen(p->log)); /* a line each */
    close(dial_with(p, "PROXY TC"));                                                       /* the client closes */
    UNTIL(p, strstr(p->log, "the peer closed the connection") != NULL);
    assert_int_equal(p->count, 0);
}

TEST_IN(place, p, the_time_is_limited, PROXY | TLS, (ls_acceptor_service_options){.handshake_ms_max = 50})
{
    int clients[4] = {dial_with(p, ""), dial_with(p, "PROXY "), dial_with(p, "PROXY UNKNOWN\r\n"),
                      dial_with(p, "PROXY UNKNOWN\r\nhello\n")};
    expect_reply(p, clients[3], "welcome\n");
    for (int i = 0; i < 4; i++) expect_closed(p, clients[i]);
    assert_non_null(strstr(p->log, "refused 127.0.0.1 TLS handshake: "));
    assert_non_null(strstr(p->log, "refused 127.0.0.1 PROXY header: "));
    assert_non_null(strstr(p->log, ": timeout\n"));
    assert_int_equal(p->count, 0);
    UNTIL(p, open_count(p) == 0);
}

/* ---- the limit of handshakes -------------------------------------------------------------------------------- */

TEST(past_the_limit_they_wait)
{
    place p;
    int clients[6];
    place_open(
        &p, PROXY,
        (ls_acceptor_service_options){.handshakes_max = 2, .handshake_ms_max = 1000000, .handshake_ms_min = 1000000});
    clients[0] = dial_with(&p, ""); /* silent ones need no slot */
    clients[1] = dial_with(&p, "");
    clients[2] = dial_with(&p, "PROXY ");
    clients[3] = dial_with(&p, "PROXY ");
    UNTIL(&p, blocks_live(&p.net) == 2);
    clients[4] = dial_with(&p, LINE "four"); /* one past the limit */
    clients[5] = dial_with(&p, LINE "five");
    say(&p, clients[0], LINE "zero");
    pump_all(&p);
    assert_int_equal(p.count, 0);
    assert_int_equal(blocks_live(&p.net), 2);
    assert_int_equal(ls_acceptor_drain(p.acceptor, false), 6);

    say(&p, clients[2], "UNKNOWN\r\n"); /* its slot serves all that wait, in their order */
    UNTIL(&p, p.count == 4);
    UNTIL(&p, text_is(&p, 1, "four") && text_is(&p, 2, "five") && text_is(&p, 3, "zero"));
    say(&p, clients[1], LINE "one");
    UNTIL(&p, text_is(&p, 4, "one"));
    say(&p, clients[3], "UNKNOWN\r\n");
    UNTIL(&p, p.count == 6);
    assert_string_equal(p.log, "");
    for (int i = 0; i < 6; i++) close(clients[i]);
    place_close(&p);
}

static void wait_ms(uint64_t ms)
{
    const uint64_t end_ms = ls_clock_coarse_ms() + ms;
    while (ls_clock_coarse_ms() < end_ms) continue;
}

TEST_IN(place, p, the_oldest_is_closed_for_one_that_waits, PROXY,
        (ls_acceptor_service_options){.handshakes_max = 2, .handshake_ms_min = 1})
{
    int clients[4];
    for (int i = 0; i < 2; i++) clients[i] = dial_with(p, "PROXY ");
    UNTIL(p, blocks_live(&p->net) == 2);
    wait_ms(2);
    clients[2] = dial_with(p, LINE "two");
    UNTIL(p, text_is(p, 0, "two"));
    expect_closed(p, clients[0]);
    assert_non_null(strstr(p->log, ": too many handshakes at a time\n"));
    clients[3] = dial_with(p, LINE "three"); /* a slot is free */
    UNTIL(p, text_is(p, 1, "three"));
    say(p, clients[1], "UNKNOWN\r\nstill here");
    UNTIL(p, text_is(p, 2, "still here"));
    for (int i = 1; i < 4; i++) close(clients[i]);
}

/* Nothing arrives any more, and still all that wait get their turn. */
TEST_IN(place, p, those_that_wait_need_no_further_arrival, PROXY,
        (ls_acceptor_service_options){.handshakes_max = 2, .handshake_ms_min = 20})
{
    enum { FLOOD = 12 };
    int clients[FLOOD + 1];
    for (int i = 0; i < FLOOD; i++) clients[i] = dial_with(p, "PROXY ");
    clients[FLOOD] = dial_with(p, LINE "last");
    UNTIL(p, text_is(p, 0, "last"));
    for (int i = 0; i <= FLOOD; i++) close(clients[i]);
}

/* The default: a quarter of the connection limit, at least 64, at most 1024. */
TEST(the_default_limit)
{
    enum { MAX = 1024, DESCRIPTORS = 2 * MAX + 100 };
    static const struct {
        uint32_t connections, handshakes;
    } cases[] = {{100, 64}, {1000, 250}, {1000000, MAX}};
    static int clients[MAX + 1];
    place p;
    if (ls_descriptors_raise(DESCRIPTORS) < DESCRIPTORS) skip();
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        const int max = (int)cases[n].handshakes;
        connections_max = cases[n].connections;
        place_open(&p, PROXY | LARGE_PORT,
                   (ls_acceptor_service_options){.handshake_ms_max = 1000000, .handshake_ms_min = 1000000});
        connections_max = CONNECTIONS_MAX;
        for (int i = 0; i < max; i++) clients[i] = dial_with(&p, "PROXY ");
        UNTIL(&p, blocks_live(&p.net) == (size_t)max);
        clients[max] = dial_with(&p, LINE "x");
        assert_int_equal(p.count, 0);
        close(clients[0]);
        UNTIL(&p, text_is(&p, 0, "x"));
        for (int i = 1; i <= max; i++) close(clients[i]);
        place_close(&p);
    }
}

/* A part of the first record of TLS takes a slot for a moment only, and no block. */
TEST(a_part_of_the_first_record_needs_no_slot)
{
    enum { FLOOD = 10 };
    place p;
    int clients[FLOOD + 1];
    place_open(
        &p, TLS,
        (ls_acceptor_service_options){.handshakes_max = 1, .handshake_ms_max = 1000000, .handshake_ms_min = 1000000});
    for (int i = 0; i < FLOOD; i++) clients[i] = dial_with(&p, "hel");
    UNTIL(&p, atomic_load(&sessions_live) == FLOOD);
    assert_int_equal(blocks_live(&p.net), 0);
    clients[FLOOD] = dial_with(&p, "hello\n"); /* the slot is free */
    expect_reply(&p, clients[FLOOD], "welcome\n");
    say(&p, clients[0], "lo\nfinish a\nzero"); /* waits for the slot with what it has sent */
    assert_int_equal(p.count, 0);
    say(&p, clients[FLOOD], "finish a\nlast");
    UNTIL(&p, text_is(&p, 0, "LAST") && text_is(&p, 1, "ZERO"));
    for (int i = 0; i <= FLOOD; i++) close(clients[i]);
    place_close(&p);
}

/* ---- TLS ---------------------------------------------------------------------------------------------------- */

TEST(the_protocol_follows_the_handshake)
{
    place p;
    place_open(&p, TLS, defaults);
    const int client = dial_with(&p, "hello\n");
    expect_reply(&p, client, "welcome\n");
    assert_int_equal(p.count, 0);
    say(&p, client, "finish a\n");
    expect_reply(&p, client, "ticket\n");
    UNTIL(&p, p.count == 1);
    assert_int_equal(p.started[0].protocol, 'd');
    say(&p, client, "Text"); /* through the filter */
    UNTIL(&p, text_is(&p, 0, "tEXT"));
    close(client);
    UNTIL(&p, p.started[0].stream == NULL);
    place_close(&p);
    assert_string_equal(p.log, "");
}

/* Every split of the client's bytes, with the PROXY header in front and data behind. */
TEST(bytes_may_arrive_together)
{
    static const char text[] = "PROXY UNKNOWN\r\nhello\nfinish a\nDATA";
    place p;
    place_open(&p, PROXY | TLS, defaults);
    for (size_t cut = 1; cut < sizeof text; cut++) {
        p.count = 0;
        memset(p.started, 0, sizeof p.started);
        const int client = dial(&p);
        net_write(client, text, cut);
        pump_all(&p);
        if (cut < sizeof text - 1) net_write(client, text + cut, sizeof text - 1 - cut);
        UNTIL(&p, text_is(&p, 0, "data"));
        expect_reply(&p, client, "welcome\nticket\n");
        close(client);
        UNTIL(&p, open_count(&p) == 0);
    }
    place_close(&p);
    assert_string_equal(p.log, "");
}

TEST_IN(place, p, a_failed_handshake_sends_its_alert, TLS, (ls_acceptor_service_options){.handshakes_max = 1})
{
    const int client = dial_with(p, "hello\nbad\nmore bytes");
    expect_reply(p, client, "welcome\nalert\n");
    assert_int_equal(blocks_live(&p->net), 0);           /* while it lingers */
    const int next = dial_with(p, "hello\nfinish a\nX"); /* its slot is free */
    UNTIL(p, text_is(p, 0, "x"));
    expect_closed(p, client);
    assert_non_null(strstr(p->log, "refused 127.0.0.1 TLS handshake: "));
    assert_non_null(strstr(p->log, ": unexpected record\n"));
    close(dial_with(p, "hello\n"));
    UNTIL(p, strstr(p->log, ": the peer closed the connection\n") != NULL ||
                 strstr(p->log, ": connection reset by the peer\n") != NULL);
    close(next);
}

TEST_IN(place, p, plain_http_gets_an_explanation, TLS, defaults)
{
    char bytes[1024];
    size_t len = 0;
    ssize_t n;
    const int client = dial_with(p, "GET / HTTP/1.1\nHost: example.org\n\n");
    UNTIL(p, readable(client));
    while ((n = read(client, bytes + len, sizeof bytes - 1 - len)) > 0) len += (size_t)n; /* up to the FIN */
    assert_int_equal(n, 0);
    bytes[len] = '\0';
    assert_string_equal(bytes, plain_response);
    assert_non_null(strstr(p->log, ": the client speaks plain HTTP on a port for HTTPS\n"));
    close(client);
    UNTIL(p, open_count(p) == 0);
}

/* A protocol other than HTTP: the bytes are input of the handshake, which fails. */
TEST_IN(place, p, plain_http_for_another_protocol_is_garbage, TLS | NO_HTTP, defaults)
{
    const int client = dial_with(p, "GET / HTTP/1.1\n");
    expect_reply(p, client, "alert\n");
    UNTIL(p, strstr(p->log, ": unexpected record\n") != NULL);
    close(client);
}

TEST_IN(place, p, changed_certificates_are_looked_for, TLS, defaults)
{
    close(dial_with(p, ""));
    assert_int_equal(p->tls.reloads, 0); /* they were read just now */
    p->tls.reload_err = LS_EINVAL;
    for (int before = 0; before < 2; before++) {
        const uint64_t end_ms = ls_clock_coarse_ms() + WAIT_MS_MAX;
        while (p->tls.reloads == before && ls_clock_coarse_ms() < end_ms) close(dial_with(p, ""));
        assert_int_equal(p->tls.reloads, before + 1);
    }
    const char *const line = strstr(p->log, "cert.pem: no certificate in it; the certificates in use stay\n");
    assert_non_null(line);
    assert_null(strstr(line + 1, "cert.pem")); /* once */
}

/* ---- replace ------------------------------------------------------------------------------------------------ */

/* Connections from now on are plain and get the other protocol; a handshake that has begun ends with its own. */
TEST_IN(place, p, a_replaced_service_serves_new_connections, TLS, defaults)
{
    const ls_acceptor_service_options plain = {.protocol = {start, "o", sizeof(conn)}};
    ls_acceptor_service *before, *service;
    assert_int_equal(ls_acceptor_service_open(&plain, &service), LS_OK);
    assert_false(ls_acceptor_service_used(p->service));
    const int silent = dial_with(p, ""), begun = dial_with(p, "hello\n");
    expect_reply(p, begun, "welcome\n");
    assert_true(ls_acceptor_service_used(p->service));

    before = ls_acceptor_replace(p->acceptor, service);
    assert_ptr_equal(before, p->service);
    const int later = dial_with(p, "hello\n");
    UNTIL(p, text_is(p, 0, "hello\n"));
    assert_int_equal(p->started[0].protocol, 'o');
    assert_false(ls_acceptor_service_used(service)); /* a plain connection has no handshake */

    say(p, begun, "finish a\n");
    UNTIL(p, p->count == 2);
    assert_int_equal(p->started[1].protocol, 'd');
    assert_true(ls_acceptor_service_used(before)); /* by the silent one */
    close(silent);
    UNTIL(p, !ls_acceptor_service_used(before));
    ls_acceptor_service_drop(before);
    p->service = service;
    close(begun);
    close(later);
}

/* The slots count all handshakes of the acceptor. More slots serve those that wait. */
TEST(a_replaced_service_has_other_limits)
{
    const ls_acceptor_service_options two = {.protocol = {start, "o", sizeof(conn)}, .handshakes_max = 2};
    ls_acceptor_service *before, *service;
    place p;
    place_open(
        &p, PROXY,
        (ls_acceptor_service_options){.handshakes_max = 1, .handshake_ms_max = 1000000, .handshake_ms_min = 1000000});
    const int holds = dial_with(&p, "PROXY "), waits = dial_with(&p, LINE "waits"), third = dial_with(&p, "PROXY ");
    pump_all(&p);
    assert_int_equal(p.count, 0);
    assert_int_equal(ls_acceptor_service_open(&two, &service), LS_OK);
    before = ls_acceptor_replace(p.acceptor, service);
    UNTIL(&p, text_is(&p, 0, "waits"));
    assert_int_equal(p.started[0].protocol, 'd');
    say(&p, holds, "UNKNOWN\r\n");
    say(&p, third, "UNKNOWN\r\n");
    UNTIL(&p, p.count == 3);
    UNTIL(&p, !ls_acceptor_service_used(before));
    ls_acceptor_service_drop(before);
    p.service = service;
    close(holds);
    close(waits);
    close(third);
    place_close(&p);
}

/* ---- stop --------------------------------------------------------------------------------------------------- */

TEST(a_drain_lets_handshakes_finish)
{
    place p;
    place_open(&p, TLS, defaults);
    const int silent = dial_with(&p, ""), begun = dial_with(&p, "hello\n");
    expect_reply(&p, begun, "welcome\n");
    ls_acceptor_stop(&p.net.ctx, p.acceptor);
    assert_int_equal(ls_acceptor_drain(p.acceptor, false), 2);
    say(&p, begun, "finish a\n");
    UNTIL(&p, p.count == 1);
    assert_int_equal(ls_acceptor_drain(p.acceptor, false), 1);
    assert_int_equal(ls_acceptor_drain(p.acceptor, true), 1);
    expect_closed(&p, silent);
    UNTIL(&p, ls_acceptor_drain(p.acceptor, true) == 0);
    close(begun);
    UNTIL(&p, ls_conn_limit_idle(&p.limit));
    ls_acceptor_close(p.acceptor);
    p.acceptor = NULL;
    place_close(&p);
    assert_string_equal(p.log, "");
}

/* `end` closes the handshakes. */
static void closes_in_every_state(void (*end)(place *p))
{
    place p;
    int clients[6];
    place_open(
        &p, TLS,
        (ls_acceptor_service_options){.handshakes_max = 2, .handshake_ms_max = 1000000, .handshake_ms_min = 1000000});
    clients[0] = dial_with(&p, "bad\n");
    expect_reply(&p, clients[0], "alert\n"); /* lingers */
    clients[1] = dial_with(&p, "");
    clients[2] = dial_with(&p, "hello\n");
    clients[3] = dial_with(&p, "he");
    clients[4] = dial_with(&p, "hello\n");
    clients[5] = dial_with(&p, "hello\n"); /* waits */
    pump_all(&p);
    assert_int_equal(ls_acceptor_drain(p.acceptor, false), 6);
    end(&p);
    UNTIL(&p, open_count(&p) == 0);
    expect_reply(&p, clients[2], "welcome\n");
    expect_reply(&p, clients[4], "welcome\n");
    for (int i = 0; i < 6; i++) expect_closed(&p, clients[i]);
    assert_int_equal(p.count, 0);
    place_close(&p);
}

static void abort_them(place *p)
{
    ls_acceptor_abort(p->acceptor);
}

static void drain_them(place *p)
{
    assert_int_equal(ls_acceptor_drain(p->acceptor, true), 6);
}

TEST(an_abort_closes_in_every_state)
{
    closes_in_every_state(abort_them);
}

TEST(a_drain_of_all_closes_in_every_state)
{
    closes_in_every_state(drain_them);
}

/* ---- threads ------------------------------------------------------------------------------------------------ */

typedef struct worker {
    place *p;
    ls_thread_ctx ctx;
    ls_thread thread;
    _Atomic bool stop;
} worker;

static void work(void *arg)
{
    worker *w = arg;
    ls_packet packet;
    ls_pool_enter(w->ctx.pool);
    while (!atomic_load(&w->stop))
        if (ls_port_wait(w->p->net.port, &w->ctx, &packet, 1, 10) > 0) ls_packet_dispatch(&w->ctx, &packet);
}

/* More handshakes than slots, of which some never end, on several threads; then an abort. Nothing leaks, and whoever
 * finishes is served. */
TEST(threads_share_the_slots)
{
    enum { WORKERS = 3, CLIENTS = 60 };
    static const char *const texts[] = {
        /* clang-format off */
        "PROXY UNKNOWN\r\nhello\nfinish a\nX", "PROXY ", "PROXY UNKNOWN\r\nbad\n", "PROXY UNKNOWN\r\nhello\n",
        "", "GET / HTTP/1.1\r\n",
        /* clang-format on */
    };
    place p;
    worker workers[WORKERS];
    int clients[CLIENTS];
    place_open(&p, PROXY | TLS, (ls_acceptor_service_options){.handshakes_max = 4, .handshake_ms_min = 1});
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i].p = &p;
        atomic_init(&workers[i].stop, false);
        net_ctx_open(&p.net, &workers[i].ctx, i + 1);
        assert_int_equal(ls_thread_start(&workers[i].thread, "worker", work, &workers[i]), LS_OK);
    }
    ls_pool_enter(p.net.ctx.pool);
    for (int round = 0; round < 5; round++) {
        ls_mutex_lock(&p.mutex);
        p.count = 0;
        ls_mutex_unlock(&p.mutex);
        for (int i = 0; i < CLIENTS; i++) {
            clients[i] = dial(&p);
            const char *const text = texts[(i + round) % 6];
            if (text[0] != '\0') net_write(clients[i], text, strlen(text));
            pump(&p, 0);
        }
        for (int i = 0; i < CLIENTS; i++)
            if (i % 2 == 0) close(clients[i]);
        pump_all(&p);
        if (round == 4) {
            ls_acceptor_stop(&p.net.ctx, p.acceptor);
            ls_acceptor_abort(p.acceptor);
        }
        for (int i = 0; i < CLIENTS; i++)
            if (i % 2 != 0) close(clients[i]);
        UNTIL(&p, open_count(&p) == 0);
    }
    UNTIL(&p, ls_conn_limit_idle(&p.limit) && ls_acceptor_drain(p.acceptor, false) == 0);
    for (unsigned i = 0; i < WORKERS; i++) {
        atomic_store(&workers[i].stop, true);
        ls_thread_join(&workers[i].thread);
    }
    ls_acceptor_close(p.acceptor);
    p.acceptor = NULL;
    place_close(&p);
    for (unsigned i = 0; i < WORKERS; i++) ls_pool_close(workers[i].ctx.pool);
}
