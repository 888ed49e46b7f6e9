/* epoll_timer.c - the timers of the port: one timerfd that is set to the earliest deadline of the heap. */
#define _GNU_SOURCE
#include <assert.h>
#include <sys/timerfd.h>

#include "base/clock.h"
#include "port/epoll/epoll_internal.h"

/* heap_mutex is held. */
static void timerfd_arm(ls_port *port)
{
    uint64_t next_ns = ls_heap_next_ns(&port->base.heap);
    atomic_store(&port->timerfd_late, false);
    if (next_ns >= port->base.timer_ns) return;
    port->base.timer_ns = next_ns;
    if (next_ns == 0) next_ns = 1; /* 0 would disarm the timerfd */
    struct itimerspec spec = {
        .it_value = {.tv_sec = (time_t)(next_ns / 1000000000u), .tv_nsec = (long)(next_ns % 1000000000u)}};
    int err = timerfd_settime(port->timerfd, TFD_TIMER_ABSTIME, &spec, NULL);
    assert(err == 0);
    (void)err;
}

/* While no thread blocks the timerfd is not needed: the next thread that waits sets it, once for all timers that were
 * set meanwhile. A thread that is about to block first increments `waiting`, then reads `timerfd_late`; this function
 * does the reverse. Both are sequentially consistent: at least one of the two sees the other. */
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

/* Each timer that is due becomes a posted packet, so that several threads can share a burst. */
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
            /* Queued before the mutex is released: from then on ls_timer_cancel returns false and the owner
             * relies on the packet. */
            atomic_store_explicit(&timer->op.result, 0, memory_order_relaxed);
            ls_queue_push(&port->base, &timer->op);
        }
        ls_mutex_unlock(&port->base.heap_mutex);
        if (timer == NULL) return;
    }
}
