/* handle_win32.h - handles whose calls this port does not know (a request queue of the HTTP Server API), and their packets.
 *
 * Such a handle is bound to the completion port; its operations are posted by whoever knows the calls, each with the
 * OVERLAPPED of an ls_overlapped. Its end comes as the packet of the ls_op in it, inside an actor or not, like any other.
 *
 *     ls_overlapped_prepare(o);
 *     error = HttpReceiveHttpRequest(..., &o->overlapped);
 *     if (ls_overlapped_posted(thread context, o, error, false) == LS_DONE) ...    // o->error and o->op.result are set, no packet
 *
 * From preparing until then the ls_overlapped, and the memory that the call names, belong to the system. */
#ifndef LS_PORT_HANDLE_WIN32_H
#define LS_PORT_HANDLE_WIN32_H

#include "port/port.h"
#include "port/winsock_win32.h"

typedef struct ls_overlapped {
    OVERLAPPED overlapped; /* first */
    ls_op op;              /* done, actor: the caller's. result: bytes, or LS_E* */
    uint32_t error;        /* once it is complete: the system's number, NO_ERROR among them (winerror.h) */
} ls_overlapped;

/* Bind a handle that was opened for overlapped calls (CreateIoCompletionPort); calls that succeed or fail at once bring no
 * packet (SetFileCompletionNotificationModes). It is so until the handle is closed, which stays the caller's. LS_OK or LS_E*. */
int ls_port_bind(ls_port *port, HANDLE handle);

void ls_overlapped_prepare(ls_overlapped *o);

/* The call returned `error`. LS_DONE: it is complete. LS_PENDING: its packet comes, perhaps on another thread by now; a
 * success at once is queued, too, when inline completions have lasted their time (port.h). `sends` chooses the counters. */
int ls_overlapped_posted(ls_thread_ctx *ctx, ls_overlapped *o, uint32_t error, bool sends);

#endif
