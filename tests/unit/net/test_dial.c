/* test_dial.c - client connections: names, racing, Unix paths, the handshake, the deadline, and a cancel in every
 * phase. The look-ups and the TLS library are fakes; the sockets are real. */
/* sanitizers: asan; no thread starts */
#define TESTS_FD_LIMIT
#include "port/port_fixture.h"

#include <poll.h>
#include <sys/un.h>

#include "net/dial.h"
#include "net/stream/deadline.h"
#include "sched/actor.h"
#include "system.h"

#define LATE_NS UINT64_C(3600000000000)

enum { FAR_MS = 60000, HELLO_BYTES = 5 };

/* ---- fakes -------------------------------------------------------------------------------------------------- */

static struct {
    bool pending;
    int result; /* of ls_resolver_lookup, when < 0 */
    int err;
    unsigned count;
    ls_addr addrs[LS_LOOKUP_ADDRS_MAX];
    ls_lookup *lookup; /* the one that is not dropped */
    char name[64];
} names;

static void lookup_fill(ls_lookup *lookup)
{
    lookup->err = names.err;
    lookup->count = names.count;
    memcpy(lookup->addrs, names.addrs, sizeof names.addrs);
}

int __wrap_ls_resolver_lookup(ls_thread_ctx *ctx, ls_resolver *resolver, const char *name, uint16_t port,
                              ls_lookup_fn *done, void *user, ls_lookup **out)
{
    (void)snprintf(names.name, sizeof names.name, "%s", name);
    if (names.result < 0) return names.result;
    assert_null(names.lookup);
    *out = names.lookup = calloc(1, sizeof **out);
    assert_non_null(*out);
    (*out)->done = done;
    (*out)->user = user;
    if (names.pending) return LS_PENDING;
    lookup_fill(*out);
    return LS_DONE;
}

void __wrap_ls_lookup_drop(ls_lookup *lookup)
{
    assert_ptr_equal(names.lookup, lookup);
    names.lookup = NULL;
    free(lookup);
}

static bool no_timer, late_timers; /* the port has no room for timers; they expire in an hour */
int __real_ls_timer_set(ls_port *port, ls_timer *timer, uint64_t at_ns);

int __wrap_ls_timer_set(ls_port *port, ls_timer *timer, uint64_t at_ns)
{
    return no_timer ? LS_ENOMEM : __real_ls_timer_set(port, timer, late_timers ? at_ns + LATE_NS : at_ns);
}

bool __real_ls_timer_move(ls_port *port, ls_timer *timer, uint64_t at_ns);

bool __wrap_ls_timer_move(ls_port *port, ls_timer *timer, uint64_t at_ns)
{
    return __real_ls_timer_move(port, timer, late_timers ? at_ns + LATE_NS : at_ns);
}

static bool no_sockets;
int __real_ls_stream_open_unconnected(ls_port *port, ls_deadlines *deadlines, uint8_t family,
                                      const ls_stream_handler *handler, size_t user_bytes, ls_stream **out);

int __wrap_ls_stream_open_unconnected(ls_port *port, ls_deadlines *deadlines, uint8_t family,
                                      const ls_stream_handler *handler, size_t user_bytes, ls_stream **out)
{
    if (no_sockets) return LS_EMFILE;
    return __real_ls_stream_open_unconnected(port, deadlines, family, handler, user_bytes, out);
}

/* The fake protocol. The client sends "hello"; the server answers "world", and the client ends with "ready"; or the
 * server answers "wrong", and the client sends "alert" and fails. From then on bytes pass unchanged. */
struct ls_tls {
    int refs, sessions;
    int session_err, handshake_err;
    char server_name[64];
};

typedef struct fake_session {
    ls_filter filter; /* first */
    ls_tls *tls;
    ls_slice input;
    char answer[HELLO_BYTES];
    size_t answer_bytes;
    bool greeted, ended;
} fake_session;

static void fake_feed(ls_filter *f, ls_slice bytes)
{
    fake_session *session = (fake_session *)f;
    assert_null(session->input.block);
    session->input = bytes;
}

static void fake_feed_end(ls_filter *f)
{
    ((fake_session *)f)->ended = true;
}

static int64_t fake_read(ls_filter *f, char *to, size_t len)
{
    fake_session *session = (fake_session *)f;
    if (session->input.block == NULL) return session->ended ? LS_ETRUNCATED : LS_EAGAIN;
    const size_t n = session->input.len < len ? session->input.len : len;
    memcpy(to, session->input.ptr, n);
    session->input.ptr += n;
    session->input.len -= n;
    if (session->input.len == 0) {
        ls_slice_drop(&session->input);
        session->input = (ls_slice){0};
    }
    return (int64_t)n;
}

static bool fake_has_input(const ls_filter *f)
{
    return ((const fake_session *)f)->input.block != NULL;
}

static int emit(ls_filter_out *out, const char *text)
{
    ls_block *block = ls_block_get(out->pool, LS_BLOCK_SMALL);
    if (block == NULL) return LS_ENOMEM;
    memcpy(block->data, text, strlen(text));
    out->slices[out->count++] = (ls_slice){block, block->data, strlen(text)};
    return LS_OK;
}

static int64_t fake_write(ls_filter *f, const ls_slice *slices, unsigned count, ls_filter_out *out)
{
    return LS_EPROTO;
}

static int fake_end(ls_filter *f, ls_filter_out *out)
{
    return LS_OK;
}

static void fake_free(ls_filter *f)
{
    fake_session *session = (fake_session *)f;
    session->tls->sessions--;
    if (session->input.block != NULL) ls_slice_drop(&session->input);
    free(session);
}

const char *__wrap_ls_tls_why(const ls_filter *f);

static const ls_filter_type fake_type = {.feed = fake_feed,
                                         .feed_end = fake_feed_end,
                                         .read = fake_read,
                                         .has_input = fake_has_input,
                                         .write = fake_write,
                                         .end = fake_end,
                                         .why = __wrap_ls_tls_why,
                                         .free = fake_free};

ls_tls *__wrap_ls_tls_hold(ls_tls *tls)
{
    tls->refs++;
    return tls;
}

void __wrap_ls_tls_drop(ls_tls *tls)
{
    tls->refs--;
}

int __wrap_ls_tls_session(ls_tls *tls, const char *server_name, ls_filter **out)
{
    (void)snprintf(tls->server_name, sizeof tls->server_name, "%s", server_name != NULL ? server_name : "(none)");
    if (tls->session_err < 0) return tls->session_err;
    fake_session *session = calloc(1, sizeof *session);
    assert_non_null(session);
    session->filter.type = &fake_type;
    session->tls = tls;
    tls->sessions++;
    *out = &session->filter;
    return LS_OK;
}

int __wrap_ls_tls_handshake(ls_filter *f, ls_filter_out *out)
{
    fake_session *session = (fake_session *)f;
    if (session->tls->handshake_err < 0) return session->tls->handshake_err;
    if (!session->greeted) {
        session->greeted = true;
        return emit(out, "hello") < 0 ? LS_ENOMEM : LS_EAGAIN;
    }
    while (session->answer_bytes < HELLO_BYTES) {
        const int64_t n = fake_read(f, session->answer + session->answer_bytes, HELLO_BYTES - session->answer_bytes);
        if (n < 0) return (int)n;
        session->answer_bytes += (size_t)n;
    }
    const bool right = memcmp(session->answer, "world", HELLO_BYTES) == 0;
    if (emit(out, right ? "ready" : "alert") < 0) return LS_ENOMEM;
    return right ? LS_DONE : LS_ECERT;
}

const char *__wrap_ls_tls_why(const ls_filter *f)
{
    return f != NULL ? "the fake certificate is wrong" : NULL;
}

/* ---- fixture ------------------------------------------------------------------------------------------------ */

typedef struct user { /* in the room of the stream */
    int received;
    char bytes[600]; /* more than an attempt takes */
} user;

typedef struct place {
    net_place net;
    ls_deadlines *deadlines;
    ls_actor actor;
    ls_tls tls;
    _Atomic uint32_t live;
    ls_dial_options options;
    ls_dial *dial;
    int done;
    ls_dial_result result;
    char why[64];
} place;

static void user_received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    ((user *)ls_stream_user(s))->received++;
}

static void user_closed(ls_thread_ctx *ctx, ls_stream *s)
{
    ls_stream_free(s);
}

static const ls_stream_handler user_handler = {.received = user_received, .sent = NULL, .closed = user_closed};

static void dial_done(ls_thread_ctx *ctx, void *of, const ls_dial_result *result)
{
    place *p = of;
    assert_ptr_equal(ctx->inside, &p->actor);
    p->done++;
    p->result = *result;
    (void)snprintf(p->why, sizeof p->why, "%s", result->why);
    assert_true((result->stream != NULL) == (result->err == LS_OK));
}

static void place_open(place *p)
{
    memset(p, 0, sizeof *p);
    memset(&names, 0, sizeof names);
    net_place_open(&p->net);
    ls_actor_init(&p->actor);
    assert_int_equal(ls_stream_deadlines_open(p->net.port, &p->deadlines), LS_OK);
    p->options = (ls_dial_options){.port = p->net.port,
                                   .deadlines = p->deadlines,
                                   .actor = &p->actor,
                                   .host = "example.org.",
                                   .ms_max = FAR_MS,
                                   .handler = &user_handler,
                                   .user_bytes = sizeof(user),
                                   .live = &p->live};
}

static void handle(place *p, int timeout_ms)
{
    ls_packet packet;
    if (ls_port_wait(p->net.port, &p->net.ctx, &packet, 1, timeout_ms) > 0) ls_packet_dispatch(&p->net.ctx, &packet);
}

static void handle_all(place *p)
{
    ls_packet packet;
    while (ls_port_wait(p->net.port, &p->net.ctx, &packet, 1, 0) > 0) ls_packet_dispatch(&p->net.ctx, &packet);
}

static void place_close(place *p)
{
    handle_all(p);
    assert_null(names.lookup);
    assert_int_equal(p->tls.refs, 0);
    assert_int_equal(p->tls.sessions, 0);
    assert_int_equal(atomic_load(&p->live), 0);
    net_place_release(&p->net);
    ls_deadlines_close(p->deadlines);
}

static int start(place *p)
{
    p->done = 0;
    assert_true(ls_actor_try_enter(&p->actor, &p->net.ctx));
    const int err = ls_dial_start(&p->net.ctx, &p->options, (ls_resolver *)(void *)&names, dial_done, p, &p->dial);
    assert_int_equal(p->done, 0); /* never from inside the call */
    ls_actor_leave(&p->actor, &p->net.ctx);
    return err;
}

static void cancel(place *p)
{
    assert_int_equal(p->done, 0);
    assert_true(ls_actor_try_enter(&p->actor, &p->net.ctx));
    ls_dial_cancel(&p->net.ctx, p->dial);
    ls_actor_leave(&p->actor, &p->net.ctx);
}

static void await_done(place *p)
{
    const uint64_t until_ms = ls_clock_coarse_ms() + 30000;
    while (p->done == 0) {
        assert_true(ls_clock_coarse_ms() < until_ms);
        handle(p, 100);
    }
    handle_all(p);
    assert_int_equal(p->done, 1);
}

static void expect_failure(place *p, enum ls_dial_phase phase, int err)
{
    await_done(p);
    assert_null(p->result.stream);
    assert_int_equal(p->result.err, err);
    assert_int_equal(p->result.phase, phase);
}

static void fails(place *p, enum ls_dial_phase phase, int err)
{
    assert_int_equal(start(p), LS_OK);
    expect_failure(p, phase, err);
}

static void close_stream(place *p)
{
    assert_true(ls_actor_try_enter(&p->actor, &p->net.ctx));
    ls_stream_close(&p->net.ctx, p->result.stream);
    ls_actor_leave(&p->actor, &p->net.ctx);
    handle_all(p);
}

/* The stream is connected to `listener`, zeroed and idle; exchange a byte, and close it. */
static void expect_stream(place *p, int listener)
{
    static const user zero;
    int64_t result;
    char byte;
    await_done(p);
    ls_stream *s = p->result.stream;
    assert_int_equal(p->result.err, LS_OK);
    assert_non_null(s);
    assert_memory_equal(ls_stream_user(s), &zero, sizeof zero);
    assert_ptr_equal(ls_stream_actor(s), &p->actor);
    assert_false(ls_stream_receiving(s) || ls_stream_sending(s));
    const int theirs = accept(listener, NULL, NULL);
    assert_true(theirs >= 0);
    assert_true(ls_actor_try_enter(&p->actor, &p->net.ctx));
    assert_int_equal(ls_stream_recv(&p->net.ctx, s, &byte, 1, &result), LS_PENDING);
    ls_actor_leave(&p->actor, &p->net.ctx);
    net_write(theirs, "x", 1);
    const user *u = ls_stream_user(s);
    while (u->received == 0) handle(p, 1000);
    close_stream(p);
    close(theirs);
}

static void connects(place *p, int listener)
{
    assert_int_equal(start(p), LS_OK);
    expect_stream(p, listener);
}

/* A listener at a free port, blocking, whose address joins the addresses of the name. */
static int listen_as(uint8_t family)
{
    ls_addr *addr = &names.addrs[names.count++];
    ls_sockaddr at;
    int fd;
    assert_true(names.count <= LS_LOOKUP_ADDRS_MAX);
    if (family == LS_ADDR_IP4) {
        fd = net_listen(&at);
    } else {
        struct sockaddr_in6 in = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
        socklen_t len = sizeof in;
        fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&in, len), 0);
        assert_int_equal(listen(fd, 8), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
        at = (ls_sockaddr){.len = len};
        memcpy(at.bytes, &in, len);
    }
    assert_true(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) >= 0);
    ls_addr_of(&at, addr);
    return fd;
}

static void refuse_as(uint8_t family) /* nothing listens any more */
{
    close(listen_as(family));
}

/* A listener whose queue is full: the system answers no further SYN. */
typedef struct mute {
    int listener, fillers[16], count;
} mute;

static mute mute_as(void)
{
    mute m = {.listener = listen_as(LS_ADDR_IP4)};
    ls_sockaddr at;
    ls_addr_to(&names.addrs[names.count - 1], &at);
    assert_int_equal(listen(m.listener, 0), 0);
    for (bool full = false; !full;) {
        assert_true(m.count < 16);
        const int fd = m.fillers[m.count++] = net_tcp();
        full = connect(fd, (const struct sockaddr *)at.bytes, at.len) != 0;
        struct pollfd look = {.fd = fd, .events = POLLOUT};
        if (full) full = poll(&look, 1, 50) == 0; /* on the loopback a connect takes no time */
    }
    return m;
}

static void mute_close(mute *m)
{
    for (int n = 0; n < m->count; n++) close(m->fillers[n]);
    close(m->listener);
}

/* ---- addresses ---------------------------------------------------------------------------------------------- */

TEST_IN(place, p, a_numeric_address_needs_no_resolver)
{
    const int listener = listen_as(LS_ADDR_IP4);
    p->options.host = "127.0.0.1";
    p->options.port_number = names.addrs[0].port;
    for (int small = 0; small < 2; small++) {
        connects(p, listener);
    }
    p->options.user_bytes = 0; /* less than an attempt takes */
    assert_int_equal(start(p), LS_OK);
    await_done(p);
    assert_non_null(p->result.stream);
    ls_addr peer;
    ls_stream_peer(p->result.stream, &peer);
    assert_int_equal(peer.port, names.addrs[0].port);
    close(accept(listener, NULL, NULL));
    close_stream(p);
    close(listener);
}

TEST_IN(place, p, a_refused_connection_fails)
{
    refuse_as(LS_ADDR_IP4);
    refuse_as(LS_ADDR_IP4);
    fails(p, LS_DIAL_CONNECT, LS_EREFUSED);
    assert_string_equal(p->why, "");
}

/* A name with addresses of this machine only, and an address as text. */
TEST_IN(place, p, only_public_addresses_when_asked)
{
    const int listeners[] = {listen_as(LS_ADDR_IP4), listen_as(LS_ADDR_IP6)};
    p->options.public_only = true;
    fails(p, LS_DIAL_CONNECT, LS_EACCES);
    p->options.host = "127.0.0.1";
    p->options.port_number = names.addrs[0].port;
    fails(p, LS_DIAL_CONNECT, LS_EACCES);
    p->options.public_only = false;
    connects(p, listeners[0]);
    close(listeners[0]);
    close(listeners[1]);
}

TEST_IN(place, p, the_next_address_is_tried_at_once_after_a_failure)
{
    for (int n = 0; n < 6; n++) refuse_as(n % 2 ? LS_ADDR_IP6 : LS_ADDR_IP4);
    const int listener = listen_as(LS_ADDR_IP6);
    late_timers = true; /* no gap ends */
    connects(p, listener);
    late_timers = false;
    close(listener);
}

TEST_IN(place, p, the_race_is_won_by_the_second)
{
    mute silent = mute_as();
    const int listener = listen_as(LS_ADDR_IP4);
    const uint64_t from_ms = ls_clock_coarse_ms();
    connects(p, listener);
    assert_true(ls_clock_ns() / 1000000u - from_ms >= 250);
    close(listener);
    mute_close(&silent);
}

/* The first attempt goes on while the second runs, and is the one that connects. */
TEST_IN(place, p, the_race_is_won_late_by_the_first)
{
    mute first = mute_as(), second = mute_as();
    assert_int_equal(start(p), LS_OK);
    const uint64_t until_ms = ls_clock_coarse_ms() + 400;
    while (ls_clock_coarse_ms() < until_ms) handle(p, 10); /* both run */
    assert_int_equal(p->done, 0);
    assert_int_equal(listen(first.listener, 64), 0); /* room for its SYN, which the system repeats */
    await_done(p);
    assert_non_null(p->result.stream);
    ls_addr peer;
    ls_stream_peer(p->result.stream, &peer);
    assert_int_equal(peer.port, names.addrs[0].port);
    close_stream(p);
    mute_close(&first);
    mute_close(&second);
}

/* The families alternate: IPv4, IPv6, IPv4 ... though the name has them in another order. */
TEST_IN(place, p, the_families_alternate)
{
    mute silent = mute_as();
    for (int n = 0; n < 3; n++) refuse_as(LS_ADDR_IP4);
    const int listener = listen_as(LS_ADDR_IP6); /* the last of the name, the second that is tried */
    connects(p, listener);
    close(listener);
    mute_close(&silent);
}

TEST(a_unix_path)
{
    char dir[] = TEST_SCRATCH_PATH, host[120], longest[200];
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    place p;
    if (!system_has_unix_sockets()) {
        print_message("skipped: of another system: Unix sockets\n");
        skip();
    }
    assert_non_null(mkdtemp(dir));
    (void)snprintf(un.sun_path, sizeof un.sun_path, "%s/s", dir);
    (void)snprintf(host, sizeof host, "unix:%s", un.sun_path);
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&un, sizeof un), 0);
    place_open(&p);
    p.options.host = host;
    fails(&p, LS_DIAL_CONNECT, LS_EREFUSED);
    assert_int_equal(listen(listener, 8), 0);
    connects(&p, listener);
    close(listener);
    unlink(un.sun_path);
    fails(&p, LS_DIAL_CONNECT, LS_ENOENT);
    memset(longest, 'a', sizeof longest);
    memcpy(longest, "unix:/", 6);
    longest[sizeof longest - 1] = '\0';
    p.options.host = longest;
    assert_int_equal(start(&p), LS_ELIMIT);
    place_close(&p);
    rmdir(dir);
}

/* ---- names -------------------------------------------------------------------------------------------------- */

TEST_IN(place, p, errors_of_a_name)
{
    names.err = LS_ENOENT;
    fails(p, LS_DIAL_NAME, LS_ENOENT);
    assert_string_equal(names.name, "example.org.");
    names.err = LS_ETIMEDOUT;
    fails(p, LS_DIAL_NAME, LS_ETIMEDOUT);
    names.result = LS_ENOMEM;
    fails(p, LS_DIAL_NAME, LS_ENOMEM);
    p->options.host = "no host name";
    assert_int_equal(start(p), LS_EINVAL);
    p->options.host = "";
    assert_int_equal(start(p), LS_EINVAL);
    p->options.host = "example.org";
    assert_true(ls_actor_try_enter(&p->actor, &p->net.ctx));
    assert_int_equal(ls_dial_start(&p->net.ctx, &p->options, NULL, dial_done, p, &p->dial), LS_EINVAL);
    ls_actor_leave(&p->actor, &p->net.ctx);
}

static void lookup_completes(place *p)
{
    assert_non_null(names.lookup);
    lookup_fill(names.lookup);
    assert_true(ls_actor_try_enter(&p->actor, &p->net.ctx));
    names.lookup->done(&p->net.ctx, names.lookup);
    ls_actor_leave(&p->actor, &p->net.ctx);
}

TEST_IN(place, p, a_name_that_takes_time)
{
    names.pending = true;
    const int listener = listen_as(LS_ADDR_IP4);
    assert_int_equal(start(p), LS_OK);
    handle_all(p);
    assert_int_equal(p->done, 0);
    lookup_completes(p);
    expect_stream(p, listener);
    close(listener);
}

/* ---- TLS ---------------------------------------------------------------------------------------------------- */

/* Start a dial with TLS and accept its connection, which has sent its greeting. */
static int tls_start(place *p, int listener)
{
    char bytes[HELLO_BYTES];
    p->options.tls = &p->tls;
    assert_int_equal(start(p), LS_OK);
    while (p->tls.sessions == 0) {
        assert_int_equal(p->done, 0);
        handle(p, 1000);
    }
    const int theirs = accept(listener, NULL, NULL);
    net_read(theirs, bytes, sizeof bytes);
    assert_memory_equal(bytes, "hello", sizeof bytes);
    return theirs;
}

TEST_IN(place, p, a_handshake_byte_by_byte)
{
    char bytes[HELLO_BYTES];
    int64_t result;
    const int listener = listen_as(LS_ADDR_IP4);
    const int theirs = tls_start(p, listener);
    assert_string_equal(p->tls.server_name, "example.org"); /* without the dot at its end */
    for (int n = 0; n < HELLO_BYTES; n++) {
        assert_int_equal(p->done, 0);
        net_write(theirs, &"world"[n], 1);
        handle(p, 1000);
    }
    await_done(p);
    assert_non_null(p->result.stream);
    assert_non_null(ls_stream_filter(p->result.stream));
    assert_int_equal(p->tls.refs, 0);
    assert_int_equal(p->tls.sessions, 1);
    net_read(theirs, bytes, sizeof bytes);
    assert_memory_equal(bytes, "ready", sizeof bytes);
    net_write(theirs, "x", 1); /* through the filter */
    assert_true(ls_actor_try_enter(&p->actor, &p->net.ctx));
    const int err = ls_stream_recv(&p->net.ctx, p->result.stream, bytes, sizeof bytes, &result);
    ls_actor_leave(&p->actor, &p->net.ctx);
    const user *u = ls_stream_user(p->result.stream);
    while (err == LS_PENDING && u->received == 0) handle(p, 1000);
    assert_int_equal(bytes[0], 'x');
    close_stream(p);
    close(theirs);
    close(listener);
}

/* Bytes behind the handshake are the first that the stream delivers. */
TEST_IN(place, p, a_handshake_with_bytes_behind_it)
{
    char bytes[HELLO_BYTES];
    int64_t result;
    const int listener = listen_as(LS_ADDR_IP4);
    p->options.server_name = "other.example";
    const int theirs = tls_start(p, listener);
    assert_string_equal(p->tls.server_name, "other.example");
    net_write(theirs, "world220", 8);
    await_done(p);
    assert_non_null(p->result.stream);
    assert_true(ls_actor_try_enter(&p->actor, &p->net.ctx));
    assert_int_equal(ls_stream_recv(&p->net.ctx, p->result.stream, bytes, sizeof bytes, &result), LS_DONE);
    ls_actor_leave(&p->actor, &p->net.ctx);
    assert_int_equal(result, 3);
    assert_memory_equal(bytes, "220", 3);
    close_stream(p);
    close(theirs);
    close(listener);
}

TEST_IN(place, p, a_handshake_that_fails)
{
    char bytes[HELLO_BYTES];
    const int listener = listen_as(LS_ADDR_IP4);
    int theirs = tls_start(p, listener);
    net_write(theirs, "wrong", HELLO_BYTES);
    expect_failure(p, LS_DIAL_TLS, LS_ECERT);
    assert_string_equal(p->why, "the fake certificate is wrong");
    net_read(theirs, bytes, sizeof bytes);
    assert_memory_equal(bytes, "alert", sizeof bytes);
    assert_int_equal(read(theirs, bytes, 1), 0);
    close(theirs);

    theirs = tls_start(p, listener); /* cut */
    close(theirs);
    expect_failure(p, LS_DIAL_TLS, LS_ETRUNCATED);

    theirs = tls_start(p, listener); /* reset */
    const struct linger none = {.l_onoff = 1};
    assert_int_equal(setsockopt(theirs, SOL_SOCKET, SO_LINGER, &none, sizeof none), 0);
    close(theirs);
    expect_failure(p, LS_DIAL_TLS, LS_ERESET);
    assert_string_equal(p->why, "");

    p->tls.session_err = LS_EINVAL;
    fails(p, LS_DIAL_TLS, LS_EINVAL);
    close(accept(listener, NULL, NULL));
    p->tls.session_err = 0;
    p->tls.handshake_err = LS_ENOMEM;
    fails(p, LS_DIAL_TLS, LS_ENOMEM);
    close(accept(listener, NULL, NULL));
    close(listener);
}

/* ---- the deadline ------------------------------------------------------------------------------------------- */

TEST_IN(place, p, the_deadline_ends_every_phase)
{
    p->options.ms_max = 30;
    names.pending = true;
    fails(p, LS_DIAL_NAME, LS_ETIMEDOUT);
    names.pending = false;

    mute silent = mute_as();
    fails(p, LS_DIAL_CONNECT, LS_ETIMEDOUT);
    p->options.ms_max = 400; /* two attempts */
    mute other = mute_as();
    fails(p, LS_DIAL_CONNECT, LS_ETIMEDOUT);
    mute_close(&silent);
    mute_close(&other);

    names.count = 0;
    p->options.ms_max = 1000;
    const int listener = listen_as(LS_ADDR_IP4);
    const int theirs = tls_start(p, listener);
    expect_failure(p, LS_DIAL_TLS, LS_ETIMEDOUT);
    assert_string_equal(p->why, "");
    close(theirs);
    close(listener);
}

TEST_IN(place, p, without_a_deadline_nothing_ends)
{
    p->options.ms_max = 0;
    mute silent = mute_as();
    assert_int_equal(start(p), LS_OK);
    handle_all(p);
    net_quiet(&p->net, 50); /* no timer either: there is no other address */
    cancel(p);
    mute_close(&silent);
}

/* ---- cancel ------------------------------------------------------------------------------------------------- */

TEST_IN(place, p, a_cancel_in_every_phase)
{
    assert_true(ls_actor_try_enter(&p->actor, &p->net.ctx)); /* before it began */
    assert_int_equal(ls_dial_start(&p->net.ctx, &p->options, (ls_resolver *)(void *)&names, dial_done, p, &p->dial),
                     LS_OK);
    ls_dial_cancel(&p->net.ctx, p->dial);
    ls_actor_leave(&p->actor, &p->net.ctx);

    names.pending = true; /* the look-up */
    assert_int_equal(start(p), LS_OK);
    cancel(p);
    assert_null(names.lookup);
    names.pending = false;

    mute first = mute_as(), second = mute_as(), third = mute_as();
    for (uint32_t ms = 0; ms <= 600; ms += 300) { /* one, two and three attempts */
        assert_int_equal(start(p), LS_OK);
        const uint64_t until_ms = ls_clock_coarse_ms() + ms;
        while (ls_clock_coarse_ms() < until_ms) handle(p, 10);
        cancel(p);
        handle_all(p);
    }
    mute_close(&first);
    mute_close(&second);
    mute_close(&third);

    names.count = 0;
    const int listener = listen_as(LS_ADDR_IP4);
    const int theirs = tls_start(p, listener); /* the handshake */
    char byte;
    cancel(p);
    handle_all(p);
    assert_int_equal(read(theirs, &byte, 1), 0);
    close(theirs);
    close(listener);
    assert_int_equal(p->done, 0);
}

/* The packets of the timers are in the inbox of the actor when the dial is cancelled. */
TEST_IN(place, p, a_cancel_while_timers_expire)
{
    mute first = mute_as(), second = mute_as();
    p->options.ms_max = 250;
    assert_int_equal(start(p), LS_OK);
    ls_thread_ctx holder = p->net.ctx; /* stands for another thread, inside the actor */
    assert_true(ls_actor_try_enter(&p->actor, &holder));
    for (int n = 0; n < 2; n++) {
        const ls_packet packet = net_next(&p->net);
        ls_packet_dispatch(&p->net.ctx, &packet);
    }
    ls_dial_cancel(&holder, p->dial);
    ls_actor_leave(&p->actor, &holder);
    assert_int_equal(p->done, 0);
    mute_close(&first);
    mute_close(&second);
}

TEST(a_dial_that_is_freed_after_the_port)
{
    place p;
    place_open(&p);
    names.pending = true;
    p.options.tls = &p.tls;
    assert_int_equal(start(&p), LS_OK);
    net_place_release(&p.net);
    ls_deadlines_close(p.deadlines);
    ls_dial_free(p.dial);
    assert_int_equal(p.tls.refs, 0);
    assert_null(names.lookup);
}

/* ---- faults ------------------------------------------------------------------------------------------------- */

TEST_IN(place, p, without_sockets_or_timers)
{
    refuse_as(LS_ADDR_IP4);
    const int listener = listen_as(LS_ADDR_IP4);
    no_sockets = true;
    fails(p, LS_DIAL_CONNECT, LS_EMFILE);
    no_sockets = false;
    no_timer = true;
    assert_int_equal(start(p), LS_ENOMEM);
    p->options.ms_max = 0;
    mute silent = mute_as();
    names.addrs[0] = names.addrs[2]; /* without a timer for the gap the next attempt begins at once */
    connects(p, listener);
    no_timer = false;
    mute_close(&silent);
    close(listener);
}
