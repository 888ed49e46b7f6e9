/* grace.c - see grace.h. */
#include "sched/grace.h"

#include <stdlib.h>

int ls_grace_open(ls_grace *grace, ls_workers *workers)
{
    ls_workers_stats stats;
    ls_workers_stat(workers, &stats);
    *grace = (ls_grace){.workers = workers, .turns = calloc(stats.threads_max, sizeof *grace->turns)};
    return grace->turns != NULL ? LS_OK : LS_ENOMEM;
}

void ls_grace_close(ls_grace *grace)
{
    free(grace->turns);
    *grace = (ls_grace){.turns = NULL};
}

static void begin(ls_grace *grace)
{
    ls_workers_snapshot(grace->workers, grace->turns);
    grace->begun++;
}

uint64_t ls_grace_begin(ls_grace *grace)
{
    if (grace->begun > grace->ended) return grace->begun + 1; /* the snapshot under way is older than this moment */
    begin(grace);
    return grace->begun;
}

bool ls_grace_over(ls_grace *grace, uint64_t ticket)
{
    while (grace->ended < ticket) {
        if (grace->begun == grace->ended) begin(grace);
        if (!ls_workers_passed(grace->workers, grace->turns)) return false;
        grace->ended = grace->begun;
    }
    return true;
}
