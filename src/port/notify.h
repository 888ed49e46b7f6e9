/* notify.h - socket notifications: the port says when a socket can be read or written; the caller reads and writes.
 *
 * The words and numbers are those of ProcessSocketNotifications on Windows. A registration names a socket, a key and
 * the events that are of interest. Its packets come out of the same wait as everything else: packet->events is not 0,
 * packet->key is the registration's, there is no op. With a workers they go to options.bare.
 *
 * Events.
 *     IN      there is something to receive or to accept, the peer's end included
 *     OUT     something can be sent; a connect has succeeded
 *     HANGUP  the peer of a stream sent its end, or the connection is gone; never on a datagram socket
 *     ERR     the socket has an error to be fetched (a receive does); comes whatever the filter says
 *     REMOVE  the last packet of a registration; comes whatever the filter says
 * A stream socket that was never connected has no events. One packet may hold several.
 *
 * Triggers. LEVEL tells as long as the condition holds, EDGE when it has become true or more has come: after an EDGE
 * packet go on until the system would block; whether more data before that make another packet is left open.
 * PERSISTENT goes on telling. A LEVEL PERSISTENT registration may be told to several threads at a time, for the same
 * data. ONESHOT tells once, to one thread, and is disarmed until it is enabled again. Enabling looks afresh, with LEVEL
 * and with EDGE: what is there then is told.
 *
 * Life of a registration.
 *     REGISTER  makes it, armed. The key stays until it is removed. A socket is registered once, with one port. May
 *               come before bind, connect or listen.
 *     ENABLE    sets filter and trigger, and arms it
 *     DISABLE   nothing more is told, what is queued or given back included, until ENABLE
 *     REMOVE    ends it: no wait that begins later brings a packet of it, but its REMOVE. Then, and not before, may go
 *               what the key points to, and may the socket be registered again (with another key, say).
 * Packets that other threads took before the REMOVE was taken may still be in their hands. With ONESHOT nobody else
 * has one, so whoever has the packet may remove; with PERSISTENT and several threads the owner counts who is inside.
 *
 * Closing the socket drops the registration without a REMOVE. Before the close remove it, or call ls_port_forget, which
 * drops it at once: that holds on every platform. Closing it without either is survived: the next REGISTER of the same
 * number finds the old registration dropped, ENABLE, DISABLE and REMOVE say LS_ENOENT, and only what the threads were
 * taking at that moment can still come with the old key. A descriptor that was duplicated lives on until its last copy
 * is closed, and its registration with it.
 *
 * A socket that is attached for operations (ls_sock_attach) belongs to the port and is not registered: LS_EEXIST, from
 * REGISTER or from the first operation that has to wait. */
#ifndef LS_PORT_NOTIFY_H
#define LS_PORT_NOTIFY_H

#include "port/port.h"

enum { /* ls_registration.events, ls_packet.events */
       LS_EVENT_IN = 1,
       LS_EVENT_OUT = 2,
       LS_EVENT_HANGUP = 4,
       LS_EVENT_ERR = 64,
       LS_EVENT_REMOVE = 128,
};

enum { /* ls_registration.trigger: one of the first two with one of the others */
       LS_TRIGGER_ONESHOT = 1,
       LS_TRIGGER_PERSISTENT = 2,
       LS_TRIGGER_LEVEL = 4,
       LS_TRIGGER_EDGE = 8,
};

enum { /* ls_registration.operation */
       LS_NOTIFY_NONE,
       LS_NOTIFY_REGISTER,
       LS_NOTIFY_ENABLE,
       LS_NOTIFY_DISABLE,
       LS_NOTIFY_REMOVE,
};

/* Descriptors that can be registered are smaller, where descriptors are small numbers. */
enum { LS_NOTIFY_FD_MAX = 1 << 20 };

typedef struct ls_registration {
    ls_fd fd;   /* the caller's. A socket; where the system can, also a pipe or another thing that can be polled */
    void *key;  /* of REGISTER; the other operations do not read it */
    int result; /* set by the call */
    uint16_t events; /* the filter, of REGISTER and ENABLE; may be 0 */
    uint8_t trigger; /* of REGISTER and ENABLE */
    uint8_t operation;
} ls_registration;

/* Carry out the registrations in order, each with its own result, then wait for packets as ls_port_wait does; max 0 does
 * not wait (thread context and packets may be NULL). When one of them failed the wait only looks, so that the caller hears of it.
 * Returns what ls_port_wait returns. Any thread, any number at a time.
 *
 * registration.result: LS_OK;
 *     LS_EEXIST   REGISTER: it is registered already, or attached
 *     LS_EBUSY    REGISTER: it was removed, and its REMOVE was not taken yet
 *     LS_ENOENT   the others: it is not registered (or was closed since)
 *     LS_EINVAL   a bad descriptor, an unknown operation, event or trigger
 *     LS_ENOTSUP  REGISTER: nothing that can be polled, a file for example
 *     LS_ELIMIT, LS_ENOMEM   REGISTER, ENABLE */
int ls_port_notify(ls_port *port, ls_thread_ctx *ctx, ls_registration *registrations, size_t count, ls_packet *packets,
                   int max, int timeout_ms);

/* Drop the registration of a socket that is about to be closed, if there is one; there will be no REMOVE. Any thread. */
void ls_port_forget(ls_port *port, ls_fd fd);

/* false: the packet is a notification of a registration that was enabled, disabled, removed or dropped after it was
 * taken; REMOVE itself is always current. For packets that waited in a batch: the workers asks before it begins one. */
bool ls_packet_current(const ls_port *port, const ls_packet *packet);

/* How packets without an op find who takes them when several modules share a workers: the first member of what the key
 * points to. ls_packet_handler_call, for ls_workers_options.bare, calls it; a packet without a key is dropped. */
typedef struct ls_packet_handler {
    void (*handle)(ls_thread_ctx *ctx, const ls_packet *packet); /* any thread */
} ls_packet_handler;
void ls_packet_handler_call(ls_thread_ctx *ctx, const ls_packet *packet);

/* The part that each back end supplies: carry out those that are valid (result is LS_OK) and ask for something, in order, and
 * set their results. ls_port_notify calls it. */
void ls_port_register(ls_port *port, ls_registration *registrations, size_t count);

#endif
