/* iocp_poll.c - notifications by AFD polls: see iocp_notify.h.
 *
 * An armed socket has one poll under way (\Device\Afd, IOCTL_AFD_POLL: what WSAPoll and select are made of), whose packet
 * comes to the port. A poll tells a condition once and is over; it looks afresh when it is made, so it is LEVEL by nature.
 * LEVEL PERSISTENT is polled again by the next wait of any thread after it was told (watchers.again): not earlier, or it
 * would tell the same thread again before that could read.
 *
 * EDGE PERSISTENT cannot be made from polls, which say that there is something and not that it is new. For it Winsock's own
 * records are used (WSAEventSelect): one is made when a condition becomes true, and again only after the call that the
 * condition is for was made (a receive for FD_READ, a send that would have blocked for FD_WRITE). The event object is waited
 * for by the system's thread pool, which posts a packet. What is there when it is enabled is found by a poll that does not
 * wait: not every version (Wine's among them) records anew what it has recorded before.
 *
 * Where ProcessSocketNotifications tells of sockets, a poll that does not wait looks at what is there when an EDGE is
 * enabled, for the system tells only of what becomes true after that; and the watch is a poll everywhere.
 *
 * A poll carries the generation of its beginning: what ends later is not told but made again. One that is under way when
 * the registration changes is cancelled, and made again when its packet comes. */
#include "port/win32/iocp_notify.h"

#include <winternl.h>

#include <stdlib.h>
#include <string.h>

enum { IOCTL_AFD_POLL = 0x00012024 };

int ls_poll_open(ls_port *port, HANDLE *out)
{
    /* Any name below the device gives a handle of one's own to it. */
    static wchar_t path[] = L"\\Device\\Afd\\luaserve";
    UNICODE_STRING name = {.Length = sizeof path - sizeof path[0], .MaximumLength = sizeof path, .Buffer = path};
    OBJECT_ATTRIBUTES attributes = {.Length = sizeof attributes, .ObjectName = &name};
    IO_STATUS_BLOCK status;
    HANDLE afd;
    const NTSTATUS opened = NtCreateFile(&afd, SYNCHRONIZE, &attributes, &status, NULL, 0,
                                         FILE_SHARE_READ | FILE_SHARE_WRITE, FILE_OPEN, 0, NULL, 0);
    if (opened < 0) return ls_err_from_status((uint32_t)opened);
    if (CreateIoCompletionPort(afd, port->iocp, KEY_REQUEST, 0) == NULL) {
        CloseHandle(afd);
        return LS_ENOMEM;
    }
    *out = afd;
    return LS_OK;
}

int ls_poll_post(ls_watchers *watchers, win_poll *poll, HANDLE base, ULONG events, bool waits)
{
    memset(&poll->request.overlapped, 0, sizeof poll->request.overlapped);
    poll->request.overlapped.Internal = (ULONG_PTR)STATUS_PENDING;
    poll->asked = (poll_info){.timeout = {.QuadPart = waits ? INT64_MAX : 0},
                              .count = 1,
                              .handle = base,
                              .events = events | POLL_LOCAL_CLOSE};
    poll->request.pending = true; /* even if it ends at once its packet comes */
    IO_STATUS_BLOCK *status = (IO_STATUS_BLOCK *)(void *)&poll->request.overlapped;
    const NTSTATUS posted =
        NtDeviceIoControlFile(watchers->afd, NULL, NULL, status, status, IOCTL_AFD_POLL, &poll->asked,
                              sizeof poll->asked, &poll->answer, sizeof poll->answer);
    if (posted == (NTSTATUS)STATUS_PENDING || posted >= 0) return LS_OK;
    poll->request.pending = false;
    return posted == (NTSTATUS)STATUS_INVALID_HANDLE ? LS_ENOENT : ls_err_from_status((uint32_t)posted);
}

bool ls_poll_ended(const win_poll *poll)
{
    /* Written by the kernel, behind the answer. */
    const ULONG_PTR status = *(const volatile ULONG_PTR *)&poll->request.overlapped.Internal;
    atomic_thread_fence(memory_order_acquire);
    return status != (ULONG_PTR)STATUS_PENDING;
}

static bool found_any(const win_poll *poll)
{
    return ls_poll_ended(poll) && (uint32_t)poll->request.overlapped.Internal == 0 && poll->answer.count > 0;
}

bool ls_poll_reported_close(const win_poll *poll)
{
    return found_any(poll) && (poll->answer.events & POLL_LOCAL_CLOSE);
}

/* ---- the poll of a watcher; its mutex is held ------------------------------------------------------------------- */

static bool by_records(const watcher *at, uint64_t word)
{
    return at->port->watchers->process == NULL && (word & EDGE) && !(word & ONESHOT);
}

/* Whether there is something to poll for; *waits: until it comes. */
static bool polls(const watcher *at, uint64_t word, bool *waits)
{
    const bool looks_only = at->port->watchers->process != NULL || by_records(at, word);
    *waits = !looks_only;
    return (word & ARMED) && !at->resting && (!looks_only || (at->fresh && (word & EDGE)));
}

static int poll_now(watcher *at)
{
    const uint64_t word = atomic_load(&at->word);
    bool waits;
    if (at->poll.request.pending || !polls(at, word, &waits)) return LS_OK;
    ULONG events = POLL_ABORT | POLL_CONNECT_FAIL; /* ERR comes whatever the filter says */
    if (word & LS_EVENT_IN) events |= POLL_RECEIVE | POLL_ACCEPT | POLL_DISCONNECT;
    if (word & LS_EVENT_OUT) events |= POLL_SEND;
    if (word & LS_EVENT_HANGUP) events |= POLL_DISCONNECT;
    at->poll.request.what = WIN_POLL;
    at->poll_generation = ls_watcher_generation(word);
    return ls_poll_post(at->port->watchers, &at->poll, at->base, events, waits);
}

/* The registration has changed: the poll under way, if there is one, is out of date. */
static int poll_anew(watcher *at)
{
    if (!at->poll.request.pending) return poll_now(at);
    if (!ls_poll_ended(&at->poll)) (void)CancelIoEx(at->port->watchers->afd, &at->poll.request.overlapped);
    return LS_OK; /* its packet makes the next */
}

static void again(watcher *at)
{
    ls_watchers *watchers = at->port->watchers;
    ls_mutex_lock(&watchers->mutex);
    if (!at->on_again) {
        at->on_again = true;
        at->again_next = watchers->again;
        watchers->again = at;
        atomic_fetch_add(&watchers->again_count, 1);
    }
    ls_mutex_unlock(&watchers->mutex);
}

void ls_win32_look_again(ls_port *port)
{
    ls_watchers *watchers = port->watchers;
    if (atomic_load(&watchers->again_count) == 0) return;
    ls_mutex_lock(&watchers->mutex);
    watcher *all = watchers->again;
    watchers->again = NULL;
    atomic_store(&watchers->again_count, 0);
    ls_mutex_unlock(&watchers->mutex);
    while (all != NULL) {
        watcher *at = all;
        all = at->again_next;
        ls_mutex_lock(&at->mutex);
        ls_mutex_lock(&watchers->mutex);
        at->on_again = false;
        ls_mutex_unlock(&watchers->mutex);
        at->resting = false;
        if (poll_anew(at) < 0) ls_watcher_drop(at);
        ls_mutex_unlock(&at->mutex);
    }
}

/* ---- records of Winsock, for EDGE PERSISTENT -------------------------------------------------------------------- */

static void CALLBACK record_made(PTP_CALLBACK_INSTANCE instance, PVOID context, PTP_WAIT wait, TP_WAIT_RESULT result)
{
    watcher *at = context;
    (void)instance;
    (void)result;
    ResetEvent(at->event);
    SetThreadpoolWait(wait, at->event, NULL);
    if (!atomic_exchange(&at->edge_set, true)) ls_port_enqueue(at->port, &at->edge_op);
}

void ls_poll_end(watcher *at)
{
    if (at->wait != NULL) {
        SetThreadpoolWait(at->wait, NULL, NULL);
        WaitForThreadpoolWaitCallbacks(at->wait, TRUE);
        CloseThreadpoolWait(at->wait);
    }
    if (at->event != NULL) WSACloseEvent(at->event);
    at->wait = NULL;
    at->event = NULL;
}

/* Have Winsock record what the word asks for, from now on; or nothing any more. */
static int select_events(watcher *at, uint64_t word)
{
    long events = 0;
    if (by_records(at, word) && (word & ARMED)) {
        events = FD_CLOSE | FD_CONNECT;
        if (word & LS_EVENT_IN) events |= FD_READ | FD_ACCEPT;
        if (word & LS_EVENT_OUT) events |= FD_WRITE;
    } else if (at->event == NULL) {
        return LS_OK;
    }
    if (at->event == NULL) {
        if ((at->event = WSACreateEvent()) == WSA_INVALID_EVENT) {
            at->event = NULL;
            return LS_ENOMEM;
        }
        at->edge_op = (ls_op){.kind = KIND_EDGE, .key = at};
        if ((at->wait = CreateThreadpoolWait(record_made, at, NULL)) == NULL) {
            ls_poll_end(at);
            return LS_ENOMEM;
        }
        SetThreadpoolWait(at->wait, at->event, NULL);
    }
    if (WSAEventSelect(at->fd, events != 0 ? at->event : NULL, events) != 0) return ls_winsock_error();
    return LS_OK;
}

/* The end of a stream is said in *ended: a poll tells an orderly one from a reset, which the record does everywhere but in
 * Wine. */
static uint32_t recorded(watcher *at, uint64_t word, bool *ended)
{
    WSANETWORKEVENTS made;
    uint32_t events = 0;
    *ended = false;
    if (WSAEnumNetworkEvents(at->fd, NULL, &made) != 0) return 0;
    if (made.lNetworkEvents & (FD_READ | FD_ACCEPT)) events |= LS_EVENT_IN;
    if (made.lNetworkEvents & FD_WRITE) events |= LS_EVENT_OUT;
    if (made.lNetworkEvents & FD_CONNECT)
        events |= made.iErrorCode[FD_CONNECT_BIT] != 0 ? LS_EVENT_ERR | LS_EVENT_HANGUP : LS_EVENT_OUT;
    *ended = made.lNetworkEvents & FD_CLOSE;
    if (word & DATAGRAM) events &= ~(uint32_t)LS_EVENT_HANGUP;
    return events & ((uint32_t)(word & EVENTS) | LS_EVENT_ERR);
}

int ls_poll_change(watcher *at)
{
    /* The records first: what comes between the two is told twice rather than not at all. */
    const int err = select_events(at, atomic_load(&at->word));
    return err < 0 ? err : poll_anew(at);
}

/* ---- taking ----------------------------------------------------------------------------------------------------- */

/* What a poll has found, in the caller's terms. */
static uint32_t polled_events(uint64_t word, ULONG found)
{
    uint32_t events = 0;
    if (found & (POLL_RECEIVE | POLL_ACCEPT | POLL_DISCONNECT | POLL_ABORT)) events |= LS_EVENT_IN;
    if (found & (POLL_SEND | POLL_ABORT)) events |= LS_EVENT_OUT;
    if ((found & (POLL_DISCONNECT | POLL_ABORT | POLL_CONNECT_FAIL)) && !(word & DATAGRAM)) events |= LS_EVENT_HANGUP;
    if (found & (POLL_ABORT | POLL_CONNECT_FAIL)) events |= LS_EVENT_ERR;
    return events & ((uint32_t)(word & EVENTS) | LS_EVENT_ERR);
}

bool ls_win32_polled(win_request *request, ls_packet *out)
{
    watcher *at = (watcher *)(void *)request;
    bool told = false;
    ls_mutex_lock(&at->mutex);
    const uint64_t word = atomic_load(&at->word);
    const bool current = at->poll_generation == ls_watcher_generation(word);
    at->poll.request.pending = false;
    if (current && (ls_poll_reported_close(&at->poll) || ls_watcher_is_closed(at))) {
        ls_watcher_drop(at);
    } else if (current && found_any(&at->poll) && (word & ARMED)) {
        uint32_t events = polled_events(word, at->poll.answer.events);
        bool ended;
        if (events != 0 && by_records(at, word)) events |= recorded(at, word, &ended); /* the same, most of it */
        if (events != 0) {
            ls_watcher_report(at, word, events, out);
            told = true;
        }
    }
    /* That was the look at what is there, unless it was one that was cancelled to make room for it. */
    if (current && at->poll.asked.timeout.QuadPart == 0) at->fresh = false;
    /* What was told is asked for again by the next wait. */
    if (told && !(word & (ONESHOT | EDGE))) {
        at->resting = true;
        again(at);
    }
    if (poll_now(at) < 0) ls_watcher_drop(at);
    ls_mutex_unlock(&at->mutex);
    return told;
}

bool ls_win32_take_edge(ls_op *op, ls_packet *out)
{
    watcher *at = op->key;
    bool told = false;
    ls_mutex_lock(&at->mutex);
    atomic_store(&at->edge_set, false); /* a record that is made from now on has its own packet */
    const uint64_t word = atomic_load(&at->word);
    if ((word & ARMED) && by_records(at, word) && !ls_watcher_is_closed(at)) {
        bool ended;
        const uint32_t events = recorded(at, word, &ended);
        if (ended) {
            at->fresh = true;
            if (poll_anew(at) < 0) ls_watcher_drop(at);
        }
        if (events != 0) {
            ls_watcher_report(at, word, events, out);
            told = true;
        }
    }
    ls_mutex_unlock(&at->mutex);
    return told;
}
