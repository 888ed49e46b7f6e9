/* work.h - calls that may block, such as those on files, on threads of the port.
 *
 * A piece of work follows the rules of operations on sockets (port.h): once posted it completes exactly once, as a
 * packet that any thread may take. From the posting to the packet it belongs to the port, with the memory that it
 * refers to.
 *
 * At most LS_WORK_THREADS_MAX threads carry the work out, started when there is work and ended after LS_WORK_IDLE_MS
 * without. They begin pieces in the order of posting and run in parallel: when two pieces need an order, post the
 * second one after the packet of the first.
 *
 * ls_port_close drops the work that has not begun and waits for the rest; neither causes a packet. Their memory
 * belongs to the caller again when it returns. */
#ifndef LS_PORT_WORK_H
#define LS_PORT_WORK_H

#include "port/port.h"

enum { LS_WORK_THREADS_MAX = 4, LS_WORK_IDLE_MS = 5000 };

/* Set run, op.done and op.actor before posting. */
typedef struct ls_work {
    ls_op op;                             /* first */
    int64_t (*run)(struct ls_work *work); /* on a thread of the pool; its result is that of the packet */
} ls_work;

/* Have work->run(work) called on another thread. LS_PENDING, or LS_ENOMEM: no thread could be started, and the work
 * was not posted. */
int ls_port_work(ls_port *port, ls_work *work);

#endif
