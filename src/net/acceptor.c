/* acceptor.c - see acceptor.h.
 *
 * A handshake has one operation pending at a time, a receive or a send, so that the thread that runs its packet owns
 * it; a waiting one has none and belongs to the mutex. Other threads end a handshake by marking it and cancelling its
 * operation under the mutex. Its owner posts receives under the mutex too, after it has looked at the mark. Sends are
 * posted without it, as a send may take long: one that begins just after the mark ends at its deadline at the latest.
 *
 * Under the mutex:
 *     held     = number of handshakes that `holds`; a new one gets a slot while held < handshakes_max
 *     evicting = number of these that are marked to make room
 *     all slots are taken or no handshake waits
 *     `timing`, when handshakes wait and none can be evicted for them yet
 * No function of the stream that may call back runs under the mutex. */
#include "net/acceptor.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/invariant.h"
#include "base/io/log.h"
#include "net/handshake.h"
#include "net/proxy_header.h"
#include "net/refused.h"
#include "net/stream/deadline.h"
#include "net/stream/filter.h"

enum {
    HANDSHAKES_MIN = 64, /* of the default */
    HANDSHAKES_MAX = 1024,
    HANDSHAKE_MS_MAX = 10 * 1000,
    HANDSHAKE_MS_MIN = 1000,
    LINGER_MS_MAX = 2 * 1000,    /* reading and discarding after an alert or the 400, as HTTP does */
    CERTIFICATES_CHECK_MS = 1000 /* interval at which changed certificate files are looked for */
};

enum state { SILENT, WAITING, HOLDING, ENDING, STATES };

struct ls_acceptor_service { /* constant, but for the count */
    _Atomic uint32_t handshakes;
    ls_acceptor_service_options with;
    size_t user_bytes;
    ls_network networks[]; /* of the lists in `with` */
};

struct ls_acceptor {
    ls_listener *listener; /* NULL: stopped */
    ls_port *port;
    ls_deadlines *deadlines;
    ls_conn_limit *limit;
    _Atomic(ls_acceptor_service *) service;
    ls_addr addr;
    _Atomic uint64_t certificates_checked_ms;
    _Atomic bool accepting; /* the listener exists */

    ls_mutex mutex;
    ls_node handshakes[STATES];                /* each in the order of arrival in this state */
    uint32_t handshakes_max, handshake_ms_min; /* of the service */
    uint32_t held, evicting;
    uint32_t waits; /* length of handshakes[WAITING] */
    ls_timer timer; /* for the time at which the oldest may be evicted */
    bool timing;    /* it is armed, or its packet is under way */
};

typedef struct handshake {
    ls_acceptor *acceptor;
    ls_acceptor_service *service; /* counts it */
    ls_node node;                 /* of acceptor->handshakes[state] */
    uint64_t held_ms;             /* when it got its slot */
    /* Under the mutex. */
    uint8_t state;
    bool holds;     /* a slot */
    bool evicted;   /* marked, for a handshake that waits */
    bool cancelled; /* marked */
    /* Of the owner. */
    bool expects_proxy_header;
    bool complete;       /* only its last bytes are to be sent */
    bool failed;         /* only an alert or the 400 is to be sent */
    uint16_t header_len; /* bytes in `header` */
    ls_block *header;    /* a PROXY header that arrived in pieces; NULL: none */
    ls_filter *session;  /* of TLS; NULL: not begun */
} handshake;

/* ---- slots (the mutex is held) ------------------------------------------------------------------------------ */

static void move(handshake *h, enum state state)
{
    ls_acceptor *a = h->acceptor;
    a->waits += (state == WAITING) - (h->state == WAITING);
    ls_list_remove(&h->node);
    ls_list_push(&a->handshakes[state], &h->node);
    h->state = (uint8_t)state;
}

static handshake *first(ls_acceptor *a, enum state state)
{
    ls_node *head = &a->handshakes[state];
    return ls_list_empty(head) ? NULL : LS_CONTAINER(head->next, handshake, node);
}

static bool check(const ls_acceptor *a)
{
    uint32_t held = 0, evicting = 0, waits = 0;
    for (unsigned state = WAITING; state < STATES; state++) /* a silent one holds no slot */
        LS_LIST_EACH (const handshake, h, &a->handshakes[state], node) {
            held += h->holds;
            evicting += h->evicted;
            waits += h->state == WAITING;
            if (h->state != state || (h->evicted && !(h->holds && h->cancelled))) return false;
        }
    return held == a->held && evicting == a->evicting && waits == a->waits &&
           (held >= a->handshakes_max || waits == 0);
}

static void unlock(ls_acceptor *a)
{
    LS_INVARIANT(check(a));
    ls_mutex_unlock(&a->mutex);
}

/* Mark the handshake. Its owner ends it; a waiting one, which has none, gets a packet for that. */
static void cancel(handshake *h)
{
    const bool waiting = h->state == WAITING;
    h->cancelled = true;
    move(h, ENDING);
    if (waiting)
        ls_stream_requeue(ls_stream_of(h));
    else
        ls_stream_cancel(ls_stream_of(h));
}

static uint64_t now_ms(void) /* not the coarse clock, which may lag the timer */
{
    return ls_clock_ns() / 1000000u;
}

static void give_slot(handshake *h)
{
    move(h, HOLDING);
    h->holds = true;
    h->held_ms = now_ms();
    h->acceptor->held++;
}

/* Give free slots to those that wait, and evict for the others. */
static void share_slots(ls_acceptor *a)
{
    handshake *h;
    while (a->held < a->handshakes_max && (h = first(a, WAITING)) != NULL) {
        give_slot(h);
        ls_stream_requeue(ls_stream_of(h));
    }
    if (a->waits == 0) return;
    const uint64_t now = now_ms();
    while (a->evicting < a->waits && (h = first(a, HOLDING)) != NULL && now - h->held_ms >= a->handshake_ms_min) {
        h->evicted = true;
        a->evicting++;
        cancel(h);
    }
    if (a->evicting < a->waits && (h = first(a, HOLDING)) != NULL && !a->timing) /* no memory: a later call does it */
        a->timing = ls_timer_set(a->port, &a->timer, (h->held_ms + a->handshake_ms_min) * 1000000u) == LS_OK;
}

static void timer_fired(ls_thread_ctx *ctx, ls_op *op)
{
    ls_acceptor *a = LS_CONTAINER(op, ls_acceptor, timer.op);
    ls_mutex_lock(&a->mutex);
    a->timing = false;
    share_slots(a);
    unlock(a);
}

static void release_slot(handshake *h)
{
    ls_acceptor *a = h->acceptor;
    if (!h->holds) return;
    a->held--;
    if (h->evicted) a->evicting--;
    h->holds = h->evicted = false;
    share_slots(a);
}

/* ---- the end of a handshake --------------------------------------------------------------------------------- */

static void drop_buffers(handshake *h)
{
    if (h->session != NULL) h->session->type->free(h->session);
    if (h->header != NULL) ls_block_drop(h->header);
    h->session = NULL;
    h->header = NULL;
}

static void closed(ls_thread_ctx *ctx, ls_stream *s)
{
    handshake *h = ls_stream_user(s);
    ls_acceptor *a = h->acceptor;
    drop_buffers(h);
    ls_mutex_lock(&a->mutex);
    release_slot(h);
    ls_list_remove(&h->node);
    unlock(a);
    atomic_fetch_sub(&h->service->handshakes, 1);
    ls_stream_free(s);
    ls_conn_limit_leave(a->limit);
}

static void log_failure(ls_stream *s, const char *why)
{
    const handshake *h = ls_stream_user(s);
    char text[LS_ADDR_TEXT_BYTES];
    ls_addr peer;
    ls_stream_peer(s, &peer);
    if (!h->expects_proxy_header) atomic_fetch_add(&ls_deadlines_peers(h->acceptor->deadlines)->handshakes_failed, 1);
    ls_refused_log("%s %s: %s", ls_addr_logged(&peer, text),
                   h->expects_proxy_header ? "PROXY header" : "TLS handshake", why);
}

/* Close after `err`, the result of an operation. */
static void refuse(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    handshake *h = ls_stream_user(s);
    ls_mutex_lock(&h->acceptor->mutex);
    const bool evicted = h->evicted, drained = h->cancelled && !h->holds;
    move(h, ENDING);
    unlock(h->acceptor);
    const bool silent = h->session == NULL && h->header == NULL;
    if (evicted)
        log_failure(s, "too many handshakes at a time");
    else if (err == LS_ECLOSED && !silent)
        log_failure(s, "the peer closed the connection");
    else if (err != LS_ECLOSED && !h->failed &&
             !drained) /* a failure has its line; a silent peer may be a health check */
        log_failure(s, ls_err_text(err));
    ls_stream_close(ctx, s);
}

/* The alert or the 400 was sent: close so that the peer can read it. The buffers are not needed for that. */
static void linger(ls_thread_ctx *ctx, ls_stream *s)
{
    handshake *h = ls_stream_user(s);
    drop_buffers(h);
    ls_mutex_lock(&h->acceptor->mutex);
    const bool cancelled = h->cancelled;
    move(h, ENDING);
    release_slot(h);
    unlock(h->acceptor);
    if (cancelled)
        ls_stream_close(ctx, s);
    else
        ls_stream_linger(ctx, s, LINGER_MS_MAX);
}

static void begin_protocol(ls_thread_ctx *ctx, ls_stream *s)
{
    handshake *h = ls_stream_user(s);
    ls_acceptor *a = h->acceptor;
    ls_acceptor_service *const service = h->service;
    ls_filter *const session = h->session;
    ls_mutex_lock(&a->mutex);
    ls_list_remove(&h->node); /* first: its slot must not be evicted once more */
    release_slot(h);
    unlock(a);
    memset(h, 0, sizeof *h);
    if (session != NULL) {
        atomic_fetch_add(&ls_deadlines_peers(a->deadlines)->handshakes, 1);
        ls_stream_set_filter(s, session);
    }
    ls_stream_recv_within(s, 0);
    ls_stream_send_within(s, 0);
    service->with.protocol.start(ctx, s, service->with.protocol.user);
    atomic_fetch_sub(&service->handshakes, 1); /* not earlier: until now nothing else counts the protocol's user */
}

/* ---- who may connect ------------------------------------------------------------------------------------------ */

/* LS_OK: also counted, if the service has a limit; else a refusal, which is counted and logged. */
static int admit(ls_acceptor *a, const ls_acceptor_service *service, const ls_addr *peer)
{
    ls_peers *const peers = ls_deadlines_peers(a->deadlines);
    const char *why = NULL;
    if (service->with.deny_count > 0 && ls_networks_have(service->with.deny, service->with.deny_count, peer))
        why = "the address is in deny";
    else if (service->with.allow_count > 0 && !ls_networks_have(service->with.allow, service->with.allow_count, peer))
        why = "the address is not in allow";
    if (why != NULL) {
        ls_refusals_add(&peers->denied, peer, why);
        return LS_EACCES;
    }
    if (service->with.per_ip_max == 0) return LS_OK;
    const int err = ls_peers_enter(peers, peer, LS_PEERS_CONNECTIONS, service->with.per_ip_max);
    if (err == LS_ELIMIT) ls_refusals_add_peer(peers, peer, LS_PEERS_CONNECTIONS, service->with.per_ip_max);
    return err;
}

/* ---- the steps: each returns LS_EAGAIN (receive more), LS_PENDING (the next packet continues), LS_OK (the stream is
 * not the acceptor's any more, or is closing) or another error (the caller closes the stream) --------------------- */

/* What was queued has been sent. */
static int after_send(ls_thread_ctx *ctx, ls_stream *s)
{
    const handshake *h = ls_stream_user(s);
    if (h->failed)
        linger(ctx, s);
    else if (h->complete)
        begin_protocol(ctx, s);
    else
        return LS_EAGAIN;
    return LS_OK;
}

static int send_queued(ls_thread_ctx *ctx, ls_stream *s)
{
    const int err = ls_stream_queued(s) > 0 ? ls_stream_flush(ctx, s) : LS_DONE;
    return err == LS_DONE ? after_send(ctx, s) : err;
}

/* The first bytes are those of a request of HTTP/1, whose method begins with a letter: no record does. */
static bool is_plain_http(const handshake *h, const ls_slice *bytes)
{
    return h->session == NULL && h->service->with.refuse_plain_http != NULL && bytes->ptr[0] >= 'A' && bytes->ptr[0] <= 'Z';
}

static int refuse_plain_http(ls_thread_ctx *ctx, ls_stream *s, ls_text received)
{
    handshake *h = ls_stream_user(s);
    h->failed = true;
    log_failure(s, "the client speaks plain HTTP on a port for HTTPS");
    const int err = h->service->with.refuse_plain_http(ctx, s, h->service->with.protocol.user, received);
    return err < 0 ? err : send_queued(ctx, s);
}

/* The first record of TLS is incomplete and small: wait for its rest without a slot. */
static void return_slot(handshake *h)
{
    ls_mutex_lock(&h->acceptor->mutex);
    if (!h->cancelled) {
        move(h, SILENT);
        release_slot(h);
    }
    unlock(h->acceptor);
}

/* Continue with received bytes, whose reference it takes. */
static int continue_tls(ls_thread_ctx *ctx, ls_stream *s, ls_slice bytes)
{
    handshake *h = ls_stream_user(s);
    int err, status;
    if (is_plain_http(h, &bytes)) {
        err = refuse_plain_http(ctx, s, (ls_text){bytes.ptr, bytes.len});
        ls_slice_drop(&bytes);
        return err;
    }
    if (h->session == NULL && (err = ls_tls_session(h->service->with.tls, NULL, &h->session)) < 0) {
        ls_slice_drop(&bytes);
        return err;
    }
    h->session->type->feed(h->session, bytes);
    err = ls_handshake_step(ctx, s, h->session, &status);
    h->complete = status == LS_DONE;
    h->failed = status != LS_DONE && status != LS_EAGAIN;
    if (h->failed) log_failure(s, ls_tls_why(h->session));
    if (status == LS_EAGAIN && ls_tls_is_small(h->session)) return_slot(h);
    return err < 0 ? err : send_queued(ctx, s);
}

/* Keep the start of a header; the rest is received after it. */
static int keep_header(ls_thread_ctx *ctx, handshake *h, const ls_slice *bytes)
{
    if (h->header != NULL) return LS_EAGAIN; /* they were received into it */
    if ((h->header = ls_block_get(ctx->pool, LS_BLOCK_SMALL)) == NULL) return LS_ENOMEM;
    memcpy(h->header->data, bytes->ptr, bytes->len);
    ls_pool_copied(ctx->pool, bytes->len);
    h->header_len = (uint16_t)bytes->len;
    return LS_EAGAIN;
}

/* Parse the header, whose last bytes are *bytes. LS_OK: *bytes are those after it. */
static int take_header(ls_thread_ctx *ctx, ls_stream *s, ls_slice *bytes)
{
    handshake *h = ls_stream_user(s);
    ls_proxy_header header;
    const char *why = NULL;
    if (h->header != NULL) h->header_len = (uint16_t)(h->header_len + bytes->len);
    const char *const from = h->header != NULL ? h->header->data : bytes->ptr;
    const size_t len = h->header != NULL ? h->header_len : bytes->len;
    const int err = ls_proxy_header_parse(from, len, &header, &why);
    if (err == LS_EAGAIN) return keep_header(ctx, h, bytes);
    if (err < 0) {
        h->failed = true;
        log_failure(s, why);
        return err;
    }
    if (h->header != NULL) { /* its reference goes to the bytes, which had none */
        bytes->block = h->header;
        h->header = NULL;
    }
    bytes->ptr = from + header.bytes;
    bytes->len = len - header.bytes;
    h->expects_proxy_header = false;
    if (!header.has_addrs) return LS_OK; /* the proxy itself, such as a check of its server */
    const int admitted = admit(h->acceptor, h->service, &header.source);
    h->failed = admitted < 0;
    if (admitted < 0) return admitted;
    ls_stream_set_peer(s, &header.source);
    if (h->service->with.per_ip_max > 0) ls_stream_set_counted(s);
    return LS_OK;
}

static int continue_with(ls_thread_ctx *ctx, ls_stream *s, ls_slice bytes)
{
    handshake *h = ls_stream_user(s);
    if (h->expects_proxy_header) {
        const int err = take_header(ctx, s, &bytes);
        if (err < 0 || bytes.len == 0) ls_slice_drop(&bytes);
        if (err < 0) return err;
    }
    if (h->service->with.tls != NULL) return bytes.len > 0 ? continue_tls(ctx, s, bytes) : LS_EAGAIN;
    if (bytes.len > 0) ls_stream_unread(s, bytes);
    begin_protocol(ctx, s);
    return LS_OK;
}

/* The first bytes can be received: take a slot for them, or wait for one. */
static int take_slot(handshake *h)
{
    ls_acceptor *a = h->acceptor;
    ls_mutex_lock(&a->mutex);
    int err = LS_EAGAIN;
    if (h->cancelled) {
        err = LS_ECANCELED;
    } else if (a->held < a->handshakes_max) { /* so none waits */
        give_slot(h);
    } else {
        move(h, WAITING);
        share_slots(a);
        err = LS_PENDING;
    }
    unlock(a);
    return err;
}

/* A receive has completed. */
static int continue_after(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    handshake *h = ls_stream_user(s);
    if (result == LS_EAGAIN) ls_stream_recv_within(s, h->service->with.handshake_ms_max); /* it waited, and has its slot */
    if (result < 0) return (int)result;
    if (!h->holds) return take_slot(h);
    if (result == 0) return LS_ECLOSED;
    if (h->header == NULL) return continue_with(ctx, s, ls_stream_take(s));
    return continue_with(ctx, s, ls_slice_static(h->header->data + h->header_len, (size_t)result));
}

/* ---- operations --------------------------------------------------------------------------------------------- */

/* Without a slot, wait for bytes; a PROXY header is received into its block. */
static int receive(ls_thread_ctx *ctx, ls_stream *s, int64_t *result)
{
    handshake *h = ls_stream_user(s);
    int err = LS_ECANCELED;
    ls_mutex_lock(&h->acceptor->mutex);
    if (!h->cancelled) {
        char *to = NULL;
        uint32_t len = h->holds ? LS_BLOCK_SMALL : 0;
        if (h->header != NULL) {
            to = h->header->data + h->header_len;
            len = h->header->cap - h->header_len; /* > 0: a header that needs more is shorter than the block */
        }
        err = ls_stream_recv(ctx, s, to, len, result);
    }
    unlock(h->acceptor);
    return err;
}

/* Continue after a step, until an operation is pending or the handshake has ended. */
static void proceed(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    while (err == LS_EAGAIN) {
        int64_t result;
        err = receive(ctx, s, &result);
        if (err == LS_DONE) err = continue_after(ctx, s, result);
    }
    if (err < 0) refuse(ctx, s, err);
}

static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    proceed(ctx, s, continue_after(ctx, s, result));
}

static void sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    proceed(ctx, s, err < 0 ? err : after_send(ctx, s));
}

static const ls_stream_handler handler = {.received = received, .sent = sent, .closed = closed};

/* ---- accept ------------------------------------------------------------------------------------------------- */

/* Use changed certificate files. One thread looks at them, at most once per interval. */
static void refresh_certificates(ls_acceptor *a, ls_tls *tls)
{
    const uint64_t now = ls_clock_coarse_ms();
    uint64_t checked_ms = atomic_load_explicit(&a->certificates_checked_ms, memory_order_relaxed);
    if (now - checked_ms >= CERTIFICATES_CHECK_MS &&
        atomic_compare_exchange_strong(&a->certificates_checked_ms, &checked_ms, now))
        ls_handshake_refresh(tls);
}

static void begin_handshake(ls_thread_ctx *ctx, ls_acceptor *a, ls_acceptor_service *service, ls_stream *s,
                            bool expects_proxy_header)
{
    handshake *h = ls_stream_user(s);
    if (service->with.tls != NULL) refresh_certificates(a, service->with.tls);
    atomic_fetch_add(&service->handshakes, 1);
    h->acceptor = a;
    h->service = service;
    h->expects_proxy_header = expects_proxy_header;
    ls_node_init(&h->node);
    ls_stream_recv_within(s, service->with.handshake_ms_max);
    ls_stream_send_within(s, service->with.handshake_ms_max);
    ls_mutex_lock(&a->mutex);
    move(h, SILENT);
    unlock(a);
    proceed(ctx, s, LS_EAGAIN);
}

static void accepted(ls_thread_ctx *ctx, void *user, ls_fd fd, const ls_sockaddr *from)
{
    ls_acceptor *a = user;
    ls_acceptor_service *const service = atomic_load_explicit(&a->service, memory_order_acquire);
    ls_stream *s;
    ls_addr peer;
    ls_addr_of(from, &peer);
    const bool trusted =
        service->with.trusted_count > 0 && ls_networks_have(service->with.trusted, service->with.trusted_count, &peer);
    const bool proxy = service->with.proxy_protocol && trusted;
    const bool counted = service->with.per_ip_max > 0 && !trusted;
    if (!trusted && admit(a, service, &peer) < 0) {
        ls_sock_discard(fd);
        ls_conn_limit_leave(a->limit);
        return;
    }
    const bool at_once = !proxy && service->with.tls == NULL;
    /* A handshake first waits for bytes, which needs the news from the system: "may have data" is not enough. */
    const int err = ls_stream_open(a->port, a->deadlines, fd, at_once, &peer, &handler, service->user_bytes, &s);
    if (counted && err < 0) ls_peers_leave(ls_deadlines_peers(a->deadlines), &peer, LS_PEERS_CONNECTIONS);
    if (counted && err == LS_OK) ls_stream_set_counted(s);
    if (err < 0) {
        ls_log(LS_LOG_WARN, "connection refused: %s", ls_err_text(err));
        ls_conn_limit_leave(a->limit);
    } else if (at_once) {
        service->with.protocol.start(ctx, s, service->with.protocol.user);
    } else {
        begin_handshake(ctx, a, service, s, proxy);
    }
}

static void listener_ended(void *acceptor)
{
    ls_acceptor *a = acceptor;
    atomic_store(&a->accepting, false);
}

/* ---- the service -------------------------------------------------------------------------------------------- */

/* Copy a list to *to, and move *to after it. */
static const ls_network *keep_networks(const ls_network *list, size_t count, ls_network **to)
{
    ls_network *const at = *to;
    if (count > 0) memcpy(at, list, count * sizeof *at);
    *to += count;
    return at;
}

int ls_acceptor_service_open(const ls_acceptor_service_options *options, ls_acceptor_service **out)
{
    const size_t networks = options->trusted_count + options->allow_count + options->deny_count;
    ls_acceptor_service *service = calloc(1, sizeof *service + networks * sizeof service->networks[0]);
    if (service == NULL) return LS_ENOMEM;
    ls_network *to = service->networks;
    service->with = *options;
    service->with.trusted = keep_networks(options->trusted, options->trusted_count, &to);
    service->with.allow = keep_networks(options->allow, options->allow_count, &to);
    service->with.deny = keep_networks(options->deny, options->deny_count, &to);
    if (options->handshake_ms_max == 0) service->with.handshake_ms_max = HANDSHAKE_MS_MAX;
    if (options->handshake_ms_min == 0) service->with.handshake_ms_min = HANDSHAKE_MS_MIN;
    service->user_bytes = options->protocol.user_bytes;
    if ((options->proxy_protocol || options->tls != NULL) && service->user_bytes < sizeof(handshake))
        service->user_bytes = sizeof(handshake);
    if (options->tls != NULL) (void)ls_tls_hold(options->tls);
    *out = service;
    return LS_OK;
}

bool ls_acceptor_service_used(const ls_acceptor_service *service)
{
    return atomic_load(&service->handshakes) > 0;
}

void ls_acceptor_service_drop(ls_acceptor_service *service)
{
    assert(!ls_acceptor_service_used(service));
    if (service->with.tls != NULL) ls_tls_drop(service->with.tls);
    free(service);
}

/* ---- open and close ----------------------------------------------------------------------------------------- */

/* The caller holds the mutex, or opens the acceptor. */
static void use(ls_acceptor *a, ls_acceptor_service *service)
{
    const uint32_t quarter = a->limit->max / 4;
    a->handshakes_max = service->with.handshakes_max;
    if (a->handshakes_max == 0) a->handshakes_max = quarter > HANDSHAKES_MIN ? quarter : HANDSHAKES_MIN;
    if (service->with.handshakes_max == 0 && quarter > HANDSHAKES_MAX) a->handshakes_max = HANDSHAKES_MAX;
    a->handshake_ms_min = service->with.handshake_ms_min;
}

int ls_acceptor_open(ls_port *port, const ls_addr *at, const ls_acceptor_options *options,
                     ls_acceptor_service *service, ls_acceptor **out)
{
    ls_listener_options listener = options->listener;
    int err = LS_ENOMEM;
    ls_acceptor *a = calloc(1, sizeof *a);
    if (a == NULL) return err;
    a->port = port;
    a->deadlines = options->deadlines;
    a->limit = options->limit;
    use(a, service);
    atomic_init(&a->service, service);
    atomic_init(&a->accepting, true);
    atomic_init(&a->certificates_checked_ms, ls_clock_coarse_ms());
    for (unsigned i = 0; i < STATES; i++) ls_node_init(&a->handshakes[i]);
    a->timer.op.done = timer_fired;
    ls_mutex_open(&a->mutex);
    listener.ended = listener_ended;
    err = ls_listener_open(port, at, &listener, a->limit, accepted, a, &a->listener);
    if (err < 0) {
        ls_mutex_close(&a->mutex);
        free(a);
        return err;
    }
    a->addr = *ls_listener_addr(a->listener);
    *out = a;
    return LS_OK;
}

ls_acceptor_service *ls_acceptor_replace(ls_acceptor *a, ls_acceptor_service *service)
{
    ls_acceptor_service *before = atomic_exchange(&a->service, service);
    ls_mutex_lock(&a->mutex);
    use(a, service);
    share_slots(a);
    unlock(a);
    return before;
}

void ls_acceptor_set_backlog(ls_acceptor *acceptor, uint32_t backlog)
{
    ls_listener_set_backlog(acceptor->listener, backlog);
}

const ls_addr *ls_acceptor_addr(const ls_acceptor *acceptor)
{
    return &acceptor->addr;
}

void ls_acceptor_start(ls_thread_ctx *ctx, ls_acceptor *acceptor)
{
    ls_listener_start(ctx, acceptor->listener);
}

ls_fd ls_acceptor_keep(ls_acceptor *acceptor, bool kept)
{
    return ls_listener_keep(acceptor->listener, kept);
}

void ls_acceptor_stop(ls_thread_ctx *ctx, ls_acceptor *acceptor)
{
    ls_listener_stop(ctx, acceptor->listener);
    acceptor->listener = NULL;
}

static uint32_t length(const ls_node *list)
{
    uint32_t count = 0;
    for (const ls_node *node = list->next; node != list; node = node->next) count++;
    return count;
}

/* Cancel the handshakes of the service, or all (NULL). The mutex is held. */
static void cancel_of(ls_acceptor *a, const ls_acceptor_service *service)
{
    static const enum state states[] = {WAITING, SILENT, HOLDING}; /* WAITING first: none of them gets a slot */
    for (unsigned i = 0; i < sizeof states / sizeof states[0]; i++) {
        ls_node *const list = &a->handshakes[states[i]];
        LS_LIST_EACH_DROP (handshake, h, list, node)
            if (service == NULL || h->service == service) cancel(h);
    }
}

/* The mutex is held. */
static void abort_all(ls_acceptor *a)
{
    ls_node *const ending = &a->handshakes[ENDING];
    LS_LIST_EACH (handshake, h, ending, node) ls_stream_cancel(ls_stream_of(h)); /* those that linger */
    cancel_of(a, NULL);
}

uint32_t ls_acceptor_drain(ls_acceptor *acceptor, bool all)
{
    uint32_t open = 0;
    ls_mutex_lock(&acceptor->mutex);
    if (all) abort_all(acceptor);
    for (unsigned i = 0; i < STATES; i++) open += length(&acceptor->handshakes[i]);
    if (acceptor->waits == 0 && acceptor->timing && ls_timer_cancel(acceptor->port, &acceptor->timer))
        acceptor->timing = false;
    if (open == 0) open = acceptor->timing || atomic_load(&acceptor->accepting);
    unlock(acceptor);
    return open;
}

void ls_acceptor_abort(ls_acceptor *acceptor)
{
    ls_mutex_lock(&acceptor->mutex);
    abort_all(acceptor);
    unlock(acceptor);
}

void ls_acceptor_abort_service(ls_acceptor *acceptor, const ls_acceptor_service *service)
{
    ls_mutex_lock(&acceptor->mutex);
    cancel_of(acceptor, service);
    unlock(acceptor);
}

void ls_acceptor_close(ls_acceptor *acceptor)
{
    assert(acceptor->listener == NULL);
    for (unsigned i = 0; i < STATES; i++) assert(ls_list_empty(&acceptor->handshakes[i]));
    if (acceptor->timing) (void)ls_timer_cancel(acceptor->port, &acceptor->timer);
    ls_mutex_close(&acceptor->mutex);
    free(acceptor);
}
