/* iocp_notify.c - the table of watchers and the rules of notify.h: see iocp_notify.h.
 *
 * Pipes and the console cannot be polled: while they are armed a timer checks them (readable.h). EDGE fires when more
 * data are available than at the last check. */
#include "port/win32/iocp_notify.h"

#include <stdlib.h>
#include <string.h>
#include <ws2tcpip.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/text.h"
#include "port/win32/readable.h"

/* ---- the table ------------------------------------------------------------------------------------------------- */

int ls_watchers_open(ls_port *port, ls_watchers **out)
{
    ls_watchers *watchers = calloc(1, sizeof *watchers);
    if (watchers == NULL) return LS_ENOMEM;
    watchers->process = ls_process_look_up();
    ls_mutex_open(&watchers->mutex);
    ls_mutex_open(&watchers->process_mutex);
    *out = watchers;
    return LS_OK;
}

void ls_watchers_stop(ls_watchers *watchers)
{
    for (int c = 0; c < WATCHER_CHUNKS; c++) {
        watcher_chunk *chunk = atomic_load(&watchers->chunks[c]);
        if (chunk == NULL) continue;
        for (int i = 0; i < WATCHERS_PER_CHUNK; i++) {
            ls_poll_end(&chunk->at[i]);
            free(chunk->at[i].last);
            for (ls_op *node; (node = chunk->at[i].removals) != NULL; free(node)) chunk->at[i].removals = node->next;
        }
        for (int d = 0; d < DEVICES_PER_CHUNK; d++) {
            const HANDLE device = atomic_load(&chunk->devices[d]);
            if (device != NULL) (void)CancelIoEx(device, NULL);
        }
    }
}

_Atomic uint32_t *ls_watchers_polls(ls_watchers *watchers)
{
    return &watchers->polls;
}

void ls_watchers_close(ls_watchers *watchers)
{
    for (int c = 0; c < WATCHER_CHUNKS; c++) {
        watcher_chunk *chunk = atomic_load(&watchers->chunks[c]);
        if (chunk == NULL) continue;
        for (int d = 0; d < DEVICES_PER_CHUNK; d++) {
            const HANDLE device = atomic_load(&chunk->devices[d]);
            if (device != NULL) CloseHandle(device);
        }
        free(chunk);
    }
    ls_mutex_close(&watchers->process_mutex);
    ls_mutex_close(&watchers->mutex);
    free(watchers);
}

/* NULL: no handle of its chunk was ever registered. */
watcher *ls_watcher_at(const ls_watchers *watchers, ls_fd fd)
{
    const ls_fd number = fd / HANDLE_STEP;
    if (fd >= LS_NOTIFY_FD_MAX) return NULL;
    watcher_chunk *chunk = atomic_load_explicit(&watchers->chunks[number / WATCHERS_PER_CHUNK], memory_order_acquire);
    return chunk == NULL ? NULL : &chunk->at[number % WATCHERS_PER_CHUNK];
}

static int watcher_get(ls_watchers *watchers, ls_fd fd, watcher **out)
{
    const ls_fd number = fd / HANDLE_STEP;
    if (fd == LS_FD_NONE) return LS_EINVAL;
    if (fd >= LS_NOTIFY_FD_MAX) return LS_ELIMIT;
    if ((*out = ls_watcher_at(watchers, fd)) != NULL) return LS_OK;
    watcher_chunk *chunk = calloc(1, sizeof *chunk), *others = NULL;
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
    ls_poll_cancel(at);
    free(at->last);
    at->last = NULL;
}

static bool handle_below(SOCKET fd, DWORD code, SOCKET *out)
{
    DWORD bytes;
    return WSAIoctl(fd, code, NULL, 0, out, sizeof *out, &bytes, NULL, NULL) == 0;
}

/* The socket below all layered providers, which is the only one that the device knows. Some providers refuse
 * SIO_BASE_HANDLE but return the next socket below. LS_ENOTSUP: no such socket. */
static int base_of(SOCKET fd, HANDLE *out)
{
    for (SOCKET at = fd, below;; at = below) {
        if (handle_below(at, SIO_BASE_HANDLE, &below)) {
            *out = (HANDLE)below;
            return LS_OK;
        }
        if ((!handle_below(at, SIO_BSP_HANDLE_POLL, &below) || below == at) &&
            (!handle_below(at, SIO_BSP_HANDLE_SELECT, &below) || below == at))
            return LS_ENOTSUP;
    }
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

/* A hash of the bytes of an address; 0: the wildcard address. */
static uint64_t fold_ip(const void *bytes, size_t count)
{
    static const char any[sizeof(struct in6_addr)];
    return memcmp(bytes, any, count) != 0 ? ls_text_hash(bytes, count) : 0;
}

/* true: an address of IP. */
static bool ip_of(const struct sockaddr_storage *address, uint64_t *ip, uint16_t *port)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
    if (address->ss_family == AF_INET) {
        *ip = fold_ip(&v4->sin_addr, sizeof v4->sin_addr);
        *port = v4->sin_port;
    } else if (address->ss_family == AF_INET6) {
        *ip = fold_ip(&v6->sin6_addr, sizeof v6->sin6_addr);
        *port = v6->sin6_port;
    } else {
        return false;
    }
    return true;
}

static win_identity identity_of(SOCKET fd, bool datagram)
{
    struct sockaddr_storage local, peer;
    int local_len = sizeof local, peer_len = sizeof peer;
    win_identity identity = {.peer = 0};
    uint64_t ip;
    uint16_t port;
    if (getsockname(fd, (struct sockaddr *)&local, &local_len) == 0)
        (void)ip_of(&local, &identity.local_ip, &identity.local_port);
    /* A datagram socket may be connected to another peer. */
    if (!datagram && getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0 && ip_of(&peer, &ip, &port))
        identity.peer = (ip ^ port) | 1;
    return identity;
}

/* What was not known before may be known now: the socket was bound or connected since. The peer of a connection that
 * was reset is no longer known, nor the local address of a datagram socket whose peer was taken away. */
static bool is_same(const win_identity *before, const win_identity *now)
{
    return (before->local_port == 0 || before->local_port == now->local_port) &&
           (before->local_ip == 0 || now->local_ip == 0 || before->local_ip == now->local_ip) &&
           (before->peer == 0 || now->peer == 0 || before->peer == now->peer);
}

bool ls_watcher_is_replaced(watcher *at)
{
    uint64_t kind;
    const uint64_t word = atomic_load(&at->word);
    if (at->closed || kind_of(at->fd, &kind) < 0 || kind != (word & KINDS)) return true;
    if (readable_of(kind) != LS_READABLE_NONE) return false;
    win_identity now = identity_of(at->fd, kind & DATAGRAM);
    if (!is_same(&at->identity, &now)) return true;
    if (now.peer == 0) now.peer = at->identity.peer;
    at->identity = now;
    return false;
}

static bool is_replaced_or_attached(watcher *at)
{
    return is_attached(at->port->watchers, at->fd) || ls_watcher_is_replaced(at);
}

/* ---- pipes and consoles ----------------------------------------------------------------------------------------- */

/* Set the timer of the next check in `ms`, if the watcher is armed. The mutex is held. */
static int check_later(watcher *at, uint64_t word, uint64_t ms)
{
    if (at->checking || !(word & ARMED)) return LS_OK;
    at->check.op = (ls_op){.kind = KIND_CHECK};
    const int err = ls_port_timer_set(at->port, &at->check, ls_clock_ns() + ms * 1000000u);
    if (err == LS_OK) at->checking = true;
    return err;
}

bool ls_win32_take_check(ls_op *op, ls_packet *out)
{
    watcher *at = LS_CONTAINER(op, watcher, check.op);
    bool reported = false;
    ls_mutex_lock(&at->mutex);
    at->checking = false;
    const uint64_t word = atomic_load(&at->word);
    const ls_readable kind = readable_of(word);
    if ((word & LIVE) && kind != LS_READABLE_NONE && is_replaced_or_attached(at)) {
        ls_watcher_drop(at);
    } else if ((word & ARMED) && kind != LS_READABLE_NONE) {
        const uint32_t before = at->amount, events = ls_readable_now(at->base, kind, &at->amount) &
                                                     ((uint32_t)word | LS_EVENT_ERR) & EVENTS;
        const bool more = at->amount > before || (events & ~at->seen);
        at->seen = events;
        if (events != 0 && (!(word & EDGE) || more)) reported = ls_watcher_report(at, word, events, out);
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
    if ((live || at->removed != 0) && !ls_watcher_is_replaced(at)) {
        if (is_attached(port->watchers, fd) || live) return LS_EEXIST;
        return LS_EBUSY;
    }
    if (live) ls_watcher_drop(at);
    int err = kind_of(fd, &kind);
    if (err < 0) return err;
    if (is_attached(port->watchers, fd)) return LS_EEXIST;
    at->port = port;
    at->closed = false;
    at->fd = fd;
    at->base = (HANDLE)fd;
    at->key = registration->key;
    at->amount = at->seen = at->recorded = 0;
    at->poll_current = true;
    at->poll_at_wait = at->polled = false;
    if (readable_of(kind) == LS_READABLE_NONE) {
        if ((err = base_of(fd, &at->base)) < 0) return err;
        if (at->in_system)
            ls_process_unregister(port, at); /* dropped: else the system may keep the key of that life */
        at->identity = identity_of(fd, kind & DATAGRAM);
    }
    if ((at->last = calloc(1, sizeof *at->last)) == NULL) return LS_ENOMEM;
    const uint64_t word = ls_watcher_next(atomic_load(&at->word), flags_of(registration) | kind);
    at->life = ls_watcher_generation(word);
    atomic_store(&at->word, word);
    return LS_OK;
}

static void change(watcher *at, uint64_t flags)
{
    at->poll_current = true;
    at->poll_at_wait = false;
    at->amount = at->seen = at->recorded = 0;
    atomic_store(&at->word, ls_watcher_next(atomic_load(&at->word), flags));
}

static void remove_now(watcher *at)
{
    change(at, atomic_load(&at->word) & KINDS);
    at->removed = ls_watcher_origin(atomic_load(&at->word), at->fd);
}

/* Queue the REMOVE packet. by_system: keep its node until the system has posted the packet. Before that, another
 * socket may have the number, and be removed as well. */
static void post_remove(watcher *at, bool by_system)
{
    ls_key_node *node = at->last;
    at->last = NULL;
    node->op.kind = KIND_KEY;
    node->key = at->key;
    node->origin = at->removed;
    node->events = LS_EVENT_REMOVE;
    if (by_system) {
        atomic_store(&node->op.result, at->life);
        node->op.next = at->removals;
        at->removals = &node->op;
    } else {
        ls_port_enqueue(at->port, &node->op);
    }
}

ls_key_node *ls_watcher_take_removal(watcher *at, uint32_t life)
{
    for (ls_op **link = &at->removals; *link != NULL; link = &(*link)->next) {
        ls_op *op = *link;
        if (atomic_load(&op->result) != life) continue;
        *link = op->next;
        return (ls_key_node *)(void *)op;
    }
    return NULL;
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
    } else if (is_replaced_or_attached(at)) {
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
            if (registration->operation == LS_NOTIFY_REMOVE) post_remove(at, true);
            *out = at;
            err = LS_PENDING;
        } else {
            err = start_polls(at);
            if (registration->operation == LS_NOTIFY_REMOVE) {
                post_remove(at, false);
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

void ls_port_unregister(ls_port *port, ls_fd fd)
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
        if (port->watchers->process != NULL && readable_of(word) == LS_READABLE_NONE) ls_process_unregister(port, at);
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
        if ((atomic_load(&at->word) & LIVE) && ls_watcher_is_replaced(at)) ls_watcher_drop(at);
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

bool ls_watcher_report(watcher *at, uint64_t word, uint32_t events, ls_packet *out)
{
    /* The packet may have been queued when the registered socket was closed. */
    if (ls_watcher_is_replaced(at)) {
        ls_watcher_drop(at);
        return false;
    }
    *out = (ls_packet){.key = at->key, .events = events, .origin = ls_watcher_origin(word, at->fd)};
    if (word & ONESHOT) atomic_store(&at->word, word & ~(uint64_t)ARMED);
    return true;
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
}

bool ls_port_take_event(ls_port *port, const ls_key_node *node)
{
    const uint64_t origin = node->origin;
    if (!(node->events & LS_EVENT_REMOVE))
        return ls_packet_current(port, &(ls_packet){.events = node->events, .origin = origin});
    watcher *at = ls_watcher_at(port->watchers, fd_of(origin));
    ls_mutex_lock(&at->mutex);
    if (at->removed == origin) ls_watcher_removed(at);
    ls_mutex_unlock(&at->mutex);
    return true;
}
