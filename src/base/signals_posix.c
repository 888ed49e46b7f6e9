/* signals_posix.c - see signals.h: every thread blocks the signals; one thread takes them with sigwait(3). */
#define _POSIX_C_SOURCE 200809L
#include "base/signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/thread.h"

struct ls_signals {
    ls_thread thread;
    sigset_t set, before;
    _Atomic int stopping;
    void (*on_signal)(void *user);
    void *user;
};

static void take_signals(void *arg)
{
    ls_signals *signals = arg;
    for (;;) {
        int number;
        if (sigwait(&signals->set, &number) != 0) continue;
        if (atomic_load(&signals->stopping)) return;
        signals->on_signal(signals->user);
    }
}

int ls_signals_start(void (*on_signal)(void *user), void *user, ls_signals **out)
{
    int err = LS_ENOMEM;
    ls_signals *signals = calloc(1, sizeof *signals);
    if (signals == NULL) return err;
    signals->on_signal = on_signal;
    signals->user = user;
    sigemptyset(&signals->set);
    sigaddset(&signals->set, SIGINT);
    sigaddset(&signals->set, SIGTERM);
    if (pthread_sigmask(SIG_BLOCK, &signals->set, &signals->before) != 0) {
        err = LS_ESYS;
        goto fail_alloc;
    }
    if ((err = ls_thread_start(&signals->thread, "ls-signals", take_signals, signals)) < 0) goto fail_mask;
    *out = signals;
    return LS_OK;

fail_mask:
    pthread_sigmask(SIG_SETMASK, &signals->before, NULL);
fail_alloc:
    free(signals);
    return err;
}

void ls_signals_stop(ls_signals *signals)
{
    atomic_store(&signals->stopping, 1);
    pthread_kill(signals->thread, SIGTERM); /* NOLINT(bugprone-bad-signal-to-kill-thread): sigwait takes it */
    ls_thread_join(&signals->thread);
    pthread_sigmask(SIG_SETMASK, &signals->before, NULL);
    free(signals);
}

void ls_signals_ignore_pipe(void)
{
    signal(SIGPIPE, SIG_IGN);
}
