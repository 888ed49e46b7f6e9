#define _GNU_SOURCE /* mkstemp */
/* test_channel.c - channels and semaphores when a state ends: by a reload, by force, with its server. Each value that
 * no task has got stays in the channel, each permit of `with` comes back. */
/* sanitizers: asan; no thread starts */
#include "script/site_fixture.h"

#include "base/shared.h"
#include "script/store/channel.h"
#include "script/store/semaphore.h"

/* Definitions without lua/luaserve: the prelude of the fixture uses the core. */
#define CHANNELS                                      \
    "local jobs = core.channel('jobs', 4, 'here') "   \
    "local gate = core.semaphore('gate', 1, 'here') " \
    "local function start(fn) core.spawn(fn) core.sleep(0) end "

static void *shared_object(const test_site *t, const ls_shared_kind *kind, const void *options, const char *name)
{
    ls_shared_object *object = NULL;
    char before[LS_SHARED_WHERE_BYTES];
    assert_int_equal(ls_shared_get(t->runtime->shared, kind, name, "here", options, &object, before), LS_OK);
    return object;
}

static ls_channel *jobs_of(const test_site *t)
{
    const size_t capacity = 4;
    return ls_channel_of(shared_object(t, &ls_channel_kind, &capacity, "jobs"));
}

static ls_semaphore *gate_of(const test_site *t)
{
    const unsigned permits = 1;
    return ls_semaphore_of(shared_object(t, &ls_semaphore_kind, &permits, "gate"));
}

static void send_text(ls_channel *channel, const char *text)
{
    ls_message *message = ls_message_get(ls_value_string(text, strlen(text)));
    assert_non_null(message);
    assert_int_equal(ls_channel_send(channel, message, NULL), LS_OK);
}

static test_site *open_ready(const char *text)
{
    test_site *t = test_site_open(text);
    if (t->opened != LS_OK) fail_msg("the site does not load: %s", t->message);
    test_pump(t);
    if (!t->done || strstr(t->log, "FAILED") != NULL) fail_msg("%s", t->log);
    t->done = false;
    return t;
}

/* Take the packets that are there. */
static void pump_queued(test_site *t)
{
    ls_packet packet;
    while (ls_port_wait(t->port, &t->ctx, &packet, 1, 0) > 0) test_dispatch(t, &packet);
}

static void end(test_site *t, ls_site *site, bool force)
{
    const uint64_t until = ls_clock_ns() + UINT64_C(20000000000);
    while (!ls_site_end(site, force)) {
        pump_queued(t);
        if (ls_clock_ns() > until) fail_msg("the site does not end");
    }
}

/* Put a new generation in the place of t->site. Returns the old one. */
static ls_site *replace(test_site *t, const char *text)
{
    char whole[4096];
    ls_site *old = t->site;
    (void)snprintf(whole, sizeof whole, "%s%s", test_prelude, text);
    const ls_site_options options = {.path = "second.lua", .source = whole, .source_bytes = strlen(whole)};
    if (ls_site_open(t->runtime, &options, &t->site, t->message, sizeof t->message) < 0) fail_msg("%s", t->message);
    assert_int_equal(ls_site_ready(t->site, 1, 1, t->message, sizeof t->message), LS_OK);
    ls_pool_enter(t->pool);
    ls_site_start(t->site, NULL);
    return old;
}

static const char two_receivers[] =
    CHANNELS "body(function() "
             "  start(function() while true do core.log('info', 'first ' .. jobs:receive()) end end) "
             "  start(function() core.log('info', 'first ' .. jobs:receive(1000)) end) "
             "end)";

/* Idle receivers do not keep the old generation; the new one gets what is sent. */
TEST(a_reload_hands_the_channel_over)
{
    test_site *t =
        open_ready(CHANNELS "body(function() "
                            "  start(function() for v in jobs:values() do core.log('info', 'first ' .. v) end end) "
                            "end)");
    ls_channel *jobs = jobs_of(t);
    send_text(jobs, "a");
    pump_queued(t);
    assert_non_null(strstr(t->log, "first a\n"));

    ls_site *old = replace(t, CHANNELS "body(function() end) core.after(0, function() "
                                       "for v in jobs:values() do core.log('info', 'second ' .. v) done() end end)");
    test_pump(t);
    t->done = false;
    ls_site_end_work(old, LS_END_REPLACED);
    pump_queued(t);
    assert_int_equal(ls_site_busy(old), 0);
    end(t, old, false);
    ls_site_close(old);
    assert_ptr_equal(jobs, jobs_of(t));
    send_text(jobs, "b");
    test_pump(t);
    assert_non_null(strstr(t->log, "second b\n"));
    assert_null(strstr(t->log, "first b\n"));
    test_site_close(t);
}

/* The value was handed to a receiver, but the state ends before its task runs. */
TEST(a_state_that_ends_gives_values_back)
{
    test_site *t = open_ready(two_receivers);
    ls_channel *jobs = jobs_of(t);
    send_text(jobs, "a"); /* handed over: the operations are under way */
    send_text(jobs, "b");
    ls_tasks_cancel(test_state(t),
                    LS_END_CLOSED); /* as the step of the close does, which another thread may run before them */
    assert_int_equal(ls_channel_len(jobs), 0);
    end(t, t->site, true);
    assert_int_equal(ls_channel_len(jobs), 2);
    assert_null(strstr(t->log, "first a"));
    test_site_close(t);
}

/* The server ends: no thread runs any more. */
TEST(an_abandoned_state_gives_values_back)
{
    test_site *t = open_ready(two_receivers);
    ls_channel *jobs = jobs_of(t);
    send_text(jobs, "a");
    send_text(jobs, "b");
    assert_int_equal(ls_channel_len(jobs), 0);
    test_site_close(t); /* frees the channel: a message that is lost is a leak for the sanitizer */
}

TEST(the_permit_of_a_task_in_an_abandoned_state_comes_back)
{
    test_site *t = open_ready(CHANNELS "body(function() start(function() gate:acquire() jobs:receive() end) end)");
    ls_site *old = replace(t, CHANNELS "body(function() end)");
    ls_site_close_sockets(old, &t->ctx);
    assert_int_equal(ls_semaphore_taken(gate_of(t)), 1);
    ls_site_close(old);
    assert_int_equal(ls_semaphore_taken(gate_of(t)), 0);
    test_site_close(t);
}

TEST(permits_of_with_come_back)
{
    static const char holders[] =
        CHANNELS "body(function() "
                 "  start(function() gate:with(function() core.sleep(1000) end) end) "
                 "  start(function() gate:with(function() end) end) "
                 "  start(function() gate:acquire(1000) end) start(function() gate:acquire() end) "
                 "end)";
    test_site *t = open_ready(holders);
    ls_semaphore *gate = gate_of(t);
    assert_int_equal(ls_semaphore_taken(gate), 1);
    assert_int_equal(ls_semaphore_release(gate), LS_OK); /* to the second task, which does not run any more */
    ls_tasks_cancel(test_state(t), LS_END_CLOSED);
    assert_int_equal(ls_semaphore_taken(gate), 1);
    assert_int_equal(ls_semaphore_acquire(gate, NULL), LS_EAGAIN);
    end(t, t->site, true);
    assert_int_equal(ls_semaphore_acquire(gate, NULL), LS_OK);
    assert_int_equal(ls_semaphore_taken(gate), 1);
    test_site_close(t);
}

/* A waiting sender has not sent. */
TEST(a_waiting_sender_takes_its_value_along)
{
    test_site *t = open_ready(CHANNELS "body(function() for n = 1, 4 do jobs:send(n) end "
                                       "start(function() jobs:send('late') end) end)");
    ls_channel *jobs = jobs_of(t);
    assert_int_equal(ls_channel_len(jobs), 4);
    end(t, t->site, true);
    for (int n = 0; n < 4; n++) {
        ls_message *message;
        assert_int_equal(ls_channel_receive(jobs, NULL, &message), LS_OK);
        assert_int_equal(ls_value_type(message->value), LUA_TNUMBER);
        ls_message_drop(message);
    }
    assert_int_equal(ls_channel_len(jobs), 0);
    test_site_close(t);
}
