/* waiter.h - a place in the queue of a channel or a semaphore.
 *
 * The owner of a waiter is a task of some Lua state, which this folder does not know. The channel or the semaphore
 * decides under its lock, sets `result` and calls `wake` after it has released the lock, exactly once, from whichever
 * thread made the decision. `wake` must not call back into the channel or the semaphore. The memory of the waiter must
 * stay valid until `wake` has been called, or until ls_channel_cancel() or ls_semaphore_cancel() has returned true. */
#ifndef LS_BASE_WAITER_H
#define LS_BASE_WAITER_H

#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "base/os/thread.h"

typedef struct ls_waiter ls_waiter;
struct ls_waiter {
    ls_node node;
    void (*wake)(ls_waiter *waiter);
    struct ls_message *message; /* channel: of a sender, the message to send; of a receiver, the received message */
    uint64_t number;            /* dict_store.h: of the change that it waits for */
    int result;                 /* LS_EAGAIN: it waits; else LS_OK or LS_ECLOSED */
};

/* Prepare a waiter for one wait. */
static inline void ls_waiter_init(ls_waiter *waiter, void (*wake)(ls_waiter *waiter))
{
    *waiter = (ls_waiter){.wake = wake, .result = LS_EAGAIN};
    ls_node_init(&waiter->node);
}

/* Stop waiting in the queue that `lock` guards. true: the waiter is off the queue and `wake` is not called. false: it
 * is decided, and `wake` was called or is about to be. */
static inline bool ls_waiter_cancel(ls_mutex *lock, ls_waiter *waiter)
{
    ls_mutex_lock(lock);
    const bool waits = waiter->result == LS_EAGAIN;
    if (waits) ls_list_remove(&waiter->node);
    ls_mutex_unlock(lock);
    return waits;
}

/* Decide for a waiter: take it off its queue and append it to `woken`. The caller holds the lock. */
static inline void ls_waiter_decide(ls_waiter *waiter, int result, ls_node *woken)
{
    ls_list_remove(&waiter->node);
    waiter->result = result;
    ls_list_push(woken, &waiter->node);
}

/* Wake the waiters in the list. The caller holds no lock. */
static inline void ls_waiters_wake(ls_node *woken)
{
    while (!ls_list_empty(woken)) {
        ls_waiter *waiter = LS_CONTAINER(woken->next, ls_waiter, node);
        ls_list_remove(&waiter->node);
        waiter->wake(waiter); /* which may free it */
    }
}

#endif
