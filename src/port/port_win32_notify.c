/* port_win32_notify.c - notifications: see notify.h.
 *
 * The poll. A registered socket has one AFD poll under way (\Device\Afd, IOCTL_AFD_POLL: what WSAPoll and select are made
 * of), whose packet comes to the port. A poll tells a condition once and is over; it looks afresh when it is made, so it is
 * LEVEL by nature. LEVEL PERSISTENT is polled again by the next wait of any thread after it was told (notices.again): not
 * earlier, or it would tell the same thread again before that could read. Until then it asks for the close alone.
 *
 * EDGE PERSISTENT cannot be made from polls, which say that there is something and not that it is new. For it Winsock's own
 * records are used (WSAEventSelect): one is made when a condition becomes true, and again only after the call that the
 * condition is for was made (a receive for FD_READ, a send that would have blocked for FD_WRITE). The event object is waited
 * for by the system's thread pool, which posts a packet. What is there when it is enabled is found by a poll that does not
 * wait: not every version (Wine's among them) records anew what it has recorded before.
 *
 * While nothing is armed the poll asks for the local close alone, which every poll tells: so the end of a socket that was
 * closed without a word is seen.
 *
 * Pipes and the console cannot be polled: while they are armed a timer looks at them (readable_win32.h). EDGE tells when
 * there is more than at the last look.
 *
 * A notice has a generation that changes with every REGISTER, ENABLE, DISABLE, REMOVE and drop. A poll carries that of its
 * beginning: what ends later is not told but made again. One that is under way when the registration changes is cancelled,
 * and made again when its packet comes.
 *
 * Notices lie in a table by handle and stay until the port is closed, and with them the memory of a poll.
 *
 * Lock: the notice's mutex; before notices.mutex and the port's. */
#include "port/port_win32.h"

#include <winternl.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "port/notify.h"
#include "port/readable_win32.h"

enum { HANDLE_STEP = 4 }; /* handles are multiples of 4 */
enum { NOTICES_MAX = LS_NOTIFY_FD_MAX / HANDLE_STEP };
enum { NOTICES_PER_CHUNK = 256, NOTICE_CHUNKS = NOTICES_MAX / NOTICES_PER_CHUNK };

enum { /* AFD_POLL_* of the device; they are in no header of the SDK */
       POLL_RECEIVE = 0x0001,
       POLL_SEND = 0x0004,
       POLL_DISCONNECT = 0x0008,
       POLL_ABORT = 0x0010,
       POLL_LOCAL_CLOSE = 0x0020,
       POLL_ACCEPT = 0x0080,
       POLL_CONNECT_FAIL = 0x0100,
       IOCTL_AFD_POLL = 0x00012024,
};

typedef struct poll_info { /* AFD_POLL_INFO */
    LARGE_INTEGER timeout;
    ULONG count;
    ULONG exclusive;
    HANDLE handle;
    ULONG events;
    NTSTATUS status;
} poll_info;

enum { /* of a notice, above the filter in LS_EVENT_* */
       EVENTS = 0xff,
       LIVE = 1u << 8, /* registered */
       ARMED = 1u << 9,
       ONESHOT = 1u << 10,
       EDGE = 1u << 11, /* and persistent: told by the event object */
       DATAGRAM = 1u << 12,
       KIND_SHIFT = 13, /* two bits: an ls_readable, when it is no socket */
       KINDS = DATAGRAM | 3u << KIND_SHIFT,
};

typedef struct notice {
    win_request poll; /* first; its OVERLAPPED is an IO_STATUS_BLOCK to the device */
    poll_info asked, answer;
    uint32_t poll_generation;
    bool fresh;   /* EDGE: what is there now has not been told yet */
    bool resting; /* LEVEL: it was told, and is asked for again by the next wait */
    ls_mutex mutex;
    _Atomic uint64_t word; /* generation << 32 | flags; written under the mutex */
    void *key;
    ls_fd fd;
    HANDLE base;      /* the socket below all layered providers */
    ls_op *last;      /* the node of the REMOVE packet; not NULL while live */
    uint64_t removed; /* the origin of a REMOVE that is in the queue, or 0 */
    bool on_again;    /* under notices.mutex */
    struct notice *again_next;
    WSAEVENT event; /* EDGE: set when Winsock has made a record */
    PTP_WAIT wait;
    ls_op edge_op;         /* the packet of that */
    _Atomic bool edge_set; /* it is under way */
    ls_port *port;
    ls_timer look; /* no socket: when to look */
    bool looking;  /* it is armed, or its packet is under way */
    uint32_t amount;
} notice;

struct ls_notices {
    HANDLE afd;
    ls_mutex mutex;
    notice *again;
    _Atomic uint32_t again_count;
    _Atomic uint32_t attached[NOTICES_MAX / 32]; /* a bit for each handle: it is attached for operations */
    _Atomic(notice *) chunks[NOTICE_CHUNKS];
};

/* ---- the table ------------------------------------------------------------------------------------------------- */

int ls_notices_open(ls_port *port, ls_notices **out)
{
    /* Any name below the device gives a handle of one's own to it. */
    static wchar_t path[] = L"\\Device\\Afd\\luaserve";
    UNICODE_STRING name = {.Length = sizeof path - sizeof path[0], .MaximumLength = sizeof path, .Buffer = path};
    OBJECT_ATTRIBUTES attributes = {.Length = sizeof attributes, .ObjectName = &name};
    IO_STATUS_BLOCK status;
    ls_notices *notices = calloc(1, sizeof *notices);
    if (notices == NULL) return LS_ENOMEM;
    const NTSTATUS opened = NtCreateFile(&notices->afd, SYNCHRONIZE, &attributes, &status, NULL, 0,
                                         FILE_SHARE_READ | FILE_SHARE_WRITE, FILE_OPEN, 0, NULL, 0);
    if (opened < 0) {
        free(notices);
        return ls_err_from_status((uint32_t)opened);
    }
    if (CreateIoCompletionPort(notices->afd, port->iocp, KEY_REQUEST, 0) == NULL) {
        CloseHandle(notices->afd);
        free(notices);
        return LS_ENOMEM;
    }
    (void)ls_mutex_open(&notices->mutex);
    *out = notices;
    return LS_OK;
}

static void end_edge(notice *at)
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

/* The polls end with the handle they were made on; their packets are awaited, for they write into the notices. */
void ls_notices_close(ls_notices *notices)
{
    (void)CancelIoEx(notices->afd, NULL);
    for (int c = 0; c < NOTICE_CHUNKS; c++) {
        notice *chunk = atomic_load(&notices->chunks[c]);
        for (int i = 0; chunk != NULL && i < NOTICES_PER_CHUNK; i++) {
            notice *at = &chunk[i];
            while (at->poll.pending && !HasOverlappedIoCompleted(&at->poll.overlapped)) Sleep(1);
            end_edge(at);
            free(at->last);
        }
    }
    CloseHandle(notices->afd);
    for (int c = 0; c < NOTICE_CHUNKS; c++) free(atomic_load(&notices->chunks[c]));
    ls_mutex_close(&notices->mutex);
    free(notices);
}

/* NULL: nothing near it was ever registered. */
static notice *notice_at(const ls_notices *notices, ls_fd fd)
{
    const ls_fd number = fd / HANDLE_STEP;
    if (fd >= LS_NOTIFY_FD_MAX) return NULL;
    notice *chunk = atomic_load_explicit(&notices->chunks[number / NOTICES_PER_CHUNK], memory_order_acquire);
    return chunk == NULL ? NULL : &chunk[number % NOTICES_PER_CHUNK];
}

static int notice_make(ls_notices *notices, ls_fd fd, notice **out)
{
    const ls_fd number = fd / HANDLE_STEP;
    if (fd == LS_FD_NONE) return LS_EINVAL;
    if (fd >= LS_NOTIFY_FD_MAX) return LS_ELIMIT;
    if ((*out = notice_at(notices, fd)) != NULL) return LS_OK;
    notice *chunk = calloc(NOTICES_PER_CHUNK, sizeof *chunk), *others = NULL;
    if (chunk == NULL) return LS_ENOMEM;
    if (!atomic_compare_exchange_strong(&notices->chunks[number / NOTICES_PER_CHUNK], &others, chunk)) free(chunk);
    *out = notice_at(notices, fd);
    return LS_OK;
}

void ls_win32_mark_attached(ls_port *port, ls_fd fd, bool attached)
{
    const ls_fd number = fd / HANDLE_STEP;
    if (fd >= LS_NOTIFY_FD_MAX) return; /* nor can it be registered */
    _Atomic uint32_t *word = &port->notices->attached[number / 32];
    const uint32_t bit = UINT32_C(1) << number % 32;
    if (attached)
        atomic_fetch_or(word, bit);
    else
        atomic_fetch_and(word, ~bit);
}

static bool is_attached(ls_notices *notices, ls_fd fd)
{
    const ls_fd number = fd / HANDLE_STEP;
    return atomic_load(&notices->attached[number / 32]) >> number % 32 & 1;
}

static uint32_t generation_of(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

static uint64_t next_word(uint64_t word, uint64_t flags)
{
    return (uint64_t)(generation_of(word) + 1) << 32 | flags;
}

static uint64_t origin_of(uint64_t word, ls_fd fd)
{
    return (uint64_t)generation_of(word) << 32 | (uint32_t)(fd / HANDLE_STEP);
}

static ls_fd fd_of(uint64_t origin)
{
    return (ls_fd)(uint32_t)origin * HANDLE_STEP;
}

/* ---- polls; the notice's mutex is held -------------------------------------------------------------------------- */

static ULONG wanted(const notice *at, uint64_t word)
{
    ULONG events = POLL_LOCAL_CLOSE;
    if (!(word & ARMED) || at->resting || ((word & EDGE) && !at->fresh)) return events;
    events |= POLL_ABORT | POLL_CONNECT_FAIL; /* ERR comes whatever the filter says */
    if (word & LS_EVENT_IN) events |= POLL_RECEIVE | POLL_ACCEPT | POLL_DISCONNECT;
    if (word & LS_EVENT_OUT) events |= POLL_SEND;
    if (word & LS_EVENT_HANGUP) events |= POLL_DISCONNECT;
    return events;
}

static ls_readable readable_of(uint64_t word)
{
    return (ls_readable)(word >> KIND_SHIFT & 3);
}

/* Look at what is no socket, now or later, if it is to be looked at. */
static int look_later(notice *at, uint64_t word, uint64_t ms)
{
    if (at->looking || !(word & ARMED)) return LS_OK;
    at->look.op = (ls_op){.kind = KIND_LOOK, .key = at};
    const int err = ls_timer_set(at->port, &at->look, ls_clock_ns() + ms * 1000000u);
    if (err == LS_OK) at->looking = true;
    return err;
}

/* Make a poll, if none is under way. LS_OK; LS_ENOENT: the socket is gone; or another error. */
static int poll_now(ls_notices *notices, notice *at)
{
    const uint64_t word = atomic_load(&at->word);
    if (at->poll.pending || (!(word & LIVE) && at->removed == 0)) return LS_OK;
    if (readable_of(word) != LS_READABLE_NONE) return look_later(at, word, 0);
    memset(&at->poll.overlapped, 0, sizeof at->poll.overlapped);
    at->poll.overlapped.Internal = (ULONG_PTR)STATUS_PENDING;
    at->asked = (poll_info){.timeout = {.QuadPart = (word & EDGE) && at->fresh ? 0 : INT64_MAX},
                            .count = 1,
                            .handle = at->base,
                            .events = wanted(at, word)};
    at->poll_generation = generation_of(word);
    at->poll.pending = true; /* even if it ends at once its packet comes */
    IO_STATUS_BLOCK *status = (IO_STATUS_BLOCK *)(void *)&at->poll.overlapped;
    const NTSTATUS posted = NtDeviceIoControlFile(notices->afd, NULL, NULL, status, status, IOCTL_AFD_POLL, &at->asked,
                                                  sizeof at->asked, &at->answer, sizeof at->answer);
    if (posted == (NTSTATUS)STATUS_PENDING || posted >= 0) return LS_OK;
    at->poll.pending = false;
    return posted == (NTSTATUS)STATUS_INVALID_HANDLE ? LS_ENOENT : ls_err_from_status((uint32_t)posted);
}

/* The registration has changed: the poll under way, if there is one, is out of date. */
static int poll_anew(ls_notices *notices, notice *at)
{
    if (!at->poll.pending) return poll_now(notices, at);
    if (!HasOverlappedIoCompleted(&at->poll.overlapped)) (void)CancelIoEx(notices->afd, &at->poll.overlapped);
    return LS_OK; /* its packet makes the next */
}

/* Its socket was closed: the poll has ended with that, though its packet may not have been taken. */
static bool is_closed(const notice *at)
{
    return at->poll.pending && HasOverlappedIoCompleted(&at->poll.overlapped) &&
           (uint32_t)at->poll.overlapped.Internal == 0 && at->answer.count > 0 &&
           (at->answer.events & POLL_LOCAL_CLOSE);
}

static void again(ls_notices *notices, notice *at)
{
    ls_mutex_lock(&notices->mutex);
    if (!at->on_again) {
        at->on_again = true;
        at->again_next = notices->again;
        notices->again = at;
        atomic_fetch_add(&notices->again_count, 1);
    }
    ls_mutex_unlock(&notices->mutex);
}

static void drop(notice *at);

void ls_win32_look_again(ls_port *port)
{
    ls_notices *notices = port->notices;
    if (atomic_load(&notices->again_count) == 0) return;
    ls_mutex_lock(&notices->mutex);
    notice *all = notices->again;
    notices->again = NULL;
    atomic_store(&notices->again_count, 0);
    ls_mutex_unlock(&notices->mutex);
    while (all != NULL) {
        notice *at = all;
        all = at->again_next;
        ls_mutex_lock(&at->mutex);
        ls_mutex_lock(&notices->mutex);
        at->on_again = false;
        ls_mutex_unlock(&notices->mutex);
        at->resting = false;
        if (poll_anew(notices, at) < 0) drop(at);
        ls_mutex_unlock(&at->mutex);
    }
}

/* ---- records of Winsock, for EDGE PERSISTENT -------------------------------------------------------------------- */

static void CALLBACK record_made(PTP_CALLBACK_INSTANCE instance, PVOID context, PTP_WAIT wait, TP_WAIT_RESULT result)
{
    notice *at = context;
    (void)instance;
    (void)result;
    ResetEvent(at->event);
    SetThreadpoolWait(wait, at->event, NULL);
    if (!atomic_exchange(&at->edge_set, true)) ls_win32_enqueue(at->port, &at->edge_op);
}

/* The mutex is held. Have Winsock record what the word asks for, from now on; or nothing any more. */
static int select_events(notice *at, uint64_t word)
{
    long events = 0;
    if (readable_of(word) != LS_READABLE_NONE) return LS_OK;
    if ((word & EDGE) && (word & ARMED)) {
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
            end_edge(at);
            return LS_ENOMEM;
        }
        SetThreadpoolWait(at->wait, at->event, NULL);
    }
    if (WSAEventSelect(at->fd, events != 0 ? at->event : NULL, events) != 0) return ls_winsock_error();
    return LS_OK;
}

/* The end of a stream is said in *ended: a poll tells an orderly one from a reset, which the record does everywhere but in
 * Wine. */
static uint32_t recorded(notice *at, uint64_t word, bool *ended)
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

/* ---- registering ------------------------------------------------------------------------------------------------ */

static uint64_t flags_of(const ls_registration *registration)
{
    const bool oneshot = registration->trigger & LS_TRIGGER_ONESHOT;
    return LIVE | ARMED | (registration->events & EVENTS) | (oneshot ? ONESHOT : 0) |
           (!oneshot && (registration->trigger & LS_TRIGGER_EDGE) ? EDGE : 0);
}

/* The registration is no more; its mutex is held. */
static void drop(notice *at)
{
    atomic_store(&at->word, next_word(atomic_load(&at->word), 0));
    free(at->last);
    at->last = NULL;
}

static HANDLE base_of(SOCKET fd)
{
    SOCKET base;
    DWORD bytes;
    if (WSAIoctl(fd, SIO_BASE_HANDLE, NULL, 0, &base, sizeof base, &bytes, NULL, NULL) != 0) base = fd;
    return (HANDLE)base;
}

/* What kind of thing it is, as flags of a notice. LS_OK; LS_ENOTSUP, LS_EINVAL. */
static int kind_of(ls_fd fd, uint64_t *out)
{
    int type = 0, len = sizeof type;
    const HANDLE handle = (HANDLE)fd;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, (char *)&type, &len) == 0) {
        *out = type == SOCK_DGRAM ? DATAGRAM : 0;
        return LS_OK;
    }
    *out = (uint64_t)ls_readable_kind(handle) << KIND_SHIFT;
    if (*out != 0) return LS_OK;
    return GetFileType(handle) != FILE_TYPE_UNKNOWN ? LS_ENOTSUP : LS_EINVAL;
}

static int register_new(ls_port *port, notice *at, const ls_registration *registration)
{
    const ls_fd fd = ls_readable_fd(registration->fd);
    uint64_t word = atomic_load(&at->word), kind;
    int err = kind_of(fd, &kind);
    if (err < 0) {
        if (word & LIVE) drop(at);
        return err;
    }
    if (is_attached(port->notices, fd)) return LS_EEXIST;
    if (at->removed != 0 && !is_closed(at)) return LS_EBUSY;
    if ((word & LIVE) && !is_closed(at)) return LS_EEXIST;
    if ((word & LIVE)) drop(at);
    if ((at->last = calloc(1, sizeof *at->last)) == NULL) return LS_ENOMEM;
    at->port = port;
    at->poll.what = WIN_POLL;
    at->fd = fd;
    at->base = base_of(fd);
    at->key = registration->key;
    at->amount = 0;
    word = next_word(atomic_load(&at->word), flags_of(registration) | kind);
    at->fresh = true;
    at->resting = false;
    atomic_store(&at->word, word);
    err = select_events(at, word); /* first: what comes between the two is told twice rather than not at all */
    if (err == LS_OK) err = poll_anew(port->notices, at);
    if (err < 0) drop(at);
    return err;
}

bool ls_win32_is_registered(ls_port *port, ls_fd fd)
{
    notice *at = notice_at(port->notices, fd);
    if (at == NULL || !(atomic_load(&at->word) & LIVE)) return false;
    ls_mutex_lock(&at->mutex);
    if ((atomic_load(&at->word) & LIVE) && is_closed(at)) drop(at); /* it was another's number */
    const bool live = atomic_load(&at->word) & LIVE;
    ls_mutex_unlock(&at->mutex);
    return live;
}

/* A socket that is gone is found out here at the latest. */
static bool is_gone(notice *at)
{
    uint64_t kind;
    if (is_closed(at) || kind_of(at->fd, &kind) < 0) return true;
    /* Its number may be another's: of another kind, or one of the port's own. */
    return kind != (atomic_load(&at->word) & KINDS) || is_attached(at->port->notices, at->fd);
}

static int change(ls_port *port, notice *at, uint64_t flags)
{
    int err = LS_ENOENT;
    if (!is_gone(at)) {
        const uint64_t word = next_word(atomic_load(&at->word), flags);
        at->fresh = true;
        at->resting = false;
        at->amount = 0;
        atomic_store(&at->word, word);
        err = select_events(at, word);
        if (err == LS_OK) err = poll_anew(port->notices, at);
    }
    if (err == LS_ENOENT) drop(at);
    return err;
}

static int remove_now(ls_port *port, notice *at, ls_fd fd)
{
    if (is_gone(at)) {
        drop(at);
        return LS_ENOENT;
    }
    ls_op *node = at->last;
    const uint64_t word = next_word(atomic_load(&at->word), 0);
    atomic_store(&at->word, word);
    /* The poll goes on: until REMOVE is taken the close of the socket has to be seen. */
    (void)select_events(at, word);
    at->last = NULL;
    at->removed = origin_of(word, fd);
    node->kind = KIND_NOTICE;
    node->flags = FLAG_HEAP_NODE;
    node->key = at->key;
    node->notice.origin = at->removed;
    node->notice.events = LS_EVENT_REMOVE;
    ls_win32_enqueue(port, node);
    return LS_OK;
}

int ls_port_register_one(ls_port *port, const ls_registration *registration)
{
    const ls_fd fd = ls_readable_fd(registration->fd);
    const bool first = registration->operation == LS_NOTIFY_REGISTER;
    notice *at = notice_at(port->notices, fd);
    if (first) {
        const int err = notice_make(port->notices, fd, &at);
        if (err < 0) return err;
    }
    if (at == NULL) return fd == LS_FD_NONE ? LS_EINVAL : LS_ENOENT;

    int err = LS_ENOENT;
    ls_mutex_lock(&at->mutex);
    const uint64_t flags = atomic_load(&at->word), kind = flags & KINDS;
    if (first)
        err = register_new(port, at, registration);
    else if (!(flags & LIVE))
        err = LS_ENOENT;
    else if (registration->operation == LS_NOTIFY_ENABLE)
        err = change(port, at, flags_of(registration) | kind);
    else if (registration->operation == LS_NOTIFY_DISABLE)
        err = change(port, at, LIVE | kind);
    else
        err = remove_now(port, at, fd);
    ls_mutex_unlock(&at->mutex);
    return err;
}

void ls_port_forget(ls_port *port, ls_fd fd)
{
    fd = ls_readable_fd(fd);
    notice *at = notice_at(port->notices, fd);
    if (at == NULL) return;
    ls_mutex_lock(&at->mutex);
    if (atomic_load(&at->word) & LIVE) {
        drop(at);
        (void)poll_anew(port->notices, at);
        (void)select_events(at, 0);
    }
    ls_mutex_unlock(&at->mutex);
}

/* ---- taking ------------------------------------------------------------------------------------------------------ */

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

/* The mutex is held; `events` are to be told. */
static void tell(notice *at, uint64_t word, uint32_t events, ls_packet *out)
{
    *out = (ls_packet){.key = at->key, .events = events, .origin = origin_of(word, at->fd)};
    if (word & ONESHOT) atomic_store(&at->word, word & ~(uint64_t)ARMED);
}

bool ls_win32_polled(ls_port *port, win_request *request, ls_packet *out)
{
    notice *at = (notice *)(void *)request;
    bool told = false;
    ls_mutex_lock(&at->mutex);
    const uint64_t word = atomic_load(&at->word);
    const bool current = at->poll_generation == generation_of(word), closed = is_closed(at);
    const bool found = (uint32_t)at->poll.overlapped.Internal == 0 && at->answer.count > 0;
    at->poll.pending = false;
    if (current && closed) {
        drop(at);
    } else if (current && found && (word & ARMED)) {
        uint32_t events = polled_events(word, at->answer.events);
        bool ended;
        if (events != 0 && (word & EDGE)) events |= recorded(at, word, &ended); /* the same, most of it */
        if (events != 0) {
            tell(at, word, events, out);
            told = true;
        }
    }
    /* That was the look at what is there, unless it was one that was cancelled to make room for it. */
    if (current && at->asked.timeout.QuadPart == 0) at->fresh = false;
    /* What was told is asked for again by the next wait; what is disarmed asks for the close alone. */
    if (told && !(word & (ONESHOT | EDGE))) {
        at->resting = true;
        again(port->notices, at);
    }
    if (poll_now(port->notices, at) < 0) drop(at);
    ls_mutex_unlock(&at->mutex);
    return told;
}

bool ls_win32_take_look(ls_op *op, ls_packet *out)
{
    notice *at = op->key;
    bool told = false;
    ls_mutex_lock(&at->mutex);
    at->looking = false;
    const uint64_t word = atomic_load(&at->word);
    const ls_readable kind = readable_of(word);
    if ((word & LIVE) && kind != LS_READABLE_NONE && is_gone(at)) {
        drop(at);
    } else if ((word & ARMED) && kind != LS_READABLE_NONE) {
        const uint32_t before = at->amount,
                       events = ls_readable_now(at->base, kind, &at->amount) & (uint32_t)word & EVENTS;
        const bool more = at->fresh || at->amount > before || (events & LS_EVENT_HANGUP);
        if (events != 0 && (!(word & EDGE) || more)) {
            tell(at, word, events, out);
            told = true;
            at->fresh = false;
        }
        (void)look_later(at, atomic_load(&at->word), LS_LOOK_MS); /* without memory: not before it is enabled */
    }
    ls_mutex_unlock(&at->mutex);
    return told;
}

bool ls_win32_take_edge(ls_op *op, ls_packet *out)
{
    notice *at = op->key;
    bool told = false;
    ls_mutex_lock(&at->mutex);
    atomic_store(&at->edge_set, false); /* a record that is made from now on has its own packet */
    const uint64_t word = atomic_load(&at->word);
    if ((word & ARMED) && (word & EDGE)) {
        bool ended;
        const uint32_t events = recorded(at, word, &ended);
        if (ended) {
            at->fresh = true;
            if (poll_anew(at->port->notices, at) < 0) drop(at);
        }
        if (events != 0) {
            tell(at, word, events, out);
            told = true;
        }
    }
    ls_mutex_unlock(&at->mutex);
    return told;
}

bool ls_packet_current(const ls_port *port, const ls_packet *packet)
{
    if (packet->events == 0 || (packet->events & LS_EVENT_REMOVE)) return true;
    const ls_fd fd = fd_of(packet->origin);
    return origin_of(atomic_load(&notice_at(port->notices, fd)->word), fd) == packet->origin;
}

bool ls_win32_take_queued_notice(ls_port *port, const ls_op *node)
{
    const uint64_t origin = node->notice.origin;
    if (!(node->notice.events & LS_EVENT_REMOVE))
        return ls_packet_current(port, &(ls_packet){.events = node->notice.events, .origin = origin});
    notice *at = notice_at(port->notices, fd_of(origin));
    ls_mutex_lock(&at->mutex);
    if (at->removed == origin) at->removed = 0;
    ls_mutex_unlock(&at->mutex);
    return true;
}
