/* test_interrupt.c - a computation of Lua is ended from outside, by the number of its object or by all of them. */
#define _GNU_SOURCE
#include "script/bind/interrupt.h"
#include "script/site_fixture.h"

static void stop(void *server) /* the site has ended */
{
    (void)server;
}

/* Run `text` until it logs READY, set the flag of `number`, and run on until DONE. */
static void interrupted(const char *text, uint64_t number)
{
    ls_interrupts all;
    assert_int_equal(ls_interrupts_open(&all), LS_OK);
    const ls_site_host host = {.stop = stop, .interrupts = &all};
    test_site *t = test_site_open(text);
    if (t->opened != LS_OK) fail_msg("the site does not load: %s", t->message);
    t->runtime->host = &host;
    while (strstr(t->log, "READY") == NULL && !t->done) test_pump(t, 20);
    ls_interrupts_set(&all, 1000); /* unknown */
    ls_interrupts_set(&all, number);
    test_pump(t, 10000);
    if (!t->done || strstr(t->log, "FAILED") != NULL) fail_msg("%s\n%s", t->done ? "failed" : "not done", t->log);
    test_site_close(t);
    assert_true(ls_list_empty(&all.list));
    ls_interrupts_close(&all);
}

#define TWO                                                                                                  \
    "body(function() "                                                                                       \
    "  local a, b = core.interrupt(), core.interrupt() "                                                     \
    "  is(a.id, 1) is(b.id, 2) "                                                                             \
    "  local ended = 0 "                                                                                     \
    "  local function run(i) core.spawn(function() "                                                         \
    "    local ok, e = pcall(core.interruptible, i, function() "                                             \
    "      while not b_ends do pcall(core.sleep, 0.001) end return 'whole' end) "                            \
    "    if i == b and b_ends then is(ok, true) is(e, 'whole') else is(ok, false) is(e, 'interrupted') end " \
    "    ended = ended + 1 end) end "                                                                        \
    "  run(a) run(b) core.log('info', 'READY') "

static void the_number_chooses_one(void **state)
{
    (void)state;
    interrupted(TWO "while ended < 1 do core.sleep(0.001) end "
                    "for _ = 1, 5 do core.sleep(0.001) end is(ended, 1) b_ends = true "
                    "while ended < 2 do core.sleep(0.001) end end)",
                1);
}

static void zero_means_all(void **state)
{
    (void)state;
    interrupted(TWO "while ended < 2 do core.sleep(0.001) end end)", 0);
}

static void an_object_without_a_server_is_set_by_lua(void **state)
{
    (void)state;
    test_snippet("body(function() "
                 "  local i = core.interrupt() is(i.id, 0) "
                 "  core.after(0.001, function() i:set() end) "
                 "  local ok, e = pcall(core.interruptible, i, function() while true do core.sleep(0.001) end end) "
                 "  is(ok, false) is(e, 'interrupted') "
                 "  ok, e = pcall(core.interruptible, i, function() local n = 0 while true do n = n + 1 end end) "
                 "  is(e, 'interrupted') " /* the flag stays until it is cleared */
                 "  i:clear() "
                 "  local x, y = core.interruptible(i, function(...) return ... end, 1, 2) "
                 "  is(x, 1) is(y, 2) "
                 "end)");
}

static void errors_have_a_traceback_and_calls_are_not_nested(void **state)
{
    (void)state;
    test_snippet("body(function() "
                 "  local i = core.interrupt() "
                 "  local ok, e = pcall(core.interruptible, i, function() error('no', 0) end) "
                 "  is(ok, false) is(e:match('^no\\nstack traceback:') ~= nil, true) "
                 "  ok, e = pcall(core.interruptible, i, function() core.interruptible(i, print) end) "
                 "  is(e:match('nested') ~= nil, true) "
                 "  ok, e = pcall(coroutine.wrap(function() core.interruptible(i, print) end)) "
                 "  is(e:match('coroutine of a task') ~= nil, true) "
                 "  is(pcall(core.interruptible, {}, print), false) "
                 "end)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_number_chooses_one),
        cmocka_unit_test(zero_means_all),
        cmocka_unit_test(an_object_without_a_server_is_set_by_lua),
        cmocka_unit_test(errors_have_a_traceback_and_calls_are_not_nested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
