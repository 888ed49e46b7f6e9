/* tcp_starttls.c - TLS on a connection that exists: sends the queue, ends a receive for which no task waits any more,
 * then runs the handshake.
 *
 * Bytes that were received before are never input of the handshake: the caller refuses them. Bytes that are still in
 * the socket are. */
#include <stdio.h>
#include <stdlib.h>

#include "net/handshake.h"
#include "script/bind/sock/tcp.h"

struct ls_starttls {
    ls_handshake handshake;
    uint32_t ms_max;
    bool begun; /* the handshake */
    int result; /* LS_PENDING: it continues */
};

static void end(ls_thread_ctx *ctx, ls_tcp *tcp, int result)
{
    ls_task *task = tcp->receiver;
    if (result == LS_PENDING) return;
    tcp->starttls->result = result;
    tcp->receiver = NULL;
    if (task != NULL) ls_task_wake(ctx, task, LS_OK); /* does nothing inside ls_tcp_starttls: the task runs */
}

/* What comes before the handshake, then its begin. */
static int begin(ls_thread_ctx *ctx, ls_tcp *tcp)
{
    ls_stream *s = ls_tcp_stream(tcp);
    ls_starttls *starttls = tcp->starttls;
    const int err = ls_tcp_flush(ctx, tcp);
    if (err != LS_DONE) return err;
    if (ls_stream_receiving(s)) {
        ls_stream_cancel_recv(s);
        return LS_PENDING;
    }
    starttls->begun = true;
    ls_stream_recv_within(s, starttls->ms_max);
    ls_stream_send_within(s, starttls->ms_max);
    return ls_handshake_begin(ctx, s, &starttls->handshake);
}

int ls_tcp_starttls(ls_thread_ctx *ctx, ls_tcp *tcp, ls_tls *tls, const char *server_name, uint32_t ms_max)
{
    ls_starttls *starttls = calloc(1, sizeof *starttls);
    if (starttls == NULL) return LS_ENOMEM;
    tcp->starttls = starttls;
    starttls->ms_max = ms_max;
    starttls->result = LS_PENDING;
    const int err = ls_handshake_open(&starttls->handshake, tls, server_name);
    if (err < 0)
        ls_tcp_starttls_drop(tcp);
    else
        end(ctx, tcp, begin(ctx, tcp));
    return err;
}

/* The end of a receive that was pending before the handshake. LS_OK: nothing was received. */
static int end_of_receive(ls_tcp *tcp, int64_t result)
{
    const bool probing = tcp->probing; /* 0: bytes or the end can be received */
    tcp->probing = false;
    if (result > 0) {
        ls_slice bytes = ls_stream_take(ls_tcp_stream(tcp));
        ls_slice_drop(&bytes);
        return LS_EPROTO;
    }
    if (result == 0) return probing ? LS_OK : LS_ECLOSED;
    return result == LS_ECANCELED || result == LS_ETIMEDOUT ? LS_OK : (int)result;
}

void ls_tcp_starttls_received(ls_thread_ctx *ctx, ls_tcp *tcp, int64_t result)
{
    ls_starttls *starttls = tcp->starttls;
    int err;
    if (starttls->begun)
        err = ls_handshake_received(ctx, ls_tcp_stream(tcp), &starttls->handshake, result);
    else if ((err = end_of_receive(tcp, result)) == LS_OK)
        err = begin(ctx, tcp);
    end(ctx, tcp, err);
}

void ls_tcp_starttls_sent(ls_thread_ctx *ctx, ls_tcp *tcp, int err)
{
    ls_starttls *starttls = tcp->starttls;
    if (starttls->begun)
        err = ls_handshake_sent(ctx, ls_tcp_stream(tcp), &starttls->handshake, err);
    else if (err == LS_OK)
        err = begin(ctx, tcp);
    end(ctx, tcp, err);
}

int ls_tcp_starttls_result(ls_tcp *tcp, char *why, size_t why_bytes)
{
    const ls_starttls *starttls = tcp->starttls;
    const int result = starttls->result;
    if (why_bytes > 0) why[0] = '\0';
    if (result < 0) (void)snprintf(why, why_bytes, "%s", ls_handshake_why(&starttls->handshake, result));
    if (result != LS_DONE) return result;
    ls_tcp_starttls_drop(tcp);
    ls_tcp_set_timeouts(tcp, tcp->receive_ms_max, tcp->send_ms_max);
    return LS_DONE;
}

void ls_tcp_starttls_drop(ls_tcp *tcp)
{
    ls_handshake_close(&tcp->starttls->handshake);
    free(tcp->starttls);
    tcp->starttls = NULL;
}
