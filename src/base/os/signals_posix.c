/* signals_posix.c - see signals.h. The handler counts the signal and wakes a thread, which runs the callbacks. */
#define _GNU_SOURCE
#include "base/os/signals.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/err.h"
#include "base/os/thread.h"

enum { STOPS = 2, OTHERS = 3, TAKEN = STOPS + OTHERS };

/* Requests to stop first. */
static const struct {
    int number;
    const char *name;
} taken[TAKEN] = {
    {SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGHUP, "SIGHUP"}, {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"},
};

struct ls_signals {
    ls_thread thread;
    ls_signals_options options;
    bool is_taken[TAKEN];
    struct sigaction before[TAKEN], pipe_before;
};

/* Global: a signal handler has no user argument. The semaphore is never destroyed; a handler may still post it. */
static _Atomic bool is_open;
static _Atomic bool pipe_taken;
static _Atomic bool closing;
static _Atomic unsigned counts[TAKEN];
static sem_t arrived;
static bool arrived_exists;

static void count_signal(int number)
{
    const int saved = errno;
    for (int i = 0; i < TAKEN; i++) {
        if (taken[i].number == number) atomic_fetch_add(&counts[i], 1);
    }
    (void)sem_post(&arrived);
    errno = saved;
}

/* Unlike SIG_IGN, which a child process would inherit. */
static void ignore_signal(int number)
{
}

static int set_action(int number, void (*handler)(int number), struct sigaction *before)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    return sigaction(number, &action, before) == 0 ? LS_OK : LS_ESYS;
}

static void run_callbacks(void *arg)
{
    ls_signals *signals = arg;
    const ls_signals_options *options = &signals->options;
    sigset_t set; /* the process may have been started with these signals blocked */
    sigemptyset(&set);
    for (int i = 0; i < TAKEN; i++) sigaddset(&set, taken[i].number);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    for (;;) {
        if (sem_wait(&arrived) < 0) continue; /* EINTR */
        if (atomic_load(&closing)) return;
        for (int i = 0; i < TAKEN; i++) {
            for (unsigned n = atomic_exchange(&counts[i], 0); n > 0; n--) {
                if (i < STOPS)
                    options->on_stop(options->user);
                else
                    options->on_other(options->user, taken[i].name);
            }
        }
    }
}

static int take(ls_signals *signals, int i)
{
    struct sigaction before;
    if (sigaction(taken[i].number, NULL, &before) < 0) return LS_ESYS;
    if (i >= STOPS && before.sa_handler == SIG_IGN) return LS_OK;
    if (set_action(taken[i].number, count_signal, &signals->before[i]) < 0) return LS_ESYS;
    signals->is_taken[i] = true;
    return LS_OK;
}

/* An action that the program has set since stays. */
static void restore_action(int number, void (*handler)(int number), const struct sigaction *before)
{
    struct sigaction now;
    if (sigaction(number, NULL, &now) == 0 && now.sa_handler == handler) (void)sigaction(number, before, NULL);
}

static void restore(ls_signals *signals)
{
    for (int i = 0; i < TAKEN; i++)
        if (signals->is_taken[i]) restore_action(taken[i].number, count_signal, &signals->before[i]);
    atomic_store(&pipe_taken, false);
    restore_action(SIGPIPE, ignore_signal, &signals->pipe_before);
}

int ls_signals_open(const ls_signals_options *options, ls_signals **out)
{
    int err = LS_ENOMEM;
    if (atomic_exchange(&is_open, true)) return LS_EBUSY;
    ls_signals *signals = calloc(1, sizeof *signals);
    if (signals == NULL) goto fail_open;
    signals->options = *options;
    err = LS_ESYS;
    if (!arrived_exists && sem_init(&arrived, 0, 0) < 0) goto fail_alloc;
    arrived_exists = true;
    atomic_store(&closing, false);
    for (int i = 0; i < TAKEN; i++) atomic_store(&counts[i], 0);
    if ((err = set_action(SIGPIPE, ignore_signal, &signals->pipe_before)) < 0) goto fail_alloc;
    atomic_store(&pipe_taken, true);
    for (int i = STOPS; i < TAKEN && options->on_other != NULL; i++)
        if ((err = take(signals, i)) < 0) goto fail_actions;
    if ((err = ls_thread_start(&signals->thread, "ls-signals", run_callbacks, signals)) < 0) goto fail_actions;
    *out = signals;
    return LS_OK;

fail_actions:
    restore(signals);
fail_alloc:
    free(signals);
fail_open:
    atomic_store(&is_open, false);
    return err;
}

int ls_signals_take_stops(ls_signals *signals)
{
    int err = LS_OK;
    for (int i = 0; i < STOPS && err == LS_OK; i++) err = take(signals, i);
    return err;
}

void ls_signals_close(ls_signals *signals)
{
    restore(signals);
    atomic_store(&closing, true);
    (void)sem_post(&arrived);
    ls_thread_join(&signals->thread);
    free(signals);
    atomic_store(&is_open, false);
}

static void pipe_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGPIPE);
}

bool ls_pipe_guard_enter(void)
{
    sigset_t set, before;
    if (atomic_load_explicit(&pipe_taken, memory_order_relaxed)) return false;
    pipe_set(&set);
    return pthread_sigmask(SIG_BLOCK, &set, &before) == 0 && !sigismember(&before, SIGPIPE);
}

void ls_pipe_guard_leave(bool entered)
{
    const int saved = errno;
    sigset_t set;
    if (!entered) return;
    pipe_set(&set);
    while (sigtimedwait(&set, NULL, &(struct timespec){0}) < 0 && errno == EINTR) continue; /* discard it */
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    errno = saved;
}
