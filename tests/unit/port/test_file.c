/* test_file.c - operations on files, as file.h promises them, on each back end. */
#define TESTS_FILE_LIMIT
#include "port_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/thread.h"
#include "port/file_internal.h"
#include "sched/actor.h"
#include "system.h"

enum { MANY = 300 };

typedef struct files { /* a port, and a directory of one's own */
    net_place place;
    char dir[256], path[300];
} files;

/* ---- a gate before the calls of the pool -------------------------------------------------------------------------- */

static struct {
    ls_mutex mutex;
    ls_cond changed;
    bool shut;
    unsigned inside; /* threads that wait at it */
} gate;

int64_t __real_ls_file_run(ls_file_op *op);
int64_t __wrap_ls_file_run(ls_file_op *op);

int64_t __wrap_ls_file_run(ls_file_op *op)
{
    ls_mutex_lock(&gate.mutex);
    gate.inside++;
    ls_cond_broadcast(&gate.changed);
    while (gate.shut) ls_cond_wait(&gate.changed, &gate.mutex);
    gate.inside--;
    ls_mutex_unlock(&gate.mutex);
    return __real_ls_file_run(op);
}

static void gate_set(bool shut)
{
    ls_mutex_lock(&gate.mutex);
    gate.shut = shut;
    ls_cond_broadcast(&gate.changed);
    ls_mutex_unlock(&gate.mutex);
}

static void gate_await(unsigned inside)
{
    ls_mutex_lock(&gate.mutex);
    while (gate.inside < inside) ls_cond_wait(&gate.changed, &gate.mutex);
    ls_mutex_unlock(&gate.mutex);
}

/* ---- threads without patience, or that cannot be started ------------------------------------------------------------------------------- */

static bool no_threads;
static _Atomic bool impatient; /* a wait with a time ends at once */
static _Atomic unsigned threads_started;

bool __real_ls_cond_wait_ms(ls_cond *cond, ls_mutex *mutex, uint32_t ms);
bool __wrap_ls_cond_wait_ms(ls_cond *cond, ls_mutex *mutex, uint32_t ms);

bool __wrap_ls_cond_wait_ms(ls_cond *cond, ls_mutex *mutex, uint32_t ms)
{
    return !impatient && __real_ls_cond_wait_ms(cond, mutex, ms);
}

int __real_ls_thread_start(ls_thread *thread, const char *name, ls_thread_fn *fn, void *arg);
int __wrap_ls_thread_start(ls_thread *thread, const char *name, ls_thread_fn *fn, void *arg);

int __wrap_ls_thread_start(ls_thread *thread, const char *name, ls_thread_fn *fn, void *arg)
{
    threads_started++;
    return no_threads ? LS_ENOMEM : __real_ls_thread_start(thread, name, fn, arg);
}

/* ---- help ---------------------------------------------------------------------------------------------------------- */

static void never_done(ls_thread_ctx *ctx, ls_op *op)
{
    (void)ctx;
    (void)op;
    fail(); /* the tests take packets themselves */
}

static void count_called(ls_thread_ctx *ctx, ls_op *op)
{
    (void)ctx;
    ++*(int *)op->key;
}

static ls_file_op file_op_new(void *key)
{
    return (ls_file_op){.op = {.done = never_done, .key = key}};
}

static void open_all(files *f)
{
    const char *tmp = getenv("TMPDIR");
    net_open(&f->place);
    (void)snprintf(f->dir, sizeof f->dir, "%s/" TEST_SCRATCH_NAME, tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->path, sizeof f->path, "%s/it", f->dir);
}

static void close_all(files *f)
{
    (void)unlink(f->path);
    assert_int_equal(rmdir(f->dir), 0);
    net_close(&f->place);
}

/* The result of an operation that was just posted, from its packet. */
static int64_t result_of(files *f, ls_file_op *op, int posted)
{
    assert_int_equal(posted, LS_PENDING);
    const ls_packet packet = net_next(&f->place);
    assert_ptr_equal(packet.op, &op->op);
    assert_ptr_equal(packet.key, op->op.key);
    assert_int_equal(packet.result, atomic_load(&op->op.result));
    return packet.result;
}

static ls_fd opened(files *f, const char *path, unsigned flags)
{
    ls_file_op op = file_op_new(f);
    assert_int_equal(result_of(f, &op, ls_file_open(&f->place.ctx, &op, path, flags)), 0);
    return op.fd;
}

static void closed(files *f, ls_fd fd)
{
    ls_file_op op = file_op_new(f);
    assert_int_equal(result_of(f, &op, ls_file_close(&f->place.ctx, &op, fd)), 0);
}

static int64_t result_of_open(files *f, const char *path, unsigned flags)
{
    ls_file_op op = file_op_new(f);
    const int64_t result = result_of(f, &op, ls_file_open(&f->place.ctx, &op, path, flags));
    if (result < 0) assert_true(op.fd == LS_FD_NONE);
    if (result >= 0) closed(f, op.fd);
    return result;
}

/* ---- the operations ------------------------------------------------------------------------------------------------ */

static void a_file_from_its_creation_to_its_end(void **state)
{
    char room[16] = "";
    ls_thread_ctx *ctx;
    files f;
    (void)state;
    open_all(&f);
    ctx = &f.place.ctx;
    ls_file_op op = file_op_new(&room);
    const ls_fd fd = opened(&f, f.path, LS_FILE_READ | LS_FILE_WRITE | LS_FILE_CREATE | LS_FILE_EXCLUSIVE);
    assert_int_equal(result_of(&f, &op, ls_file_write(ctx, &op, fd, "hello, file", 11, 0)), 11);
    assert_int_equal(result_of(&f, &op, ls_file_sync(ctx, &op, fd)), 0);

    assert_int_equal(result_of(&f, &op, ls_file_read(ctx, &op, fd, room, 4, 7)), 4);
    assert_memory_equal(room, "file", 4);
    assert_int_equal(result_of(&f, &op, ls_file_read(ctx, &op, fd, room, sizeof room, 7)), 4); /* no more is there */
    assert_int_equal(result_of(&f, &op, ls_file_read(ctx, &op, fd, room, sizeof room, 11)), 0);
    assert_int_equal(result_of(&f, &op, ls_file_read(ctx, &op, fd, room, sizeof room, 1000)), 0);

    struct stat st;
    assert_int_equal(stat(f.path, &st), 0);
    for (int by_path = 0; by_path < 2; by_path++) {
        op = file_op_new(&f);
        const int posted = by_path ? ls_file_stat(ctx, &op, f.path) : ls_file_stat_open(ctx, &op, fd);
        assert_int_equal(result_of(&f, &op, posted), 0);
        assert_int_equal(op.info.type, LS_FILE_REGULAR);
        assert_int_equal(op.info.bytes, 11);
        assert_int_equal(op.info.modified_s, st.st_mtime);
        assert_in_range(op.info.modified_ns, 0, 999999999);
    }
    const ls_file_info info = op.info;
    assert_int_equal(result_of(&f, &op, ls_file_stat(ctx, &op, f.dir)), 0);
    assert_int_equal(op.info.type, LS_FILE_DIRECTORY);
    assert_int_equal(op.info.bytes, 0);
    assert_true(op.info.file != info.file && op.info.volume == info.volume);

    assert_int_equal(result_of(&f, &op, ls_file_unlink(ctx, &op, f.path)), 0);
    closed(&f, fd);
    assert_int_equal(result_of(&f, &op, ls_file_stat(ctx, &op, f.path)), LS_ENOENT);
    close_all(&f);
}

static void flags_are_what_they_say(void **state)
{
    char room[8];
    files f;
    (void)state;
    open_all(&f);
    ls_file_op op = file_op_new(&f);
    assert_int_equal(result_of_open(&f, f.path, LS_FILE_READ), LS_ENOENT);
    assert_int_equal(result_of_open(&f, f.path, LS_FILE_WRITE), LS_ENOENT);
    ls_fd fd = opened(&f, f.path, LS_FILE_WRITE | LS_FILE_CREATE);
    assert_int_equal(result_of(&f, &op, ls_file_write(&f.place.ctx, &op, fd, "12345", 5, 0)), 5);
    assert_true(result_of(&f, &op, ls_file_read(&f.place.ctx, &op, fd, room, 5, 0)) < 0); /* not opened for it */
    closed(&f, fd);
    assert_int_equal(result_of_open(&f, f.path, LS_FILE_WRITE | LS_FILE_CREATE | LS_FILE_EXCLUSIVE), LS_EEXIST);
    assert_int_equal(result_of_open(&f, f.path, LS_FILE_WRITE | LS_FILE_CREATE), 0);
    assert_int_equal(result_of(&f, &op, ls_file_stat(&f.place.ctx, &op, f.path)), 0);
    assert_int_equal(op.info.bytes, 5);
    assert_int_equal(result_of_open(&f, f.path, LS_FILE_WRITE | LS_FILE_TRUNCATE), 0);
    assert_int_equal(result_of(&f, &op, ls_file_stat(&f.place.ctx, &op, f.path)), 0);
    assert_int_equal(op.info.bytes, 0);
    close_all(&f);
}

static void errors_have_their_codes(void **state)
{
    char room[8], below[320];
    files f;
    (void)state;
    open_all(&f);
    ls_thread_ctx *ctx = &f.place.ctx;
    ls_file_op op = file_op_new(&f);
    assert_int_equal(result_of_open(&f, f.path, LS_FILE_WRITE | LS_FILE_CREATE), 0);
    (void)snprintf(below, sizeof below, "%s/below", f.path);
    assert_int_equal(result_of_open(&f, below, LS_FILE_READ), LS_ENOENT); /* a file is no directory */
    assert_int_equal(result_of(&f, &op, ls_file_stat(ctx, &op, below)), LS_ENOENT);
    assert_int_equal(result_of(&f, &op, ls_file_unlink(ctx, &op, below)), LS_ENOENT);
    assert_int_equal(result_of_open(&f, "", LS_FILE_READ), LS_ENOENT);

    assert_int_equal(result_of_open(&f, f.dir, LS_FILE_READ | LS_FILE_WRITE), LS_EISDIR);
    const ls_fd dir = opened(&f, f.dir, LS_FILE_READ);
    assert_int_equal(result_of(&f, &op, ls_file_read(ctx, &op, dir, room, sizeof room, 0)), LS_EISDIR);
    assert_int_equal(result_of(&f, &op, ls_file_stat_open(ctx, &op, dir)), 0);
    assert_int_equal(op.info.type, LS_FILE_DIRECTORY);
    closed(&f, dir);
    assert_int_equal(result_of(&f, &op, ls_file_unlink(ctx, &op, f.dir)), LS_EISDIR);

    op = file_op_new(&f);
    assert_int_equal(result_of(&f, &op, ls_file_read(ctx, &op, LS_FD_NONE, room, sizeof room, 0)), LS_EINVAL);
    assert_int_equal(result_of(&f, &op, ls_file_sync(ctx, &op, LS_FD_NONE)), LS_EINVAL);
    assert_int_equal(result_of(&f, &op, ls_file_close(ctx, &op, LS_FD_NONE)), LS_EINVAL);
    close_all(&f);
}

static void what_is_forbidden_is_eacces(void **state)
{
    access_before forbidden;
    char fresh[320];
    files f;
    (void)state;
    open_all(&f);
    ls_file_op op = file_op_new(&f);
    (void)snprintf(fresh, sizeof fresh, "%s/new", f.dir);
    assert_int_equal(result_of_open(&f, f.path, LS_FILE_WRITE | LS_FILE_CREATE), 0);
    deny_access(&forbidden, f.dir, f.path, fresh);
    const int64_t reading = result_of_open(&f, f.path, LS_FILE_READ);
    const int64_t making = result_of_open(&f, fresh, LS_FILE_WRITE | LS_FILE_CREATE);
    const int64_t removing = result_of(&f, &op, ls_file_unlink(&f.place.ctx, &op, f.path));
    restore_access(&forbidden, f.dir);
    assert_int_equal(reading, LS_EACCES);
    assert_int_equal(making, LS_EACCES);
    assert_int_equal(removing, LS_EACCES);
    close_all(&f);
}

static void out_of_descriptors_is_emfile(void **state)
{
    descriptors_before before;
    files f;
    (void)state;
    open_all(&f);
    assert_int_equal(result_of_open(&f, f.path, LS_FILE_WRITE | LS_FILE_CREATE), 0);
    exhaust_descriptors(&before);
    const int64_t result = result_of_open(&f, f.path, LS_FILE_READ);
    restore_descriptors(&before);
    assert_int_equal(result, LS_EMFILE);
    close_all(&f);
}

static void offsets_beyond_4_gib(void **state)
{
    static const uint64_t beyond = (UINT64_C(5) << 30) + 3;
    char room[16];
    files f;
    (void)state;
    open_all(&f);
    ls_thread_ctx *ctx = &f.place.ctx;
    ls_file_op op = file_op_new(&f);
    const ls_fd fd = opened(&f, f.path, LS_FILE_READ | LS_FILE_WRITE | LS_FILE_CREATE);
    make_sparse(fd);
    assert_int_equal(result_of(&f, &op, ls_file_write(ctx, &op, fd, "far away", 8, beyond)), 8);
    assert_int_equal(result_of(&f, &op, ls_file_stat_open(ctx, &op, fd)), 0);
    assert_int_equal(op.info.bytes, beyond + 8);
    memset(room, 'x', sizeof room);
    assert_int_equal(result_of(&f, &op, ls_file_read(ctx, &op, fd, room, sizeof room, beyond - 4)), 12);
    assert_memory_equal(room, "\0\0\0\0far away", 12);
    assert_int_equal(result_of(&f, &op, ls_file_read(ctx, &op, fd, room, 4, (uint32_t)beyond)), 4); /* a hole */
    assert_memory_equal(room, "\0\0\0\0", 4);
    closed(&f, fd);
    close_all(&f);
}

/* Many at a time, each with its own place in the file; every one comes once. */
static void many_in_flight(void **state)
{
    static ls_file_op ops[MANY];
    static uint32_t bytes[MANY];
    files f;
    (void)state;
    open_all(&f);
    const ls_fd fd = opened(&f, f.path, LS_FILE_READ | LS_FILE_WRITE | LS_FILE_CREATE);
    for (int writing = 1; writing >= 0; writing--) {
        bool seen[MANY] = {false};
        for (uint32_t i = 0; i < MANY; i++) {
            ops[i] = file_op_new(&bytes[i]);
            bytes[i] = writing ? i * 7919 : 0;
            assert_int_equal(writing ? ls_file_write(&f.place.ctx, &ops[i], fd, &bytes[i], 4, UINT64_C(4) * i)
                                     : ls_file_read(&f.place.ctx, &ops[i], fd, &bytes[i], 4, UINT64_C(4) * i),
                             LS_PENDING);
        }
        for (uint32_t i = 0; i < MANY; i++) {
            const ls_packet packet = net_next(&f.place);
            const size_t at = (size_t)((uint32_t *)packet.key - bytes);
            assert_ptr_equal(packet.op, &ops[at].op);
            assert_int_equal(packet.result, 4);
            assert_int_equal(bytes[at], at * 7919);
            assert_false(seen[at]);
            seen[at] = true;
        }
        net_quiet(&f.place, 0);
    }
    closed(&f, fd);
    close_all(&f);
}

/* ---- the pool -------------------------------------------------------------------------------------------------------- */

/* A thread context that has no ring: what it posts is the pool's on every back end. */
static void ctx_of_the_pool(files *f, ls_thread_ctx *ctx)
{
    ls_thread_ctx_init(ctx, f->place.port, f->place.ctx.pool, 1);
}

static void the_pool_is_bounded_and_cancels_what_waits(void **state)
{
    enum { POSTED = LS_FILE_THREADS_MAX + 3 };
    ls_file_op ops[POSTED];
    ls_thread_ctx ctx;
    files f;
    (void)state;
    open_all(&f);
    ctx_of_the_pool(&f, &ctx);
    gate_set(true);
    for (int i = 0; i < POSTED; i++) {
        ops[i] = file_op_new(&ops[i]);
        assert_int_equal(ls_file_stat(&ctx, &ops[i], f.dir), LS_PENDING);
        if (i < LS_FILE_THREADS_MAX) gate_await((unsigned)i + 1); /* so that these are the ones that run */
    }
    net_quiet(&f.place, 20);
    assert_int_equal(gate.inside, LS_FILE_THREADS_MAX);

    /* The one in the middle of those that wait; nothing happens to it twice, nor to one that runs. */
    ls_file_op *const middle = &ops[POSTED - 2];
    ls_file_cancel(f.place.port, middle);
    ls_file_cancel(f.place.port, middle);
    ls_file_cancel(f.place.port, &ops[0]);
    const ls_packet packet = net_next(&f.place);
    assert_ptr_equal(packet.op, &middle->op);
    assert_int_equal(packet.result, LS_ECANCELED);
    net_quiet(&f.place, 5);
    ls_file_cancel(f.place.port, &ops[POSTED - 1]); /* the last one: the queue goes on behind it */
    assert_ptr_equal(net_next(&f.place).op, &ops[POSTED - 1].op);
    assert_int_equal(ls_file_stat(&ctx, middle, f.dir), LS_PENDING);

    gate_set(false);
    unsigned seen = 0;
    for (int i = 0; i < POSTED - 1; i++) {
        const ls_packet done = net_next(&f.place);
        assert_int_equal(done.result, 0);
        seen |= 1u << ((ls_file_op *)done.key - ops);
    }
    assert_int_equal(seen, (1u << (POSTED - 1)) - 1);
    ls_file_cancel(f.place.port, &ops[0]); /* long done */
    net_quiet(&f.place, 0);
    close_all(&f);
}

static void without_a_thread_nothing_is_posted(void **state)
{
    ls_thread_ctx ctx;
    files f;
    (void)state;
    open_all(&f);
    ctx_of_the_pool(&f, &ctx);
    ls_file_op op = file_op_new(&f);
    no_threads = true;
    assert_int_equal(ls_file_stat(&ctx, &op, f.dir), LS_ENOMEM);
    no_threads = false;
    net_quiet(&f.place, 0);
    assert_int_equal(result_of(&f, &op, ls_file_stat(&ctx, &op, f.dir)), 0);
    no_threads = true; /* there is one now */
    assert_int_equal(result_of(&f, &op, ls_file_stat(&ctx, &op, f.dir)), 0);
    no_threads = false;
    close_all(&f);
}

static void a_thread_that_idles_ends_and_another_begins(void **state)
{
    ls_thread_ctx ctx;
    files f;
    (void)state;
    open_all(&f);
    ctx_of_the_pool(&f, &ctx);
    impatient = true;
    threads_started = 0;
    while (threads_started < 3 * LS_FILE_THREADS_MAX) { /* each place is used again */
        ls_file_op op = file_op_new(&f);
        assert_int_equal(result_of(&f, &op, ls_file_stat(&ctx, &op, f.dir)), 0);
    }
    impatient = false;
    close_all(&f);
}

/* What is pending when a port is to be closed is cancelled first, and its packets are taken: there is one for each. */
static void a_port_closes_after_the_last_packet(void **state)
{
    enum { POSTED = 40 };
    ls_file_op ops[POSTED];
    ls_thread_ctx ctx;
    files f;
    int cancelled = 0;
    (void)state;
    open_all(&f);
    ctx_of_the_pool(&f, &ctx);
    gate_set(true);
    for (int i = 0; i < POSTED; i++) {
        ops[i] = file_op_new(&f);
        assert_int_equal(ls_file_stat(i % 2 ? &ctx : &f.place.ctx, &ops[i], f.dir), LS_PENDING);
    }
    for (int i = 0; i < POSTED; i++) ls_file_cancel(f.place.port, &ops[i]);
    gate_set(false);
    for (int i = 0; i < POSTED; i++) {
        const ls_packet packet = net_next(&f.place);
        assert_true(packet.result == 0 || packet.result == LS_ECANCELED);
        if (packet.result == LS_ECANCELED) cancelled++;
    }
    assert_true(cancelled > 0);
    close_all(&f);
}

static void a_port_that_closes_ends_what_is_pending(void **state)
{
    enum { POSTED = 12 };
    static char room[POSTED][4];
    ls_file_op ops[POSTED];
    ls_thread_ctx ctx;
    int pipe_fds[2];
    files f;
    (void)state;
    open_all(&f);
    ctx_of_the_pool(&f, &ctx);
    const bool ring = strcmp(ls_port_backend(f.place.port), "uring") == 0;
    assert_int_equal(pipe(pipe_fds), 0);
    gate_set(true);
    for (int i = 0; i < POSTED; i++) {
        ops[i] = file_op_new(&f);
        if (i % 4 == 0) /* what no ring completes by itself */
            assert_int_equal(ls_file_read(&f.place.ctx, &ops[i], pipe_fds[0], room[i], 4, 0), LS_PENDING);
        else if (i % 4 == 1)
            assert_int_equal(ls_file_stat(&ctx, &ops[i], f.dir), LS_PENDING);
        else
            assert_int_equal(ls_file_open(i % 4 == 2 ? &ctx : &f.place.ctx, &ops[i], f.dir, LS_FILE_READ), LS_PENDING);
        ls_packet packet; /* the ring begins with some; what completes at once is no longer pending */
        if (ring && i == POSTED / 2) (void)ls_port_wait(f.place.port, &f.place.ctx, &packet, 1, 0);
    }
    gate_await(LS_FILE_THREADS_MAX);
    gate_set(false);
    ls_port_close(f.place.port);
    for (int i = 0; i < POSTED; i++)
        if (i % 4 >= 2 && ops[i].fd != LS_FD_NONE) ls_file_drop(ops[i].fd);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    assert_int_equal(rmdir(f.dir), 0);
    ls_pool_close(f.place.ctx.pool);
    ls_pools_close(f.place.pools);
}

static void packets_are_dispatched_like_all_others(void **state)
{
    static int called;
    files f;
    (void)state;
    open_all(&f);
    ls_file_op op = file_op_new(&called);
    op.op.done = count_called;
    called = 0;
    assert_int_equal(ls_file_stat(&f.place.ctx, &op, f.dir), LS_PENDING);
    const ls_packet packet = net_next(&f.place);
    ls_packet_dispatch(&f.place.ctx, &packet);
    assert_int_equal(called, 1);
    close_all(&f);
}

/* ---- the ring --------------------------------------------------------------------------------------------------------- */

/* A read that waits, as only a ring knows it: nothing is in the pipe. */
static void a_read_that_has_begun_can_be_cancelled(void **state)
{
    char room[4];
    int pipe_fds[2];
    files f;
    (void)state;
    open_all(&f);
    if (strcmp(ls_port_backend(f.place.port), "uring") != 0) {
        close_all(&f);
        print_message("skipped: of another system: a read that has begun is cancelled by io_uring alone\n");
        skip();
    }
    ls_file_op op = file_op_new(&f), other = file_op_new(&f);
    assert_int_equal(pipe(pipe_fds), 0);
    for (int begun = 0; begun < 2; begun++) {
        assert_int_equal(ls_file_read(&f.place.ctx, &op, pipe_fds[0], room, 4, 0), LS_PENDING);
        if (begun) net_quiet(&f.place, 5);
        ls_file_cancel(f.place.port, &op);
        const ls_packet packet = net_next(&f.place);
        assert_ptr_equal(packet.op, &op.op);
        assert_int_equal(packet.result, LS_ECANCELED);
        net_quiet(&f.place, 5);
    }
    /* A cancelled one takes nothing from the next. */
    assert_int_equal(ls_file_read(&f.place.ctx, &op, pipe_fds[0], room, 4, 0), LS_PENDING);
    ls_file_cancel(f.place.port, &other);
    net_quiet(&f.place, 5);
    net_write(pipe_fds[1], "pipe", 4);
    assert_int_equal(result_of(&f, &op, LS_PENDING), 4);
    assert_memory_equal(room, "pipe", 4);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    close_all(&f);
}

/* The thread that posted it ends: the system gives up what it has begun for it, and the pool does it. */
typedef struct ended {
    files *f;
    ls_file_op *op;
} ended;

static void post_and_end(void *arg)
{
    const ended *e = arg;
    ls_thread_ctx ctx;
    ls_packet packet;
    net_ctx_open(&e->f->place, &ctx, 1);
    assert_int_equal(ls_port_wait(e->f->place.port, &ctx, &packet, 1, 0), 0); /* has a ring now, where there are any */
    assert_int_equal(ls_file_stat(&ctx, e->op, e->f->dir), LS_PENDING);
    ls_port_detach(e->f->place.port, &ctx);
    ls_pool_close(ctx.pool);
}

static void a_thread_that_ends_leaves_its_operations_to_others(void **state)
{
    files f;
    (void)state;
    open_all(&f);
    for (int i = 0; i < 50; i++) {
        ls_file_op op = file_op_new(&f);
        ended e = {&f, &op};
        ls_thread thread;
        assert_int_equal(ls_thread_start(&thread, "ends", post_and_end, &e), LS_OK);
        ls_thread_join(&thread);
        assert_int_equal(result_of(&f, &op, LS_PENDING), 0);
        assert_int_equal(op.info.type, LS_FILE_DIRECTORY);
    }
    close_all(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_from_its_creation_to_its_end),
        cmocka_unit_test(flags_are_what_they_say),
        cmocka_unit_test(errors_have_their_codes),
        cmocka_unit_test(what_is_forbidden_is_eacces),
        cmocka_unit_test(out_of_descriptors_is_emfile),
        cmocka_unit_test(offsets_beyond_4_gib),
        cmocka_unit_test(many_in_flight),
        cmocka_unit_test(the_pool_is_bounded_and_cancels_what_waits),
        cmocka_unit_test(without_a_thread_nothing_is_posted),
        cmocka_unit_test(a_thread_that_idles_ends_and_another_begins),
        cmocka_unit_test(a_port_closes_after_the_last_packet),
        cmocka_unit_test(a_port_that_closes_ends_what_is_pending),
        cmocka_unit_test(packets_are_dispatched_like_all_others),
        cmocka_unit_test(a_read_that_has_begun_can_be_cancelled),
        cmocka_unit_test(a_thread_that_ends_leaves_its_operations_to_others),
    };
    assert_int_equal(ls_mutex_open(&gate.mutex), LS_OK);
    assert_int_equal(ls_cond_open(&gate.changed), LS_OK);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
