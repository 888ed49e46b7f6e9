/* test_semaphore.c - semaphores: permits, order, waiters that give up; with threads: never more holders than
 * permits. */
#include "support.h"

#include <stdatomic.h>

#include "script/store/semaphore.h"
#include "script/store/sleeper.h"

static ls_semaphore *open_semaphore(unsigned permits)
{
    ls_shared_object *object;
    assert_int_equal(ls_semaphore_kind.open(&permits, &object), LS_OK);
    return ls_semaphore_of(object);
}

static void free_semaphore(ls_semaphore *semaphore)
{
    ls_semaphore_kind.close((ls_shared_object *)(void *)semaphore);
}

static bool redefine(ls_semaphore *semaphore, unsigned permits, bool reloaded)
{
    return ls_semaphore_kind.redefine((ls_shared_object *)(void *)semaphore, &permits, reloaded);
}

static unsigned wakes;

static void count_wake(ls_waiter *waiter)
{
    wakes++;
}

TEST(permits_go_to_the_first_waiter)
{
    ls_semaphore *semaphore = open_semaphore(2);
    ls_waiter waiters[3];
    wakes = 0;
    assert_int_equal(ls_semaphore_release(semaphore), LS_EINVAL);
    assert_int_equal(ls_semaphore_acquire(semaphore, NULL), LS_OK);
    assert_int_equal(ls_semaphore_acquire(semaphore, NULL), LS_OK);
    assert_int_equal(ls_semaphore_acquire(semaphore, NULL), LS_EAGAIN); /* one past the limit */
    for (unsigned n = 0; n < 3; n++) {
        ls_waiter_init(&waiters[n], count_wake);
        assert_int_equal(ls_semaphore_acquire(semaphore, &waiters[n]), LS_SEMAPHORE_WAITS);
    }
    assert_true(ls_semaphore_cancel(semaphore, &waiters[0]));
    assert_int_equal(ls_semaphore_release(semaphore), LS_OK);
    assert_int_equal(wakes, 1);
    assert_int_equal(waiters[1].result, LS_OK);
    assert_false(ls_semaphore_cancel(semaphore, &waiters[1])); /* it has the permit */
    assert_int_equal(ls_semaphore_acquire(semaphore, NULL), LS_EAGAIN);
    assert_int_equal(ls_semaphore_taken(semaphore), 2);
    assert_true(ls_semaphore_cancel(semaphore, &waiters[2]));
    assert_int_equal(ls_semaphore_release(semaphore), LS_OK);
    assert_int_equal(ls_semaphore_release(semaphore), LS_OK);
    assert_int_equal(ls_semaphore_release(semaphore), LS_EINVAL);
    free_semaphore(semaphore);
}

TEST(another_number_of_permits)
{
    ls_semaphore *semaphore = open_semaphore(1);
    ls_waiter waiters[2];
    wakes = 0;
    assert_int_equal(ls_semaphore_acquire(semaphore, NULL), LS_OK);
    for (unsigned n = 0; n < 2; n++) {
        ls_waiter_init(&waiters[n], count_wake);
        assert_int_equal(ls_semaphore_acquire(semaphore, &waiters[n]), LS_SEMAPHORE_WAITS);
    }
    assert_false(redefine(semaphore, 2, false));
    assert_true(redefine(semaphore, 1, false));
    assert_int_equal(wakes, 0);
    assert_true(redefine(semaphore, 2, true));
    assert_int_equal(wakes, 1);
    assert_true(redefine(semaphore, 1, true));
    assert_int_equal(ls_semaphore_permits(semaphore), 1);
    assert_int_equal(ls_semaphore_release(semaphore), LS_OK); /* one more is held than the number allows */
    assert_int_equal(wakes, 1);
    assert_int_equal(ls_semaphore_release(semaphore), LS_OK);
    assert_int_equal(wakes, 2);
    assert_int_equal(ls_semaphore_release(semaphore), LS_OK);
    free_semaphore(semaphore);
}

/* ---- threads ------------------------------------------------------------------------------------------------ */

enum { THREADS = 4, ROUNDS = 2000, PERMITS = 2 };

typedef struct crowd {
    ls_semaphore *semaphore;
    _Atomic unsigned inside;
    _Atomic bool too_many;
} crowd;

static void hold_and_release(void *arg)
{
    crowd *c = arg;
    sleeper s;
    sleeper_open(&s);
    for (unsigned n = 0; n < ROUNDS; n++) {
        sleeper_prepare(&s);
        if (ls_semaphore_acquire(c->semaphore, &s.waiter) == LS_SEMAPHORE_WAITS) {
            if (n % 3 == 0 && ls_semaphore_cancel(c->semaphore, &s.waiter)) continue;
            sleeper_wait(&s);
        }
        if (atomic_fetch_add(&c->inside, 1) >= PERMITS) atomic_store(&c->too_many, true);
        atomic_fetch_sub(&c->inside, 1);
        assert_int_equal(ls_semaphore_release(c->semaphore), LS_OK);
    }
    sleeper_close(&s);
}

TEST(never_more_holders_than_permits)
{
    crowd c = {.semaphore = open_semaphore(PERMITS)};
    ls_thread threads[THREADS];
    for (unsigned n = 0; n < THREADS; n++)
        assert_int_equal(ls_thread_start(&threads[n], "holder", hold_and_release, &c), LS_OK);
    for (unsigned n = 0; n < THREADS; n++) ls_thread_join(&threads[n]);
    assert_false(atomic_load(&c.too_many));
    assert_int_equal(ls_semaphore_taken(c.semaphore), 0);
    free_semaphore(c.semaphore);
}
