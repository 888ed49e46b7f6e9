/* lazy_win32.h - operations of a completion port as the system completes them: the OVERLAPPED (or IO_STATUS_BLOCK) of
 * an operation that was pending, and its output, are written when a thread takes the packet, not when the operation
 * ends. Include it after port_fixture.h; the program is linked with LAZY_WRAPS (CMakeLists.txt).
 *
 * A test replaces a call of the system by lazy_pend, and ends the operation by lazy_end. CancelIoEx ends it as
 * cancelled. */
#ifndef TESTS_UNIT_PORT_LAZY_WIN32_H
#define TESTS_UNIT_PORT_LAZY_WIN32_H

#include "port/win32/iocp_internal.h"

enum { LAZY_MAX = 1 << 14, LAZY_CANCELLED = (int)0xC0000120, LAZY_HANDLES = 1024 };

typedef struct lazy_op {
    OVERLAPPED *overlapped; /* NULL: the entry is free */
    HANDLE handle;
    bool ended; /* its packet is queued */
    int status;
    DWORD bytes;
    unsigned *on_handle;                 /* operations pending at the same handle */
    void (*written)(struct lazy_op *op); /* not NULL: writes the output when the packet is taken */
    HANDLE subject;                      /* for the test */
    ULONG asked, found;
    void *output;
} lazy_op;

static struct {
    HANDLE port; /* to which the last handle was bound */
    lazy_op ops[LAZY_MAX];
    int used; /* entries that were ever in use */
    struct {
        HANDLE handle;
        unsigned pending;
    } handles[LAZY_HANDLES];
    int handles_used;
    uint64_t cancels, cancel_steps; /* a cancellation walks all operations pending at the handle */
} lazy;

extern BOOL(WINAPI *__real___imp_CancelIoEx)(HANDLE, OVERLAPPED *);
extern BOOL(WINAPI *__real___imp_GetQueuedCompletionStatusEx)(HANDLE, OVERLAPPED_ENTRY *, ULONG, ULONG *, DWORD, BOOL);
extern HANDLE(WINAPI *__real___imp_CreateIoCompletionPort)(HANDLE, HANDLE, ULONG_PTR, DWORD);

static inline unsigned *lazy_handle(HANDLE handle)
{
    int i = 0;
    while (i < lazy.handles_used && lazy.handles[i].handle != handle) i++;
    assert_in_range(i, 0, LAZY_HANDLES - 1);
    if (i == lazy.handles_used) {
        lazy.handles_used++;
        lazy.handles[i].handle = handle;
    }
    return &lazy.handles[i].pending;
}

/* The operation is pending. */
static inline lazy_op *lazy_pend(HANDLE handle, OVERLAPPED *overlapped)
{
    int i = lazy.used;
    if (i == LAZY_MAX)
        for (i = 0; i < LAZY_MAX && lazy.ops[i].overlapped != NULL; i++) {}
    assert_in_range(i, 0, LAZY_MAX - 1);
    if (i == lazy.used) lazy.used++;
    lazy.ops[i] = (lazy_op){.overlapped = overlapped, .handle = handle, .on_handle = lazy_handle(handle)};
    ++*lazy.ops[i].on_handle;
    overlapped->Internal = 0x103;            /* STATUS_PENDING */
    overlapped->InternalHigh = (ULONG_PTR)i; /* not written before the packet is taken, either */
    return &lazy.ops[i];
}

/* The operation ends: its packet is queued, and nothing is written. */
static inline void lazy_end(lazy_op *op, int status, DWORD bytes)
{
    assert_false(op->ended);
    op->ended = true;
    op->status = status;
    op->bytes = bytes;
    --*op->on_handle;
    assert_true(PostQueuedCompletionStatus(lazy.port, bytes, KEY_REQUEST, op->overlapped));
}

static inline lazy_op *lazy_next(lazy_op *after) /* NULL: from the first */
{
    for (lazy_op *op = after == NULL ? lazy.ops : after + 1; op < lazy.ops + lazy.used; op++)
        if (op->overlapped != NULL) return op;
    return NULL;
}

/* The operation of this OVERLAPPED; NULL: it is none of these. */
static inline lazy_op *lazy_of(const OVERLAPPED *overlapped)
{
    const ULONG_PTR i = overlapped->InternalHigh;
    return i < (ULONG_PTR)lazy.used && lazy.ops[i].overlapped == overlapped ? &lazy.ops[i] : NULL;
}

static BOOL WINAPI lazy_cancel(HANDLE handle, OVERLAPPED *overlapped)
{
    bool found = false;
    if (*lazy_handle(handle) == 0) return __real___imp_CancelIoEx(handle, overlapped);
    lazy.cancels++;
    lazy.cancel_steps += *lazy_handle(handle);
    if (overlapped != NULL) {
        lazy_op *op = lazy_of(overlapped);
        found = op != NULL && !op->ended;
        if (found) lazy_end(op, LAZY_CANCELLED, 0);
    } else {
        for (lazy_op *op = NULL; (op = lazy_next(op)) != NULL;)
            if (op->handle == handle && !op->ended) {
                lazy_end(op, LAZY_CANCELLED, 0);
                found = true;
            }
    }
    if (!found) SetLastError(ERROR_NOT_FOUND);
    return found;
}

static BOOL WINAPI lazy_wait(HANDLE port, OVERLAPPED_ENTRY *entries, ULONG max, ULONG *got, DWORD ms, BOOL alertable)
{
    if (!__real___imp_GetQueuedCompletionStatusEx(port, entries, max, got, ms, alertable)) return FALSE;
    for (ULONG i = 0; i < *got; i++) {
        if (entries[i].lpCompletionKey != KEY_REQUEST) continue;
        lazy_op *op = lazy_of(entries[i].lpOverlapped);
        if (op == NULL) continue;
        assert_true(op->ended);
        op->overlapped->Internal = (ULONG_PTR)(uint32_t)op->status;
        op->overlapped->InternalHigh = op->bytes;
        if (op->written != NULL) op->written(op);
        op->overlapped = NULL;
    }
    return TRUE;
}

static HANDLE WINAPI lazy_bind(HANDLE handle, HANDLE port, ULONG_PTR key, DWORD concurrency)
{
    if (port != NULL) lazy.port = port;
    return __real___imp_CreateIoCompletionPort(handle, port, key, concurrency);
}

BOOL(WINAPI *__wrap___imp_CancelIoEx)(HANDLE, OVERLAPPED *) = lazy_cancel;
BOOL(WINAPI *__wrap___imp_GetQueuedCompletionStatusEx)
(HANDLE, OVERLAPPED_ENTRY *, ULONG, ULONG *, DWORD, BOOL) = lazy_wait;
HANDLE(WINAPI *__wrap___imp_CreateIoCompletionPort)(HANDLE, HANDLE, ULONG_PTR, DWORD) = lazy_bind;

/* A fault of this kind is a loop that never ends: end the test then, with its name. */
static const char *lazy_test = "";

static VOID CALLBACK lazy_hangs(PVOID context, BOOLEAN fired)
{
    fprintf(stderr, "%s: does not end\n", lazy_test);
    TerminateProcess(GetCurrentProcess(), 1);
}

static inline void lazy_reset(void)
{
    HANDLE timer;
    memset(&lazy, 0, sizeof lazy);
    if (lazy_test[0] == '\0') assert_true(CreateTimerQueueTimer(&timer, NULL, lazy_hangs, NULL, 60000, 0, 0));
    lazy_test = "a test with lazy completions";
}

#endif
