/* test_semaphore.c - semaphores: permits, order, waiters that give up; with threads: never more holders than permits.
 * Named objects: one number per generation of the site. */
#include "support.h"

#include <stdatomic.h>
#include <stdio.h>

#include "base/thread.h"
#include "script/shared/channel.h"
#include "script/shared/named.h"
#include "script/shared/semaphore.h"

static ls_semaphore *open_semaphore(unsigned permits)
{
    ls_semaphore *semaphore;
    assert_int_equal(ls_semaphore_open(permits, &semaphore), LS_OK);
    return semaphore;
}

static unsigned wakes;

static void count_wake(ls_waiter *waiter)
{
    (void)waiter;
    wakes++;
}

static void permits_go_to_the_first_waiter(void **state)
{
    ls_semaphore *semaphore = open_semaphore(2);
    ls_waiter waiters[3];
    (void)state;
    wakes = 0;
    assert_int_equal(ls_semaphore_release(semaphore), LS_EINVAL);
    assert_int_equal(ls_semaphore_acquire(semaphore, NULL), LS_OK);
    assert_int_equal(ls_semaphore_acquire(semaphore, NULL), LS_OK);
    assert_int_equal(ls_semaphore_acquire(semaphore, NULL), LS_EAGAIN); /* one past the limit */
    for (unsigned n = 0; n < 3; n++) {
        ls_waiter_init(&waiters[n], count_wake);
        assert_int_equal(ls_semaphore_acquire(semaphore, &waiters[n]), LS_SEMAPHORE_WAITS);
    }
    assert_true(ls_semaphore_forget(semaphore, &waiters[0]));
    assert_int_equal(ls_semaphore_release(semaphore), LS_OK);
    assert_int_equal(wakes, 1);
    assert_int_equal(waiters[1].result, LS_OK);
    assert_false(ls_semaphore_forget(semaphore, &waiters[1])); /* it has the permit */
    assert_int_equal(ls_semaphore_acquire(semaphore, NULL), LS_EAGAIN);
    assert_int_equal(ls_semaphore_held(semaphore), 2);
    assert_true(ls_semaphore_forget(semaphore, &waiters[2]));
    assert_int_equal(ls_semaphore_release(semaphore), LS_OK);
    assert_int_equal(ls_semaphore_release(semaphore), LS_OK);
    assert_int_equal(ls_semaphore_release(semaphore), LS_EINVAL);
    ls_semaphore_free(semaphore);
}

static void another_number_of_permits(void **state)
{
    ls_semaphore *semaphore = open_semaphore(1);
    ls_waiter waiters[2];
    (void)state;
    wakes = 0;
    assert_int_equal(ls_semaphore_acquire(semaphore, NULL), LS_OK);
    for (unsigned n = 0; n < 2; n++) {
        ls_waiter_init(&waiters[n], count_wake);
        assert_int_equal(ls_semaphore_acquire(semaphore, &waiters[n]), LS_SEMAPHORE_WAITS);
    }
    ls_semaphore_resize(semaphore, 2);
    assert_int_equal(wakes, 1);
    ls_semaphore_resize(semaphore, 1);
    assert_int_equal(ls_semaphore_permits(semaphore), 1);
    assert_int_equal(ls_semaphore_release(semaphore), LS_OK); /* one more is held than the number allows */
    assert_int_equal(wakes, 1);
    assert_int_equal(ls_semaphore_release(semaphore), LS_OK);
    assert_int_equal(wakes, 2);
    assert_int_equal(ls_semaphore_release(semaphore), LS_OK);
    ls_semaphore_free(semaphore);
}

/* ---- threads ------------------------------------------------------------------------------------------------ */

enum { THREADS = 4, ROUNDS = 2000, PERMITS = 2 };

typedef struct sleeper {
    ls_waiter waiter; /* first */
    ls_mutex mutex;
    ls_cond cond;
    bool woken;
} sleeper;

static void sleeper_wake(ls_waiter *waiter)
{
    sleeper *s = LS_CONTAINER(waiter, sleeper, waiter);
    ls_mutex_lock(&s->mutex);
    s->woken = true;
    ls_cond_signal(&s->cond);
    ls_mutex_unlock(&s->mutex);
}

typedef struct crowd {
    ls_semaphore *semaphore;
    _Atomic unsigned inside;
    _Atomic bool too_many;
} crowd;

static void hold_and_release(void *arg)
{
    crowd *c = arg;
    sleeper s;
    assert_int_equal(ls_mutex_open(&s.mutex), LS_OK);
    assert_int_equal(ls_cond_open(&s.cond), LS_OK);
    for (unsigned n = 0; n < ROUNDS; n++) {
        ls_waiter_init(&s.waiter, sleeper_wake);
        s.woken = false;
        if (ls_semaphore_acquire(c->semaphore, &s.waiter) == LS_SEMAPHORE_WAITS) {
            if (n % 3 == 0 && ls_semaphore_forget(c->semaphore, &s.waiter)) continue;
            ls_mutex_lock(&s.mutex);
            while (!s.woken) ls_cond_wait(&s.cond, &s.mutex);
            ls_mutex_unlock(&s.mutex);
        }
        if (atomic_fetch_add(&c->inside, 1) >= PERMITS) atomic_store(&c->too_many, true);
        atomic_fetch_sub(&c->inside, 1);
        assert_int_equal(ls_semaphore_release(c->semaphore), LS_OK);
    }
    ls_cond_close(&s.cond);
    ls_mutex_close(&s.mutex);
}

static void never_more_holders_than_permits(void **state)
{
    crowd c = {.semaphore = open_semaphore(PERMITS)};
    ls_thread threads[THREADS];
    (void)state;
    for (unsigned n = 0; n < THREADS; n++)
        assert_int_equal(ls_thread_start(&threads[n], "holder", hold_and_release, &c), LS_OK);
    for (unsigned n = 0; n < THREADS; n++) ls_thread_join(&threads[n]);
    assert_false(atomic_load(&c.too_many));
    assert_int_equal(ls_semaphore_held(c.semaphore), 0);
    ls_semaphore_free(c.semaphore);
}

/* ---- names -------------------------------------------------------------------------------------------------- */

static int get_named(ls_named *named, const char *name, size_t number, const char *where, uint64_t generation,
                     void **object, char message[LS_NAMED_MESSAGE_BYTES])
{
    const ls_named_call call = {name, strlen(name), number, where, generation};
    const char *kept;
    message[0] = '\0';
    const int err = ls_named_get(named, &call, object, &kept, message, LS_NAMED_MESSAGE_BYTES);
    if (err == LS_OK) assert_string_equal(kept, name);
    return err;
}

static void one_number_per_generation(void **state)
{
    char message[LS_NAMED_MESSAGE_BYTES];
    void *first, *again, *other;
    ls_named *named;
    (void)state;
    assert_int_equal(ls_named_open(&ls_named_channels, &named), LS_OK);
    assert_int_equal(get_named(named, "jobs", 0, "site.lua:1", 1, &first, message), LS_OK);
    assert_int_equal(ls_channel_capacity(first), 1000);
    assert_int_equal(get_named(named, "jobs", 10, "site.lua:2", 1, &again, message), LS_OK); /* over the default */
    assert_ptr_equal(first, again);
    assert_int_equal(ls_channel_capacity(first), 10);
    assert_int_equal(get_named(named, "jobs", 10, "site.lua:3", 1, &again, message), LS_OK);
    assert_int_equal(get_named(named, "jobs", 0, "site.lua:4", 1, &again, message), LS_OK);
    assert_int_equal(get_named(named, "jobs", 20, "site.lua:5", 1, &again, message), LS_EEXIST);
    assert_string_equal(message, "ls.channel: 'jobs' has capacity 10 by the call at site.lua:2, and 20 by the call at "
                                 "site.lua:5; give both the same number");
    assert_int_equal(get_named(named, "jobs", 20, "site.lua:2", 2, &again, message), LS_OK); /* a reload */
    assert_ptr_equal(first, again);
    assert_int_equal(ls_channel_capacity(first), 20);
    assert_int_equal(get_named(named, "jobs", 10, "site.lua:2", 1, &again, message), LS_OK); /* of the old site */
    assert_int_equal(ls_channel_capacity(first), 20);
    assert_int_equal(get_named(named, "jobs", 30, "b.lua:1", 2, &again, message), LS_EEXIST);
    assert_int_equal(get_named(named, "job", 0, "site.lua:9", 2, &other, message), LS_OK);
    assert_ptr_not_equal(first, other);
    ls_named_close(named);
    ls_named_close(NULL);
}

static void the_number_of_names_is_limited(void **state)
{
    char message[LS_NAMED_MESSAGE_BYTES], name[20];
    void *object;
    ls_named *named;
    (void)state;
    assert_int_equal(ls_named_open(&ls_named_semaphores, &named), LS_OK);
    for (unsigned n = 0; n < LS_NAMED_MAX; n++) {
        (void)snprintf(name, sizeof name, "%u", n);
        assert_int_equal(get_named(named, name, 2, "site.lua:1", 1, &object, message), LS_OK);
    }
    assert_int_equal(get_named(named, "x", 2, "site.lua:1", 1, &object, message), LS_ELIMIT);
    assert_string_equal(message, "ls.semaphore: more than 10000 names; a name lasts as long as the server");
    assert_int_equal(get_named(named, "0", 2, "site.lua:1", 1, &object, message), LS_OK);
    assert_int_equal(ls_semaphore_permits(object), 2);
    ls_named_close(named);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permits_go_to_the_first_waiter),  cmocka_unit_test(another_number_of_permits),
        cmocka_unit_test(never_more_holders_than_permits), cmocka_unit_test(one_number_per_generation),
        cmocka_unit_test(the_number_of_names_is_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
