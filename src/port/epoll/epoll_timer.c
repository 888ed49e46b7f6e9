/* epoll_timer.c - the port's timers: a heap, and one timerfd that is set to its earliest deadline. */
#define _GNU_SOURCE
#include <assert.h>
#include <sys/timerfd.h>

#include "base/clock.h"
#include "port/epoll/epoll_internal.h"

/* Under heap_mutex. A timerfd that fires too early is harmless, so it is moved only when it would be late. */
static void timerfd_arm(ls_port *port)
{
    uint64_t next_ns = ls_heap_next_ns(&port->base.heap);
    atomic_store(&port->timerfd_late, false);
    if (next_ns >= port->base.timer_ns) return;
    port->base.timer_ns = next_ns;
    if (next_ns == 0) next_ns = 1; /* 0 would disarm it */
    struct itimerspec spec = {
        .it_value = {.tv_sec = (time_t)(next_ns / 1000000000u), .tv_nsec = (long)(next_ns % 1000000000u)}};
    int err = timerfd_settime(port->timerfd, TFD_TIMER_ABSTIME, &spec, NULL);
    assert(err == 0);
    (void)err;
}

/* While no thread blocks nobody could hear the timerfd: it is set by the next that comes
 * to wait, once for all timers that were set meanwhile. A thread that is about to block first raises `waiting`, then looks
 * at `timerfd_late`; here it is the other way round. Both sequentially consistent: one of the two sees the other. */
void ls_port_timer_late(ls_port *port)
{
    atomic_store(&port->timerfd_late, true);
    if (atomic_load(&port->waiting) > 0) timerfd_arm(port);
}

void ls_epoll_timerfd_arm(ls_port *port)
{
    ls_mutex_lock(&port->base.heap_mutex);
    timerfd_arm(port);
    ls_mutex_unlock(&port->base.heap_mutex);
}

/* Everything that is due becomes a posted packet, so that several threads can share a burst. */
void ls_epoll_timer_expire(ls_port *port)
{
    uint64_t now_ns = ls_clock_ns();
    for (;;) {
        ls_mutex_lock(&port->base.heap_mutex);
        ls_timer *timer = ls_heap_pop_due(&port->base.heap, now_ns);
        if (timer == NULL) {
            port->base.timer_ns = UINT64_MAX;
            ls_timers_changed(port);
        } else if (timer == &port->retry) {
            ls_epoll_emfile_retry(port);
        } else {
            /* Inside the mutex: once it is released without the timer armed, its owner counts on the packet. */
            atomic_store_explicit(&timer->op.result, 0, memory_order_relaxed);
            ls_queue_push(&port->base, &timer->op);
        }
        ls_mutex_unlock(&port->base.heap_mutex);
        if (timer == NULL) return;
    }
}
