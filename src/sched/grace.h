/* grace.h - waits until the packets that run now have ended, for several waits at a time.
 *
 * A ticket stands for the moment of ls_grace_begin. It is over when every worker has left the packet of that moment
 * (see ls_workers_snapshot); then an object that was unlinked before is used by no packet. One snapshot is under way
 * at a time; tickets that are taken meanwhile wait for the next one.
 *
 * The caller serialises all calls. ls_grace_over polls: call it again after some milliseconds. */
#ifndef LS_SCHED_GRACE_H
#define LS_SCHED_GRACE_H

#include "sched/workers.h"

typedef struct ls_grace {
    ls_workers *workers;
    uint64_t *turns;       /* of the snapshot */
    uint64_t begun, ended; /* numbers of snapshots; ended <= begun <= ended + 1 */
} ls_grace;

int ls_grace_open(ls_grace *grace, ls_workers *workers); /* LS_OK or LS_ENOMEM */
void ls_grace_close(ls_grace *grace);                    /* also of one that is all zero */

uint64_t ls_grace_begin(ls_grace *grace); /* the ticket, > 0 */
bool ls_grace_over(ls_grace *grace, uint64_t ticket);

#endif
