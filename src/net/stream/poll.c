/* poll.c - see poll.h.
 *
 *     packet (any thread): pending |= events --> op posted unless it is queued --> inside the actor: report(pending)
 *
 *     ls_poll_remove or ls_poll_close: REMOVE submitted --> its packet --> op         \
 *     ls_polls_unregister, or the descriptor was closed: no packet follows            --> closed, not removing,
 *     ls_poll_close                                                                   /   op not queued: retired
 *
 * The actor of a closed poll may be freed, so a packet that arrives then is handled without it. A thread sets
 * `queued`, then reads `closed`; the actor sets `closed`, then reads `queued` (ls_polls_idle). Both are sequentially
 * consistent: the thread sees the close, or the actor sees that an op is on its way and is not freed before. */
#include "net/stream/poll.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/os/thread.h"
#include "sched/actor.h"

#define QUARANTINE_NS UINT64_C(2000000000)

enum { POLL_BUCKETS = 256 };

struct ls_poll {
    ls_packet_handler handler; /* first: the key of the registration */
    ls_op op;                  /* posted to the actor when events are pending */
    _Atomic uint32_t pending;  /* events */
    _Atomic bool queued;       /* op is posted and not yet handled */
    _Atomic bool removing;     /* the REMOVE packet was not handled yet */
    _Atomic bool closed;
    uint8_t trigger;
    uint16_t events; /* of the last arming */
    ls_fd fd;
    ls_polls *polls;
    ls_poll_fn *report;
    void *user;
    ls_poll *in_bucket; /* the next one; under the mutex of the table, as those below */
    ls_poll *allocated; /* the next one in polls->all */
    ls_node retired;    /* in polls->retired */
    uint64_t retired_ns;
};

struct ls_polls {
    ls_port *port;
    ls_mutex mutex;
    ls_poll *buckets[POLL_BUCKETS]; /* registered polls, by descriptor */
    ls_poll *all;
    ls_node retired; /* the oldest first */
};

/* ---- the table; the mutex is held --------------------------------------------------------------------------- */

/* The link to the poll of this descriptor, or the link at the end. */
static ls_poll **link_of(ls_polls *polls, ls_fd fd)
{
    ls_poll **at = &polls->buckets[(uint64_t)fd % POLL_BUCKETS];
    while (*at != NULL && (*at)->fd != fd) at = &(*at)->in_bucket;
    return at;
}

static void table_remove(ls_polls *polls, ls_fd fd)
{
    ls_poll **at = link_of(polls, fd);
    if (*at != NULL) *at = (*at)->in_bucket;
}

static ls_poll *poll_alloc(ls_polls *polls)
{
    if (!ls_list_empty(&polls->retired)) {
        ls_poll *oldest = LS_CONTAINER(polls->retired.next, ls_poll, retired);
        if (ls_clock_ns() - oldest->retired_ns >= QUARANTINE_NS && !atomic_load(&oldest->queued)) {
            ls_list_remove(&oldest->retired);
            return oldest;
        }
    }
    ls_poll *poll = calloc(1, sizeof *poll);
    if (poll == NULL) return NULL;
    ls_node_init(&poll->retired);
    poll->allocated = polls->all;
    polls->all = poll;
    return poll;
}

/* LS_OK, or the result of the registration. A poll that another one has replaced in the table submits nothing. */
static int submit(ls_poll *poll, uint8_t operation, uint16_t events)
{
    ls_polls *polls = poll->polls;
    poll->events = events;
    ls_registration registration = {
        .fd = poll->fd, .key = poll, .events = events, .trigger = poll->trigger, .operation = operation};
    if (operation != LS_NOTIFY_REGISTER && *link_of(polls, poll->fd) != poll) return LS_ENOENT;
    (void)ls_port_notify(polls->port, NULL, &registration, 1, NULL, 0, 0);
    if (operation == LS_NOTIFY_REMOVE || (operation == LS_NOTIFY_ENABLE && registration.result == LS_ENOENT))
        table_remove(polls, poll->fd);
    return registration.result;
}

static int submit_locked(ls_poll *poll, uint8_t operation, uint16_t events)
{
    ls_mutex_lock(&poll->polls->mutex);
    const int err = submit(poll, operation, events);
    ls_mutex_unlock(&poll->polls->mutex);
    return err;
}

/* ---- events ------------------------------------------------------------------------------------------------- */

/* Retire a closed poll of which no packet and no op follows. */
static void retire_if_over(ls_poll *poll)
{
    if (poll->removing || atomic_load(&poll->queued)) return;
    ls_mutex_lock(&poll->polls->mutex);
    poll->retired_ns = ls_clock_ns();
    poll->op.actor = NULL;
    ls_list_remove(&poll->retired); /* it is in the list when a late packet has posted the op again */
    ls_list_push(&poll->polls->retired, &poll->retired);
    ls_mutex_unlock(&poll->polls->mutex);
}

static void poll_packet(ls_thread_ctx *ctx, const ls_packet *packet)
{
    ls_poll *poll = packet->key;
    atomic_fetch_or(&poll->pending, packet->events);
    if (atomic_exchange(&poll->queued, true)) return;
    if (!atomic_load(&poll->closed)) {
        ls_actor_post(poll->op.actor, ctx, &poll->op);
        return;
    }
    atomic_store(&poll->queued, false);
    if (atomic_exchange(&poll->pending, 0) & LS_EVENT_REMOVE) atomic_store(&poll->removing, false);
    retire_if_over(poll);
}

static void poll_op_done(ls_thread_ctx *ctx, ls_op *op)
{
    ls_poll *poll = LS_CONTAINER(op, ls_poll, op);
    atomic_store(&poll->queued, false);
    uint32_t events = atomic_exchange(&poll->pending, 0);
    if (events & LS_EVENT_REMOVE) {
        events = LS_EVENT_REMOVE;
        poll->removing = false;
    }
    if (poll->closed)
        retire_if_over(poll);
    else if (!poll->removing)
        poll->report(ctx, poll, events);
}

/* ---- the calls ---------------------------------------------------------------------------------------------- */

int ls_poll_open(ls_polls *polls, const ls_poll_options *options, ls_poll **out)
{
    int err = LS_ENOMEM;
    ls_mutex_lock(&polls->mutex);
    ls_poll *poll = poll_alloc(polls);
    if (poll == NULL) goto unlock;
    poll->handler.handle = poll_packet;
    poll->op = (ls_op){.done = poll_op_done, .actor = options->actor};
    atomic_store(&poll->pending, 0);
    atomic_store(&poll->removing, false);
    atomic_store(&poll->closed, false);
    poll->trigger = options->trigger;
    poll->fd = options->fd;
    poll->polls = polls;
    poll->report = options->report;
    poll->user = options->user;
    err = submit(poll, LS_NOTIFY_REGISTER, options->events);
    if (err < 0) { /* no packet exists: the next poll may use the memory */
        poll->retired_ns = 0;
        poll->op.actor = NULL;
        ls_list_push(polls->retired.next, &poll->retired); /* the front: before the oldest */
        goto unlock;
    }
    table_remove(polls, poll->fd); /* the poll of an earlier descriptor with this number */
    ls_poll **at = link_of(polls, poll->fd);
    poll->in_bucket = NULL;
    *at = poll;
    *out = poll;
unlock:
    ls_mutex_unlock(&polls->mutex);
    return err;
}

void *ls_poll_user(const ls_poll *poll)
{
    return poll->user;
}

ls_fd ls_poll_fd(const ls_poll *poll)
{
    return poll->fd;
}

uint16_t ls_poll_events(const ls_poll *poll)
{
    return poll->events;
}

int ls_poll_arm(ls_poll *poll, uint16_t events)
{
    return submit_locked(poll, LS_NOTIFY_ENABLE, events);
}

int ls_poll_remove(ls_poll *poll)
{
    const int err = submit_locked(poll, LS_NOTIFY_REMOVE, 0);
    poll->removing = err == LS_OK;
    return err;
}

void ls_poll_close(ls_poll *poll)
{
    poll->closed = true;
    if (!poll->removing) (void)ls_poll_remove(poll);
    retire_if_over(poll);
}

/* A poll of the actor that is open, or whose op is on its way, under the mutex; NULL: none. */
static ls_poll *poll_of(const ls_polls *polls, const ls_actor *actor, bool open)
{
    ls_poll *poll = polls->all;
    while (poll != NULL &&
           (poll->op.actor != actor || !(!atomic_load(&poll->closed) || (!open && atomic_load(&poll->queued)))))
        poll = poll->allocated;
    return poll;
}

void ls_polls_close_actor(ls_polls *polls, const ls_actor *actor)
{
    for (;;) {
        ls_mutex_lock(&polls->mutex);
        ls_poll *poll = poll_of(polls, actor, true);
        ls_mutex_unlock(&polls->mutex);
        if (poll == NULL) return;
        ls_poll_close(poll);
    }
}

bool ls_polls_idle(ls_polls *polls, const ls_actor *actor)
{
    ls_mutex_lock(&polls->mutex);
    const bool idle = poll_of(polls, actor, false) == NULL;
    ls_mutex_unlock(&polls->mutex);
    return idle;
}

ls_poll *ls_polls_find(ls_polls *polls, ls_fd fd, const ls_actor *actor, ls_poll_fn *report)
{
    ls_mutex_lock(&polls->mutex);
    ls_poll *poll = *link_of(polls, fd);
    if (poll != NULL && (poll->op.actor != actor || poll->report != report)) poll = NULL;
    ls_mutex_unlock(&polls->mutex);
    return poll;
}

void ls_polls_unregister(ls_polls *polls, ls_fd fd)
{
    ls_mutex_lock(&polls->mutex);
    table_remove(polls, fd);
    ls_port_unregister(polls->port, fd);
    ls_mutex_unlock(&polls->mutex);
}

int ls_polls_open(ls_port *port, ls_polls **out)
{
    ls_polls *polls = calloc(1, sizeof *polls);
    if (polls == NULL) return LS_ENOMEM;
    ls_mutex_open(&polls->mutex);
    polls->port = port;
    ls_node_init(&polls->retired);
    *out = polls;
    return LS_OK;
}

void ls_polls_close(ls_polls *polls)
{
    while (polls->all != NULL) {
        ls_poll *poll = polls->all;
        polls->all = poll->allocated;
        free(poll);
    }
    ls_mutex_close(&polls->mutex);
    free(polls);
}
