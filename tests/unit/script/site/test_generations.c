/* test_generations.c - generations of a site that open and close beside running workers. */
#define _GNU_SOURCE
#include "script/generations_fixture.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { ROUNDS = 100 };

/* Everything that a state can have open when it is told to end: timers of both kinds, tasks in every kind of wait,
 * sockets of every kind, a look-up, buffers and long strings. %u: a port on which a listener accepts and never
 * answers. */
static const char everything[] =
    "core.every(0.001, function() core.sleep(0.0001) end) "
    "core.after(3600, print) "
    "core.on('start', function() "
    "  core.after(3600, print) "
    "  core.spawn(function() core.sleep(3600) end) "
    "  core.spawn(function() while true do pcall(core.sleep, 3600) end end) "
    "  local j = core.spawn(function() core.sleep(3600) end) "
    "  core.spawn(function() j:wait() end) "
    "  core.spawn(function() coroutine.wrap(function() core.sleep(3600) end)() end) "
    "  local u = core.udp_connect('127.0.0.1', %u, { batch = 8, datagram_bytes_max = 2048 }) "
    "  core.spawn(function() u:send('x') u:receive() end) "
    "  core.spawn(function() core.udp_connect('127.0.0.1', %u, { batch = 8, datagram_bytes_max = 2048 }) "
    "core.sleep(3600) end) "
    "  core.spawn(function() local s <close> = assert(core.connect('127.0.0.1', %u, {})) s:receive() end) "
    "  core.spawn(function() local s = assert(core.connect('127.0.0.1', %u, {})) s:send(('x'):rep(1024):rep(1024)) "
    "    s:send(('y'):rep(1024):rep(1024)) core.sleep(3600) end) "
    "  core.spawn(function() local s = core.socket('udp') s:bind('127.0.0.1', 0) "
    "    local n = core.notify(s, 1, false, false) n:wait() end) "
    "  core.spawn(function() get(function() core.sleep(3600) end) end) "
    "  core.spawn(function() core.connect('no-such-name.invalid', 1, {}) core.sleep(3600) end) "
    "  core.spawn(function() local b = core.buffer(('b'):rep(100000)) core.sleep(3600) end) "
    "  setmetatable({}, { __gc = function() pcall(core.after, 1, print) local b = core.buffer('late') end }) "
    "  core.log('info', 'begun') "
    "end) ";

/* A listener that the kernel accepts for. */
static int silent_listener(uint16_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 1000), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static void drain_listener(int fd)
{
    for (int accepted; (accepted = accept4(fd, NULL, NULL, SOCK_NONBLOCK)) >= 0;) close(accepted);
}

TEST(a_generation_closes_with_everything_open)
{
    generations g;
    uint16_t port;
    char text[sizeof everything + 64];
    const int fd = silent_listener(&port);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    (void)snprintf(text, sizeof text, everything, port, port, port, port);
    generations_open(&g);
    for (unsigned n = 0; n < ROUNDS; n++) {
        generation_clear_log(&g);
        ls_site *site = generation_start(&g, text);
        if (n % 2 == 0) generation_await_log(&g, "begun"); /* else it ends in the middle of its start */
        if (n % 4 == 0) ls_site_end_work(site, LS_END_REPLACED);
        generation_end(&g, site, true);
        drain_listener(fd);
    }
    generations_close(&g); /* the sanitizers find what is left */
    close(fd);
}

TEST_IN(generations, g, without_force_it_waits_for_its_tasks)
{
    ls_site *site = generation_start(g, "core.after(0, function() core.log('info', 'begun') core.sleep(0.3) "
                                        "core.log('info', 'over') end)");
    generation_await_log(g, "begun");
    assert_false(ls_site_end(site, false));
    assert_null(strstr(g->t->log, "over"));
    generation_end(g, site, false);
    assert_non_null(strstr(g->t->log, "over"));
}

/* A handler that never ends keeps its own state open, and no other one. The structs of the others are freed when its
 * worker has left the packet. */
TEST_IN(generations, g, a_stuck_task_keeps_only_its_state)
{
    enum { OTHERS = 20 };
    ls_site *others[OTHERS];
    ls_site *old = generation_start(g, "core.config{ handler_cpu_ms_max = 100000 } core.after(0, function() "
                                       /* a call: ThreadSanitizer delivers signals in it */
                                       "core.log('info', 'stuck') while not stop do core.now() end end) "
                                       "core.every(0.001, function() end)");
    generation_await_log(g, "stuck");
    for (unsigned n = 0; n < OTHERS; n++) {
        assert_false(ls_site_end(old, true));
        generation_clear_log(g);
        others[n] = generation_start(g, "core.config{ handler_cpu_ms_max = 100000 } "
                                        "core.after(0, function() core.sleep(0.001) core.log('info', 'served') end)");
        generation_await_log(g, "served");
        generation_await_idle(others[n]);
        generation_close_states(g, others[n], false);
    }
    /* The limit of the next generation applies to all: it ends the task. */
    ls_site *last = generation_start(g, "core.config{ handler_cpu_ms_max = 20 } core.every(0.001, function() end)");
    generation_end(g, old, true);
    for (unsigned n = 0; n < OTHERS; n++) ls_site_close(others[n]);
    generation_end(g, last, true);
}

TEST_IN(generations, g, retirement_stops_repeating_timers_and_runs_drain_hooks)
{
    ls_site *site =
        generation_start(g, "core.every(0.001, function() core.log('info', 'tick') end) "
                            "core.on('drain', function() core.sleep(0.001) core.log('info', 'drained') end)");
    generation_await_log(g, "tick");
    ls_site_end_work(site, LS_END_REPLACED);
    generation_await_log(g, "drained");
    generation_await_idle(site);
    generation_quiesce(g);
    generation_clear_log(g);
    ls_clock_sleep_ms(20);
    assert_null(strstr(g->t->log, "tick"));
    generation_end(g, site, false);
}

TEST_IN(generations, g, finalizers_run_when_it_closes)
{
    ls_site *site =
        generation_start(g, "kept = setmetatable({}, { __gc = function() local ok, e = pcall(core.after, 1, print) "
                            "core.log('info', 'finalizer: ' .. tostring(e)) end }) core.after(3600, print)");
    generation_await_idle(site);
    generation_end(g, site, false);
    assert_non_null(strstr(g->t->log, "finalizer: the server has stopped"));
}

/* ---- states above those of the running threads ---------------------------------------------------------------- */

typedef struct holder {
    ls_op op;
    ls_site *site;
    bool waits;      /* a task that waits for an hour stays behind in a state above those of the running threads */
    ls_state *state; /* NULL: it found none */
    _Atomic bool begun, inside, release, left;
} holder;

static _Atomic unsigned waiting; /* such tasks */

static void wait_ended(ls_thread_ctx *ctx, ls_task *task, int status, int count)
{
    if (task->ending != LS_END_TIMEOUT) abort();
    ls_task_release(ctx, task, status == LUA_OK);
    atomic_fetch_sub(&waiting, 1);
}

static void begin_wait(ls_thread_ctx *ctx, ls_state *state)
{
    ls_task *task = ls_task_begin(state, ctx, LS_SCOPE_JOB, wait_ended, NULL, "in a test");
    if (task == NULL) abort();
    task->time_ms_max = 200;
    atomic_fetch_add(&waiting, 1);
    lua_getglobal(task->co, "wait");
    ls_task_run(ctx, task, 0);
}

static void hold_state(ls_thread_ctx *ctx, ls_op *op)
{
    holder *h = LS_CONTAINER(op, holder, op);
    atomic_store(&h->begun, true);
    ls_state *state = h->state = ls_generation_enter_own(&h->site->generation, ctx, "", 0);
    atomic_store(&h->inside, true);
    while (!atomic_load(&h->release)) ls_clock_sleep_ms(1);
    if (state != NULL && h->waits && state->index >= GENERATIONS_THREADS) begin_wait(ctx, state);
    if (state != NULL) ls_actor_leave(&state->actor, ctx);
    atomic_store(&h->left, true);
}

static void await(_Atomic bool *flag)
{
    for (unsigned ms = 0; !atomic_load(flag); ms++) {
        if (ms > GENERATIONS_PATIENCE_MS) fail_msg("a holder does not go on");
        ls_clock_sleep_ms(1);
    }
}

static void hold(const generations *g, ls_site *site, holder *h, bool waits)
{
    memset((void *)h, 0, sizeof *h);
    h->op.done = hold_state;
    h->site = site;
    h->waits = waits;
    ls_port_post(g->port, &h->op, 0);
}

static void release(holder *holders, unsigned count)
{
    for (unsigned n = 0; n < count; n++) atomic_store(&holders[n].release, true);
    for (unsigned n = 0; n < count; n++) await(&holders[n].left);
}

/* Occupy every state that may exist at the same time. */
static void hold_all(const generations *g, ls_site *site, bool waits)
{
    static holder holders[GENERATIONS_THREADS_MAX];
    for (unsigned n = 0; n < GENERATIONS_THREADS_MAX; n++) {
        hold(g, site, &holders[n], waits);
        await(&holders[n].inside);
        assert_non_null(holders[n].state);
    }
    release(holders, GENERATIONS_THREADS_MAX);
}

static void compare_states(void *to, const char *name, double value)
{
    if (strcmp(name, "lua_states") == 0) *(unsigned *)to = (unsigned)value;
}

static unsigned open_states(const generations *g)
{
    unsigned count = 0;
    ls_runtime_stats(g->runtime, compare_states, &count);
    return count;
}

TEST_IN(generations, g, states_that_are_unused_give_their_memory_back)
{
    static const char text[] = "core.listen{ host = '', port = 0, dispatch = print, failed = print } "
                               "core.on('start', function() core.connect('localhost', 1, {}) "
                               "core.log('info', 'begun') end) "; /* the state has a resolver */
    bool more = true;
    ls_site *site = generation_start(g, text);
    generation_await_idle(site);
    for (unsigned round = 0; round < ROUNDS / 20; round++) {
        assert_int_equal(open_states(g), GENERATIONS_THREADS);
        generation_clear_log(g);
        hold_all(g, site, false);
        assert_int_equal(open_states(g), GENERATIONS_THREADS_MAX);
        generation_await_log(g, "begun"); /* to the site they are new ones, each time */
        for (unsigned ms = 0; open_states(g) > GENERATIONS_THREADS; ms++) {
            if (ms > GENERATIONS_PATIENCE_MS) fail_msg("the states stay");
            (void)ls_site_on_tick(g->runtime, true, &more); /* the watchdog would call it every half second */
            ls_clock_sleep_ms(1);
        }
        (void)ls_site_on_tick(g->runtime, true, &more);
        assert_false(more);
    }
    generation_end(g, site, false);
}

/* What "start" has begun in it waits for values, which the other states receive: it ends with the state. */
TEST_IN(generations, g, a_state_that_only_waits_for_values_gives_its_memory_back)
{
    static const char text[] = "core.listen{ host = '', port = 0, dispatch = print, failed = print } "
                               "local c = core.channel('c', 4, 'here') "
                               "core.every(0.01, function() c:send(1, 0) end) "
                               "core.on('start', function() core.spawn(function() "
                               "while c:receive() do core.log('info', 'received') end end) end)";
    bool more;
    ls_site *site = generation_start(g, text);
    hold_all(g, site, false);
    assert_int_equal(open_states(g), GENERATIONS_THREADS_MAX);
    for (unsigned ms = 0; open_states(g) > GENERATIONS_THREADS; ms++) {
        if (ms > GENERATIONS_PATIENCE_MS) fail_msg("the states stay");
        (void)ls_site_on_tick(g->runtime, true, &more);
        ls_clock_sleep_ms(1);
    }
    generation_clear_log(g);
    generation_await_log(g, "received"); /* by those of the start */
    generation_end(g, site, true);
}

TEST_IN(generations, g, a_state_that_holds_something_stays)
{
    static const char text[] = "core.listen{ host = '', port = 0, dispatch = print, failed = print } "
                               "core.after({ seconds = 3600, each_state = true }, print)";
    bool more;
    ls_site *site = generation_start(g, text);
    hold_all(g, site, false);
    for (unsigned n = 0; n < 5 * LS_STATE_UNUSED_TICKS; n++) {
        (void)ls_site_on_tick(g->runtime, true, &more);
        assert_true(more);
        generation_await_idle(site); /* the steps have run */
    }
    assert_int_equal(open_states(g), GENERATIONS_THREADS_MAX);
    generation_end(g, site, true);
}

TEST_IN(generations, g, a_task_of_a_state_that_is_unused_ends_at_its_time)
{
    static const char text[] = "core.listen{ host = '', port = 0, dispatch = print, failed = print } "
                               "function wait() core.sleep(3600) end";
    bool more;
    ls_site *site = generation_start(g, text);
    hold_all(g, site, true);
    assert_int_equal(atomic_load(&waiting), GENERATIONS_THREADS_MAX - GENERATIONS_THREADS);
    for (unsigned n = 0; n < LS_STATE_UNUSED_TICKS; n++) (void)ls_site_on_tick(g->runtime, true, &more);
    for (unsigned ms = 0; atomic_load(&waiting) > 0; ms++) {
        if (ms > GENERATIONS_PATIENCE_MS) fail_msg("the tasks wait for longer than their timeout");
        ls_clock_sleep_ms(1);
    }
    generation_await_idle(site);
    generation_end(g, site, false);
}

static _Atomic bool lacks_memory, load_goes_on;
static _Atomic unsigned loads;
static ls_generation_load_fn *load_site;

static int load_later(ls_generation *generation, ls_state *state, ls_thread_ctx *ctx, char *message,
                      size_t message_bytes)
{
    atomic_fetch_add(&loads, 1);
    if (atomic_load(&lacks_memory)) return LS_ENOMEM;
    for (unsigned ms = 0; !atomic_load(&load_goes_on) && ms < GENERATIONS_PATIENCE_MS; ms++) ls_clock_sleep_ms(1);
    return load_site(generation, state, ctx, message, message_bytes);
}

/* A load that did not get enough memory is tried again later, and one that goes on counts for the memory of all. */
TEST_IN(generations, g, a_state_is_made_when_there_is_memory)
{
    static const char text[] = "core.listen{ host = '', port = 0, dispatch = print, failed = print }";
    static holder holders[GENERATIONS_THREADS_MAX];
    ls_site *site = generation_start(g, text);
    load_site = site->generation.load;
    site->generation.load = load_later;
    for (unsigned n = 0; n < GENERATIONS_THREADS; n++) {
        hold(g, site, &holders[n], false);
        await(&holders[n].inside);
    }
    atomic_store(&lacks_memory, true);
    for (unsigned n = 0; n < 2; n++) {
        hold(g, site, &holders[2], false);
        await(&holders[2].inside);
        assert_null(holders[2].state);
        release(&holders[2], 1);
        assert_int_equal(atomic_load(&loads), 1); /* the second time it is too early */
    }
    atomic_store(&lacks_memory, false);
    atomic_store(&site->generation.no_memory_ms, 0);

    uint64_t used = 0; /* a third state fits, a fourth one does not */
    for (unsigned n = 0; n < GENERATIONS_THREADS; n++) used += holders[n].state->bytes_live + LS_STATE_GRANT_BYTES;
    site->generation.settings.lua_all_bytes_max = used / 4 * 7;
    hold(g, site, &holders[2], false);
    for (unsigned ms = 0; atomic_load(&loads) < 2; ms++) {
        if (ms > GENERATIONS_PATIENCE_MS) fail_msg("it is not tried again");
        ls_clock_sleep_ms(1);
    }
    hold(g, site, &holders[3], false);
    await(&holders[3].inside);
    assert_null(holders[3].state);
    assert_int_equal(atomic_load(&loads), 2);
    atomic_store(&load_goes_on, true);
    await(&holders[2].inside);
    assert_non_null(holders[2].state);
    release(holders, GENERATIONS_THREADS_MAX);
    assert_int_equal(open_states(g), GENERATIONS_THREADS + 1);
    generation_end(g, site, false);
}

/* Two threads run, and two states are being made: a third one would delay both. On a busy machine the wait may be over
 * before a state is free. */
TEST_IN(generations, g, work_takes_a_state_that_is_free_before_others_are_made)
{
    static const char text[] = "core.listen{ host = '', port = 0, dispatch = print, failed = print }";
    static holder holders[GENERATIONS_THREADS_MAX];
    bool entered = false;
    for (unsigned round = 0; round < 5 && !entered; round++) {
        ls_site *site = generation_start(g, text);
        load_site = site->generation.load;
        site->generation.load = load_later;
        atomic_fetch_add(&site->generation.loading, GENERATIONS_THREADS - 1);
        atomic_store(&load_goes_on, false);
        atomic_store(&loads, 0);
        for (unsigned n = 0; n < GENERATIONS_THREADS; n++) {
            hold(g, site, &holders[n], false);
            await(&holders[n].inside);
        }
        hold(g, site, &holders[2], false);
        while (atomic_load(&loads) == 0) ls_clock_sleep_ms(1);
        hold(g, site, &holders[3], false);
        await(&holders[3].begun);
        for (unsigned ms = 0; atomic_load(&loads) == 1 && ms < 5; ms++)
            ls_clock_sleep_ms(1); /* it looks for a state */
        release(holders, 1);
        while (atomic_load(&loads) == 1 && !atomic_load(&holders[3].inside)) ls_clock_sleep_ms(1);
        entered = atomic_load(&loads) == 1;
        atomic_store(&load_goes_on, true);
        for (unsigned n = 2; n < GENERATIONS_THREADS_MAX; n++) await(&holders[n].inside);
        release(holders, GENERATIONS_THREADS_MAX);
        generation_end(g, site, false);
    }
    assert_true(entered);
}

/* While others give their memory back, close it. */
TEST_IN(generations, g, a_generation_closes_while_states_give_their_memory_back)
{
    static const char text[] = "core.listen{ host = '', port = 0, dispatch = print, failed = print }";
    bool more;
    for (unsigned round = 0; round < ROUNDS / 20; round++) {
        ls_site *site = generation_start(g, text);
        hold_all(g, site, false);
        for (unsigned n = 0; n <= LS_STATE_UNUSED_TICKS; n++) (void)ls_site_on_tick(g->runtime, true, &more);
        ls_site_end_work(site, LS_END_REPLACED);
        generation_end(g, site, false);
    }
}

int main(void)
{
    const struct rlimit cores = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &cores);
    return test_run(NULL, NULL);
}
