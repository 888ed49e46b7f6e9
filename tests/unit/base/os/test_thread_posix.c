/* test_thread_posix.c - the name and the signal mask of a thread, read with POSIX calls. */
#define _GNU_SOURCE
#include "support.h"

#include <pthread.h>
#include <signal.h>

#include "base/os/thread.h"

typedef struct look {
    int signals_open;
    char name[16];
} look;

static void look_around(void *arg)
{
    look *s = arg;
    sigset_t mask;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mask);
    s->signals_open = !sigismember(&mask, SIGTERM) + !sigismember(&mask, SIGINT) + !sigismember(&mask, SIGHUP);
    (void)pthread_getname_np(pthread_self(), s->name, sizeof s->name);
}

TEST(a_thread_has_a_name_and_takes_no_signals)
{
    look seen = {.signals_open = -1};
    ls_thread thread;
    sigset_t mask;
    assert_int_equal(ls_thread_start(&thread, "fifteen-letters-and-more", look_around, &seen), LS_OK);
    ls_thread_join(&thread);
    assert_int_equal(seen.signals_open, 0);
    assert_string_equal(seen.name, "fifteen-letters");
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mask);
    assert_false(sigismember(&mask, SIGTERM)); /* the creator's mask is unchanged */
}
