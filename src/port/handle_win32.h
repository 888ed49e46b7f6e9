/* handle_win32.h - overlapped operations on handles other than sockets, such as a request queue of the
 * HTTP Server API.
 *
 * The owner binds the handle to the port and makes the overlapped calls itself, each with the OVERLAPPED of
 * an ls_overlapped. The completion is the packet of the ls_op in that struct, floating or pinned to an
 * actor as any other.
 *
 *     ls_overlapped_prepare(o);
 *     error = HttpReceiveHttpRequest(..., &o->overlapped);
 *     if (ls_overlapped_posted(ctx, o, error, false) == LS_DONE) ...   (o->error, o->op.result are set; no packet)
 *
 * From ls_overlapped_prepare to the completion the ls_overlapped, and the memory that the call refers to,
 * belong to the system. */
#ifndef LS_PORT_HANDLE_WIN32_H
#define LS_PORT_HANDLE_WIN32_H

#include "port/port.h"
#include "port/winsock_win32.h"

typedef struct ls_overlapped {
    OVERLAPPED overlapped; /* first */
    ls_op op;              /* the caller sets done and actor; result: bytes or LS_E* */
    uint32_t error;        /* after completion: the error code of the system (winerror.h), or NO_ERROR */
} ls_overlapped;

/* Bind a handle that was opened for overlapped calls (CreateIoCompletionPort). Calls that complete at once cause no
 * packet (SetFileCompletionNotificationModes). The binding lasts until the caller, who owns the handle, closes it.
 * LS_OK or LS_E*. */
int ls_port_bind(ls_port *port, HANDLE handle);

void ls_overlapped_prepare(ls_overlapped *o);

/* The call returned `error`. LS_DONE: the operation is complete. LS_PENDING: its packet follows, possibly on another
 * thread already; a call that succeeded at once is also queued when the budget of inline completions is spent
 * (port.h). `sends` selects the counters of ls_thread_stats. */
int ls_overlapped_posted(ls_thread_ctx *ctx, ls_overlapped *o, uint32_t error, bool sends);

#endif
