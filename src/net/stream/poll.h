/* poll.h - watches descriptors that something else owns from inside an actor: those of c-ares, those that Lua code
 * brings. It stands on the notifications of the port (port/notify.h), whose packets arrive on any thread: a poll
 * collects their events and reports them inside its actor, several at once if the actor was busy.
 *
 * A descriptor has at most one poll. The system reuses the number of a closed descriptor, and the port identifies
 * registrations by that number: so all polls of a port are in one table (ls_polls), and a poll whose descriptor was
 * closed and registered again by another poll submits nothing to the port any more.
 *
 * A thread may hold a packet of a poll that has ended. So the memory of a poll is not freed: another poll uses it, two
 * seconds later at the earliest. A packet that arrives even later causes one report without an event.
 *
 * A poll is used inside its actor, by any thread; the table by any thread. */
#ifndef LS_NET_POLL_H
#define LS_NET_POLL_H

#include "port/notify.h"

typedef struct ls_polls ls_polls;
typedef struct ls_poll ls_poll;

/* `events`: LS_EVENT_*. With LS_EVENT_REMOVE it is the last call: see ls_poll_remove. The function may close the
 * poll. */
typedef void ls_poll_fn(ls_thread_ctx *ctx, ls_poll *poll, uint32_t events);

typedef struct ls_poll_options {
    ls_actor *actor;
    ls_fd fd;
    uint16_t events; /* LS_EVENT_IN, _OUT, _HANGUP */
    uint8_t trigger; /* LS_TRIGGER_*, of every arming. With LS_TRIGGER_ONESHOT a report disarms the poll */
    ls_poll_fn *report;
    void *user;
} ls_poll_options;

/* LS_OK, LS_ENOMEM or the error of the mutex. */
int ls_polls_open(ls_port *port, ls_polls **out);
/* Frees the polls, too. No thread runs any more; the port may be closed. */
void ls_polls_close(ls_polls *polls);

/* Watch a descriptor; the poll is armed. LS_OK, or an error of LS_NOTIFY_REGISTER (port/notify.h). */
int ls_poll_open(ls_polls *polls, const ls_poll_options *options, ls_poll **out);
void *ls_poll_user(const ls_poll *poll);
ls_fd ls_poll_fd(const ls_poll *poll);
uint16_t ls_poll_events(const ls_poll *poll); /* of the last arming */

/* Arm the poll, or change the events of an armed one: a condition that holds now is reported. LS_OK; LS_ENOENT: the
 * descriptor was closed; LS_ENOMEM, LS_ELIMIT. */
int ls_poll_arm(ls_poll *poll, uint16_t events);

/* End the registration, so that the descriptor can be registered again after the report LS_EVENT_REMOVE, which follows
 * alone. LS_OK; LS_ENOENT: it has ended already, and no report follows. Once. */
int ls_poll_remove(ls_poll *poll);

/* No report follows; the registration ends, if it exists. The port is open. */
void ls_poll_close(ls_poll *poll);

/* The poll of this descriptor if it has this actor and this report function, else NULL. */
ls_poll *ls_polls_find(ls_polls *polls, ls_fd fd, const ls_actor *actor, ls_poll_fn *report);

/* For the live close of an actor. ls_polls_close_actor closes its polls: their users must not use them any more.
 * ls_polls_idle: no poll of the actor is open, and none is about to run inside it. Inside the actor. */
void ls_polls_close_actor(ls_polls *polls, const ls_actor *actor);
bool ls_polls_idle(ls_polls *polls, const ls_actor *actor);

/* The descriptor is about to be closed: its registration ends at once, whichever poll has it. That poll is still to be
 * closed, and may still report events that it has collected. */
void ls_polls_unregister(ls_polls *polls, ls_fd fd);

#endif
