/* dial.c - the steps of dial.h, one function per event.
 *
 *     begin --(a name)--> looked_up --> connect_next <--(the gap has passed, or an attempt has failed)--\
 *       \---(an address)---------------/     \--> attempts, each a stream ------------------------------/
 *                                                     \--(the first that connects)--> handshake --> finish
 *
 * An attempt keeps its data in the room that the stream has for its later user. The memory of a dial that has ended
 * stays until the packets of its timers and of `begin` were taken. */
#include "net/dial.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"
#include "net/handshake.h"
#include "net/network.h"
#include "sched/actor.h"

#define GAP_NS UINT64_C(250000000) /* RFC 8305 section 8: Connection Attempt Delay */

typedef struct attempt { /* in the room of its stream */
    ls_dial *dial;
    _Atomic uint32_t *live; /* of the dial, which may be freed before the stream */
    ls_sockaddr to;
} attempt;

typedef struct dial_timer {
    ls_timer timer;
    bool armed; /* its packet has not been handled yet */
} dial_timer;

struct ls_dial {
    ls_dial_options with; /* host and server_name: in `text` */
    ls_resolver *resolver;
    ls_dial_fn *done;
    void *user;
    ls_op begin;
    dial_timer gap, limit;
    uint64_t gap_ns; /* when the next attempt begins */
    ls_lookup *lookup;
    ls_stream *racing[LS_LOOKUP_ADDRS_MAX];
    ls_stream *stream; /* the winner, during the handshake */
    ls_handshake handshake;
    bool begin_queued, over;
    enum ls_dial_phase phase;
    int err; /* of the last failed attempt */
    unsigned addr_count, addr_next, racing_count;
    ls_addr addrs[LS_LOOKUP_ADDRS_MAX];
    char text[];
};

/* ---- end ---------------------------------------------------------------------------------------------------- */

static void live_add(_Atomic uint32_t *live)
{
    if (live != NULL) atomic_fetch_add(live, 1);
}

static void live_sub(_Atomic uint32_t *live)
{
    if (live != NULL) atomic_fetch_sub(live, 1);
}

static void free_if_over(ls_dial *d)
{
    _Atomic uint32_t *live = d->with.live;
    if (!d->over || d->begin_queued || d->gap.armed || d->limit.armed) return;
    free(d);
    live_sub(live);
}

static void timer_stop(ls_dial *d, dial_timer *timer)
{
    if (timer->armed && ls_timer_cancel(d->with.port, &timer->timer)) timer->armed = false;
}

static void close_racing(ls_thread_ctx *ctx, ls_dial *d)
{
    while (d->racing_count > 0) ls_stream_close(ctx, d->racing[--d->racing_count]);
}

/* Release what the dial holds but its handshake and itself. */
static void release(ls_thread_ctx *ctx, ls_dial *d)
{
    timer_stop(d, &d->gap);
    timer_stop(d, &d->limit);
    if (d->lookup != NULL) ls_lookup_drop(d->lookup);
    d->lookup = NULL;
    close_racing(ctx, d);
    if (d->stream != NULL) ls_stream_close(ctx, d->stream);
    d->stream = NULL;
    if (d->with.tls != NULL) ls_tls_drop(d->with.tls);
    d->with.tls = NULL;
}

static void finish(ls_thread_ctx *ctx, ls_dial *d, ls_stream *stream, int err)
{
    const ls_dial_result result = {
        .stream = stream, .err = err, .phase = d->phase, .why = ls_handshake_why(&d->handshake, err)};
    release(ctx, d);
    d->over = true;
    d->done(ctx, d->user, &result);
    ls_handshake_close(&d->handshake);
    free_if_over(d);
}

void ls_dial_cancel(ls_thread_ctx *ctx, ls_dial *d)
{
    release(ctx, d);
    ls_handshake_close(&d->handshake);
    d->over = true;
    free_if_over(d);
}

void ls_dial_free(ls_dial *d)
{
    if (d->lookup != NULL) ls_lookup_drop(d->lookup);
    while (d->racing_count > 0) ls_stream_free(d->racing[--d->racing_count]);
    if (d->stream != NULL) ls_stream_free(d->stream);
    if (d->with.tls != NULL) ls_tls_drop(d->with.tls);
    ls_handshake_close(&d->handshake);
    free(d);
}

static void succeed(ls_thread_ctx *ctx, ls_dial *d, ls_stream *s)
{
    memset(ls_stream_user(s), 0, d->with.user_bytes);
    ls_stream_handover(s, d->with.handler);
    live_sub(d->with.live); /* the dial itself still counts */
    finish(ctx, d, s, LS_OK);
}

static void limit_passed(ls_thread_ctx *ctx, ls_op *op)
{
    ls_dial *d = LS_CONTAINER(op, ls_dial, limit.timer.op);
    d->limit.armed = false;
    if (d->over)
        free_if_over(d);
    else
        finish(ctx, d, NULL, LS_ETIMEDOUT);
}

static void stream_closed(ls_thread_ctx *ctx, ls_stream *s)
{
    _Atomic uint32_t *live = ((attempt *)ls_stream_user(s))->live;
    ls_stream_free(s);
    live_sub(live);
}

static ls_dial *dial_of(ls_stream *s)
{
    return ((attempt *)ls_stream_user(s))->dial;
}

/* ---- TLS ---------------------------------------------------------------------------------------------------- */

/* Take the result of a step of the handshake. */
static void handshake_went(ls_thread_ctx *ctx, ls_dial *d, int err)
{
    if (err == LS_PENDING) return;
    if (err < 0) {
        finish(ctx, d, NULL, err);
        return;
    }
    ls_stream *s = d->stream;
    d->stream = NULL;
    succeed(ctx, d, s);
}

static void handshake_received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    ls_dial *d = dial_of(s);
    handshake_went(ctx, d, ls_handshake_received(ctx, s, &d->handshake, result));
}

static void handshake_sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    ls_dial *d = dial_of(s);
    handshake_went(ctx, d, ls_handshake_sent(ctx, s, &d->handshake, err));
}

static const ls_stream_handler handshake_handler = {
    .received = handshake_received, .sent = handshake_sent, .closed = stream_closed};

/* ---- connect ------------------------------------------------------------------------------------------------ */

static void connected(ls_thread_ctx *ctx, ls_dial *d, ls_stream *s)
{
    close_racing(ctx, d);
    timer_stop(d, &d->gap);
    if (d->with.tls == NULL) {
        succeed(ctx, d, s);
        return;
    }
    d->phase = LS_DIAL_TLS;
    d->stream = s;
    ls_stream_handover(s, &handshake_handler);
    const int err = ls_handshake_open(&d->handshake, d->with.tls, d->with.server_name);
    handshake_went(ctx, d, err < 0 ? err : ls_handshake_begin(ctx, s, &d->handshake));
}

static const ls_stream_handler attempt_handler;

/* Begin to connect to an address. LS_DONE: *out is connected; LS_PENDING; or an error. */
static int attempt_start(ls_thread_ctx *ctx, ls_dial *d, const ls_addr *addr, ls_stream **out)
{
    const size_t bytes = d->with.user_bytes > sizeof(attempt) ? d->with.user_bytes : sizeof(attempt);
    ls_stream *s;
    if (d->with.public_only && !ls_addr_is_public(addr)) return LS_EACCES;
    int err = ls_stream_open_unconnected(d->with.port, d->with.deadlines, addr->family, &attempt_handler, bytes, &s);
    if (err < 0) return err;
    ls_stream_set_peer(s, addr);
    ls_stream_set_actor(s, d->with.actor);
    attempt *a = ls_stream_user(s);
    a->dial = d;
    a->live = d->with.live;
    live_add(d->with.live);
    ls_addr_to(addr, &a->to);
    err = ls_stream_connect(ctx, s, &a->to);
    if (err < 0) {
        ls_stream_close(ctx, s);
        return err;
    }
    *out = s;
    return err;
}

/* Have the next attempt begin after the gap. false: no memory for the timer. */
static bool gap_start(ls_dial *d)
{
    d->gap_ns = ls_clock_ns() + GAP_NS;
    if (d->gap.armed)
        (void)ls_timer_move(d->with.port, &d->gap.timer, d->gap_ns); /* else its packet looks at gap_ns */
    else
        d->gap.armed = ls_timer_set(d->with.port, &d->gap.timer, d->gap_ns) == LS_OK;
    return d->gap.armed;
}

/* Begin the next attempt; addresses that fail at once are skipped. */
static void connect_next(ls_thread_ctx *ctx, ls_dial *d)
{
    ls_stream *s = NULL;
    while (d->addr_next < d->addr_count) {
        const int err = attempt_start(ctx, d, &d->addrs[d->addr_next++], &s);
        if (err == LS_DONE) {
            connected(ctx, d, s);
            return;
        }
        if (err < 0) {
            d->err = err;
            continue;
        }
        d->racing[d->racing_count++] = s;
        if (d->addr_next < d->addr_count && gap_start(d)) return;
    }
    if (d->racing_count == 0) finish(ctx, d, NULL, d->err);
}

static void attempt_ended(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    ls_dial *d = dial_of(s);
    unsigned n = 0;
    while (d->racing[n] != s) n++;
    d->racing[n] = d->racing[--d->racing_count];
    if (result == LS_OK) {
        connected(ctx, d, s);
        return;
    }
    d->err = (int)result;
    ls_stream_close(ctx, s);
    connect_next(ctx, d);
}

static const ls_stream_handler attempt_handler = {.received = attempt_ended, .sent = NULL, .closed = stream_closed};

static void gap_passed(ls_thread_ctx *ctx, ls_op *op)
{
    ls_dial *d = LS_CONTAINER(op, ls_dial, gap.timer.op);
    d->gap.armed = false;
    if (d->over)
        free_if_over(d);
    else if (d->phase == LS_DIAL_CONNECT && ls_clock_ns() >= d->gap_ns)
        connect_next(ctx, d);
    else if (d->phase == LS_DIAL_CONNECT) /* an attempt began while the packet was under way */
        d->gap.armed = ls_timer_set(d->with.port, &d->gap.timer, d->gap_ns) == LS_OK;
}

/* ---- name --------------------------------------------------------------------------------------------------- */

/* Take the addresses in the order of RFC 8305 section 4: the families alternate, beginning with that of the first
 * address; within a family the order stays. */
static void interleave(ls_dial *d, const ls_addr *addrs, unsigned count)
{
    unsigned next[2] = {0, 0}; /* of the first address's family, of the others */
    while (d->addr_count < count) {
        for (unsigned other = 0; other < 2; other++) {
            unsigned *n = &next[other];
            while (*n < count && (addrs[*n].family != addrs[0].family) != other) ++*n;
            if (*n < count) d->addrs[d->addr_count++] = addrs[(*n)++];
        }
    }
}

static void looked_up(ls_thread_ctx *ctx, ls_lookup *lookup)
{
    ls_dial *d = lookup->user;
    if (lookup->err < 0) {
        finish(ctx, d, NULL, lookup->err);
        return;
    }
    d->phase = LS_DIAL_CONNECT;
    interleave(d, lookup->addrs, lookup->count);
    d->lookup = NULL;
    ls_lookup_drop(lookup);
    connect_next(ctx, d);
}

static void begin(ls_thread_ctx *ctx, ls_op *op)
{
    ls_dial *d = LS_CONTAINER(op, ls_dial, begin);
    d->begin_queued = false;
    if (d->over) {
        free_if_over(d);
        return;
    }
    if (d->phase == LS_DIAL_CONNECT) {
        connect_next(ctx, d);
        return;
    }
    const int err = ls_resolver_lookup(ctx, d->resolver, d->with.host, d->with.port_number, looked_up, d, &d->lookup);
    if (err == LS_DONE)
        looked_up(ctx, d->lookup);
    else if (err < 0)
        finish(ctx, d, NULL, err);
}

/* ---- start -------------------------------------------------------------------------------------------------- */

/* The name that the certificate must have: without the dot at the end that only a look-up knows. */
static void copy_server_name(ls_dial *d, const ls_dial_options *o, char *to)
{
    d->with.server_name = NULL;
    const char *name = o->server_name != NULL ? o->server_name : o->host;
    size_t len = strlen(name);
    if (o->server_name == NULL && strncmp(name, "unix:", 5) == 0) return;
    if (len > 1 && name[len - 1] == '.') len--;
    memcpy(to, name, len);
    to[len] = '\0';
    d->with.server_name = to;
}

int ls_dial_start(ls_thread_ctx *ctx, const ls_dial_options *o, ls_resolver *resolver, ls_dial_fn *done, void *user,
                  ls_dial **out)
{
    const size_t host_bytes = strlen(o->host) + 1;
    const size_t name_bytes = o->server_name != NULL ? strlen(o->server_name) + 1 : host_bytes;
    ls_addr numeric;
    int err = ls_addr_parse(o->host, o->port_number, &numeric);
    const bool is_name = err == LS_EINVAL && strncmp(o->host, "unix:", 5) != 0;
    if (is_name && (resolver == NULL || !ls_addr_is_name(o->host))) return LS_EINVAL;
    if (!is_name && err < 0) return err;
    ls_dial *d = calloc(1, sizeof *d + host_bytes + name_bytes);
    if (d == NULL) return LS_ENOMEM;
    d->with = *o;
    d->with.host = memcpy(d->text, o->host, host_bytes);
    copy_server_name(d, o, d->text + host_bytes);
    d->resolver = resolver;
    d->done = done;
    d->user = user;
    d->begin = (ls_op){.done = begin, .actor = o->actor};
    d->gap.timer.op = (ls_op){.done = gap_passed, .actor = o->actor};
    d->limit.timer.op = (ls_op){.done = limit_passed, .actor = o->actor};
    if (!is_name) {
        d->phase = LS_DIAL_CONNECT;
        d->addrs[d->addr_count++] = numeric;
    }
    if (o->ms_max != 0) {
        const uint64_t at_ns = ls_clock_ns() + (uint64_t)o->ms_max * 1000000u;
        if ((err = ls_timer_set(d->with.port, &d->limit.timer, at_ns)) < 0) {
            free(d);
            return err;
        }
        d->limit.armed = true;
    }
    if (o->tls != NULL) (void)ls_tls_hold(o->tls);
    d->begin_queued = true;
    live_add(d->with.live);
    ls_actor_post(d->with.actor, ctx, &d->begin); /* inside the actor: it runs when this thread leaves it */
    *out = d;
    return LS_OK;
}
