/* test_thread.c - threads, mutexes and condition variables. */
#include "support.h"

#include "base/clock.h"
#include "base/os/thread.h"

enum { THREADS = 4, ROUNDS = 10000 };

typedef struct shared {
    ls_mutex mutex;
    ls_cond cond;
    int count;
} shared;

static void shared_open(shared *s)
{
    memset(s, 0, sizeof *s);
    ls_mutex_open(&s->mutex);
    ls_cond_open(&s->cond);
}

static void shared_close(shared *s)
{
    ls_cond_close(&s->cond);
    ls_mutex_close(&s->mutex);
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

TEST_IN(shared, s, a_mutex_excludes)
{
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

TEST_IN(shared, s, a_try_does_not_wait)
{
    for (int held = 0; held < 2; held++) {
        ls_thread thread;
        if (held) ls_mutex_lock(&s->mutex);
        assert_int_equal(ls_thread_start(&thread, "try", try_to_lock, s), LS_OK);
        ls_thread_join(&thread);
        if (held) ls_mutex_unlock(&s->mutex);
        assert_int_equal(s->count, !held);
    }
}

TEST_IN(shared, s, a_broadcast_wakes_all)
{
    ls_thread threads[THREADS];
    for (int i = 0; i < THREADS; i++) assert_int_equal(ls_thread_start(&threads[i], "wait", wait_for_one, s), LS_OK);
    ls_mutex_lock(&s->mutex);
    s->count = 1;
    ls_mutex_unlock(&s->mutex);
    ls_cond_broadcast(&s->cond);
    for (int i = 0; i < THREADS; i++) ls_thread_join(&threads[i]);
    assert_int_equal(s->count, 1 + THREADS);
}

TEST_IN(shared, s, a_wait_with_a_timeout_ends)
{
    const uint64_t before = ls_clock_ns();
    ls_mutex_lock(&s->mutex);
    while (ls_cond_wait_ms(&s->cond, &s->mutex, 30)) {
        /* spurious wake-up: wait again */
    }
    ls_mutex_unlock(&s->mutex);
    assert_true(ls_clock_ns() - before >= 30 * UINT64_C(1000000));
}

TEST(there_is_a_processor)
{
    assert_true(ls_cpu_count() >= 1);
}
