/* iocp_handle.c - see handle_win32.h. */
#include "port/handle_win32.h"

#include <string.h>
#include <winternl.h>

#include "port/win32/iocp_internal.h"

int ls_port_bind(ls_port *port, HANDLE handle)
{
    enum { MODES = FILE_SKIP_COMPLETION_PORT_ON_SUCCESS | FILE_SKIP_SET_EVENT_ON_HANDLE };
    if (CreateIoCompletionPort(handle, port->iocp, KEY_HANDLE, 0) == NULL ||
        !SetFileCompletionNotificationModes(handle, MODES))
        return ls_err_from_win32(GetLastError());
    return LS_OK;
}

void ls_overlapped_prepare(ls_overlapped *o)
{
    memset(&o->overlapped, 0, sizeof o->overlapped);
    o->op.kind = KIND_NONE;
}

static int64_t completed(ls_overlapped *o, uint32_t error, uint32_t bytes)
{
    const int64_t result = error == NO_ERROR ? (int64_t)bytes : ls_err_from_win32(error);
    o->error = error;
    atomic_store_explicit(&o->op.result, result, memory_order_relaxed);
    return result;
}

int ls_overlapped_posted(ls_thread_ctx *ctx, ls_overlapped *o, uint32_t error, bool sends)
{
    ls_thread_stats *stats = &ctx->stats;
    if (error == ERROR_IO_PENDING) {
        ls_counter_add(sends ? &stats->send_queued : &stats->recv_queued, 1);
        return LS_PENDING;
    }
    const int64_t result = completed(o, error, (uint32_t)o->overlapped.InternalHigh);
    if (error != NO_ERROR) return LS_DONE;
    return sends ? ls_op_complete(ctx, &o->op, result, &stats->send_inline, &stats->send_queued)
                 : ls_op_complete(ctx, &o->op, result, &stats->recv_inline, &stats->recv_queued);
}

void ls_win32_handled(const OVERLAPPED_ENTRY *entry, ls_packet *out)
{
    ls_overlapped *o = (ls_overlapped *)(void *)entry->lpOverlapped;
    const int64_t result = completed(o, RtlNtStatusToDosError((NTSTATUS)entry->lpOverlapped->Internal),
                                     entry->dwNumberOfBytesTransferred);
    *out = (ls_packet){.op = &o->op, .result = result};
}
