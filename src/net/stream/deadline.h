/* deadline.h - the deadlines of all streams of a port, with one timer of the port; and their peers. A tick runs as a packet, on any
 * thread, beside the owners of the streams. */
#ifndef LS_NET_DEADLINE_H
#define LS_NET_DEADLINE_H

#include "base/wheel.h"
#include "net/stream/peers.h"
#include "port/port.h"

typedef struct ls_deadlines ls_deadlines;
typedef struct ls_deadline ls_deadline;

/* One deadline, embedded. `due` runs under the lock of the deadlines, beside the owner: it may neither wait nor call a
 * function of this file. It returns the time at which it is to run again, 0: not again. entry.at_ms is the time
 * at which it should have run: a tick is late when the process stood still, or has too much to do. The owner may arm
 * the deadline at the same time, after it has found armed_ms 0: so armed_ms is 0 before `due` runs. */
struct ls_deadline {
    ls_wheel_entry entry; /* under the lock, but entry.armed_ms: when `due` runs next; 0: not armed */
};

typedef uint32_t ls_deadline_fn(ls_deadline *deadline, uint32_t now_ms);

ls_port *ls_deadlines_port(const ls_deadlines *deadlines);
ls_peers *ls_deadlines_peers(ls_deadlines *deadlines); /* of all streams; opened and closed with the deadlines */

/* LS_OK or LS_ENOMEM. `due` is the function of every deadline. */
int ls_deadlines_open(ls_port *port, ls_deadline_fn *due, ls_deadlines **out);
/* After the port was closed, because its queue may hold the packet of a tick. Streams may be freed later. */
void ls_deadlines_close(ls_deadlines *deadlines);

/* Have `due` run at at_ms (of the low 32 bits of ls_clock_coarse_ms, not 0) or earlier. Any thread that may use the
 * deadline. LS_OK; LS_ENOMEM: the port had no room for the timer, nothing is armed. */
int ls_deadline_arm(ls_deadlines *deadlines, ls_deadline *deadline, uint32_t at_ms);
/* Afterwards `due` does not run, and the memory may be freed. */
void ls_deadline_disarm(ls_deadlines *deadlines, ls_deadline *deadline);

/* The time in the form of ls_deadline: never 0, and whether one is before another. */
static inline uint32_t ls_deadline_time(uint64_t ms)
{
    return (uint32_t)ms != 0 ? (uint32_t)ms : 1;
}

static inline int ls_deadline_before(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

#endif
