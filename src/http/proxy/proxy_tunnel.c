/* proxy_tunnel.c - the connections of a proxy after a response 101 (RFC 9110 section 7.8): what one side sends goes to
 * the other one, without a copy. The end of a direction is passed on when its bytes were sent; the other direction then
 * ends when it is silent for the time in which a server must answer. An error of a side closes both. */
#include "base/err.h"
#include "http/proxy/proxy_internal.h"

static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result);
static void sent(ls_thread_ctx *ctx, ls_stream *s, int err);

enum { HALF_SILENT_MS = 60000 /* without `timeout` */, KEEPALIVE_S = 60 };

static const ls_stream_handler handler = {.received = received, .sent = sent, .closed = ls_proxy_closed};

static ls_proxy *proxy_of(ls_stream *s)
{
    return ((ls_proxy_room *)ls_stream_user(s))->proxy;
}

static bool is_up(const ls_proxy *p, const ls_stream *s)
{
    return s == p->up;
}

/* How long `from` may be silent: as long as it likes while both directions are open. */
static uint32_t silent_ms_max(const ls_proxy *p, bool of_server)
{
    if (p->ended[!of_server] == LS_PROXY_OPEN) return 0;
    return p->with.timeout_ms > 0 ? p->with.timeout_ms : HALF_SILENT_MS;
}

/* Send what `from` has received, and queue the rest. LS_OK; LS_ECLOSED: it has ended; LS_E*. */
static int pass(ls_thread_ctx *ctx, ls_proxy *p, ls_stream *from, ls_stream *to, int64_t result)
{
    if (result <= 0) return result == 0 ? LS_ECLOSED : (int)result;
    ls_slice slice = ls_stream_take(from);
    p->c.large = result >= LS_BLOCK_SMALL;
    const size_t sent = ls_stream_try_send(to, slice.ptr, slice.len);
    slice.ptr += sent;
    slice.len -= sent;
    const int err = slice.len > 0 ? ls_stream_push(ctx, to, &slice) : LS_OK;
    if (err < 0 || slice.len == 0) ls_slice_drop(&slice);
    return err;
}

/* Move one direction until it waits. LS_PENDING, or LS_DONE: it has ended, and the other side knows; LS_E*. */
static int move(ls_thread_ctx *ctx, ls_proxy *p, ls_stream *from, ls_stream *to)
{
    const bool of_server = is_up(p, from);
    int64_t result;
    for (;;) {
        int err = ls_stream_flush(ctx, to);
        if (err < 0) return err;
        if (p->ended[of_server] != LS_PROXY_OPEN) {
            if (err == LS_PENDING) return err;
            if (p->ended[of_server] == LS_PROXY_ENDED) err = ls_stream_shutdown(ctx, to);
            p->ended[of_server] = LS_PROXY_ENDED_BOTH;
            ls_stream_recv_within(to, silent_ms_max(p, !of_server));
            return err < 0 ? err : LS_DONE;
        }
        if (ls_stream_queued(to) >= LS_PROXY_QUEUE_BYTES || ls_stream_receiving(from)) return LS_PENDING;
        ls_stream_recv_within(from, silent_ms_max(p, of_server));
        err = ls_stream_recv(ctx, from, NULL, p->c.large ? LS_BLOCK_LARGE : LS_BLOCK_SMALL, &result);
        if (err == LS_PENDING) return err;
        err = pass(ctx, p, from, to, err < 0 ? err : result);
        if (err == LS_ECLOSED)
            p->ended[of_server] = LS_PROXY_ENDED;
        else if (err < 0)
            return err;
    }
}

/* Move both. LS_PENDING; LS_ECLOSED: both have ended; LS_E*. */
static int move_both(ls_thread_ctx *ctx, ls_proxy *p)
{
    const int there = move(ctx, p, p->client, p->up);
    const int back = there >= 0 ? move(ctx, p, p->up, p->client) : there;
    if (back < 0) return back;
    return there == LS_PENDING || back == LS_PENDING ? LS_PENDING : LS_ECLOSED;
}

static void run(ls_thread_ctx *ctx, ls_proxy *p, int err)
{
    if (err == LS_OK && (err = move_both(ctx, p)) == LS_PENDING) return;
    ls_proxy_end(ctx, p, err);
    p->with.done(ctx, p);
}

static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    ls_proxy *p = proxy_of(s);
    int err = pass(ctx, p, s, is_up(p, s) ? p->client : p->up, result);
    if (err == LS_ECLOSED) p->ended[is_up(p, s)] = LS_PROXY_ENDED;
    run(ctx, p, err == LS_ECLOSED ? LS_OK : err);
}

static void sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    run(ctx, proxy_of(s), err);
}

int ls_proxy_tunnel(ls_thread_ctx *ctx, ls_proxy *p)
{
    ls_upgraded client;
    ls_text protocol;
    int err = ls_exchange_unexpect_end(ctx, p->with.x);
    if (err == LS_DONE && ls_stream_sending(p->up)) err = LS_PENDING; /* its packet comes after the response */
    p->life = LS_PROXY_UPGRADING;
    if (err != LS_DONE) return err;
    if (!ls_proxy_response_field(p->c.in.ptr, &p->c.reader.head, "upgrade", &protocol)) {
        p->c.why = "a response 101 without Upgrade";
        return LS_EPROTO;
    }
    err = ls_exchange_upgrade(ctx, p->with.x, protocol.ptr, protocol.len, &handler, sizeof(ls_proxy_room), &client);
    if (err == LS_EINVAL) p->c.why = "a response 101 for a protocol that was not asked for";
    if (err < 0) return err == LS_EINVAL ? LS_EPROTO : err;
    p->life = LS_PROXY_TUNNEL;
    ls_http_client_consume(&p->c, p->c.reader.head.bytes);
    p->client = client.stream;
    *(ls_proxy_room *)ls_stream_user(p->client) =
        (ls_proxy_room){.proxy = p, .live = p->with.live, .limit = client.limit};
    atomic_fetch_add(p->with.live, 1);
    ls_stream_handover(p->up, &handler);
    (void)ls_stream_keepalive(p->client, true, KEEPALIVE_S); /* a peer that has vanished */
    (void)ls_stream_keepalive(p->up, true, KEEPALIVE_S);
    if (p->c.in.len > 0) {
        if ((err = ls_stream_push(ctx, p->client, &p->c.in)) < 0) return err;
        p->c.in = (ls_slice){0}; /* the queue has the reference */
    }
    ls_http_client_drop(&p->c);
    return move_both(ctx, p);
}
