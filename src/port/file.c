/* file.c - operations on files: posting and cancelling them, and the thread pool. See file.h.
 *
 * A thread is started when an operation is queued and no thread is idle. A thread takes the oldest operation, carries
 * it out and posts its packet. The mutex guards the queue, the table of threads, and the change of an operation from
 * QUEUED to RUNS; so an operation that is cancelled completes once.
 *
 * Lock: no other mutex is taken while this one is held. */
#include <assert.h>
#include <stdlib.h>

#include "base/thread.h"
#include "port/file_internal.h"

typedef struct pool_thread { /* an entry of the table of threads */
    ls_files *files;
    ls_thread thread;
    enum { THREAD_NONE, THREAD_STARTED, THREAD_ENDED } state; /* ENDED: must be joined */
} pool_thread;

struct ls_files {
    ls_port *port;
    const ls_file_backend *backend;
    ls_mutex mutex;
    ls_cond more;
    ls_op *first, **last;
    unsigned queued, idle, running; /* operations; idle threads; all threads */
    bool closing;
    pool_thread threads[LS_FILE_THREADS_MAX];
};

static ls_file_op *file_of(ls_op *op)
{
    return (ls_file_op *)(void *)op; /* op is its first member */
}

int ls_files_open(ls_port *port, const ls_file_backend *backend, ls_files **out)
{
    int err = LS_ENOMEM;
    ls_files *files = calloc(1, sizeof *files);
    if (files == NULL) return err;
    files->port = port;
    files->backend = backend;
    files->last = &files->first;
    if ((err = ls_mutex_open(&files->mutex)) < 0) goto fail_files;
    if ((err = ls_cond_open(&files->more)) < 0) goto fail_mutex;
    for (unsigned i = 0; i < LS_FILE_THREADS_MAX; i++) files->threads[i].files = files;
    *out = files;
    return LS_OK;

fail_mutex:
    ls_mutex_close(&files->mutex);
fail_files:
    free(files);
    return err;
}

void ls_files_close(ls_files *files)
{
    bool started[LS_FILE_THREADS_MAX];
    ls_mutex_lock(&files->mutex);
    for (ls_op *op = files->first; op != NULL; op = op->next) atomic_store(&file_of(op)->where, FILE_NOWHERE);
    files->first = NULL;
    files->last = &files->first;
    files->queued = 0;
    files->closing = true;
    for (unsigned i = 0; i < LS_FILE_THREADS_MAX; i++) started[i] = files->threads[i].state != THREAD_NONE;
    ls_cond_broadcast(&files->more);
    ls_mutex_unlock(&files->mutex);
    for (unsigned i = 0; i < LS_FILE_THREADS_MAX; i++)
        if (started[i]) ls_thread_join(&files->threads[i].thread);
    ls_cond_close(&files->more);
    ls_mutex_close(&files->mutex);
    free(files);
}

/* ---- the pool -------------------------------------------------------------------------------------------------- */

/* The next operation, or NULL: the thread ends and is no longer counted in `running`. The mutex is held. */
static ls_file_op *next(ls_files *files)
{
    while (files->first == NULL) {
        if (files->closing) break;
        files->idle++;
        const bool woken = ls_cond_wait_ms(&files->more, &files->mutex, LS_FILE_IDLE_MS);
        files->idle--;
        if (!woken && files->first == NULL) break;
    }
    ls_op *op = files->first;
    if (op == NULL) {
        files->running--;
        return NULL;
    }
    if ((files->first = op->next) == NULL) files->last = &files->first;
    files->queued--;
    atomic_store(&file_of(op)->where, FILE_RUNS);
    return file_of(op);
}

static void complete(ls_files *files, ls_file_op *op, int64_t result)
{
    atomic_store(&op->where, FILE_NOWHERE);
    (void)ls_port_post(files->port, &op->op, op->op.key, result); /* cannot fail with an operation */
}

static int64_t run(ls_file_op *op)
{
    switch (op->action) {
    case DO_OPEN_SHARED: return ls_shared_file_open_beneath(op->path, op->beneath, &op->shared);
    case DO_LIST: return ls_file_list_now(op->path, op->beneath, &op->names);
    default: return ls_file_run(op);
    }
}

static void pool_main(void *arg)
{
    pool_thread *self = arg;
    ls_files *files = self->files;
    ls_file_op *op;
    ls_mutex_lock(&files->mutex);
    while ((op = next(files)) != NULL) {
        ls_mutex_unlock(&files->mutex);
        complete(files, op, run(op));
        ls_mutex_lock(&files->mutex);
    }
    self->state = THREAD_ENDED;
    ls_mutex_unlock(&files->mutex);
}

/* Start one more thread unless the table is full. The mutex is held; a thread in the state ENDED does not lock it
 * again, so joining it is safe. */
static void start_thread(ls_files *files)
{
    pool_thread *unused = NULL;
    for (unsigned i = 0; i < LS_FILE_THREADS_MAX && unused == NULL; i++) {
        pool_thread *p = &files->threads[i];
        if (p->state == THREAD_ENDED) {
            ls_thread_join(&p->thread);
            p->state = THREAD_NONE;
        }
        if (p->state == THREAD_NONE) unused = p;
    }
    if (unused == NULL || ls_thread_start(&unused->thread, "file", pool_main, unused) < 0) return;
    unused->state = THREAD_STARTED;
    files->running++;
}

int ls_files_submit(ls_files *files, ls_file_op *op)
{
    int result = LS_PENDING;
    ls_mutex_lock(&files->mutex);
    const bool stopped = atomic_load(&op->stop); /* while the back end passed it to the pool */
    if (!stopped) {
        if (files->idle <= files->queued) start_thread(files);
        if (files->running == 0) result = LS_ENOMEM;
    }
    if (!stopped && result == LS_PENDING) {
        op->op.next = NULL;
        *files->last = &op->op;
        files->last = &op->op.next;
        files->queued++;
        atomic_store(&op->where, FILE_QUEUED);
        ls_cond_signal(&files->more);
    }
    ls_mutex_unlock(&files->mutex);
    if (stopped) complete(files, op, LS_ECANCELED);
    return result;
}

/* ---- posting ---------------------------------------------------------------------------------------------------- */

static int post(ls_thread_ctx *ctx, ls_file_op *op)
{
    ls_files *files = ls_port_files(ctx->port);
    assert(atomic_load(&op->where) == FILE_NOWHERE);
    op->op.kind = 0;
    op->op.flags = 0;
    atomic_store(&op->stop, false);
    const bool pooled = op->action == DO_OPEN_SHARED || op->action == DO_LIST; /* several calls */
    if (!pooled && files->backend != NULL && files->backend->post(ctx, op)) return LS_PENDING;
    return ls_files_submit(files, op);
}

static int post_path(ls_thread_ctx *ctx, ls_file_op *op, uint8_t action, const char *path, unsigned flags)
{
    op->action = action;
    op->path = path;
    op->flags = flags;
    op->fd = LS_FD_NONE;
    return post(ctx, op);
}

static int post_fd(ls_thread_ctx *ctx, ls_file_op *op, uint8_t action, ls_fd fd)
{
    op->action = action;
    op->fd = fd;
    return post(ctx, op);
}

static int post_bytes(ls_thread_ctx *ctx, ls_file_op *op, uint8_t action, ls_fd fd, void *bytes, uint32_t len,
                      uint64_t offset)
{
    op->bytes = bytes;
    op->op.len = len < 1u << 31 ? len : (1u << 31) - 1;
    op->offset = offset;
    return post_fd(ctx, op, action, fd);
}

int ls_file_open(ls_thread_ctx *ctx, ls_file_op *op, const char *path, unsigned flags)
{
    return post_path(ctx, op, DO_OPEN, path, flags);
}

static int post_beneath(ls_thread_ctx *ctx, ls_file_op *op, uint8_t action, const char *path, const char *beneath)
{
    op->beneath = beneath;
    op->shared = NULL;
    op->names = NULL;
    return post_path(ctx, op, action, path, 0);
}

int ls_file_open_shared(ls_thread_ctx *ctx, ls_file_op *op, const char *path, const char *beneath)
{
    return post_beneath(ctx, op, DO_OPEN_SHARED, path, beneath);
}

int ls_file_list(ls_thread_ctx *ctx, ls_file_op *op, const char *path, const char *beneath)
{
    return post_beneath(ctx, op, DO_LIST, path, beneath);
}

void ls_file_names_free(ls_file_names *names)
{
    if (names == NULL) return;
    for (unsigned i = 0; i < names->count; i++) free(names->names[i].name);
    free(names);
}

int ls_file_stat(ls_thread_ctx *ctx, ls_file_op *op, const char *path)
{
    return post_path(ctx, op, DO_STAT, path, 0);
}

int ls_file_stat_open(ls_thread_ctx *ctx, ls_file_op *op, ls_fd fd)
{
    return post_fd(ctx, op, DO_STAT_OPEN, fd);
}

int ls_file_read(ls_thread_ctx *ctx, ls_file_op *op, ls_fd fd, void *bytes, uint32_t len, uint64_t offset)
{
    return post_bytes(ctx, op, DO_READ, fd, bytes, len, offset);
}

int ls_file_write(ls_thread_ctx *ctx, ls_file_op *op, ls_fd fd, const void *bytes, uint32_t len, uint64_t offset)
{
    return post_bytes(ctx, op, DO_WRITE, fd, (void *)(uintptr_t)bytes, len, offset);
}

int ls_file_sync(ls_thread_ctx *ctx, ls_file_op *op, ls_fd fd)
{
    return post_fd(ctx, op, DO_SYNC, fd);
}

int ls_file_unlink(ls_thread_ctx *ctx, ls_file_op *op, const char *path)
{
    return post_path(ctx, op, DO_UNLINK, path, 0);
}

int ls_file_close(ls_thread_ctx *ctx, ls_file_op *op, ls_fd fd)
{
    return post_fd(ctx, op, DO_CLOSE, fd);
}

/* ---- cancel ----------------------------------------------------------------------------------------------------- */

/* Remove the operation from the queue. false: it is not queued. The mutex is held. */
static bool unqueue(ls_files *files, ls_file_op *op)
{
    ls_op **link = &files->first;
    if (atomic_load(&op->where) != FILE_QUEUED) return false;
    while (*link != &op->op) link = &(*link)->next;
    if ((*link = op->op.next) == NULL) files->last = link;
    files->queued--;
    atomic_store(&op->where, FILE_NOWHERE);
    return true;
}

void ls_file_cancel(ls_port *port, ls_file_op *op)
{
    ls_files *files = ls_port_files(port);
    /* Set before `where` is read: when the back end passes the operation to the pool meanwhile,
     * ls_files_submit sees it. */
    atomic_store(&op->stop, true);
    if (atomic_load(&op->where) >= FILE_BACKEND) files->backend->cancel(port, op);
    ls_mutex_lock(&files->mutex);
    const bool removed = unqueue(files, op);
    ls_mutex_unlock(&files->mutex);
    if (removed) (void)ls_port_post(port, &op->op, op->op.key, LS_ECANCELED);
}
