/* test_thread.c - threads, mutexes and condition variables. */
#include "support.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/os/thread.h"

enum { THREADS = 4, ROUNDS = 10000 };

typedef struct shared {
    ls_mutex mutex;
    ls_cond cond;
    int count;
} shared;

static int open_shared(void **state)
{
    shared *s = calloc(1, sizeof *s);
    if (s == NULL || ls_mutex_open(&s->mutex) < 0 || ls_cond_open(&s->cond) < 0) return -1;
    *state = s;
    return 0;
}

static int close_shared(void **state)
{
    shared *s = *state;
    ls_cond_close(&s->cond);
    ls_mutex_close(&s->mutex);
    free(s);
    return 0;
}

static void count_up(void *arg)
{
    shared *s = arg;
    for (int i = 0; i < ROUNDS; i++) {
        ls_mutex_lock(&s->mutex);
        s->count++;
        ls_mutex_unlock(&s->mutex);
    }
}

static void a_mutex_excludes(void **state)
{
    shared *s = *state;
    ls_thread threads[THREADS];
    for (int i = 0; i < THREADS; i++) assert_int_equal(ls_thread_start(&threads[i], "count", count_up, s), LS_OK);
    for (int i = 0; i < THREADS; i++) ls_thread_join(&threads[i]);
    assert_int_equal(s->count, THREADS * ROUNDS);
}

static void wait_for_one(void *arg)
{
    shared *s = arg;
    ls_mutex_lock(&s->mutex);
    while (s->count == 0) ls_cond_wait(&s->cond, &s->mutex);
    s->count++;
    ls_mutex_unlock(&s->mutex);
}

static void try_to_lock(void *arg)
{
    shared *s = arg;
    s->count = ls_mutex_try_lock(&s->mutex);
    if (s->count > 0) ls_mutex_unlock(&s->mutex);
}

static void a_try_does_not_wait(void **state)
{
    shared *s = *state;
    for (int held = 0; held < 2; held++) {
        ls_thread thread;
        if (held) ls_mutex_lock(&s->mutex);
        assert_int_equal(ls_thread_start(&thread, "try", try_to_lock, s), LS_OK);
        ls_thread_join(&thread);
        if (held) ls_mutex_unlock(&s->mutex);
        assert_int_equal(s->count, !held);
    }
}

static void a_broadcast_wakes_all(void **state)
{
    shared *s = *state;
    ls_thread threads[THREADS];
    for (int i = 0; i < THREADS; i++) assert_int_equal(ls_thread_start(&threads[i], "wait", wait_for_one, s), LS_OK);
    ls_mutex_lock(&s->mutex);
    s->count = 1;
    ls_mutex_unlock(&s->mutex);
    ls_cond_broadcast(&s->cond);
    for (int i = 0; i < THREADS; i++) ls_thread_join(&threads[i]);
    assert_int_equal(s->count, 1 + THREADS);
}

static void a_wait_with_a_timeout_ends(void **state)
{
    shared *s = *state;
    const uint64_t before = ls_clock_ns();
    ls_mutex_lock(&s->mutex);
    while (ls_cond_wait_ms(&s->cond, &s->mutex, 30)) {
        /* spurious wake-up: wait again */
    }
    ls_mutex_unlock(&s->mutex);
    assert_true(ls_clock_ns() - before >= 30 * UINT64_C(1000000));
}

static void there_is_a_processor(void **state)
{
    (void)state;
    assert_true(ls_cpu_count() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_mutex_excludes, open_shared, close_shared),
        cmocka_unit_test_setup_teardown(a_try_does_not_wait, open_shared, close_shared),
        cmocka_unit_test_setup_teardown(a_broadcast_wakes_all, open_shared, close_shared),
        cmocka_unit_test_setup_teardown(a_wait_with_a_timeout_ends, open_shared, close_shared),
        cmocka_unit_test(there_is_a_processor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
