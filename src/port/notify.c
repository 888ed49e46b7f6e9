/* notify.c - the part of notify.h that is the same on every back end: the check of the registrations, and the
 * wait after them. */
#include "port/notify.h"

enum {
    EVENTS_ALL = LS_EVENT_IN | LS_EVENT_OUT | LS_EVENT_HANGUP | LS_EVENT_ERR | LS_EVENT_REMOVE,
    TRIGGERS_ALL = LS_TRIGGER_ONESHOT | LS_TRIGGER_PERSISTENT | LS_TRIGGER_LEVEL | LS_TRIGGER_EDGE,
};

static bool one_of(unsigned flags, unsigned a, unsigned b)
{
    return (flags & (a | b)) == a || (flags & (a | b)) == b;
}

static int check(const ls_registration *registration)
{
    const unsigned trigger = registration->trigger;
    switch (registration->operation) {
    case LS_NOTIFY_REGISTER:
    case LS_NOTIFY_ENABLE:
        if ((registration->events & ~(unsigned)EVENTS_ALL) || (trigger & ~(unsigned)TRIGGERS_ALL)) return LS_EINVAL;
        if (!one_of(trigger, LS_TRIGGER_ONESHOT, LS_TRIGGER_PERSISTENT)) return LS_EINVAL;
        if (!one_of(trigger, LS_TRIGGER_LEVEL, LS_TRIGGER_EDGE)) return LS_EINVAL;
        return LS_OK;
    case LS_NOTIFY_NONE:
    case LS_NOTIFY_DISABLE:
    case LS_NOTIFY_REMOVE: return LS_OK;
    default: return LS_EINVAL;
    }
}

int ls_port_notify(ls_port *port, ls_thread_ctx *ctx, ls_registration *registrations, size_t count, ls_packet *packets,
                   int max, int timeout_ms)
{
    bool failed = false;
    for (size_t i = 0; i < count; i++) registrations[i].result = check(&registrations[i]);
    if (count > 0) ls_port_register(port, registrations, count);
    for (size_t i = 0; i < count; i++) failed = failed || registrations[i].result < 0;
    return max > 0 && ctx != NULL ? ls_port_wait(port, ctx, packets, max, failed ? 0 : timeout_ms) : 0;
}

void ls_packet_handler_call(ls_thread_ctx *ctx, const ls_packet *packet)
{
    const ls_packet_handler *handler = packet->key;
    if (handler != NULL) handler->handle(ctx, packet);
}
