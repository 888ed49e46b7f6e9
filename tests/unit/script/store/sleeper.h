/* sleeper.h - a thread that waits for what a channel or a semaphore decides. */
#ifndef LS_TESTS_SLEEPER_H
#define LS_TESTS_SLEEPER_H

#include "base/os/thread.h"
#include "base/waiter.h"
#include "support.h"

typedef struct sleeper { /* the last decision may arrive after it has given up */
    ls_waiter waiter;    /* first */
    ls_mutex mutex;
    ls_cond cond;
    bool woken;
} sleeper;

static inline void sleeper_wake(ls_waiter *waiter)
{
    sleeper *s = LS_CONTAINER(waiter, sleeper, waiter);
    ls_mutex_lock(&s->mutex);
    s->woken = true;
    ls_cond_signal(&s->cond);
    ls_mutex_unlock(&s->mutex);
}

static inline void sleeper_open(sleeper *s)
{
    ls_mutex_open(&s->mutex);
    ls_cond_open(&s->cond);
}

static inline void sleeper_close(sleeper *s)
{
    ls_cond_close(&s->cond);
    ls_mutex_close(&s->mutex);
}

static inline void sleeper_prepare(sleeper *s)
{
    ls_waiter_init(&s->waiter, sleeper_wake);
    s->woken = false;
}

static inline void sleeper_wait(sleeper *s) /* the waiter must stay until `wake` has run */
{
    ls_mutex_lock(&s->mutex);
    while (!s->woken) ls_cond_wait(&s->cond, &s->mutex);
    ls_mutex_unlock(&s->mutex);
}

#endif
