/* iocp_timer.c - the timers of the port: one timer of the system's thread pool is set to the earliest deadline of the
 * heap and posts a packet. The thread that takes this packet queues the timers that are due. */
#include "port/win32/iocp_internal.h"


#include "base/clock.h"

#define ALARM_NS_MAX (UINT64_C(60) * 1000000000)

static void CALLBACK fired(PTP_CALLBACK_INSTANCE instance, PVOID context, PTP_TIMER timer)
{
    ls_port *port = context;
    if (!atomic_exchange(&port->timer_fired, true)) ls_port_enqueue(port, &port->timer_op);
}

int ls_win32_timers_open(ls_port *port)
{
    port->timer_op = (ls_op){.kind = KIND_TIMER};
    port->system_timer = CreateThreadpoolTimer(fired, port, NULL);
    return port->system_timer != NULL ? LS_OK : LS_ENOMEM;
}

void ls_win32_timers_close(ls_port *port)
{
    SetThreadpoolTimer(port->system_timer, NULL, 0, 0);
    WaitForThreadpoolTimerCallbacks(port->system_timer, TRUE);
    CloseThreadpoolTimer(port->system_timer);
}

void ls_port_timer_late(ls_port *port)
{
    const uint64_t next_ns = ls_heap_next_ns(&port->base.heap);
    port->base.timer_ns = next_ns;
    const uint64_t now_ns = ls_clock_ns();
    /* A relative time is negative, in units of 100 ns. The time that the system sleeps does not count, but does for
     * ls_clock_ns. So the timer is set for at most ALARM_NS_MAX, and then again: after a sleep it is late by that at
     * most. An absolute time would follow changes of the date. */
    uint64_t wait_ns = next_ns > now_ns ? next_ns - now_ns : 0;
    if (wait_ns > ALARM_NS_MAX) {
        wait_ns = ALARM_NS_MAX;
        port->base.timer_ns = now_ns + wait_ns;
    }
    ULARGE_INTEGER due = {.QuadPart = 0 - (wait_ns / 100 + 1)};
    FILETIME time = {due.LowPart, due.HighPart};
    SetThreadpoolTimer(port->system_timer, &time, 0, 0);
}

/* Each timer that is due becomes a posted packet, so that several threads can share a burst. */
void ls_win32_timer_expire(ls_port *port)
{
    atomic_store(&port->timer_fired, false); /* from here on an expiry posts another packet */
    const uint64_t now_ns = ls_clock_ns();
    bool retry_accepts = false;
    ls_mutex_lock(&port->base.heap_mutex);
    for (ls_timer *timer; (timer = ls_heap_pop_due(&port->base.heap, now_ns)) != NULL;) {
        if (timer == &port->retry) {
            retry_accepts = true;
            continue;
        }
        /* Queued before the mutex is released: from then on ls_timer_cancel returns false and the owner
         * relies on the packet. */
        atomic_store_explicit(&timer->op.result, 0, memory_order_relaxed);
        ls_port_enqueue(port, &timer->op);
    }
    port->base.timer_ns = UINT64_MAX;
    ls_timers_changed(port);
    ls_mutex_unlock(&port->base.heap_mutex);
    if (retry_accepts) ls_win32_emfile_retry(port);
}
