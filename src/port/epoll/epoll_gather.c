/* epoll_gather.c - when a thread lets datagrams gather before it receives them: see epoll_gather.h.
 *
 * A thread that is about as fast as its peers finds two or three datagrams per receive. It spends the calls of a whole
 * batch on them and replies with two or three, so that the peers work in small steps as well: every thread is busy,
 * mostly with overhead. Network cards have interrupt moderation against that; this is the same for threads: after
 * LS_GATHER_AFTER small batches in a row the thread sleeps for LS_GATHER_US before it receives.
 *
 * A batch counts as one of a row when the thread waited for it less than LS_GATHER_US, no other event came with
 * it, and no other thread received from the socket. The thread does not sleep while packets are queued or another
 * thread waits, which could take them. So a datagram after a pause, or a burst of a few batches, is never
 * delayed; other events of a server whose threads are all busy wait for the sleep as they wait for a handler, and
 * less long than for most.
 *
 * Whether it pays depends on the peers: those with little in flight have nothing to send until they get a reply, and
 * are only slowed down. So, as Linux does for cards (net_dim), both ways are tried for a moment at regular
 * intervals, and the thread continues gathering only where it receives as many datagrams per time as without. The
 * fastest of a few short steps counts, because the system may preempt a thread at any time. Measured on the loopback
 * with one thread: 16 peers with 8 datagrams in flight each take 0.75 of the processor time per datagram, and the
 * throughput rises by a tenth; 16 peers with one in flight would lose a quarter of the throughput, and the thread
 * does not sleep for them. */
#define _GNU_SOURCE
#include "port/epoll/epoll_gather.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/clock.h"
#include "port/datagram.h"
#include "port/epoll/epoll_internal.h"

/* Steps of STEP_DATAGRAMS each. The first STEPS_TRIED of a round run without sleeping, as many with it, the rest of
 * STEPS_ALL in the way that was faster. */
enum { STEP_DATAGRAMS = 128, STEPS_TRIED = 4, STEPS_ALL = 72 };

/* The state of a context, allocated at first. NULL: no memory, so this context does not gather. */
static ls_gathering *gathering_of(ls_thread_ctx *ctx)
{
    ls_port *port = ctx->port;
    if (ctx->gathering == NULL && (ctx->gathering = calloc(1, sizeof *ctx->gathering)) != NULL) {
        ls_mutex_lock(&port->base.mutex);
        ctx->gathering->next = port->gatherings;
        port->gatherings = ctx->gathering;
        ls_mutex_unlock(&port->base.mutex);
    }
    return ctx->gathering;
}

void ls_gatherings_free(ls_gathering *list)
{
    while (list != NULL) {
        ls_gathering *next = list->next;
        free(list);
        list = next;
    }
}

static void run_end(ls_gathering *g)
{
    g->run = 0;
    g->step_datagrams = 0;
    g->step_ns = 0;
}

void ls_gathering_interrupt(ls_thread_ctx *ctx)
{
    if (ctx->gathering != NULL) run_end(ctx->gathering);
}

static void gather_sleep(ls_gathering *g)
{
    if (!g->slack_set) (void)prctl(PR_SET_TIMERSLACK, 1ul); /* ns; the default of 50 us exceeds the sleep itself */
    g->slack_set = true;
    g->count++;
    (void)nanosleep(&(struct timespec){.tv_nsec = LS_GATHER_US * 1000}, NULL); /* a signal may end it early */
}

/* A step of the round is complete: record its time, begin the next. */
static void step_next(ls_gathering *g, uint64_t now_ns)
{
    const uint64_t took_ns = (now_ns - g->step_ns) * 1024 / g->step_datagrams;
    if (g->step < 2 * STEPS_TRIED) {
        uint64_t *best_ns = &g->best_ns[g->step / STEPS_TRIED];
        if (g->step % STEPS_TRIED == 0 || took_ns < *best_ns) *best_ns = took_ns;
    }
    g->step = (g->step + 1) % STEPS_ALL;
    if (g->step == 2 * STEPS_TRIED) g->pays = g->best_ns[1] <= g->best_ns[0] + g->best_ns[0] / 16;
    g->step_ns = now_ns;
    g->step_datagrams = 0;
}

static bool should_sleep(const ls_gathering *g)
{
    if (g->run < LS_GATHER_AFTER || g->step < STEPS_TRIED) return false;
    return g->step < 2 * STEPS_TRIED || g->pays;
}

void ls_gathering_before(ls_thread_ctx *ctx, const struct epoll_event *events, int count)
{
    ls_gathering *g = ctx->gathering;
    const ls_port *port = ctx->port;
    const uint64_t now_ns = ls_clock_ns();
    if (count > 1 || events->data.u64 != g->event || now_ns - g->wait_ns >= LS_GATHER_US * 1000) {
        g->candidate = false;
        run_end(g);
        return;
    }
    if (g->step_ns == 0) {
        g->step_ns = now_ns;
        g->step_datagrams = 0;
    } else if (g->step_datagrams >= STEP_DATAGRAMS) {
        step_next(g, now_ns);
    }
    if (!should_sleep(g)) return;
    if (atomic_load(&port->base.queued) == 0 && atomic_load(&port->waiting) == 0) gather_sleep(g);
}

void ls_gathering_after(ls_thread_ctx *ctx, uint64_t event, const ls_op *op)
{
    ls_gathering *g = gathering_of(ctx);
    const int64_t received = atomic_load_explicit(&op->result, memory_order_relaxed);
    if (g == NULL) return;
    if (event != g->event || received >= op->count) run_end(g);
    g->candidate = received > 0 && received < op->count;
    g->event = event;
    if (received > 0) g->step_datagrams += (unsigned)received;
    if (received > 1) g->run++;
}
