/* iocp_notify.c - the table of watchers and the rules of notify.h: see iocp_notify.h.
 *
 * Pipes and the console cannot be polled: while they are armed a timer checks them (readable.h). EDGE fires when more
 * data are available than at the last check. */
#include "port/win32/iocp_notify.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "port/win32/readable.h"

/* ---- the table ------------------------------------------------------------------------------------------------- */

int ls_watchers_open(ls_port *port, ls_watchers **out)
{
    int err = LS_ENOMEM;
    ls_watchers *watchers = calloc(1, sizeof *watchers);
    if (watchers == NULL) return err;
    watchers->process = ls_process_look_up();
    if ((err = ls_poll_open(port, &watchers->afd)) < 0) {
        free(watchers);
        return err;
    }
    (void)ls_mutex_open(&watchers->mutex);
    (void)ls_mutex_open(&watchers->process_mutex);
    *out = watchers;
    return LS_OK;
}

/* Cancel all polls and wait for them: until they have completed they write into the watchers. */
void ls_watchers_stop(ls_watchers *watchers)
{
    (void)CancelIoEx(watchers->afd, NULL);
    for (int c = 0; c < WATCHER_CHUNKS; c++) {
        watcher *chunk = atomic_load(&watchers->chunks[c]);
        for (int i = 0; chunk != NULL && i < WATCHERS_PER_CHUNK; i++) {
            watcher *at = &chunk[i];
            while (at->poll.request.pending && !ls_poll_ended(&at->poll)) Sleep(1);
            ls_poll_end(at);
            free(at->last);
        }
    }
}

bool ls_watchers_closing(const ls_watchers *watchers)
{
    return atomic_load(&watchers->close_polls) > 0;
}

void ls_watchers_close(ls_watchers *watchers)
{
    CloseHandle(watchers->afd);
    for (int c = 0; c < WATCHER_CHUNKS; c++) free(atomic_load(&watchers->chunks[c]));
    ls_mutex_close(&watchers->process_mutex);
    ls_mutex_close(&watchers->mutex);
    free(watchers);
}

/* NULL: no handle of its chunk was ever registered. */
watcher *ls_watcher_at(const ls_watchers *watchers, ls_fd fd)
{
    const ls_fd number = fd / HANDLE_STEP;
    if (fd >= LS_NOTIFY_FD_MAX) return NULL;
    watcher *chunk = atomic_load_explicit(&watchers->chunks[number / WATCHERS_PER_CHUNK], memory_order_acquire);
    return chunk == NULL ? NULL : &chunk[number % WATCHERS_PER_CHUNK];
}

static int watcher_get(ls_watchers *watchers, ls_fd fd, watcher **out)
{
    const ls_fd number = fd / HANDLE_STEP;
    if (fd == LS_FD_NONE) return LS_EINVAL;
    if (fd >= LS_NOTIFY_FD_MAX) return LS_ELIMIT;
    if ((*out = ls_watcher_at(watchers, fd)) != NULL) return LS_OK;
    watcher *chunk = calloc(WATCHERS_PER_CHUNK, sizeof *chunk), *others = NULL;
    if (chunk == NULL) return LS_ENOMEM;
    if (!atomic_compare_exchange_strong(&watchers->chunks[number / WATCHERS_PER_CHUNK], &others, chunk)) free(chunk);
    *out = ls_watcher_at(watchers, fd);
    return LS_OK;
}

static bool is_attached(ls_watchers *watchers, ls_fd fd)
{
    const ls_fd number = fd / HANDLE_STEP;
    return atomic_load(&watchers->attached[number / 32]) >> number % 32 & 1;
}

static ls_fd fd_of(uint64_t origin)
{
    return (ls_fd)(uint32_t)origin * HANDLE_STEP;
}

static ls_readable readable_of(uint64_t word)
{
    return (ls_readable)(word >> KIND_SHIFT & 3);
}

/* ---- the close poll; the mutex of the watcher is held ----------------------------------------------------------- */

/* Cancel the close poll; its packet frees it. */
static void close_poll_cancel(watcher *at)
{
    if (at->close_poll == NULL) return;
    if (!ls_poll_ended(&at->close_poll->poll))
        (void)CancelIoEx(at->port->watchers->afd, &at->close_poll->poll.request.overlapped);
    at->close_poll = NULL;
}

static int close_poll_post(watcher *at)
{
    ls_watchers *watchers = at->port->watchers;
    win_close_poll *poll = calloc(1, sizeof *poll);
    if (poll == NULL) return LS_ENOMEM;
    poll->at = at;
    poll->poll.request.type = WIN_CLOSE_POLL;
    atomic_fetch_add(&watchers->close_polls, 1);
    const int err = ls_poll_post(watchers, &poll->poll, at->base, 0, true);
    if (err < 0) {
        atomic_fetch_sub(&watchers->close_polls, 1);
        free(poll);
        return err;
    }
    at->close_poll = poll;
    return LS_OK;
}

/* true: the socket was closed since it was registered. Ends the close poll and, if the socket is open,
 * posts a new one. */
static bool check_closed(watcher *at)
{
    win_close_poll *old = at->close_poll;
    if (old == NULL) return at->closed;
    if (!ls_poll_ended(&old->poll)) (void)CancelIoEx(at->port->watchers->afd, &old->poll.request.overlapped);
    while (!ls_poll_ended(&old->poll)) (void)SwitchToThread(); /* a cancelled poll completes without waiting */
    const bool closed = at->closed = ls_poll_reported_close(&old->poll);
    at->close_poll = NULL;
    if (!closed) (void)close_poll_post(at); /* without memory the close is noticed when the handle is next used */
    return closed;
}

void ls_win32_close_polled(win_request *request)
{
    win_close_poll *ended = (win_close_poll *)(void *)request;
    watcher *at = ended->at;
    ls_mutex_lock(&at->mutex);
    if (at->close_poll == ended) {
        at->close_poll = NULL;
        at->closed = ls_poll_reported_close(&ended->poll);
        if (!at->closed) { /* for example, the thread that posted it has ended */
            if ((atomic_load(&at->word) & LIVE) || at->removed != 0) (void)close_poll_post(at);
        } else if (atomic_load(&at->word) & LIVE) {
            ls_watcher_drop(at);
        }
    }
    ls_mutex_unlock(&at->mutex);
    ls_win32_free_close_poll(at->port, request);
}

void ls_win32_free_close_poll(ls_port *port, win_request *request)
{
    atomic_fetch_sub(&port->watchers->close_polls, 1);
    free(request);
}

/* ---- registrations; the mutex of the watcher is held ------------------------------------------------------------ */

static uint64_t flags_of(const ls_registration *registration)
{
    return LIVE | ARMED | (registration->events & EVENTS) |
           (registration->trigger & LS_TRIGGER_ONESHOT ? ONESHOT : 0) |
           (registration->trigger & LS_TRIGGER_EDGE ? EDGE : 0);
}

void ls_watcher_drop(watcher *at)
{
    const uint64_t word = atomic_load(&at->word);
    atomic_store(&at->word, ls_watcher_next(word, word & KINDS));
    if (at->removed == 0) close_poll_cancel(at);
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

/* The type of the handle, as flags of a watcher. LS_OK; LS_ENOTSUP, LS_EINVAL. */
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

/* true: the handle is no longer the registered one, as far as is known without ending the close poll. */
static bool seems_replaced(const watcher *at)
{
    uint64_t kind;
    return is_attached(at->port->watchers, at->fd) || kind_of(at->fd, &kind) < 0 ||
           kind != (atomic_load(&at->word) & KINDS) || ls_watcher_is_closed(at);
}

/* The same, exact, but without regard to attached sockets. */
static bool was_replaced(watcher *at)
{
    uint64_t kind;
    return kind_of(at->fd, &kind) < 0 || kind != (atomic_load(&at->word) & KINDS) || check_closed(at);
}

/* ---- pipes and consoles ----------------------------------------------------------------------------------------- */

/* Set the timer of the next check in `ms`, if the watcher is armed. The mutex is held. */
static int check_later(watcher *at, uint64_t word, uint64_t ms)
{
    if (at->checking || !(word & ARMED)) return LS_OK;
    at->check.op = (ls_op){.kind = KIND_CHECK, .key = at};
    const int err = ls_timer_set(at->port, &at->check, ls_clock_ns() + ms * 1000000u);
    if (err == LS_OK) at->checking = true;
    return err;
}

bool ls_win32_take_check(ls_op *op, ls_packet *out)
{
    watcher *at = op->key;
    bool reported = false;
    ls_mutex_lock(&at->mutex);
    at->checking = false;
    const uint64_t word = atomic_load(&at->word);
    const ls_readable kind = readable_of(word);
    if ((word & LIVE) && kind != LS_READABLE_NONE && seems_replaced(at)) {
        ls_watcher_drop(at);
    } else if ((word & ARMED) && kind != LS_READABLE_NONE) {
        const uint32_t before = at->amount, events = ls_readable_now(at->base, kind, &at->amount) &
                                                     ((uint32_t)word | LS_EVENT_ERR) & EVENTS;
        const bool more = at->amount > before || (events & ~at->seen);
        at->seen = events;
        if (events != 0 && (!(word & EDGE) || more)) {
            ls_watcher_report(at, word, events, out);
            reported = true;
        }
        (void)check_later(at, atomic_load(&at->word), LS_CHECK_MS); /* else the next check is after ENABLE */
    }
    ls_mutex_unlock(&at->mutex);
    return reported;
}

/* ---- changes; the mutex of the watcher is held ------------------------------------------------------------------ */

static int register_new(ls_port *port, watcher *at, const ls_registration *registration, ls_fd fd)
{
    uint64_t kind;
    const bool live = atomic_load(&at->word) & LIVE;
    if ((live || at->removed != 0) && !was_replaced(at)) {
        if (is_attached(port->watchers, fd) || live) return LS_EEXIST;
        return LS_EBUSY;
    }
    if (live) ls_watcher_drop(at);
    close_poll_cancel(at);
    int err = kind_of(fd, &kind);
    if (err < 0) return err;
    if (is_attached(port->watchers, fd)) return LS_EEXIST;
    at->port = port;
    at->closed = false;
    at->fd = fd;
    at->base = (HANDLE)fd;
    at->key = registration->key;
    at->amount = at->seen = 0;
    at->poll_current = true;
    at->poll_at_wait = false;
    if ((at->last = calloc(1, sizeof *at->last)) == NULL) return LS_ENOMEM;
    const uint64_t word = ls_watcher_next(atomic_load(&at->word), flags_of(registration) | kind);
    at->life = ls_watcher_generation(word);
    atomic_store(&at->word, word);
    if (readable_of(kind) != LS_READABLE_NONE) return LS_OK;
    at->base = base_of(fd);
    return close_poll_post(at);
}

static void change(watcher *at, uint64_t flags)
{
    at->poll_current = true;
    at->poll_at_wait = false;
    at->amount = at->seen = 0;
    atomic_store(&at->word, ls_watcher_next(atomic_load(&at->word), flags));
}

/* The close poll stays pending: a close of the socket must be noticed until the REMOVE packet is taken. */
static void remove_now(watcher *at)
{
    change(at, atomic_load(&at->word) & KINDS);
    at->removed = ls_watcher_origin(atomic_load(&at->word), at->fd);
    at->removed_life = at->life;
    at->removed_key = at->key;
}

/* Queue the REMOVE packet, when the system does not post it. */
static void post_remove(watcher *at)
{
    ls_op *node = at->last;
    at->last = NULL;
    node->kind = KIND_EVENT;
    node->flags = FLAG_HEAP_NODE;
    node->key = at->key;
    node->event.origin = at->removed;
    node->event.events = LS_EVENT_REMOVE;
    ls_port_enqueue(at->port, node);
}

/* Start the polls or checks that the word requires, without ProcessSocketNotifications. */
static int start_polls(watcher *at)
{
    const uint64_t word = atomic_load(&at->word);
    return readable_of(word) != LS_READABLE_NONE ? check_later(at, word, 0) : ls_poll_change(at);
}

int ls_watcher_carry_out(ls_port *port, const ls_registration *registration, watcher **out)
{
    const ls_fd fd = ls_readable_fd(registration->fd);
    const bool is_register = registration->operation == LS_NOTIFY_REGISTER;
    watcher *at = ls_watcher_at(port->watchers, fd);
    int err = LS_OK;
    if (is_register && (err = watcher_get(port->watchers, fd, &at)) < 0) return err;
    if (at == NULL) return fd == LS_FD_NONE ? LS_EINVAL : LS_ENOENT;

    ls_mutex_lock(&at->mutex);
    const uint64_t flags = atomic_load(&at->word), kind = flags & KINDS;
    if (is_register) {
        err = register_new(port, at, registration, fd);
    } else if (!(flags & LIVE)) {
        err = LS_ENOENT;
    } else if (seems_replaced(at)) {
        ls_watcher_drop(at);
        err = LS_ENOENT;
    } else if (registration->operation == LS_NOTIFY_REMOVE) {
        remove_now(at);
    } else {
        change(at, registration->operation == LS_NOTIFY_ENABLE ? flags_of(registration) | kind : LIVE | kind);
    }
    if (err == LS_OK) {
        const bool by_system =
            port->watchers->process != NULL && readable_of(atomic_load(&at->word)) == LS_READABLE_NONE;
        if (by_system) {
            if (registration->operation == LS_NOTIFY_REMOVE) {
                free(at->last);
                at->last = NULL;
            }
            *out = at;
            err = LS_PENDING;
        } else {
            err = start_polls(at);
            if (registration->operation == LS_NOTIFY_REMOVE) {
                post_remove(at);
                err = LS_OK;
            }
        }
        if (err < 0) ls_watcher_drop(at);
    } else if (is_register && err != LS_EEXIST && err != LS_EBUSY && (atomic_load(&at->word) & LIVE)) {
        ls_watcher_drop(at);
    }
    ls_mutex_unlock(&at->mutex);
    return err;
}

void ls_port_register(ls_port *port, ls_registration *registrations, size_t count)
{
    watcher *at;
    if (port->watchers->process != NULL) {
        ls_process_register(port, registrations, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        if (registrations[i].result == LS_OK && registrations[i].operation != LS_NOTIFY_NONE)
            registrations[i].result = ls_watcher_carry_out(port, &registrations[i], &at);
}

void ls_port_forget(ls_port *port, ls_fd fd)
{
    fd = ls_readable_fd(fd);
    watcher *at = ls_watcher_at(port->watchers, fd);
    if (at == NULL) return;
    if (port->watchers->process != NULL) ls_mutex_lock(&port->watchers->process_mutex);
    ls_mutex_lock(&at->mutex);
    const uint64_t word = atomic_load(&at->word);
    if (word & LIVE) {
        ls_watcher_drop(at);
        if (readable_of(word) == LS_READABLE_NONE) (void)ls_poll_change(at);
        if (port->watchers->process != NULL && readable_of(word) == LS_READABLE_NONE) ls_process_forget(port, at);
    }
    ls_mutex_unlock(&at->mutex);
    if (port->watchers->process != NULL) ls_mutex_unlock(&port->watchers->process_mutex);
}

/* ---- sockets that are attached for operations ------------------------------------------------------------------- */

void ls_win32_mark_attached(ls_port *port, ls_fd fd, bool attached)
{
    const ls_fd number = fd / HANDLE_STEP;
    if (fd >= LS_NOTIFY_FD_MAX) return; /* cannot be registered either */
    _Atomic uint32_t *word = &port->watchers->attached[number / 32];
    const uint32_t bit = UINT32_C(1) << number % 32;
    if (!attached) {
        atomic_fetch_and(word, ~bit);
        return;
    }
    watcher *at = ls_watcher_at(port->watchers, fd);
    if (at != NULL) { /* drop the registration of a closed socket that had this number */
        ls_mutex_lock(&at->mutex);
        if ((atomic_load(&at->word) & LIVE) && was_replaced(at)) ls_watcher_drop(at);
        ls_mutex_unlock(&at->mutex);
    }
    atomic_fetch_or(word, bit);
}

bool ls_win32_is_registered(ls_port *port, ls_fd fd)
{
    const watcher *at = ls_watcher_at(port->watchers, fd);
    return at != NULL && (atomic_load(&at->word) & LIVE);
}

/* ---- packets ---------------------------------------------------------------------------------------------------- */

void ls_watcher_report(watcher *at, uint64_t word, uint32_t events, ls_packet *out)
{
    *out = (ls_packet){.key = at->key, .events = events, .origin = ls_watcher_origin(word, at->fd)};
    if (word & ONESHOT) atomic_store(&at->word, word & ~(uint64_t)ARMED);
}

bool ls_packet_current(const ls_port *port, const ls_packet *packet)
{
    if (packet->events == 0 || (packet->events & LS_EVENT_REMOVE)) return true;
    const ls_fd fd = fd_of(packet->origin);
    return ls_watcher_origin(atomic_load(&ls_watcher_at(port->watchers, fd)->word), fd) == packet->origin;
}

void ls_watcher_removed(watcher *at)
{
    at->removed = 0;
    if (!(atomic_load(&at->word) & LIVE)) close_poll_cancel(at);
}

bool ls_port_take_event(ls_port *port, const ls_op *node)
{
    const uint64_t origin = node->event.origin;
    if (!(node->event.events & LS_EVENT_REMOVE))
        return ls_packet_current(port, &(ls_packet){.events = node->event.events, .origin = origin});
    watcher *at = ls_watcher_at(port->watchers, fd_of(origin));
    ls_mutex_lock(&at->mutex);
    if (at->removed == origin) ls_watcher_removed(at);
    ls_mutex_unlock(&at->mutex);
    return true;
}
