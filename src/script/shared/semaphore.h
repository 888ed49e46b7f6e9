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

#include "script/shared/waiter.h"

typedef struct ls_semaphore ls_semaphore;

enum { LS_SEMAPHORE_WAITS = 1 }; /* the result of a call that has queued its waiter */

/* LS_OK or LS_ENOMEM. `permits` is at least 1. */
int ls_semaphore_open(unsigned permits, ls_semaphore **out);
void ls_semaphore_free(ls_semaphore *semaphore); /* it has no waiters */

/* Take a permit. LS_OK; if none is free, LS_SEMAPHORE_WAITS with a waiter, else LS_EAGAIN. */
int ls_semaphore_acquire(ls_semaphore *semaphore, ls_waiter *waiter);

/* Stop waiting. true: the waiter is off the queue and `wake` is not called. false: the waiter has a permit, and `wake`
 * was called or is about to be. */
bool ls_semaphore_forget(ls_semaphore *semaphore, ls_waiter *waiter);

/* Return a permit. LS_OK; LS_EINVAL: no permit is held. */
int ls_semaphore_release(ls_semaphore *semaphore);

/* Change the number of permits. With fewer, permits that are held above the number are not given out again. */
void ls_semaphore_resize(ls_semaphore *semaphore, unsigned permits);

unsigned ls_semaphore_permits(ls_semaphore *semaphore);
unsigned ls_semaphore_held(ls_semaphore *semaphore); /* permits that are held */

#endif
