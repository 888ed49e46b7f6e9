/* test_signals_posix.c - which signals reach the callbacks, what they leave alone, and what a child process
 * inherits. */
#define _GNU_SOURCE
#include "support.h"

#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include "base/os/signals.h"
#include "base/os/thread.h"

typedef struct seen {
    sem_t arrived;
    int stops;
    char names[64]; /* of the other signals, in their order */
} seen;

static void on_stop(void *user)
{
    seen *s = user;
    s->stops++;
    (void)sem_post(&s->arrived);
}

static void on_other(void *user, const char *name)
{
    seen *s = user;
    (void)strncat(s->names, name, sizeof s->names - strlen(s->names) - 1);
    (void)sem_post(&s->arrived);
}

static ls_signals *begin(seen *s, bool others)
{
    ls_signals *signals;
    *s = (seen){.stops = 0};
    assert_int_equal(sem_init(&s->arrived, 0, 0), 0);
    const ls_signals_options options = {.on_stop = on_stop, .on_other = others ? on_other : NULL, .user = s};
    assert_int_equal(ls_signals_open(&options, &signals), LS_OK);
    return signals;
}

static void send_and_await(seen *s, int number)
{
    assert_int_equal(kill(getpid(), number), 0);
    while (sem_wait(&s->arrived) < 0) assert_int_equal(errno, EINTR);
}

static void *action_of(int number)
{
    struct sigaction action;
    assert_int_equal(sigaction(number, NULL, &action), 0);
    return (void *)(uintptr_t)action.sa_handler;
}

TEST(each_signal_reaches_its_callback)
{
    seen s;
    ls_signals *signals = begin(&s, true);
    assert_int_equal(ls_signals_take_stops(signals), LS_OK);
    send_and_await(&s, SIGTERM);
    send_and_await(&s, SIGINT);
    send_and_await(&s, SIGTERM);
    assert_int_equal(s.stops, 3);
    send_and_await(&s, SIGHUP);
    send_and_await(&s, SIGUSR2);
    send_and_await(&s, SIGUSR1);
    assert_string_equal(s.names, "SIGHUPSIGUSR2SIGUSR1");
    ls_signals_close(signals);
}

/* A signal that all threads of the program block, as after a parent that blocked it. */
TEST(a_signal_that_the_program_blocks_is_received)
{
    seen s;
    sigset_t all, before;
    sigfillset(&all);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &all, &before), 0);
    ls_signals *signals = begin(&s, true);
    assert_int_equal(ls_signals_take_stops(signals), LS_OK);
    send_and_await(&s, SIGTERM);
    ls_signals_close(signals);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
}

TEST(requests_to_stop_keep_their_action_until_they_are_taken)
{
    seen s;
    ls_signals *signals = begin(&s, true);
    assert_ptr_equal(action_of(SIGTERM), SIG_DFL);
    assert_ptr_not_equal(action_of(SIGHUP), SIG_DFL);
    assert_int_equal(ls_signals_take_stops(signals), LS_OK);
    assert_ptr_not_equal(action_of(SIGTERM), SIG_DFL);
    ls_signals_close(signals);
    assert_ptr_equal(action_of(SIGTERM), SIG_DFL);
    assert_ptr_equal(action_of(SIGHUP), SIG_DFL);
    assert_ptr_equal(action_of(SIGPIPE), SIG_DFL);
}

TEST(actions_that_the_program_sets_meanwhile_stay)
{
    static const int numbers[] = {SIGTERM, SIGHUP, SIGPIPE};
    seen s;
    ls_signals *signals = begin(&s, true);
    assert_int_equal(ls_signals_take_stops(signals), LS_OK);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) (void)signal(numbers[i], SIG_IGN);
    ls_signals_close(signals);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        assert_ptr_equal(action_of(numbers[i]), SIG_IGN);
        (void)signal(numbers[i], SIG_DFL);
    }
}

TEST(an_ignored_hangup_remains_ignored)
{
    seen s;
    (void)signal(SIGHUP, SIG_IGN); /* nohup(1) */
    ls_signals *signals = begin(&s, true);
    assert_ptr_equal(action_of(SIGHUP), SIG_IGN);
    assert_int_equal(kill(getpid(), SIGHUP), 0);
    send_and_await(&s, SIGUSR1);
    assert_string_equal(s.names, "SIGUSR1");
    ls_signals_close(signals);
    assert_ptr_equal(action_of(SIGHUP), SIG_IGN);
    (void)signal(SIGHUP, SIG_DFL);
}

TEST(without_a_callback_the_other_signals_keep_their_action)
{
    seen s;
    ls_signals *signals = begin(&s, false);
    assert_ptr_equal(action_of(SIGHUP), SIG_DFL);
    assert_ptr_equal(action_of(SIGUSR1), SIG_DFL);
    ls_signals_close(signals);
}

TEST(a_process_has_one_at_a_time)
{
    seen s;
    ls_signals *second;
    ls_signals *signals = begin(&s, true);
    assert_int_equal(ls_signals_open(&(ls_signals_options){.on_stop = on_stop}, &second), LS_EBUSY);
    ls_signals_close(signals);
    ls_signals_close(begin(&s, true));
}

static int write_to_closed_pipe(void)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    (void)close(fds[0]);
    const ssize_t n = write(fds[1], "x", 1);
    const int error = errno;
    assert_int_equal(n, -1);
    (void)close(fds[1]);
    return error;
}

/* A signal that is not kept from the thread ends this test program. */
TEST(a_write_to_a_closed_pipe_returns_an_error)
{
    seen s;
    ls_signals *signals = begin(&s, true);
    assert_false(ls_pipe_guard_enter()); /* no system call is needed */
    assert_int_equal(write_to_closed_pipe(), EPIPE);
    ls_pipe_guard_leave(false);
    ls_signals_close(signals);

    const bool guarded = ls_pipe_guard_enter();
    assert_true(guarded);
    assert_int_equal(write_to_closed_pipe(), EPIPE);
    ls_pipe_guard_leave(guarded);
    sigset_t set;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &set), 0);
    assert_false(sigismember(&set, SIGPIPE));
    assert_int_equal(sigpending(&set), 0);
    assert_false(sigismember(&set, SIGPIPE));
}

typedef struct child {
    unsigned long long blocked, ignored; /* masks of its signals: bit 0 is signal 1 */
} child;

static void read_masks(void *arg)
{
    child *c = arg;
    FILE *from = popen("grep -E 'SigBlk|SigIgn' /proc/self/status", "r");
    if (from == NULL) return;
    if (fscanf(from, "SigBlk: %llx SigIgn: %llx", &c->blocked, &c->ignored) != 2) c->blocked = ~0ull;
    (void)pclose(from);
}

TEST(a_child_process_blocks_and_ignores_no_signal)
{
    const unsigned long long handled = 1ull << (SIGTERM - 1) | 1ull << (SIGINT - 1) | 1ull << (SIGHUP - 1) |
                                       1ull << (SIGUSR1 - 1) | 1ull << (SIGUSR2 - 1) | 1ull << (SIGPIPE - 1);
    seen s;
    child c = {0, 0};
    ls_thread thread;
    ls_signals *signals = begin(&s, true);
    assert_int_equal(ls_signals_take_stops(signals), LS_OK);
    assert_int_equal(ls_thread_start_parent(&thread, "parent", read_masks, &c), LS_OK);
    ls_thread_join(&thread);
    assert_int_equal(c.blocked & handled, 0);
    assert_int_equal(c.ignored & handled, 0);
    ls_signals_close(signals);
}

int main(void)
{
    /* The parent of the test may ignore or block these. */
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE};
    sigset_t none;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) (void)signal(numbers[i], SIG_DFL);
    sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
    return test_run(NULL, NULL);
}
