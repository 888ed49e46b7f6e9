/* semaphore.h - ls.semaphore: a counting semaphore for all Lua states of a server.
 *
 * First come, first served: a permit that becomes free goes to the waiter that has waited longest.
 *
 *     a waiter waits  =>  at least `permits` permits are held
 *
 * Any thread may call these functions. */
#ifndef LS_SCRIPT_SEMAPHORE_H
#define LS_SCRIPT_SEMAPHORE_H

#include <stdbool.h>

#include "base/shared.h"
#include "base/waiter.h"

typedef struct ls_semaphore ls_semaphore;

enum { LS_SEMAPHORE_WAITS = 1 }; /* the result of a call that has queued its waiter */

/* Of ls_shared_get(), which opens and closes semaphores. Its options are an unsigned, the number of permits. In one
 * generation of the site all calls give the same number; the next generation may change it: permits that are held
 * above a smaller number are not given out again. */
extern const ls_shared_kind ls_semaphore_kind;
static inline ls_semaphore *ls_semaphore_of(ls_shared_object *object)
{
    return (ls_semaphore *)(void *)object; /* its first field */
}

/* Take a permit. LS_OK; if none is free, LS_SEMAPHORE_WAITS with a waiter, else LS_EAGAIN. */
int ls_semaphore_acquire(ls_semaphore *semaphore, ls_waiter *waiter);

/* Stop waiting. true: the waiter is off the queue and `wake` is not called. false: the waiter has a permit, and `wake`
 * was called or is about to be. */
bool ls_semaphore_cancel(void *semaphore, ls_waiter *waiter);

/* Return a permit. LS_OK; LS_EINVAL: no permit is held. */
int ls_semaphore_release(ls_semaphore *semaphore);

const char *ls_semaphore_name(const ls_semaphore *semaphore);
unsigned ls_semaphore_permits(ls_semaphore *semaphore);
unsigned ls_semaphore_taken(ls_semaphore *semaphore); /* permits that are held */

#endif
