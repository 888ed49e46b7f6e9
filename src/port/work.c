/* work.c - see work.h.
 *
 * A thread is started when work is queued and no thread is idle. A thread takes the oldest piece, carries it out and
 * posts its packet. The mutex guards the queue and the table of threads.
 *
 * Lock: no other mutex is taken while this one is held. */
#include <stdlib.h>

#include "port/work_internal.h"

typedef struct pool_thread { /* an entry of the table of threads */
    ls_work_pool *pool;
    ls_thread thread;
    enum { THREAD_NONE, THREAD_STARTED, THREAD_ENDED } state; /* ENDED: must be joined */
} pool_thread;

struct ls_work_pool {
    ls_port *port;
    void (*done)(ls_port *port, ls_op *op);
    ls_mutex mutex;
    ls_cond more;
    ls_op *first, **last;
    unsigned queued, idle, running; /* pieces of work; idle threads; all threads */
    bool closing;
    pool_thread threads[LS_WORK_THREADS_MAX];
};

int ls_work_pool_open(ls_port *port, void (*done)(ls_port *port, ls_op *op), ls_work_pool **out)
{
    ls_work_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) return LS_ENOMEM;
    pool->port = port;
    pool->done = done;
    pool->last = &pool->first;
    ls_mutex_open(&pool->mutex);
    ls_cond_open(&pool->more);
    for (unsigned i = 0; i < LS_WORK_THREADS_MAX; i++) pool->threads[i].pool = pool;
    *out = pool;
    return LS_OK;
}

void ls_work_pool_close(ls_work_pool *pool)
{
    bool started[LS_WORK_THREADS_MAX];
    ls_mutex_lock(&pool->mutex);
    pool->first = NULL;
    pool->last = &pool->first;
    pool->queued = 0;
    pool->closing = true;
    for (unsigned i = 0; i < LS_WORK_THREADS_MAX; i++) started[i] = pool->threads[i].state != THREAD_NONE;
    ls_cond_broadcast(&pool->more);
    ls_mutex_unlock(&pool->mutex);
    for (unsigned i = 0; i < LS_WORK_THREADS_MAX; i++)
        if (started[i]) ls_thread_join(&pool->threads[i].thread);
    ls_cond_close(&pool->more);
    ls_mutex_close(&pool->mutex);
    free(pool);
}

/* The next piece, or NULL: the thread ends and is no longer counted in `running`. The mutex is held. */
static ls_work *next(ls_work_pool *pool)
{
    while (pool->first == NULL) {
        if (pool->closing) break;
        pool->idle++;
        const bool woken = ls_cond_wait_ms(&pool->more, &pool->mutex, LS_WORK_IDLE_MS);
        pool->idle--;
        if (!woken && pool->first == NULL) break;
    }
    ls_op *op = pool->first;
    if (op == NULL) {
        pool->running--;
        return NULL;
    }
    if ((pool->first = op->next) == NULL) pool->last = &pool->first;
    pool->queued--;
    return (ls_work *)(void *)op; /* its first member */
}

static void pool_main(void *arg)
{
    pool_thread *self = arg;
    ls_work_pool *pool = self->pool;
    ls_work *work;
    ls_mutex_lock(&pool->mutex);
    while ((work = next(pool)) != NULL) {
        ls_mutex_unlock(&pool->mutex);
        atomic_store_explicit(&work->op.result, work->run(work), memory_order_relaxed);
        pool->done(pool->port, &work->op);
        ls_mutex_lock(&pool->mutex);
    }
    self->state = THREAD_ENDED;
    ls_mutex_unlock(&pool->mutex);
}

/* Start one more thread unless the table is full. The mutex is held; a thread in the state ENDED does not lock it
 * again, so joining it is safe. */
static void start_thread(ls_work_pool *pool)
{
    pool_thread *unused = NULL;
    for (unsigned i = 0; i < LS_WORK_THREADS_MAX && unused == NULL; i++) {
        pool_thread *p = &pool->threads[i];
        if (p->state == THREAD_ENDED) {
            ls_thread_join(&p->thread);
            p->state = THREAD_NONE;
        }
        if (p->state == THREAD_NONE) unused = p;
    }
    if (unused == NULL || ls_thread_start(&unused->thread, "work", pool_main, unused) < 0) return;
    unused->state = THREAD_STARTED;
    pool->running++;
}

int ls_port_work(ls_port *port, ls_work *work)
{
    ls_work_pool *pool = ls_port_base_of(port)->work;
    int result = LS_ENOMEM;
    work->op.kind = 0;
    work->op.next = NULL;
    ls_mutex_lock(&pool->mutex);
    if (pool->idle <= pool->queued) start_thread(pool);
    if (pool->running > 0) {
        *pool->last = &work->op;
        pool->last = &work->op.next;
        pool->queued++;
        ls_cond_signal(&pool->more);
        result = LS_PENDING;
    }
    ls_mutex_unlock(&pool->mutex);
    return result;
}
