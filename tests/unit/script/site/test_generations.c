/* test_generations.c - generations of a site that open and close beside running workers. */
#define _GNU_SOURCE
#include "script/generations_fixture.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { ROUNDS = 1000, ROUNDS_SLOW = 100 };

static unsigned rounds(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return ROUNDS_SLOW;
#else
    return ROUNDS;
#endif
}

/* Everything that a state can have open when it is told to end: timers of both kinds, tasks in every kind of wait, sockets
 * of every kind, a look-up, buffers and long strings. %u: a port on which a listener accepts and never answers. */
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
    "  local u = core.udp_connect('127.0.0.1', %u) "
    "  core.spawn(function() u:send('x') u:receive() end) "
    "  core.spawn(function() core.udp_connect('127.0.0.1', %u) core.sleep(3600) end) "
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

static void a_generation_closes_with_everything_open(void **state)
{
    generations g;
    uint16_t port;
    char text[sizeof everything + 64];
    const int fd = silent_listener(&port);
    (void)state;
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    (void)snprintf(text, sizeof text, everything, port, port, port, port);
    generations_open(&g);
    for (unsigned n = 0; n < rounds(); n++) {
        generation_clear_log(&g);
        ls_site *site = generation_start(&g, text);
        if (n % 2 == 0) generation_await_log(&g, "begun"); /* else it ends in the middle of its start */
        if (n % 4 == 0) ls_site_retire(site);
        generation_end(&g, site, true);
        drain_listener(fd);
    }
    generations_close(&g); /* the sanitizers find what is left */
    close(fd);
}

static void without_force_it_waits_for_its_tasks(void **state)
{
    generations g;
    (void)state;
    generations_open(&g);
    ls_site *site = generation_start(&g, "core.once(function() core.log('info', 'begun') core.sleep(0.3) "
                                         "core.log('info', 'over') end)");
    generation_await_log(&g, "begun");
    assert_false(ls_site_end(site, false));
    assert_null(strstr(g.t->log, "over"));
    generation_end(&g, site, false);
    assert_non_null(strstr(g.t->log, "over"));
    generations_close(&g);
}

/* A handler that never ends keeps its own state open, and no other one. The structs of the others are freed when its
 * worker has left the packet. */
static void a_stuck_task_keeps_only_its_state(void **state)
{
    enum { OTHERS = 20 };
    generations g;
    ls_site *others[OTHERS];
    (void)state;
    generations_open(&g);
    ls_site *old = generation_start(
        &g,
        "core.config{ handler_cpu_ms_max = 100000 } core.once(function() "
        "core.log('info', 'stuck') while not stop do core.now() end end) " /* a call: ThreadSanitizer delivers signals in it */
        "core.every(0.001, function() end)");
    generation_await_log(&g, "stuck");
    for (unsigned n = 0; n < OTHERS; n++) {
        assert_false(ls_site_end(old, true));
        generation_clear_log(&g);
        others[n] = generation_start(&g, "core.config{ handler_cpu_ms_max = 100000 } "
                                         "core.once(function() core.sleep(0.001) core.log('info', 'served') end)");
        generation_await_log(&g, "served");
        generation_await_idle(others[n]);
        generation_close_states(&g, others[n], false);
    }
    /* The limit of the next generation applies to all: it ends the task. */
    ls_site *last = generation_start(&g, "core.config{ handler_cpu_ms_max = 20 } core.every(0.001, function() end)");
    generation_end(&g, old, true);
    for (unsigned n = 0; n < OTHERS; n++) ls_site_close(others[n]);
    generation_end(&g, last, true);
    generations_close(&g);
}

static void retirement_stops_repeating_timers_and_runs_drain_hooks(void **state)
{
    generations g;
    (void)state;
    generations_open(&g);
    ls_site *site =
        generation_start(&g, "core.every(0.001, function() core.log('info', 'tick') end) "
                             "core.on('drain', function() core.sleep(0.001) core.log('info', 'drained') end)");
    generation_await_log(&g, "tick");
    ls_site_retire(site);
    generation_await_log(&g, "drained");
    generation_await_idle(site);
    generation_quiesce(&g);
    generation_clear_log(&g);
    ls_clock_sleep_ms(20);
    assert_null(strstr(g.t->log, "tick"));
    generation_end(&g, site, false);
    generations_close(&g);
}

static void finalizers_run_when_it_closes(void **state)
{
    generations g;
    (void)state;
    generations_open(&g);
    ls_site *site =
        generation_start(&g, "kept = setmetatable({}, { __gc = function() local ok, e = pcall(core.after, 1, print) "
                             "core.log('info', 'finalizer: ' .. tostring(e)) end }) core.after(3600, print)");
    generation_await_idle(site);
    generation_end(&g, site, false);
    assert_non_null(strstr(g.t->log, "finalizer: the server has stopped"));
    generations_close(&g);
}

int main(void)
{
    const struct rlimit cores = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &cores);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_generation_closes_with_everything_open),
                                       cmocka_unit_test(without_force_it_waits_for_its_tasks),
                                       cmocka_unit_test(a_stuck_task_keeps_only_its_state),
                                       cmocka_unit_test(retirement_stops_repeating_timers_and_runs_drain_hooks),
                                       cmocka_unit_test(finalizers_run_when_it_closes)};
    return cmocka_run_group_tests_name("script/generations", tests, NULL, NULL);
}
