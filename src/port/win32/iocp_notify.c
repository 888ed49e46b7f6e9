/* iocp_notify.c - the table of notices and the rules of notify.h: see iocp_notify.h.
 *
 * Pipes and the console cannot be polled: while they are armed a timer looks at them (readable.h). EDGE tells when
 * there is more than at the last look. */
#include "port/win32/iocp_notify.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "port/win32/readable.h"

/* ---- the table ------------------------------------------------------------------------------------------------- */

int ls_notices_open(ls_port *port, ls_notices **out)
{
    int err = LS_ENOMEM;
    ls_notices *notices = calloc(1, sizeof *notices);
    if (notices == NULL) return err;
    notices->process = ls_process_look_up();
    if ((err = ls_poll_open(port, &notices->afd)) < 0) {
        free(notices);
        return err;
    }
    (void)ls_mutex_open(&notices->mutex);
    (void)ls_mutex_open(&notices->process_mutex);
    *out = notices;
    return LS_OK;
}

/* The polls end with the handle they were made on; until they have they write into the notices. */
void ls_notices_stop(ls_notices *notices)
{
    (void)CancelIoEx(notices->afd, NULL);
    for (int c = 0; c < NOTICE_CHUNKS; c++) {
        notice *chunk = atomic_load(&notices->chunks[c]);
        for (int i = 0; chunk != NULL && i < NOTICES_PER_CHUNK; i++) {
            notice *at = &chunk[i];
            while (at->poll.request.pending && !ls_poll_ended(&at->poll)) Sleep(1);
            ls_poll_end(at);
            free(at->last);
        }
    }
}

bool ls_notices_watch(const ls_notices *notices)
{
    return atomic_load(&notices->watches) > 0;
}

void ls_notices_close(ls_notices *notices)
{
    CloseHandle(notices->afd);
    for (int c = 0; c < NOTICE_CHUNKS; c++) free(atomic_load(&notices->chunks[c]));
    ls_mutex_close(&notices->process_mutex);
    ls_mutex_close(&notices->mutex);
    free(notices);
}

/* NULL: nothing near it was ever registered. */
notice *ls_notice_at(const ls_notices *notices, ls_fd fd)
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
    if ((*out = ls_notice_at(notices, fd)) != NULL) return LS_OK;
    notice *chunk = calloc(NOTICES_PER_CHUNK, sizeof *chunk), *others = NULL;
    if (chunk == NULL) return LS_ENOMEM;
    if (!atomic_compare_exchange_strong(&notices->chunks[number / NOTICES_PER_CHUNK], &others, chunk)) free(chunk);
    *out = ls_notice_at(notices, fd);
    return LS_OK;
}

static bool is_attached(ls_notices *notices, ls_fd fd)
{
    const ls_fd number = fd / HANDLE_STEP;
    return atomic_load(&notices->attached[number / 32]) >> number % 32 & 1;
}

static ls_fd fd_of(uint64_t origin)
{
    return (ls_fd)(uint32_t)origin * HANDLE_STEP;
}

static ls_readable readable_of(uint64_t word)
{
    return (ls_readable)(word >> KIND_SHIFT & 3);
}

/* ---- the watch; the notice's mutex is held ---------------------------------------------------------------------- */

/* It is left to its packet, which frees it. */
static void unwatch(notice *at)
{
    if (at->watch == NULL) return;
    if (!ls_poll_ended(&at->watch->poll))
        (void)CancelIoEx(at->port->notices->afd, &at->watch->poll.request.overlapped);
    at->watch = NULL;
}

static int watch(notice *at)
{
    ls_notices *notices = at->port->notices;
    win_watch *made = calloc(1, sizeof *made);
    if (made == NULL) return LS_ENOMEM;
    made->at = at;
    made->poll.request.what = WIN_WATCH;
    atomic_fetch_add(&notices->watches, 1);
    const int err = ls_poll_post(notices, &made->poll, at->base, 0, true);
    if (err < 0) {
        atomic_fetch_sub(&notices->watches, 1);
        free(made);
        return err;
    }
    at->watch = made;
    return LS_OK;
}

/* Whether the socket was closed since it was registered. It takes the watch away and, if not, sets a new one. */
static bool was_closed(notice *at)
{
    win_watch *old = at->watch;
    if (old == NULL) return at->closed;
    if (!ls_poll_ended(&old->poll)) (void)CancelIoEx(at->port->notices->afd, &old->poll.request.overlapped);
    while (!ls_poll_ended(&old->poll)) (void)SwitchToThread(); /* cancelled: it has to do with nobody else */
    const bool closed = at->closed = ls_poll_told_close(&old->poll);
    at->watch = NULL;
    if (!closed) (void)watch(at); /* without memory its close goes unseen until its number is looked at */
    return closed;
}

void ls_win32_watched(win_request *request)
{
    win_watch *ended = (win_watch *)(void *)request;
    notice *at = ended->at;
    ls_mutex_lock(&at->mutex);
    if (at->watch == ended) {
        at->watch = NULL;
        at->closed = ls_poll_told_close(&ended->poll);
        if (!at->closed) { /* the thread that made it has ended, say */
            if ((atomic_load(&at->word) & LIVE) || at->removed != 0) (void)watch(at);
        } else if (atomic_load(&at->word) & LIVE) {
            ls_notice_drop(at);
        }
    }
    ls_mutex_unlock(&at->mutex);
    ls_win32_free_watch(at->port, request);
}

void ls_win32_free_watch(ls_port *port, win_request *request)
{
    atomic_fetch_sub(&port->notices->watches, 1);
    free(request);
}

/* ---- what is registered; the notice's mutex is held ------------------------------------------------------------- */

static uint64_t flags_of(const ls_registration *registration)
{
    return LIVE | ARMED | (registration->events & EVENTS) |
           (registration->trigger & LS_TRIGGER_ONESHOT ? ONESHOT : 0) |
           (registration->trigger & LS_TRIGGER_EDGE ? EDGE : 0);
}

void ls_notice_drop(notice *at)
{
    const uint64_t word = atomic_load(&at->word);
    atomic_store(&at->word, ls_notice_next(word, word & KINDS));
    if (at->removed == 0) unwatch(at);
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

/* What was registered is there no more, as far as can be seen at once: nothing has its number, or something else. */
static bool is_gone(const notice *at)
{
    uint64_t kind;
    return is_attached(at->port->notices, at->fd) || kind_of(at->fd, &kind) < 0 ||
           kind != (atomic_load(&at->word) & KINDS) || ls_notice_is_closed(at);
}

/* The same for certain, but for what is attached. */
static bool is_another(notice *at)
{
    uint64_t kind;
    return kind_of(at->fd, &kind) < 0 || kind != (atomic_load(&at->word) & KINDS) || was_closed(at);
}

/* ---- what is no socket ------------------------------------------------------------------------------------------ */

/* Look at it, now or later, if it is to be looked at. The mutex is held. */
static int look_later(notice *at, uint64_t word, uint64_t ms)
{
    if (at->looking || !(word & ARMED)) return LS_OK;
    at->look.op = (ls_op){.kind = KIND_LOOK, .key = at};
    const int err = ls_timer_set(at->port, &at->look, ls_clock_ns() + ms * 1000000u);
    if (err == LS_OK) at->looking = true;
    return err;
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
        ls_notice_drop(at);
    } else if ((word & ARMED) && kind != LS_READABLE_NONE) {
        const uint32_t before = at->amount, events = ls_readable_now(at->base, kind, &at->amount) &
                                                     ((uint32_t)word | LS_EVENT_ERR) & EVENTS;
        const bool more = at->amount > before || (events & ~at->seen);
        at->seen = events;
        if (events != 0 && (!(word & EDGE) || more)) {
            ls_notice_tell(at, word, events, out);
            told = true;
        }
        (void)look_later(at, atomic_load(&at->word), LS_LOOK_MS); /* without memory: not before it is enabled */
    }
    ls_mutex_unlock(&at->mutex);
    return told;
}

/* ---- registering; the notice's mutex is held ----------------------------------------------------------------------- */

static int register_new(ls_port *port, notice *at, const ls_registration *registration, ls_fd fd)
{
    uint64_t kind;
    const bool lives = atomic_load(&at->word) & LIVE;
    if ((lives || at->removed != 0) && !is_another(at)) {
        if (is_attached(port->notices, fd) || lives) return LS_EEXIST;
        return LS_EBUSY;
    }
    if (lives) ls_notice_drop(at);
    unwatch(at);
    int err = kind_of(fd, &kind);
    if (err < 0) return err;
    if (is_attached(port->notices, fd)) return LS_EEXIST;
    at->port = port;
    at->closed = false;
    at->fd = fd;
    at->base = (HANDLE)fd;
    at->key = registration->key;
    at->amount = at->seen = 0;
    at->fresh = true;
    at->resting = false;
    if ((at->last = calloc(1, sizeof *at->last)) == NULL) return LS_ENOMEM;
    const uint64_t word = ls_notice_next(atomic_load(&at->word), flags_of(registration) | kind);
    at->life = ls_notice_generation(word);
    atomic_store(&at->word, word);
    if (readable_of(kind) != LS_READABLE_NONE) return LS_OK;
    at->base = base_of(fd);
    return watch(at);
}

static void change(notice *at, uint64_t flags)
{
    at->fresh = true;
    at->resting = false;
    at->amount = at->seen = 0;
    atomic_store(&at->word, ls_notice_next(atomic_load(&at->word), flags));
}

/* The watch goes on: until REMOVE is taken the close of the socket has to be seen. */
static void remove_now(notice *at)
{
    change(at, atomic_load(&at->word) & KINDS);
    at->removed = ls_notice_origin(atomic_load(&at->word), at->fd);
    at->removed_life = at->life;
    at->removed_key = at->key;
}

/* Its REMOVE comes from our queue, not from the system's. */
static void post_remove(notice *at)
{
    ls_op *node = at->last;
    at->last = NULL;
    node->kind = KIND_NOTICE;
    node->flags = FLAG_HEAP_NODE;
    node->key = at->key;
    node->notice.origin = at->removed;
    node->notice.events = LS_EVENT_REMOVE;
    ls_win32_enqueue(at->port, node);
}

/* What the system has to be told of its word, if it is to be told by us. */
static int apply(notice *at)
{
    const uint64_t word = atomic_load(&at->word);
    return readable_of(word) != LS_READABLE_NONE ? look_later(at, word, 0) : ls_poll_change(at);
}

int ls_notice_carry_out(ls_port *port, const ls_registration *registration, notice **out)
{
    const ls_fd fd = ls_readable_fd(registration->fd);
    const bool first = registration->operation == LS_NOTIFY_REGISTER;
    notice *at = ls_notice_at(port->notices, fd);
    int err = LS_OK;
    if (first && (err = notice_make(port->notices, fd, &at)) < 0) return err;
    if (at == NULL) return fd == LS_FD_NONE ? LS_EINVAL : LS_ENOENT;

    ls_mutex_lock(&at->mutex);
    const uint64_t flags = atomic_load(&at->word), kind = flags & KINDS;
    if (first) {
        err = register_new(port, at, registration, fd);
    } else if (!(flags & LIVE)) {
        err = LS_ENOENT;
    } else if (is_gone(at)) {
        ls_notice_drop(at);
        err = LS_ENOENT;
    } else if (registration->operation == LS_NOTIFY_REMOVE) {
        remove_now(at);
    } else {
        change(at, registration->operation == LS_NOTIFY_ENABLE ? flags_of(registration) | kind : LIVE | kind);
    }
    if (err == LS_OK) {
        const bool by_system =
            port->notices->process != NULL && readable_of(atomic_load(&at->word)) == LS_READABLE_NONE;
        if (by_system) {
            if (registration->operation == LS_NOTIFY_REMOVE) {
                free(at->last);
                at->last = NULL;
            }
            *out = at;
            err = LS_PENDING;
        } else {
            err = apply(at);
            if (registration->operation == LS_NOTIFY_REMOVE) {
                post_remove(at);
                err = LS_OK;
            }
        }
        if (err < 0) ls_notice_drop(at);
    } else if (first && err != LS_EEXIST && err != LS_EBUSY && (atomic_load(&at->word) & LIVE)) {
        ls_notice_drop(at);
    }
    ls_mutex_unlock(&at->mutex);
    return err;
}

void ls_port_register(ls_port *port, ls_registration *registrations, size_t count)
{
    notice *at;
    if (port->notices->process != NULL) {
        ls_process_register(port, registrations, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        if (registrations[i].result == LS_OK && registrations[i].operation != LS_NOTIFY_NONE)
            registrations[i].result = ls_notice_carry_out(port, &registrations[i], &at);
}

void ls_port_forget(ls_port *port, ls_fd fd)
{
    fd = ls_readable_fd(fd);
    notice *at = ls_notice_at(port->notices, fd);
    if (at == NULL) return;
    if (port->notices->process != NULL) ls_mutex_lock(&port->notices->process_mutex);
    ls_mutex_lock(&at->mutex);
    const uint64_t word = atomic_load(&at->word);
    if (word & LIVE) {
        ls_notice_drop(at);
        if (readable_of(word) == LS_READABLE_NONE) (void)ls_poll_change(at);
        if (port->notices->process != NULL && readable_of(word) == LS_READABLE_NONE) ls_process_forget(port, at);
    }
    ls_mutex_unlock(&at->mutex);
    if (port->notices->process != NULL) ls_mutex_unlock(&port->notices->process_mutex);
}

/* ---- sockets that are attached for operations ------------------------------------------------------------------- */

void ls_win32_mark_attached(ls_port *port, ls_fd fd, bool attached)
{
    const ls_fd number = fd / HANDLE_STEP;
    if (fd >= LS_NOTIFY_FD_MAX) return; /* nor can it be registered */
    _Atomic uint32_t *word = &port->notices->attached[number / 32];
    const uint32_t bit = UINT32_C(1) << number % 32;
    if (!attached) {
        atomic_fetch_and(word, ~bit);
        return;
    }
    notice *at = ls_notice_at(port->notices, fd);
    if (at != NULL) { /* what had this number before and was closed without a word is dropped now */
        ls_mutex_lock(&at->mutex);
        if ((atomic_load(&at->word) & LIVE) && is_another(at)) ls_notice_drop(at);
        ls_mutex_unlock(&at->mutex);
    }
    atomic_fetch_or(word, bit);
}

bool ls_win32_is_registered(ls_port *port, ls_fd fd)
{
    const notice *at = ls_notice_at(port->notices, fd);
    return at != NULL && (atomic_load(&at->word) & LIVE);
}

/* ---- taking ------------------------------------------------------------------------------------------------------ */

void ls_notice_tell(notice *at, uint64_t word, uint32_t events, ls_packet *out)
{
    *out = (ls_packet){.key = at->key, .events = events, .origin = ls_notice_origin(word, at->fd)};
    if (word & ONESHOT) atomic_store(&at->word, word & ~(uint64_t)ARMED);
}

bool ls_packet_current(const ls_port *port, const ls_packet *packet)
{
    if (packet->events == 0 || (packet->events & LS_EVENT_REMOVE)) return true;
    const ls_fd fd = fd_of(packet->origin);
    return ls_notice_origin(atomic_load(&ls_notice_at(port->notices, fd)->word), fd) == packet->origin;
}

void ls_notice_removed(notice *at)
{
    at->removed = 0;
    if (!(atomic_load(&at->word) & LIVE)) unwatch(at);
}

bool ls_win32_take_queued_notice(ls_port *port, const ls_op *node)
{
    const uint64_t origin = node->notice.origin;
    if (!(node->notice.events & LS_EVENT_REMOVE))
        return ls_packet_current(port, &(ls_packet){.events = node->notice.events, .origin = origin});
    notice *at = ls_notice_at(port->notices, fd_of(origin));
    ls_mutex_lock(&at->mutex);
    if (at->removed == origin) ls_notice_removed(at);
    ls_mutex_unlock(&at->mutex);
    return true;
}
