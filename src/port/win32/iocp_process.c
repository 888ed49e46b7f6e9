/* iocp_process.c - notifications by ProcessSocketNotifications: see iocp_notify.h.
 *
 * The system stores a registration with the key given at its REGISTER. The key holds the number of the handle and the
 * generation of the watcher at that time (`life`), so packets of an earlier use of the number are recognised. The key
 * of the caller is in the watcher. Packets are entries of the completion port whose byte count is the events.
 *
 * According to its documentation the system reports EDGE when the condition becomes true while the registration is
 * enabled. notify.h promises to report a condition that holds already, so a poll that does not wait checks for it
 * (iocp_poll.c). A second registration would overwrite the first, so LS_EEXIST and LS_EBUSY are detected in the
 * watcher before the call.
 *
 * The system reports the end of a stream as HANGUP and an error as ERR alone, where IN and OUT of notify.h include
 * them. So HANGUP is registered with each IN, and the events are translated when the packet is taken.
 *
 * DISABLE. The documentation says that a disabled registration must not be enabled before a DISABLE event, which no
 * header declares. But a registration may be overwritten at any time. So DISABLE is an ENABLE for no events, ONESHOT
 * so that an error, which is reported whatever is asked for, does not repeat. */
#include "port/win32/iocp_notify.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(ULONG_PTR) == 8, "a completion key holds a handle's number and a generation");

enum { BATCH_MAX = 64 }; /* registrations per call */

const ls_process_calls *ls_process_look_up(void)
{
    static ls_process_calls calls;
    char forced[2];
    if (GetEnvironmentVariableA("LUASERVE_AFD", forced, sizeof forced) == 1 && forced[0] == '1') return NULL;
    FARPROC found = GetProcAddress(GetModuleHandleW(L"ws2_32"), "ProcessSocketNotifications");
    if (found == NULL) return NULL;
    memcpy(&calls.process, &found, sizeof calls.process); /* every thread writes the same value */
    return &calls;
}

static void *system_key(uint32_t life, ls_fd fd)
{
    return (void *)((ULONG_PTR)life << 32 | (ULONG_PTR)(fd / HANDLE_STEP) << 2 | KEY_SOCKET);
}

static ls_process_registration request_of(const watcher *at, const ls_registration *registration)
{
    enum { FILTER = LS_EVENT_IN | LS_EVENT_OUT | LS_EVENT_HANGUP };
    ls_process_registration request = {.socket = (SOCKET)at->base, .key = system_key(at->life, at->fd)};
    switch (registration->operation) {
    case LS_NOTIFY_DISABLE:
        request.operation = LS_PROCESS_ENABLE;
        request.trigger = LS_TRIGGER_LEVEL | LS_TRIGGER_ONESHOT;
        break;
    case LS_NOTIFY_REMOVE: request.operation = LS_PROCESS_REMOVE; break;
    default:
        request.operation = LS_PROCESS_ENABLE;
        request.events = registration->events & FILTER;
        if ((request.events & LS_EVENT_IN) && !(atomic_load(&at->word) & DATAGRAM)) request.events |= LS_EVENT_HANGUP;
        request.trigger = registration->trigger;
    }
    return request;
}

/* Make one call. When the call itself fails, its error is the result of every registration. */
static void process(ls_port *port, ls_process_registration *requests, UINT32 count)
{
    const DWORD call_error = port->watchers->process->process(port->iocp, count, requests, 0, 0, NULL, NULL);
    if (call_error != ERROR_SUCCESS && call_error != WAIT_TIMEOUT)
        for (UINT32 i = 0; i < count; i++) requests[i].result = call_error;
}

/* Complete a registration with the result of the system. */
static int conclude(watcher *at, const ls_registration *registration, DWORD error)
{
    int err = ls_err_from_win32(error);
    if (err > 0) err = LS_OK;
    ls_mutex_lock(&at->mutex);
    if (err == LS_OK) at->in_system = registration->operation != LS_NOTIFY_REMOVE;
    if (err == LS_OK && registration->operation != LS_NOTIFY_REMOVE) err = ls_poll_change(at);
    if (err < 0) {
        if (registration->operation != LS_NOTIFY_REGISTER && (err == LS_EINVAL || err == LS_ENOENT)) err = LS_ENOENT;
        if (registration->operation == LS_NOTIFY_REMOVE) {
            ls_watcher_removed(at);
            free(ls_watcher_take_removal(at, at->life));
        }
        ls_watcher_drop(at);
    }
    ls_mutex_unlock(&at->mutex);
    return err;
}

void ls_process_register(ls_port *port, ls_registration *registrations, size_t count)
{
    ls_mutex_lock(&port->watchers->process_mutex);
    for (size_t from = 0; from < count;) {
        ls_process_registration requests[BATCH_MAX];
        watcher *registered[BATCH_MAX];
        ls_registration *passed[BATCH_MAX];
        UINT32 n = 0;
        for (; from < count && n < BATCH_MAX; from++) {
            ls_registration *registration = &registrations[from];
            if (registration->result != LS_OK || registration->operation == LS_NOTIFY_NONE) continue;
            registration->result = ls_watcher_carry_out(port, registration, &registered[n]);
            if (registration->result != LS_PENDING) continue;
            requests[n] = request_of(registered[n], registration);
            passed[n++] = registration;
        }
        if (n == 0) continue;
        process(port, requests, n);
        for (UINT32 i = 0; i < n; i++) passed[i]->result = conclude(registered[i], passed[i], requests[i].result);
    }
    ls_mutex_unlock(&port->watchers->process_mutex);
}

/* The registration was dropped: all later packets of this life are out of date, REMOVE included. */
void ls_process_unregister(ls_port *port, watcher *at)
{
    ls_process_registration request = request_of(at, &(ls_registration){.operation = LS_NOTIFY_REMOVE});
    process(port, &request, 1);
    at->in_system = false;
}

/* The system's events as those of notify.h. */
static uint32_t events_of(uint64_t word, uint32_t events)
{
    if ((word & DATAGRAM)) events &= ~(uint32_t)LS_EVENT_HANGUP;
    if (events & LS_EVENT_HANGUP) events |= LS_EVENT_IN;
    if (events & LS_EVENT_ERR) events |= LS_EVENT_IN | LS_EVENT_OUT; /* neither call would block */
    return events & ((uint32_t)(word & EVENTS) | LS_EVENT_ERR);
}

bool ls_win32_processed(ls_port *port, ULONG_PTR key, uint32_t events, ls_packet *out)
{
    const uint32_t life = (uint32_t)(key >> 32);
    watcher *at = ls_watcher_at(port->watchers, (ls_fd)((uint32_t)key >> 2) * HANDLE_STEP);
    bool reported = false;
    if (at == NULL) return false;
    ls_mutex_lock(&at->mutex);
    const uint64_t word = atomic_load(&at->word);
    if (events & LS_EVENT_REMOVE) {
        ls_key_node *node = ls_watcher_take_removal(at, life);
        if (node != NULL) {
            *out = (ls_packet){.key = node->key, .events = LS_EVENT_REMOVE, .origin = node->origin};
            if (at->removed == node->origin) ls_watcher_removed(at);
            free(node);
            reported = true;
        }
    } else if (at->life == life && (word & ARMED) && !at->closed) {
        events = events_of(word, events);
        if (events != 0) reported = ls_watcher_report(at, word, events, out);
    }
    ls_mutex_unlock(&at->mutex);
    return reported;
}
