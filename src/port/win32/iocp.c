/* iocp.c - the port: open and close, posted packets, and the wait. See iocp_internal.h. */
#include "port/win32/iocp_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <versionhelpers.h>

#include "base/clock.h"
#include "port/work_internal.h"

_Static_assert(offsetof(ls_port, base) == 0 && offsetof(ls_sock, base) == 0, "common.c casts to the base");

const char *ls_port_backend(void)
{
    return "iocp";
}

/* ---- open and close -------------------------------------------------------------------------------------- */

int ls_port_open(const ls_port_options *options, ls_port **out)
{
    int err;
    if ((err = ls_winsock_start()) < 0) return err;

    ls_port *port = calloc(1, sizeof *port);
    if (port == NULL) return LS_ENOMEM;
    port->transmits = IsWindowsServer();
    ls_port_base_open(&port->base);
    if ((err = ls_slots_open(options->sockets_max, sizeof(ls_sock), &port->socks)) < 0) goto fail_base;
    err = LS_ENOMEM;
    port->iocp = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, options->concurrency);
    if (port->iocp == NULL) goto fail_slots;
    if ((err = ls_watchers_open(port, &port->watchers)) < 0) goto fail_iocp;
    if ((err = ls_win32_timers_open(port)) < 0) goto fail_watchers;
    if ((err = ls_work_pool_open(port, ls_port_enqueue, &port->base.work)) < 0) goto fail_timers;
    *out = port;
    return LS_OK;

fail_timers:
    ls_win32_timers_close(port);
fail_watchers:
    ls_watchers_stop(port->watchers);
    ls_watchers_close(port->watchers);
fail_iocp:
    CloseHandle(port->iocp);
fail_slots:
    ls_slots_close(port->socks);
fail_base:
    ls_port_base_close(&port->base);
    free(port);
    return err;
}

enum { CANCEL_MS = 1000 }; /* after which a request that was cancelled has ended */

/* Discard the packets left in the port: posts without an operation, the polls that ls_watchers_stop cancelled, and the
 * requests of sockets that were closed. Until the packet of one of these is taken, the system may write into its
 * memory. */
static void discard_packets(ls_port *port)
{
    _Atomic uint32_t *polls = ls_watchers_polls(port->watchers);
    OVERLAPPED_ENTRY entry;
    ULONG got = 0;
    for (;;) {
        const bool closing = ls_slots_count(port->socks) > 0; /* a socket that is open yet is an error of the caller */
        const DWORD wait_ms = atomic_load(polls) > 0 ? INFINITE : closing ? CANCEL_MS : 0;
        if (!GetQueuedCompletionStatusEx(port->iocp, &entry, 1, &got, wait_ms, FALSE) || got == 0) return;
        ls_op *op = (ls_op *)(void *)entry.lpOverlapped;
        win_request *request = (win_request *)(void *)entry.lpOverlapped;
        if (entry.lpCompletionKey == KEY_OP && op->kind == KIND_KEY) free(op);
        if (entry.lpCompletionKey != KEY_REQUEST) continue;
        if (request->type == WIN_POLL)
            atomic_fetch_sub(polls, 1);
        else if (request->type != WIN_ACCEPT)
            ls_win32_discard(request);
    }
}

void ls_port_close(ls_port *port)
{
    ls_work_pool_close(port->base.work);
    ls_win32_timers_close(port);
    ls_watchers_stop(port->watchers);
    discard_packets(port);
    assert(ls_slots_count(port->socks) == 0);
    ls_heap_close(&port->base.heap); /* it refers to the timers of watchers of pipes */
    ls_watchers_close(port->watchers);
    ls_queue_free(&port->base);
    CloseHandle(port->iocp);
    ls_slots_close(port->socks);
    ls_port_base_close(&port->base);
    free(port);
}

/* ---- posted packets --------------------------------------------------------------------------------------- */

void ls_port_enqueue(ls_port *port, ls_op *op)
{
    if (PostQueuedCompletionStatus(port->iocp, 0, KEY_OP, (OVERLAPPED *)(void *)op)) return;
    /* Out of non-paged memory. A post with an operation must not fail: it goes into the queue of the port, which every
     * wait checks. A thread that blocks already is not woken, but its wait ends after WAIT_MS_MAX at the latest. */
    ls_queue_push(&port->base, op);
}

/* Handle a posted operation. false: it causes no packet. */
static bool take_op(ls_port *port, ls_op *op, ls_packet *out)
{
    if (op->kind == KIND_TIMER) {
        ls_win32_timer_expire(port);
        return false;
    }
    if (op->kind == KIND_CHECK) return ls_win32_take_check(op, out);
    if (op->kind == KIND_EDGE) return ls_win32_take_edge(op, out);
    return ls_packet_of_queued(port, op, out);
}

static int take_queued(ls_port *port, ls_packet *packets, int max)
{
    int n = 0;
    while (n < max) {
        ls_mutex_lock(&port->base.mutex);
        ls_op *op = ls_queue_pop(&port->base);
        if (op != NULL) atomic_fetch_sub(&port->base.queued, 1);
        ls_mutex_unlock(&port->base.mutex);
        if (op == NULL) break;
        if (take_op(port, op, &packets[n])) n++;
    }
    return n;
}

/* ---- wait ------------------------------------------------------------------------------------------------ */

/* The longest wait: a post may have entered the queue of the port (see ls_port_enqueue) after this thread checked
 * it. An idle thread wakes up at this interval. */
enum { WAIT_MS_MAX = 60000 };

static bool take_entry(ls_thread_ctx *ctx, const OVERLAPPED_ENTRY *entry, ls_packet *out)
{
    const uint32_t bytes = entry->dwNumberOfBytesTransferred;
    if (entry->lpCompletionKey == KEY_OP) return take_op(ctx->port, (ls_op *)(void *)entry->lpOverlapped, out);
    if (entry->lpCompletionKey == KEY_HANDLE) {
        ls_win32_handled(entry, out);
        return true;
    }
    if ((entry->lpCompletionKey & KEY_KINDS) == KEY_SOCKET)
        return ls_win32_processed(ctx->port, entry->lpCompletionKey, bytes, out);
    win_request *request = (win_request *)(void *)entry->lpOverlapped;
    switch (request->type) {
    case WIN_RECEIVE: return ls_win32_received(ctx, request, bytes, out);
    case WIN_SEND: return ls_win32_transmitted(ctx, request, bytes, out);
    case WIN_ACCEPT: return ls_win32_accepted(ctx, request, out);
    default: return ls_win32_polled(request, out);
    }
}

static int take_entries(ls_thread_ctx *ctx, ls_packet *packets, int max, DWORD timeout_ms)
{
    OVERLAPPED_ENTRY entries[LS_WAIT_PACKETS_MAX];
    ULONG got = 0;
    int n = 0;
    if (max > LS_WAIT_PACKETS_MAX) max = LS_WAIT_PACKETS_MAX;
    if (!GetQueuedCompletionStatusEx(ctx->port->iocp, entries, (ULONG)max, &got, timeout_ms, FALSE)) {
        const DWORD error = GetLastError();
        return error == WAIT_TIMEOUT ? 0 : ls_err_from_win32(error);
    }
    for (ULONG i = 0; i < got; i++)
        if (take_entry(ctx, &entries[i], &packets[n])) n++;
    return n;
}

int ls_port_wait(ls_port *port, ls_thread_ctx *ctx, ls_packet *packets, int max, int timeout_ms)
{
    const uint64_t end_ns = timeout_ms > 0 ? ls_clock_ns() + (uint64_t)timeout_ms * 1000000u : 0;
    ls_inline_reset(ctx);
    ls_counter_add(&ctx->stats.waits, 1);
    for (bool second_pass = false;; second_pass = true) {
        DWORD left_ms = WAIT_MS_MAX;
        if (timeout_ms == 0) {
            left_ms = 0;
        } else if (timeout_ms > 0) {
            const uint64_t now_ns = ls_clock_ns();
            const uint64_t left_ns = now_ns < end_ns ? end_ns - now_ns : 0;
            if (left_ns == 0 && second_pass) return 0;
            if (left_ns / 1000000u < WAIT_MS_MAX) left_ms = (DWORD)((left_ns + 999999u) / 1000000u);
        }
        ls_win32_poll_again(port);
        int n = atomic_load(&port->base.queued) > 0 ? take_queued(port, packets, max) : 0;
        if (n < max) {
            const int more = take_entries(ctx, packets + n, max - n, n > 0 ? 0 : left_ms);
            if (more < 0 && n == 0) return more;
            if (more > 0) n += more;
        }
        if (n > 0) {
            ls_counter_add(&ctx->stats.packets, (uint64_t)n);
            return n;
        }
        if (timeout_ms == 0 && second_pass) return 0; /* two passes, because a timer may just have fired */
    }
}
