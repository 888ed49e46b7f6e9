#define _GNU_SOURCE /* mkstemp */
/* test_task.c - tasks, coroutines inside them, jobs, timers, buffers, and the limits of memory and processor time. */
#include "script/site_fixture.h"

#define SITE(name) test_lua("script/core/task.lua", name)

SITE_TEST(waiting_inside_coroutines)
SITE_TEST(a_waiting_coroutine_cannot_be_resumed_or_closed)
SITE_TEST(jobs_have_a_limit)
SITE_TEST(timers)
SITE_TEST(copies_of_a_string)
SITE_TEST(formats_of_dates_have_a_limit)
SITE_TEST(timers_have_a_limit)
SITE_TEST(timers_are_memory_of_lua)
SITE_TEST(buffers)
SITE_TEST(a_buffer_that_grows_without_end)

TEST(jobs)
{
    test_snippet(SITE("jobs"));
    test_snippet_logs(SITE("the_error_of_a_job"), "in a spawned job: ");
}

/* Lua does not call the finalizer of an object that is made while the state closes. */
TEST(a_buffer_made_while_the_state_closes)
{
    test_site *t = test_site_open(SITE("a_buffer_made_while_the_state_closes"));
    assert_int_equal(t->opened, LS_OK);
    test_pump(t);
    assert_true(t->done);
    ls_packet packet;
    ls_site_close_sockets(t->site, &t->ctx);
    while (ls_port_wait(t->port, &t->ctx, &packet, 1, 0) > 0) test_dispatch(t, &packet);
    ls_port_close(t->port);
    ls_deadlines_close(t->deadlines);
    ls_site_close(t->site);
    ls_site_runtime_close(t->runtime);
    assert_non_null(strstr(t->log, "finalizer 30720"));
    ls_pool_close(t->pool);
    ls_pools_close(t->pools); /* LeakSanitizer finds blocks and arrays that were not released */
    test_site_free(t);
}

TEST(memory_has_a_limit)
{
    test_snippet_logs(SITE("memory_has_a_limit"), "not enough memory");
}

/* A thread of the test acts as the watchdog. */
typedef struct watchdog {
    test_site *t;
    _Atomic bool stop;
} watchdog;

static void watchdog_main(void *arg)
{
    watchdog *w = arg;
    while (!atomic_load(&w->stop)) {
        ls_clock_sleep_ms(5);
        ls_runtime_on_stall(&w->t->ctx, 5, w->t->runtime);
    }
}

/* Run the site with a watchdog until it logs DONE. */
static void run_watched(const char *text, const char *expected)
{
    test_site *t = test_site_open(text);
    watchdog w = {t, false};
    ls_thread thread;
    assert_int_equal(t->opened, LS_OK);
    assert_int_equal(ls_thread_start(&thread, "watchdog", watchdog_main, &w), LS_OK);
    test_pump(t); /* handlers that the limit does not end run much longer */
    atomic_store(&w.stop, true);
    ls_thread_join(&thread);
    const size_t len = strlen(t->log), from = len > 800 ? len - 800 : 0; /* cmocka shows a kilobyte */
    if (!t->done || strstr(t->log, "FAILED") != NULL) fail_msg("%s\n%s", t->done ? "failed" : "not done", t->log + from);
    if (expected != NULL && strstr(t->log, expected) == NULL) fail_msg("not logged: %s\n%s", expected, t->log);
    test_site_close(t);
}

TEST(processor_time_has_a_limit)
{
    /* The loops make garbage because ThreadSanitizer delays signals until the program calls into its run-time. */
    run_watched(SITE("processor_time_has_a_limit"), "more processor time than max_cpu allows");
}

TEST(processor_time_has_a_limit_in_c_functions)
{
    run_watched(SITE("processor_time_has_a_limit_in_c_functions"), "more processor time than max_cpu allows");
}

/* Code of the script that runs where a coroutine cannot be suspended. */
TEST(processor_time_has_a_limit_in_close_and_message_handlers)
{
    run_watched(SITE("processor_time_has_a_limit_in_close_and_message_handlers"),
                "more processor time than max_cpu allows");
}

/* A task that waits again and again may compute for any time. A sleep of less than a millisecond is no wait. */
TEST(a_wait_renews_the_processor_time)
{
    run_watched(SITE("a_wait_renews_the_processor_time"), "more processor time than max_cpu allows");
}

/* A short sleep gives back the time for which it lasted: other tasks have run. */
TEST(giving_way_to_busy_tasks_gives_back_time)
{
    run_watched(SITE("giving_way_to_busy_tasks_gives_back_time"), NULL);
}

TEST(hooks_of_start_and_drain)
{
    test_site *t = test_site_open(SITE("hooks_of_start_and_drain"));
    assert_int_equal(t->opened, LS_OK);
    test_pump_until(t, "started");
    assert_non_null(strstr(t->log, "started"));
    ls_site_end_work(t->site, LS_END_STOP);
    assert_int_not_equal(ls_site_busy(t->site), 0);
    test_pump(t);
    assert_true(t->done);
    assert_int_equal(ls_site_busy(t->site), 0);
    test_site_close(t);
}

TEST(a_site_may_close_with_tasks_under_way)
{
    test_site *t = test_site_open(SITE("a_site_may_close_with_tasks_under_way"));
    test_pump_until(t, "under way");
    test_site_close(t);
}

/* A request whose time is over answers 503, or its error handler does; the end of its site goes before. */
TEST(the_end_of_the_site_is_not_lost_on_a_task_whose_time_is_over)
{
    test_site *t = test_site_open(SITE("a_site_may_close_with_tasks_under_way"));
    unsigned count = 0;
    test_pump_until(t, "under way");
    ls_state *of = test_state(t);
    for (ls_node *node = of->tasks_live.next; node != &of->tasks_live; node = node->next) {
        ls_task *task = LS_CONTAINER(node, ls_task, node);
        ls_task_cancel(task, LS_END_TIMEOUT); /* as the watch does */
        task->wait = LS_WAIT_HELD;            /* an operation has it yet */
        task->catches = 1;
        assert_true(ls_task_is_caught(task));
        count++;
    }
    assert_true(count > 10);
    ls_tasks_cancel(of, LS_END_TIME);
    ls_tasks_end(&t->ctx, of);
    for (ls_node *node = of->tasks_live.next; node != &of->tasks_live; node = node->next) {
        ls_task *task = LS_CONTAINER(node, ls_task, node);
        assert_false(ls_task_is_caught(task));
        task->wait = LS_WAIT_IDLE;
        task->catches = 0;
        count--;
    }
    assert_int_equal(count, 0);
    test_site_close(t);
}
