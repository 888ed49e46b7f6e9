/* notify.h - readiness notifications: the port reports when a socket can be read or written; the caller
 * reads and writes.
 *
 * The terms and values are those of ProcessSocketNotifications on Windows. A registration names a socket, a key and
 * the events of interest. Its packets are returned by the same wait as all others: packet->events is not 0,
 * packet->key is the key of the registration, packet->op is NULL. A worker pool passes them to
 * ls_workers_options.on_user_packet.
 *
 * Events.
 *     IN      data, the end of the stream, or a connection to accept can be read
 *     OUT     data can be sent; a connect has succeeded
 *     HANGUP  the peer of a stream has closed its sending side, or the connection is lost; never on a datagram socket
 *     ERR     the socket has an error, which a receive returns; reported whatever the filter is
 *     REMOVE  the last packet of a registration; reported whatever the filter is
 * A stream socket that was never connected has no events. One packet may hold several events.
 *
 * Triggers.
 *     LEVEL       repeats while the condition holds
 *     EDGE        fires when the condition becomes true and when more data arrives. After an EDGE packet read or write
 *                 until the call would block; whether data that arrive before that cause another packet is unspecified
 *     PERSISTENT  the registration stays armed. With LEVEL several threads may receive a packet for the same data
 *     ONESHOT     one packet for one thread, then the registration is disarmed until ENABLE
 * ENABLE evaluates the condition again, with LEVEL and with EDGE: a condition that holds at that time is reported.
 *
 * Life of a registration.
 *     REGISTER  creates it, armed. The key stays valid until the registration has ended. A socket has at most one
 *               registration, with one port. REGISTER may precede bind, connect and listen.
 *     ENABLE    sets filter and trigger, and arms it
 *     DISABLE   suppresses all packets until ENABLE, those that are queued or were requeued included
 *     REMOVE    ends it: a wait that begins later returns no packet of it except its REMOVE packet. Only after that
 *               packet may the object after the key be freed, and the socket be registered again (for example with
 *               another key)
 * Other threads may still handle packets that they took before the REMOVE packet was taken. With ONESHOT there are
 * none while a packet is being handled, so the handler of the packet may remove the registration; with PERSISTENT and
 * several threads the owner counts the threads inside.
 *
 * Closing the socket drops the registration without a REMOVE packet. Before the close, remove the registration or call
 * ls_port_unregister, which drops it at once; this order is portable. A close without either is tolerated: the next
 * REGISTER of the same descriptor finds the old registration dropped, ENABLE, DISABLE and REMOVE return LS_ENOENT, and
 * only packets that threads were taking at the time of the close may still carry the old key. A duplicated descriptor,
 * and its registration, exist until the last copy is closed.
 *
 * On Windows a closed socket is distinguished from the next one with its number by its type and addresses. Two
 * sockets without an address look the same until a wait has taken notice of the close: until then REGISTER returns
 * LS_EEXIST.
 *
 * On Windows pipes and consoles are looked at by a thread of the port. The system lets this call wait while another
 * thread reads from the same pipe, if that was opened for synchronous calls (standard input, io.popen). So read from a
 * registered pipe in the handler of its packet, and use ONESHOT when several threads wait.
 *
 * A socket that is attached for operations (ls_sock_attach) cannot be registered: LS_EEXIST, from REGISTER or from the
 * first operation that has to wait. */
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

enum { /* ls_registration.trigger: ONESHOT or PERSISTENT, with LEVEL or EDGE */
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

/* Descriptors and handles of this value and above cannot be registered: LS_ELIMIT. */
enum { LS_NOTIFY_FD_MAX = 1 << 20 };

typedef struct ls_registration {
    ls_fd fd;  /* belongs to the caller: a socket, or where the system supports it a pipe or another pollable object */
    void *key; /* used by REGISTER only */
    int result;      /* set by the call */
    uint16_t events; /* the filter, used by REGISTER and ENABLE; may be 0 */
    uint8_t trigger; /* used by REGISTER and ENABLE */
    uint8_t operation;
} ls_registration;

/* Carry out the registrations in order and set the result of each, then wait for packets as ls_port_wait does.
 * With max 0 there is no wait, and ctx and packets may be NULL. When a registration failed, the wait uses a
 * timeout of 0, so that the caller sees the failure at once. Returns the value of ls_port_wait. Any thread;
 * concurrent calls are allowed.
 *
 * registration.result: LS_OK, or
 *     LS_EEXIST   REGISTER: the socket is already registered, or attached
 *     LS_EBUSY    REGISTER: the REMOVE packet of the previous registration was not taken yet
 *     LS_ENOENT   ENABLE, DISABLE, REMOVE: the socket is not registered, or was closed since
 *     LS_EINVAL   invalid descriptor, operation, event or trigger
 *     LS_ENOTSUP  REGISTER: the descriptor cannot be polled, for example that of a regular file
 *     LS_ELIMIT, LS_ENOMEM   REGISTER, ENABLE */
int ls_port_notify(ls_port *port, ls_thread_ctx *ctx, ls_registration *registrations, size_t count, ls_packet *packets,
                   int max, int timeout_ms);

/* Drop the registration, if any, of a socket that is about to be closed; no REMOVE packet follows. Any thread. */
void ls_port_unregister(ls_port *port, ls_fd fd);

/* false: the packet is a notification whose registration was enabled, disabled, removed or dropped after the packet
 * was taken. A REMOVE packet is always current. A worker checks each packet of a batch before it handles it. */
bool ls_packet_current(const ls_port *port, const ls_packet *packet);

/* Several modules may share a worker pool: the key of a packet without an operation then points to an object whose
 * first member is an ls_packet_handler. ls_packet_handler_call, for ls_workers_options.on_user_packet, calls it; a
 * packet without a key is dropped. */
typedef struct ls_packet_handler {
    void (*handle)(ls_thread_ctx *ctx, const ls_packet *packet); /* any thread */
} ls_packet_handler;
void ls_packet_handler_call(ls_thread_ctx *ctx, const ls_packet *packet);

/* Supplied by the back end, called by ls_port_notify: carry out, in order, the registrations whose result is LS_OK and
 * whose operation is not LS_NOTIFY_NONE, and set their results. */
void ls_port_register(ls_port *port, ls_registration *registrations, size_t count);

#endif
