/* work_internal.h - the pool of work.h, for the back ends, which open and close it. */
#ifndef LS_PORT_WORK_INTERNAL_H
#define LS_PORT_WORK_INTERNAL_H

#include "port/common_internal.h"
#include "port/work.h"

/* done(port, op) is called by the threads of the pool for each operation whose result is set. */
int ls_work_pool_open(ls_port *port, void (*done)(ls_port *port, ls_op *op), ls_work_pool **out);
void ls_work_pool_close(ls_work_pool *pool); /* drops queued work without a packet, waits for the work that runs */

#endif
