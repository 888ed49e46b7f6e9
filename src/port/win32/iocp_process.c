/* iocp_process.c - notifications by ProcessSocketNotifications: see iocp_notify.h.
 *
 * The system keeps a registration under the key of its REGISTER; ours is the handle's number with the watcher's generation at
 * that time (its life), so packets of an earlier life of the number are told from those of this one. What the caller gave
 * as a key is in the watcher. Packets come as entries of the completion port whose byte count is the events.
 *
 * The documentation has it that an EDGE is told when its condition becomes true while it is enabled; notify.h promises that
 * what is there already is told, too, so a poll that does not wait looks at that (iocp_poll.c). Registering again
 * overwrites, so LS_EEXIST and LS_EBUSY are found in the watcher before the system is asked. */
#include "port/win32/iocp_notify.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(ULONG_PTR) == 8, "a completion key holds a handle's number and a generation");

enum { BATCH_MAX = 64 }; /* registrations of one call */

const ls_process_calls *ls_process_look_up(void)
{
    static ls_process_calls calls;
    char forced[2];
    if (GetEnvironmentVariableA("LUASERVE_AFD", forced, sizeof forced) == 1 && forced[0] == '1') return NULL;
    FARPROC found = GetProcAddress(GetModuleHandleW(L"ws2_32"), "ProcessSocketNotifications");
    if (found == NULL) return NULL;
    memcpy(&calls.process, &found, sizeof calls.process); /* always the same value, whoever else writes it now */
    return &calls;
}

static void *system_key(uint32_t life, ls_fd fd)
{
    return (void *)((ULONG_PTR)life << 32 | (ULONG_PTR)(fd / HANDLE_STEP) << 2 | KEY_SOCKET);
}

static ls_process_registration asked_of(const watcher *at, const ls_registration *registration)
{
    enum { FILTER = LS_EVENT_IN | LS_EVENT_OUT | LS_EVENT_HANGUP };
    ls_process_registration asked = {.socket = (SOCKET)at->base, .key = system_key(at->life, at->fd)};
    switch (registration->operation) {
    case LS_NOTIFY_DISABLE: asked.operation = LS_PROCESS_DISABLE; break;
    case LS_NOTIFY_REMOVE: asked.operation = LS_PROCESS_REMOVE; break;
    default:
        asked.operation = LS_PROCESS_ENABLE;
        asked.events = registration->events & FILTER;
        asked.trigger = registration->trigger;
    }
    return asked;
}

/* One call. `called` is its own result: that of all, when it is an error. */
static void process(ls_port *port, ls_process_registration *asked, UINT32 count)
{
    const DWORD called = port->watchers->process->process(port->iocp, count, asked, 0, 0, NULL, NULL);
    if (called != ERROR_SUCCESS && called != WAIT_TIMEOUT)
        for (UINT32 i = 0; i < count; i++) asked[i].result = called;
}

/* What the system said of one. */
static int conclude(watcher *at, const ls_registration *registration, DWORD said)
{
    int err = ls_err_from_win32(said);
    if (err > 0) err = LS_OK;
    ls_mutex_lock(&at->mutex);
    if (err == LS_OK && registration->operation != LS_NOTIFY_REMOVE) err = ls_poll_change(at);
    if (err < 0) {
        if (registration->operation != LS_NOTIFY_REGISTER && (err == LS_EINVAL || err == LS_ENOENT)) err = LS_ENOENT;
        if (registration->operation == LS_NOTIFY_REMOVE) ls_watcher_removed(at);
        ls_watcher_drop(at);
    }
    ls_mutex_unlock(&at->mutex);
    return err;
}

void ls_process_register(ls_port *port, ls_registration *registrations, size_t count)
{
    ls_mutex_lock(&port->watchers->process_mutex);
    for (size_t from = 0; from < count;) {
        ls_process_registration asked[BATCH_MAX];
        watcher *of[BATCH_MAX];
        ls_registration *wanted[BATCH_MAX];
        UINT32 n = 0;
        for (; from < count && n < BATCH_MAX; from++) {
            ls_registration *registration = &registrations[from];
            if (registration->result != LS_OK || registration->operation == LS_NOTIFY_NONE) continue;
            registration->result = ls_watcher_carry_out(port, registration, &of[n]);
            if (registration->result != LS_PENDING) continue;
            asked[n] = asked_of(of[n], registration);
            wanted[n++] = registration;
        }
        if (n == 0) continue;
        process(port, asked, n);
        for (UINT32 i = 0; i < n; i++) wanted[i]->result = conclude(of[i], wanted[i], asked[i].result);
    }
    ls_mutex_unlock(&port->watchers->process_mutex);
}

/* It was dropped: what the system still tells of this life, the REMOVE included, is out of date. */
void ls_process_forget(ls_port *port, watcher *at)
{
    ls_process_registration asked = asked_of(at, &(ls_registration){.operation = LS_NOTIFY_REMOVE});
    process(port, &asked, 1);
}

bool ls_win32_processed(ls_port *port, ULONG_PTR key, uint32_t events, ls_packet *out)
{
    const uint32_t life = (uint32_t)(key >> 32);
    watcher *at = ls_watcher_at(port->watchers, (ls_fd)((uint32_t)key >> 2) * HANDLE_STEP);
    bool told = false;
    if (at == NULL) return false;
    ls_mutex_lock(&at->mutex);
    const uint64_t word = atomic_load(&at->word);
    if (events & LS_EVENT_REMOVE) {
        if (at->removed != 0 && at->removed_life == life) {
            *out = (ls_packet){.key = at->removed_key, .events = LS_EVENT_REMOVE, .origin = at->removed};
            ls_watcher_removed(at);
            told = true;
        }
    } else if (at->life == life && (word & ARMED) && !ls_watcher_is_closed(at)) {
        if (word & DATAGRAM) events &= ~(uint32_t)LS_EVENT_HANGUP;
        events &= (uint32_t)(word & EVENTS) | LS_EVENT_ERR;
        if (events != 0) {
            ls_watcher_report(at, word, events, out);
            told = true;
        }
    }
    ls_mutex_unlock(&at->mutex);
    return told;
}
