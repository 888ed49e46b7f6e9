/* semaphore.c - see semaphore.h. */
#include "script/store/semaphore.h"

#include <assert.h>
#include <stdlib.h>

#include "base/invariant.h"
#include "base/os/thread.h"

struct ls_semaphore {
    ls_shared_object shared;
    ls_mutex mutex; /* guards the fields below */
    unsigned permits, held;
    ls_node waiters; /* the one that has waited longest first */
};

static void unlock(ls_semaphore *semaphore)
{
    LS_INVARIANT(ls_list_empty(&semaphore->waiters) || semaphore->held >= semaphore->permits);
    ls_mutex_unlock(&semaphore->mutex);
}

int ls_semaphore_acquire(ls_semaphore *semaphore, ls_waiter *waiter)
{
    int result = LS_OK;
    ls_mutex_lock(&semaphore->mutex);
    if (semaphore->held < semaphore->permits) {
        semaphore->held++;
    } else {
        result = waiter != NULL ? LS_SEMAPHORE_WAITS : LS_EAGAIN;
        if (waiter != NULL) ls_list_push(&semaphore->waiters, &waiter->node);
    }
    unlock(semaphore);
    return result;
}

bool ls_semaphore_cancel(void *semaphore, ls_waiter *waiter)
{
    return ls_waiter_cancel(&((ls_semaphore *)semaphore)->mutex, waiter);
}

/* Give the free permits to waiters. The caller holds the lock. */
static void give_out(ls_semaphore *semaphore, ls_node *woken)
{
    while (semaphore->held < semaphore->permits && !ls_list_empty(&semaphore->waiters)) {
        semaphore->held++;
        ls_waiter_decide(LS_CONTAINER(semaphore->waiters.next, ls_waiter, node), LS_OK, woken);
    }
}

int ls_semaphore_release(ls_semaphore *semaphore)
{
    int result = LS_OK;
    ls_node woken = LS_LIST_INIT(woken);
    ls_mutex_lock(&semaphore->mutex);
    if (semaphore->held == 0) {
        result = LS_EINVAL;
    } else {
        semaphore->held--;
        give_out(semaphore, &woken);
    }
    unlock(semaphore);
    ls_waiters_wake(&woken);
    return result;
}

const char *ls_semaphore_name(const ls_semaphore *semaphore)
{
    return semaphore->shared.name;
}

unsigned ls_semaphore_permits(ls_semaphore *semaphore)
{
    ls_mutex_lock(&semaphore->mutex);
    const unsigned permits = semaphore->permits;
    unlock(semaphore);
    return permits;
}

unsigned ls_semaphore_taken(ls_semaphore *semaphore)
{
    ls_mutex_lock(&semaphore->mutex);
    const unsigned held = semaphore->held;
    unlock(semaphore);
    return held;
}

/* ---- the kind ----------------------------------------------------------------------------------------------- */

static int semaphore_open(const void *options, ls_shared_object **out)
{
    ls_semaphore *semaphore = calloc(1, sizeof *semaphore);
    if (semaphore == NULL) return LS_ENOMEM;
    ls_mutex_open(&semaphore->mutex);
    semaphore->permits = *(const unsigned *)options;
    ls_node_init(&semaphore->waiters);
    *out = &semaphore->shared;
    return LS_OK;
}

static void semaphore_close(ls_shared_object *object)
{
    ls_semaphore *semaphore = ls_semaphore_of(object);
    assert(ls_list_empty(&semaphore->waiters));
    ls_mutex_close(&semaphore->mutex);
    free(semaphore);
}

static bool semaphore_redefine(ls_shared_object *object, const void *options, bool reloaded)
{
    const unsigned permits = *(const unsigned *)options;
    ls_semaphore *semaphore = ls_semaphore_of(object);
    ls_node woken = LS_LIST_INIT(woken);
    if (!reloaded) return permits == semaphore->permits;
    ls_mutex_lock(&semaphore->mutex);
    semaphore->permits = permits;
    give_out(semaphore, &woken);
    unlock(semaphore);
    ls_waiters_wake(&woken);
    return true;
}

const ls_shared_kind ls_semaphore_kind = {
    .name = "semaphore", .open = semaphore_open, .close = semaphore_close, .redefine = semaphore_redefine};
