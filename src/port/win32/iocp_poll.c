/* iocp_poll.c - notifications by AFD polls: see iocp_notify.h.
 *
 * An armed socket has one pending poll (\Device\Afd, IOCTL_AFD_POLL, on which WSAPoll and select are built), whose
 * packet is posted to the port. A poll reports a condition once and is complete; it evaluates the condition when it
 * is posted, so it is LEVEL by nature. A LEVEL PERSISTENT registration that was reported is polled again by the next
 * wait of any thread (watchers.again): an earlier poll would report the same data to the same thread again before it
 * could read them.
 *
 * Polls cannot implement EDGE PERSISTENT, because they report that a condition holds and not that it is new. It uses
 * the event records of Winsock (WSAEventSelect): an event is recorded when its condition becomes true, and again only
 * after the call that re-enables it (a receive for FD_READ, a send that would have blocked for FD_WRITE). The thread
 * pool of the system waits for the event object and posts a packet. Events that hold when the registration is enabled
 * are found by a poll that does not wait, because not every version (Wine among them) records an event again that it
 * has recorded before. Its pending poll is for the local close alone.
 *
 * With ProcessSocketNotifications, a poll that does not wait finds the events that hold when an EDGE registration is
 * enabled, because the system reports only conditions that become true later. A poll that waits, for the local close
 * alone, has only a socket without an address.
 *
 * A poll carries the generation at which it was posted; the events of an earlier generation are not reported. The
 * packet of each poll posts the next one. */
#include "port/win32/iocp_notify.h"

#include <winternl.h>


#include "base/list.h"

enum { IOCTL_AFD_POLL = 0x00012024 };

static int device_open(ls_port *port, HANDLE *out)
{
    /* Any name below the device opens a new handle to it. */
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

/* The device of the watcher's group, opened when the first of the group polls. */
static int device_of(const watcher *at, HANDLE *out)
{
    const ls_fd number = at->fd / HANDLE_STEP;
    watcher_chunk *chunk = atomic_load(&at->port->watchers->chunks[number / WATCHERS_PER_CHUNK]);
    _Atomic(HANDLE) *place = &chunk->devices[number % WATCHERS_PER_CHUNK / WATCHERS_PER_DEVICE];
    HANDLE opened = NULL, others = NULL;
    if ((*out = atomic_load(place)) != NULL) return LS_OK;
    const int err = device_open(at->port, &opened);
    if (err < 0) return err;
    if (!atomic_compare_exchange_strong(place, &others, opened)) {
        CloseHandle(opened);
        opened = others;
    }
    *out = opened;
    return LS_OK;
}

/* ---- the poll of a watcher; its mutex is held ------------------------------------------------------------------- */

static int post(watcher *at, ULONG events, bool waits)
{
    win_poll *poll = &at->poll;
    HANDLE device;
    const int err = device_of(at, &device);
    if (err < 0) return err;
    *poll =
        (win_poll){.request = {.type = WIN_POLL, .pending = true}, /* a packet follows even if it completes at once */
                   .input = {.timeout = {.QuadPart = waits ? INT64_MAX : 0},
                             .count = 1,
                             .handle = at->base,
                             .events = events | POLL_LOCAL_CLOSE},
                   .generation = ls_watcher_generation(atomic_load(&at->word)),
                   .life = at->life};
    poll->request.overlapped.Internal = (ULONG_PTR)STATUS_PENDING;
    IO_STATUS_BLOCK *status = (IO_STATUS_BLOCK *)(void *)&poll->request.overlapped;
    atomic_fetch_add(&at->port->watchers->polls, 1);
    const NTSTATUS posted = NtDeviceIoControlFile(device, NULL, NULL, status, status, IOCTL_AFD_POLL, &poll->input,
                                                  sizeof poll->input, &poll->output, sizeof poll->output);
    if (posted == (NTSTATUS)STATUS_PENDING || posted >= 0) {
        at->polled = true;
        return LS_OK;
    }
    atomic_fetch_sub(&at->port->watchers->polls, 1);
    poll->request.pending = false;
    return posted == (NTSTATUS)STATUS_INVALID_HANDLE ? LS_ENOENT : ls_err_from_status((uint32_t)posted);
}

static bool by_records(const watcher *at, uint64_t word)
{
    return at->port->watchers->process == NULL && (word & EDGE) && !(word & ONESHOT);
}

static ULONG polled_for(uint64_t word)
{
    ULONG events = POLL_ABORT | POLL_CONNECT_FAIL; /* ERR is reported whatever the filter is */
    if (word & LS_EVENT_IN) events |= POLL_RECEIVE | POLL_ACCEPT | POLL_DISCONNECT;
    if (word & LS_EVENT_OUT) events |= POLL_SEND;
    if (word & LS_EVENT_HANGUP) events |= POLL_DISCONNECT;
    return events;
}

/* true: the watcher needs a poll, for *events besides the local close. *waits: for one of them; else it completes at
 * once. */
static bool needs_poll(const watcher *at, uint64_t word, ULONG *events, bool *waits)
{
    const bool by_system = at->port->watchers->process != NULL;
    *waits = !((by_system || by_records(at, word)) && at->poll_current && (word & ARMED) && (word & EDGE));
    *events = *waits && (by_system || by_records(at, word) || !(word & ARMED)) ? 0 : polled_for(word);
    const bool nameless = at->identity.local_port == 0 && at->identity.peer == 0;
    return !*waits || ((!by_system || nameless) && (word & LIVE) && !at->poll_at_wait);
}

/* `same`: the socket was compared with the registered one since the last poll ended. */
static int poll_now(watcher *at, bool same)
{
    const uint64_t word = atomic_load(&at->word);
    ULONG events;
    bool waits;
    if (at->poll.request.pending || !needs_poll(at, word, &events, &waits)) return LS_OK;
    /* Since the previous poll ended, the number may have become that of another socket. */
    if (at->polled && !same && ls_watcher_is_replaced(at)) return LS_ENOENT;
    return post(at, events, waits);
}

void ls_poll_cancel(watcher *at)
{
    win_poll *poll = &at->poll;
    HANDLE device;
    if (!poll->request.pending || poll->cancelled || poll->input.timeout.QuadPart == 0) return;
    poll->cancelled = true;
    if (device_of(at, &device) == LS_OK) (void)CancelIoEx(device, &poll->request.overlapped);
}

/* The registration has changed. A pending poll stays if it asks for what is needed now. */
static int poll_restart(watcher *at)
{
    const win_poll *poll = &at->poll;
    ULONG events;
    bool waits;
    if (!poll->request.pending) return poll_now(at, false);
    if (!needs_poll(at, atomic_load(&at->word), &events, &waits) || !waits || poll->life != at->life ||
        (events & ~poll->input.events))
        ls_poll_cancel(at);
    return LS_OK; /* its packet posts the next one */
}

static void poll_at_next_wait(watcher *at)
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

void ls_win32_poll_again(ls_port *port)
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
        at->poll_at_wait = false;
        if (poll_restart(at) < 0) ls_watcher_drop(at);
        ls_mutex_unlock(&at->mutex);
    }
}

/* ---- event records of Winsock, for EDGE PERSISTENT -------------------------------------------------------------- */

static void CALLBACK record_made(PTP_CALLBACK_INSTANCE instance, PVOID context, PTP_WAIT wait, TP_WAIT_RESULT result)
{
    watcher *at = context;
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

/* Have Winsock record the events that the word requires, or none. */
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
        at->edge_op = (ls_op){.kind = KIND_EDGE};
        if ((at->wait = CreateThreadpoolWait(record_made, at, NULL)) == NULL) {
            ls_poll_end(at);
            return LS_ENOMEM;
        }
        SetThreadpoolWait(at->wait, at->event, NULL);
    }
    if (WSAEventSelect(at->fd, events != 0 ? at->event : NULL, events) != 0) return ls_winsock_error();
    return LS_OK;
}

/* Take the recorded events. *ended: the stream has ended; a poll distinguishes an orderly end from a reset, which the
 * record in Wine does not. */
static uint32_t take_records(watcher *at, uint64_t word, bool *ended)
{
    WSANETWORKEVENTS records;
    uint32_t events = 0;
    *ended = false;
    if (WSAEnumNetworkEvents(at->fd, NULL, &records) != 0) return 0;
    if (records.lNetworkEvents & (FD_READ | FD_ACCEPT)) events |= LS_EVENT_IN;
    if (records.lNetworkEvents & FD_WRITE) events |= LS_EVENT_OUT;
    if (records.lNetworkEvents & FD_CONNECT)
        events |= records.iErrorCode[FD_CONNECT_BIT] != 0 ? LS_EVENT_ERR | LS_EVENT_HANGUP : LS_EVENT_OUT;
    *ended = records.lNetworkEvents & FD_CLOSE;
    if (word & DATAGRAM) events &= ~(uint32_t)LS_EVENT_HANGUP;
    return events & ((uint32_t)(word & EVENTS) | LS_EVENT_ERR);
}

int ls_poll_change(watcher *at)
{
    /* Records first: an event between the two calls is reported twice instead of not at all. */
    const int err = select_events(at, atomic_load(&at->word));
    return err < 0 ? err : poll_restart(at);
}

/* ---- packets ---------------------------------------------------------------------------------------------------- */

/* The result of a poll as LS_EVENT_*. */
static uint32_t polled_events(uint64_t word, ULONG found)
{
    uint32_t events = 0;
    if (found & (POLL_RECEIVE | POLL_ACCEPT | POLL_DISCONNECT)) events |= LS_EVENT_IN;
    if (found & POLL_SEND) events |= LS_EVENT_OUT;
    if (found & (POLL_ABORT | POLL_CONNECT_FAIL)) events |= LS_EVENT_IN | LS_EVENT_OUT; /* neither call would block */
    if ((found & (POLL_DISCONNECT | POLL_ABORT | POLL_CONNECT_FAIL)) && !(word & DATAGRAM)) events |= LS_EVENT_HANGUP;
    if (found & (POLL_ABORT | POLL_CONNECT_FAIL)) events |= LS_EVENT_ERR;
    return events & ((uint32_t)(word & EVENTS) | LS_EVENT_ERR);
}

bool ls_win32_polled(win_request *request, ls_packet *out)
{
    watcher *at = (watcher *)(void *)request;
    const win_poll *poll = &at->poll;
    bool reported = false;
    ls_mutex_lock(&at->mutex);
    const uint64_t word = atomic_load(&at->word);
    const bool current = poll->generation == ls_watcher_generation(word);
    const ULONG found = poll->request.overlapped.Internal == 0 && poll->output.count > 0 ? poll->output.events : 0;
    at->poll.request.pending = false;
    atomic_fetch_sub(&at->port->watchers->polls, 1);
    if ((found & POLL_LOCAL_CLOSE) && poll->life == at->life) {
        at->closed = true;
        if (word & LIVE) ls_watcher_drop(at);
    } else if (current && (word & ARMED)) {
        uint32_t events = polled_events(word, found) & ~at->recorded;
        bool ended; /* the records of the same events are taken with them */
        if (events != 0 && by_records(at, word)) events |= take_records(at, word, &ended);
        if (events != 0) reported = ls_watcher_report(at, word, events, out);
    }
    /* This was the poll for the current events, unless it is a waiting poll that was cancelled in favour of it. */
    if (current && poll->input.timeout.QuadPart == 0) at->poll_current = false;
    /* The next wait polls a reported LEVEL PERSISTENT registration again. */
    if (reported && !(word & (ONESHOT | EDGE))) {
        at->poll_at_wait = true;
        poll_at_next_wait(at);
    }
    if (poll_now(at, reported) < 0) ls_watcher_drop(at);
    ls_mutex_unlock(&at->mutex);
    return reported;
}

bool ls_win32_take_edge(ls_op *op, ls_packet *out)
{
    watcher *at = LS_CONTAINER(op, watcher, edge_op);
    bool reported = false;
    ls_mutex_lock(&at->mutex);
    atomic_store(&at->edge_set, false); /* an event recorded from here on posts its own packet */
    const uint64_t word = atomic_load(&at->word);
    if ((word & ARMED) && by_records(at, word) && !at->closed) {
        bool ended;
        const uint32_t events = take_records(at, word, &ended);
        at->recorded |= events;
        if (ended) {
            at->poll_current = true;
            at->recorded = 0;
            if (poll_restart(at) < 0) ls_watcher_drop(at);
        }
        if (events != 0) reported = ls_watcher_report(at, word, events, out);
    }
    ls_mutex_unlock(&at->mutex);
    return reported;
}
